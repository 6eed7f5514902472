import json

import pytest

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.classification import custom
from albert_tf.classification import reading as custom_reading
from albert_tf.classification.reading import Example, read_examples
from albert_tf.classification.settings import CustomDataSettings


@pytest.fixture
def write(tmp_path):
    def write_file(name, *lines):
        text = "".join(f"{line}\n" for line in lines)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path)

    return write_file


def record(folder, task):
    """Writes the record of a model that was trained for a task, and returns its folder."""
    trained = RunFolder(str(folder))
    details = custom.details_of(task)
    described = {"name": "classification", "labels": list(task.labels), **details}
    trained.write_record(RunRecord(task=described))
    return trained


def read(folder, split="train", **settings):
    task = custom.find_task("tsv", folder, CustomDataSettings(**settings))
    return read_examples(task, folder, split)


FORMS = {
    "train.tsv": ["id\tsentence\tlabel", "7\tgood\tpos", "8\tbad\tneg"],
    "train.csv": ["label,sentence,id", 'pos,"good",7', "neg,bad,8"],
    "train.txt": ["Label\tText_A\tID", "pos\tgood\t7", "neg\tbad\t8"],
    "train.jsonl": [
        json.dumps({"id": 7, "text": "good", "label": "pos"}),
        json.dumps({"id": 8, "text": "bad", "label": "neg"}),
    ],
}


@pytest.mark.parametrize("name", FORMS)
def test_columns_are_found_by_name_in_all_formats(write, name):
    data = read(write(name, *FORMS[name]))
    assert data.task.labels == ("neg", "pos")
    first = 1 if name.endswith("jsonl") else 2
    assert data.examples == [
        Example("7", "good", "", "pos", first),
        Example("8", "bad", "", "neg", first + 1),
    ]


def test_columns_can_be_given_by_name_or_index(write):
    folder = write("train.tsv", "a\tb\tc\td", "x\ty\t1\tz", "x\ty\t0\tz")
    named = read(folder, text_a_column="D", text_b_column="b", label_column="c")
    numbered = read(folder, text_a_column="3", text_b_column="1", label_column="2", has_header=True)
    expected = [Example("train-1", "z", "y", "1", 2), Example("train-2", "z", "y", "0", 3)]
    assert named.examples == numbered.examples == expected


NO_HEADER = ["x\t1", "y\t0", "z\t1"]


def test_files_without_a_header_are_read_by_indices(write):
    folder = write("train.tsv", *NO_HEADER)
    assert len(read(folder, text_a_column="0", label_column="1")) == 3


def test_a_test_file_may_lack_labels(write):
    write("train.tsv", "text\tlabel", "x\t1", "y\t0")
    data = read(write("test.tsv", "text", "z"), "test", label_column="label")
    assert data.examples == [Example("test-1", "z", "", None, 2)]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["10", "9", "-1", "9"], ("-1", "9", "10")),
        (["b", "a", "10", "9"], ("10", "9", "a", "b")),
        (["1.0", "0.0", "1.0"], ("0.0", "1.0")),
    ],
)
def test_labels_are_read_from_the_training_data_in_order(write, labels, expected):
    folder = write("train.tsv", "text\tlabel", *(f"x\t{label}" for label in labels))
    assert read(folder).task.labels == expected


def test_labels_can_be_set_instead(write):
    folder = write("dev.tsv", "text\tlabel", "x\tb")
    assert read(folder, "dev", labels=("b", "a")).task.labels == ("b", "a")
    with pytest.raises(FileNotFoundError, match=r"no train data.* needed for the labels"):
        custom.find_task("tsv", folder, CustomDataSettings())


def test_fractions_are_scores(write):
    folder = write("train.tsv", "text\tlabel", "x\t1", "y\t2.5", "z\t2.5")
    data = read(folder, is_regression=True)
    assert data.task.num_labels == 1
    assert data.task.selection_metric == "pearson"
    assert [example.label for example in data.examples] == ["1", "2.5", "2.5"]


def test_an_empty_folder_is_an_error_that_names_the_files(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"contains no train, dev or test file with one of .tsv"
    ):
        custom.find_task("tsv", str(tmp_path), CustomDataSettings())


