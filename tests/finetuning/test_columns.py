"""Columns are found by the same names, compared in the same way, in training and in prediction."""

import pytest

from albert_tf.finetuning import columns
from albert_tf.finetuning.classification import Settings
from albert_tf.finetuning.columns import parse_pair
from albert_tf.finetuning.rows import BadRowError
from albert_tf.inference import inputs
from tests.read_classes import read_data


def test_the_usual_names_are_these_in_this_order():
    assert columns.TEXT_A == ("text_a", "sentence1", "sentence", "text")
    assert columns.TEXT_B == ("text_b", "sentence2")
    assert columns.LABEL.names == ("label", "labels", "score", "gold_label", "is_duplicate")
    assert columns.GUID.names == (
        "guid",
        "id",
        "index",
        "idx",
        "qid",
        "uid",
        "example_id",
        "pairid",
    )
    assert columns.QUESTION.names == ("question",)
    assert columns.CONTEXT.names == ("context", "passage")
    assert columns.TOKENS.names == ("tokens", "words")


@pytest.mark.parametrize(
    ("row", "of_examples", "of_inputs"),
    [
        (["7", " Sentence1 "], True, True),
        (["text_b"], True, False),
        (["label"], True, False),
        (["qid"], True, False),
        (["question"], True, True),
        (["passage"], False, True),
        (["tokens"], False, True),
        (["a text", "texts"], False, False),
        ({"text": "a"}, False, False),
        (BadRowError("bent"), False, False),
    ],
)
def test_a_header_has_one_of_the_names_of_its_kind_of_file(row, of_examples, of_inputs):
    assert columns.is_header(row, columns.NAMES_OF_EXAMPLES) == of_examples
    assert columns.is_header(row, columns.NAMES_OF_INPUTS) == of_inputs


@pytest.mark.parametrize(
    ("row", "found"), [(["B", " id ", "b"], 1), ({"B": 1, "b": 2, "id ": 3}, "id ")]
)
def test_a_name_that_several_columns_have_means_none_of_them(row, found):
    places = columns.places_of(row)
    field = columns.Field("part", ("none", "id", "b"), takes_first=True)
    assert field.find(places) == field.find(places, asked="ID") == found
    assert columns.Field("part", ("none",)).find(places) is None
    with pytest.raises(BadRowError, match=r"^several columns are called 'b': rename all but"):
        field.find(places, asked="B")


def test_a_field_says_which_of_several_columns_is_meant():
    names = ("label", "labels", "score")
    refused = columns.Field("label", names, flag="label_column")
    with pytest.raises(BadRowError, match="'a', 'b' may each be the label: pass --label_column"):
        refused.find({"labels": "a", "score": "b"})
    with pytest.raises(BadRowError, match="'a', 'b' may each be the label: "):
        refused.find({"label": "a", "score": "b"})
    assert columns.Field("label", names, prefers_name=True).find({"label": 3, "score": 2}) == 3
    assert columns.Field("label", names, takes_first=True).find({"score": 2, "labels": 1}) == 1
    with pytest.raises(BadRowError, match=r"no column 'label' or .* among 'x'\. Pass --label_col"):
        refused.of({"x": 1})


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("train.tsv", ["id\tSentence2\tSENTENCE1\tlabel", "1\tb\ta\tx", "2\td\tc\ty"]),
        ("train.tsv", ["text\tlabel\t\ttext_b\t", "a\tx\tno\tb\tno", "c\ty\tno\td\tno"]),
        ("train.csv", [" text_b ,text_a,label", '"b",a,x', '"d",c,y']),
        (
            "train.jsonl",
            [
                '{"Text_B": "b", "Text": "a", "x": "no", "X": "no", "label": "x"}',
                '{"Text_B": "d", "Text": "c", "x": "no", "X": "no", "label": "y"}',
            ],
        ),
    ],
)
def test_training_and_prediction_read_the_same_texts(tmp_path, name, lines):
    path = tmp_path / name
    path.write_text("\n".join(lines))
    settings = Settings(
        task_name="tsv", data_dir=str(tmp_path), output_dir="out", do_train=True, do_eval=False
    )
    _, data = read_data(settings)
    trained_on = [(example.text_a, example.text_b) for example in data["train"].examples]
    blocks = inputs.read_blocks(str(path), path.suffix[1:], parse_pair)
    assert [pair for block in blocks for _, pair in block] == trained_on == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("header", "texts"),
    [
        ("question sentence label idx", "question sentence"),
        ("label sentence question", "question sentence"),
        ("question1 question2 is_duplicate", "question1 question2"),
        ("premise hypothesis label", "premise hypothesis"),
        ("premise hypo label", "premise hypo"),
        ("text1 text2", "text1 text2"),
        ("query title label", "query title"),
        ("sentence1 sentence2", "sentence1 sentence2"),
        ("sentence1 label sentence2 sentence", "several"),
        ("text_b text", "text text_b"),
        ("text_a text_b question1 question2", "several"),
        ("text_a text", "text_a"),  # nothing else is called so
        ("sentence1 label", "sentence1"),
        ("title text label", "text"),
        ("text sentence label", "several"),
        ("question sentence text", "several"),
        ("premise label", "none"),
    ],
)
def test_a_text_or_a_pair_is_found_by_its_names_and_none_is_guessed(header, texts):
    names = header.split()
    places = columns.places_of(names)
    if texts == "several":
        with pytest.raises(BadRowError, match=r"several columns may be the text: .*, or "):
            columns.find_texts(places)
        with pytest.raises(BadRowError, match=r"several columns may be the text: .*, or "):
            parse_pair(dict.fromkeys(names, "x"))
        return
    found = columns.find_texts(places)
    shown = "none" if found is None else " ".join(names[n] for n in found if n is not None)
    assert shown == texts
    if found is not None:
        assert parse_pair({name: name for name in names}) == (*texts.split(), "")[:2]
