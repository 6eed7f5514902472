"""Fixtures: folders of models that the programs trained for one step."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest

from albert_tf import classification, squad
from albert_tf.config import AlbertConfig
from tests.checkpoints.checkpoint_samples import random_arrays, random_weights

CONTEXTS = [
    "Old people say that the river was wider. The boat waits at the landing.",
    "The river carries the rain down to the sea, past the town and past the old landing. " * 3,
]
QUESTIONS = [("q1", 0, "What waits?", "The boat"), ("q2", 1, "What carries the rain?", None)]
TEXTS = [
    "The river carries the rain.",
    "A small boat waits at the landing, and nobody knows whose it is.",
    "",
    "They measured it once.",
]


@pytest.fixture(scope="session")
def always(config_file, toy_spm_model):
    """The settings shared by all runs."""
    return {
        "albert_config_file": str(config_file),
        "spm_model_file": toy_spm_model,
        "train_batch_size": 3,
        "learning_rate": 0.01,
        "precision": "float32",
        "do_train": True,
        "do_predict": True,
    }


@pytest.fixture(scope="session")
def classifier_dir(tmp_path_factory, always):
    """The output directory of a classifier, with the test split's `test_results.tsv`."""
    data, folder = tmp_path_factory.mktemp("texts"), tmp_path_factory.mktemp("classifier")
    rows = [f"{text or 'It'}\t{label}\n" for text, label in zip(TEXTS, "ynyn", strict=True)]
    (data / "train.tsv").write_text("text\tlabel\n" + "".join(rows))
    (data / "test.tsv").write_text("text\n" + "".join(f"{text or 'It'}\n" for text in TEXTS))
    settings = classification.Settings(
        task_name="tsv",
        data_dir=str(data),
        output_dir=str(folder),
        max_seq_length=17,
        train_step=1,
        **always,
    )
    classification.run(settings)
    shutil.copy(data / "test.tsv", folder)
    return folder


@pytest.fixture(scope="session")
def regression_dir(tmp_path_factory, always):
    """The output directory of a regression on pairs, with `test_results.tsv` and an export."""
    data, folder = tmp_path_factory.mktemp("pairs"), tmp_path_factory.mktemp("regression")
    pairs = [(text or "It", TEXTS[0]) for text in TEXTS]
    rows = [f"{first}\t{second}\t{1.25 * number}\n" for number, (first, second) in enumerate(pairs)]
    (data / "train.tsv").write_text("text_a\ttext_b\tlabel\n" + "".join(rows))
    rows = [f"{first}\t{second}\n" for first, second in pairs]
    (data / "test.tsv").write_text("text_a\ttext_b\n" + "".join(rows))
    settings = classification.Settings(
        task_name="tsv",
        is_regression=True,
        data_dir=str(data),
        output_dir=str(folder),
        export_dir=str(folder / "export"),
        max_seq_length=17,
        train_step=1,
        **always,
    )
    classification.run(settings)
    shutil.copy(data / "test.tsv", folder)
    return folder


@pytest.fixture(scope="session")
def multi_label_dir(tmp_path_factory, always):
    """The output directory of a classifier with any number of labels, and its export."""
    data, folder = tmp_path_factory.mktemp("labels"), tmp_path_factory.mktemp("multi_label")
    labels = [["water"], ["water", "town"], [], ["people"]]
    rows = [
        json.dumps({"text": text or "It", "labels": names}) + "\n"
        for text, names in zip(TEXTS, labels, strict=True)
    ]
    for split in ("train", "dev", "test"):
        (data / f"{split}.jsonl").write_text("".join(rows))
    settings = classification.Settings(
        task_name="tsv",
        is_multi_label=True,
        data_dir=str(data),
        output_dir=str(folder),
        export_dir=str(folder / "export"),
        max_seq_length=17,
        train_step=20,
        do_eval=True,
        **always,
    )
    classification.run(settings)
    return folder


@pytest.fixture(scope="session")
def answers_dir(tmp_path_factory, always):
    """The output directory of a model of SQuAD 2.0, with `predictions.json`."""
    folder = tmp_path_factory.mktemp("answers")
    paragraphs = [
        {
            "context": CONTEXTS[number],
            "qas": [
                {
                    "id": name,
                    "question": question,
                    "is_impossible": answer is None,
                    "answers": [{"text": answer, "answer_start": CONTEXTS[number].find(answer)}]
                    if answer
                    else [],
                }
            ],
        }
        for name, number, question, answer in QUESTIONS
    ]
    path = folder / "questions.json"
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    settings = squad.Settings(
        train_file=str(path),
        predict_file=str(path),
        output_dir=str(folder),
        max_seq_length=32,
        max_query_length=9,
        doc_stride=7,
        max_answer_length=5,
        num_train_epochs=2.0,
        num_workers=1,
        **always,
    )
    squad.run(settings)
    return folder


@pytest.fixture(scope="session")
def pretrained_dir(tmp_path_factory, config_file, toy_spm_model):
    """A folder like a released archive, with pre-trained weights, config and vocabulary."""
    return write_folder(tmp_path_factory.mktemp("pretrained"), config_file, toy_spm_model)


def write_folder(folder, config_file, vocabulary, heads=None):
    """Writes random pre-training weights, or an encoder and heads with the given shapes."""
    from albert_tf.checkpoints.store import save_checkpoint

    config = dataclasses.replace(AlbertConfig.from_json_file(str(config_file)))
    weights = {name: 0.3 * value for name, value in random_weights(config).items()}
    if heads is not None:
        weights = {name: value for name, value in weights.items() if name.startswith("bert/")}
        weights |= random_arrays(heads)
    save_checkpoint(str(folder / "model.ckpt-best"), weights)
    shutil.copy(config_file, folder / "albert_config.json")
    shutil.copy(vocabulary, folder)
    return folder
