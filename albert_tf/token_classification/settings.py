"""Settings of run_token_classification.py."""

from __future__ import annotations

import dataclasses

from albert_tf import files
from albert_tf.finetuning.settings import FineTuningSettings, QuestionSettings, TaskSettings
from albert_tf.settings import READING, REQUIRED, SettingsGroup, redefined, setting

AUTO = "auto"
RAW = "raw"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnSettings(SettingsGroup):
    """The columns of the files, which have one token per line and blank lines between sentences."""

    GROUP = "data"

    data_dir: str = redefined(
        TaskSettings,
        "data_dir",
        REQUIRED,
        "Folder with the files train, dev and test, ending in .txt, .conll or .tsv.",
    )
    token_column: int = setting(
        0,
        "Column of the token, counted from 0, or from the end with negative numbers; 0 is the "
        "first column.",
        affects=READING,
    )
    label_column: int = redefined(
        TaskSettings,
        "label_column",
        -1,
        "Column of the label, counted from 0, or from the end with negative numbers; -1 is the "
        "last column.",
    )
    tag_scheme: str = setting(
        AUTO,
        "Tagging scheme of the labels; auto detects it, and raw takes every token with a label "
        "other than O as a span of its own.",
        choices=(AUTO, "iob1", "iob2", "bioes", "bilou", "bmes", "bmewo", RAW),
        affects=READING,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(FineTuningSettings, ColumnSettings):
    """Settings of run_token_classification.py."""

    GROUP = "model"
    ESSENTIAL = ("data_dir", *FineTuningSettings.ESSENTIAL)

    dropout_prob: float = redefined(QuestionSettings, "dropout_prob", 0.1)

    def check_paths(self) -> None:
        """Checks all paths, including the folder of the data."""
        super().check_paths()
        if self.splits:
            files.check_directory(self.data_dir, "--data_dir")
