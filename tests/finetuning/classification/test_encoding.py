"""Texts that are tokenized while they are read have the ids and checksum of all texts together."""

import numpy as np
import pytest

from albert_tf.finetuning.classification import Settings, encoding, parsing, reading
from albert_tf.finetuning.classification.task import Classifier
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.splits import TRAIN
from tests.hub_files import (
    class_label,
    describe_in_page,
    write_csv,
    write_json_lines,
    write_parquet,
)


def rows_of(labels, column="label"):
    return [
        {"text": f"a river {n} " * (n % 4 + 1), column: label} for n, label in enumerate(labels)
    ]


def write_train(folder, write, rows, names=None):
    write(folder, {TRAIN: rows}, {"label": class_label(*names)} if names else {})
    if names and write is write_csv:
        describe_in_page(folder, {"label": class_label(*names)})


def rows_with_spans(count):
    spans = {"span1_text": "a", "span1_index": 0, "span2_text": "v", "span2_index": 4}
    return [
        {"text": f"a river {n}", "target": spans, "label": "false" if n % 2 else "true"}
        for n in range(count)
    ]


def rows_with_choices(count):
    return [
        {"premise": f"a river {n}", "choice0": "it", "choice1": "to a river", "idx": 10 + n}
        | {"question": "effect" if n % 2 else "cause", "label": n % 2}
        for n in range(count)
    ]


def write_tsv_of_qqp(folder, splits, features):
    """Writes a row for each letter, one of too few columns for a dot."""
    rows = [f"{n}\t1\t2\ta river {n}\tby {x}\t{n % 2}" for n, x in enumerate(splits[TRAIN])]
    rows = [row[:5] if row[-3] == "." else row for row in rows]
    (folder / "train.tsv").write_text("\n".join(["head", *rows]))


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
    # A row of these is other texts, or several examples.
    "spans": (write_json_lines, rows_with_spans(5), None, {"task_name": "wsc"}),
    "choices": (write_json_lines, rows_with_choices(5), None, {"task_name": "copa"}),
    "short": (write_tsv_of_qqp, "ab.abab.a", None, {"task_name": "qqp"}),
}


def read(settings, tokenizer, config):
    """Returns the labels, the examples of each split, and their features."""
    data = reading.read_data(settings, tokenizer)
    classifier = Classifier(settings, config, tokenizer, data)
    features = {split: classifier.make_features(part, split) for split, part in data[1].items()}
    return data[0].labels, data[1], features


@pytest.mark.parametrize("case", CASES)
def test_examples_of_small_blocks_are_those_of_all_texts(
    tmp_path, monkeypatch, tiny_config, toy_tokenizer, case
):
    write, rows, names, values = CASES[case]
    write_train(tmp_path, write, rows, names.split() if names else None)
    settings = Settings(
        **{"task_name": "tsv"} | values,
        data_dir=str(tmp_path),
        output_dir=str(tmp_path / "out"),
        do_train=True,
        do_eval="dev_fraction" in values,
        max_seq_length=12,
    )
    whole = read(settings, toy_tokenizer, tiny_config)
    monkeypatch.setattr(parsing, "EXAMPLES_AT_ONCE", 3)
    monkeypatch.setattr(encoding, "LOOKED_AT", 2)
    small = read(settings, toy_tokenizer, tiny_config)
    assert small[0] == whole[0]
    assert small[1].keys() == whole[1].keys()
    for split, examples in whole[1].items():
        expected = Examples(examples.path, list(examples.examples), examples.has_labels)
        assert len(small[1][split]) == len(expected)
        assert all(example.text_a for example in expected.examples)
        assert examples.checksum() == small[1][split].checksum() == expected.checksum()
        assert small[1][split].has_labels == expected.has_labels
        for ours, theirs in zip(small[1][split].examples, expected.examples, strict=True):
            assert (ours.guid, ours.label, ours.line) == (theirs.guid, theirs.label, theirs.line)
            assert (ours.row, ours.number) == (theirs.row, theirs.number)
        pairs = [(x.text_a, x.text_b) for x in expected.examples]
        sequences = [toy_tokenizer.sequences([pair], None, 12)[0] for pair in pairs]
        for found in (small[2][split], whole[2][split]):
            assert found.input_ids.tolist() == [x for ids, _ in sequences for x in ids]
            assert found.sequence_lengths.tolist() == [len(ids) for ids, _ in sequences]
            assert found.first_lengths.tolist() == [first for _, first in sequences]
            expected_ids = whole[2][split].columns["label_ids"]
            np.testing.assert_array_equal(found.columns["label_ids"], expected_ids, strict=True)


