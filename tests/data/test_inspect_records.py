"""What the inspection of records prints."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from albert_tf.cli.flags import parse
from albert_tf.data import inspect_records
from albert_tf.data.record_metadata import write_metadata
from albert_tf.data.tf_example import encode_examples
from albert_tf.record_frames import frame_records

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
    first, second = len(segment_a) + 2, len(segment_b) + 1
    return {
        "input_ids": np.array([PIECES.index(token) for token in padded]),
        "input_mask": np.array([1] * len(tokens) + [0] * (13 - len(tokens))),
        "segment_ids": np.array([0] * first + [1] * second + [0] * (13 - len(tokens))),
        "masked_lm_positions": np.array(slots),
        "masked_lm_ids": np.array(labels),
        "masked_lm_weights": np.array([1.0] * len(masked) + [0.0] * (5 - len(masked))),
        "next_sentence_labels": np.array([label]),
    }


EXAMPLES = [
    make(["play", "##ing", "[MASK]"], ["画", "蛇", "boat"], {3: "boat", 6: "##蛇"}, label=1),
    make(["boat"], ["play", "[MASK]", "boat", "蛇"], {4: "##ing", 5: "画", 6: "蛇"}),
]


@pytest.fixture
def records(tmp_path):
    """Path of a file with EXAMPLES."""
    batch = {name: np.stack([example[name] for example in EXAMPLES]) for name in EXAMPLES[0]}
    (tmp_path / "train").write_bytes(b"".join(frame_records(encode_examples(batch))))
    return str(tmp_path / "train")


def show(*arguments):
    """Returns what the program prints."""
    items = inspect_records.run(parse(inspect_records.Settings, arguments))
    return "".join(f"{item}\n" for item in items)


def test_what_is_to_be_predicted_stands_in_brackets_above_the_counts(records, vocab_file):
    assert (
        show(f"--input_file={records}", f"--vocab_file={vocab_file}")
        == f"""{inspect_records.LEGEND}

9 tokens, 2 to predict, label 1 (swapped)
  A [CLS] playing [boat] [SEP]
  B 画[蛇=] boat [SEP]

8 tokens, 3 to predict, label 0 (in order)
  A [CLS] boat [SEP]
  B play[ing] [画>boat] [蛇=] [SEP]

2 instances, 17 tokens, 5 to predict (29.41 %)
label 0 (in order): 1 (50.0 %)
label 1 (swapped): 1 (50.0 %)
to predict, [MASK]: 2 (40.0 %)
to predict, kept: 2 (40.0 %)
to predict, another: 1 (20.0 %)
tokens of an instance: 8 to 9, mean 8.50
tokens to predict in an instance: 2 to 3, mean 2.50
"""
    )
    ids = show(f"--input_file={records}", "--num_instances=1")
    assert "  A 2 5 6 [7>4] 3\n" in ids
    assert "to predict, masked or another: 4 (80.0 %)\nto predict, kept: 1 (20.0 %)\n" in ids


@pytest.mark.parametrize(("num_instances", "max_records"), [(0, 1), (1, 1), (1, 2), (2, 2), (1, 0)])
def test_so_many_instances_are_shown_and_so_many_records_are_counted(
    records, num_instances, max_records
):
    flags = f"--num_instances={num_instances}", f"--max_records={max_records}"
    shown = show(f"--input_file={records}", *flags)
    assert shown.count(" to predict, label ") == num_instances
    assert f"\n{max_records or 2} instances, " in shown


@pytest.mark.parametrize(
    ("files", "copies", "max_records", "said"),
    [
        (3, 1, 0, None),
        (3, 1, 6, None),
        (3, 1, 5, "A sample of 5 records, the first ones of 3 of 3 files; --max_records=0"),
        (3, 1, 2, "A sample of 2 records, the first ones of 2 of 3 files; --max_records=0"),
        (250, 1, 120, "A sample of 120 records, the first ones of 84 of 250 files; "),
        pytest.param(
            *(2, 6000, 10_000, "A sample of 10,000 records, the first ones of 2 of 2 files; "),
            marks=pytest.mark.ci,
        ),
    ],
)
def test_a_sample_is_said_to_be_one(records, tmp_path, files, copies, max_records, said):
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(files):
        (folder / f"{number}").write_bytes((tmp_path / "train").read_bytes() * copies)
    flags = [] if max_records == 10_000 else [f"--max_records={max_records}"]
    shown = show(f"--input_file={folder}/*", "--num_instances=0", *flags)
    if said is None:
        assert "sample" not in shown
        assert "\n6 instances, " in shown
    else:
        assert shown.startswith(f"\n{said}")
        assert f"\n{max_records:,} instances, " in shown


def test_the_size_of_the_whole_is_said_if_the_metadata_tell_it(records, tmp_path):
    size = (tmp_path / "train").stat().st_size
    vocabulary = {"size": 9, "checksum": "0" * 64, "file": "other.model"}
    entry = {"name": "train", "instances": 2, "bytes": size}
    metadata = {"files": [entry], "settings": {}, "vocabulary": vocabulary, "mask_id": 4}
    write_metadata(f"{records}.records.json", metadata)
    shown = show(f"--input_file={records}", "--num_instances=0", "--max_records=1")
    assert shown.startswith("\nA sample of 1 of 2 records, the first ones of 1 of 1 files; ")


def test_a_reader_who_has_seen_enough_ends_it(records, tmp_path):
    (tmp_path / "many").write_bytes((tmp_path / "train").read_bytes() * 5000)
    command = [sys.executable, "-m", "albert_tf", "inspect-records", "--num_instances=10000"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*command, f"--input_file={tmp_path}/many"], **pipes) as process:
        process.stdout.readline()
        process.stdout.close()  # as `head -1` does
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({}, "1 (swapped)"),
        ({"sentence_objective": "nsp"}, "1 (random)"),
        ({"sentence_objective": "not registered"}, "1"),
    ],
)
def test_the_metadata_tell_the_meaning_of_a_label_and_the_vocabulary(
    records, vocab_file, tmp_path, settings, label
):
    size = (tmp_path / "train").stat().st_size
    metadata = {
        "files": [{"name": "train", "instances": 2, "bytes": size}],
        "settings": settings,
        "vocabulary": {"size": 9, "checksum": "0" * 64, "file": "other.model"},
        "mask_id": 4,
    }
    write_metadata(f"{records}.records.json", metadata)
    shown = show(f"--input_file={tmp_path}/tr*", "--num_instances=1", "--max_records=1")
    assert f"2 to predict, label {label}\n" in shown
    assert f"\nlabel {label}: 1 (100.0 %)\n" in shown
    assert "to predict, [MASK]: 1 (50.0 %)\n" in shown
    assert "  A 2 5 6 [7] 3\n" in shown
    with pytest.raises(ValueError, match=rf"(?s)other\.model, SHA-256 0000.*{vocab_file}"):
        show(f"--input_file={records}", f"--vocab_file={vocab_file}")
