"""Settings of pre-training: the records, their masks, and the schedule.

TensorFlow is not imported here.
"""

from __future__ import annotations

import dataclasses

from albert_tf.data.settings import (
    InputSettings,
    InstanceSettings,
    MaskingSettings,
    SequenceSettings,
)
from albert_tf.settings import REQUIRED, TRAINING, redefined, setting
from albert_tf.training.settings import EvaluationSettings, RunSettings, TrainingSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordSettings(InputSettings, MaskingSettings, SequenceSettings):
    """The pre-training records, their shape and their masks.

    Raises:
        ValueError: a setting of masking is given without dynamic_masking, or nothing would be
            masked.
    """

    GROUP = "data"

    input_file: str = redefined(
        InputSettings,
        "input_file",
        REQUIRED,
        "TFRecord files to train on: paths or glob patterns, separated by commas.",
    )
    eval_input_file: str | None = setting(
        None,
        "TFRecord files to evaluate on: paths or glob patterns, separated by commas; if not "
        "given, the training files.",
        takes_several=True,
    )
    max_seq_length: int = redefined(
        SequenceSettings, "max_seq_length", 512, "Sequence length of the records, in tokens."
    )
    max_predictions_per_seq: int = redefined(
        MaskingSettings,
        "max_predictions_per_seq",
        20,
        "Maximum number of masked tokens per sequence; that of the records, unless "
        "dynamic_masking is set.",
    )
    dynamic_masking: bool = setting(
        False,
        "Mask tokens during training, differently in every epoch, in records created with "
        "masked_lm_prob=0; the other settings of masking are only for this.",
        group="masking",
        affects=TRAINING,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dynamic_masking and self.masked_lm_prob == 0:
            raise ValueError("masked_lm_prob=0 masks nothing: expected more with dynamic_masking")
        for field in dataclasses.fields(MaskingSettings):
            value = getattr(self, field.name)
            is_given = value != field.default and field.name != "max_predictions_per_seq"
            if is_given and not self.dynamic_masking:
                raise ValueError(
                    f"{field.name}={value} has no effect, because the records contain the masked "
                    "tokens. Set dynamic_masking to mask during training, or create the records "
                    f"with {field.name}={value}."
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(RunSettings, RecordSettings):
    """Settings of run_pretraining.py. Names and defaults are those of Google's flags."""

    GROUP = "training"
    ESSENTIAL = (
        "input_file",
        "output_dir",
        "albert_config_file",
        "init_checkpoint",
        "do_train",
        "do_eval",
        "eval_input_file",
        "max_seq_length",
        "max_predictions_per_seq",
        "train_batch_size",
        "learning_rate",
        "num_train_steps",
        "num_warmup_steps",
    )

    init_from_group0: bool = setting(
        False,
        "Initialize all hidden groups from group 0 of init_checkpoint, to grow a model of one "
        "group.",
        group="model",
        affects=TRAINING,
    )
    one_hot_segments: bool = setting(
        False,
        "Clip gradients as where segments are one-hot rows that are multiplied by their table, as "
        "in albert_zh's run_pretraining_google.py; its own layout has no other way.",
        group="compatibility",
        affects=TRAINING,
    )
    sentence_objective: str | None = redefined(
        InstanceSettings,
        "sentence_objective",
        None,
        "What is learned from segment pairs: whether they are in order or swapped (sop), whether "
        "the second one is random (nsp) or nothing, without a head (none); if not given, what the "
        "records were created for.",
    )
    do_train: bool = redefined(TrainingSettings, "do_train", True)
    train_batch_size: int = redefined(TrainingSettings, "train_batch_size", 4096)
    optimizer: str = redefined(TrainingSettings, "optimizer", "lamb")
    learning_rate: float = redefined(
        TrainingSettings,
        "learning_rate",
        0.00176,
        "Peak learning rate, reached at the end of the warm-up; the default is meant for a batch "
        "size of 4096.",
    )
    poly_power: float = setting(
        1.0,
        "Power of the polynomial decay of the learning rate; 1 decays linearly, 0 not at all.",
        minimum=0,
        affects=TRAINING,
    )
    num_train_steps: int = setting(125000, "Number of training steps.", minimum=1, affects=TRAINING)
    num_warmup_steps: int = setting(
        3125, "Number of warm-up steps; 0 means no warm-up.", minimum=0, affects=TRAINING
    )
    record_streams: int | None = setting(
        None,
        "Number of streams in which the records are read, a divisor of train_batch_size: each "
        "worker reads the files of its own streams. auto is the largest power of two up to 64, if "
        "there are 64 files or more, and less if files are much larger than others; with 1, all "
        "workers read all files.",
        minimum=1,
        group="data",
        affects=TRAINING,
        is_optional=True,
    )
    start_warmup_step: int = setting(
        0,
        "Training step at which the warm-up starts; 0 starts at the beginning.",
        minimum=0,
        affects=TRAINING,
    )
    eval_batch_size: int = redefined(EvaluationSettings, "eval_batch_size", 64)
    max_eval_steps: int = setting(
        100, "Maximum number of batches per evaluation.", minimum=1, group="evaluation"
    )
