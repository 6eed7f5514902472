"""The training loop: exact resuming, files and failures, with a tiny model with dropout."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf import optimization
from albert_tf.checkpoints import store
from albert_tf.checkpoints.names import DATA_SUFFIX, variable_name
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.pretraining import input_pipeline, record_files
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.hooks import Hook, LogMetrics, SaveCheckpoints
from albert_tf.training.loop import NonFiniteLossError, Trainer
from albert_tf.training.settings import RunSettings
from albert_tf.training.step import StepOptions, TrainStep
from albert_tf.training.tracking import Tracker
from tests.conftest import BATCH_SIZE, MAX_PREDICTIONS, SEQ_LENGTH
from tests.script_runner import interrupted, killed_at, tensors


def write_records(path, count, seed=5, masked=MAX_PREDICTIONS - 1):
    """Random pre-training records for `tiny_config` with the given number of masked words."""
    rng = np.random.default_rng(seed)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(count):
            integers = {
                "input_ids": rng.integers(5, 97, SEQ_LENGTH),
                "input_mask": np.ones(SEQ_LENGTH, np.int64),
                "segment_ids": np.arange(SEQ_LENGTH) // 6,
                "masked_lm_positions": np.arange(1, MAX_PREDICTIONS + 1),
                "masked_lm_ids": rng.integers(5, 97, MAX_PREDICTIONS),
                "next_sentence_labels": rng.integers(0, 2, 1),
            }
            feature = {
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
                for name, values in integers.items()
            }
            weights = tf.train.FloatList(value=[float(n < masked) for n in range(MAX_PREDICTIONS)])
            feature["masked_lm_weights"] = tf.train.Feature(float_list=weights)
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())


@pytest.fixture(scope="module", name="records")
def make_records(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "train.tfrecord"
    write_records(path, 23)
    return record_files.find_record_files([str(path)], {})


@pytest.fixture(scope="module", name="task")
def make_task(tiny_config):
    config = dataclasses.replace(
        tiny_config, num_hidden_layers=1, num_hidden_groups=1, hidden_dropout_prob=0.1
    )
    return PretrainingTask(config, SEQ_LENGTH, MAX_PREDICTIONS)


def make_step(task, learning_rate, kind, signature=None):
    tf_keras.utils.set_random_seed(3)
    schedule = optimization.WarmUpPolynomialDecay(learning_rate, 7, 2)
    optimizer = optimization.create_optimizer(kind, schedule)
    return TrainStep(
        task.build_model(), task, optimizer, StepOptions(seed=3), batch_signature=signature
    )


def make_trainer(task, output_dir, learning_rate=0.01, kind="lamb", step=None, **changes):
    """Returns a trainer at step 0, which has to compile its step if none is given."""
    os.makedirs(output_dir, exist_ok=True)
    settings = {"save_checkpoints_steps": 3, "log_steps": 2, "train_batch_size": BATCH_SIZE}
    num_train_steps = changes.pop("num_train_steps", 7)
    settings = RunSettings(**settings | {"output_dir": str(output_dir)} | changes)
    return Trainer(step or make_step(task, learning_rate, kind), settings, num_train_steps)


@pytest.fixture(scope="module", name="again")
def trainer_maker(task):
    """`make_trainer` with a step that is compiled once for all tests: one trainer at a time."""

    @functools.cache
    def compiled_step(learning_rate, kind):
        step = make_step(task, learning_rate, kind)
        variables = [*step.model.variables, *step.optimizer.slot_variables(step.variables).values()]
        return step, [(variable, variable.numpy()) for variable in variables]

    def make(output_dir, learning_rate=0.01, kind="lamb", **changes):
        step, state = compiled_step(learning_rate, kind)
        for variable, value in state:
            variable.assign(value)
        step.optimizer.iterations.assign(0)
        return make_trainer(task, output_dir, step=step, **changes)

    return make


def train(trainer, records, *hooks):
    def batches(step):
        features = trainer.take_step.task.features
        dataset = input_pipeline.training_dataset(
            records, features, BATCH_SIZE, 3, step * BATCH_SIZE
        )
        return input_pipeline.batches(dataset, records)

    with Tracker(trainer.folder.path) as tracker:
        trainer.train(batches, [*hooks, LogMetrics(tracker), SaveCheckpoints()])


def lines_of(output_dir):
    rows = RunFolder(str(output_dir)).metrics()
    return [{k: v for k, v in row.items() if not k.endswith("_per_second")} for row in rows]


def steps_of(output_dir):
    return list(RunFolder(str(output_dir)).checkpoints())


@pytest.fixture(scope="module", name="finished")
def run_through(again, records, tmp_path_factory):
    """The state at the end, and the folder."""
    output_dir = tmp_path_factory.mktemp("through")
    trainer = again(output_dir)
    train(trainer, records)
    assert float(trainer.optimizer.learning_rate) == lines_of(output_dir)[-1]["learning_rate"] > 0
    state = {name: tf.convert_to_tensor(value).numpy() for name, value in trainer.state().items()}
    return state, output_dir


@pytest.mark.ci
def test_checkpoints_are_written_at_step_0_at_multiples_and_at_the_end(finished):
    _, output_dir = finished
    assert steps_of(output_dir) == [0, 3, 6, 7]
    text = (output_dir / "checkpoint").read_text()
    assert text.startswith('model_checkpoint_path: "model.ckpt-7"\nall_model_checkpoint_paths: ')


@pytest.mark.ci
def test_a_line_has_the_norm_of_the_gradient_and_counts_tokens(task, again, records, tmp_path):
    trainer = again(tmp_path, log_steps=1, num_train_steps=2)
    batch = next(iter(input_pipeline.training_dataset(records, task.features, BATCH_SIZE, 3)))
    with tf.GradientTape() as tape:
        outputs = trainer.model(
            batch, training=True, dropout_seed=trainer.take_step._dropout_seed(0)
        )
        loss, _ = task.loss(outputs, batch)
    gradients = tape.gradient(loss, trainer.model.trainable_variables)
    train(trainer, records)
    first, second = trainer.folder.metrics()
    norm = float(tf.linalg.global_norm(gradients))
    assert first["gradient_norm"] == pytest.approx(norm, rel=1e-4)
    tokens = SEQ_LENGTH * second["examples_per_second"]  # without padding
    assert second["tokens_per_second"] == pytest.approx(tokens)


def test_a_checkpoint_has_weights_moments_and_step_under_googles_names(finished, task):
    _, output_dir = finished
    saved = tensors(output_dir / "model.ckpt-6")
    shapes = {name: list(value.shape) for name, value in saved.items()}
    weights = {variable_name(v): v.shape.as_list() for v in task.build_model().variables}
    slots = {f"{n}/{slot}": s for n, s in weights.items() for slot in ("adam_m", "adam_v")}
    assert shapes == weights | slots | {"global_step": []}
    assert saved["global_step"] == 6
    assert saved["global_step"].dtype == np.int64
    block = "bert/encoder/transformer/group_0/inner_group_0/ffn_1/intermediate/output/dense/kernel"
    assert shapes[f"{block}/adam_v"] == [20, 12]


@pytest.mark.ci
def test_a_checkpoint_that_cannot_be_written_ends_the_run(again, records, tmp_path, monkeypatch):
    save = store.save_checkpoint

    def save_until_full(prefix, tensors):
        if prefix.endswith("-3"):
            raise OSError("the disk is full")
        save(prefix, tensors)

    monkeypatch.setattr(store, "save_checkpoint", save_until_full)
    trainer = again(tmp_path)
    with pytest.raises(OSError, match="the disk is full"):
        train(trainer, records)
    assert steps_of(tmp_path) == [0]
    assert trainer.step < 7


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(finished, again, records, tmp_path):
    through, through_dir = finished
    # Steps 4 and 5 are lost, as when the machine fails.
    with interrupted():
        train(again(tmp_path), records, killed_at(5))
    resumed = again(tmp_path)
    assert resumed.restore_latest()
    assert resumed.step == 3
    train(resumed, records)
    for name, value in through.items():
        np.testing.assert_array_equal(resumed.state()[name], value, err_msg=name)
    ours, theirs = lines_of(tmp_path), lines_of(through_dir)
    assert [line["step"] for line in ours] == [2, 3, 4, 6, 7]
    assert ours == theirs


@pytest.mark.ci
def test_the_step_is_traced_once_for_batches_of_all_lengths(task, records):
    dataset = input_pipeline.training_dataset(records, task.features, BATCH_SIZE, 3)
    signature = {
        name: tf.TensorSpec([None] * len(spec.shape), spec.dtype)
        for name, spec in dataset.element_spec.items()
    }
    step = make_step(task, 0.01, "adamw", signature)
    counts = []
    for size, batch in zip((5, 3, 4), dataset, strict=False):
        step({name: value[:size] for name, value in batch.items()})
        counts.append(step.function.experimental_get_tracing_count())
    assert counts[0] == counts[-1]


def test_a_finished_run_is_not_changed(finished, again, records):
    _, output_dir = finished
    before = {path.name: path.stat().st_mtime_ns for path in output_dir.iterdir()}
    trainer = again(output_dir)
    assert trainer.restore_latest()
    train(trainer, records)
    assert {path.name: path.stat().st_mtime_ns for path in output_dir.iterdir()} == before


def test_old_checkpoints_are_deleted_and_other_files_kept(again, records, tmp_path):
    (tmp_path / "model.ckpt-best.index").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    announced = []

    class Look(Hook):
        def on_save(self, trainer, prefix):
            assert os.path.exists(prefix + ".index")
            announced.append(os.path.basename(prefix))

    trainer = again(tmp_path, keep_checkpoint_max=2, save_checkpoints_steps=2)
    train(trainer, records, Look())
    assert announced == [f"model.ckpt-{step}" for step in (0, 2, 4, 6, 7)]
    assert steps_of(tmp_path) == [6, 7]
    assert (tmp_path / "model.ckpt-best.index").exists()
    assert (tmp_path / "notes.txt").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_an_infinite_loss_stops_the_run_and_reports_the_step(again, records, tmp_path):
    trainer = again(tmp_path, log_steps=1)
    for variable in trainer.model.trainable_variables:
        variable.assign(tf.fill(variable.shape, 1e30))
    with pytest.raises(NonFiniteLossError, match=r"not finite at step \d.*model\.ckpt-0 *\."):
        train(trainer, records)
    assert steps_of(tmp_path) == [0]
    for name, value in tensors(tmp_path / "model.ckpt-0").items():
        assert np.isfinite(value).all(), name


@pytest.mark.ci
@pytest.mark.parametrize("nan_policy", ["stop", "skip"])
def test_infinite_weights_are_not_saved(again, records, tmp_path, nan_policy):
    changes = {"save_checkpoints_steps": 1, "nan_policy": nan_policy}
    trainer = again(tmp_path, learning_rate=3e38, kind="adamw", **changes)
    with pytest.raises(
        NonFiniteLossError, match=r"\d+ weights and moments are not finite after update \d; the fir"
    ) as error:
        train(trainer, records)
    last = steps_of(tmp_path)[-1]
    assert last == trainer.step - 1
    assert f"the last good checkpoint is {tmp_path}/model.ckpt-{last}. " in str(error.value)
    trainer = again(tmp_path, **changes)
    assert trainer.restore_latest()
    assert trainer.step == last


def test_a_checkpoint_that_is_not_finite_is_rejected(task, tmp_path):
    trainer = make_trainer(task, tmp_path)
    weight = trainer.model.trainable_variables[1]
    weight.assign(weight * np.nan)
    prefix = f"{tmp_path}/model.ckpt-0"
    store.save_checkpoint(prefix, trainer.state())
    with pytest.raises(
        ValueError, match=rf"{prefix}: 1 weights .* first is {variable_name(weight)}\. Move"
    ):
        make_trainer(task, tmp_path).restore_latest()


def test_a_checkpoint_that_is_named_after_another_step_is_refused(finished, task, tmp_path):
    (_, source), step = finished, 7
    for suffix in (DATA_SUFFIX, ".index"):
        shutil.copy(source / f"model.ckpt-{step}{suffix}", tmp_path / f"model.ckpt-60{suffix}")
    with pytest.raises(ValueError, match=rf"model\.ckpt-60 has the global_step {step}: "):
        make_trainer(task, tmp_path).restore_latest()
    assert steps_of(tmp_path) == [60]  # nothing is renamed


def test_checkpoints_of_another_model_are_rejected(finished, task):
    _, output_dir = finished
    other = PretrainingTask(
        dataclasses.replace(task.config, intermediate_size=24), SEQ_LENGTH, MAX_PREDICTIONS
    )
    trainer = make_trainer(other, output_dir)
    weight = trainer.model.trainable_variables[0]
    before = weight.numpy()
    with pytest.raises(ValueError, match=r"ffn_1/intermediate/dense/kernel: expected \[12, 24\]"):
        trainer.restore_latest()
    np.testing.assert_array_equal(weight, before)


def test_a_run_continues_with_the_moments_of_albert_zhs_trainer(task, tmp_path):
    config = dataclasses.replace(task.config, layout="albert_zh")
    task = PretrainingTask(config, SEQ_LENGTH, MAX_PREDICTIONS)
    trainer = make_trainer(task, tmp_path, kind="lamb_albert_zh")
    rng = np.random.default_rng(7)
    theirs = {
        f"{variable_name(variable)}{ending}": rng.random(variable.shape, np.float32)
        for variable in trainer.model.variables
        for ending in ("", "/lamb_m", "/lamb_v")
    } | {"global_step": np.int64(6)}
    store.save_checkpoint(str(tmp_path / "model.ckpt-6"), theirs)
    assert trainer.restore_latest()
    assert trainer.step == 6
    assert trainer.state().keys() == theirs.keys()
    for name, value in trainer.state().items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)
    with pytest.raises(ValueError, match="has the moments of --optimizer=lamb_albert_zh: pass"):
        make_trainer(task, tmp_path, kind="lamb").restore_latest()


def test_a_run_with_googles_moments_is_not_continued_with_albert_zhs_optimizer(finished, task):
    trainer = make_trainer(task, finished[1], kind="lamb_albert_zh")
    with pytest.raises(ValueError, match="has the moments of --optimizer=adamw or lamb: pass"):
        trainer.restore_latest()
