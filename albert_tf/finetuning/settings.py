"""Settings that all fine-tuning programs have. TensorFlow is not imported here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from albert_tf import files
from albert_tf.checkpoints import finding, trained_with
from albert_tf.data.settings import SequenceSettings, VocabularySettings
from albert_tf.settings import (
    NOTHING,
    READING,
    REQUIRED,
    TRAINING,
    SettingsGroup,
    describe,
    from_text,
    redefined,
    setting,
)
from albert_tf.training.settings import RunSettings, TrainingSettings

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings(SequenceSettings, VocabularySettings):
    """How examples become batches."""

    GROUP = "data"

    albert_hub_module_handle: str | None = setting(
        None, "Folder of a TF-Hub module to take weights, config and vocabulary from."
    )
    pad_to_multiple: int = setting(
        8, "Pad each batch to a multiple of so many tokens.", minimum=1, decides=TRAINING
    )
    batches_to_sort: int = setting(
        8,
        "Number of training batches whose examples are sorted by length; 1 for none.",
        minimum=1,
        decides=TRAINING,
    )
    official_order: bool = setting(
        False,
        "Train in file order with a shuffle buffer of 100 examples, as Google's programs.",
        decides=TRAINING,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningSettings(RunSettings, DataSettings):
    """What a fine-tuning run does, beside its model, devices, training and data."""

    GROUP = "fine-tuning"

    do_predict: bool = setting(False, "Predict the test set with the best checkpoint.")
    predict_batch_size: int = setting(8, "Number of examples of a prediction step.", minimum=1)
    save_checkpoints_steps: int = redefined(TrainingSettings, "save_checkpoints_steps", 1000)
    learning_rate: float | tuple[float, ...] = redefined(
        TrainingSettings,
        "learning_rate",
        5e-5,
        "Peak learning rate; several, with commas between them, are tried one after the other.",
    )
    train_step: int = setting(1000, "Number of training steps.", minimum=1, decides=TRAINING)
    warmup_step: int = setting(0, "Number of warm-up steps.", minimum=0, decides=TRAINING)
    num_train_epochs: float = setting(
        0.0,
        "Number of training epochs, which replaces train_step; 0 for train_step.",
        minimum=0,
        decides=TRAINING,
    )
    warmup_proportion: float = setting(
        0.1,
        "Share of the steps of num_train_epochs that warm up.",
        minimum=0,
        maximum=1,
        decides=TRAINING,
    )
    num_runs: int = setting(
        1,
        "Number of runs of each learning rate, with the seeds seed, seed + 1 and so on.",
        minimum=1,
    )
    early_stopping_patience: int = setting(
        0,
        "Number of checkpoints without improvement after which training stops; 0 for never.",
        minimum=0,
        decides=TRAINING,
    )
    early_stopping_min_delta: float = setting(
        0.0,
        "Smallest gain of the dev metric that counts as an improvement.",
        minimum=0,
        decides=TRAINING,
    )
    export_dir: str | None = setting(None, "Folder for a SavedModel of the best checkpoint.")
    export_texts: bool = setting(
        True,
        "Give the SavedModel a signature that takes raw strings, where the task has one; loading "
        "it needs tensorflow-text.",
    )

    @classmethod
    def complete(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns values; without training, others are those that the model was trained with.

        They are taken from the trained run in `output_dir`, if there is one, so that evaluation,
        prediction and export need only that folder; `data_dir` is that of the last run there.

        Raises:
            ValueError: a file of the run is damaged.
        """
        output_dir = values.get("output_dir") or ""
        known = trained_with.read(output_dir) if output_dir else None
        if known is None or values.get("do_train", cls.do_train):
            return dict(values)
        texts = known.others | known.identity
        fields = {field.name: field for field in describe(cls)}
        found = {
            name: from_text(texts[name], field)
            for name, field in fields.items()
            if field.decides != NOTHING and name in texts
        }
        last, directory = finding.flags_of_run(output_dir)
        if "data_dir" in fields and "data_dir" in last:
            found["data_dir"] = files.join(directory, str(last["data_dir"]))
        return found | dict(values)

    def check_paths(self) -> None:
        """Checks the folder of the export, too."""
        super().check_paths()
        if self.export_dir:
            files.check_writable(self.export_dir, "--export_dir")

    @property
    def splits(self) -> list[str]:
        """The splits of the data that are used: "train", "dev" and "test"."""
        phases = {"train": self.do_train, "dev": self.do_eval, "test": self.do_predict}
        return [split for split, is_used in phases.items() if is_used]

    @property
    def asks_for_something(self) -> bool:
        """Whether anything is to be done: training, evaluation, prediction or export."""
        return bool(self.splits or self.export_dir)

    def with_a_phase(self) -> Self:
        """Returns these settings, with training and evaluation if they ask for nothing."""
        if self.asks_for_something:
            return self
        return dataclasses.replace(self, do_train=True, do_eval=True)

    def require_a_phase(self) -> None:
        """Raises ValueError when nothing is asked for, which is an error on a command line."""
        if not self.asks_for_something:
            raise ValueError(
                "nothing to do: give --do_train, --do_eval or --do_predict, --export_dir"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TFLiteSettings(SettingsGroup):
    """What programs that export TFLite files have."""

    GROUP = "fine-tuning"

    tflite_quantization: str | None = setting(
        None,
        "With export_dir, also write albert_model.tflite, its weights in float32 (none), float16 "
        "or int8 (dynamic range); default: no such file.",
        choices=("none", "float16", "int8"),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSettings(SettingsGroup):
    """What programs that learn from labeled files have."""

    GROUP = "data"

    task_name: str = setting(REQUIRED, "Task to train, evaluate or predict.", decides=READING)
    label_column: str | None = setting(None, "Column of the label.", decides=READING)
    data_dir: str = setting(REQUIRED, "Folder of the data.")
    max_bad_rows: int = setting(
        0, "Number of unusable examples to skip and report before a file is refused.", minimum=0
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionSettings(SettingsGroup):
    """What the programs for questions about a text, RACE and SQuAD, both have."""

    GROUP = "data"

    train_file: str | None = setting(None, "Questions to train on.")
    predict_file: str | None = setting(None, "Questions to answer.")
    dropout_prob: float = setting(0.1, "Dropout of the head.", minimum=0, decides=TRAINING)
