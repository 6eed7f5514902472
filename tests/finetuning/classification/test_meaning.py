"""What the values of a label column mean is told by all of them together, in every form of data."""

import dataclasses
import json

import numpy as np
import pytest

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import TRAINING_EXAMPLES, RunRecord
from albert_tf.export import convert
from albert_tf.finetuning.classification import Settings, run
from albert_tf.finetuning.classification.task import Classifier
from albert_tf.tables.python_rows import tables_of
from tests.hub_files import (
    LAYOUTS,
    class_label,
    describe_in_page,
    list_of,
    write_csv,
    write_json_lines,
    write_parquet,
    write_saved_to_disk,
)
from tests.read_classes import read_data
from tests.script_runner import tensors

STARS = class_label("1", "2", "3", "4", "5")


def rows_of(labels, column="label"):
    return [{"text": f"the parcel {n}", column: label} for n, label in enumerate(labels)]


def read(folder, rows=None, **values):
    """Returns the task, and split → labels of the examples, of the splits in a folder or of rows.

    Args:
        folder: the folder.
        rows: split → rows of Python instead.
        values: the settings.
    """
    phases = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}
    if rows is None:
        there = {file.name.split(".")[0].split("-")[0] for file in folder.iterdir()}
    else:
        there = set(rows)
    values = {phase: split in there for split, phase in phases.items()} | values
    settings = Settings(
        task_name="tsv", data_dir=str(folder), output_dir=str(folder / "out"), **values
    )
    task, data = read_data(settings, given=None if rows is None else tables_of(rows))
    return task, {split: [x.label for x in part.examples] for split, part in data.items()}


# Ids and names in one alphabet.


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if not name.endswith(".zst")])
@pytest.mark.parametrize(
    ("names", "ids"),
    [
        ("12345", [0, 1, 2, 3, 4]),
        ("12", [0, 1, 1]),
        ("10", [0, 1, 1]),
        ("3120", [0, 1, 2, 3]),
        ("3120", [2, 1]),
    ],
)
def test_ids_have_their_names_though_names_are_numbers(tmp_path, layout, names, ids):
    LAYOUTS[layout](tmp_path, {"train": rows_of(ids)}, {"label": class_label(*names)})
    task, found = read(tmp_path, do_train=True, do_eval=False)
    assert task.labels == tuple(names)
    assert found["train"] == [names[n] for n in ids]


@pytest.mark.parametrize("write", [write_csv, write_json_lines])
def test_names_that_are_numbers_are_names_where_they_cannot_be_ids(tmp_path, write):
    write(tmp_path, {"train": rows_of("54321"), "dev": rows_of("12")})
    describe_in_page(tmp_path, {"label": STARS})
    task, found = read(tmp_path)
    assert task.labels == tuple("12345")
    assert found == {"train": list("54321"), "dev": list("12")}


@pytest.mark.parametrize(
    ("write", "expected"), [(write_csv, ["2", "3"]), (write_json_lines, ["1", "2"])]
)
def test_text_that_may_be_ids_and_names_is_read_as_datasets_reads_it_with_a_warning(
    tmp_path, caplog, write, expected
):
    write(tmp_path, {"train": rows_of("12")})
    describe_in_page(tmp_path, {"label": STARS})
    assert read(tmp_path)[1]["train"] == expected
    kind = "ids" if write is write_csv else "names"
    assert f"may be ids or names, and are taken as {kind}" in caplog.text


def test_the_ids_of_one_split_tell_what_those_of_the_other_are(tmp_path):
    write_csv(tmp_path, {"train": rows_of("01234"), "dev": rows_of("12"), "test": rows_of("3?")})
    describe_in_page(tmp_path, {"label": STARS})
    found = read(tmp_path)[1]
    assert found == {"train": list("12345"), "dev": ["2", "3"], "test": ["4", None]}


def test_numbers_that_are_neither_all_ids_nor_all_names_are_refused(tmp_path):
    write_csv(tmp_path, {"train": rows_of("012345")})
    describe_in_page(tmp_path, {"label": STARS})
    with pytest.raises(ValueError, match=r"README\.md names .* are neither all names nor all ids"):
        read(tmp_path)
    write_csv(tmp_path, {"train": rows_of("012347")})
    with pytest.raises(ValueError, match=r"train\.csv, line 7: label 7: expected an id below 5"):
        read(tmp_path)
    write_csv(tmp_path, {"train": rows_of(["a", "b", "2", "1"])})
    describe_in_page(tmp_path, {"label": class_label("a", "b")})
    with pytest.raises(ValueError, match=r"line 4: label 2: .* counted from 1, subtract 1"):
        read(tmp_path)


