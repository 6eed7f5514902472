"""The program that creates pre-training data, from Python: `data.run(data.Settings(...))`."""

from __future__ import annotations

import dataclasses
import json

import pytest

from albert_tf import data
from albert_tf.data import create
from albert_tf.data.records import count_records
from tests.conftest import TOY_TEXT


@pytest.fixture
def settings(tmp_path, toy_spm_model):
    text = tmp_path / "text.txt"
    text.write_text(TOY_TEXT.replace(".\n", ".\n\n", 3), encoding="utf-8")
    return data.Settings(
        input_file=str(text),
        output_file=f"{tmp_path}/out/train@2",
        spm_model_file=toy_spm_model,
        max_seq_length=37,
        max_predictions_per_seq=7,
        dupe_factor=3,
        num_workers=1,
        num_logged_instances=2,
    )


def test_a_run_from_text_to_records(tmp_path, settings, caplog):
    with caplog.at_level("INFO", logger="absl"):
        result = data.run(settings)
    names = ["train-00000-of-00002", "train-00001-of-00002", "train.records.json"]
    found = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert found == names
    instances = sum(count_records(str(tmp_path / "out" / name)) for name in names[:2])
    assert str(result) == f"{instances} instances in 2 files"
    assert result.metadata == json.loads((tmp_path / "out" / names[2]).read_text())
    assert caplog.text.count("*** Example ***") == 2
    assert "4 documents, 6 sentences, " in caplog.text


def test_an_error_names_the_line_without_the_text_field(tmp_path, settings):
    lines = tmp_path / "text.jsonl"
    texts = [line + "\n" + line for line in TOY_TEXT.splitlines()]
    lines.write_text("".join(json.dumps({"body": text}) + "\n" for text in texts), "utf-8")
    settings = dataclasses.replace(settings, input_file=str(lines), input_format="jsonl")
    with pytest.raises(ValueError, match=r"text.jsonl, line 1: no field 'text'; .*: 'body'"):
        data.run(settings)
    result = data.run(dataclasses.replace(settings, text_field="body"))
    counts = result.metadata["counts"]
    assert (counts["documents"], counts["sentences"]) == (6, 12)


def test_an_interruption_reports_how_to_resume(settings, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(create, "_write_outputs", interrupt)
        with pytest.raises(
            KeyboardInterrupt, match="interrupted; run the same command again to resume"
        ):
            data.run(settings)
    assert data.run(settings).metadata["counts"]["instances"]
