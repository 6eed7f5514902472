"""Columns are found by the same names, compared in the same way, in training and in prediction."""

import pytest

from albert_tf.finetuning import columns
from albert_tf.finetuning.classification import Settings
from albert_tf.finetuning.classification.reading import read_data
from albert_tf.finetuning.rows import BadRowError
from albert_tf.finetuning.texts import parse_pair
from albert_tf.inference import inputs


def test_the_usual_names_are_these_in_this_order():
    assert columns.TEXT_A == ("text_a", "sentence1", "sentence", "text")
    assert columns.TEXT_B == ("text_b", "sentence2")
    assert columns.LABEL == ("label", "labels")
    assert columns.GUID == ("guid", "id", "index", "qid")
    assert (columns.QUESTION, columns.CONTEXT) == (("question",), ("context", "passage"))
    assert columns.TOKENS == ("tokens",)


@pytest.mark.parametrize(
    ("row", "of_examples", "of_inputs"),
    [
        (["7", " Sentence1 "], True, True),
        (["text_b"], True, False),
        (["label"], True, False),
        (["qid"], True, False),
        (["question"], False, True),
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
    ("row", "places"),
    [
        (["B", " a ", "b"], {"b": 0, "a": 1}),
        ({"Text": 1, "text": 2, "id ": 3}, {"text": "Text", "id": "id "}),
    ],
)
def test_of_columns_with_one_name_the_first_is_meant(row, places):
    assert columns.places_of(row) == places
    assert columns.find_column(("none", "ID", "B"), places) in (0, "id ")
    assert columns.find_column(("none",), places) is None


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("train.tsv", ["id\tSentence2\tSENTENCE1\tlabel", "1\tb\ta\tx", "2\td\tc\ty"]),
        ("train.tsv", ["text\tlabel\tText\ttext_b", "a\tx\tno\tb", "c\ty\tno\td"]),
        ("train.csv", [" text_b ,text_a,label", '"b",a,x', '"d",c,y']),
        (
            "train.jsonl",
            [
                '{"Text_B": "b", "Text": "a", "text": "no", "label": "x"}',
                '{"Text_B": "d", "Text": "c", "text": "no", "label": "y"}',
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
