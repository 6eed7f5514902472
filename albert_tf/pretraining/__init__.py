r"""Pre-trains ALBERT on records made by create_pretraining_data.py, and evaluates it.

    python run_pretraining.py --albert_config_file=configs/albert_base.json \
        --input_file=records/train*.tfrecord --output_dir=model --do_train --do_eval \
        --eval_input_file=records/held_out.tfrecord --train_batch_size=32 \
        --learning_rate=0.00015 --num_train_steps=10000 --num_warmup_steps=1000

Writes checkpoints (model.ckpt-<step>), metrics.jsonl and TensorBoard summaries to --output_dir.
With --do_eval, each checkpoint is evaluated when it is saved, and eval_results.txt and
model.ckpt-best are written. The training curves are plotted at the end. Run the same command again
to resume a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import logging

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.data import records
from albert_tf.data.records import FoundRecords
from albert_tf.data.settings import (
    InputSettings,
    InstanceSettings,
    MaskingSettings,
    SequenceSettings,
)
from albert_tf.model.config import AlbertConfig
from albert_tf.model.objectives import OBJECTIVES, SOP
from albert_tf.settings import REQUIRED, TRAINING, redefined, setting
from albert_tf.training.settings import (
    EvaluationSettings,
    RunSettings,
    TrainingSettings,
)

if TYPE_CHECKING:
    from albert_tf.pretraining.task import Result
    from albert_tf.training.hooks import Hook


__all__ = ["Settings", "run"]


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


def run(settings: Settings, hooks: Sequence[Hook] = ()) -> Result:
    """Pre-trains and evaluates ALBERT, as run_pretraining.py does.

    Running the same settings again resumes the run.

    >>> from albert_tf import pretraining
    >>> settings = pretraining.Settings(
    ...     albert_config_file="albert_config.json",
    ...     input_file="records/train-*",
    ...     output_dir="model",
    ...     train_batch_size=32,
    ...     learning_rate=0.00015,
    ...     do_eval=True,
    ... )
    >>> pretraining.run(settings).evaluations[-1].metrics["masked_lm_accuracy"]  # doctest: +SKIP

    Args:
        settings: the flags of that program.
        hooks: called in training; see `albert_tf.training.hooks`.

    Returns:
        The evaluations of all checkpoints.

    Raises:
        ValueError, OSError: settings, records or checkpoints are invalid or inconsistent; the
            message says which.
        ArithmeticError: the loss became NaN or infinite.
        InterruptedRunError: a signal stopped the run; the same settings resume it.
    """
    settings.require_a_phase()
    settings = settings.completed()
    train_records = find_record_files(settings.input_file, "--input_file")
    eval_records = train_records
    if settings.do_eval and settings.eval_input_file:
        eval_records = find_record_files(settings.eval_input_file, "--eval_input_file")
    path = settings.albert_config_file or ""
    config = AlbertConfig.from_json_file(path)
    RunFolder(settings.output_dir).check_config(config, path)
    config.check_length(settings.max_seq_length)
    objective = settings.sentence_objective or find_objective(train_records)
    check_records(train_records | eval_records, objective, config)
    settings = dataclasses.replace(settings, sentence_objective=objective)

    from albert_tf.pretraining import task  # needs TensorFlow, unlike what was checked

    return task.run(settings, train_records, eval_records, hooks)


def find_record_files(patterns: str, flag: str) -> FoundRecords:
    """Returns the record files of a flag, with their metadata.

    Raises:
        ValueError: no file matches, or TensorFlow cannot read from this kind of store.
    """
    found = records.find_records(patterns, flag)
    for path in filter(files.is_remote, found):
        if not path.startswith("gs://"):
            raise ValueError(
                f"{flag}: {path}: TensorFlow reads records from gs:// and from local folders. "
                "Copy these, and the metadata beside them, to a local folder first"
            )
    return found


def find_objective(found: FoundRecords) -> str:
    """Returns the sentence objective that records were created for; `sop` if it is not known.

    Raises:
        ValueError: it is not registered here. The message names the metadata file.
    """
    for info in filter(None, found.values()):
        name: str = info.settings.get("sentence_objective", SOP)
        if name not in OBJECTIVES:
            raise ValueError(
                f"{info.metadata_file}: the records were created for sentence_objective={name!r}, "
                f"expected one of {', '.join(OBJECTIVES)}, or register it before training"
            )
        logging.info("Sentence objective of the records: %s", name)
        return name
    return SOP


def check_records(found: FoundRecords, objective: str, config: AlbertConfig) -> None:
    """Checks vocabulary and sentence objective of the records that have metadata.

    Args:
        found: the records.
        objective: abbreviation of the sentence objective to train.
        config: the model's config.

    Raises:
        ValueError: they do not fit the model. The message names the file.
    """
    for path, info in found.items():
        if info is None:
            continue
        theirs = info.settings.get("sentence_objective", objective)
        if theirs != objective:
            raise ValueError(
                f"{path} was created for sentence_objective={theirs}, but the model is one of "
                f"sentence_objective={objective}. Pass --sentence_objective={theirs}, or create "
                f"the records again with --sentence_objective={objective}."
            )
        size = info.vocabulary["size"]
        if size > config.vocab_size:
            raise ValueError(
                f"{path} was created with a vocabulary of {size} entries, but the model has "
                f"vocab_size={config.vocab_size}: ids would be out of range. Use the config that "
                f"belongs to {info.vocabulary['file']}."
            )
