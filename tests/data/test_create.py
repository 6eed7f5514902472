"""The data program as a library: outputs, their metadata, interruptions."""

from __future__ import annotations

import collections
import dataclasses
import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from albert_tf import files
from albert_tf.data import corpus, create, report, shuffling
from albert_tf.data.create import create_pretraining_data
from albert_tf.data.records import (
    FEATURES,
    Outputs,
    count_records,
    exclude_metadata,
    read_metadata,
    read_records,
)
from albert_tf.data.settings import MEGABYTE, Settings
from albert_tf.data.tfrecord import decode_example
from tests.conftest import ROOT, TOY_TEXT

SETTINGS = Settings(
    input_file="none",
    output_file="none",
    max_seq_length=37,
    dupe_factor=3,
    max_predictions_per_seq=7,
    chunk_megabytes=5000 / MEGABYTE,
    num_workers=1,
    show_progress=False,
)


@pytest.fixture(scope="module")
def corpus_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    rng = random.Random(5)
    lines = TOY_TEXT.splitlines()
    documents = ["\n".join(rng.choices(lines, k=rng.randint(1, 9))) for _ in range(120)]
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def make(tmp_path, corpus_file, toy_spm_model):
    """Runs the program in a separate folder and returns the metadata."""

    def run(output="out/train@3", inputs=None, **changes):
        settings = dataclasses.replace(
            SETTINGS,
            input_file=",".join(inputs or [corpus_file]),
            output_file=str(tmp_path / output),
            spm_model_file=toy_spm_model,
        )
        return create_pretraining_data(dataclasses.replace(settings, **changes))

    return run