def test_tasks_of_the_table_are_found_by_name_and_custom_ones_described(write):
    options = CustomDataSettings(
        text_a_column="-1", text_b_column="b", label_column="c", has_header=True
    )
    assert custom.find_task("MRPC", "nowhere", options).name == "mrpc"
    folder = write("train.tsv", "b\tc\td", "x\t1\tz", "y\t0\tz")
    task = custom.find_task(" TSV", folder, options)
    assert task.labels == ("0", "1")
    assert read_examples(task, folder, "train").examples[0] == Example("train-1", "z", "x", "1", 2)
    with pytest.raises(ValueError, match="Task not found: nothing"):
        custom.find_task("nothing", folder, options)


def test_labels_of_a_trained_model_survive_its_data(write, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    folder = write("train.tsv", "text\tlabel", "x\tb", "y\ta")
    options = CustomDataSettings()
    task = custom.find_task("tsv", folder, options)
    trained = record(model, task)
    (tmp_path / "train.tsv").unlink()
    write("test.tsv", "text", "z")
    assert custom.find_task("tsv", folder, options, trained).labels == ("a", "b")
    said = CustomDataSettings(labels=("c", "d"))
    assert custom.find_task("tsv", folder, said, trained).labels == ("c", "d")
    with pytest.raises(FileNotFoundError, match="needed for the labels"):
        custom.find_task("tsv", folder, options)
    with pytest.raises(
        ValueError, match=r"a label of --labels or run\.json is 'c\\td', expected text"
    ):
        custom.find_task("tsv", folder, CustomDataSettings(labels=("c\td", "d")))


def test_a_model_is_trained_further_only_on_its_own_task(tmp_path):
    cola, mrpc = (custom.find_task(n, "", CustomDataSettings()) for n in ("cola", "mrpc"))
    mnli, other = (custom.find_task(n, "", CustomDataSettings()) for n in ("mnli", "ax"))
    custom.check_task(RunFolder(str(tmp_path)), cola, is_training=True)  # no task is recorded
    trained = record(tmp_path, cola)
    custom.check_task(trained, cola, is_training=True)
    custom.check_task(trained, mrpc, is_training=False)  # the same labels
    with pytest.raises(ValueError, match=r"a model of the task cola with the labels 0, 1, not "):
        custom.check_task(trained, mrpc, is_training=True)
    with pytest.raises(ValueError, match="not mnli with contradiction, entailment, neutral"):
        custom.check_task(trained, mnli, is_training=False)
    custom.check_task(record(tmp_path, mnli), other, is_training=False)


def test_a_missing_split_is_an_error_that_names_the_expected_files(write):
    folder = write("train.tsv", *FORMS["train.tsv"])
    with pytest.raises(FileNotFoundError) as error:
        read(folder, "dev")
    for name in ("dev.tsv", "dev.csv", "dev.jsonl", "dev.json", "dev.txt"):
        assert f"{folder}/{name}" in str(error.value)


QUOTED = ["sentence\tlabel", '"He said ""hi"""\tpos', '"two\twords"\tneg', '"two\nlines"\tneg']


def test_quoted_cells_are_parsed_with_quoting(write):
    folder = write("train.tsv", *QUOTED)
    task = custom.find_task("tsv", folder, CustomDataSettings(), quoting=True)
    data = read_examples(task, folder, "train", quoting=True)
    texts = [example.text_a for example in data.examples]
    assert texts == ['He said "hi"', "two\twords", "two\nlines"]


# Several labels


def in_lists(*rows):
    return [json.dumps({"text": text, "labels": labels}) for text, labels in rows]


LISTS = in_lists(("x", ["b", "a"]), ("y", []), ("z", ["c"]))


def test_lists_of_labels_are_read(write):
    data = read(write("train.jsonl", *LISTS), is_multi_label=True)
    assert data.task.labels == ("a", "b", "c")
    assert [example.label for example in data.examples] == [("b", "a"), (), ("c",)]
    assert data.has_labels
    assert (data.task.num_labels, data.task.selection_metric) == (3, "micro_f1")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("train.tsv", ["text\ta\tB\tc", "x\t1\t1\t0", "y\t0\t0\t0", "z\t0\t0\t1"]),
        ("train.csv", ["a,B,c,text", "1,1.0,0,x", "0,0,False,y", "0,0,true,z"]),
        (
            "train.jsonl",
            [
                json.dumps({"text": "x", "a": 1, "B": True, "c": 0}),
                json.dumps({"text": "y", "a": 0, "B": 0.0, "c": 0}),
                json.dumps({"text": "z", "a": 0, "B": "0", "c": "1"}),
            ],
        ),
    ],
)
def test_columns_of_0_and_1_are_labels(write, name, lines):
    folder = write(name, *lines)
    data = read(folder, is_multi_label=True, label_column="a, b,c")
    assert data.task.labels == ("a", "b", "c")
    assert [example.label for example in data.examples] == [("a", "b"), (), ("c",)]
    ordered = read(folder, is_multi_label=True, label_column="a,b,c", labels=("c", "b", "a"))
    assert ordered.task.labels == ("c", "b", "a")
    assert ordered.examples == data.examples


