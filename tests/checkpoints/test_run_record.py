"""The record of a run: what is written when, and comparisons."""

from __future__ import annotations

import json
import platform

import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.run_record import TrainedWith
from albert_tf.tokenization import FullTokenizer
from tests.conftest import ROOT

KNOWN = TrainedWith({"seed": "7", "vocabulary": "97 entries, sha256 0a"}, {"vocabulary": "/a/b"})


def test_written_values_are_read_back_and_other_folders_have_none(tmp_path):
    assert run_record.read(str(tmp_path)) is None
    run_record.write(str(tmp_path), KNOWN)
    assert run_record.read(str(tmp_path)) == KNOWN


def test_the_settings_of_the_start_are_texts_as_in_the_identity(tmp_path):
    describe(tmp_path, rates=(1e-5, 0.5), report_to="tensorboard", plots=True, data=None)
    found = run_record.read_settings(str(tmp_path))
    assert {name: found[name] for name in ("rates", "report_to", "plots", "data")} == {
        "rates": "1e-05,0.5",
        "report_to": "tensorboard",
        "plots": "True",
        "data": "None",
    }


@pytest.mark.parametrize("content", ["{", "[]", '{"identity": [7]}'])
def test_a_damaged_file_is_reported(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ValueError, match=r"run\.json: "):
        run_record.read(str(tmp_path))


def test_a_part_of_it_keeps_its_paths():
    assert KNOWN.only({"seed"}) == TrainedWith({"seed": "7"})
    assert KNOWN.only({"vocabulary", "other"}) == TrainedWith(
        {"vocabulary": "97 entries, sha256 0a"}, {"vocabulary": "/a/b"}
    )
    assert KNOWN.show("seed") == "7"
    assert KNOWN.show("vocabulary") == "97 entries, sha256 0a (/a/b)"


def test_a_vocabulary_is_identified_by_its_content(tmp_path, monkeypatch):
    path, copy = tmp_path / "vocab.txt", tmp_path / "copy.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsea\n")
    copy.write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    found = run_record.of_tokenizer(FullTokenizer(str(path)), str(path))
    same = run_record.of_tokenizer(FullTokenizer(str(copy)), "copy.txt")
    assert found.identity == same.identity
    assert found.identity["vocabulary"].startswith("6 entries, sha256 ")
    assert same.paths == {"vocabulary": str(copy)}
    copy.write_bytes(path.read_bytes().replace(b"sea", b"sky"))
    other = run_record.of_tokenizer(FullTokenizer("copy.txt", do_lower_case=False), "copy.txt")
    assert not other.is_same(found, "vocabulary")
    assert not other.is_same(found, "do_lower_case")


@pytest.mark.parametrize("labels", [("可", "no"), ("no", "可", "?"), ("no",), ()])
def test_labels_are_compared_in_number_and_order(tmp_path, labels):
    folder = str(tmp_path)
    run_record.check_labels(folder, labels, "run.json")
    run_record.write(folder, KNOWN)  # of a model without labels
    run_record.check_labels(folder, labels, "run.json")
    run_record.write(folder, KNOWN.with_labels(("no", "可")))
    run_record.check_labels(folder, ("no", "可"), "run.json")
    with pytest.raises(
        ValueError, match=r"but the model was trained with \[\"no\", \"可\"\]"
    ) as error:
        run_record.check_labels(folder, labels, "run.json")
    listed = json.dumps(labels, ensure_ascii=False)
    assert f"run.json lists the labels {listed}, but" in str(error.value)


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


def describe(path, step=20, **flags):
    start = run_record.describe_start(
        ["run_pretraining.py", "--num_train_steps=20"],
        {"num_train_steps": step, "learning_rate": np.float32(0.5), "path": ROOT} | flags,
        {"vocab_size": 97},
        {"name": "CPU", "count": 1, "precision": "float32"},
    )
    run_record.add_start(str(path), start)
    run_record.write_start(str(path), start)
    return start


def test_a_run_is_described_and_earlier_ones_are_kept(tmp_path):
    (tmp_path / "runs.jsonl").write_text('{"cut short')  # not written by this program
    for step in (20, 30):
        describe(tmp_path, step)
    entry = json.loads((tmp_path / "run.json").read_text())
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert lines[0] == '{"cut short'
    assert [json.loads(line)["flags"]["num_train_steps"] for line in lines[1:]] == [20, 30]
    assert entry == json.loads(lines[-1])
    assert entry["flags"] == {"num_train_steps": 30, "learning_rate": 0.5, "path": str(ROOT)}
    assert entry["command"] == ["run_pretraining.py", "--num_train_steps=20"]
    assert entry["config"] == {"vocab_size": 97}
    assert entry["device"]["precision"] == "float32"
    assert entry["started"].endswith("+00:00")
    assert len(list(tmp_path.iterdir())) == 2


def test_a_start_that_does_not_train_leaves_the_settings_of_the_model(tmp_path):
    described = []
    run_record.write(str(tmp_path), KNOWN)
    for step, trains in ((10, False), (20, True), (30, False), (40, True)):
        describe(tmp_path, step, do_train=trains)
        flags = json.loads((tmp_path / "run.json").read_text())["flags"]
        described.append(flags["num_train_steps"])
    assert described == [10, 20, 20, 40]
    assert run_record.read(str(tmp_path)).identity == KNOWN.identity
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 4


def test_the_versions_are_those_in_use():
    versions = run_record._versions()
    assert versions["python"] == platform.python_version()
    assert versions["numpy"] == np.__version__
    assert versions["albert_tf"] == albert_tf.__version__
    assert versions["tensorflow"]
    assert versions["tf_keras"]


def test_results_of_one_phase_keep_those_of_others(tmp_path):
    path = str(tmp_path)
    run_record.record_results(path, {"eval": {"loss": np.float32(0.5), "accuracy": 0.25}})
    run_record.record_results(path, {"train": {"loss": 1.5}})
    merged = run_record.record_results(path, {"eval": {"loss": 0.25}})
    assert merged == {"train": {"loss": 1.5}, "eval": {"loss": 0.25}}
    assert json.loads((tmp_path / "results.json").read_text()) == merged
    assert list(merged) == ["train", "eval"]


@pytest.mark.parametrize("text", ["{", "[1]", "3"])
def test_results_of_another_program_are_not_overwritten(tmp_path, text):
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(ValueError, match=r"results\.json: "):
        run_record.record_results(str(tmp_path), {"eval": {"loss": 0.25}})
    assert (tmp_path / "results.json").read_text() == text


def test_an_emptied_record_of_the_task_is_not_taken_for_none(tmp_path):
    assert run_record.read_details(str(tmp_path), {"labels": list[str]})[0] == {}
    (tmp_path / "run.json").write_text('{"task": {}}')
    with pytest.raises(ValueError, match=r"run\.json"):
        run_record.read_details(str(tmp_path), {"labels": list[str]})
