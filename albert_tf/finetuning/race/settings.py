"""Settings of run_race.py."""

from __future__ import annotations

import dataclasses

from albert_tf.data.settings import SequenceSettings
from albert_tf.finetuning.settings import (
    FineTuningSettings,
    HeadSettings,
    SplitSettings,
    TaskSettings,
)
from albert_tf.settings import READING, TRAINING, redefined, setting

_COLUMN = "Column of the {} of your own questions; if not given, the usual one, such as {}."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(FineTuningSettings, TaskSettings, SplitSettings, HeadSettings):
    """Settings of run_race.py, with the names of Google's flags."""

    GROUP = "data"
    ESSENTIAL = ("task_name", "data_dir", "dev_fraction", *FineTuningSettings.ESSENTIAL)

    task_name: str = redefined(
        TaskSettings,
        "task_name",
        "race",
        "race for RACE, or choice for your own questions in train.jsonl, dev.jsonl and test.jsonl.",
        choices=("race", "choice"),
    )
    passage_column: str | None = setting(
        None, _COLUMN.format("passage", "passage or context"), affects=READING
    )
    question_column: str | None = setting(
        None, _COLUMN.format("question", "question or goal"), affects=READING
    )
    option_columns: tuple[str, ...] = setting(
        (),
        "Columns of the options of your own questions, separated by commas, or the column with a "
        "list of them; if not given, the usual ones, such as options, or option1, option2 and so "
        "on.",
        affects=READING,
    )
    label_column: str | None = redefined(
        TaskSettings,
        "label_column",
        None,
        _COLUMN.format("answer", "label or answer") + " It has numbers, letters or texts of the "
        "options.",
        takes_several=False,
    )
    # The smallest is [CLS] [SEP] question [SEP].
    max_seq_length: int = redefined(SequenceSettings, "max_seq_length", 512, minimum=4)
    max_qa_length: int = setting(
        128,
        "Maximum length of a question with an option, in tokens; of longer ones the last tokens "
        "are kept.",
        minimum=1,
        affects=TRAINING,
    )
    high_only: bool = setting(False, "Use only the questions for high schools.")
    middle_only: bool = setting(False, "Use only the questions for middle schools.")
    do_train: bool = redefined(FineTuningSettings, "do_train", True)
    do_eval: bool = redefined(FineTuningSettings, "do_eval", True)
    learning_rate: float | tuple[float, ...] = redefined(FineTuningSettings, "learning_rate", 1e-5)
    train_step: int = redefined(FineTuningSettings, "train_step", 12000)
    warmup_step: int = redefined(FineTuningSettings, "warmup_step", 1000)
    save_checkpoints_steps: int = redefined(FineTuningSettings, "save_checkpoints_steps", 100)