def test_tasks_of_the_table_have_their_own_labels(tmp_path):
    with pytest.raises(ValueError, match="--is_multi_label is for --task_name=tsv, not for mrpc"):
        custom.find_task("mrpc", str(tmp_path), CustomDataSettings(is_multi_label=True))


def test_a_test_file_may_lack_columns_of_labels(write):
    write("train.csv", "text,a,b", "x,1,0", "y,0,1")
    folder = write("test.csv", "text,a", "x,1")
    data = read(folder, "test", is_multi_label=True, label_column="a,b")
    assert [example.label for example in data.examples] == [None]
    folder = write("test.csv", "text,a,b", "x,1,-1")
    data = read(folder, "test", is_multi_label=True, label_column="a,b")
    assert [example.label for example in data.examples] == [None]


MARKED = ["text\tmark", "x\t1"]
WIDE = [["text", "label"], ["fine", "good"], ["poor", "bad", "good"], ["dull", "bad"]]
OF_COLUMNS = {"is_multi_label": True, "label_column": "a,b"}


def tsv(*rows):
    return ["text\tlabel", *rows]


def with_labels(*labels):
    return tsv(*(f"x\t{label}" for label in labels))


def with_changes(**changes):
    row = {"text": "x", "label": "a", "id": "1"}
    return [json.dumps(row), json.dumps(row | changes)]


# A file, its lines, settings, and what is said.
REFUSED = [
    ("train.tsv", NO_HEADER, {}, "'text_a' .*'x', '1'.*--text_a_column"),
    (
        "train.tsv",
        NO_HEADER,
        {"text_a_column": "body", "label_column": "mark"},
        "line 1: .*'body' .*'x'",
    ),
    ("train.tsv", MARKED, {"text_a_column": "body"}, "'body' .*'text', 'mark'"),
    ("train.tsv", MARKED, {}, "'label' .*'text', 'mark'.*--label_column"),
    ("train.tsv", with_labels(*range(1001)), {}, "1001 different"),
    ("train.tsv", with_labels("a", "a"), {}, r"1 different .*\(a\)"),
    ("train.tsv", tsv("x\ta", "y", "z\tb"), {}, "line 3: expected 2 or more columns"),
    ("train.tsv", QUOTED[:1] + QUOTED[3:], {}, "line 2: .*pass --quoting"),
    (
        "train.tsv",
        with_labels("10", "3.5", "4"),
        {},
        r"line 3: label '3.5' is a fraction.*--is_regression.*--labels=3.5,4,10\.",
    ),
    (
        "train.tsv",
        with_labels("Pos", "neg", "pos"),
        {},
        r"'Pos' \(line 2\) and 'pos' \(line 4\).*--labels",
    ),
    (
        "dev.tsv",
        with_labels("a", "c"),
        {"labels": ("a", "b")},
        "line 3: unknown label 'c'; expected a, b",
    ),
    *(
        (
            name,
            list(map(separator.join, WIDE)),
            {"labels": ("good", "bad"), "label_column": "-1"},
            f"{name}, line 3: expected 2 columns, as in the header, got 3",
        )
        for name, separator in [("train.tsv", "\t"), ("train.csv", ",")]
    ),
    *(
        ("train.jsonl", with_changes(**changes), {}, f"line 2: {problem}")
        for changes, problem in [
            (
                {"label": "a\tb"},
                r"the label is 'a.*tb', expected text without tabs and line breaks",
            ),
            ({"label": "a\nb"}, "the label is .*, expected text without tabs and line breaks"),
            ({"label": "a\u2028b"}, "the label is .*, expected text without tabs and line breaks"),
            ({"label": "  "}, "the label is ''"),
            ({"label": "a\ud800"}, "the label contains a lone surrogate"),
            ({"id": "\ud800"}, "'id' contains a lone surrogate"),
        ]
    ),
    ("train.jsonl", LISTS, {}, r"line 1: the label is \['b', 'a'\].* pass --is_multi_label"),
    *(
        ("train.jsonl", in_lists(("x", labels)), {"is_multi_label": True}, problem)
        for labels, problem in [
            ("a, b", "'a, b', expected a list of labels"),
            ([0, 1, 0], "one of them twice"),
            (["a", None], "the label is None"),
        ]
    ),
    (
        "train.jsonl",
        [json.dumps({"text": "x", "a": 2, "b": 1})],
        OF_COLUMNS,
        "line 1: column 'a' is 2, expected 0 or 1",
    ),
    ("train.jsonl", [json.dumps({"text": "x", "a": 1})], OF_COLUMNS, "line 1: no column 'b'"),
    ("train.jsonl", LISTS, {"is_multi_label": True, "label_column": "1,2"}, "not by numbers"),
    (
        "train.jsonl",
        LISTS,
        OF_COLUMNS | {"labels": ("a", "c")},
        "--label_column=a,b: expected the columns of the labels a, c",
    ),
    ("train.jsonl", LISTS, {"is_multi_label": True, "is_regression": True}, "exclude each other"),
]


