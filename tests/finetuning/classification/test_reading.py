"""The files of the table of tasks: Google's columns, CLUE's JSON, and what is wrong in a file."""

import pytest

from albert_tf.finetuning.classification.encoding import Example
from albert_tf.finetuning.classification.labels import parse_label
from albert_tf.finetuning.classification.tasks import TASKS
from albert_tf.finetuning.rows import BadRowError
from tests.read_classes import read_examples

# Task, split and file; header lines; cells c0, c1, … of a row, and those with other content; and
# the example: id, texts and label. This is Google's table of columns; for the other files, see
# `test_task.test_examples_and_features_match_googles_program`.
COLUMNS = [
    ("cola train CoLA/train.tsv", 0, 4, {1: "1"}, "train-0 c3 - 1"),
    ("mnli train MNLI/train.tsv", 1, 12, {11: "neutral"}, "c0 c8 c9 neutral"),
    ("mnli dev MNLI/dev_matched.tsv", 1, 16, {15: "entailment"}, "c0 c8 c9 entailment"),
    ("mnli test MNLI/test_matched.tsv", 1, 10, {}, "c0 c8 c9 -"),
    ("mismnli dev MNLI/dev_mismatched.tsv", 1, 16, {15: "neutral"}, "c0 c8 c9 neutral"),
    ("mismnli test MNLI/test_mismatched.tsv", 1, 10, {}, "c0 c8 c9 -"),
    ("sst-2 train SST-2/train.tsv", 1, 2, {1: "0"}, "train-1 c0 - 0"),
    ("sts-b dev STS-B/dev.tsv", 1, 10, {9: "2.75"}, "c0 c7 c8 2.75"),
    ("sts-b test STS-B/test.tsv", 1, 9, {}, "c0 c7 c8 -"),
    ("qqp dev QQP/dev.tsv", 1, 6, {5: "1"}, "c0 c3 c4 1"),
    ("qqp test QQP/test.tsv", 1, 3, {}, "c0 c1 c2 -"),
    ("qnli train QNLI/train.tsv", 1, 4, {3: "not_entailment"}, "c0 c1 c2 not_entailment"),
    ("wnli dev WNLI/dev.tsv", 1, 4, {3: "0"}, "c0 c1 c2 0"),
    ("ax test diagnostic/diagnostic.tsv", 1, 3, {}, "c0 c1 c2 -"),
    ("lcqmc train train.txt", 0, 3, {2: "1"}, "train-0 c0 c1 1"),
    ("lcqmc test LCQMC/test.tsv", 1, 3, {2: "1"}, "test-1 c0 c1 1"),
    ("sentence_pair dev dev_0827.tsv", 1, 3, {0: "1"}, "dev-1 c1 c2 1"),
    (
        "xnli train XNLI/multinli/multinli.train.zh.tsv",
        1,
        3,
        {2: "contradictory"},
        "train-1 c0 c1 contradiction",
    ),
    ("xnli dev xnli.dev.tsv", 1, 8, {0: "zh", 1: "neutral"}, "dev-1 c6 c7 neutral"),
    ("chnsenticorp dev dev.tsv", 1, 2, {0: "1"}, "dev-1 c1 - 1"),
]


@pytest.mark.parametrize(("place", "header", "width", "filled", "expected"), COLUMNS)
def test_each_task_reads_its_own_columns(write, place, header, width, filled, expected):
    name, split, file = place.split()
    guid, text_a, text_b, label = (cell.strip("-") for cell in expected.split())
    row = [filled.get(number, f"c{number}") for number in range(width)]
    head = [["label" if cell == label else "head" for cell in row]] * header
    data = read_examples(name, write(file, *head, row), split)
    assert data.examples == [Example(guid, text_a, text_b, label or None, line=1 + header)]
    assert data.has_labels == bool(label)


NEUTRAL = {"sentence1": "一", "sentence2": "二", "label": "neutral"}
KEYWORDS = {"id": 7, "keyword": ["甲", "乙"], "abst": "文", "label": "0"}
EFFECT = {"premise": "p", "choice0": "a", "choice1": "b", "question": "effect", "label": 1}
CAUSE = EFFECT | {"question": "cause"}


def wsc(noun, noun_index, pronoun, pronoun_index):
    target = {"span1_text": noun, "span1_index": noun_index}
    target |= {"span2_text": pronoun, "span2_index": pronoun_index}
    return {"text": "abcdef", "target": target, "label": "true"}


