"""One's own data: where columns, labels and headers are found, and what is wrong in it."""

import json

import pytest

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.finetuning.classification import Settings
from albert_tf.finetuning.classification.encoding import Example
from tests.read_classes import PHASES, read_data


def read(folder, split="train", trained=None, name="tsv", **values):
    """Returns the task, and the examples of a split."""
    values[PHASES[split]] = True
    settings = Settings(task_name=name, data_dir=str(folder), output_dir="out", **values)
    task, data = read_data(settings, trained)
    return task, data[split]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("train.tsv", ["id\tsentence\tlabel", "7\tgood\tpos", "8\tbad\tneg"]),
        ("train.csv", ["label,sentence,id", 'pos,"good",7', "neg,bad,8"]),
        ("train.txt", ["Label\tText_A\tID", "pos\tgood\t7", "neg\tbad\t8"]),
        (
            "train.jsonl",
            [{"id": 7, "text": "good", "label": "pos"}, {"id": 8, "text": "bad", "label": "neg"}],
        ),
    ],
)
def test_columns_are_found_by_name_in_all_formats(write, name, lines):
    task, data = read(write(name, *lines))
    assert task.labels == ("neg", "pos")
    first = 1 if name.endswith("jsonl") else 2
    assert data.examples == [
        Example("7", "good", "", "pos", first),
        Example("8", "bad", "", "neg", first + 1),
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {"text_a_column": "D", "text_b_column": "b", "label_column": "c"},
        {"text_a_column": "3", "text_b_column": "1", "label_column": "2", "has_header": True},
        {"text_a_column": "-1", "text_b_column": "b", "label_column": "c", "has_header": True},
    ],
)
def test_columns_can_be_given_by_name_or_index(write, columns):
    task, data = read(write("train.tsv", "a\tb\tc\td", "x\ty\t1\tz", "x\ty\t0\tz"), **columns)
    expected = [Example("train-1", "z", "y", "1", 2), Example("train-2", "z", "y", "0", 3)]
    assert (data.examples, task.labels) == (expected, ("0", "1"))


@pytest.mark.parametrize(
    "columns",
    [
        {"text_a_column": "0", "label_column": "Mood"},
        {"text_a_column": "body", "label_column": "1"},
        {"text_a_column": "0", "label_column": "1", "text_b_column": "mood"},
    ],
)
def test_a_first_line_with_a_given_name_is_a_header(write, columns):
    folder = write("train.tsv", "body\tmood", "x\tgood", "y\tbad")
    task, data = read(folder, **columns)
    assert (task.labels, len(data), data.examples[0].line) == (("bad", "good"), 2, 2)


NO_HEADER = ["x\t1", "y\t0", "z\t1"]


def with_labels(*labels):
    return ["text\tlabel", *(f"x\t{label}" for label in labels)]


@pytest.mark.parametrize(
    ("labels", "settings", "expected"),
    [
        (["10", "9", "-1", "9"], {}, ("-1", "9", "10")),
        (["b", "a", "10", "9"], {}, ("10", "9", "a", "b")),
        (["1.0", "0.0", "1.0"], {}, ("0.0", "1.0")),
        (["b", "a"], {"labels": ("b", "a")}, ("b", "a")),
        (["10", "3.5", "4"], {"labels": ("3.5", "4", "10")}, ("3.5", "4", "10")),
        (["pos", "Pos"], {}, ("Pos", "pos")),
        (["1", "2.5", "2.5"], {"is_regression": True}, ()),
    ],
)
def test_labels_are_those_of_the_training_data_in_order_or_those_that_are_set(
    write, labels, settings, expected
):
    task, data = read(write("train.tsv", *with_labels(*labels)), **settings)
    assert task.labels == expected
    assert [example.label for example in data.examples] == labels
    assert task.selection_metric == ("eval_accuracy" if expected else "pearson")


def test_quoted_cells_are_parsed_with_quoting(write):
    quoted = ["sentence\tlabel", '"He said ""hi"""\tpos', '"two\twords"\tneg', '"two\nlines"\tneg']
    _, data = read(write("train.tsv", *quoted), quoting=True)
    texts = [example.text_a for example in data.examples]
    assert texts == ['He said "hi"', "two\twords", "two\nlines"]


# Labels of a trained model


def test_labels_are_those_of_the_trained_model_unless_it_is_trained(write, tmp_path):
    folder = write("train.tsv", *with_labels("b", "a"))
    (tmp_path / "model").mkdir()
    trained = RunFolder(str(tmp_path / "model"))
    trained.write_record(RunRecord(task={"name": "classification", "labels": ["c", "b"]}))
    write("test.tsv", "text", "z")
    assert read(folder, "train", trained)[0].labels == ("a", "b")
    assert read(folder, "test")[0].labels == ("a", "b")
    (tmp_path / "train.tsv").unlink()
    assert read(folder, "test", trained)[0].labels == ("c", "b")
    assert read(folder, "test", trained, labels=("c", "d"))[0].labels == ("c", "d")
    with pytest.raises(FileNotFoundError, match=r"no train data.* needed for the labels"):
        read(folder, "test")


def test_labels_without_names_are_their_numbers_too(tmp_path, write):
    (tmp_path / "model").mkdir()
    config = {"architectures": ["AlbertForSequenceClassification"], "num_labels": 3}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    folder = write("dev.tsv", *with_labels("2", "LABEL_0"))
    task, data = read(folder, "dev", RunFolder(str(tmp_path / "model")))
    assert task.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert [example.label for example in data.examples] == ["LABEL_2", "LABEL_0"]


# Several labels

