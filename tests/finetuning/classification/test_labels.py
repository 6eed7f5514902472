"""Labels that are not known, or spelled otherwise than those of the task."""

import pytest

from albert_tf.finetuning.classification.labels import parse_label
from albert_tf.finetuning.classification.tasks import TASKS
from tests.finetuning.classification.test_custom import read, with_labels

LABELED = ["text\tlabel", "x\ta", "y\tb"]


def labels_of(data):
    return [example.label for example in data.examples]


@pytest.mark.parametrize("value", ["", "-", "-1"])
def test_rows_without_a_label_are_skipped_or_predicted(write, caplog, value):
    folder = write("train.tsv", *LABELED)
    write("dev.tsv", "text\tlabel", "x\tb", f"y\t{value}")
    write("test.tsv", "text\tlabel", f"x\t{value}", "y\ta")
    assert labels_of(read(folder, "dev")[1]) == ["b"]
    said = "dev.tsv: 1 of 2 rows are skipped, because they have no label; the first is line 3"
    assert said in caplog.text
    caplog.clear()
    data = read(folder, "test")[1]
    assert (labels_of(data), data.has_labels) == ([None, "a"], False)
    assert "test.tsv: predicted, but not evaluated: 1 of 2 have no known label; the first" in (
        caplog.text
    )


@pytest.mark.parametrize(
    ("lines", "settings", "labels", "said"),
    [
        (with_labels("a", "", "b"), {}, ["a", "b"], "1 of 3 rows are skipped"),
        (with_labels("0", "-1", "1"), {}, ["0", "-1", "1"], "line 3: '-1' is taken as a label. "),
        (with_labels("a", "-", "b"), {}, ["a", "-", "b"], "line 3: '-' is taken as a label. "),
        (with_labels("0", "-1", "1"), {"labels": ("0", "1")}, ["0", "1"], "1 of 3 rows are skip"),
        (with_labels("0.5", "-1", ""), {"is_regression": True}, ["0.5", "-1"], "1 of 3 rows are"),
    ],
)
def test_what_stands_for_no_label_may_be_one_in_training_data(
    write, caplog, lines, settings, labels, said
):
    assert labels_of(read(write("train.tsv", *lines), **settings)[1]) == labels
    assert said in caplog.text


@pytest.mark.parametrize(
    ("rows", "settings", "labels"),
    [
        ([{"labels": ["a"]}, {"labels": None}, {"labels": []}], {}, [("a",), ()]),
        (
            [{"a": 1, "b": 0}, {"a": -1, "b": 0}, {"a": 0, "b": None}],
            {"label_column": "a,b"},
            [("a",)],
        ),
    ],
)
def test_lists_and_columns_of_labels_may_be_unknown(write, rows, settings, labels):
    folder = write("train.jsonl", *({"text": "x"} | row for row in rows))
    _, data = read(folder, is_multi_label=True, labels=("a", "b"), **settings)
    assert labels_of(data) == labels


@pytest.mark.parametrize(
    ("scores", "expected"),
    [(["-1", "-1.0"], [None, None]), (["-1", "2"], ["-1", "2"])],
)
def test_scores_of_a_test_file_that_all_are_minus_one_are_not_known(write, scores, expected):
    folder = write("test.tsv", *with_labels(*scores))
    assert labels_of(read(folder, "test", is_regression=True)[1]) == expected


def test_a_test_file_with_other_values_than_labels_says_that_it_is_not_evaluated(write, caplog):
    folder = write("train.tsv", *LABELED)
    write("test.tsv", *with_labels("good", "bad"))
    assert not read(folder, "test")[1].has_labels
    assert "predicted, but not evaluated: unknown label 'good'; expected a, b" in caplog.text
    caplog.clear()
    write("test.tsv", "text", "x")
    assert not read(folder, "test")[1].has_labels
    assert not caplog.messages


def test_another_case_of_a_label_is_the_same_label_if_there_is_no_doubt(write, caplog):
    folder = write("train.tsv", *with_labels("Pos", "neg"))
    write("dev.tsv", *with_labels("pos", "neg", "POS"))
    assert labels_of(read(folder, "dev")[1]) == ["Pos", "neg", "Pos"]
    assert "'POS' and 'Pos' are taken as the same label" in caplog.text
    write("dev.tsv", *with_labels("pos", "neg", "Pos"))
    with pytest.raises(ValueError, match=r"dev\.tsv: 'pos' and 'Pos' are both labels here"):
        read(folder, "dev")
    write("train.tsv", *with_labels("Pos", "pos"))
    write("dev.tsv", *with_labels("Pos", "pos", "POS"))
    with pytest.raises(ValueError, match="line 4: unknown label 'POS'; expected Pos, pos"):
        read(folder, "dev")


def test_a_column_with_nulls_may_have_numbers_with_a_point():
    assert parse_label(1.0, TASKS["mrpc"]) == "1"
    assert parse_label(1.0, TASKS["sts-b"]) == "1.0"


def test_a_text_column_that_is_not_used_is_named(write, caplog):
    folder = write("train.csv", "title,text,label", "Good,I liked it,pos", "Bad,I hated it,neg")
    assert read(folder)[1].examples[0].text_a == "I liked it"
    assert "train.csv: not used, but seems to have texts: 'title'. Pass --text_a_column" in (
        caplog.text
    )
    caplog.clear()
    assert read(folder, text_a_column="text")[1].examples[0].text_a == "I liked it"
    assert not caplog.messages


def test_a_list_in_a_cell_is_no_label_and_json_is_a_list_of_labels(write):
    folder = write("train.csv", "text,label", 'x,"[0, 1]"', 'y,"[""1""]"')
    with pytest.raises(
        ValueError, match=r"line 2: label '.0, 1.' seems to be a list: pass --is_mu"
    ):
        read(folder)
    assert labels_of(read(folder, is_multi_label=True)[1]) == [("0", "1"), ("1",)]
    labels = ("[0, 1]", '["1"]')
    assert read(folder, labels=labels)[0].labels == labels


def test_of_several_columns_that_may_be_the_label_none_is_guessed(write):
    folder = write("train.csv", "text,score,gold_label", "x,1,a", "y,0,b")
    with pytest.raises(ValueError, match=r"'score', 'gold_label' may each be the label: pass --l"):
        read(folder)
    assert read(folder, label_column="gold_label")[0].labels == ("a", "b")
    folder = write("train.csv", "text,score,label", "x,1,a", "y,0,b")
    assert read(folder)[0].labels == ("a", "b")
