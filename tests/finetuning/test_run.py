"""Parts of the fine-tuning engine; the programs' tests cover it as a whole."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.checkpoints import store
from albert_tf.checkpoints.names import variable_name
from albert_tf.classification import Settings
from albert_tf.classification.reading import Example
from albert_tf.classification.task import Classifier
from albert_tf.classification.tasks import find_task
from albert_tf.config import AlbertConfig
from albert_tf.finetuning import run as engine
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.prediction import Predictor
from albert_tf.finetuning.run import FineTuningRun
from albert_tf.finetuning.sequences import TokenSequences
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.sweeps import TABLE_FILE, Result
from albert_tf.finetuning.task import FineTuningTask, Split
from albert_tf.serving import saved_model
from albert_tf.training import session
from albert_tf.training.loop import Trainer
from tests.conftest import TINY_SHAPE
from tests.script_runner import killed_at, stopped_at, tensors

CONFIG = AlbertConfig(
    **TINY_SHAPE | {"num_hidden_layers": 1, "num_hidden_groups": 1, "type_vocab_size": 2}
)


def make_settings(**values):
    return FineTuningSettings(**{"output_dir": "out", "albert_config_file": "config.json"} | values)


def test_epochs_are_full_batches_and_replace_steps():
    settings = make_settings(train_step=30, warmup_step=4, train_batch_size=5)
    assert engine.training_steps(settings, 23) == (30, 4)
    epochs = dataclasses.replace(settings, num_train_epochs=2.5, warmup_proportion=0.3)
    assert engine.training_steps(epochs, 23) == (11, 3)
    with pytest.raises(ValueError, match=r"0\.1 with 23 examples is less than one step"):
        engine.training_steps(dataclasses.replace(settings, num_train_epochs=0.1), 23)


def test_the_example_order_is_ours_or_googles():
    ours = engine.training_order(make_settings(seed=7))
    assert (ours.seed, ours.batches_to_sort, ours.shuffle_buffer) == (7, 8, None)
    theirs = engine.training_order(make_settings(official_order=True))
    assert (theirs.batches_to_sort, theirs.shuffle_buffer) == (1, 100)


def test_batches_have_few_lengths_and_little_padding(monkeypatch):
    def multiple(**values):
        return engine.padding_multiple(make_settings(**values), tf.distribute.get_strategy())

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    limits = (1, 5, 128, 129, 256, 384, 512)
    assert [multiple(max_seq_length=n) for n in limits] == [2, 2, 2, 4, 4, 6, 8]
    assert multiple(max_seq_length=512, pad_to_multiple=1) == 1
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert multiple(max_seq_length=128) == 8
    monkeypatch.setattr(engine.devices, "is_tpu", lambda strategy: True)
    assert multiple(max_seq_length=128, pad_to_multiple=4) == 128


def test_a_trained_model_is_looked_for_in_the_runs_and_beside_the_weights(tmp_path):
    settings = make_settings(output_dir="out")
    assert engine.list_model_folders(settings) == ["out"]
    for path in (str(tmp_path), f"{tmp_path}/model.ckpt-best"):
        given = dataclasses.replace(settings, init_checkpoint=path)
        assert engine.list_model_folders(given) == ["out", str(tmp_path)]


def test_a_vocabulary_larger_than_the_models_is_rejected(toy_spm_model):
    settings = make_settings(spm_model_file=toy_spm_model, max_seq_length=7)
    assert engine.read_tokenizer(settings, CONFIG).vocab_size <= 97
    small = dataclasses.replace(CONFIG, vocab_size=61)
    with pytest.raises(ValueError, match=r"toy\.model has \d+ entries, but config\.json has"):
        engine.read_tokenizer(settings, small)
    with pytest.raises(ValueError, match="max_seq_length=14 is larger"):
        engine.read_tokenizer(dataclasses.replace(settings, max_seq_length=14), CONFIG)


def make_split(task, name, labels):
    """Returns examples of a split and their features."""
    examples = [
        Example(f"{name}-{n}", f"text {n}", "", label, n + 1) for n, label in enumerate(labels)
    ]
    numbers = [0 if label is None else float(label) for label in labels]
    column = np.array(numbers, np.float32 if task.is_regression else np.int32)
    rng = np.random.default_rng(5)
    sequences = [([2, *rng.integers(5, 97, 3 + n).tolist(), 3], 5 + n) for n in range(len(labels))]
    data = Examples(f"{name}.tsv", name, examples, task)
    return Split(name, data, TokenSequences.pack(sequences, {"label_ids": column}))


class Vocabulary:
    """The part of the tokenizer interface that evaluation uses."""

    checksum = "words"


@pytest.fixture(name="make_run")
def run_maker(tmp_path):
    """Returns a function that makes runs with the weights of a checkpoint in another folder."""
    CONFIG.to_json_file(str(tmp_path / "albert_config.json"))
    (tmp_path / "vocab.txt").write_text("[PAD]\n")

    def make(task_name, splits, **values):
        task = find_task(task_name)
        prefix = str(tmp_path / "weights")
        settings = Settings(
            task_name=task_name,
            data_dir="data",
            output_dir=str(tmp_path / "run"),
            albert_config_file=str(tmp_path / "albert_config.json"),
            vocab_file=str(tmp_path / "vocab.txt"),
            init_checkpoint=prefix,
            eval_batch_size=3,
            predict_batch_size=2,
            max_seq_length=11,
            **values,
        )
        classifier = Classifier(task, settings, CONFIG, Vocabulary())
        tf_keras.utils.set_random_seed(5)
        weights = classifier.build_model().variables
        store.save_checkpoint(prefix, {variable_name(v): v for v in weights})
        made = {name: make_split(task, name, labels) for name, labels in splits.items()}
        (tmp_path / "run").mkdir(exist_ok=True)
        opened = session.Session(settings, CONFIG, tf.distribute.get_strategy(), "float32")
        return FineTuningRun(settings, classifier, made, opened)

    return make


def test_a_checkpoint_from_another_folder_is_evaluated(make_run, tmp_path):
    run = make_run("mrpc", {"dev": list("01101")})
    result, text = run.do_all()
    assert (result.settings, result.step) == (run.settings, 0)
    assert set(result.metrics) == {"eval_accuracy", "f1", "eval_loss", "loss"}
    assert text.startswith(f"best checkpoint of {tmp_path}/run\neval_accuracy = ")
    lines = (tmp_path / "run" / "dev_predictions.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines[1:]]
    assert np.mean([row[2] == row[3] for row in rows]) == result.metrics["eval_accuracy"]
    assert not list((tmp_path / "run").glob("*.index"))


def test_an_undefined_metric_is_reported(make_run):
    result, text = make_run("sts-b", {"dev": ["2.5"] * 5}).do_all()
    assert (result.metrics, result.remark) == ({}, "no pearson")
    assert text.endswith("global_step = 0\n")


def test_without_a_dev_split_there_is_nothing_to_evaluate(make_run):
    run = make_run("mrpc", {"test": [None] * 5})
    assert run.evaluator is None
    with pytest.raises(ValueError, match="no dev split"):
        run.evaluate(run.splits["test"])


def test_predictions_without_labels_have_no_metrics(make_run, tmp_path):
    _, text = make_run("mrpc", {"test": [None] * 5}).do_all()
    assert text == ""
    assert len((tmp_path / "run" / "MRPC.tsv").read_text().splitlines()) == 6
    assert not (tmp_path / "run" / "predict_results.txt").exists()


def test_a_run_records_its_task_once_it_works(make_run, tmp_path):
    run = make_run("mrpc", {"train": list("01")})
    assert not list((tmp_path / "run").iterdir())
    run.begin_work()
    names = {"albert_config.json", "run.json", "runs.jsonl", "vocab.txt"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == names
    store.save_checkpoint(f"{tmp_path}/run/model.ckpt-1", {"global_step": np.int64(1)})
    other = make_run("cola", {}).task
    with pytest.raises(ValueError, match="a model of the task mrpc"):
        other.check_folder(run.settings.output_dir, is_training=True)


def test_splits_with_the_same_data_share_features_and_the_trace(make_run):
    run = make_run("mrpc", {})
    calls = []

    class Task:
        def make_features(self, data, split):
            calls.append(split)
            return make_split(find_task("mrpc"), split, list("01")).features

    data = ["some"]
    splits = engine._make_features(Task(), {"dev": data, "test": data, "other": ["more"]})
    assert calls == ["dev", "other"]
    assert splits["dev"].features is splits["test"].features
    run.settings = dataclasses.replace(run.settings, eval_batch_size=2)
    assert run._predictor(splits["dev"]) is run._predictor(splits["test"])
    assert run._predictor(splits["dev"]) is not run._predictor(splits["other"])
    assert run._predictor(splits["dev"])._step is run._predictor(splits["other"])._step


@pytest.mark.ci
def test_many_checkpoints_and_splits_are_computed_with_one_model_and_one_trace(
    make_run, tmp_path, monkeypatch
):
    run = make_run("mrpc", {"dev": list("01101"), "test": [None] * 4})
    for step in range(5):
        tf_keras.utils.set_random_seed(step)
        state = {variable_name(v): v for v in run.task.build_model().variables}
        store.save_checkpoint(
            f"{tmp_path}/run/model.ckpt-{step}", state | {"global_step": np.int64(step)}
        )
    traces, sizes, predict = [], [], Predictor.predict
    model = run.model

    class Traced:
        """The model, which notes when it is called, only while it is traced."""

        def __getattr__(self, name):
            return getattr(model, name)

        def __call__(self, *args, **kwargs):
            traces.append(tf.inside_function())
            return model(*args, **kwargs)

    def noted(predictor):
        sizes.append(len(predictor.features))
        return predict(predictor)

    monkeypatch.setattr(Predictor, "predict", noted)
    monkeypatch.setattr(run.task, "build_model", lambda: pytest.fail("built again"))
    for predictor in run._predictors.values():
        predictor.model = Traced()
    result, _ = run.do_all()
    assert traces == [True]
    # Each checkpoint once on the dev set; the predictions of the best one are not computed again.
    assert sizes == [5] * 4 + [4]
    evaluations = (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in evaluations] == [1, 2, 3, 4]
    written = (tmp_path / "run" / "dev_predictions.tsv").read_text()
    again = make_run("mrpc", {"dev": list("01101")})  # reads the evaluations, predicts the dev set
    assert again.do_all()[0].metrics == result.metrics
    assert sizes == [5] * 4 + [4, 5]
    assert (tmp_path / "run" / "dev_predictions.tsv").read_text() == written


def test_the_predictions_for_the_dev_set_are_those_of_its_evaluation(make_run, monkeypatch):
    run = make_run("mrpc", {"dev": list("01101")})
    dev = run.splits["dev"]
    run.splits["test"] = Split("test", dev.data, dev.features)
    calls, written, predict = [], [], Predictor.predict

    def noted(predictor):
        calls.append(len(predictor.features))
        return predict(predictor)

    def write(output_dir, split, outputs, step):
        written.append(outputs["probabilities"])
        return ""

    monkeypatch.setattr(Predictor, "predict", noted)
    monkeypatch.setattr(run.task, "write_predictions", write)
    run.do_all()
    assert calls == [5]
    np.testing.assert_array_equal(written[0], run._predictor(dev).predict()["probabilities"])


def test_exports_compute_in_float32_after_mixed_precision_training(make_run, tmp_path, monkeypatch):
    run = make_run("mrpc", {}, export_texts=False)  # the vocabulary is a fake
    models, names = [], set()

    def export(_, model, *__, extra_files, **___):
        models.append(model)
        names.update(extra_files)

    monkeypatch.setattr(saved_model, "export_saved_model", export)
    policy = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        run.export(str(tmp_path / "export"))
        assert tf_keras.mixed_precision.global_policy().name == "mixed_bfloat16"
    finally:
        tf_keras.mixed_precision.set_global_policy(policy)
    layers = [layer for layer in models[0].submodules if isinstance(layer, tf_keras.layers.Layer)]
    assert {layer.compute_dtype for layer in layers} == {"float32"}
    assert names == {"albert_config.json", "run.json", "vocab.txt", "labels.txt"}


class WordScores(tf_keras.Model):
    """A tiny model that scores a text by the sum of a learned number for each token."""

    def __init__(self):
        super().__init__()
        self.encoder = tf_keras.layers.Layer()
        self.scores = self.add_weight(WordTask.weight, (97,), initializer="random_normal")

    def call(self, batch, training=False, dropout_seed=None, output_hidden_states=False):
        is_token = tf.cast(batch["input_mask"], tf.float32)
        return tf.reduce_sum(tf.gather(self.scores, batch["input_ids"]) * is_token, axis=1)


class WordTask(FineTuningTask):
    """A cheap task: whether a text has a positive score."""

    # A checkpoint is recognized by the name of a weight in a layer.
    weight = "bert/encoder/transformer/group_0/inner_group_0/LayerNorm/beta"
    selection_metric = "accuracy"
    outputs = {"scores": 0.0}  # noqa: RUF012
    exports = []  # noqa: RUF012

    def __init__(self, settings, *_):
        self.settings = settings
        self.exports.clear()

    def read(self, split):
        return list("0110100")

    def checksum(self, data):
        return "".join(data)

    def make_features(self, data, split):
        return make_split(find_task("mrpc"), split, data).features

    def build_model(self):
        return WordScores()

    def losses(self, outputs, batch):
        labels = tf.cast(batch["label_ids"], tf.float32)
        return tf.nn.sigmoid_cross_entropy_with_logits(labels, outputs), {}

    def predictions(self, outputs):
        return {"scores": outputs}

    def measure(self, split, outputs, batch_size):
        return {"accuracy": float(np.mean((outputs["scores"] > 0) == np.array(split.data, int)))}

    def measured_with(self, split, batch_size, padding):
        return ()

    def write_predictions(self, output_dir, split, outputs, step):
        return f"{len(outputs['scores'])} texts by step {step}\n"

    def served_outputs(self, outputs):
        return {"scores": outputs}

    def export(self, model, export_dir, max_seq_length, extra_files, output_dir):
        self.exports.append((model.scores.numpy(), export_dir, sorted(extra_files)))


@pytest.fixture(name="fine_tune")
def word_tuner(tmp_path):
    """Returns a function that fine-tunes the cheap task: the whole engine without an encoder."""
    CONFIG.to_json_file(str(tmp_path / "config.json"))
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")

    def fine_tune(**values):
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
        return engine.fine_tune(FineTuningSettings(**always | values), WordTask)

    return fine_tune


def test_a_run_has_files_to_plot_if_it_trained_or_evaluated(fine_tune):
    assert fine_tune(train_step=1, do_eval=False).has_files
    assert fine_tune(do_train=False).has_files
    assert not fine_tune(do_train=False, do_eval=False, do_predict=True).has_files


@pytest.mark.ci
def test_a_killed_run_resumes_to_the_same_result(fine_tune, tmp_path):
    values = {"train_step": 5, "learning_rate": 0.3, "save_checkpoints_steps": 2}
    whole, folder = fine_tune(**values, do_predict=True), tmp_path / "killed"
    values |= {"do_predict": True, "output_dir": str(folder)}
    with killed_at(4):
        fine_tune(**values)
    assert list(store.list_checkpoints(str(folder))) == [0, 2]
    again = fine_tune(**values)
    assert (again.step, again.metrics) == (whole.step, whole.metrics)
    assert again.text.replace(str(folder), str(tmp_path / "out")) == whole.text
    expected = tensors(tmp_path / "out" / "model.ckpt-5")
    for name, value in tensors(folder / "model.ckpt-5").items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    for name in ("eval_results.txt", "evaluations.jsonl"):
        text = (folder / name).read_text().replace(str(folder), str(tmp_path / "out"))
        assert text == (tmp_path / "out" / name).read_text()


@pytest.mark.ci
def test_a_stopped_run_has_the_checkpoints_and_evaluations_of_one_that_was_not(fine_tune, tmp_path):
    values = {"train_step": 5, "learning_rate": 0.3, "save_checkpoints_steps": 2}
    values |= {"keep_checkpoint_max": 2}
    whole, folder = fine_tune(**values), tmp_path / "stopped"
    values |= {"output_dir": str(folder)}
    regular, interrupted = "model.ckpt-", "model.ckpt-interrupted_"
    for step, kept in {
        1: [f"{regular}0", f"{interrupted}1"],
        3: [f"{regular}0", f"{regular}2", f"{interrupted}3"],
        4: [f"{regular}2", f"{regular}4"],  # which is written anyway
    }.items():
        with stopped_at(step):
            fine_tune(**values)
        present = store.list_resumable(str(folder)).values()
        assert [os.path.basename(prefix) for prefix in present] == kept
    again = fine_tune(**values)
    assert (again.step, again.metrics) == (whole.step, whole.metrics)
    for name in ("checkpoint", "eval_results.txt", "evaluations.jsonl"):
        text = (folder / name).read_text().replace(str(folder), str(tmp_path / "out"))
        assert text == (tmp_path / "out" / name).read_text()
    assert not list(folder.glob("*interrupted*"))
    expected = tensors(tmp_path / "out" / "model.ckpt-5")
    for name, value in tensors(folder / "model.ckpt-5").items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_early_stopping_persists(fine_tune, tmp_path):
    values = {"train_step": 40, "learning_rate": 0.0, "early_stopping_patience": 2}
    result = fine_tune(**values)
    # With a learning rate of 0 nothing improves, and the first of equal checkpoints is the best.
    steps = list(store.list_checkpoints(str(tmp_path / "out")))
    assert steps[-1] == 3
    assert result.step == 1
    evaluations = (tmp_path / "out" / "evaluations.jsonl").read_bytes()
    again = fine_tune(**values)
    assert (again.step, again.metrics) == (result.step, result.metrics)
    assert list(store.list_checkpoints(str(tmp_path / "out"))) == steps
    assert (tmp_path / "out" / "evaluations.jsonl").read_bytes() == evaluations


@contextlib.contextmanager
def held(folder):
    """Holds the lock of a folder, as another process would."""
    with open(folder / ".lock", "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def test_a_sweep_locks_the_folders_of_all_its_runs(fine_tune, tmp_path, monkeypatch):
    folders = [tmp_path / "out" / f"lr{rate}_seed7" for rate in ("0", "0.3")]

    def look(run):
        for folder in folders:
            with pytest.raises(BlockingIOError), held(folder):
                pass
        return Result(run.settings, metrics={"accuracy": 0.5}), ""

    monkeypatch.setattr(FineTuningRun, "do_all", look)
    fine_tune(learning_rate=(0.0, 0.3), seed=7)
    monkeypatch.setattr(FineTuningRun, "do_all", lambda run: pytest.fail("it began"))
    with held(folders[1]), pytest.raises(ValueError, match=r"lr0\.3_seed7 is in use by"):
        fine_tune(learning_rate=(0.0, 0.3), seed=7)


def test_a_finished_run_rejects_other_settings_data_or_vocabulary(fine_tune, tmp_path, monkeypatch):
    fine_tune(train_step=2)
    folder, vocabulary = tmp_path / "out", tmp_path / "vocab.txt"
    other = tmp_path / "other.txt"
    other.write_text(vocabulary.read_text().replace("[MASK]", "[MASK]\nsea"))
    text = "contains a run with other settings"
    with pytest.raises(ValueError, match=rf"{text}:\n.*\n  learning_rate  5e-05   0\.25\n"):
        fine_tune(train_step=2, learning_rate=0.25)
    with pytest.raises(ValueError, match=rf"(?s){text}.*5 entries.*vocab\.txt.*6 entries"):
        fine_tune(train_step=2, vocab_file=str(other))
    # Evaluation does not compare the learning rate, but the vocabulary.
    fine_tune(learning_rate=0.25, do_train=False)
    with pytest.raises(ValueError, match="was trained with another vocabulary"):
        fine_tune(do_train=False, vocab_file=str(other))
    fine_tune(do_train=False, vocab_file=str(other), allow_changed_settings=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WordTask, "read", lambda *_: list("01101"))
        with pytest.raises(ValueError, match=r"training data +sha256 0110100 +sha256 01101\n"):
            fine_tune(train_step=2)
    monkeypatch.chdir(tmp_path)
    same = {"output_dir": "out", "vocab_file": "vocab.txt", "albert_config_file": "config.json"}
    assert fine_tune(train_step=2, precision="float32", log_steps=7, **same).step <= 2
    runs = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    (changes,) = filter(None, (run.get("changed_settings") for run in runs))
    before, now = changes[str(folder)].pop("vocabulary")
    assert changes == {str(folder): {}}
    assert (before[:10], now[:10]) == ("5 entries,", "6 entries,")


def test_accepted_changes_are_those_of_the_next_run(fine_tune, tmp_path):
    fine_tune(train_step=1)
    fine_tune(train_step=2, learning_rate=0.25, allow_changed_settings=True)
    fine_tune(train_step=2, learning_rate=0.25)
    with pytest.raises(ValueError, match=r"train_step +2 +1\n"):
        fine_tune(train_step=1, learning_rate=0.25)


@pytest.mark.ci
def test_training_from_a_run_requires_its_vocabulary(fine_tune, tmp_path, caplog):
    fine_tune(train_step=1)
    other = tmp_path / "other.txt"
    other.write_text((tmp_path / "vocab.txt").read_text() + "sea\n")
    start = {"output_dir": str(tmp_path / "new"), "init_checkpoint": str(tmp_path / "out")}
    with pytest.raises(ValueError, match=rf"in {tmp_path}/out was trained with another vocabu"):
        fine_tune(train_step=1, vocab_file=str(other), **start)
    fine_tune(train_step=1, learning_rate=0.25, **start)
    assert "The vocabulary has" not in caplog.text
    (tmp_path / "out" / "run.json").unlink()  # as in a folder of another program
    fine_tune(train_step=1, **start | {"output_dir": str(tmp_path / "foreign")})
    assert "The vocabulary has 5 entries, but the model has vocab_size=97" in caplog.text


def test_a_run_that_fails_at_its_start_does_not_block_the_next(fine_tune, tmp_path):
    small = tmp_path / "small.json"
    dataclasses.replace(CONFIG, vocab_size=61).to_json_file(str(small))
    store.save_checkpoint(str(tmp_path / "init"), {"x": np.zeros(1)})
    values = {"albert_config_file": str(small), "init_checkpoint": str(tmp_path / "init")}
    with pytest.raises(ValueError, match="fits the model"):
        fine_tune(train_step=1, **values)
    with pytest.raises(ValueError, match="no checkpoint to evaluate"):
        fine_tune(do_train=False, albert_config_file=str(small))
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]
    fine_tune(train_step=1)


def test_a_sweep_that_was_stopped_keeps_its_finished_runs(fine_tune, tmp_path):
    train, begun = Trainer.train, []

    def stop_in_the_second(trainer, *rest, **more):
        begun.append(trainer)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return train(trainer, *rest, **more)

    def files():
        found = (tmp_path / "out" / "lr0.1_seed7").iterdir()
        return {path.name: path.read_bytes() for path in found if path.is_file()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train", stop_in_the_second)
        with pytest.raises(KeyboardInterrupt):
            fine_tune(train_step=1, learning_rate=(0.1, 0.3), seed=7)
    before = files()
    fine_tune(train_step=1, learning_rate=(0.1, 0.3), seed=7)
    changed = {name for name, content in files().items() if before.get(name) != content}
    assert changed <= {"run.json", "runs.jsonl"}  # these say when it was run
    assert {path.name for path in (tmp_path / "out").glob("lr*")} == {"lr0.1_seed7", "lr0.3_seed7"}


@pytest.mark.ci
def test_a_sweep_writes_a_folder_per_run_and_a_table_and_exports_the_best(fine_tune, tmp_path):
    result = fine_tune(
        train_step=3,
        learning_rate=(0.0, 0.3),
        num_runs=2,
        seed=7,
        do_predict=True,
        export_dir=str(tmp_path / "export"),
    )
    folders = [f"{tmp_path}/out/lr{rate}_seed{seed}" for rate in ("0", "0.3") for seed in (7, 8)]
    table = (tmp_path / "out" / TABLE_FILE).read_text()
    header, *rows = [line.split("\t") for line in table.splitlines()]
    assert [row[0] for row in rows] == folders
    accuracies = [float(row[header.index("accuracy")]) for row in rows]
    assert result.metrics == {"accuracy": max(accuracies)}
    assert result.output_dir == folders[int(np.argmax(accuracies))]
    assert [line for line in result.text.splitlines() if line.endswith(":")] == [
        f"{folder}:" for folder in folders
    ]
    assert result.text.count("7 texts by step") == 4
    assert "median" in (tmp_path / "out" / "sweep_results.txt").read_text()
    ((scores, export_dir, names),) = WordTask.exports
    best = tensors(f"{result.output_dir}/model.ckpt-best")
    np.testing.assert_array_equal(scores, best[WordTask.weight])
    assert export_dir == f"{tmp_path}/export"
    assert names == ["albert_config.json", "run.json", "vocab.txt"]