@pytest.mark.parametrize(
    ("file", "rows", "expected"),
    [
        ("cmnli/dev.json", [NEUTRAL, NEUTRAL | {"label": "-"}], ["dev-0|一|二|neutral"]),
        ("csl/train.json", [KEYWORDS], ["7|甲 乙|文|0"]),
        (  # a cause comes first
            "copa/dev.json",
            [EFFECT, CAUSE],
            ["dev-0|p|a|0", "dev-1|p|b|1", "dev-2|a|p|0", "dev-3|b|p|1"],
        ),
        ("copa/dev.json", [EFFECT | {"idx": 7}], ["7|p|a|0", "7|p|b|1"]),
        ("cmnli/dev.json", [NEUTRAL | {"idx": 5}], ["5|一|二|neutral"]),
        ("wsc/dev.json", [wsc("ab", 0, "e", 4)], ["dev-0|_ab_cd[e]f||true"]),
        ("wsc/dev.json", [wsc("ef", 4, "b", 1)], ["dev-0|a[b]cd_ef_||true"]),
        ("wsc/dev.json", [wsc("cd", 2, "b", 1)], ["dev-0|a[b]_cd_ef||true"]),
    ],
)
def test_the_chinese_json_tasks_are_read(write, file, rows, expected):
    name, split = file.removesuffix(".json").split("/")
    data = read_examples(name, write(file, *rows), split)
    assert ["|".join((x.guid, x.text_a, x.text_b, x.label)) for x in data.examples] == expected


def test_xnli_reads_only_chinese_rows_and_prefers_its_own_format(write):
    write("train.json", {"premise": "a", "hypo": "b", "label": "neutral"})
    rows = [[language, "neutral", *"cdefgh"] for language in ("en", "zh")]
    folder = write("xnli.dev.tsv", ["head"] * 8, *rows)
    (example,) = read_examples("xnli", folder, "dev").examples
    assert (example.text_a, example.guid) == ("g", "dev-2")
    assert read_examples("xnli", folder, "train").path.endswith("train.json")


@pytest.mark.parametrize(
    ("name", "header", "row", "expected"),
    [
        ("lcqmc", "text_a\ttext_b\tlabel", "一\t二\t1", ("train-1", "一", "二", "1", 2)),
        ("lcqmc", "label\tquery\ttitle", "1\t一\t二", ("train-1", "一", "二", "1", 2)),
        ("lcqmc", "Sentence1\tSentence2\tLabel", "一\t二\t1", ("train-1", "一", "二", "1", 2)),
        ("chnsenticorp", "label\ttext_a", "1\t好", ("train-1", "好", "", "1", 2)),
        ("chnsenticorp", "qid\tlabel\ttext_a", "7\t1\t好", ("train-1", "好", "", "1", 2)),
        ("chnsenticorp", "text_a\tlabel", "好\t1", ("train-1", "好", "", "1", 2)),
    ],
)
def test_columns_of_files_with_several_headers_are_found_by_their_names(
    write, name, header, row, expected
):
    data = read_examples(name, write("train.tsv", header, row), "train")
    assert data.examples == [Example(*expected)]


HEADER = "index\tsentence1\tsentence2\tlabel"
GOOD = "5\tone\ttwo\tentailment"


@pytest.mark.parametrize(
    ("file", "header", "row", "expected"),
    [
        ("RTE/dev.tsv", "a\tlabel\tb\tid", "7\tone\ttwo\tentailment", ("7", "one", "two")),
        ("RTE/dev.tsv", "index\tsentence1\tsentence2\tlabel", GOOD, ("5", "one", "two")),
        # Written from the table of the Hub.
        (
            "RTE/dev.tsv",
            "sentence1\tsentence2\tlabel\tidx",
            "one\ttwo\tentailment\t7",
            ("7", "one", "two"),
        ),
        ("RTE/test.tsv", "sentence1\tsentence2\tidx", "one\ttwo\t7", ("7", "one", "two")),
        ("WNLI/dev.tsv", "sentence1\tsentence2\tlabel\tidx", "one\ttwo\t1\t0", ("0", "one", "two")),
        ("SST-2/dev.tsv", "idx\tsentence\tlabel", "7\tone\t1", ("7", "one", "")),
        ("CoLA/train.tsv", "sentence\tlabel\tidx", "one\t1\t7", ("7", "one", "")),
        ("MRPC/dev.tsv", "sentence1\tsentence2\tlabel", "one\ttwo\t1", ("dev-1", "one", "two")),
    ],
)
def test_columns_of_glue_are_where_googles_program_has_them_unless_the_header_names_others(
    write, file, header, row, expected
):
    folder = write(file, header, row)
    split = file.split("/")[1].removesuffix(".tsv")
    (example,) = read_examples(file.split("/")[0].lower(), folder, split).examples
    assert (example.guid, example.text_a, example.text_b) == expected