def contents(folder):
    """Returns the content of all files."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def all_records(folder):
    paths = exclude_metadata(map(str, sorted(folder.iterdir())))
    return [record for path in paths for record in read_records(path)]


def test_records_have_the_official_features(tmp_path, make, toy_tokenizer):
    metadata = make()
    records = all_records(tmp_path / "out")
    assert len(records) == metadata["counts"]["instances"] > 300
    widths = {"max_seq_length": 37, "max_predictions_per_seq": 7, 1: 1}
    for record in records[:50]:
        features = decode_example(record)
        assert {name: len(values) for name, values in features.items()} == {
            name: widths[width] for name, (_, width) in FEATURES.items()
        }
        length = features["input_mask"].sum()
        assert features["input_ids"][0] == toy_tokenizer.cls_id
        assert features["input_ids"][length - 1] == toy_tokenizer.sep_id


def test_tensorflow_reads_the_records(tmp_path, make):
    import tensorflow as tf

    make("out/train", compression="gzip")
    dataset = tf.data.TFRecordDataset(str(tmp_path / "out" / "train"), "GZIP")
    spec = {
        "input_ids": tf.io.FixedLenFeature([37], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([7], tf.float32),
    }
    (batch,) = dataset.batch(10_000)
    weights = tf.io.parse_example(batch, spec)["masked_lm_weights"].numpy()
    assert len(weights) == count_records(str(tmp_path / "out" / "train"))
    assert weights.sum(axis=1).min() >= 1
    assert weights.sum(axis=1).max() <= 7


def test_metadata_describes_the_files(tmp_path, make, toy_tokenizer):
    metadata = make()
    folder = tmp_path / "out"
    assert json.loads((folder / "train.records.json").read_text("utf-8")) == metadata
    paths = [str(folder / entry["name"]) for entry in metadata["files"]]
    found = read_metadata(paths)
    assert {path: info.instances for path, info in found.items()} == {
        path: count_records(path) for path in paths
    }
    settings = found[paths[0]].settings
    assert (settings["max_seq_length"], settings["max_predictions_per_seq"]) == (37, 7)
    assert found[paths[0]].vocabulary["checksum"] == toy_tokenizer.checksum
    assert found[paths[0]].vocabulary["size"] == toy_tokenizer.vocab_size


def test_counts_are_those_of_the_records(tmp_path, make):
    counts = make()["counts"]
    examples = list(map(decode_example, all_records(tmp_path / "out")))
    assert counts["documents"] == 120
    assert counts["positions"] == sum(int(example["input_mask"].sum()) for example in examples)
    assert counts["predictions"] == sum(
        int(example["masked_lm_weights"].sum()) for example in examples
    )
    assert counts["label_1"] == sum(int(example["next_sentence_labels"][0]) for example in examples)


def test_the_same_command_writes_the_same_bytes_in_every_version(tmp_path):
    """Records must stay reproducible: no change to the code may alter the random streams."""
    vocabulary = tmp_path / "vocab.txt"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##a", *"abcdefgh天地人和"]
    vocabulary.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    text = tmp_path / "text.txt"
    lines = [
        "a b c 天 d e",
        "fa 地 人 g",
        "h 和 b a",
        "",
        "c d ca",
        "e 天地",
        "f x g h",
        "",
        "人 b",
    ]
    text.write_text("\n".join(lines * 9) + "\n", encoding="utf-8")
    for name, settings in {
        "plain": SETTINGS,
        "other": dataclasses.replace(
            SETTINGS,
            max_seq_length=13,
            dupe_factor=2,
            short_seq_prob=0.5,
            random_next_sentence=True,
            random_seed=7,
            max_predictions_per_seq=20,
            ngram=2,
            favor_shorter_ngram=False,
            do_permutation=True,
        ),
    }.items():
        settings = dataclasses.replace(
            settings,
            input_file=str(text),
            output_file=str(tmp_path / name),
            vocab_file=str(vocabulary),
            chunk_megabytes=300 / MEGABYTE,
        )
        create_pretraining_data(settings)
    found = {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        for name in ("plain", "other")
    }
    assert found == {
        "plain": "386a8430e769a0a0c7453b6746eec04414807d39b34bb8b381f2d4236374a7d0",
        "other": "2b21b13d90126ea36d1f5db4cdee79e0b5e0621669247f421f5e4f4c54750db9",
    }


def test_outputs_are_balanced(make):
    sizes = [entry["instances"] for entry in make(chunk_megabytes=1)["files"]]
    assert max(sizes) - min(sizes) <= 1


def test_instances_of_a_document_are_spread_over_the_outputs(tmp_path, make):
    make("out/train")
    positions = collections.defaultdict(list)
    for place, record in enumerate(all_records(tmp_path / "out")):
        positions[decode_example(record)["input_ids"][1:5].tobytes()].append(place)
    # Records that start alike come from the same documents; unshuffled, they would be adjacent.
    gaps = [np.diff(places) for places in positions.values() if len(places) > 5]
    assert np.median(np.concatenate(gaps)) > 5


@pytest.fixture
def mixed_inputs(tmp_path, corpus_file):
    """A file of several chunks, a compressed one, and small files, some of them empty."""
    packed = tmp_path / "corpus.gz"
    text = Path(corpus_file).read_bytes()
    packed.write_bytes(gzip.compress(text[::-1].replace(b"\n", b"\r\n")))
    small = [tmp_path / f"{number:02d}.txt" for number in range(20)]
    for number, path in enumerate(small):
        path.write_bytes(text[100 * number : 150 * number])
    return [str(small[0]), corpus_file, *map(str, small[1:]), str(packed)]


def test_the_number_of_processes_changes_no_byte(tmp_path, make, mixed_inputs):
    make(inputs=mixed_inputs)
    expected = contents(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    make(inputs=mixed_inputs, num_workers=3)
    assert contents(tmp_path / "out") == expected
    assert set(expected) == {
        *(f"train-{shard:05d}-of-00003" for shard in range(3)),
        "train.records.json",
    }


def test_compressed_records_are_the_same(tmp_path, make):
    make("plain/train")
    make("packed/train", compression="gzip")
    packed = (tmp_path / "packed" / "train").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "plain" / "train").read_bytes()
    make("again/train", compression="gzip")
    assert (tmp_path / "again" / "train").read_bytes() == packed


def test_a_small_shuffle_buffer_loses_nothing(tmp_path, make, monkeypatch):
    make("large/train@2")
    monkeypatch.setattr(shuffling, "SPILL_BYTES", 10_000)
    make("small/train@2", shuffle_megabytes=20_000 / MEGABYTE)
    large, small = all_records(tmp_path / "large"), all_records(tmp_path / "small")
    assert large != small
    assert sorted(large) == sorted(small)


def test_seeds_and_passes_make_a_difference(tmp_path, make):
    make("one/train")
    make("two/train", random_seed=7)
    assert sorted(all_records(tmp_path / "one")) != sorted(all_records(tmp_path / "two"))


def test_several_and_compressed_inputs(tmp_path, make, corpus_file):
    packed = tmp_path / "corpus.gz"
    with open(corpus_file, "rb") as stream:
        packed.write_bytes(gzip.compress(stream.read()))
    metadata = make(inputs=[corpus_file, str(packed)])
    assert metadata["counts"]["documents"] == 240


def test_text_in_other_formats_results_in_the_same_instances(tmp_path, make):
    documents = ["one boat\ntwo boats", "the sea\nthe river\nrain"]
    inputs = []
    for number, document in enumerate(documents):
        inputs.append(tmp_path / f"{number}.txt")
        inputs[-1].write_text(document.replace("\n", "\n\n"), encoding="utf-8")
    lines = tmp_path / "text.jsonl"
    lines.write_text(
        "".join(json.dumps({"body": text}) + "\n" for text in documents), encoding="utf-8"
    )
    plain = tmp_path / "plain.txt"
    plain.write_text("\n\n".join(documents), encoding="utf-8")
    expected = make("plain/train", inputs=[str(plain)])
    make("files/train", inputs=list(map(str, inputs)), input_format="documents")
    made = make("json/train", inputs=[str(lines)], input_format="jsonl", text_field="body")
    assert made["counts"] == expected["counts"]
    assert (made["settings"]["input_format"], made["settings"]["text_field"]) == ("jsonl", "body")
    contents_of = [(tmp_path / name / "train").read_bytes() for name in ("plain", "files", "json")]
    assert contents_of[0] == contents_of[1] == contents_of[2]


def test_another_input_format_is_a_different_run(tmp_path, make, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, "finish_chunk", 1)
        with pytest.raises(StoppedError):
            make()
    with pytest.raises(ValueError, match="input_format 'sentences', now 'documents'"):
        make(input_format="documents")


def test_remote_files_are_read_and_written(tmp_path, make, corpus_file):
    store = f"file://{tmp_path}"
    files.ensure_directory(f"{store}/in", "--input_file")
    files.copy(corpus_file, f"{store}/in/corpus.txt")
    expected = make("local/train@2")
    remote = {"inputs": [f"{store}/in/corpus.txt"], "output_file": f"{store}/out/train@2"}
    metadata = make(**remote, work_dir=str(tmp_path / "work"))
    assert metadata == expected
    names = ["train-00000-of-00002", "train-00001-of-00002", "train.records.json"]
    assert files.list_directory(f"{store}/out") == names
    for name in names:
        with files.open_binary(f"{store}/out/{name}") as stream:
            assert stream.read() == (tmp_path / "local" / name).read_bytes()
    again = make(**remote, work_dir="/proc/nowhere", resume=True)
    assert again == expected  # already complete: no work directory is needed


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inputs": ["nfs://b/x"]}, "nfs://b/x: Protocol not known: nfs"),
        ({"work_dir": "gs://b/x"}, "--work_dir=gs://b/x: expected a local directory"),
    ],
)
def test_unusable_paths_are_rejected_before_text_is_read(
    tmp_path, make, monkeypatch, settings, message
):
    monkeypatch.setattr(corpus, "read_chunks", None)
    with pytest.raises(ValueError, match=message):
        make(**settings)
    assert not list(tmp_path.glob("out/*"))


class StoppedError(Exception):
    """Simulates an interruption of a run."""


def stop_after(monkeypatch, name, times):
    """Makes the work directory's method `name` raise after some calls."""
    real = getattr(create.WorkDirectory, name)
    calls = []

    def stopping(self, *args):
        if len(calls) == times:
            raise StoppedError
        calls.append(args)
        real(self, *args)

    monkeypatch.setattr(create.WorkDirectory, name, stopping)
    return calls


