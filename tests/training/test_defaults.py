"""Values of the settings of training and pre-training that nobody passes, and their limits.

Each change is to be made here as well.
"""

from __future__ import annotations

import pytest

from albert_tf import pretraining
from albert_tf.settings import MODEL, NOTHING, TRAINING, fields_of
from albert_tf.training.settings import RunSettings

OPTIMIZERS = ("adamw", "lamb", "lamb_albert_zh")
OBJECTIVES = ("sop", "nsp", "none")

# Name → default, what it affects and, if it has limits, minimum, maximum and choices.
RUN = {
    "albert_config_file": (None, NOTHING),
    "output_dir": (None, NOTHING),  # required
    "init_checkpoint": (None, NOTHING),
    "allow_partial_init": (False, NOTHING),
    "allow_changed_settings": (False, NOTHING),
    "distribution": (
        *("auto", NOTHING, None, None),
        ("auto", "one_device", "mirrored", "multi_worker", "tpu"),
    ),
    "num_devices": (None, NOTHING, 1, None, None),
    "precision": ("auto", NOTHING, None, None, ("auto", "float32", "bfloat16", "float16")),
    "jit_compile": ("auto", NOTHING, None, None, ("auto", "true", "false")),
    "fused_attention": (True, NOTHING),
    "gradient_checkpointing": (False, NOTHING),
    "threads": (None, NOTHING, 1, 4096, None),
    "use_tpu": (False, NOTHING),
    "tpu_name": (None, NOTHING),
    "tpu_zone": (None, NOTHING),
    "gcp_project": (None, NOTHING),
    "log_steps": (None, NOTHING, 1, None, None),
    "report_to": ("tensorboard", NOTHING, None, None, ("wandb", "tensorboard")),
    "plots": (True, NOTHING),
    "do_eval": (False, NOTHING),
    "eval_batch_size": (8, NOTHING, 1, None, None),
    "do_train": (False, NOTHING),
    "learning_rate": (5e-5, TRAINING, 0, None, None),
    "train_batch_size": (32, TRAINING, 1, 1 << 20, None),
    "optimizer": ("adamw", TRAINING, None, None, OPTIMIZERS),
    "weight_decay": (0.01, TRAINING, 0, None, None),
    "seed": (12345, TRAINING, 0, 2**32 - 1, None),
    "save_checkpoints_steps": (5000, NOTHING, 1, None, None),
    "keep_checkpoint_max": (5, NOTHING, 0, None, None),
    "gradient_accumulation_steps": (1, NOTHING, 1, None, None),
    "clip_per_replica": (False, TRAINING),
    "nan_policy": ("stop", NOTHING, None, None, ("stop", "skip")),
}
# What pre-training adds or changes.
PRETRAINING = {
    "max_seq_length": (512, TRAINING, 1, 1 << 16, None),
    "masked_lm_prob": (0.15, TRAINING, 0, 1, None),
    "max_predictions_per_seq": (20, TRAINING, 1, 1 << 16, None),
    "ngram": (3, TRAINING, 1, None, None),
    "favor_shorter_ngram": (True, TRAINING),
    "do_whole_word_mask": (True, TRAINING),
    "do_permutation": (False, TRAINING),
    "input_file": (None, NOTHING),  # required
    "eval_input_file": (None, NOTHING),
    "dynamic_masking": (False, TRAINING),
    "do_train": (True, NOTHING),
    "learning_rate": (0.00176, TRAINING, 0, None, None),
    "train_batch_size": (4096, TRAINING, 1, 1 << 20, None),
    "optimizer": ("lamb", TRAINING, None, None, OPTIMIZERS),
    "eval_batch_size": (64, NOTHING, 1, None, None),
    "init_from_group0": (False, TRAINING),
    "one_hot_segments": (False, TRAINING),
    "sentence_objective": (None, MODEL, None, None, OBJECTIVES),
    "poly_power": (1.0, TRAINING, 0, None, None),
    "num_train_steps": (125000, TRAINING, 1, None, None),
    "num_warmup_steps": (3125, TRAINING, 0, None, None),
    "record_streams": (None, TRAINING, 1, None, None),
    "start_warmup_step": (0, TRAINING, 0, None, None),
    "max_eval_steps": (100, NOTHING, 1, None, None),
}


@pytest.mark.parametrize(
    ("of", "table"), [(RunSettings, RUN), (pretraining.Settings, RUN | PRETRAINING)]
)
def test_defaults_and_limits_are_those_of_the_table(of, table):
    found = {}
    for field in fields_of(of):
        choices = field.choices and tuple(field.choices)
        limits = field.minimum, field.maximum, choices
        has_limits = any(limit is not None for limit in limits)
        found[field.name] = (field.default, field.affects, *(limits if has_limits else ()))
    assert found == table


MASKED = "masked_lm_prob"  # whose limits themselves are refused, in one case
BOUNDS = [
    (name, bound, bound + step)
    for name, row in (RUN | PRETRAINING).items()
    for bound, step in zip(row[2:4], (-1, 1), strict=False)
    if bound is not None and name != MASKED
]
GIVEN = {"input_file": "x", "output_dir": "y", "dynamic_masking": True}


@pytest.mark.parametrize(("name", "bound", "beyond"), BOUNDS)
def test_a_limit_itself_is_allowed_and_nothing_beyond_it(name, bound, beyond):
    assert getattr(pretraining.Settings(**GIVEN | {name: bound}), name) == bound
    with pytest.raises(ValueError, match=f"{name}={beyond}: expected {bound} or "):
        pretraining.Settings(**GIVEN | {name: beyond})


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (-0.001, "expected 0 or more"),
        (0.0, "masks nothing"),
        (0.001, None),
        (0.999, None),
        (1.0, "expected less than 1"),
        (1.001, "expected 1 or less"),
    ],
)
def test_dynamic_masking_masks_some_tokens_but_not_all(rate, said):
    if said is None:
        assert pretraining.Settings(**GIVEN, masked_lm_prob=rate).masked_lm_prob == rate
        return
    with pytest.raises(ValueError, match=said):
        pretraining.Settings(**GIVEN, masked_lm_prob=rate)
