"""Devices, precision and trainer of a program, made of its settings."""

from __future__ import annotations

import dataclasses
import json
import os

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf.checkpoints import store
from albert_tf.checkpoints.names import variable_name
from albert_tf.config import AlbertConfig
from albert_tf.modeling import AlbertForPretraining
from albert_tf.optimization import WarmUpPolynomialDecay
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
    output_dir = tmp_path / "deep" / "model"
    config = session.keep_config(str(output_dir), path)
    assert AlbertConfig.from_json_file(str(output_dir / "albert_config.json")) == config
    assert session.keep_config(str(output_dir), path) == config


def test_the_folder_of_another_model_is_refused(tmp_path):
    session.keep_config(str(tmp_path / "model"), write_config(tmp_path / "a.json"))
    other = write_config(tmp_path / "b.json", hidden_size=16)
    with pytest.raises(ValueError, match=r"another model .*hidden_size is 12 there, 16 in .*b\.j"):
        session.keep_config(str(tmp_path / "model"), other)


def test_an_output_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    path = write_config(tmp_path / "a.json")
    with pytest.raises(ValueError, match="--output_dir: cannot write into"):
        session.keep_config(str(tmp_path / "file" / "model"), path)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_precision_ends_with_the_block(precision):
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


def test_a_session_locks_the_directory_and_describes_the_run(settings, task, tmp_path):
    with session.open_session(settings, task.config):
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()
        run = json.loads((tmp_path / "run.json").read_text())
    assert (tmp_path / ".lock").read_text() == ""
    assert run["flags"] == dataclasses.asdict(settings)
    assert run["config"]["hidden_size"] == 12
    assert run["device"] == {"devices": "one CPU", "precision": "float32"}


def start(settings, task):
    with session.use_devices(settings) as (strategy, _):
        return session.make_trainer(settings, task, SCHEDULE, strategy)


def weights(trainer):
    return {variable_name(v): v.numpy() for v in trainer.model.variables}


def test_random_weights_depend_on_the_seed_alone(settings, task, monkeypatch):
    logged = []
    monkeypatch.setattr(logging, "warning", lambda text, *_: logged.append(text))
    first, again = weights(start(settings, task)), weights(start(settings, task))
    other = weights(start(dataclasses.replace(settings, seed=7), task))
    name = "bert/embeddings/word_embeddings"
    np.testing.assert_array_equal(first[name], again[name])
    assert np.abs(first[name] - other[name]).max() > 0
    assert "training starts from random weights" in logged[0]


def test_training_starts_from_init_checkpoint_and_resumes_what_it_finds(settings, task, tmp_path):
    prefix = str(tmp_path / "weights")
    trainer = start(settings, task)
    store.save_checkpoint(prefix, {variable_name(v): v for v in trainer.model.variables})
    settings = dataclasses.replace(settings, seed=7, init_checkpoint=prefix)
    again = start(settings, task)
    for name, value in weights(trainer).items():
        np.testing.assert_array_equal(weights(again)[name], value, err_msg=name)
    again.step = 3
    again.save()
    assert start(settings, task).step == 3


def test_settings_reach_the_trainer(settings, task):
    settings = dataclasses.replace(
        settings, gradient_accumulation_steps=2, max_batch_per_device=2, recompute=True, log_steps=9
    )
    trainer = start(settings, task)
    assert trainer.take_step.options.micro_batches == 3
    assert trainer.settings.log_steps == 9
    assert trainer.num_train_steps == 7
    assert not trainer.take_step.options.jit_compile
    assert trainer.model.encoder.recompute
    jitted = start(dataclasses.replace(settings, jit_compile="true"), task)
    assert jitted.take_step.options.jit_compile


def test_threads_that_can_no_longer_be_set_are_refused(settings):
    tf.zeros(()).numpy()  # TensorFlow is in use
    settings = dataclasses.replace(settings, threads=3)
    with (
        pytest.raises(ValueError, match=r"--threads=3: TensorFlow has computed in this process"),
        session.use_devices(settings),
    ):
        pass