@pytest.mark.parametrize(("name", "lines", "settings", "problem"), REFUSED)
def test_what_is_wrong_in_ones_own_data_is_named(write, name, lines, settings, problem):
    with pytest.raises(ValueError, match=problem):
        read(write(name, *lines), name.partition(".")[0], **settings)


def test_two_files_for_one_split_are_refused(write):
    write("train.tsv", *with_labels("1"))
    with pytest.raises(ValueError, match=r"contains train.tsv and train.csv: keep only one"):
        read(write("train.csv", "text,label", "x,1"))


# What is said of one's own data


def test_classes_may_be_fractions_if_listed(write):
    folder = write("train.tsv", "text\tlabel", "x\t10", "y\t3.5", "z\t4")
    assert read(folder, labels=("3.5", "4", "10")).examples[1].label == "3.5"


def test_labels_may_differ_in_case_if_listed(write):
    folder = write("train.tsv", "text\tlabel", "x\tPos", "y\tneg", "z\tpos")
    assert read(folder, labels=("Pos", "neg", "pos")).examples[2].label == "pos"


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("sentence,sentence_b,label", "--text_b_column=sentence_b"),
        ("sentence1,text2,label", "--text_b_column=text2"),
        ("text,title,label", "--text_b_column=title"),
        ("text,text_b,label", ""),
        ("text,source,label", ""),  # of one word
    ],
)
def test_a_second_text_that_nobody_reads_is_named(write, monkeypatch, header, named):
    warnings = []
    monkeypatch.setattr(
        custom_reading.logging, "warning", lambda text, *a: warnings.append(text % a)
    )
    second = "web" if "source" in header else "It was cold."
    folder = write("train.csv", header, f"The rain fell.,{second},a", f"It was warm.,{second},b")
    read(folder)
    assert [named in text for text in warnings] == ([True] if named else [])
    read(folder, text_a_column=header.partition(",")[0])
    assert len(warnings) == bool(named)


def test_labels_without_names_are_their_numbers_too(tmp_path, write):
    model = tmp_path / "model"
    model.mkdir()
    config = {"architectures": ["AlbertForSequenceClassification"], "num_labels": 3}
    (model / "config.json").write_text(json.dumps(config))
    folder = write("dev.tsv", "text\tlabel", "x\t2", "y\tLABEL_0")
    task = custom.find_task("tsv", folder, CustomDataSettings(), RunFolder(str(model)))
    assert task.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    data = read_examples(task, folder, "dev")
    assert [example.label for example in data.examples] == ["LABEL_2", "LABEL_0"]
