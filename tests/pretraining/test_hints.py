"""Advice is given where it is due, and nowhere else."""

from __future__ import annotations

import math

import numpy as np
import pytest

from albert_tf.pretraining import hints
from albert_tf.pretraining.hints import (
    PlateauWatch,
    learning_rate_hints,
    plateau_hints,
    scaled_learning_rate,
    unigram_entropy,
)

LN2 = math.log(2)


def history(last=6000, every=100, masked_lm=5.0, order=0.5, accuracy=0.75):
    """Lines of the log; each metric a number, or a function of the step."""
    rng = np.random.default_rng(5)

    def value(metric, step, noise):
        mean = metric(step) if callable(metric) else metric
        return float(mean + rng.normal(0, noise))

    return [
        {
            "step": step,
            "masked_lm_loss": value(masked_lm, step, 0.02),
            "sentence_order_loss": value(order, step, 0.004),
            "sentence_order_accuracy": value(accuracy, step, 0.02),
            "learning_rate": 0.001,
        }
        for step in range(every, last + 1, every)
    ]


def test_the_rate_grows_with_the_square_root_of_the_batch():
    assert scaled_learning_rate(0.00176, 4096) == 0.00176
    assert scaled_learning_rate(0.00176, 1024) == pytest.approx(0.00088)
    assert scaled_learning_rate(0.5, 36, 4) == pytest.approx(1.5)
    for sizes in ((0, 5), (5, 0)):
        with pytest.raises(ValueError, match="1 or more expected"):
            scaled_learning_rate(0.5, *sizes)


@pytest.mark.parametrize(("batch_size", "scaled"), [(32, "0.000156"), (1024, "0.00088")])
def test_the_papers_rate_with_a_small_batch_is_warned_of(batch_size, scaled):
    (hint,) = learning_rate_hints(0.00176, batch_size)
    assert f"--learning_rate={scaled}" in hint
    assert f"--train_batch_size is {batch_size}" in hint
    assert "--scale_learning_rate" in hint


@pytest.mark.parametrize(("rate", "batch_size"), [(0.00176, 4096), (0.00176, 1025), (0.001, 32)])
def test_other_rates_and_large_batches_are_left_alone(rate, batch_size):
    assert learning_rate_hints(rate, batch_size) == []


def test_the_entropy_is_that_of_the_distribution():
    assert unigram_entropy(np.full((5, 7), 3)) == 0
    even = np.arange(97).repeat(1000)
    assert unigram_entropy(even) == pytest.approx(math.log(97), abs=1e-3)
    # A small sample is not far off, as its size is allowed for.
    sample = np.random.default_rng(5).integers(0, 97, 500)
    assert unigram_entropy(sample) == pytest.approx(math.log(97), abs=0.03)
    with pytest.raises(ValueError, match="empty"):
        unigram_entropy(np.array([], np.int32))


def test_a_loss_at_the_entropy_that_does_not_fall_is_a_plateau():
    for every in (50, 100, 500):
        (hint,) = plateau_hints(history(masked_lm=7.05, every=every), 7.0)
        assert hint.startswith("masked_lm_loss has stayed at 7.0")
        assert "2000 steps" in hint


@pytest.mark.parametrize(
    ("changes", "entropy"),
    [
        ({"masked_lm": 7.05}, None),  # nobody knows the entropy
        ({"masked_lm": 6.0}, 7.0),  # better than frequencies, though it has stopped to fall
        ({"masked_lm": 9.0}, 7.0),  # worse: something else is wrong
        ({"masked_lm": lambda step: 7.6 - 1.2e-4 * step}, 7.0),  # it falls, slowly
        ({"masked_lm": 7.05, "last": 2000}, 7.0),  # too early to say
        ({"masked_lm": 7.05, "every": 1000}, 7.0),  # too few lines
    ],
)
def test_other_losses_are_no_plateau(changes, entropy):
    assert plateau_hints(history(**changes), entropy) == []


def test_a_loss_that_falls_through_the_entropy_is_no_plateau():
    def loss(step):
        return 5.5 + 4.5 * math.exp(-step / 150)

    lines = history(masked_lm=loss, every=25, last=6000)
    for count in range(len(lines)):
        assert plateau_hints(lines[:count], 5.97) == []


def test_an_order_that_is_guessed_is_noticed_late():
    lines = history(last=7000, order=LN2, accuracy=0.5)
    (hint,) = plateau_hints(lines)
    assert hint.startswith("sentence_order_accuracy has stayed at 0.50, and its loss at 0.693")
    assert plateau_hints(lines[:50]) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"order": 0.68, "accuracy": 0.51},  # the loss says that it has begun
        {"order": LN2, "accuracy": 0.54},  # the accuracy does
        {"order": lambda step: LN2 - 4e-6 * step, "accuracy": 0.51},
        {"order": 0.75, "accuracy": 0.6},
    ],
)
def test_an_order_that_is_being_learned_is_left_alone(changes):
    assert plateau_hints(history(last=9000, **changes)) == []


def test_lines_without_these_metrics_are_passed_over():
    skipped = [{"step": step, "skipped_steps": 5.0} for step in range(10, 90, 10)]
    assert plateau_hints(skipped, 7.0) == []
    assert plateau_hints([], 7.0) == []
    assert len(plateau_hints([*skipped, *history(masked_lm=7.0)], 7.0)) == 1


def test_each_hint_is_given_once():
    watch = PlateauWatch(7.0)
    given = {
        line["step"]: new
        for line in history(last=30000, masked_lm=7.0, order=LN2, accuracy=0.5)
        if (new := watch.observe(line))
    }
    assert list(given) == [2100, 5100]
    assert [len(new) for new in given.values()] == [1, 1]
    assert given[2100][0].startswith("masked_lm_loss")
    assert len(watch._history) <= 2 * hints.SENTENCE_ORDER_STEPS // 100 + 1


def test_a_watch_says_what_looking_at_all_lines_says():
    lines = history(last=20000, masked_lm=lambda step: 7.0 if step > 9000 else 8.0)
    watch = PlateauWatch(7.0)
    for count, line in enumerate(lines, 1):
        if new := watch.observe(line):
            assert new == plateau_hints(lines[:count], 7.0)
            assert plateau_hints(lines[: count - 1], 7.0) == []
            return
    pytest.fail("the plateau was not noticed")