@pytest.mark.parametrize(
    ("name", "times"), [("finish_chunk", 1), ("finish_chunk", 4), ("finish_output", 1)]
)
def test_resuming_writes_the_same_bytes_and_repeats_no_chunk(
    tmp_path, make, monkeypatch, name, times
):
    with monkeypatch.context() as patch:
        total = stop_after(patch, name, 99)
        make("expected/train@3")
    with monkeypatch.context() as patch:
        stop_after(patch, name, times)
        with pytest.raises(StoppedError):
            make("out/train@3")
    folder = tmp_path / "out"
    assert not (folder / "train.records.json").exists()
    assert (folder / "train.work").is_dir()
    assert not any(path.suffix == ".tmp" for path in folder.iterdir())
    calls = stop_after(monkeypatch, name, 99)
    make("out/train@3")
    assert contents(folder) == contents(tmp_path / "expected")
    assert len(calls) == len(total) - times > 0


def test_resuming_with_different_settings_is_rejected(make, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, "finish_chunk", 2)
        with pytest.raises(StoppedError):
            make()
    with pytest.raises(ValueError, match="chunk_bytes 5000, now 6000"):
        make(chunk_megabytes=6000 / MEGABYTE)


def test_changed_text_is_encoded_again_on_resuming(tmp_path, make, monkeypatch, corpus_file):
    text = tmp_path / "text.txt"
    shutil.copy(corpus_file, text)
    with monkeypatch.context() as patch:
        stop_after(patch, "finish_output", 1)
        with pytest.raises(StoppedError):
            make(inputs=[str(text)])
    lines = text.read_text("utf-8").splitlines()
    text.write_text("\n".join([*lines[:-3], "A boat on the sea."]) + "\n", encoding="utf-8")
    calls = stop_after(monkeypatch, "finish_chunk", 99)
    make(inputs=[str(text)])
    assert len(calls) == 1
    monkeypatch.undo()
    expected = make("expected/train@3", inputs=[str(text)])
    assert expected["counts"]["documents"] > 0
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")


