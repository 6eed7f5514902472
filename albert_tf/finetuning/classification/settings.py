"""Settings of run_classifier.py."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from albert_tf.data.settings import SequenceSettings
from albert_tf.finetuning.classification.tasks import ALIASES, CUSTOM_TASK, TASKS, find_task
from albert_tf.finetuning.settings import (
    FineTuningSettings,
    SplitSettings,
    TaskSettings,
    TFLiteSettings,
)
from albert_tf.settings import MODEL, READING, REQUIRED, redefined, setting

if TYPE_CHECKING:
    from typing_extensions import Self

MIN_SEQ_LENGTH = 5  # [CLS] a [SEP] b [SEP]

_TASK = (
    f"Name of the task, in upper or lower case: {', '.join(sorted([*TASKS, *ALIASES]))}, or "
    f"{CUSTOM_TASK} for a custom task."
)
_COLUMN = (
    "Column of the {} of a custom task, as a name or a number from 0; if not given, its usual name."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(FineTuningSettings, TFLiteSettings, TaskSettings, SplitSettings):
    """Settings of run_classifier.py, with the names of Google's flags."""

    GROUP = "data"
    BATCHES_TO_SORT = 32
    ESSENTIAL = (
        *("task_name", "data_dir", "text_a_column", "text_b_column", "label_column"),
        *("dev_fraction", *FineTuningSettings.ESSENTIAL),
    )

    task_name: str = redefined(TaskSettings, "task_name", REQUIRED, _TASK)
    max_seq_length: int = redefined(SequenceSettings, "max_seq_length", 512, minimum=MIN_SEQ_LENGTH)
    text_a_column: str | None = setting(None, _COLUMN.format("text"), affects=READING)
    text_b_column: str | None = setting(None, _COLUMN.format("second text"), affects=READING)
    label_column: str | None = redefined(
        TaskSettings, "label_column", None, _COLUMN.format("label")
    )
    has_header: bool | None = setting(
        None,
        "Whether the first line of a custom task is a header; if not given, it is one if it "
        "names a column.",
        affects=READING,
    )
    is_regression: bool = setting(
        False, "Take the labels of a custom task as numbers to predict.", affects=READING
    )
    is_multi_label: bool = setting(
        False,
        "Predict any number of labels for each text of a custom task, whose label column has JSON "
        "lists of labels, or whose label columns (separated by commas) have 0 or 1 for each label.",
        affects=READING,
    )
    labels: tuple[str, ...] = setting(
        (),
        "Labels of a custom task in the order of their ids, separated by commas; if not given, "
        "those that the data declare, or else those of the training data, sorted.",
    )
    quoting: bool = setting(
        False,
        "Read quoted cells in tab-separated files, as written by pandas and Excel; .csv files "
        "may always have them.",
        affects=READING,
    )
    use_pooled_output: bool = setting(
        True,
        "Classify the pooled output of [CLS], instead of the mean over all positions.",
        affects=MODEL,
        group="model",
    )
    export_texts: bool = setting(
        True,
        "Give the SavedModel a signature that takes raw strings; loading the model then needs "
        "tensorflow-text.",
        group="prediction and export",
    )
    threshold_to_export: float = setting(
        float("nan"),
        "Constant stored in the SavedModel for servers that apply a threshold; nan stores none.",
        group="prediction and export",
    )

    def completed(self) -> Self:
        """Adds to the base class: checks the name of the task, before the files that it needs."""
        if self.task_name.strip().lower() != CUSTOM_TASK:
            find_task(self.task_name)
        return super().completed()

    def check_paths(self) -> None:
        """Checks all paths, and that what is quantized is exported."""
        super().check_paths()
        if self.tflite_quantization and not self.export_dir:
            raise ValueError(
                f"--tflite_quantization={self.tflite_quantization} requires --export_dir, the "
                "folder of the exported model"
            )

    @property
    def names_for_model(self) -> set[str]:
        """Adds `max_seq_length` if the mean over all positions, with the padding, is classified."""
        return super().names_for_model | (set() if self.use_pooled_output else {"max_seq_length"})