LISTS = [
    {"text": "x", "labels": ["b", "a"]},
    {"text": "y", "labels": []},
    {"text": "z", "labels": ["c"]},
]
COLUMNS = ["a,B,c,text", "1,1.0,0,x", "0,0,False,y", "0,0,true,z"]
OF_COLUMNS = {"is_multi_label": True, "label_column": "a, b,c"}


@pytest.mark.parametrize(
    ("name", "lines", "settings", "labels"),
    [
        ("train.jsonl", LISTS, {"is_multi_label": False}, ("b", "a")),
        (
            "train.jsonl",
            [*LISTS, {"text": "n", "labels": None}],
            {"is_multi_label": False},
            ("b", "a"),
        ),
        ("train.csv", COLUMNS, OF_COLUMNS, ("a", "b")),
    ],
)
def test_a_text_has_a_list_of_labels_or_columns_of_0_and_1(write, name, lines, settings, labels):
    folder = write(name, *lines)
    task, data = read(folder, **{"is_multi_label": True} | settings)
    assert task.labels == ("a", "b", "c")
    assert [example.label for example in data.examples] == [labels, (), ("c",)]
    assert (task.num_labels, task.selection_metric) == (3, "micro_f1")
    task, again = read(folder, **{"is_multi_label": True} | settings, labels=("c", "b", "a"))
    assert (task.labels, again.examples) == (("c", "b", "a"), data.examples)


@pytest.mark.parametrize(
    ("lines", "settings"),
    [
        (["text", "x"], {"labels": ("0", "1"), "label_column": "label"}),
        (["text,a", "x,1"], OF_COLUMNS),
        (["text,a,b,c", "x,1,0,-1"], OF_COLUMNS),
    ],
)
def test_a_test_file_may_lack_labels(write, lines, settings):
    _, data = read(write("test.csv", *lines), "test", **settings)
    assert data.examples == [Example("test-1", "x", "", None, 2)]


# What is wrong


def changed(**changes):
    row = {"text": "x", "label": "a", "id": "1"}
    return [row, row | changes]


def in_list(labels):
    return [{"text": "x", "labels": labels}]


NO_BREAKS = ".*, expected text without tabs and line breaks"

# A file, its lines, settings, and what is said.
REFUSED = [
    ("train.tsv", NO_HEADER, {}, "'text_a' .*'x', '1'.*--text_a_column"),
    ("train.tsv", NO_HEADER, {"text_a_column": "body", "label_column": "1"}, "line 1: .*'body' "),
    ("train.tsv", with_labels(*range(1001)), {}, "1001 different .* list all of them in --labels"),
    ("train.tsv", with_labels("a", "a"), {}, r"1 different .*\(a\)"),
    ("train.tsv", ["text\tlabel", '"two\nlines"\tneg'], {}, "line 2: .*pass --quoting"),
    (
        "train.tsv",
        with_labels("10", "3.5", "4"),
        {},
        r"line 3: label '3.5' is a fraction.*--is_regression.*in --labels",
    ),
    (
        "train.tsv",
        [*with_labels("good"), "poor\tbad\tgood"],
        {"labels": ("good", "bad"), "label_column": "-1"},
        "line 3: expected 2 columns, as in the header, got 3",
    ),
    ("train.jsonl", changed(label="a\tb"), {}, "line 2: the label is 'a.*tb'" + NO_BREAKS),
    ("train.jsonl", LISTS, {"is_regression": True}, r"line 1: the label is \['b', 'a'\].* pass --"),
    ("train.jsonl", in_list("a, b"), {"is_multi_label": True}, "'a, b', expected a list of "),
    ("train.jsonl", in_list([0, 1, 0]), {"is_multi_label": True}, "expected .*different"),
    (
        "train.jsonl",
        [{"text": "x", "a": 2, "b": 1, "c": 0}],
        OF_COLUMNS,
        "line 1: column 'a' is 2, expected 0 or 1",
    ),
    ("train.jsonl", [{"text": "x", "a": 1, "b": 0}], OF_COLUMNS, "line 1: no column 'c'"),
    ("train.jsonl", LISTS, {"is_multi_label": True, "label_column": "1,2"}, "not by numbers"),
    ("train.jsonl", LISTS, OF_COLUMNS | {"labels": ("a", "d")}, "expected the columns of .* a, d"),
    ("train.jsonl", LISTS, {"is_multi_label": True, "is_regression": True}, "exclude each other"),
    ("test.tsv", ["text", "x"], {"labels": ("c\td", "d")}, r"a label of --labels .* is 'c\\td'"),
]


@pytest.mark.parametrize(("name", "lines", "settings", "problem"), REFUSED)
def test_what_is_wrong_in_ones_own_data_is_named(write, name, lines, settings, problem):
    with pytest.raises((ValueError, FileNotFoundError), match=problem):
        read(write(name, *lines), name.partition(".")[0], **settings)


def test_a_split_has_one_file(write):
    folder = write("train.tsv", *with_labels("1", "2"))
    names = (
        r"it has train \(train\.tsv\)\. Expected dev\.tsv, dev\.csv, dev\.jsonl, dev\.json, dev\."
    )
    with pytest.raises(FileNotFoundError, match=names):
        read(folder, "dev", labels=("1", "2"))
    write("train.csv", "text,label", "x,1")
    with pytest.raises(ValueError, match=r"contains train.tsv and train.csv: keep only one"):
        read(folder)
    with pytest.raises(ValueError, match="--is_multi_label is for --task_name=tsv, not for mrpc"):
        read(folder, name="mrpc", is_multi_label=True)
