"""The phases of fine-tuning, with a task that is cheap; the programs' tests have models."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.checkpoints import store
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning import fine_tune as engine
from albert_tf.finetuning.batching import BatchRunner
from albert_tf.finetuning.run import open_source
from albert_tf.finetuning.settings import SWEEP_TABLE, FineTuningSettings
from albert_tf.finetuning.task import FineTuningTask
from albert_tf.finetuning.token_sequences import TokenSequences
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import FullTokenizer
from albert_tf.training.hooks import Hook, every
from tests.conftest import TINY_SHAPE
from tests.script_runner import interrupted, tensors

CONFIG = AlbertConfig(
    **TINY_SHAPE | {"num_hidden_layers": 1, "num_hidden_groups": 1, "type_vocab_size": 2}
)
# A checkpoint is recognized by the name of a weight in a layer.
WEIGHT = "bert/encoder/transformer/group_0/inner_group_0/LayerNorm/beta"


class WordScores(tf_keras.Model):
    """A tiny model that scores a text by the sum of a learned number for each token."""

    def __init__(self):
        super().__init__()
        self.encoder = tf_keras.layers.Layer()
        self.encoder.add_weight(WEIGHT, (97,), initializer="random_normal")
        self.bias = self.add_weight("output_bias", (1,), initializer="zeros")
        self.traces = 0  # of prediction

    @property
    def scores(self):
        return self.encoder.weights[0]

    def call(self, batch, training=False, dropout_seed=None, output_hidden_states=False):
        self.traces += not training
        is_token = tf.cast(batch["input_mask"], self.compute_dtype)
        scores = tf.reduce_sum(tf.gather(self.scores, batch["input_ids"]) * is_token, axis=1)
        return tf.cast(scores + self.bias, tf.float32)


class WordTask(FineTuningTask):
    """A cheap task: whether a text has a positive score."""

    selection_metric = "accuracy"
    outputs = {"scores": 0.0}  # noqa: RUF012
    models = []  # noqa: RUF012
    exports = []  # noqa: RUF012
    labels_of_texts = "0110100"

    def __init__(self, settings, *_):
        self.settings = settings
        self.data = list(self.labels_of_texts)  # the same for all splits
        self.models.clear()
        self.exports.clear()

    def read(self, split):
        return self.data

    def checksum(self, data):
        return "".join(data)

    def make_features(self, data, split):
        rng = np.random.default_rng(5)
        sequences = [
            ([2, *rng.integers(5, 97, 3 + n).tolist(), 3], 5 + n) for n in range(len(data))
        ]
        return TokenSequences.pack(sequences, {"label_ids": np.array(data, np.int32)})

    def build_model(self):
        self.models.append(WordScores())
        return self.models[-1]

    def losses(self, outputs, batch):
        labels = tf.cast(batch["label_ids"], tf.float32)
        return tf.nn.sigmoid_cross_entropy_with_logits(labels, outputs), {}

    def predictions(self, outputs):
        return {"scores": outputs}

    def measure(self, split, outputs, batch_size):
        return {"accuracy": float(np.mean((outputs["scores"] > 0) == np.array(split.data, int)))}

    def write_predictions(self, folder, split, outputs, step):
        return f"{len(outputs['scores'])} texts by step {step}\n"

    def make_export(self, model, max_seq_length, folder):
        self.exports.append(model)
        return super().make_export(model, max_seq_length, folder)


class OnStart(Hook):
    """Calls a function when training starts."""

    def __init__(self, call):
        self._call = call

    def on_start(self, trainer):
        self._call(trainer)


@pytest.fixture(name="fine_tune")
def word_tuner(tmp_path):
    """Returns a function that fine-tunes the cheap task: the whole engine without an encoder."""
    CONFIG.to_json_file(str(tmp_path / "config.json"))
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")

    def fine_tune(task=WordTask, hooks=(), **values):
        always = {
            "output_dir": str(tmp_path / "out"),
            "albert_config_file": str(tmp_path / "config.json"),
            "vocab_file": str(tmp_path / "vocab.txt"),
            "max_seq_length": 11,
            "do_train": True,
            "do_eval": True,
            "train_batch_size": 3,
            "save_checkpoints_steps": 1,
            "precision": "float32",
        }
        settings = FineTuningSettings(**always | values)
        source = open_source(settings)
        return engine.fine_tune(task.open(settings, source), source, hooks=hooks)

    return fine_tune


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_vocabulary_may_have_as_many_entries_as_the_model_and_no_more(toy_spm_model, tmp_path):
    config_file = str(tmp_path / "config.json")
    settings = FineTuningSettings(
        output_dir="out",
        albert_config_file=config_file,
        spm_model_file=toy_spm_model,
        max_seq_length=11,
    )
    entries = FullTokenizer(spm_model_file=toy_spm_model).vocab_size
    dataclasses.replace(CONFIG, vocab_size=entries).to_json_file(config_file)
    assert open_source(settings).unchecked_tokenizer.vocab_size == entries
    dataclasses.replace(CONFIG, vocab_size=entries - 1).to_json_file(config_file)
    said = rf"toy\.model has {entries} entries, but .*config\.json has vocab_size={entries - 1}"
    with pytest.raises(ValueError, match=said):
        open_source(settings)


# Phases


@pytest.mark.ci
def test_predictions_are_those_of_the_best_or_else_the_latest_checkpoint(
    fine_tune, tmp_path, caplog
):
    predict = {"do_train": False, "do_eval": False, "do_predict": True}
    with pytest.raises(FileNotFoundError, match=r"out contains no checkpoint to predict with\. Tr"):
        fine_tune(**predict)
    folder = RunFolder(str(tmp_path / "out"))
    assert fine_tune(train_step=2, do_eval=False).has_files
    result = fine_tune(**predict)
    assert (str(result), result.metrics, result.has_files) == ("7 texts by step 2", {}, False)
    store.copy_checkpoint(folder.file("model.ckpt-1"), folder.best)
    assert fine_tune(**predict).text == "7 texts by step 1"
    start = {"output_dir": str(tmp_path / "other"), "init_checkpoint": folder.path}
    result = fine_tune(do_train=False, **start)
    assert (result.step, result.metrics.keys(), result.has_files) == (1, {"accuracy"}, True)
    assert not list((tmp_path / "other").glob("*.index"))
    assert "The vocabulary has" not in caplog.text
    (tmp_path / "out" / "run.json").unlink()  # as in a folder of another program
    fine_tune(do_train=False, **start)
    assert "The vocabulary has 5 entries, but the model has vocab_size=97" in caplog.text


def test_all_checkpoints_and_splits_are_computed_once_with_one_model_and_one_trace(
    fine_tune, monkeypatch
):
    sizes, run = [], BatchRunner.run

    def noted(runner, features, batch_size):
        sizes.append(len(features))
        return run(runner, features, batch_size)

    monkeypatch.setattr(BatchRunner, "run", noted)
    first = fine_tune(train_step=5, do_predict=True)
    # Each checkpoint on the dev set, which is also the test set.
    assert sizes == [7] * 5
    evaluated, trained = WordTask.models
    assert (trained.traces, evaluated.traces) == (0, 1)

    class Other(WordTask):
        def read(self, split):
            return list("01100") if split == "test" else self.data

    again = fine_tune(Other, do_train=False, do_predict=True)
    assert (again.step, again.metrics) == (first.step, first.metrics)
    assert sizes == [7] * 5 + [5]


@pytest.mark.ci
def test_an_undefined_metric_leaves_no_best_checkpoint(fine_tune):
    class Undefined(WordTask):
        def measure(self, split, outputs, batch_size):
            return {"accuracy": float("nan")}

    result = fine_tune(Undefined, train_step=2)
    assert (result.step, result.metrics) == (2, {})
    assert result.text.endswith("\naccuracy = nan\nglobal_step = 2")


# Running again


@pytest.mark.ci
def test_a_run_stops_early_and_keeps_its_best(fine_tune, tmp_path):
    """With a learning rate of 0, nothing improves, and the first of equal checkpoints is best."""
    result = fine_tune(train_step=40, learning_rate=0.0, early_stopping_patience=2)
    assert (list(RunFolder(str(tmp_path / "out")).checkpoints())[-1], result.step) == (3, 1)


@pytest.mark.ci
def test_a_finished_run_refuses_another_vocabulary_or_other_data(fine_tune, tmp_path):
    fine_tune(train_step=2)
    other = tmp_path / "other.txt"
    other.write_text((tmp_path / "vocab.txt").read_text().replace("[MASK]", "[MASK]\nsea"))
    text = "contains a run with other settings"
    with pytest.raises(ValueError, match=rf"(?s){text}.*5 entries.*vocab\.txt.*6 entries"):
        fine_tune(train_step=2, vocab_file=str(other))

    class Other(WordTask):
        labels_of_texts = "01101"

    with pytest.raises(ValueError, match="training examples: sha256 0110100 → sha256 01101\n"):
        fine_tune(Other, train_step=2)


@pytest.mark.ci
def test_a_run_in_the_first_order_of_examples_is_only_resumed_if_that_is_allowed(
    fine_tune, tmp_path, caplog
):
    def stop(trainer, result):
        raise KeyboardInterrupt

    with interrupted():
        fine_tune(train_step=4, hooks=[every(2, stop)])
    folder = RunFolder(str(tmp_path / "out"))
    settings = dict(folder.record.settings)
    assert settings.pop("sorted_order") == 2
    folder.write_record(dataclasses.replace(folder.record, settings=settings))
    with pytest.raises(ValueError, match=r"out contains a run that sorted batches of several"):
        fine_tune(train_step=4)
    fine_tune(train_step=4, allow_changed_settings=True)
    assert "Accepted by --allow_changed_settings" in caplog.text
    assert RunFolder(folder.path).record.settings["sorted_order"] == 2


@pytest.mark.ci
def test_a_frozen_encoder_keeps_its_weights(fine_tune, tmp_path):
    fine_tune(train_step=2, learning_rate=0.1, freeze_encoder=True)
    first, last = (tensors(tmp_path / "out" / f"model.ckpt-{step}") for step in (0, 2))
    changed = {name for name in first if np.any(first[name] != last[name])}
    # The encoder has no moments either.
    assert {name.split("/")[0] for name in changed} == {"output_bias", "global_step"}
    with pytest.raises(ValueError, match="freeze_encoder"):
        fine_tune(train_step=3, learning_rate=0.1)


# Sweeps


@pytest.mark.ci
def test_a_sweep_that_was_stopped_keeps_its_finished_runs(fine_tune, tmp_path):
    def stop_in_the_second(trainer):
        if trainer.settings.learning_rate == 0.3:
            raise KeyboardInterrupt

    sweep = {"learning_rate": (0.1, 0.3), "seed": 7, "train_step": 1}
    with interrupted():
        fine_tune(hooks=[OnStart(stop_in_the_second)], **sweep)
    before = files_of(tmp_path / "out" / "lr0.1_seed7")
    fine_tune(**sweep)
    after = files_of(tmp_path / "out" / "lr0.1_seed7")
    changed = {name for name, content in after.items() if before.get(name) != content}
    assert changed <= {"run.json", "runs.jsonl"}  # these say when it was run


@pytest.mark.ci
def test_a_sweep_exports_the_best_of_its_runs_in_float32(fine_tune, tmp_path):
    def diverge(trainer):
        if trainer.settings.learning_rate == 9.0:
            raise ArithmeticError("the loss is not finite")

    sweep = {"learning_rate": (0.0, 9.0, 0.3), "train_step": 2, "seed": 7, "precision": "bfloat16"}
    export = tmp_path / "export"
    result = fine_tune(hooks=[OnStart(diverge)], **sweep, do_predict=True, export_dir=str(export))
    folders = [f"{tmp_path}/out/lr{rate}_seed7" for rate in ("0", "9", "0.3")]
    table = (tmp_path / "out" / SWEEP_TABLE).read_text()
    header, *rows = [line.split("\t") for line in table.splitlines()]
    assert [row[0] for row in rows] == folders
    assert [row[-1] for row in rows] == ["", "diverged", ""]
    accuracies = [float(row[header.index("accuracy")] or -1) for row in rows]
    assert result.metrics == {"accuracy": max(accuracies)}
    assert result.output_dir == folders[int(np.argmax(accuracies))]
    places = [result.text.index(folder) for folder in folders]
    assert places == sorted(places)
    assert result.text.count("7 texts by step") == 2

    (model,) = WordTask.exports
    assert model.encoder.compute_dtype == tf_keras.mixed_precision.global_policy().name == "float32"
    best = tensors(f"{result.output_dir}/model.ckpt-best")
    np.testing.assert_array_equal(model.scores.numpy(), best[WEIGHT])
    names = {path.name for path in export.glob("*/assets.extra/*")}
    assert names == {"albert_config.json", "run.json", "vocab.txt"}
