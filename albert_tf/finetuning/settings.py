"""Settings shared by all fine-tuning programs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from albert_tf import files
from albert_tf.checkpoints import releases
from albert_tf.checkpoints.model_folder import ModelPath
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.data.settings import SequenceSettings, VocabularyFileSettings, VocabularySettings
from albert_tf.export.quantizations import QUANTIZATIONS
from albert_tf.settings import (
    NOTHING,
    READING,
    REQUIRED,
    TRAINING,
    SettingsGroup,
    fields_of,
    redefined,
    setting,
)
from albert_tf.training.settings import ExportSettings, RunSettings, TrainingSettings

if TYPE_CHECKING:
    from typing_extensions import Self

DATA_PATHS = ("data_dir", "train_file", "dev_file", "test_file")
SWEEP_TABLE = "sweep_results.tsv"
HUB_VOCABULARY = "from_tf_hub"  # the value of --spm_model_file in Google's notebook


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings(SequenceSettings, VocabularyFileSettings):
    """How examples are batched.

    Attributes:
        BATCHES_TO_SORT: number of training batches whose examples are sorted by length together, to
            reduce padding.
    """

    GROUP = "data"
    BATCHES_TO_SORT: ClassVar[int] = 8

    do_lower_case: bool | None = redefined(
        VocabularySettings,
        "do_lower_case",
        None,
        "Lower-case the text, as uncased models need it; if not given, as the model of "
        "init_checkpoint needs it, or else true.",
    )
    albert_hub_module_handle: str | None = setting(
        None,
        "Folder of a TF-Hub module with initial weights, config and vocabulary, or its address if "
        "it was downloaded by `albert download`; instead of init_checkpoint.",
    )
    pad_to_multiple: int | None = setting(
        None,
        "Pad each batch to a multiple of this many tokens; 1 pads to its longest sequence; if not "
        "given, 8 on GPUs, and on CPUs the smallest even number with at most 64 lengths, such as 2 "
        "for a max_seq_length of 128.",
        minimum=1,
        is_optional=True,
        affects=TRAINING,
    )
    official_order: bool = setting(
        False,
        "As Google's programs do, train in file order with a shuffle buffer of 100 examples, "
        "instead of shuffling all; evaluate the initial weights too, and select the first of "
        "equally good checkpoints, instead of the one with the lowest loss.",
        affects=TRAINING,
    )


@runtime_checkable
class HasDataDir(Protocol):
    """Settings of a program that reads a folder."""

    data_dir: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningSettings(RunSettings, DataSettings, ExportSettings):
    """Settings of a fine-tuning run."""

    GROUP = "training"
    ESSENTIAL: ClassVar[tuple[str, ...]] = (
        "init_checkpoint",
        "output_dir",
        "do_train",
        "do_eval",
        "do_predict",
        "max_seq_length",
        "train_batch_size",
        "learning_rate",
        "num_train_epochs",
        "train_step",
        "warmup_step",
        "export_dir",
    )
    PHASES: ClassVar[tuple[str, ...]] = ("do_train", "do_eval", "do_predict", "export_dir")
    DEFAULT_PHASES: ClassVar[Mapping[str, bool]] = {"do_train": True, "do_eval": True}

    do_train: bool = redefined(
        RunSettings,
        "do_train",
        False,
        "Train the model. Without this flag and the other do_ flags, and without export_dir, the "
        "program trains and evaluates.",
    )
    do_predict: bool = setting(
        False, "Predict the test set with the best checkpoint.", group="prediction and export"
    )
    predict_batch_size: int = setting(
        8, "Prediction batch size, in examples.", minimum=1, group="prediction and export"
    )
    save_checkpoints_steps: int = redefined(TrainingSettings, "save_checkpoints_steps", 1000)
    learning_rate: float | tuple[float, ...] = redefined(
        TrainingSettings,
        "learning_rate",
        5e-5,
        "Peak learning rate, reached at the end of the warm-up; several values separated by "
        "commas run a sweep.",
    )
    train_step: int = setting(
        1000,
        "Number of training steps, if num_train_epochs is 0.",
        minimum=1,
        affects=TRAINING,
    )
    warmup_step: int = setting(
        0,
        "Number of warm-up steps, if num_train_epochs is 0; 0 means no warm-up.",
        minimum=0,
        affects=TRAINING,
    )
    num_train_epochs: float = setting(
        0.0,
        "Number of training epochs; 0 trains for train_step steps instead.",
        minimum=0,
        affects=TRAINING,
    )
    warmup_proportion: float = setting(
        0.1,
        "Fraction of the training steps used for the warm-up, if num_train_epochs is set; 0 "
        "means no warm-up.",
        minimum=0,
        maximum=1,
        affects=TRAINING,
    )
    num_runs: int = setting(
        1,
        "Number of runs per learning rate, with the random seeds seed, seed + 1 and so on.",
        minimum=1,
    )
    freeze_encoder: bool = setting(
        False,
        "Train the task's head only: the encoder keeps the weights of init_checkpoint, and dropout "
        "stays on.",
        affects=TRAINING,
    )
    early_stopping_patience: int = setting(
        0,
        "Number of checkpoints in a row without improvement of the dev metric after which "
        "training stops; 0 disables early stopping.",
        minimum=0,
        affects=TRAINING,
    )

    @classmethod
    def with_derived_values(cls, values: Mapping[str, object]) -> dict[str, object]:
        """Returns `values`, completed with the settings of the trained model if not training.

        Without a value for any of the `PHASES`, the run trains and evaluates, unless the program
        trains by default.

        The settings are those of the trained run in `output_dir`, if there is one, so that this
        folder is all that evaluation, prediction and export need. `DATA_PATHS` are taken from the
        last training in the folder, unless one of them is given.

        Raises:
            ValueError: a file of the run is corrupt.
        """
        if not cls.do_train and values.keys().isdisjoint(cls.PHASES):
            values = {**values, **cls.DEFAULT_PHASES}
        output_dir = str(values.get("output_dir") or "")
        is_training = values.get("do_train", cls.do_train)
        record = RunFolder(output_dir).record if output_dir and not is_training else RunRecord()
        fields = fields_of(cls)
        names = {field.name for field in fields if field.affects != NOTHING}
        recorded = record.values_for(cls, names)
        if values.keys().isdisjoint(DATA_PATHS):
            start = str(record.start.get("directory", ""))
            for name in {field.name for field in fields}.intersection(DATA_PATHS):
                paths = str(record.settings.get(name) or "").split(",")
                recorded[name] = ",".join(files.join(start, path) for path in paths if path)
        return recorded | dict(values)

    @property
    def weights(self) -> str | None:
        """The `init_checkpoint`, or the folder or name of the `albert_hub_module_handle`.

        Raises:
            ValueError: both are given, or the module would have to be downloaded.
        """
        handle = self.albert_hub_module_handle
        if handle and self.init_checkpoint:
            raise ValueError(
                "--init_checkpoint and --albert_hub_module_handle are mutually exclusive: both "
                "specify the weights"
            )
        if handle and handle.startswith(("http://", "https://")) and not releases.named(handle):
            raise ValueError(
                f"--albert_hub_module_handle={handle}: modules are not downloaded. Unpack the "
                "module and pass its folder. `albert download` lists those with a name."
            )
        return handle or self.init_checkpoint

    def _source_at(self, place: ModelPath) -> ModelSource:
        """As in the base class, with the vocabulary and the letter case."""
        return ModelSource(
            place,
            self.trained_in(RunFolder(self.output_dir), place),
            self.albert_config_file,
            self.vocab_file,
            self._given_spm_model_file,
            self.do_lower_case,
        )

    @property
    def _given_spm_model_file(self) -> str | None:
        return None if self.spm_model_file == HUB_VOCABULARY else self.spm_model_file

    def completed(self) -> Self:
        """Adds to the base class: phases to run if there are none, and the model's vocabulary.

        The folder `albert_hub_module_handle` becomes the `init_checkpoint`.
        """
        if not self.asks_for_something:
            phases: dict[str, Any] = dict(self.DEFAULT_PHASES)
            return dataclasses.replace(self, **phases).completed()
        return super().completed()

    def _with_model_files(self, place: ModelPath) -> Self:
        settings = super()._with_model_files(place)
        vocab_file, spm_model_file = self.vocab_file, self._given_spm_model_file
        if self._has_weights:
            vocab_file, spm_model_file = self._source_at(place).vocabulary
        return dataclasses.replace(
            settings,
            albert_hub_module_handle=None,
            vocab_file=vocab_file,
            spm_model_file=spm_model_file,
        )

    def check_paths(self) -> None:
        """Checks all paths, including the folder of the data if the program reads one."""
        super().check_paths()
        if isinstance(self, HasDataDir) and self.data_dir and self.splits:
            files.check_directory(self.data_dir, "--data_dir")

    def runs(self) -> list[Self]:
        """Returns the settings of each run: each learning rate with `num_runs` seeds.

        A single run writes to the output directory itself. Each run of a sweep has a subfolder,
        named after learning rate and seed, so that finished runs are not repeated when others are
        added.

        Raises:
            ValueError: there is no learning rate or a duplicate one, or several runs and no dev
                set.
        """
        rates = self.learning_rates
        if not rates or len(set(rates)) < len(rates):
            raise ValueError(
                f"--learning_rate={','.join(f'{rate:g}' for rate in rates)}: expected one or more "
                "different numbers"
            )
        if len(rates) == self.num_runs == 1:
            return [dataclasses.replace(self, learning_rate=rates[0])]
        if "dev" not in self.splits:
            count = len(rates) * self.num_runs
            raise ValueError(f"{count} runs are compared on the dev set: set --do_eval as well")
        return [
            dataclasses.replace(
                self,
                output_dir=os.path.join(self.output_dir, f"lr{rate:g}_seed{seed}"),
                learning_rate=rate,
                seed=seed,
            )
            for rate in rates
            for seed in range(self.seed, self.seed + self.num_runs)
        ]

    @property
    def learning_rates(self) -> tuple[float, ...]:
        """The learning rates of all runs."""
        rates = self.learning_rate
        return rates if isinstance(rates, tuple) else (rates,)

    @property
    def single_learning_rate(self) -> float:
        """The learning rate of a single run; see `runs`."""
        (rate,) = self.learning_rates
        return rate

    @property
    def splits(self) -> list[str]:
        """The splits of the data to use: "train", "dev" and "test"."""
        phases = {"train": self.do_train, "dev": self.do_eval, "test": self.do_predict}
        return [split for split, is_used in phases.items() if is_used]

    @property
    def asks_for_something(self) -> bool:
        """Whether any phase is enabled: training, evaluation, prediction or export."""
        return bool(self.splits or self.export_dir)

    def require_a_phase(self) -> None:
        """Raises a ValueError if all phases are disabled on the command line."""
        if not self.asks_for_something:
            phases = ", ".join(f"--{name}" for name in self.PHASES)
            raise ValueError(f"nothing to do: set one of {phases}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TFLiteSettings(SettingsGroup):
    """Settings of programs that export TFLite files."""

    GROUP = "prediction and export"

    tflite_quantization: str | None = setting(
        None,
        "Also export albert_model.tflite, with weights in float32 (none), float16 or int8 (dynamic "
        "range); if not given, only the SavedModel is exported.",
        choices=QUANTIZATIONS,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSettings(SettingsGroup):
    """Settings of programs that train on labeled files."""

    GROUP = "data"

    task_name: str = setting(REQUIRED, "Task to train, evaluate or predict.", affects=READING)
    label_column: str | None = setting(
        None,
        "Column of the label of a custom task, as a name or a number from 0; if not given, its "
        "usual name.",
        affects=READING,
        takes_several=True,
    )
    data_dir: str | None = setting(
        None, "Folder of the dataset; required, unless other flags name the file of each split."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitSettings(SettingsGroup):
    """Settings of programs whose splits are files of rows."""

    GROUP = "data"

    train_file: str = setting(
        "",
        "File with the examples to train on, or several separated by commas, or a pattern; if not "
        "given, files in data_dir whose name has the word train.",
        takes_several=True,
    )
    dev_file: str = setting(
        "",
        "The same for the examples to evaluate on; if not given, files in data_dir whose name has "
        "the word dev, validation, valid or val.",
        takes_several=True,
    )
    test_file: str = setting(
        "",
        "The same for the examples to predict; if not given, files in data_dir whose name has the "
        "word test.",
        takes_several=True,
    )
    dev_fraction: float = setting(
        0.0,
        "Fraction of the training examples, chosen at random with a fixed seed, to evaluate on "
        "instead of training on them, if there is no dev split; 0 requires a dev split.",
        minimum=0,
        maximum=1,
        affects=READING,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadSettings(SettingsGroup):
    """Settings of programs whose task has a head with a dropout rate of its own."""

    GROUP = "model"

    dropout_prob: float = setting(
        0.1,
        "Dropout rate of the task head; 0 disables dropout.",
        minimum=0,
        affects=TRAINING,
    )
