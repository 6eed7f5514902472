"""Runs of the data program: records and their metadata, the report, and what is refused."""

from __future__ import annotations

import collections
import dataclasses
import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from albert_tf import data
from albert_tf.data import report
from albert_tf.data.create import create_pretraining_data
from albert_tf.data.record_metadata import read_metadata
from albert_tf.data.records import FEATURES, count_records
from albert_tf.data.settings import MEGABYTE, EncodingSettings
from albert_tf.data.tf_example import decode_example
from tests.data.conftest import SETTINGS, all_records, contents, write


def test_records_have_the_official_features_and_metadata_describe_them(
    tmp_path, make, toy_tokenizer
):
    metadata = make()
    folder = tmp_path / "out"
    examples = list(map(decode_example, all_records(folder)))
    widths = {"max_seq_length": 37, "max_predictions_per_seq": 7, 1: 1}
    for features in examples:
        assert {name: len(values) for name, values in features.items()} == {
            name: widths[width] for name, (_, width) in FEATURES.items()
        }
    assert json.loads((folder / "train.records.json").read_text("utf-8")) == metadata
    paths = [str(folder / entry["name"]) for entry in metadata["files"]]
    found = read_metadata(paths)
    assert [found[path].instances for path in paths] == list(map(count_records, paths))
    info = found[paths[0]]
    assert (info.settings["max_seq_length"], info.settings["random_seed"]) == (37, 12345)
    assert (info.vocabulary["checksum"], info.mask_id) == (toy_tokenizer.checksum, 4)
    assert info.vocabulary["size"] == toy_tokenizer.vocab_size
    counts = metadata["counts"]
    assert counts["instances"] == len(examples) > 150
    for count, name in {
        "positions": "input_mask",
        "predictions": "masked_lm_weights",
        "label_1": "next_sentence_labels",
    }.items():
        assert counts[count] == sum(int(example[name].sum()) for example in examples)


def test_the_records_of_a_chunk_are_spread_evenly_over_the_outputs(make):
    sizes = [entry["instances"] for entry in make(chunk_megabytes=1)["files"]]
    assert max(sizes) - min(sizes) <= 1


def test_the_text_is_counted(tmp_path, make, toy_tokenizer):
    lines = ["the rivér", "the sea " * 20, "", "the Ω boat"]
    path = write(tmp_path / "text.txt", "\n".join(lines))
    counts = make(inputs=[path], dupe_factor=1, masked_lm_prob=0.0)["counts"]
    assert (counts["documents"], counts["sentences"]) == (2, 3)
    assert counts["tokens"] == sum(map(len, toy_tokenizer.encode_batch(lines)))
    assert (counts["unknown"], counts["long_sentences"], counts["predictions"]) == (1, 1, 0)
    assert counts["checked_words"] == sum(len(line.split()) for line in lines)
    assert counts["changed_words"] == 1


def test_a_sentence_that_fills_a_sequence_is_not_long(tmp_path, make, toy_tokenizer):
    (piece,) = toy_tokenizer.encode("the")
    lines = ["the " * 34, "", "the " * 35]  # with three special tokens, 37 and 38
    assert toy_tokenizer.encode_batch(lines) == [[piece] * 34, [], [piece] * 35]
    path = write(tmp_path / "text.txt", "\n".join(lines))
    assert make(inputs=[path], dupe_factor=1)["counts"]["long_sentences"] == 1


@pytest.mark.parametrize("num_logged", [0, 1, 5])
def test_so_many_instances_are_logged_as_are_wanted(tmp_path, make, caplog, num_logged):
    with caplog.at_level("INFO", logger="absl"):
        metadata = make(create=data.run, num_logged_instances=num_logged).metadata
    assert metadata["counts"]["instances"] > 5
    assert caplog.text.count(" to predict, label ") == num_logged


LINES = ["a b c 天 d e", "fa 地 人 g", "h 和 b a", "", "c d ca", "e 天地", "f x g h", "", "人 b"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##a", *"abcdefgh天地人和"]
OTHER = {
    "max_seq_length": 13,
    "dupe_factor": 2,
    "short_seq_prob": 0.5,
    "random_next_sentence": True,
    "random_seed": 7,
    "max_predictions_per_seq": 20,
    "ngram": 2,
    "favor_shorter_ngram": False,
    "do_permutation": True,
}
WORDS = {"segment_chinese_words": True}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "386a8430e769a0a0c7453b6746eec04414807d39b34bb8b381f2d4236374a7d0"),
        (OTHER, "2b21b13d90126ea36d1f5db4cdee79e0b5e0621669247f421f5e4f4c54750db9"),
        (
            {"instance_format": "full_sentences"},
            "4ae423ada4984fe6ce886d649a62a287a963eb022a7ad83b888f4005672f3eae",
        ),
        (
            {"instance_format": "doc_sentences"},
            "bd2d1de9d7b80464d952f787dd30388ad628ec73eff60b35a67e204e768dfd13",
        ),
        (
            {"instance_format": "sentence_pair", "sentence_objective": "nsp"},
            "4eb00bdd6e0e0acd1cab683bb3479e723fe6ffaa1aa5e78f6e36f475edec78d1",
        ),
        pytest.param(
            WORDS,
            "3bc2bd23e045771fd0cf57a3ccf0b951e66e5c2c48391156c416234e45965df7",
            marks=pytest.mark.ci,
        ),
        pytest.param(
            WORDS | {"albert_zh_compat": True, "ngram": 1},
            "ec2f30831b9b6bfe44fb5ef5520e053fa6ebb040f867a2afcc0c243d1ae64fbe",
            marks=pytest.mark.ci,
        ),
    ],
    ids=["plain", "other", "full_sentences", "doc_sentences", "pairs", "words", "albert_zh"],
)
def test_the_same_command_writes_the_same_bytes_in_every_version(tmp_path, changes, expected):
    """Records must stay reproducible: no change to the code may alter the random streams."""
    pieces = PIECES + ["##" + char for char in "天地人和"] * ("albert_zh_compat" in changes)
    settings = dataclasses.replace(
        SETTINGS,
        input_file=write(tmp_path / "text.txt", "\n".join(LINES * 9) + "\n"),
        output_file=str(tmp_path / "train"),
        vocab_file=write(tmp_path / "vocab.txt", "\n".join(pieces) + "\n"),
        chunk_megabytes=300 / MEGABYTE,
    )
    create_pretraining_data(dataclasses.replace(settings, **changes))
    assert hashlib.sha256((tmp_path / "train").read_bytes()).hexdigest() == expected