def test_resuming_a_complete_run_does_nothing(tmp_path, make, monkeypatch):
    metadata = make()
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    stop_after(monkeypatch, "finish_chunk", 0)
    assert make(resume=True) == metadata
    assert before == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    with pytest.raises(StoppedError):
        make()


def test_outputs_of_different_settings_are_not_considered_complete(tmp_path, make):
    make()
    before = contents(tmp_path / "out")
    expected = (
        r"train\.records\.json: .* different settings: ngram 3, now 2; random_seed 12345, now 7\."
    )
    with pytest.raises(ValueError, match=expected + r" .* --noresume"):
        make(resume=True, ngram=2, random_seed=7)
    assert contents(tmp_path / "out") == before
    assert make(ngram=2)["settings"]["ngram"] == 2


@pytest.mark.parametrize("checksum", ["of another text", "unknown"])
def test_outputs_of_another_text_are_recreated(tmp_path, make, caplog, checksum):
    text = tmp_path / "text.txt"
    text.write_text(TOY_TEXT, encoding="utf-8")
    make(inputs=[str(text)])
    stat = text.stat()
    if checksum == "unknown":  # as in metadata written by an earlier version
        path = tmp_path / "out" / "train.records.json"
        metadata = json.loads(path.read_text("utf-8"))
        del metadata["text_checksum"]
        path.write_text(json.dumps(metadata), encoding="utf-8")
    else:  # another text of the same size and modification time
        text.write_text(TOY_TEXT.replace("boat", "ship"), encoding="utf-8")
        os.utime(text, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    made = make(inputs=[str(text)], resume=True)
    assert "--input_file: the text has changed since the outputs were created" in caplog.text
    make("expected/train@3", inputs=[str(text)])
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")
    caplog.clear()
    assert make(inputs=[str(text)], resume=True) == made
    assert not caplog.records


def test_a_warning_names_leftover_files_of_an_earlier_run(tmp_path, make, caplog):
    make("out/train@3")
    make("out/train@3", ngram=2)
    assert not caplog.records
    make("out/train@2")
    first = tmp_path / "out" / "train-00000-of-00003"
    assert f"3 files of an earlier run, such as {first}, remain" in caplog.text
    assert first.exists()


def test_compressed_text_makes_the_same_records(tmp_path, make, corpus_file):
    changes = {"chunk_megabytes": 1000 / MEGABYTE}
    make("plain/train", **changes)
    copy = tmp_path / "copy.txt.gz"
    copy.write_bytes(gzip.compress(Path(corpus_file).read_bytes()))
    made = make("packed/train", inputs=[str(copy)], **changes)
    assert contents(tmp_path / "plain") == contents(tmp_path / "packed")
    assert made["counts"]["documents"] == 120


def test_text_that_was_shortened_leaves_no_instances_behind(tmp_path, make, monkeypatch):
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path in paths:
        path.write_text("\n\n".join([TOY_TEXT] * 20), encoding="utf-8")
    with monkeypatch.context() as patch:
        stop_after(patch, "finish_output", 2)
        with pytest.raises(StoppedError):
            make(inputs=list(map(str, paths)))
    paths[1].write_text("", encoding="utf-8")
    made = make(inputs=list(map(str, paths)))
    assert made == make("expected/train@3", inputs=[str(paths[0])])
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")


def test_a_copy_of_the_text_is_the_same_text(tmp_path, make, corpus_file, monkeypatch):
    metadata = make()
    copy = tmp_path / "copy.txt.gz"
    with open(corpus_file, "rb") as stream:
        copy.write_bytes(gzip.compress(stream.read()))
    stop_after(monkeypatch, "finish_chunk", 0)
    assert make(inputs=[str(copy)], resume=True) == metadata


def test_an_error_leaves_earlier_outputs_alone(tmp_path, make, monkeypatch):
    make("out/train")
    before = contents(tmp_path / "out")
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"a sentence\n\nin Latin-1: \xe9\n")
    with pytest.raises(ValueError, match=r"bad\.txt, line 3: not UTF-8"):
        make("out/train", inputs=[str(bad)])
    assert contents(tmp_path / "out") == before


