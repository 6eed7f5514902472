import json

import numpy as np
import pytest
from absl import logging

from albert_tf.classification.reading import Example, parse_label, read_examples
from albert_tf.classification.tasks import TASKS
from albert_tf.finetuning.rows import BadRowError


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes lines (JSON objects, or lists of cells) to a file."""

    def write_lines(name, *lines):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = []
        for line in lines:
            is_row = isinstance(line, list)
            texts.append(
                "\t".join(line) if is_row else line if isinstance(line, str) else json.dumps(line)
            )
        path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
        return str(tmp_path)

    return write_lines


@pytest.fixture
def warnings(monkeypatch):
    logged = []
    monkeypatch.setattr(logging, "warning", lambda text, *args: logged.append(text % args))
    return logged


def cells(count, **filled):
    """Returns a row of `count` cells c0, c1, …, some replaced."""
    return [str(filled.get(f"c{number}", f"c{number}")) for number in range(count)]


# Task, split, file, header, a row, and the expected example: Google's table of columns.
COLUMNS = [
    ("cola", "train", "CoLA/train.tsv", 0, cells(4, c1=1), ("train-0", "c3", "", "1")),
    ("cola", "dev", "CoLA/dev.tsv", 0, cells(4, c1=0), ("dev-0", "c3", "", "0")),
    ("cola", "test", "CoLA/test.tsv", 1, cells(2), ("c0", "c1", "", None)),
    (
        "mnli",
        "train",
        "MNLI/train.tsv",
        1,
        cells(12, c11="neutral"),
        ("c0", "c8", "c9", "neutral"),
    ),
    (
        "mnli",
        "dev",
        "MNLI/dev_matched.tsv",
        1,
        cells(16, c15="entailment"),
        ("c0", "c8", "c9", "entailment"),
    ),
    ("mnli", "test", "MNLI/test_matched.tsv", 1, cells(10), ("c0", "c8", "c9", None)),
    (
        "mismnli",
        "dev",
        "MNLI/dev_mismatched.tsv",
        1,
        cells(16, c15="contradiction"),
        ("c0", "c8", "c9", "contradiction"),
    ),
    ("mismnli", "test", "MNLI/test_mismatched.tsv", 1, cells(10), ("c0", "c8", "c9", None)),
    ("mrpc", "dev", "MRPC/dev.tsv", 1, cells(5, c0=1), ("dev-1", "c3", "c4", "1")),
    ("mrpc", "test", "MRPC/test.tsv", 1, cells(5), ("c0", "c3", "c4", None)),
    (
        "rte",
        "dev",
        "RTE/dev.tsv",
        1,
        cells(4, c3="entailment"),
        ("c0", "c1", "c2", "entailment"),
    ),
    ("rte", "test", "RTE/test.tsv", 1, cells(3), ("c0", "c1", "c2", None)),
    ("sst-2", "train", "SST-2/train.tsv", 1, cells(2, c1=0), ("train-1", "c0", "", "0")),
    ("sst-2", "test", "SST-2/test.tsv", 1, cells(2), ("c0", "c1", "", None)),
    ("sts-b", "dev", "STS-B/dev.tsv", 1, cells(10, c9=2.75), ("c0", "c7", "c8", "2.75")),
    ("sts-b", "test", "STS-B/test.tsv", 1, cells(9), ("c0", "c7", "c8", None)),
    ("qqp", "dev", "QQP/dev.tsv", 1, cells(6, c5=1), ("c0", "c3", "c4", "1")),
    ("qqp", "test", "QQP/test.tsv", 1, cells(3), ("c0", "c1", "c2", None)),
    (
        "qnli",
        "train",
        "QNLI/train.tsv",
        1,
        cells(4, c3="not_entailment"),
        ("c0", "c1", "c2", "not_entailment"),
    ),
    ("wnli", "dev", "WNLI/dev.tsv", 1, cells(4, c3=0), ("c0", "c1", "c2", "0")),
    ("ax", "test", "diagnostic/diagnostic.tsv", 1, cells(3), ("c0", "c1", "c2", None)),
    ("lcqmc", "train", "train.txt", 0, cells(3, c2=1), ("train-0", "c0", "c1", "1")),
    ("lcqmc", "test", "LCQMC/test.tsv", 1, cells(3, c2=1), ("test-1", "c0", "c1", "1")),
    ("sentence_pair", "dev", "dev_0827.tsv", 1, cells(3, c0=1), ("dev-1", "c1", "c2", "1")),
    (
        "xnli",
        "train",
        "XNLI/multinli/multinli.train.zh.tsv",
        1,
        cells(3, c2="contradictory"),
        ("train-1", "c0", "c1", "contradiction"),
    ),
    (
        "xnli",
        "dev",
        "xnli.dev.tsv",
        1,
        cells(8, c0="zh", c1="neutral"),
        ("dev-1", "c6", "c7", "neutral"),
    ),
    ("chnsenticorp", "dev", "dev.tsv", 1, cells(2, c0=1), ("dev-1", "c1", "", "1")),
]


@pytest.mark.parametrize(("name", "split", "file", "header", "row", "expected"), COLUMNS)
def test_each_task_reads_its_own_columns(write, name, split, file, header, row, expected):
    head = [["label" if cell == expected[3] else "head" for cell in row]] * header
    data = read_examples(TASKS[name], write(file, *head, row), split)
    assert data.examples == [Example(*expected, line=1 + header)]
    assert data.has_labels == (expected[3] is not None)


def test_the_chinese_json_tasks_are_read(write):
    folder = write(
        "cmnli/dev.json",
        {"sentence1": "一", "sentence2": "二", "label": "neutral"},
        {"sentence1": "一", "sentence2": "三", "label": "-"},
    )
    assert read_examples(TASKS["cmnli"], folder, "dev").examples == [
        Example("dev-0", "一", "二", "neutral", 1)
    ]
    folder = write("tnews/test.json", {"id": 7, "sentence": "新闻", "keywords": ""})
    assert read_examples(TASKS["tnews"], folder, "test").examples == [
        Example("7", "新闻", "", None, 1)
    ]
    folder = write("csl/train.json", {"id": 1, "keyword": ["甲", "乙"], "abst": "文", "label": "0"})
    assert read_examples(TASKS["csl"], folder, "train").examples == [
        Example("1", "甲 乙", "文", "0", 1)
    ]
    folder = write("iflytek/train.json", {"sentence": "应用", "label": 118})
    assert read_examples(TASKS["iflytek"], folder, "train").examples[0].label == "118"


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        (("ab", 0, "e", 4), "_ab_cd[e]f"),
        (("ef", 4, "b", 1), "a[b]cd_ef_"),
        (("ab", 0, "c", 2), "_ab_[c]def"),
        (("cd", 2, "b", 1), "a[b]_cd_ef"),
    ],
)
def test_wsc_marks_the_noun_and_the_pronoun(write, spans, expected):
    keys = ("span1_text", "span1_index", "span2_text", "span2_index")
    row = {"text": "abcdef", "target": dict(zip(keys, spans, strict=True)), "label": "true"}
    data = read_examples(TASKS["wsc"], write("wsc/dev.json", row), "dev")
    assert data.examples == [Example("dev-0", expected, "", "true", 1)]


def test_copa_is_converted_to_two_pairs_cause_first(write):
    rows = [
        {"premise": "p", "choice0": "a", "choice1": "b", "question": "effect", "label": 1},
        {"premise": "q", "choice0": "c", "choice1": "d", "question": "cause", "label": 0},
    ]
    data = read_examples(TASKS["copa"], write("copa/dev.json", *rows), "dev")
    assert data.examples == [
        Example("dev-0", "p", "a", "0", 1),
        Example("dev-1", "p", "b", "1", 1),
        Example("dev-2", "c", "q", "1", 2),
        Example("dev-3", "d", "q", "0", 2),
    ]


def test_xnli_reads_only_chinese_rows_and_prefers_its_own_format(write):
    write("train.json", {"premise": "a", "hypo": "b", "label": "neutral"})
    folder = write(
        "xnli.dev.tsv",
        ["head"] * 8,
        cells(8, c0="en", c1="neutral"),
        cells(8, c0="zh", c1="neutral", c6="一"),
    )
    data = read_examples(TASKS["xnli"], folder, "dev")
    assert [(example.text_a, example.guid) for example in data.examples] == [("一", "dev-2")]
    assert read_examples(TASKS["xnli"], folder, "train").path.endswith("train.json")


def test_lcqmc_is_read_with_and_without_a_header(write):
    row = ["一", "二", "1"]
    for header in (["text_a", "text_b", "label"], ["Sentence1", "Sentence2", "Label"]):
        data = read_examples(TASKS["lcqmc"], write("train.txt", header, row), "train")
        assert data.examples == [Example("train-1", "一", "二", "1", 2)]
    assert len(read_examples(TASKS["lcqmc"], write("train.txt", row, row), "train")) == 2


@pytest.mark.parametrize(
    ("header", "row", "expected"),
    [
        ("label\ttext_a", "1\t好", ("train-1", "好", "", "1", 2)),
        ("qid\tlabel\ttext_a", "7\t1\t好", ("train-1", "好", "", "1", 2)),
        ("text_a\tlabel", "好\t1", ("train-1", "好", "", "1", 2)),
    ],
)
def test_chnsenticorp_is_read_by_the_names_in_its_header(write, header, row, expected):
    data = read_examples(TASKS["chnsenticorp"], write("train.tsv", header, row), "train")
    assert data.examples == [Example(*expected)]


def test_quotation_marks_are_ordinary_characters(write):
    folder = write("SST-2/dev.tsv", "sentence\tlabel", '"open\t1', '"closed" once\t0')
    data = read_examples(TASKS["sst-2"], folder, "dev")
    assert [example.text_a for example in data.examples] == ['"open', '"closed" once']


HEADER = "index\tsentence1\tsentence2\tlabel"
GOOD = "5\tone\ttwo\tentailment"
TEST_HEADER = "index\tsentence1\tsentence2"
QQP_HEADER = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
NEWS = {"sentence": "新闻", "label": "100"}
SPANS = {"span1_text": "x", "span1_index": 0, "span2_text": "b", "span2_index": 1}

# A file, its lines, and what is said of it.
REFUSED = [
    *(
        ("RTE/dev.tsv", [HEADER, GOOD, row, GOOD.replace("5", "7")], f"line 3: {problem}")
        for row, problem in [
            ("6\tone", "expected 3 or more columns, got 2"),
            ("", "expected 2 or more columns, got 1"),
            ("6\tone\ttwo\tyes", "unknown label 'yes'; expected entailment, not_entailment"),
            ("6\tone\ttwo\t0.5", "unknown label '0.5'"),
            ("6\tone\ttwo\t", "the label is ''"),
            ("6\t \ttwo\tentailment", "the text in column 1 is empty"),
            ("6\tone\t\tentailment", "the text in column 2 is empty"),
            ("6\to\rne\ttwo\tentailment", "a carriage return"),
        ]
    ),
    ("RTE/dev.tsv", [HEADER, GOOD, "x", "y"], r"line 3: [^\n]*\n[^\n]*line 4: "),
    ("RTE/dev.tsv", [row.replace("\t", ",") for row in (HEADER, GOOD)], "line 2: .* got 1 "),
    ("RTE/dev.tsv", [GOOD, GOOD], "line 1: expected a header"),
    ("RTE/dev.tsv", [""], "empty"),
    ("RTE/dev.tsv", [HEADER], "no usable example"),
    ("RTE/test.tsv", [TEST_HEADER, "0\tone\ttwo", "1\tone"], "line 3: "),
    (
        "RTE/test.tsv",
        [TEST_HEADER, "0\ta\tb", "1\ta\tb", "0\tc\td"],
        "line 4: the id '0' also occurs in line 2",
    ),
    ("CoLA/train.tsv", ["x\tlabel\tmark\tsentence", "x\t1\t\tIt"], "line 1: .*'label'"),
    ("QQP/train.tsv", [QQP_HEADER, "1\t2\t3\thow\twhy\tmaybe"], "line 2: unknown label 'maybe'"),
    (
        "LCQMC/train.txt",
        ["句一\t句二\t标签", "一\t二\t1"],
        "line 1: unknown label '标签'",
    ),
    (
        "LCQMC/train.txt",
        ["label\tquery\ttitle", "1\t一\t二"],
        "line 1: the header 'label', 'query', 'title' does not tell",
    ),
    ("tnews/dev.json", [NEWS, "{"], "line 2: "),
    ("tnews/test.json", [{"sentence": "新闻", "id": "\ud800"}], "line 1: 'id' .*surrogate"),
    ("tnews/dev.json", [NEWS, NEWS | {"label": "105"}], "line 2: .*'105'"),
    ("tnews/dev.json", [NEWS, NEWS | {"label": None}], "line 2: the label is None"),
    ("tnews/dev.json", [NEWS, NEWS | {"label": [1]}], r"line 2: the label is \[1\]"),
    ("tnews/dev.json", [NEWS, NEWS | {"sentence": 5}], "line 2: 'sentence' is 5"),
    (
        "wsc/dev.json",
        [{"text": "abc", "target": SPANS, "label": "true"}],
        "line 1: the text does not have 'x' at char",
    ),
    ("wsc/dev.json", [{"text": "abc", "label": "true"}], "line 1: no key 'target'"),
]


@pytest.mark.parametrize(("file", "lines", "problem"), REFUSED)
def test_what_is_wrong_in_a_file_is_named(write, file, lines, problem):
    task, split = file.split("/")[0].lower(), file.split("/")[1].split(".")[0]
    with pytest.raises(ValueError, match=f"{file}.*{problem}"):
        read_examples(TASKS[task], write(file, *lines), split)


def test_an_empty_text_of_a_test_file_is_kept_and_reported(write, warnings):
    folder = write("RTE/test.tsv", TEST_HEADER, "0\tone\t")
    data = read_examples(TASKS["rte"], folder, "test")
    assert data.examples == [Example("0", "one", "", None, 2)]
    assert "column 2 is empty, kept (1: line 2)" in warnings[0]


def test_duplicate_ids_are_reported(write, warnings):
    folder = write("RTE/dev.tsv", HEADER, GOOD, GOOD)
    assert len(read_examples(TASKS["rte"], folder, "dev")) == 2
    assert "duplicate id (1: line 3)" in warnings[0]


def test_labels_of_a_test_file_are_used_if_complete(write, warnings):
    data = read_examples(TASKS["lcqmc"], write("test.txt", "一\t二\t1", "三\t四\t0"), "test")
    assert data.has_labels
    assert not warnings
    data = read_examples(TASKS["lcqmc"], write("test.txt", "一\t二\t1", "三\t四\t-1"), "test")
    assert [example.label for example in data.examples] == ["1", None]
    assert not data.has_labels
    assert "not evaluated (1: line 2)" in warnings[0]


def test_qqp_skips_short_rows_and_keeps_empty_texts_and_wide_rows_like_google(write, warnings):
    rows = ["1\t2\t3\thow\twhy", "2\t3\t4\thow\t\t0", "3\t4\t5\thow\twhy\t1\tmore"]
    folder = write("QQP/train.tsv", QQP_HEADER, *rows)
    data = read_examples(TASKS["qqp"], folder, "train")
    assert [example.guid for example in data.examples] == ["2", "3"]
    assert len(warnings) == 2


def test_an_error_says_where_missing_data_was_looked_for(write, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no dev data of rte: none of .*RTE/dev.tsv"):
        read_examples(TASKS["rte"], str(tmp_path), "dev")
    with pytest.raises(ValueError, match="task ax has no train data, only test"):
        read_examples(TASKS["ax"], str(tmp_path), "train")


def test_the_data_directory_may_be_the_folder_of_the_task(write):
    folder = write("RTE/dev.tsv", HEADER, GOOD)
    first = read_examples(TASKS["rte"], folder, "dev")
    second = read_examples(TASKS["rte"], folder + "/RTE", "dev")
    assert first.examples == second.examples


def test_very_long_rows_are_read(write):
    text = "so " * 40_000
    data = read_examples(TASKS["sst-2"], write("SST-2/dev.tsv", "s\tl", f"{text}\t1"), "dev")
    assert data.examples[0].text_a == text


def test_the_checksum_depends_on_texts_labels_and_ids(write):
    def checksum(*rows):
        return read_examples(TASKS["rte"], write("RTE/dev.tsv", HEADER, *rows), "dev").checksum()

    same = checksum(GOOD)
    assert same == checksum(GOOD)
    for change in [("one", "onE"), ("two", "to"), ("entail", "not_entail"), ("5", "6")]:
        assert checksum(GOOD.replace(*change)) != same
    assert checksum(GOOD, GOOD) != same


@pytest.mark.parametrize(
    ("value", "label"),
    [("1", "1"), (" 1 ", "1"), (1, "1"), ("Entailment", "entailment"), (True, "true")],
)
def test_labels_may_be_text_numbers_or_json_booleans(value, label):
    task = next(task for task in TASKS.values() if label in task.labels)
    assert parse_label(value, task) == label


@pytest.mark.parametrize("value", ["high", "nan", "inf", "", None])
def test_scores_are_finite_numbers(value):
    with pytest.raises(BadRowError, match=r"expected a number|the label is"):
        parse_label(value, TASKS["sts-b"])
    assert parse_label("3.20", TASKS["sts-b"]) == "3.20"


@pytest.mark.parametrize("name", ["cola", "mrpc", "rte", "sst-2"])
@pytest.mark.parametrize("split", ["dev", "test"])
def test_ids_and_labels_equal_googles(shared, name, split):
    golden = np.load(shared / "golden" / "tasks" / "glue" / f"{name}_{split}.npz")
    data = read_examples(TASKS[name], str(shared / "data" / "glue"), split)
    count = len(golden["guid"])
    assert [example.guid for example in data.examples[:count]] == golden["guid"].tolist()
    assert data.task.labels == tuple(golden["labels"].tolist())


@pytest.mark.parametrize(("split", "count"), [("train", 6000), ("dev", 2802), ("test", 500)])
def test_real_lcqmc_is_read_to_the_last_row(shared, split, count):
    data = read_examples(TASKS["lcqmc"], str(shared / "data" / "lcqmc"), split)
    assert len(data) == count
    assert data.has_labels
