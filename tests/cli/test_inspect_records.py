"""What the inspection of records prints and draws."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from albert_tf.cli import inspect_records
from albert_tf.cli.flags import parse
from albert_tf.cli.inspect_records import Statistics, render
from albert_tf.data.records import write_metadata
from albert_tf.data.tfrecord import encode_examples, frame_records
from albert_tf.tokenization import FullTokenizer
from tests.conftest import ROOT

PROGRAM = [sys.executable, "-m", "albert_tf", "inspect-records"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "boat", "画", "蛇", "##蛇"]


@pytest.fixture
def vocab_file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return str(path)


def make(segment_a, segment_b, masked, label=0):
    """An instance of length 13 with 5 slots; `masked` maps positions to what was there."""
    tokens = ["[CLS]", *segment_a, "[SEP]", *segment_b, "[SEP]"]
    padded = tokens + ["[PAD]"] * (13 - len(tokens))
    slots = sorted(masked) + [0] * (5 - len(masked))
    labels = [PIECES.index(masked[at]) if at in masked else 0 for at in slots]
    return {
        "input_ids": np.array([PIECES.index(token) for token in padded]),
        "input_mask": np.array([1] * len(tokens) + [0] * (13 - len(tokens))),
        "segment_ids": np.array(
            [0] * (len(segment_a) + 2) + [1] * (len(segment_b) + 1) + [0] * (13 - len(tokens))
        ),
        "masked_lm_positions": np.array(slots),
        "masked_lm_ids": np.array(labels),
        "masked_lm_weights": np.array([1.0] * len(masked) + [0.0] * (5 - len(masked))),
        "next_sentence_labels": np.array([label]),
    }


EXAMPLES = [
    make(["play", "##ing", "[MASK]"], ["画", "蛇", "boat"], {3: "boat", 6: "##蛇"}, label=1),
    make(["boat"], ["play", "[MASK]", "boat", "蛇"], {4: "##ing", 5: "画", 6: "蛇"}),
]


def write_records(path, examples):
    batch = {name: np.stack([example[name] for example in examples]) for name in examples[0]}
    path.write_bytes(b"".join(frame_records(encode_examples(batch))))
    return str(path)


def show(*arguments):
    inspect_records.run(parse(inspect_records.Settings, arguments))


def test_what_is_to_be_predicted_stands_in_brackets(vocab_file):
    tokenizer = FullTokenizer(vocab_file)
    assert [render(example, tokenizer) for example in EXAMPLES] == [
        "9 tokens, 2 to predict, label 1 (swapped)\n"
        "  A  [CLS] playing [boat] [SEP]\n"
        "  B 画[##蛇=] boat [SEP]",
        "8 tokens, 3 to predict, label 0 (in order)\n"
        "  A  [CLS] boat [SEP]\n"
        "  B  play[##ing][画>boat][蛇=] [SEP]",
    ]


def test_without_a_vocabulary_there_are_ids():
    assert render(EXAMPLES[0], None).splitlines()[1] == "  A  2 5 6 [7>4] 3"


def test_sentencepiece_marks_become_spaces(toy_tokenizer):
    ids = [*toy_tokenizer.encode("the river"), *toy_tokenizer.encode("children")]
    example = {
        "input_ids": np.array([toy_tokenizer.cls_id, *ids, toy_tokenizer.sep_id]),
        "input_mask": np.ones(len(ids) + 2),
        "segment_ids": np.zeros(len(ids) + 2),
        "masked_lm_positions": np.array([1]),
        "masked_lm_ids": np.array([ids[0]]),
        "masked_lm_weights": np.ones(1),
        "next_sentence_labels": np.zeros(1),
    }
    first = toy_tokenizer.pieces[ids[0]]
    expected = f" [{first.lstrip('▁')}=]" + " the river children"[len(first) :]
    assert render(example, toy_tokenizer).splitlines()[1] == f"  A  [CLS]{expected} [SEP]"


def test_statistics_count_what_the_records_hold(vocab_file):
    tokenizer = FullTokenizer(vocab_file)
    statistics = Statistics()
    for example in EXAMPLES:
        statistics.add(example, tokenizer)
    assert statistics.labels == {0: 1, 1: 1}
    assert statistics.replacements == {"[MASK]": 2, "the piece itself": 2, "another piece": 1}
    assert statistics.inner_labels == 2
    assert statistics.values == {
        "tokens of an instance": [9, 8],
        "tokens to predict in an instance": [2, 3],
        "neighbors to predict in a stretch": [1, 1, 3],
        "share of segment A, %": [100 * 5 / 9, 100 * 3 / 8],
    }
    assert statistics.summary().startswith("2 instances, 17 tokens, 5 to predict (29.41 %)\n")
    assert "\nshare of segment A, %: 37.5 to 55.56, mean 46.53" in statistics.summary()


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "1 (swapped)"),
        ({"sentence_objective": "nsp"}, "1 (random)"),
        ({"sentence_objective": "not registered"}, "1"),
    ],
)
def test_the_metadata_say_what_a_label_means(tmp_path, capsys, settings, name):
    path = tmp_path / "train"
    write_records(path, EXAMPLES[:1])
    entry = {"name": path.name, "instances": 1, "bytes": path.stat().st_size}
    vocabulary = {"size": 9, "checksum": "a", "file": "a.model"}
    metadata = {"files": [entry], "settings": settings, "vocabulary": vocabulary, "mask_id": 4}
    write_metadata(str(tmp_path / "train.records.json"), metadata)
    inspect_records.run(inspect_records.Settings(input_file=str(path)))
    shown = capsys.readouterr().out
    assert f"2 to predict, label {name}\n" in shown
    assert f"\nlabel {name}: 1 (100.0 %)\n" in shown


def test_the_script_prints_instances_and_counts(tmp_path, vocab_file, capsys):
    write_records(tmp_path / "train-0", EXAMPLES[:1])
    write_records(tmp_path / "train-1", EXAMPLES[1:])
    flags = [f"--input_file={tmp_path}/train-*", f"--vocab_file={vocab_file}", "--num_instances=1"]
    command = [*PROGRAM, *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "A  [CLS] playing [boat] [SEP]" in done.stdout
    assert "[画>boat]" not in done.stdout
    assert "2 instances, 17 tokens" in done.stdout
    assert done.stdout.count("mean") == 4
    show(flags[0], "--max_records=1", "--num_instances=0")
    assert "1 instances, 9 tokens" in capsys.readouterr().out


def test_a_plot_is_drawn(tmp_path):
    records = write_records(tmp_path / "train", EXAMPLES)
    picture = tmp_path / "picture.png"
    show(f"--input_file={records}", f"--plot={picture}")
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"--plot=picture\.doc.*\.png"):
        show(f"--input_file={records}", "--plot=picture.doc")


def test_a_plot_does_not_replace_the_records(tmp_path):
    records = write_records(tmp_path / "records.png", EXAMPLES)
    with pytest.raises(ValueError, match=r"--plot: .*records\.png is an input, --input_file"):
        inspect_records.run(inspect_records.Settings(input_file=records, plot=records))


def test_another_vocabulary_is_an_error_that_names_both(tmp_path, vocab_file):
    records = write_records(tmp_path / "train", EXAMPLES)
    size = (tmp_path / "train").stat().st_size
    write_metadata(
        f"{records}.records.json",
        {
            "settings": {},
            "files": [{"name": "train", "instances": 2, "bytes": size}],
            "vocabulary": {"checksum": "0" * 64, "size": 9, "file": "other.model"},
            "mask_id": 4,
        },
    )
    with pytest.raises(ValueError, match=rf"(?s)other\.model, SHA-256 0000.*{vocab_file}"):
        show(f"--input_file={tmp_path}/tr*", f"--vocab_file={vocab_file}")


def test_other_records_and_none_are_errors(tmp_path):
    batch = {"input_ids": np.ones((1, 3), int)}
    path = tmp_path / "other"
    path.write_bytes(b"".join(frame_records(encode_examples(batch))))
    with pytest.raises(ValueError, match=r"other, record 1 .*: missing input_mask"):
        show(f"--input_file={path}")
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"no records in .*other"):
        show(f"--input_file={path}")


def test_a_closed_pipe_ends_the_program_quietly(tmp_path, vocab_file):
    path = write_records(tmp_path / "a.tfrecord", EXAMPLES * 5000)
    command = [*PROGRAM, f"--input_file={path}", f"--vocab_file={vocab_file}"]
    command += ["--num_instances=10000"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdout.readline()
        process.stdout.close()  # as `head -1` does
        assert process.stderr.read() == b""
    assert process.returncode == 0