@pytest.mark.parametrize("values", [[0, 1, 1], [False, True, True], [0.0, 1.0, 1.0]])
def test_ids_of_any_type_are_ids(tmp_path, values):
    names = {"label": class_label("no", "yes")}
    write_json_lines(tmp_path, {"train": rows_of(values)})
    describe_in_page(tmp_path, names)
    assert read(tmp_path)[1]["train"] == ["no", "yes", "yes"]
    write_csv(tmp_path, {"dev": rows_of(map(str, map(float, values)))})
    assert read(tmp_path, do_train=True)[1]["dev"] == ["no", "yes", "yes"]


@pytest.mark.parametrize(
    ("cells", "labels", "expected"),
    [
        ("010", ("bad", "good"), ["bad", "good", "bad"]),
        ("3124", ("a", "b", "c", "d"), ["c", "a", "b", "d"]),
        ("120", ("2", "1", "0"), ["1", "2", "0"]),
    ],
)
def test_ids_are_those_of_the_labels_in_the_settings(tmp_path, caplog, cells, labels, expected):
    write_csv(tmp_path, {"train": rows_of(cells)})
    found = read(tmp_path, labels=labels)[1]["train"]
    if labels[0] == "2":  # which are names
        assert found == list(cells)
        return
    assert found == expected
    assert f"--labels: with the labels {', '.join(labels)}, the values are ids, cou" in caplog.text


def test_ids_that_may_be_counted_from_0_or_1_are_no_labels(tmp_path):
    write_csv(tmp_path, {"train": rows_of("12")})
    with pytest.raises(ValueError, match="line 2: unknown label '1'; expected a, b, c"):
        read(tmp_path, labels=("a", "b", "c"))


@pytest.mark.parametrize(("cells", "first_id"), [("312", 1), ("012", 0)])
def test_an_evaluation_counts_ids_as_the_training_did(tmp_path, cells, first_id):
    names = ("a", "b", "c")
    write_csv(tmp_path, {"train": rows_of(cells), "dev": rows_of("12")})
    values = {"task_name": "tsv", "data_dir": str(tmp_path), "output_dir": str(tmp_path / "out")}
    settings = Settings(**values, labels=names, do_train=True)
    details = Classifier(settings, None, None, read_data(settings)).details()
    assert details == {"first_id": first_id}
    (tmp_path / "model").mkdir()
    trained = RunFolder(str(tmp_path / "model"))
    trained.write_record(
        RunRecord(task={"name": "classification", "labels": list(names), **details})
    )
    for labels in ((), names):
        settings = Settings(**values, labels=labels, do_train=False, do_eval=True)
        task, data = read_data(settings, trained)
        assert task.labels == names
        expected = [names[1 - first_id], names[2 - first_id]]
        assert [example.label for example in data["dev"].examples] == expected
    with pytest.raises(ValueError, match="unknown label '1'; expected c, b, a"):
        read_data(dataclasses.replace(settings, labels=names[::-1]), trained)
    write_csv(tmp_path, {"dev": rows_of("0123")})
    said = f"label {3 - 3 * first_id}: expected an id {'from 1 to 3' if first_id else 'below 3'}"
    with pytest.raises(ValueError, match=said):
        read_data(settings, trained)
    write_csv(tmp_path, {"dev": rows_of("cab")})  # which are no ids
    found = read_data(settings, trained)[1]["dev"].examples
    assert [example.label for example in found] == ["c", "a", "b"]


# Lists of 0 and 1.

