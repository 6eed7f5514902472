"""What Hugging Face's `config.json` says of the task; transformers' rules are the expectation."""

from __future__ import annotations

import pytest

from albert_tf.checkpoints.huggingface_tasks import read_task, write_task

SEQUENCE = "AlbertForSequenceClassification"
TOKENS = "AlbertForTokenClassification"


def named(*labels):
    return {str(number): label for number, label in enumerate(labels)}


def task_of(name, *labels):
    return {"name": name, "labels": list(labels)}


# Content of config.json, as transformers 5 writes it → entry of the task in run.json.
CASES = {
    "two classes, whose default names are not written": (
        {"architectures": [SEQUENCE]},
        task_of("classification", "LABEL_0", "LABEL_1"),
    ),
    "default names": (
        {"architectures": [SEQUENCE], "id2label": named("LABEL_0", "LABEL_1", "LABEL_2")},
        task_of("classification", "LABEL_0", "LABEL_1", "LABEL_2"),
    ),
    "names": (
        {
            "architectures": [SEQUENCE],
            "id2label": named("NEGATIVE", "POSITIVE"),
            "problem_type": "single_label_classification",
        },
        task_of("classification", "NEGATIVE", "POSITIVE"),
    ),
    "several labels": (
        {
            "architectures": [SEQUENCE],
            "id2label": named("joy", "恐惧"),
            "problem_type": "multi_label_classification",
        },
        task_of("multi_label_classification", "joy", "恐惧"),
    ),
    "one label without a problem type": (
        {"architectures": [SEQUENCE], "id2label": named("LABEL_0")},
        task_of("regression"),
    ),
    "the number of labels alone, as written by early versions": (
        {"architectures": [SEQUENCE], "num_labels": 1},
        task_of("regression"),
    ),
    "regression": (
        {"architectures": [SEQUENCE], "id2label": named("x"), "problem_type": "regression"},
        task_of("regression"),
    ),
    "one of several labels": (
        {
            "architectures": [SEQUENCE],
            "id2label": named("toxic"),
            "problem_type": "multi_label_classification",
        },
        task_of("multi_label_classification", "toxic"),
    ),
    "tokens": (
        {"architectures": [TOKENS], "id2label": named("O", "B-PER", "I-PER")},
        task_of("token_classification", "O", "B-PER", "I-PER"),
    ),
    "spans": ({"architectures": ["AlbertForQuestionAnswering"]}, {"name": "spans"}),
    "options": ({"architectures": ["AlbertForMultipleChoice"]}, {"name": "multiple_choice"}),
    "masked words": ({"architectures": ["AlbertForMaskedLM"]}, {}),
    "pre-training": ({"architectures": ["AlbertForPreTraining"]}, {}),
    "an encoder": ({"architectures": ["AlbertModel"], "id2label": named("a", "b")}, {}),
    "names without a class": (
        {"model_type": "albert", "id2label": named("no", "yes")},
        {"labels": ["no", "yes"]},
    ),
    "neither class nor names": ({"model_type": "albert", "architectures": None}, {}),
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
    ("task", "expected"),
    [
        (task_of("classification", "no", "可"), "single_label_classification"),
        ({"labels": ["no", "可"]}, "single_label_classification"),
        (task_of("multi_label_classification", "no", "可"), "multi_label_classification"),
        (task_of("regression"), "regression"),
        (task_of("token_classification", "B-LOC", "I-LOC", "O"), None),
        ({"name": "multiple_choice"}, None),
    ],
)
def test_task_and_labels_are_written_and_read_again(task, expected):
    labels = task.get("labels") or []
    values = write_task(len(labels) or 1, task)
    assert values.get("problem_type") == expected
    if labels:
        assert values["id2label"] == named(*labels)
        assert values["label2id"] == {label: number for number, label in enumerate(labels)}
    assert read_task(values) == {"name": "classification"} | task


def test_a_wrong_number_of_labels_is_rejected():
    with pytest.raises(ValueError, match="the head has 3 outputs, but the task has 2 labels: 0, 1"):
        write_task(3, task_of("classification", "0", "1"))