def test_ids_of_choices_and_lines_of_skipped_rows_are_counted_over_blocks(
    tmp_path, monkeypatch, toy_tokenizer
):
    monkeypatch.setattr(parsing, "EXAMPLES_AT_ONCE", 2)
    rows = [{**row} for row in rows_with_choices(5)]
    del rows[3]["idx"]
    write_json_lines(tmp_path, {TRAIN: rows})
    values = {"data_dir": str(tmp_path), "output_dir": "out", "do_train": True, "do_eval": False}
    choices = reading.read_data(Settings(task_name="copa", **values), toy_tokenizer)[1][TRAIN]
    assert [x.guid for x in choices.examples][4:] == "12 12 train-6 train-7 14 14".split()
    assert [x.line for x in choices.examples] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    write_tsv_of_qqp(tmp_path, {TRAIN: "a..b.ab"}, None)
    pairs = reading.read_data(Settings(task_name="qqp", **values), toy_tokenizer)[1][TRAIN]
    found = [(x.guid, x.line, x.text_b) for x in pairs.examples]
    assert found == [("0", 2, "by a"), ("3", 5, "by b"), ("5", 7, "by a"), ("6", 8, "by b")]


@pytest.mark.parametrize("size", [2, 3, 1000])
@pytest.mark.parametrize("write", [write_csv, write_json_lines, write_parquet])
def test_bad_rows_of_all_blocks_are_named_in_order(
    tmp_path, monkeypatch, toy_tokenizer, write, size
):
    monkeypatch.setattr(parsing, "EXAMPLES_AT_ONCE", size)
    rows = rows_of("abcabcab")
    rows[1]["text"] = rows[6]["text"] = " "
    rows[4]["label"] = "a\tb"
    write(tmp_path, {TRAIN: rows}, {})
    settings = Settings(
        task_name="tsv", data_dir=str(tmp_path), output_dir="out", do_train=True, do_eval=False
    )
    with pytest.raises(ValueError, match="the text in column") as caught:
        reading.read_data(settings, toy_tokenizer)
    said = str(caught.value).splitlines()
    unit, first = ("row", 1) if write is write_parquet else ("line", 1 + (write is write_csv))
    assert [line.split(": ")[0].rpartition(", ")[2] for line in said] == [
        f"{unit} {row + first}" for row in (1, 4)
    ]
    assert "the text in column" in said[0]
    assert said[0].endswith(f" is empty; likewise {unit} {6 + first}")
    assert "the label is" in said[1]


def test_only_the_first_texts_are_kept(tmp_path, monkeypatch, toy_tokenizer):
    monkeypatch.setattr(parsing, "EXAMPLES_AT_ONCE", 3)
    monkeypatch.setattr(encoding, "LOOKED_AT", 2)
    write_csv(tmp_path, {TRAIN: rows_of("abab")})
    settings = Settings(
        task_name="tsv", data_dir=str(tmp_path), output_dir="out", do_train=True, do_eval=False
    )
    data = reading.read_data(settings, toy_tokenizer)[1][TRAIN]
    assert [bool(example.text_a) for example in data.examples] == [True, True, False, False]
    assert [example.guid for example in data.examples[1:3]] == ["train-2", "train-3"]
