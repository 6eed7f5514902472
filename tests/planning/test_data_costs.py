"""The costs of the records, compared with records that the data program creates."""

from __future__ import annotations

import pytest

from albert_tf.data.create import create_pretraining_data
from albert_tf.data.settings import Settings
from albert_tf.planning import data_costs
from tests.conftest import TOY_TEXT


@pytest.mark.parametrize(("length", "predictions"), [(64, 10), (200, 30)])
def test_records_and_bytes_are_those_of_the_data_program(
    tmp_path, toy_spm_model, length, predictions
):
    text = tmp_path / "text.txt"
    lines = (TOY_TEXT.strip() + "\n") * 40
    text.write_text(lines, encoding="utf-8")
    metadata = create_pretraining_data(
        Settings(
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
    counts = metadata["counts"]
    filled = counts["positions"] / counts["instances"] / length
    costs = data_costs.data_costs(
        text_bytes=len(lines.encode()),
        bytes_per_token=len(lines.encode()) / counts["tokens"],
        filled=filled,
        dupe_factor=4,
        length=length,
        predictions=predictions,
        vocab_size=metadata["vocabulary"]["size"],
    )
    assert costs.tokens == pytest.approx(counts["tokens"])
    assert costs.records == pytest.approx(counts["instances"], rel=0.15)
    assert costs.total_bytes == pytest.approx(counts["record_bytes"], rel=0.2)


def test_more_text_costs_proportionally_more():
    def costs(text_bytes):
        return data_costs.data_costs(
            text_bytes=text_bytes,
            bytes_per_token=4,
            filled=0.9,
            dupe_factor=10,
            length=512,
            predictions=77,
            vocab_size=30_000,
        )

    assert costs(2e9).total_bytes == pytest.approx(2 * costs(1e9).total_bytes)
    assert costs(2e9).core_seconds == pytest.approx(2 * costs(1e9).core_seconds)


def test_the_rate_of_a_core_is_interpolated_between_the_measured_ones():
    for length, rate in data_costs.MEASURED_RATES.items():
        assert data_costs.rate_of_core(length) == pytest.approx(rate)
    short, long = sorted(data_costs.MEASURED_RATES)
    between = data_costs.rate_of_core((short + long) // 2)
    assert data_costs.MEASURED_RATES[long] < between < data_costs.MEASURED_RATES[short]