def test_a_full_disk_is_reported_and_leaves_nothing_half_written(tmp_path, make, monkeypatch):
    def full(self, *_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shuffling.Spill, "flush", full)
    with pytest.raises(OSError, match="No space left"):
        make()
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("text", ["\n\n  \n", "\u0301\n\n\u0301\n"])
def test_a_text_without_tokens_is_an_error(tmp_path, make, text):
    path = tmp_path / "blank.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="--input_file: no text in these files"):
        make(inputs=[str(path)])
    make()  # with the intended text


def test_empty_inputs_are_rejected_before_any_work(tmp_path, make):
    empty = tmp_path / "empty.txt"
    empty.touch()
    with pytest.raises(ValueError, match=r"empty\.txt: all input files are empty"):
        make(inputs=[str(empty)])
    with pytest.raises(ValueError, match=r"--input_file: .*nowhere\.txt' matches no file"):
        make(inputs=[str(tmp_path / "nowhere.txt")])
    assert not (tmp_path / "out").exists()


def test_an_output_that_is_an_input_is_rejected(tmp_path, make, corpus_file, toy_spm_model):
    named = [
        ("link.txt", "link.txt", "--input_file", corpus_file),
        ("v.model", "v.model", "--spm_model_file", toy_spm_model),
        ("train", "train.records.json", "--input_file", corpus_file),
    ]
    for output, name, flag, source in named:
        (tmp_path / name).symlink_to(source)
        with pytest.raises(ValueError, match=rf"--output_file: .*{name} is an input, {flag}"):
            make(output)
        assert (tmp_path / name).is_symlink()


