"""Reports to TensorBoard, and by its files to W&B."""

from __future__ import annotations

import sys
import types

import pytest
import tensorflow as tf

from albert_tf.training import settings
from albert_tf.training.reporting import Reports
from albert_tf.training.settings import RunSettings
from tests.training.test_metrics_log import read_records, summaries_of

SETTINGS = {"learning_rate": (1e-5, 3e-5), "seed": 7, "do_train": True, "init_checkpoint": None}


def test_tensorboard_shows_the_settings_as_hyperparameters(tmp_path):
    from tensorboard.plugins.hparams import plugin_data_pb2

    with Reports(str(tmp_path), settings=SETTINGS) as reports:
        reports.write({3: {"train/loss": 2.5}})
    (path,) = tmp_path.glob("events*")
    events = map(tf.compat.v1.Event.FromString, read_records(path))
    values = {value.tag: value for event in events for value in event.summary.value}
    assert "train/loss" in values
    metadata = values["_hparams_/session_start_info"].metadata.plugin_data
    assert metadata.plugin_name == "hparams"
    data = plugin_data_pb2.HParamsPluginData.FromString(metadata.content)
    found = data.session_start_info.hparams
    assert found["learning_rate"].string_value == "1e-05,3e-05"
    assert found["seed"].number_value == 7
    assert found["do_train"].bool_value is True
    assert "init_checkpoint" not in found


def test_nothing_is_opened_before_there_are_metrics(tmp_path):
    with Reports(str(tmp_path), settings=SETTINGS):
        pass
    assert not list(tmp_path.iterdir())


def test_wandb_uploads_what_tensorboard_receives(tmp_path, monkeypatch):
    calls = []

    def init(**arguments):
        assert not list(tmp_path.glob("events*"))  # it only sees files that are opened later
        calls.append(arguments)
        return types.SimpleNamespace(finish=lambda: calls.append("finish"))

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    with Reports(str(tmp_path), to_wandb=True, settings=SETTINGS) as reports:
        reports.write({3: {"train/loss": 2.5}})
        reports.write({5: {"train/loss": 2.25}})
    started, finished = calls
    assert started["sync_tensorboard"] is True
    assert started["config"] == {"learning_rate": "1e-05,3e-05", "seed": 7, "do_train": True}
    assert finished == "finish"
    assert [step for _, step, _ in summaries_of(tmp_path)] == [3, 5]


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(settings.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"requires wandb: pip install 'albert-tf2\[wandb\]'"):
        RunSettings(output_dir="o", report_to="wandb")
