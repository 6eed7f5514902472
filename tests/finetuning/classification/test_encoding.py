"""Texts that are tokenized while they are read have the ids and checksum of those that are kept."""

import numpy as np
import pytest

from albert_tf.finetuning.classification import Settings, parsing
from albert_tf.finetuning.classification.reading import read_data
from albert_tf.finetuning.classification.task import Classifier
from albert_tf.finetuning.examples import EncodedExamples
from albert_tf.finetuning.splits import TRAIN
from tests.hub_files import class_label, describe_in_page, write_csv, write_parquet


def rows_of(labels, column="label"):
    return [
        {"text": f"a river {n} " * (n % 4 + 1), column: label} for n, label in enumerate(labels)
    ]


def write_train(folder, write, rows, names=None):
    write(folder, {TRAIN: rows}, {"label": class_label(*names)} if names else {})
    if names and write is write_csv:
        describe_in_page(folder, {"label": class_label(*names)})


CASES = {
    "names": (write_csv, rows_of("abbaabab"), None, {}),
    "declared": (write_parquet, rows_of([1, 0, 1, 1, 0, 0, 1]), "no yes", {}),
    "without labels": (write_csv, rows_of(["a", "", "b", "", "a", "b", ""]), None, {}),
    # What these mean is not known before all are read.
    "floats": (write_csv, rows_of(["1.0", "", "0.0", "1.0", "0.0"]), None, {}),
    "ids": (write_csv, rows_of("01021"), "2 1 0", {}),
    "indicators": (write_parquet, rows_of([[0, 1], [1, 0], [0, 1], [1, 0]]), None, {}),
    "sets": (write_parquet, rows_of([["a"], [], ["a", "b"], ["b"]]), None, {}),
    "scores": (write_csv, rows_of([0.5, 2.25, -1, 0.5]), None, {"is_regression": True}),
    "divided": (write_csv, rows_of("abbaababab"), None, {"dev_fraction": 0.3}),
}


@pytest.mark.parametrize("case", CASES)
def test_examples_are_the_same_whether_texts_are_kept_or_not(
    tmp_path, monkeypatch, tiny_config, toy_tokenizer, case
):
    monkeypatch.setattr(parsing, "EXAMPLES_AT_ONCE", 3)
    monkeypatch.setattr(parsing, "LOOKED_AT", 2)
    write, rows, names, values = CASES[case]
    write_train(tmp_path, write, rows, names.split() if names else None)
    settings = Settings(
        task_name="tsv",
        data_dir=str(tmp_path),
        output_dir=str(tmp_path / "out"),
        do_train=True,
        do_eval="dev_fraction" in values,
        max_seq_length=12,
        **values,
    )
    kept, forgotten = (read_data(settings, tokenizer=t) for t in (None, toy_tokenizer))
    assert kept[0] == forgotten[0]
    assert kept[1].keys() == forgotten[1].keys()
    for split, expected in kept[1].items():
        found = forgotten[1][split]
        assert isinstance(found, EncodedExamples)
        assert (found.checksum(), found.has_labels) == (expected.checksum(), expected.has_labels)
        for ours, theirs in zip(found.examples, expected.examples, strict=True):
            assert (ours.guid, ours.label, ours.line) == (theirs.guid, theirs.label, theirs.line)
        ours, theirs = (
            Classifier(settings, tiny_config, toy_tokenizer, data).make_features(
                data[1][split], split
            )
            for data in (forgotten, kept)
        )
        for name in ("input_ids", "sequence_lengths", "first_lengths"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        np.testing.assert_array_equal(ours.columns["label_ids"], theirs.columns["label_ids"])
        assert ours.columns["label_ids"].dtype == theirs.columns["label_ids"].dtype


def test_only_the_first_texts_are_kept(tmp_path, monkeypatch, toy_tokenizer):
    monkeypatch.setattr(parsing, "EXAMPLES_AT_ONCE", 3)
    monkeypatch.setattr(parsing, "LOOKED_AT", 2)
    write_csv(tmp_path, {TRAIN: rows_of("abab")})
    settings = Settings(
        task_name="tsv", data_dir=str(tmp_path), output_dir="out", do_train=True, do_eval=False
    )
    data = read_data(settings, tokenizer=toy_tokenizer)[1][TRAIN]
    assert [bool(example.text_a) for example in data.examples] == [True, True, False, False]
    assert [example.guid for example in data.examples[1:3]] == ["train-2", "train-3"]
