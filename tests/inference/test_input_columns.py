"""Headers of files to predict: of the training, with usual names, and unknown ones."""

from __future__ import annotations

import json

import pytest

from albert_tf.finetuning import registry
from albert_tf.inference import inputs
from albert_tf.inference.settings import Settings

PAIR = {"text_a_column": "Utterance", "text_b_column": "reply"}


def read(path, trained_with=None, task="classification"):
    settings = Settings(model_dir="m", input_file=str(path))
    spec = registry.get(task)
    found = inputs.read_inputs(settings, spec.task.parse_row, spec, trained_with)
    return [example for block in found for example in block]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_columns_have_the_names_of_the_training(tmp_path, name):
    """Also beside columns that could be a text, and in another case."""
    row = {"id": "7", "utterance": "hello there", "text": "other", "Reply": "bye"}
    lines = [",".join(row), ",".join(row.values())] if name == "a.csv" else [json.dumps(row)]
    (tmp_path / name).write_text("\n".join(lines))
    place = {"line": len(lines), "id": "7"}
    assert read(tmp_path / name, PAIR) == [(place, ("hello there", "bye"))]
    single = {"text_a_column": "utterance", "text_b_column": None}
    assert read(tmp_path / name, single) == [(place, ("hello there", ""))]
    numbered = {"text_a_column": "1", "text_b_column": "-1"}
    assert read(tmp_path / name, numbered) == [(place, ("other", ""))]


def test_options_in_columns_that_the_training_named_are_a_list(tmp_path):
    """The other parts of a question have their usual names, or those of the training."""
    row = {"id": 7, "query": "what rains", "context": "p", "OPA": "a boat", "opb": "rain"}
    row |= {"cop": 1, "options": ["x", "y"]}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row))
    trained = {"question_column": "query", "option_columns": ["opa", "opb"]}
    ((place, found),) = read(path, trained, "multiple_choice")
    assert (found.passage, found.question, found.options) == ("p", "what rains", ("a boat", "rain"))
    assert place == {"line": 1, "id": 7}
    ((_, other),) = read(path, {"option_columns": ["opx", "opb"]}, "multiple_choice")
    assert other.options == ("x", "y")  # a file with the usual names only


@pytest.mark.parametrize(
    "text",
    ["hello\nbye\n", "hello\n", "Hello there,x\nbye now,y\n", "text\nhello\nbye now\n", "é\na b\n"],
)
def test_a_first_line_that_may_be_a_text_is_one(tmp_path, text):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    found = [example[0] for _, example in read(tmp_path / "a.csv")]
    expected = [line.split(",")[0] for line in text.splitlines()]
    assert found == [line for line in expected if line != "text"]
