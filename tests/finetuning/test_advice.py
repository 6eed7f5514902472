"""What is said of settings that are valid, but rarely what was meant."""

import logging
import types

import pytest

from albert_tf.finetuning import fine_tune
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
