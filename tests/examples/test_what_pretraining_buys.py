"""Fine-tuning from pre-trained and from random weights, side by side; programs are replaced."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
import what_pretraining_buys
from what_pretraining_buys import PRETRAINED, RANDOM, Settings

from albert_tf import classification
from albert_tf.settings import describe
from tests.conftest import ROOT

ACCURACIES = {PRETRAINED: (0.75, 0.5, 0.625), RANDOM: (0.5, 0.25, 0.375)}


@pytest.fixture
def settings(tmp_path):
    return Settings(
        str(tmp_path / "model"), str(tmp_path / "out"), pair_task_dir=str(tmp_path / "pairs")
    )


@pytest.fixture
def programs(monkeypatch):
    """Replaces run_classifier.py by what it writes; returns the commands."""
    commands = []

    def run(command, check):
        commands.append(command)
        flags = dict(word.removeprefix("--").split("=") for word in command if "=" in word)
        folder = pathlib.Path(flags["output_dir"])
        rows = ["learning_rate\tseed\teval_accuracy\n"]
        for seed, accuracy in enumerate(ACCURACIES[folder.name]):
            rows.append(f"0.0002\t{seed}\t{accuracy}\n")
            (folder / f"lr0.0002_seed{seed}").mkdir(parents=True)
            predictions = "line\tlabel\tprediction\n2\ta\ta\n3\tb\ta\n4\ta\ta\n"
            (folder / f"lr0.0002_seed{seed}" / "dev_predictions.tsv").write_text(predictions)
        (folder / "sweep_results.tsv").write_text("".join(rows))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(what_pretraining_buys.subprocess, "run", run)
    return commands


def test_the_table_has_mean_deviation_and_every_run(settings, programs):
    (row,) = what_pretraining_buys.run(settings).splitlines()[2:]
    assert row == (
        "| does the second sentence follow? | 0.625 ± 0.125 (0.750, 0.500, 0.625) | "
        "0.375 ± 0.125 (0.500, 0.250, 0.375) | +0.250 | 0.667 |"
    )


def test_both_starts_differ_in_the_checkpoint_alone(settings, programs):
    what_pretraining_buys.run(settings)
    random, pretrained = (
        [word for word in command if not word.startswith("--output_dir")] for command in programs
    )
    assert set(pretrained) - set(random) == {f"--init_checkpoint={settings.model_dir}"}
    assert set(random) < set(pretrained)


def test_every_flag_is_one_of_the_program(settings):
    known = {field.name for field in describe(classification.Settings)}
    for name in what_pretraining_buys.TASKS:
        command = what_pretraining_buys.command_of(settings, name, PRETRAINED, "data")
        assert {word[2:].split("=")[0] for word in command[2:]} <= known
        assert (ROOT / command[1]).is_file()


def test_a_failed_run_stops_the_comparison(settings, monkeypatch):
    failed = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(what_pretraining_buys.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ChildProcessError, match=r"run_classifier\.py stopped with status 1"):
        what_pretraining_buys.run(settings)


def test_a_comparison_without_a_task_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected --package_task_dir, --pair_task_dir or --glue"):
        what_pretraining_buys.run(Settings(str(tmp_path), str(tmp_path / "out")))