def test_an_output_that_is_a_directory_is_rejected(tmp_path, make):
    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match="out: cannot write a file here, this is a directory"):
        make("out")


def test_pipes_are_neither_read_nor_replaced(tmp_path, make):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileNotFoundError, match="pipe: expected a file, but this is a pipe"):
        make(inputs=[str(pipe)])
    with pytest.raises(ValueError, match="pipe: cannot write a file here"):
        make("pipe")
    assert pipe.is_fifo()


def test_a_second_run_with_the_same_outputs_is_rejected(tmp_path, make, monkeypatch):
    finish_chunk = create.WorkDirectory.finish_chunk

    def begin_another(*args):
        with pytest.raises(ValueError, match=r"--output_file=.*train: another process is writing"):
            make(work_dir=str(tmp_path / "other"))
        finish_chunk(*args)

    monkeypatch.setattr(create.WorkDirectory, "finish_chunk", begin_another)
    assert make()["counts"]["instances"]
    assert not (tmp_path / "other").exists()


def test_an_output_folder_that_cannot_be_created_is_rejected_before_any_work(tmp_path, make):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"--output_file: cannot write to .*file/out"):
        make("file/out/train")


def test_the_work_directory_must_be_local(make):
    with pytest.raises(ValueError, match="--work_dir=gs://bucket/x: expected a local directory"):
        make(work_dir="gs://bucket/x")


def test_a_vocabulary_without_special_tokens_is_rejected_before_any_work(tmp_path, make):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\nthe\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"lacks \[SEP\], \[MASK\]"):
        make("out", spm_model_file=None, vocab_file=str(vocabulary))


def test_one_sentence_documents_become_instances(tmp_path, make):
    path = tmp_path / "single.txt"
    path.write_text("\n\n".join(TOY_TEXT.splitlines()), encoding="utf-8")
    metadata = make(inputs=[str(path)])
    assert metadata["counts"]["documents"] == 6
    assert metadata["counts"]["label_1"] == metadata["counts"]["instances"] == 18


def test_counts_may_be_zero(tmp_path, make):
    path = tmp_path / "two.txt"
    path.write_text("the river\nthe sea\n", encoding="utf-8")
    changes = {"inputs": [str(path)], "dupe_factor": 1, "masked_lm_prob": 0.0}
    labels = set()
    for seed in range(20):
        counts = make(f"{seed}/train", random_seed=seed, **changes)["counts"]
        assert (counts["instances"], counts["predictions"]) == (1, 0)
        labels.add(counts["label_1"])
    assert labels == {0, 1}


def test_a_single_document_becomes_instances(tmp_path, make):
    path = tmp_path / "single.txt"
    path.write_text(TOY_TEXT, encoding="utf-8")
    assert make(inputs=[str(path)])["counts"]["documents"] == 1


