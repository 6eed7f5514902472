"""The printed plan of a run, and the estimates in it."""

from __future__ import annotations

import dataclasses
import re

import plan_run
import pytest
from plan_run import DEVICES, Device, Settings

from albert_tf import costs, included
from albert_tf.config import AlbertConfig
from albert_tf.costs import StepShape
from albert_tf.data.create import create_pretraining_data
from albert_tf.data.settings import Settings as DataSettings
from tests.conftest import TOY_TEXT

BASE = AlbertConfig.from_json_file(included.config_file("albert_base"))


def rows_of(text):
    """The cells of the table, by the devices of its rows."""
    found = {}
    for line in text.splitlines():
        if re.match(r" +\d+x", line):
            devices, *cells = re.split(r"  +", line.strip())
            found[devices] = cells
    return found


def test_a_plan_names_data_and_training():
    text = plan_run.run(
        Settings(
            albert_config_file="albert_xxlarge", dupe_factor=10, devices=("8xa100", "512xtpu-v3")
        )
    )
    assert text.startswith("Model: albert_xxlarge, 223 million weights; ")
    assert "16 GB of text, 3.81 billion tokens, dupe_factor 10" in text
    assert list(rows_of(text)) == ["8xa100", "512xtpu-v3"]


def test_a_measured_rate_replaces_the_roofline():
    text = plan_run.run(
        Settings(
            train_batch_size=100, num_train_steps=3600, examples_per_second=10, devices=("2xl4",)
        )
    )
    rows, _, _, step, limit, tokens, in_all = rows_of(text)["2xl4"]
    assert (rows, step, limit, in_all) == ("50", "5 s", "measured", "5 h")
    assert tokens == "10,240"


@pytest.mark.parametrize(("peak", "limit"), [(1e12, "computing"), (1e18, "memory")])
def test_a_step_takes_the_longer_of_computing_and_moving(monkeypatch, peak, limit):
    device = Device(peak, 1e12, 1e15, "tpu")
    monkeypatch.setitem(DEVICES, "h100", device)
    shape = StepShape(4096, 512, 20)
    seconds = plan_run.roofline(BASE, shape, device)
    assert seconds[0] == costs.step_flops(BASE, shape) / peak
    text = plan_run.run(Settings(devices=("1xh100",)))
    assert rows_of(text)["1xh100"][4] == limit
    assert rows_of(text)["1xh100"][3] == plan_run._duration(max(seconds))


# What the compilers say of all twelve layers.
@pytest.mark.parametrize(("compiler", "compiled"), [("tpu", 22.30e9), ("gpu", 21.41e9)])
def test_the_bytes_are_those_that_the_compilers_count(compiler, compiled):
    estimated = plan_run.step_bytes(BASE, StepShape(8, 512, 20), compiler)
    assert estimated == pytest.approx(compiled, rel=0.05)


def test_a_batch_is_split_until_it_fits(monkeypatch):
    shape = StepShape(64, 512, 20)
    device = Device(1, 1, 1, "gpu")
    memory = plan_run.device_memory(BASE, dataclasses.replace(shape, rows=16), False)
    device = dataclasses.replace(device, memory=1.01 * memory / plan_run.USABLE_MEMORY)
    assert plan_run.micro_batches(BASE, shape, device, False) == 4
    monkeypatch.setitem(DEVICES, "l4", dataclasses.replace(device, memory=1e6))
    assert rows_of(plan_run.run(Settings(devices=("1xl4",))))["1xl4"][1] == "does not fit"


@pytest.mark.parametrize(("length", "predictions"), [(64, 10), (200, 30)])
def test_records_and_bytes_are_those_of_the_data_program(
    tmp_path, toy_spm_model, length, predictions
):
    text = tmp_path / "text.txt"
    text.write_text((TOY_TEXT.strip() + "\n") * 40, encoding="utf-8")
    metadata = create_pretraining_data(
        DataSettings(
            input_file=str(text),
            output_file=str(tmp_path / "records"),
            spm_model_file=toy_spm_model,
            max_seq_length=length,
            max_predictions_per_seq=predictions,
            dupe_factor=4,
            short_seq_prob=0,
            num_workers=1,
            show_progress=False,
        )
    )
    counts, vocab_size = metadata["counts"], metadata["vocabulary"]["size"]
    filled = counts["positions"] / counts["instances"] / length
    records = plan_run.count_records(counts["tokens"], 4, length, filled)
    assert records == pytest.approx(counts["instances"], rel=0.15)
    size = plan_run.record_bytes(length, predictions, vocab_size, filled)
    assert records * size == pytest.approx(counts["record_bytes"], rel=0.2)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"devices": ("8xb100",)}, ["'8xb100'", "8xa100", "tpu-v5e"]),
        ({"devices": ("a100",)}, ["'a100'", "8xa100"]),
        ({"devices": ("3xa100",)}, ["4096", "3xa100"]),
        ({"max_predictions_per_seq": 600}, ["600", "512"]),
        ({"max_seq_length": 513, "devices": ("1xa100",)}, ["513", "512"]),
        ({"albert_config_file": "albert_huge"}, ["albert_huge", "albert_xxlarge"]),
    ],
)
def test_what_cannot_be_planned_is_refused(flags, named):
    with pytest.raises((ValueError, OSError)) as refused:
        plan_run.run(Settings(**flags))
    assert all(text in str(refused.value) for text in named)