@pytest.mark.ci
def test_the_number_of_processes_changes_no_byte(tmp_path, make, corpus_file):
    text = Path(corpus_file).read_bytes()
    small = [write(tmp_path / f"{n}.txt", text[100 * n : 150 * n]) for n in range(20)]  # one empty
    packed = write(tmp_path / "text.gz", gzip.compress(text))
    inputs = [small[0], corpus_file, *small[1:], packed]
    make("one/train@3", inputs=inputs, chunk_megabytes=1000 / MEGABYTE)
    make("three/train@3", inputs=inputs, chunk_megabytes=1000 / MEGABYTE, num_workers=3)
    found = contents(tmp_path / "three")
    assert found == contents(tmp_path / "one")
    assert set(found) == {
        *(f"train-{shard:05d}-of-00003" for shard in range(3)),
        "train.records.json",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"a sentence\n\nin Latin-1: \xe9\n", r"text\.txt, line 3: not UTF-8"),
        ("\u0301\n\n\u0301\n", "--input_file: no text in these files"),
    ],
)
def test_text_that_cannot_be_used_leaves_earlier_outputs_alone(tmp_path, make, text, said):
    make("out/train")
    before = contents(tmp_path / "out")
    path = write(tmp_path / "text.txt", text)
    with pytest.raises(ValueError, match=said):
        make("out/train", inputs=[path])
    assert contents(tmp_path / "out") == before


REPORTED = EncodingSettings(vocab_file="vocab.txt", max_seq_length=100)
GOOD = {
    "documents": 40,
    "sentences": 2000,
    "tokens": 50_000,
    "instances": 1000,
    "positions": 95_000,
    "predictions": 14_000,
    "label_1": 540,
    "unknown": 50,
    "long_sentences": 3,
}


def problems(changes, **settings):
    counts = collections.Counter(GOOD | changes)
    return report.find_problems(counts, dataclasses.replace(REPORTED, **settings), "vocab.txt")


def test_the_report_has_shares_and_means(caplog):
    with caplog.at_level("INFO", logger="absl"):
        report.log_counts({"counts": GOOD, "vocabulary": {"file": "vocab.txt"}}, REPORTED)
    assert [re.findall(r"[\d.]+", message) for message in caplog.messages] == [
        ["40", "2000", "50000", "1000", "95.0", "14.74", "54.00", "1"],
        ["50.0", "25.0", "0.15", "0.10"],
    ]


@pytest.mark.parametrize(
    ("changes", "problem", "flag"),
    [
        ({"unknown": 3600}, "7% of the tokens are not in the vocabulary vocab.txt", "--vocab_file"),
        ({"label_1": 667}, "67% of the instances are labeled 1", "--split_sentences"),
        ({"label_1": 320}, "32% of the instances are labeled 1", "--split_sentences"),
        ({"long_sentences": 101}, "5% of the sentences are longer", "--split_sentences"),
        (
            {"checked_words": 1000, "changed_words": 31},
            "normalization removes accents or other marks of 3% of the words of the text: diff",
            "--nodo_lower_case",
        ),
        ({"positions": 24_000}, "instances have 24 tokens on average", "--max_seq_length"),
        # By chance.
        ({"unknown": 3500, "label_1": 666, "long_sentences": 100, "positions": 25_000}, "", ""),
        ({"unknown": 2100, "tokens": 30_000}, "", ""),
        ({"label_1": 334}, "", ""),
        ({"checked_words": 1000, "changed_words": 30}, "", ""),
        ({"instances": 16, "label_1": 16, "positions": 1600}, "", ""),
    ],
)
def test_a_problem_is_reported_with_the_flag_that_helps(changes, problem, flag, caplog):
    report.log_counts({"counts": GOOD | changes, "vocabulary": {"file": "vocab.txt"}}, REPORTED)
    assert bool(caplog.messages) == bool(problem)
    assert caplog.messages == problems(changes)
    for message in caplog.messages[:1]:
        assert message.startswith(problem)
        assert flag in caplog.messages[-1]


def test_without_an_objective_there_are_no_labels_to_judge():
    assert problems({"label_1": 0}, sentence_objective="none") == []
