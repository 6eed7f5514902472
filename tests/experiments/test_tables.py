"""The tables of the papers' experiments: valid, run once, and shown with deviations."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time

import pytest
import report
import run as runner

from albert_tf import data, files
from albert_tf.model.config import AlbertConfig
from albert_tf.pretraining import Settings as TrainingSettings
from tests.conftest import ROOT

TABLES = sorted(path.stem for path in (ROOT / "experiments" / "tables").glob("*.json"))


@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_a_table_can_be_run(name):
    table = report.read_table(name)
    for row in [*table.rows.values(), *table.held_out.values()]:
        for phase in row.get("phases", [{}]):
            config = runner.CONFIG | table.config | row.get("config", {}) | phase.get("config", {})
            AlbertConfig.from_dict(config).check_length(table.max_seq_length)
            assert config["vocab_size"] == table.vocab_size
            training = row.get("training", {}) | phase.get("training", {})
            training = runner.TRAINING | table.training | training | table.lengths
            TrainingSettings(input_file="a", output_dir="b", **training)
        data.Settings.make(input_file="a", output_file="b", **table.lengths | row.get("data", {}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows": {"a": {"trainning": {}}}}, "rows, 'a': unknown 'trainning'; expected one of con"),
        ({"columns": {"words": "y/masked"}}, "column 'words': unknown 'y/masked'; expected one of"),
    ],
)
def test_a_name_in_a_table_that_nothing_reads_is_refused(changes, said, tmp_path):
    path = tmp_path / "mine.json"
    whole = {"title": "Mine", "source": "", "rows": {}, "held_out": {"x": {}}, "columns": {}}
    files.write_json(str(path), whole | changes)
    with pytest.raises(ValueError, match=rf"mine\.json.*{said}"):
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
    assert lines[2:5] == [
        "| all | 1,234 | 0.375 ± 0.177 | 80.1 |",
        "| nothing | 5,678 | 0.125 | 81.6 |",
        "| constant answer |  | 0.062 |  |",
    ]
    assert (tmp_path / "table.md").read_text().splitlines() == lines
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_runs_that_are_done_are_not_repeated_and_none_starts_after_a_failed_one(
    tmp_path, monkeypatch
):
    started = []

    def start(settings, folder, row, seed):
        started.append((row, seed))
        if len(started) > 3:
            time.sleep(0.05)  # until the error is seen
        if len(started) == 3:
            raise RuntimeError("seed 1 failed; see log.txt")
        place = runner.folder_of(folder, row, seed)
        os.makedirs(place)
        result = dict.fromkeys(table.columns.values(), 0.5)
        files.write_json(os.path.join(place, "result.json"), result)

    monkeypatch.setattr(runner, "start", start)
    monkeypatch.setattr(report, "write_table", lambda *_: "")
    table = report.read_table("sharing")
    settings = runner.Settings(table="sharing", output_dir=str(tmp_path), seeds=2, num_workers=1)
    with pytest.raises(RuntimeError, match="seed 1 failed"):
        runner.run_all(settings, table, str(tmp_path), {})
    assert len(started) < 6
    failed = started[2]
    runner.run_all(settings, table, str(tmp_path), {})
    assert sorted(started) == sorted([*itertools.product(table.rows, (1, 2)), failed])
    assert len(report.results_of(table, str(tmp_path), 2)["attention"]) == 2


def test_runs_with_other_settings_are_not_mixed(tmp_path):
    table = report.read_table("sharing")
    report.keep_settings(table, {"training": {"batch": 1}}, str(tmp_path))
    with pytest.raises(ValueError, match=r"other settings of training; see .*json"):
        report.keep_settings(table, {"training": {"batch": 2}}, str(tmp_path))
