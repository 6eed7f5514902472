"""A run without its training: what a checkpoint from elsewhere achieves, predicts and exports."""

from __future__ import annotations

import numpy as np
import pytest
import tf_keras

from albert_tf.checkpoints import store
from albert_tf.checkpoints.names import variable_name
from albert_tf.classification.reading import Example, ExampleSet
from albert_tf.classification.run import ClassificationRun, Settings
from albert_tf.classification.task import Classifier
from albert_tf.classification.tasks import find_task
from albert_tf.config import AlbertConfig
from albert_tf.finetuning.batching import Padding
from albert_tf.finetuning.sequences import TokenSequences
from albert_tf.finetuning.sweeps import Run
from albert_tf.serving import saved_model
from tests.conftest import TINY_SHAPE

CONFIG = AlbertConfig(
    **TINY_SHAPE | {"num_hidden_layers": 1, "num_hidden_groups": 1, "type_vocab_size": 2}
)


def split_of(task, name, labels):
    """Examples of a split and their features."""
    examples = [
        Example(f"{name}-{n}", f"text {n}", "", label, n + 1) for n, label in enumerate(labels)
    ]
    numbers = [0 if label is None else float(label) for label in labels]
    column = np.array(numbers, np.float32 if task.is_regression else np.int32)
    rng = np.random.default_rng(5)
    sequences = [([2, *rng.integers(5, 97, 3 + n).tolist(), 3], 5 + n) for n in range(len(labels))]
    data = ExampleSet(task, name, f"{name}.tsv", examples)
    return data, TokenSequences.pack(sequences, {"label_ids": column})


def make_run(folder, task_name, splits, **settings):
    """A run whose weights are those of a checkpoint saved beside it."""
    task = find_task(task_name)
    classifier = Classifier(task, CONFIG)
    prefix = str(folder / "weights")
    variables = classifier.build_model().variables
    store.save_checkpoint(prefix, {variable_name(v): v for v in variables})
    pairs = {name: split_of(task, name, labels) for name, labels in splits.items()}
    run = Run(str(folder / "run"), 1e-5, 7)
    (folder / "run").mkdir()
    return ClassificationRun(
        run,
        classifier,
        {name: data for name, (data, _) in pairs.items()},
        {name: features for name, (_, features) in pairs.items()},
        Settings(3, 2, Padding(11), "vocabulary", prefix, **settings),
    )


def test_a_checkpoint_from_elsewhere_is_measured_and_described(tmp_path):
    run = make_run(tmp_path, "mrpc", {"dev": list("01101")})
    result = run.evaluate()
    assert (result.run, result.step) == (run.run, 0)
    assert set(result.metrics) == {"eval_accuracy", "f1", "eval_loss", "loss"}
    lines = (tmp_path / "run" / "dev_predictions.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines[1:]]
    assert np.mean([row[2] == row[3] for row in rows]) == result.metrics["eval_accuracy"]
    assert not list((tmp_path / "run").glob("*.index"))


def test_an_undefined_metric_is_said(tmp_path):
    result = make_run(tmp_path, "sts-b", {"dev": ["2.5"] * 5}).evaluate()
    assert (result.metrics, result.remark) == ({}, "no pearson")


def test_without_a_dev_split_there_is_nothing_to_evaluate(tmp_path):
    with pytest.raises(ValueError, match="no dev split"):
        make_run(tmp_path, "mrpc", {}).evaluate()


def test_predictions_without_labels_are_not_measured(tmp_path):
    run = make_run(tmp_path, "mrpc", {"test": [None] * 5})
    assert run.predict() == ""
    assert len((tmp_path / "run" / "MRPC.tsv").read_text().splitlines()) == 6
    assert not (tmp_path / "run" / "predict_results.txt").exists()


def test_another_task_is_refused_once_there_is_a_checkpoint(tmp_path):
    run = make_run(tmp_path, "cola", {}, is_training=True)
    other = Classifier(find_task("mrpc"), CONFIG)
    ClassificationRun(run.run, other, {}, {}, run.settings)  # nothing has been trained yet
    store.save_checkpoint(f"{run.run.folder}/model.ckpt-1", {"global_step": np.int64(1)})
    ClassificationRun(run.run, other, {}, {}, run.settings)
    again = Classifier(find_task("cola"), CONFIG)
    with pytest.raises(ValueError, match="a model of the task mrpc"):
        ClassificationRun(run.run, again, {}, {}, run.settings)


def test_exports_compute_in_float32_whatever_the_precision_of_training(tmp_path, monkeypatch):
    run = make_run(tmp_path, "mrpc", {})
    models = []
    monkeypatch.setattr(
        saved_model, "export_saved_model", lambda _, model, *a, **k: models.append(model)
    )
    policy = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        run.export(str(tmp_path / "export"))
        assert tf_keras.mixed_precision.global_policy().name == "mixed_bfloat16"
    finally:
        tf_keras.mixed_precision.set_global_policy(policy)
    layers = [layer for layer in models[0].submodules if isinstance(layer, tf_keras.layers.Layer)]
    assert {layer.compute_dtype for layer in layers} == {"float32"}
