"""What is said of settings that are valid, but rarely what was meant."""

import logging
import types

import pytest

from albert_tf.finetuning import fine_tune, race
from albert_tf.finetuning.settings import FineTuningSettings

# Parts of the messages.
RANDOM, WARM_UP, LAST = "random weights", "--warmup_step=", "--save_checkpoints_steps="


@pytest.mark.parametrize(
    ("steps", "values", "is_trained", "said"),
    [
        (20, {}, False, [RANDOM, f"{WARM_UP}2,", f"{LAST}5 compares four"]),
        (20, {"init_checkpoint": "model"}, False, [f"{WARM_UP}2,", f"{LAST}5 "]),
        (20, {"warmup_step": 1}, False, [RANDOM, f"{LAST}5 "]),
        (1, {}, False, [RANDOM, f"{LAST}1 "]),  # there is no step for a warm-up
        (2, {}, False, [RANDOM, f"{WARM_UP}1,", f"{LAST}1 "]),
        (20, {"save_checkpoints_steps": 20}, False, [RANDOM, f"{WARM_UP}2,", f"{LAST}5 "]),
        (20, {"save_checkpoints_steps": 19}, False, [RANDOM, f"{WARM_UP}2,"]),
        (20, {"do_eval": False}, False, [RANDOM, f"{WARM_UP}2,"]),
        (20, {}, True, []),  # resumed
    ],
)
def test_a_new_run_is_told_what_rarely_fits(caplog, steps, values, is_trained, said):
    caplog.set_level(logging.INFO)
    always = {"output_dir": "out", "do_train": True, "do_eval": True, "train_step": steps}
    run = types.SimpleNamespace(
        settings=FineTuningSettings(**always | values),
        folder=types.SimpleNamespace(is_trained=is_trained),
    )
    fine_tune._give_advice(run, types.SimpleNamespace(count_examples=lambda: 100))
    assert len(caplog.messages) == len(said)
    assert all(text in message for text, message in zip(said, caplog.messages, strict=True))


@pytest.mark.parametrize(
    ("examples", "values", "said"),
    [
        (
            392_702,
            {},
            "is 0.0815 epochs: 1000 batches of 32 of the 392702 examples. Some are never",
        ),
        (240, {}, "is 133 epochs: 1000 batches of 32 of the 240 examples. So many rarely help"),
        (32_001, {}, "epochs: 1000 batches of 32 of the 32001 examples"),
        (32_000, {}, None),
        (1_600, {}, None),
        (1_599, {}, "epochs: 1000 batches of 32 of the 1599 examples"),
        (240, {"train_step": 999}, None),  # somebody's choice
        (240, {"num_train_epochs": 40.0}, None),
        (240, {"train_batch_size": 4}, None),
    ],
)
def test_a_default_of_too_few_or_too_many_epochs_is_said(caplog, examples, values, said):
    caplog.set_level(logging.WARNING)
    always = {"output_dir": "out", "init_checkpoint": "model", "do_train": True, "warmup_step": 9}
    run = types.SimpleNamespace(
        settings=FineTuningSettings(**always | values),
        folder=types.SimpleNamespace(is_trained=False),
    )
    fine_tune._give_advice(run, types.SimpleNamespace(count_examples=lambda: examples))
    found = [message for message in caplog.messages if "epochs" in message]
    assert len(found) == (said is not None)
    assert said is None or (said in found[0] and "Try --num_train_epochs=3" in found[0])


def test_the_default_of_each_program_is_its_own(caplog):
    """`run_race.py` has 12,000 steps, which are 4.4 epochs of RACE."""
    settings = race.Settings(data_dir="data", output_dir="out", init_checkpoint="model")
    fine_tune._warn_of_epochs(settings, 87_866)
    assert not caplog.messages
    fine_tune._warn_of_epochs(settings, 400_000)
    assert "The default --train_step=12000" in caplog.text
