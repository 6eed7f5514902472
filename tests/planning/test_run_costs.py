"""Time, memory and bandwidth of a run on several devices."""

from __future__ import annotations

import dataclasses

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.planning import model_costs, run_costs
from albert_tf.planning.run_costs import Training

CONFIG = AlbertConfig(
    vocab_size=30_000, hidden_size=768, num_attention_heads=12, intermediate_size=3072
)
TRAINING = Training(
    config=CONFIG,
    batch_size=4096,
    length=512,
    predictions=77,
    steps=1000,
    bytes_per_value=2,
    checkpointing=False,
    record_bytes=3000.0,
    link_bandwidth=1e10,
    seconds_of_rows=run_costs.assumed_seconds(CONFIG, 0.5, checkpointing=False),
)


def test_one_device_computes_all_flops_and_exchanges_nothing():
    run = run_costs.run_costs(TRAINING, 1, "a100")
    flops = model_costs.step_costs(CONFIG, TRAINING.shape(4096)).flops
    assert run.compute_seconds == pytest.approx(flops / (0.5 * 312e12))
    assert run.all_reduce_seconds == 0
    assert run.total_seconds == pytest.approx(1000 * run.compute_seconds)
    assert run.read_bandwidth == pytest.approx(4096 * 3000 / run.step_seconds)


def test_more_devices_share_the_rows_and_exchange_the_gradients():
    one, many = (run_costs.run_costs(TRAINING, devices, "tpu-v3") for devices in (1, 64))
    assert (one.rows, many.rows) == (4096, 64)
    assert many.compute_seconds == pytest.approx(one.compute_seconds / 64)
    parameters = model_costs.count_parameters(CONFIG)
    assert many.all_reduce_seconds == pytest.approx(2 * 63 / 64 * 4 * parameters / 1e10)
    # Eight devices share a host, so it reads the rows of eight.
    assert many.read_bandwidth == pytest.approx(8 * 64 * 3000 / many.step_seconds)
    assert many.whole_bandwidth == pytest.approx(4096 * 3000 / many.step_seconds)


def test_micro_batches_fit_into_the_memory_and_are_no_more_than_needed():
    run = run_costs.run_costs(TRAINING, 1, "tpu-v3")
    assert 4096 % run.micro_batches == 0
    limit = run_costs.USABLE_MEMORY * 16e9
    assert TRAINING.memory(4096 // run.micro_batches) == run.memory_bytes <= limit
    assert TRAINING.memory(2 * 4096 // run.micro_batches) > limit


def test_a_model_that_is_too_large_does_not_fit():
    wide = dataclasses.replace(CONFIG, hidden_size=49_152, intermediate_size=196_608)
    training = dataclasses.replace(TRAINING, config=wide)
    assert run_costs.run_costs(training, 4096, "t4").micro_batches == 0


def test_an_indivisible_batch_is_refused():
    with pytest.raises(ValueError, match="4096 is not a multiple of 3 devices"):
        run_costs.run_costs(TRAINING, 3, "a100")


def test_where_the_exchange_dominates():
    slow = dataclasses.replace(TRAINING, link_bandwidth=1e8)
    found = run_costs.devices_where_exchange_dominates(slow, "h100")
    assert found is not None
    before, after = (run_costs.run_costs(slow, devices, "h100") for devices in (found // 2, found))
    assert before.all_reduce_seconds < before.compute_seconds
    assert after.all_reduce_seconds >= after.compute_seconds
    fast = dataclasses.replace(TRAINING, link_bandwidth=1e12)
    assert run_costs.devices_where_exchange_dominates(fast, "tpu-v3") is None