ONE_HOT = [[0, 1], [1, 0], [0, 1]]
SEVERAL = [[1, 0, 1], [0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("convert", [int, float, bool, str])
@pytest.mark.parametrize(
    ("lists", "expected", "count"),
    [
        (ONE_HOT, ["1", "0", "1"], 2),
        ([[0, 0, 1], [1, 0, 0]], ["2", "0"], 3),
        (SEVERAL, [("0", "2"), (), ("1",)], 3),
        ([[0, 1], [1, 1]], [("1",), ("0", "1")], 2),
    ],
)
@pytest.mark.parametrize("form", ["json", "parquet", "rows", "arrays"])
def test_lists_of_0_and_1_say_which_labels_a_text_has(
    tmp_path, caplog, convert, lists, expected, count, form
):
    rows = rows_of([[convert(x) for x in row] for row in lists], "labels")
    given = None
    if form == "json":
        write_json_lines(tmp_path, {"train": rows, "dev": rows})
    elif form == "parquet":
        write_parquet(tmp_path, {"train": rows, "dev": rows}, {})
    else:
        kind = np.array if form == "arrays" else tuple
        given = {
            split: [row | {"labels": kind(row["labels"])} for row in rows]
            for split in ("train", "dev")
        }
    task, found = read(tmp_path, given)
    assert found == {"train": expected, "dev": expected}
    assert task.labels == tuple(map(str, range(count)))
    assert task.is_multi_label == isinstance(expected[0], tuple)
    assert f"lists of {count} numbers, 0 or 1, are taken as" in caplog.text


def test_a_dev_text_with_two_labels_tells_that_there_may_be_several(tmp_path):
    write_json_lines(
        tmp_path, {"train": rows_of(ONE_HOT, "labels"), "dev": rows_of([[1, 1]], "labels")}
    )
    task, found = read(tmp_path)
    assert (task.is_multi_label, found["train"][0]) == (True, ("1",))
    assert found["dev"] == [("0", "1")]
    task, found = read(tmp_path, do_eval=False, is_multi_label=True, labels=("low", "high"))
    assert found["train"] == [("high",), ("low",), ("high",)]
    task, found = read(tmp_path, do_eval=False, labels=("low", "high"))
    assert (task.is_multi_label, found["train"]) == (False, ["high", "low", "high"])


def test_lists_of_declared_ids_are_sets_and_so_are_lists_of_several_lengths(tmp_path):
    names = list_of(class_label("low", "high"))
    write_parquet(tmp_path, {"train": rows_of(ONE_HOT, "labels")}, {"labels": names})
    assert read(tmp_path)[1]["train"] == [("low", "high"), ("high", "low"), ("low", "high")]
    write_json_lines(tmp_path, {"train": rows_of([[0], [1, 0], [1]], "labels")})
    found = read(tmp_path, train_file=str(tmp_path / "train.jsonl"))
    assert found[1]["train"] == [("0",), ("1", "0"), ("1",)]


def test_a_list_unlike_the_others_is_named(tmp_path):
    write_json_lines(tmp_path, {"train": rows_of([*ONE_HOT, "1"], "labels")})
    with pytest.raises(ValueError, match=r"line 4: unknown label|line 4: the label"):
        read(tmp_path, labels=("low", "high"))


# Integers and floats.


@pytest.mark.parametrize(
    ("train", "dev", "labels"),
    [
        (["1.0", "0.0", ""], ["1", "0"], ("0", "1")),
        (["1.0", "0.0", ""], ["1.0", "0.0"], ("0", "1")),
        (["1.0", "0.0"], ["1", "0"], ("0", "1")),
        (["1", "0"], ["1.0", ""], ("0", "1")),
        (["10.0", "9.0", ""], ["9.0"], ("9", "10")),
        (["1.0", "0.0"], ["0.0"], ("0.0", "1.0")),
        (["1.0", "2.0", "old"], ["2.0"], ("1.0", "2.0", "old")),
    ],
)
@pytest.mark.parametrize("form", ["cells", "numbers"])
def test_integers_with_a_point_are_integers_if_some_have_none_or_are_missing(
    tmp_path, train, dev, labels, form
):
    splits = {"train": rows_of(train), "dev": rows_of(dev)}
    if form == "cells":
        write_csv(tmp_path, splits)
        task, found = read(tmp_path)
    else:

        def number(text):
            return text if text == "old" else json.loads(text or "null")

        given = {
            split: [row | {"label": number(row["label"])} for row in rows]
            for split, rows in splits.items()
        }
        task, found = read(tmp_path, given)
    assert task.labels == labels
    assert set(found["train"]) == set(labels)
    assert set(found["dev"]) <= set(labels)


def test_a_model_with_names_with_a_point_is_evaluated_with_integers(tmp_path):
    write_csv(tmp_path, {"dev": rows_of("10")})
    assert read(tmp_path, labels=("0.0", "1.0"))[1]["dev"] == ["1.0", "0.0"]


def test_floats_have_the_names_that_the_page_gives_ids(tmp_path):
    write_csv(tmp_path, {"train": rows_of(["1.0", "", "0.0"]), "dev": rows_of("01")})
    describe_in_page(tmp_path, {"label": class_label("no", "yes")})
    assert read(tmp_path)[1] == {"train": ["yes", "no"], "dev": ["no", "yes"]}


# Labels that are alike.

ALIKE = [
    ("Positive", "positive"),
    ("café", "cafe\u0301"),
    ("very good", "very\u00a0good"),
    ("good", "go\u200bod"),
    ("Ａ", "a"),
]


@pytest.mark.parametrize(("first", "second"), ALIKE)
def test_labels_of_training_data_that_are_alike_are_classes_with_a_warning(
    tmp_path, caplog, first, second
):
    write_csv(tmp_path, {"train": rows_of([first, "other", second])})
    task, found = read(tmp_path)
    assert set(task.labels) == {first, "other", second}
    assert found["train"] == [first, "other", second]
    assert "train.csv: labels that differ only in case, spaces or the form" in caplog.text
    assert "other" not in caplog.text.partition("are different classes: ")[2]


@pytest.mark.parametrize(("first", "second"), ALIKE)
def test_a_label_of_another_split_that_is_alike_is_the_same(tmp_path, caplog, first, second):
    write_csv(tmp_path, {"train": rows_of([first, "other"]), "dev": rows_of([second])})
    assert read(tmp_path)[1]["dev"] == [first]
    assert "are taken as the same label" in caplog.text


# A declared order.

AREAS = class_label("World", "Sports", "Business")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("write", "is_list"), [(write_parquet, False), (write_saved_to_disk, True)]
)
def test_the_declared_order_trains_the_weights_of_the_labels_in_the_settings(
    tmp_path, config_file, toy_spm_model, write, is_list
):
    names = AREAS["names"]
    column = "labels" if is_list else "label"
    ids = [[0], [2, 1], []] if is_list else [0, 2, 1]
    words = [[names[n] for n in x] if is_list else names[x] for x in ids]
    folders = tmp_path / "declared", tmp_path / "asked"
    for folder in folders:
        folder.mkdir()
    feature = list_of(AREAS) if is_list else AREAS
    write(folders[0], {"train": rows_of(ids, column)}, {column: feature})
    write_json_lines(folders[1], {"train": rows_of(words, column)})

    def train(folder, **values):
        settings = Settings(
            task_name="tsv",
            data_dir=str(folder),
            output_dir=str(folder / "out"),
            albert_config_file=str(config_file),
            spm_model_file=str(toy_spm_model),
            do_train=True,
            train_batch_size=2,
            train_step=3,
            max_seq_length=16,
            **values,
        )
        run(settings)
        return RunFolder(str(folder / "out")), tensors(folder / "out" / "model.ckpt-3")

    (declared, ours), (asked, theirs) = train(folders[0]), train(folders[1], labels=tuple(names))
    assert declared.record.labels == asked.record.labels == tuple(names)
    digests = [x.record.files[TRAINING_EXAMPLES].digest for x in (declared, asked)]
    assert digests[0] == digests[1]
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)
    converted = tmp_path / "converted"
    list(convert.run(convert.Settings(declared.path, str(converted), "huggingface")))
    config = json.loads((converted / "config.json").read_text())
    assert list(config["id2label"].values()) == names


def test_declared_names_are_labels_in_their_order_with_or_without_rows(tmp_path, caplog):
    write_parquet(tmp_path, {"train": rows_of([2, 0])}, {"label": AREAS})
    assert read(tmp_path)[0].labels == ("World", "Sports", "Business")
    assert "no row has the label Sports" in caplog.text
    write_parquet(tmp_path, {"train": rows_of([2, 0])}, {"label": class_label("a", "b", "a")})
    with pytest.raises(ValueError, match="labels are named alike: 'a', 'b', 'a'"):
        read(tmp_path)


def test_a_run_that_has_begun_keeps_the_order_that_it_has_recorded(tmp_path):
    write_parquet(tmp_path, {"train": rows_of([2, 0])}, {"label": AREAS})
    (tmp_path / "out").mkdir()
    record = RunRecord(task={"name": "classification", "labels": ["Business", "World"]})
    RunFolder(str(tmp_path / "out")).write_record(record)
    assert read(tmp_path, do_train=True)[0].labels == ("Business", "World")
    write_parquet(tmp_path, {"train": rows_of([2, 1])}, {"label": AREAS})
    assert read(tmp_path, do_train=True)[0].labels == ("World", "Sports", "Business")
