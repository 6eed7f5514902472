"""What Hugging Face's `config.json` says of the task; transformers' rules are the expectation."""

from __future__ import annotations

import json

import pytest

from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.huggingface_tasks import read_task, write_task

SEQUENCE = "AlbertForSequenceClassification"
TOKENS = "AlbertForTokenClassification"


def named(*labels):
    return {str(number): label for number, label in enumerate(labels)}


def of_texts(*labels, is_regression=False):
    return {
        "task_name": "",
        "folder": "",
        "labels": list(labels),
        "is_regression": is_regression,
    }


# Content of config.json, as transformers 5 writes it → task and details.
CASES = {
    "two classes, whose default names are not written": (
        {"architectures": [SEQUENCE]},
        ("classification", of_texts("LABEL_0", "LABEL_1")),
    ),
    "default names": (
        {"architectures": [SEQUENCE], "id2label": named("LABEL_0", "LABEL_1", "LABEL_2")},
        ("classification", of_texts("LABEL_0", "LABEL_1", "LABEL_2")),
    ),
    "names": (
        {
            "architectures": [SEQUENCE],
            "id2label": named("NEGATIVE", "POSITIVE"),
            "problem_type": "single_label_classification",
        },
        ("classification", of_texts("NEGATIVE", "POSITIVE")),
    ),
    "several labels": (
        {
            "architectures": [SEQUENCE],
            "id2label": named("joy", "恐惧"),
            "problem_type": "multi_label_classification",
        },
        ("multi_label_classification", of_texts("joy", "恐惧")),
    ),
    "one label without a problem type": (
        {"architectures": [SEQUENCE], "id2label": named("LABEL_0")},
        ("regression", of_texts(is_regression=True)),
    ),
    "the number of labels alone, as written by early versions": (
        {"architectures": [SEQUENCE], "num_labels": 1},
        ("regression", of_texts(is_regression=True)),
    ),
    "regression": (
        {"architectures": [SEQUENCE], "id2label": named("x"), "problem_type": "regression"},
        ("regression", of_texts(is_regression=True)),
    ),
    "one of several labels": (
        {
            "architectures": [SEQUENCE],
            "id2label": named("toxic"),
            "problem_type": "multi_label_classification",
        },
        ("multi_label_classification", of_texts("toxic")),
    ),
    "tokens": (
        {"architectures": [TOKENS], "id2label": named("O", "B-PER", "I-PER")},
        ("token_classification", {"token_labels": ["O", "B-PER", "I-PER"]}),
    ),
    "spans": ({"architectures": ["AlbertForQuestionAnswering"]}, ("spans", {})),
    "options": ({"architectures": ["AlbertForMultipleChoice"]}, ("multiple_choice", {})),
    "masked words": ({"architectures": ["AlbertForMaskedLM"]}, ("", {})),
    "pre-training": ({"architectures": ["AlbertForPreTraining"]}, ("", {})),
    "an encoder": ({"architectures": ["AlbertModel"], "id2label": named("a", "b")}, ("", {})),
    "names without a class": (
        {"model_type": "albert", "id2label": named("no", "yes")},
        ("", of_texts("no", "yes")),
    ),
    "neither class nor names": ({"model_type": "albert", "architectures": None}, ("", {})),
}


@pytest.mark.parametrize("name", CASES)
def test_the_config_tells_task_and_labels(name):
    values, expected = CASES[name]
    assert read_task(values) == expected


@pytest.mark.parametrize("names", [{"1": "no", "2": "yes"}, ["no", "yes"]])
def test_invalid_label_ids_are_rejected(names):
    with pytest.raises(ValueError, match=r"id2label=.*: expected names of the labels 0, 1, 2"):
        read_task({"architectures": [SEQUENCE], "id2label": names})


def test_an_unknown_problem_type_is_rejected():
    with pytest.raises(ValueError, match="problem_type='ranking': expected one of single_label"):
        read_task({"architectures": [SEQUENCE], "problem_type": "ranking"})


@pytest.mark.parametrize(
    ("name", "task", "expected"),
    [
        ("classification", of_texts("no", "可"), "single_label_classification"),
        ("", of_texts("no", "可"), "single_label_classification"),
        ("multi_label_classification", of_texts("no", "可"), "multi_label_classification"),
        ("regression", of_texts(is_regression=True), "regression"),
        ("token_classification", {"token_labels": ["B-LOC", "I-LOC", "O"]}, None),
        ("multiple_choice", {}, None),
    ],
)
def test_task_and_labels_are_written_and_read_again(name, task, expected):
    labels = task.get("token_labels") or task.get("labels") or []
    values = write_task(len(labels) or 1, name, task)
    assert values.get("problem_type") == expected
    if labels:
        assert values["id2label"] == named(*labels)
        assert values["label2id"] == {label: number for number, label in enumerate(labels)}
    found, details = read_task(values)
    assert found == (name or "classification")
    assert details == task


def test_a_wrong_number_of_labels_is_rejected():
    with pytest.raises(ValueError, match="the head has 3 outputs, but the task has 2 labels: 0, 1"):
        write_task(3, "classification", of_texts("0", "1"))


def test_the_record_of_a_run_comes_first(tmp_path):
    folder = str(tmp_path)
    config = {"architectures": [SEQUENCE], "id2label": named("NEGATIVE", "POSITIVE")}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert run_record.read_task(folder) == "classification"
    assert run_record.read(folder).identity["label list"] == '["NEGATIVE", "POSITIVE"]'
    assert run_record.content(folder)["task"]["labels"] == ["NEGATIVE", "POSITIVE"]
    run_record.write_content(folder, {"identity": {"vocabulary": "97 entries"}})
    identity = run_record.read(folder).identity
    assert (identity["task"], identity["vocabulary"]) == ("classification", "97 entries")
    run_record.write_content(folder, {"identity": {"task": "token_classification"}})
    assert run_record.read(folder).identity == {"task": "token_classification"}
    assert run_record.read_details(folder, {})[0] == {}


def test_the_error_names_the_file(tmp_path):
    config = {"architectures": [SEQUENCE], "id2label": {"1": "no"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"config\.json: id2label="):
        run_record.content(str(tmp_path))