def test_the_first_instances_are_logged(tmp_path, make, toy_tokenizer, caplog):
    make("out/train@2")
    paths = Outputs.parse(str(tmp_path / "out" / "train@2")).paths
    with caplog.at_level("INFO", logger="absl"):
        report.log_instances(paths, toy_tokenizer, 3)
    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("*** Example ***") == 3
    tokens = [message for message in messages if message.startswith("tokens: [CLS]")]
    assert len(tokens) == 3
    first = [next(iter(read_records(path))) for path in paths]
    assert all(
        " ".join(map(str, decode_example(record)["input_ids"])) in "\n".join(messages)
        for record in first
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_killed_at_random_and_resumed_writes_the_same_bytes(
    tmp_path, make, corpus_file, toy_spm_model
):
    make("expected/train@3", num_workers=2, chunk_megabytes=1000 / MEGABYTE)
    command = [
        *(sys.executable, str(ROOT / "create_pretraining_data.py")),
        f"--input_file={corpus_file}",
        f"--output_file={tmp_path}/out/train@3",
        f"--spm_model_file={toy_spm_model}",
        *("--max_seq_length=37", "--dupe_factor=3", "--max_predictions_per_seq=7"),
        *(f"--chunk_megabytes={1000 / (1 << 20)}", "--num_workers=2", "--resume"),
        "--num_logged_instances=0",
    ]
    rng = random.Random(5)
    killed = 0
    for _ in range(10):
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(rng.uniform(0.2, 0.9))
        killed += process.poll() is None
        process.kill()  # no effect if it has ended
        process.wait()
    assert killed
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")


@pytest.fixture
def heavy_command(tmp_path, toy_spm_model):
    """The settings of a run of some seconds, with 150 chunks and 5 outputs."""
    rng = random.Random(7)
    lines = TOY_TEXT.splitlines()
    documents = ["\n".join(rng.choices(lines, k=rng.randint(1, 60))) for _ in range(1500)]
    text = tmp_path / "heavy.txt"
    text.write_text("\n\n".join(documents) + "\n", encoding="utf-8")

    def command(output, *flags):
        return [
            *(sys.executable, str(ROOT / "create_pretraining_data.py")),
            *(f"--input_file={text}", f"--output_file={output}"),
            *(f"--spm_model_file={toy_spm_model}", "--max_seq_length=67", "--dupe_factor=4"),
            *("--max_predictions_per_seq=7", "--chunk_megabytes=0.02", "--num_workers=2"),
            *("--shuffle_megabytes=1", "--num_logged_instances=0", *flags),
        ]

    return command


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_killed_ten_times_loses_and_repeats_nothing(tmp_path, heavy_command):
    subprocess.run(heavy_command(tmp_path / "expected" / "train@5"), check=True)
    command = heavy_command(tmp_path / "out" / "train@5", "--resume")
    work = tmp_path / "out" / "train.work"
    rng = random.Random(5)
    progress = [0]
    killed = 0
    while killed < 10:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        # Wait for new files, of 156 in all: the kills are spread over a run of any speed.
        enough = progress[-1] + rng.randint(1, 14)
        while process.poll() is None and len(list(work.glob("*.json"))) < enough:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.03))
        if process.poll() is not None:  # done before it could be killed again
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        killed += 1
        if (tmp_path / "out" / "train.records.json").exists():  # it was removing these files
            break
        progress.append(len(list(work.glob("*.json"))))
        # Every file with its final name is complete.
        for path in tmp_path.glob("out/train-?????-of-00005"):
            assert path.read_bytes() == (tmp_path / "expected" / path.name).read_bytes()
    assert killed >= 5
    assert progress == sorted(progress), "finished work was done again"
    subprocess.run(command, check=True, capture_output=True)
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")


@pytest.fixture
def small_disk(tmp_path):
    """A folder with a file system of 3 MB, and a function that enlarges it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["mount", "-t", "tmpfs", "-o"]
    try:
        done = subprocess.run(
            [*options, "size=3m", "tmpfs", str(folder)], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted: {done.stderr.decode().strip()}")
    yield (
        folder,
        lambda: subprocess.run([*options, "remount,size=300m", "tmpfs", str(folder)], check=True),
    )
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("work_dir_too", [True, False])
def test_a_full_disk_is_an_error_and_the_run_can_be_resumed(
    tmp_path, heavy_command, small_disk, work_dir_too
):
    disk, enlarge = small_disk
    subprocess.run(heavy_command(tmp_path / "expected" / "train@5"), check=True)
    flags = [] if work_dir_too else [f"--work_dir={tmp_path}/work"]
    command = heavy_command(disk / "train@5", *flags)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    names = {path.name for path in disk.iterdir()}
    assert "train.records.json" not in names
    names -= {"train.work"}
    for name in names:  # every file with its final name is complete
        assert (disk / name).read_bytes() == (tmp_path / "expected" / name).read_bytes()
    enlarge()
    assert "Free some space and run the same command again" in done.stderr
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert contents(disk) == contents(tmp_path / "expected")
