"""What TensorBoard receives, and by its files W&B."""

from __future__ import annotations

import sys
import types

import pytest
import tensorflow as tf

from albert_tf.training import settings
from albert_tf.training.settings import RunSettings
from albert_tf.training.tracking import Tracker
from tests.script_runner import interrupted, killed_at
from tests.training.test_run import do_run, settings_of

SETTINGS = {"learning_rate": (1e-5, 3e-5), "seed": 7, "do_train": True, "init_checkpoint": None}


def values_of(folder):
    """Returns (step, summary) of all TensorBoard summaries in the order of their files."""
    return [
        (event.step, value)
        for path in sorted(folder.glob("events.out.tfevents.*"))
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
        for event in [tf.compat.v1.Event.FromString(record)]
        for value in event.summary.value
    ]


def test_a_run_reports_training_and_evaluations_once_also_if_it_is_killed(tmp_path):
    small = settings_of(tmp_path)
    with interrupted():
        do_run(small, [killed_at(5)])
    do_run(small)
    found = [(step, value.tag) for step, value in values_of(tmp_path / "run")]
    steps = [step for step, tag in found if tag == "train/error"]
    assert steps == [1, 2, 3, 4, 4, 5, 6, 7]  # step 4 was trained again
    assert [step for step, tag in found if tag == "eval/eval_accuracy"] == [3, 6, 7]
    tags = {tag for _, tag in found if not tag.startswith("_hparams_/")}
    names = ("loss", "error", "gradient_norm", "learning_rate", "examples_per_second")
    assert tags == {f"train/{name}" for name in names} | {"eval/eval_accuracy", "eval/eval_loss"}


def test_tensorboard_shows_the_settings_as_hyperparameters(tmp_path):
    from tensorboard.plugins.hparams import plugin_data_pb2

    with Tracker(str(tmp_path), settings=SETTINGS) as tracker:
        tracker.write(3, {"train/loss": 2.5})
    values = {value.tag: value for _, value in values_of(tmp_path)}
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
    with Tracker(str(tmp_path), settings=SETTINGS):
        pass
    assert not list(tmp_path.iterdir())


def test_wandb_uploads_what_tensorboard_receives(tmp_path, monkeypatch):
    calls = []

    def init(**arguments):
        assert not list(tmp_path.glob("events*"))  # it only sees files that are opened later
        calls.append(arguments)
        return types.SimpleNamespace(finish=lambda: calls.append("finish"))

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    with Tracker(str(tmp_path), to_wandb=True, settings=SETTINGS) as tracker:
        tracker.write(3, {"train/loss": 2.5})
        tracker.write(5, {"train/loss": 2.25})
    started, finished = calls
    assert started["sync_tensorboard"] is True
    assert started["config"] == {"learning_rate": "1e-05,3e-05", "seed": 7, "do_train": True}
    assert finished == "finish"
    assert [step for step, value in values_of(tmp_path) if value.tag == "train/loss"] == [3, 5]


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(settings.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"requires wandb: pip install 'albert-tf2\[wandb\]'"):
        RunSettings(output_dir="o", report_to="wandb")


def test_a_disk_too_full_for_summaries_is_reported_in_one_line(tmp_path, monkeypatch):
    def fail(output_dir):
        message = (
            f"{output_dir}/events; No space left on device\n\tCould not initialize events writer."
        )
        raise tf.errors.ResourceExhaustedError(None, None, message)

    monkeypatch.setattr(tf.summary, "create_file_writer", fail)
    with pytest.raises(OSError, match=r"the disk is full .*events; No space left") as error:
        Tracker(str(tmp_path)).write(3, {"loss": 2.0})
    assert "\n" not in str(error.value)
