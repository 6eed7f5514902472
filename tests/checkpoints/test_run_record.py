"""The record of a run: its one schema, its parts, and the lines of what differs.

Records are compared by a run: see tests/training/test_run.py.
"""

from __future__ import annotations

import json
import math
import os
import re

import numpy as np
import pytest

from albert_tf import pretraining
from albert_tf.checkpoints import record_comparison, run_record
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.finetuning.settings import FineTuningSettings

VOCABULARY = FileRecord("97 entries, sha256 0a", "/a/b")
KNOWN = RunRecord(
    start={"directory": "/a", "command": ["run_pretraining.py", "--seed=7"]},
    settings={"seed": 7, "rates": [1e-5, 0.5], "plots": True, "data": None},
    config={"vocab_size": 97},
    files={"vocabulary": VOCABULARY, "init_checkpoint": FileRecord("none")},
    task={"name": "spans", "labels": ["no", "可"]},
)


def test_a_record_is_written_and_read_again():
    assert RunRecord.from_json(KNOWN.to_json(), "run.json") == KNOWN
    written = json.loads(KNOWN.to_json())
    assert list(written) == ["format", "start", "settings", "config", "files", "task"]
    plain = RunRecord(settings={"rate": np.float32(0.5), "steps": np.int64(3)})
    assert json.loads(plain.to_json())["settings"] == {"rate": 0.5, "steps": 3}


def damaged(**entries):
    return json.dumps(json.loads(KNOWN.to_json()) | entries)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (KNOWN.to_json()[:100], "run.json: not JSON"),
        ('{"program": "another", "settings": {}}', "run.json: 'format' is None, expected 1"),
        (damaged(settings=5), "run.json: 'settings' is 5, expected dict"),
        (damaged(format=0), "run.json: 'format' is 0, expected 1"),
        (damaged(format=True), "run.json: 'format' is True, expected 1"),
        (damaged(format="2"), "run.json: 'format' is '2', expected 1"),
        (
            '{"format": 2, "start": {"versions": {"albert_tf": "7.5.0"}}}',
            "run.json: 'format' is 2, and albert-tf2 0.1.0 reads 1: use albert-tf2 7.5.0 or later",
        ),
        (
            '{"format": 3, "start": 5}',
            "run.json: 'format' is 3, and albert-tf2 0.1.0 reads 1: use a newer version of albert",
        ),
        (damaged(task={"labels": [1]}), "run.json: expected texts as labels, got [1]"),
        (damaged(files={"x": {"digest": "", "path": 1}}), "run.json: x: 'path' is 1, expected str"),
    ],
)
def test_a_damaged_record_and_that_of_another_program_are_refused(text, said, monkeypatch):
    monkeypatch.setattr(run_record, "__version__", "0.1.0")
    with pytest.raises(ValueError, match="^" + re.escape(said)):
        RunRecord.from_json(text, "run.json")


def test_the_texts_to_compare_are_the_same_for_equal_values():
    assert KNOWN.texts() == {
        "seed": "7",
        "rates": "1e-05,0.5",
        "plots": "True",
        "data": "None",
        "vocabulary": VOCABULARY.digest,
        "init_checkpoint": "none",
        "task": "spans",
        "label list": '["no", "可"]',
    }
    assert KNOWN.texts({"seed", "other"}) == {"seed": "7"}
    same = RunRecord(settings={"seed": 7.0, "rates": (1e-5,)}, task={"labels": []})
    assert same.texts() == {"seed": "7", "rates": "1e-05"}


def test_a_part_of_it_keeps_its_paths():
    found = KNOWN.only("seed", "vocabulary", "other")
    assert found == RunRecord(
        settings={"seed": 7}, files={"vocabulary": VOCABULARY}, task={"name": "spans"}
    )
    assert str(VOCABULARY) == "97 entries, sha256 0a (/a/b)"
    assert RunRecord().only("seed") == RunRecord()


def test_recorded_settings_are_those_of_the_class_with_its_types():
    known = {"learning_rate": [1e-5, 1], "seed": 7, "do_train": True, "vocab_file": None}
    record = RunRecord(settings=known | {"unknown": 5, "num_runs": 3})
    values = record.values_for(FineTuningSettings, {*known, "unknown"})
    assert values == known | {"learning_rate": (1e-5, 1)}
    for name, value, kind in (
        ("seed", "7", "int"),
        ("seed", [7], "int"),
        ("seed", True, "int"),
        ("output_dir", 7, "str"),
    ):
        wrong = RunRecord(settings={name: value})
        with pytest.raises(
            ValueError, match=re.escape(f"expected {kind} as {name}, got {value!r}")
        ):
            wrong.values_for(pretraining.Settings, {name})
    for name, value in (("do_train", None), ("max_seq_length", -3), ("learning_rate", math.inf)):
        wrong = RunRecord(settings={name: value})
        with pytest.raises(ValueError, match=rf"run\.json: {name}={value}: expected "):
            wrong.values_for(pretraining.Settings, {name})


def test_an_error_names_the_file_that_a_record_was_read_from():
    wrong = RunRecord.from_json(RunRecord(settings={"seed": "7"}).to_json(), "/work/run.json")
    with pytest.raises(ValueError, match=r"^/work/run\.json: expected int as seed, got '7'$"):
        wrong.values_for(pretraining.Settings, {"seed"})


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ({}, []),
        ({"versions": {"tensorflow": "2.20.0", "numpy": "2.4.6"}}, []),
        (
            {"versions": {"tensorflow": "2.18.1", "numpy": "2.4.6"}},
            ["  tensorflow: 2.18.1 → 2.20.0"],
        ),
    ],
)
def test_training_that_is_resumed_with_another_tensorflow_is_said(
    start, said, tmp_path, monkeypatch, caplog
):
    monkeypatch.chdir(tmp_path)
    folder = RunFolder("out")
    os.mkdir("out")
    folder.write_record(RunRecord(start=start))
    now = {"tensorflow": "2.20.0", "numpy": "2.4.6"}
    record_comparison.report_surroundings(folder, RunRecord(start={"versions": now}))
    lines = caplog.text.splitlines()
    assert lines[1:] == said
    if said:
        assert "out is resumed with other releases, devices or micro-batches" in lines[0]
