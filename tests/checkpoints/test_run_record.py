"""The record of a run: its one schema, its parts, and the table of what differs.

Records are compared by a run: see tests/training/test_run.py.
"""

from __future__ import annotations

import json
import platform
import re

import numpy as np
import pytest

import albert_tf
from albert_tf import pretraining
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.tokenization import FullTokenizer

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
    assert list(json.loads(KNOWN.to_json())) == ["start", "settings", "config", "files", "task"]
    assert RunRecord.from_json(RunRecord().to_json(), "run.json") == RunRecord()
    plain = RunRecord(settings={"rate": np.float32(0.5), "steps": np.int64(3)})
    assert json.loads(plain.to_json())["settings"] == {"rate": 0.5, "steps": 3}


def damaged(**entries):
    return json.dumps(json.loads(KNOWN.to_json()) | entries)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "run.json: not JSON"),
        (KNOWN.to_json()[:100], "run.json: not JSON"),
        ("[]", "run.json: expected a JSON object, got list"),
        ("{}", "run.json: 'start' is missing, expected dict"),
        ('{"program": "another", "settings": {}}', "run.json: 'start' is missing, expected dict"),
        (damaged(settings=5), "run.json: 'settings' is 5, expected dict"),
        (damaged(task=None), "run.json: 'task' is None, expected dict"),
        (damaged(config=[]), "run.json: 'config' is [], expected dict"),
        (damaged(start={"directory": []}), "run.json: start: 'directory' is [], expected str"),
        (damaged(task={"name": 3}), "run.json: task: 'name' is 3, expected str"),
        (damaged(task={"labels": "ab"}), "run.json: task: 'labels' is 'ab', expected list"),
        (damaged(task={"labels": [1]}), "run.json: expected labels as a list of texts, got [1]"),
        (damaged(files={"vocabulary": 5}), "run.json: vocabulary: 'digest' is 5, expected str"),
        (damaged(files={"x": {"path": "/a"}}), "run.json: x: 'digest' is missing, expected str"),
        (damaged(files={"x": {"digest": "", "path": 1}}), "run.json: x: 'path' is 1, expected str"),
    ],
)
def test_a_damaged_record_and_that_of_another_program_are_reported(text, message):
    with pytest.raises(ValueError, match="^" + re.escape(message)) as error:
        RunRecord.from_json(text, "run.json")
    assert "\n" not in str(error.value)


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
    same = RunRecord(settings={"seed": 7.0, "rates": (1e-5, 0.5)}, task={"labels": []})
    assert same.texts() == {"seed": "7", "rates": "1e-05,0.5"}


def test_a_part_of_it_keeps_its_paths():
    found = KNOWN.only("seed", "vocabulary", "other")
    assert found == RunRecord(
        settings={"seed": 7}, files={"vocabulary": VOCABULARY}, task={"name": "spans"}
    )
    assert str(VOCABULARY) == "97 entries, sha256 0a (/a/b)"
    assert RunRecord().only("seed") == RunRecord()


def test_recorded_settings_are_those_of_the_class_with_its_types():
    record = RunRecord(
        settings={
            "learning_rate": [1e-5, 1],
            "seed": 7,
            "do_train": True,
            "vocab_file": None,
            "unknown": 5,
            "num_runs": 3,
        }
    )
    names = {"learning_rate", "seed", "do_train", "vocab_file", "unknown"}
    assert record.values_for(FineTuningSettings, names) == {
        "learning_rate": (1e-5, 1),
        "seed": 7,
        "do_train": True,
        "vocab_file": None,
    }
    for name, value, kind in (("seed", "7", "int"), ("output_dir", 7, "str")):
        other = RunRecord(settings={name: value})
        with pytest.raises(
            ValueError, match=rf"run\.json: expected {kind} as {name}, got {value!r}"
        ):
            other.values_for(pretraining.Settings, {name})


def test_a_vocabulary_is_identified_by_its_content(tmp_path, monkeypatch):
    path, copy = tmp_path / "vocab.txt", tmp_path / "copy.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsea\n")
    copy.write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    found = run_record.of_tokenizer(FullTokenizer(str(path)), str(path))
    same = run_record.of_tokenizer(FullTokenizer(str(copy)), "copy.txt")
    assert found.texts() == same.texts()
    assert found.texts()["vocabulary"].startswith("6 entries, sha256 ")
    assert same.files["vocabulary"].path == str(copy)
    copy.write_bytes(path.read_bytes().replace(b"sea", b"sky"))
    other = run_record.of_tokenizer(FullTokenizer("copy.txt", do_lower_case=False), "copy.txt")
    assert not set(other.texts().items()) & set(found.texts().items())
    assert run_record.check_vocabulary("out", found, same.files["vocabulary"])
    assert not run_record.check_vocabulary("out", RunRecord(), same.files["vocabulary"])
    with pytest.raises(ValueError, match=r"out was trained with another vocabulary: 6 e.*; now it"):
        run_record.check_vocabulary("out", found, other.files["vocabulary"])


def test_a_table_has_the_names_that_differ_in_any_column():
    columns = {
        "worker 0": {"seed": "1", "rate": "0.1", "data": "a"},
        "worker 1": {"seed": "1", "rate": "0.25", "data": "a"},
        "worker 2": {"seed": "1", "rate": "0.1"},
    }
    assert run_record.differences_table(columns).splitlines() == [
        "        worker 0  worker 1  worker 2",
        "  data  a         a         -",
        "  rate  0.1       0.25      0.1",
    ]
    assert run_record.differences_table({"a": {"x": "1"}, "b": {"x": "1"}}) == ""
    wide = {"before": {"x": "1" * 60, "name": "a"}, "now": {"x": "2" * 60, "name": "b"}}
    assert run_record.differences_table(wide).splitlines() == [
        "  name:",
        "    before  a",
        "    now     b",
        "  x:",
        f"    before  {'1' * 60}",
        f"    now     {'2' * 60}",
    ]


def test_a_start_names_command_devices_and_versions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = run_record.describe_start(["run_squad.py", "--seed=7"], {"devices": "one CPU"})
    assert start["command"] == ["run_squad.py", "--seed=7"]
    assert start["directory"] == str(tmp_path)
    assert start["device"] == {"devices": "one CPU"}
    assert start["started"].endswith("+00:00")
    versions = start["versions"]
    assert versions["python"] == platform.python_version()
    assert versions["numpy"] == np.__version__
    assert versions["albert_tf"] == albert_tf.__version__
    assert versions["tensorflow"]
    assert versions["tf_keras"]