TEST_HEADER = "index\tsentence1\tsentence2"
QQP_HEADER = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
NEWS = {"sentence": "新闻", "label": "100"}

# A file, its lines, and what is said of it.
REFUSED = [
    *(
        ("RTE/dev.tsv", [HEADER, GOOD, row, GOOD.replace("5", "7")], f"line 3: {problem}")
        for row, problem in [
            ("6\tone", "expected 3 or more columns, got 2"),
            ("6\tone\ttwo\tyes", "unknown label 'yes'; expected entailment, not_entailment"),
            ("6\t \ttwo\tentailment", "the text in column 1 is empty"),
        ]
    ),
    ("RTE/dev.tsv", [HEADER, GOOD, "x", "y"], r"line 3: [^\n]*; likewise line 4$"),
    ("RTE/dev.tsv", [GOOD, GOOD], "line 1: expected a header"),
    ("RTE/dev.tsv", [""], "empty"),
    ("RTE/test.tsv", [TEST_HEADER, "0\tone\ttwo", "1\tone"], "line 3: "),
    ("LCQMC/train.txt", ["句一\t句二\t标签", "一\t二\t1"], "line 1: unknown label '标签'"),
    (
        "LCQMC/train.txt",
        ["label\tsentence\ttitle", "1\t一\t二"],
        "line 1: the header 'label', 'sentence', 'title' does not tell",
    ),
    ("tnews/dev.json", [NEWS, NEWS | {"label": []}], r"line 2: the label is \[\]"),
    ("tnews/dev.json", [NEWS | {"label": 3}], "unknown label '3'; .* the order of the ids is not"),
    ("tnews/dev.json", [NEWS | {"label": None}], "contains no example"),
    ("wsc/dev.json", [wsc("x", 0, "b", 1)], "line 1: the text does not have 'x' at char"),
]


@pytest.mark.parametrize(("file", "lines", "problem"), REFUSED)
def test_what_is_wrong_in_a_file_is_named(write, file, lines, problem):
    task, split = file.split("/")[0].lower(), file.split("/")[1].split(".")[0]
    with pytest.raises(ValueError, match=f"{file}.*{problem}"):
        read_examples(task, write(file, *lines), split)


# A file, its lines, and the ids and labels that are read.
ACCEPTED = [
    ("RTE/test.tsv", [TEST_HEADER, "0\tone\t"], {"0": None}),
    ("LCQMC/test.txt", ["一\t二\t1", "三\t四\t0"], {"test-0": "1", "test-1": "0"}),
    ("LCQMC/test.txt", ["一\t二\t1", "三\t四\t-1"], {"test-0": "1", "test-1": None}),
    (  # Short rows are skipped, and empty texts and wide rows kept, as in Google's program.
        "QQP/train.tsv",
        [QQP_HEADER, "1\t2\t3\tso\ty", "2\t3\t4\tso\t\t0", "3\t4\t5\tso\ty\t1\tmore"],
        {"2": "0", "3": "1"},
    ),
]


@pytest.mark.parametrize(("file", "lines", "expected"), ACCEPTED)
def test_test_files_may_lack_what_is_needed_to_train_and_qqp_too(
    write, file, lines, expected, caplog
):
    task, split = file.split("/")[0].lower(), file.split("/")[1].split(".")[0]
    data = read_examples(task, write(file, *lines), split)
    assert {example.guid: example.label for example in data.examples} == expected
    assert ("train.tsv: 1 rows are skipped" in caplog.text) == (task == "qqp")
    assert data.has_labels == (None not in expected.values())


def test_missing_data_is_an_error_that_says_where_it_was_looked_for(write, tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=r"no dev data in .*: it is empty\. Expected RTE/dev\.tsv, dev\.tsv, or",
    ):
        read_examples("rte", str(tmp_path), "dev")
    with pytest.raises(ValueError, match="task ax has no train data, only test"):
        read_examples("ax", str(tmp_path), "train")
    folder = write("RTE/dev.tsv", HEADER, GOOD)
    first, second = (
        read_examples("rte", data_dir, "dev") for data_dir in (folder, folder + "/RTE")
    )
    assert first.examples == second.examples


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


@pytest.mark.parametrize(("split", "count"), [("train", 6000), ("dev", 2802), ("test", 500)])
def test_real_lcqmc_is_read_to_the_last_row(shared, split, count):
    data = read_examples("lcqmc", str(shared / "data" / "lcqmc"), split)
    assert (len(data), data.has_labels) == (count, True)
