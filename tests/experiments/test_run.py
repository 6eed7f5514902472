"""The experiments: tables are valid, runs are done once, and results shown with errors."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time

import pytest
import report
import run as runner

from albert_tf import data, files
from albert_tf.config import AlbertConfig
from albert_tf.pretraining.settings import Settings as TrainingSettings
from tests.conftest import ROOT

TABLES = sorted(path.stem for path in (ROOT / "experiments" / "tables").glob("*.json"))


@pytest.fixture(name="settings")
def make_settings(tmp_path):
    return runner.Settings(table="sharing", output_dir=str(tmp_path), seeds=2)


@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_a_table_can_be_run(name, tmp_path):
    table = report.read_table(name)
    of_rows = [*table.rows.values(), *table.held_out.values()]
    for row in of_rows:
        for phase in row.get("phases", [{}]):
            config = runner.CONFIG | table.config | row.get("config", {}) | phase.get("config", {})
            AlbertConfig.from_dict(config).check_length(table.max_seq_length)
            assert config["vocab_size"] == table.vocab_size
            training = row.get("training", {}) | phase.get("training", {})
            training = runner.TRAINING | table.training | training | table.lengths
            TrainingSettings(input_file="a", output_dir="b", **training)
        data.Settings.make(input_file="a", output_file="b", **table.lengths | row.get("data", {}))
    folders = {runner.folder_of(str(tmp_path), row, 1) for row in table.rows}
    assert {os.path.dirname(folder) for folder in folders} == {str(tmp_path)}
    assert len(folders) == len(table.rows)


def test_an_unknown_table_is_refused_with_those_that_exist(tmp_path):
    with pytest.raises(ValueError, match=r"--table=shares: .*one of depth, .*, width"):
        report.read_table("shares")
    path = tmp_path / "mine.json"
    path.write_text('{"title": "x", "lines": {}}')
    with pytest.raises(ValueError, match=r"mine\.json: not the description of a table"):
        report.read_table(str(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": {"a": {"trainning": {}}}}, "rows, 'a': unknown 'trainning'; expected one of con"),
        ({"held_out": {"x": {"training": {}}}}, "held_out, 'x': unknown 'training'; expected one"),
        ({"columns": {"words": "y/masked"}}, "column 'words': unknown 'y/masked'; expected one of"),
    ],
)
def test_a_name_in_a_table_that_nothing_reads_is_refused(changes, message, tmp_path):
    path = tmp_path / "mine.json"
    whole = {"title": "Mine", "source": "", "rows": {}, "held_out": {"x": {}}, "columns": {}}
    files.write_json(str(path), whole | changes)
    with pytest.raises(ValueError, match=rf"mine\.json, {message}"):
        report.read_table(str(path))


def test_the_table_shows_means_and_deviations_beside_the_papers_numbers(tmp_path):
    table = dataclasses.replace(
        report.read_table("sharing"), columns={"parameters": "parameters", "words": "x/masked"}
    )
    found = {
        "all": [{"parameters": 1234.0, "x/masked": value} for value in (0.25, 0.5)],
        "nothing": [{"parameters": 5678.0, "x/masked": 0.125}],
    }
    constants = {"x/masked": 0.0625, "x/sentence": 0.5}
    lines = report.write_table(table, found, constants, str(tmp_path), scale=0.5).splitlines()
    assert lines[:5] == [
        "|  | parameters | words | paper: average |",
        "|---|---|---|---|",
        "| all | 1,234 | 0.375 ± 0.177 | 80.1 |",
        "| nothing | 5,678 | 0.125 | 81.6 |",
        "| constant answer |  | 0.062 |  |",
    ]
    assert "1/2 seeds, scale 0.5" in lines[-1]
    assert (tmp_path / "table.md").read_text().splitlines() == lines
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_first_row_is_at_the_top_of_the_plot(count):
    keys = {f"column {number}": f"x/{number}" for number in range(count)}
    table = dataclasses.replace(report.read_table("sharing"), columns=keys)
    found = {row: [dict.fromkeys(keys.values(), 0.5)] for row in ("first", "last")}
    axes = report.draw(table, found).axes
    assert [axis.yaxis_inverted() for axis in axes] == [True] * count
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["first", "last"]


@pytest.mark.ci
def test_runs_that_are_done_are_not_repeated(settings, tmp_path, monkeypatch, capsys):
    started = []

    def start(settings, folder, row, seed):
        started.append((row, seed))
        if (row, seed) == ("attention", 2) and len(started) < 9:
            raise RuntimeError("attention, seed 2 failed; see log.txt")
        place = runner.folder_of(folder, row, seed)
        os.makedirs(place)
        result = dict.fromkeys(table.columns.values(), 0.5)
        files.write_json(os.path.join(place, "result.json"), result)

    monkeypatch.setattr(runner, "start", start)
    table = report.read_table("sharing")
    with pytest.raises(RuntimeError, match="attention, seed 2 failed"):
        runner.run_all(settings, table, str(tmp_path), {})
    runner.run_all(settings, table, str(tmp_path), {})
    assert sorted(started) == sorted([*itertools.product(table.rows, (1, 2)), ("attention", 2)])
    assert "8 runs, 7 of them done" in capsys.readouterr().out
    assert len(report.results_of(table, str(tmp_path), settings.seeds)["attention"]) == 2


def test_runs_with_other_settings_are_not_mixed(tmp_path):
    table = report.read_table("sharing")
    report.keep_settings(table, {"training": {"batch": 1}}, str(tmp_path))
    more = dataclasses.replace(table, rows=table.rows | {"new": {}, "all": {"paper": {}}})
    report.keep_settings(
        dataclasses.replace(table, rows=table.rows | {"new": {}}),
        {"training": {"batch": 1}},
        str(tmp_path),
    )
    with pytest.raises(
        ValueError, match=r"other settings of row 'all', training; see .*json\. Cho"
    ):
        report.keep_settings(more, {"training": {"batch": 2}}, str(tmp_path))


def test_the_scale_is_a_factor_of_all_numbers_of_steps():
    values = {"num_train_steps": 1000, "num_warmup_steps": 100, "train_batch_size": 64}
    expected = {"num_train_steps": 10, "num_warmup_steps": 1, "train_batch_size": 64}
    assert runner.scaled(values, 0.01) == expected


def test_after_a_failed_run_no_other_one_starts(settings, tmp_path, monkeypatch):
    started = []

    def fail(settings, folder, row, seed):
        started.append(row)
        if len(started) > 1:
            time.sleep(0.1)  # all 400 runs would take 40 seconds
        raise RuntimeError(f"{row}, seed {seed} failed; see log.txt")

    monkeypatch.setattr(runner, "start", fail)
    table = report.read_table("sharing")
    settings = dataclasses.replace(settings, num_workers=1, seeds=100)
    with pytest.raises(RuntimeError, match="failed; see log"):
        runner.run_all(settings, table, str(tmp_path), {})
    assert len(started) < 100
