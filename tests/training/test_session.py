"""Setup of devices, precision and trainer from the settings of a program."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf.checkpoints import store, trained_with
from albert_tf.checkpoints.names import variable_name
from albert_tf.checkpoints.trained_with import TrainedWith
from albert_tf.config import AlbertConfig
from albert_tf.modeling import AlbertForPretraining
from albert_tf.optimization import LambAlbertZh, WarmUpPolynomialDecay
from albert_tf.training import session
from albert_tf.training.settings import RunSettings

SCHEDULE = WarmUpPolynomialDecay(1e-3, 7, 2)


class Task:
    """A model that is never trained."""

    def __init__(self, config):
        self.config = config

    def build_model(self):
        return AlbertForPretraining(self.config)


@pytest.fixture(scope="module", name="task")
def make_task(tiny_config):
    return Task(dataclasses.replace(tiny_config, num_hidden_layers=1, num_hidden_groups=1))


@pytest.fixture(name="settings")
def make_settings(tmp_path):
    return RunSettings(output_dir=str(tmp_path), precision="float32", train_batch_size=6)


def write_config(path, **changes):
    shape = {"vocab_size": 97, "hidden_size": 12, "num_attention_heads": 4} | changes
    AlbertConfig(**shape).to_json_file(str(path))
    return str(path)


def test_the_config_is_kept_in_the_output_folder(tmp_path):
    path = write_config(tmp_path / "a.json")
    config = session.read_config(str(tmp_path / "new"), path)
    assert not (tmp_path / "new").exists()
    session.keep_config(str(tmp_path), config)
    assert AlbertConfig.from_json_file(str(tmp_path / "albert_config.json")) == config
    assert session.read_config(str(tmp_path), path) == config


def test_the_folder_of_another_model_is_rejected(tmp_path):
    path = write_config(tmp_path / "a.json")
    session.keep_config(str(tmp_path), session.read_config(str(tmp_path), path))
    other = write_config(tmp_path / "b.json", hidden_size=16)
    with pytest.raises(ValueError, match=r"another model .*hidden_size is 12 there, but 16 in .*b"):
        session.read_config(str(tmp_path), other)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_precision_is_restored_after_the_block(precision):
    settings = RunSettings(output_dir="unused", precision=precision)
    with session.use_devices(settings) as (strategy, name):
        assert name == precision
        assert strategy.num_replicas_in_sync == 1
        expected = {"float32": "float32", "bfloat16": "mixed_bfloat16"}[precision]
        assert tf_keras.mixed_precision.global_policy().name == expected
    assert tf_keras.mixed_precision.global_policy().name == "float32"


def test_the_precision_is_restored_after_an_error():
    settings = RunSettings(output_dir="unused", precision="bfloat16")
    with pytest.raises(KeyError), session.use_devices(settings):
        raise KeyError
    assert tf_keras.mixed_precision.global_policy().name == "float32"


def test_a_session_locks_the_directory_and_describes_a_valid_run(settings, task, tmp_path):
    with session.open_session(settings, task.config) as opened:
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()
        assert opened.is_chief
        assert os.listdir(tmp_path) == [".lock"]
        opened.begin_work()
        opened.begin_work()
        run = json.loads((tmp_path / "run.json").read_text())
    assert (tmp_path / ".lock").read_text() == ""
    assert run["flags"] == json.loads(json.dumps(dataclasses.asdict(settings)))
    assert run["config"]["hidden_size"] == 12
    assert run["device"] == {"devices": "one CPU", "precision": "float32"}
    assert "changed_settings" not in run
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 1
    assert AlbertConfig.from_json_file(str(tmp_path / "albert_config.json")) == task.config


def test_accepted_changes_are_recorded(settings, task, tmp_path):
    path = str(tmp_path / "a.json")
    task.config.to_json_file(path)
    settings = dataclasses.replace(settings, albert_config_file=path, do_train=True)
    known = TrainedWith({"vocabulary": "97 entries"})

    def identify(**changes):
        with session.open_session(settings, task.config) as opened:
            identity = opened.identify(dataclasses.replace(settings, **changes), known)
            opened.begin_work()
            return identity

    trained_with.write(str(tmp_path), identify())
    store.save_checkpoint(str(tmp_path / "model.ckpt-4"), {"x": np.zeros(1)})
    with pytest.raises(ValueError, match=r"learning_rate +5e-05 +0\.5"):
        identify(learning_rate=0.5)
    identify(learning_rate=0.5, allow_changed_settings=True)
    runs = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    changes = {str(tmp_path): {"learning_rate": ["5e-05", "0.5"]}}
    assert [run.get("changed_settings") for run in runs] == [None, changes]


def test_workers_compare_versions_and_identities(settings, task):
    class Workers:
        def __init__(self):
            self.agreed = []

        def agree(self, texts, shown=None):
            self.agreed.append((texts, shown))

    workers = Workers()
    identity = TrainedWith({"seed": "5", "config": "sha256 a"}, {"config": "/a.json"})
    with session.open_session(settings, task.config, workers) as opened:
        (versions, _), *others = workers.agreed
        assert versions["tensorflow"] == tf.__version__
        assert not others
        opened.agree(None)
        opened.agree(identity)
    _, (texts, shown) = workers.agreed
    assert texts == identity.identity | {"devices of a worker": "1"}
    assert shown == {"seed": "5", "config": "sha256 a (/a.json)"}


def start(settings, task):
    with session.use_devices(settings) as (strategy, _):
        return session.make_trainer(settings, task, SCHEDULE, strategy)


def weights(trainer):
    return {variable_name(v): v.numpy() for v in trainer.model.variables}


def test_random_weights_only_depend_on_the_seed(settings, task, monkeypatch):
    logged = []
    monkeypatch.setattr(logging, "warning", lambda text, *_: logged.append(text))
    first, again = weights(start(settings, task)), weights(start(settings, task))
    other = weights(start(dataclasses.replace(settings, seed=7), task))
    name = "bert/embeddings/word_embeddings"
    np.testing.assert_array_equal(first[name], again[name])
    assert np.abs(first[name] - other[name]).max() > 0
    assert "training starts from random weights" in logged[0]


def test_training_starts_from_init_checkpoint_or_resumes(settings, task, tmp_path):
    prefix = str(tmp_path / "weights")
    trainer = start(settings, task)
    store.save_checkpoint(prefix, {variable_name(v): v for v in trainer.model.variables})
    settings = dataclasses.replace(settings, seed=7, init_checkpoint=prefix)
    again = start(settings, task)
    for name, value in weights(trainer).items():
        np.testing.assert_array_equal(weights(again)[name], value, err_msg=name)
    again.step = 3
    again.save()
    assert trained_with.read(str(tmp_path)) is None
    assert start(settings, task).step == 3


def test_the_identity_of_a_run_is_stored_with_its_first_checkpoint(settings, task, tmp_path):
    identity = TrainedWith({"seed": "7"})
    with session.use_devices(settings) as (strategy, _):
        trainer = session.make_trainer(settings, task, SCHEDULE, strategy, identity=identity)
    assert not list(tmp_path.iterdir())
    trainer.save()
    assert trained_with.read(str(tmp_path)) == identity


def test_settings_reach_the_trainer(settings, task, caplog):
    caplog.set_level("INFO", logger="absl")
    settings = dataclasses.replace(
        settings,
        optimizer="lamb_albert_zh",
        gradient_accumulation_steps=2,
        max_batch_per_device=2,
        gradient_checkpointing=True,
        log_steps=9,
    )
    trainer = start(settings, task)
    assert type(trainer.optimizer) is LambAlbertZh
    assert "Optimizer: lamb_albert_zh" in caplog.messages
    assert trainer.take_step.options.micro_batches == 3
    assert trainer.settings.log_steps == 9
    assert trainer.num_train_steps == 7
    assert not trainer.take_step.options.jit_compile
    assert trainer.model.encoder.recompute
    jitted = start(dataclasses.replace(settings, jit_compile="true"), task)
    assert jitted.take_step.options.jit_compile


def test_the_number_of_threads_cannot_change_after_initialization(settings):
    tf.zeros(()).numpy()  # initializes TensorFlow
    settings = dataclasses.replace(settings, threads=3)
    with (
        pytest.raises(ValueError, match=r"--threads=3: TensorFlow is already initialized"),
        session.use_devices(settings),
    ):
        pass


@pytest.mark.parametrize(
    ("steps", "warm_up", "start", "is_said"),
    [(7, 9, 0, True), (7, 5, 3, True), (7, 7, 0, False), (7, 0, 9, False)],
)
def test_a_warm_up_longer_than_the_training_causes_a_warning(
    task, settings, steps, warm_up, start, is_said, caplog, monkeypatch
):
    def resume(trainer):
        trainer.step = start
        return True

    monkeypatch.setattr(session.loop.Trainer, "restore_latest", resume)
    schedule = WarmUpPolynomialDecay(1e-3, steps, warm_up, start)
    session.make_trainer(settings, task, schedule, tf.distribute.get_strategy())
    assert (f"warm-up ends at step {start + warm_up}, but training at step 7" in caplog.text) == (
        is_said
    )


def test_training_before_the_warm_up_is_refused(task, settings):
    schedule = WarmUpPolynomialDecay(1e-3, 7, 5, start_warmup_step=10**9)
    with pytest.raises(ValueError, match=r"^--start_warmup_step=1000000000: .* from step 0, and"):
        session.make_trainer(settings, task, schedule, tf.distribute.get_strategy())


@pytest.mark.slow
def test_the_notes_of_the_compiler_can_be_hidden():
    program = (
        "import tensorflow as tf; from albert_tf.training import session;"
        "session.hide_compiler_notes();"
        "print(tf.function(lambda x: x + 1, jit_compile=True)(tf.constant(1)).numpy())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("2\n", "")
