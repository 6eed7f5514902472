"""Settings that every program that trains has: model, devices, and the training itself.

TensorFlow is not imported here.
"""

from __future__ import annotations

import dataclasses
import glob
import importlib.util
import sys
from typing import TYPE_CHECKING

from albert_tf import files, tensorflow_packages
from albert_tf.checkpoints.model_folder import ModelPath
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.model.config import config_file
from albert_tf.model.optimizer_names import OPTIMIZERS
from albert_tf.settings import MODEL, REQUIRED, TRAINING, SettingsGroup, fields_of, setting

if TYPE_CHECKING:
    from typing_extensions import Self

# What a driver adds on Linux: NVIDIA's, also in Windows Subsystem for Linux, and others.
NVIDIA_FILES = ("/dev/nvidia[0-9]*", "/dev/dxg")
_OTHER_FILES = ("/dev/nvidia*", "/dev/nvhost*", "/dev/nvmap", "/dev/kfd", "/dev/dri/renderD*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings(SettingsGroup):
    """Which model is trained, where its weights come from and where results go."""

    GROUP = "model"

    albert_config_file: str | None = setting(
        None,
        "JSON file with the architecture of the model: Google's albert_config.json or Hugging "
        "Face's config.json, or the name of a released architecture, such as albert_base; if not "
        "given, the file next to the weights is used.",
    )
    output_dir: str = setting(
        REQUIRED,
        "Folder for checkpoints, logs and results; if it contains a run already, that run is "
        "resumed.",
    )
    init_checkpoint: str | None = setting(
        None,
        "Checkpoint, its folder, or the name of a downloaded model, to initialize the weights from "
        "if output_dir has none yet; if not given, training starts from random weights.",
    )
    allow_partial_init: bool = setting(
        False,
        "Accept an init_checkpoint in which variables of the encoder are missing, and initialize "
        "these randomly.",
    )
    allow_changed_settings: bool = setting(
        False,
        "Resume or use a model even if its data, vocabulary or settings are not those it was "
        "trained with.",
    )

    def check_paths(self) -> None:
        """Checks the config and the output folder."""
        super().check_paths()
        if self.albert_config_file:
            files.check_file(config_file(self.albert_config_file), "--albert_config_file")
        files.check_writable(self.output_dir, "--output_dir")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceSettings(SettingsGroup):
    """Where and in which precision a run computes."""

    GROUP = "devices"

    distribution: str = setting(
        "auto",
        "Distribution strategy; auto uses the TPU if use_tpu is set, else the workers in "
        "TF_CONFIG, else all local GPUs, else the CPU.",
        choices=("auto", "one_device", "mirrored", "multi_worker", "tpu"),
    )
    num_devices: int | None = setting(
        None,
        "Number of local devices to train on; if not given, all GPUs, or the CPU if there is none.",
        minimum=1,
        is_optional=True,
    )
    precision: str = setting(
        "auto",
        "Precision of matmuls and activations, with variables in float32; auto uses bfloat16 if "
        "the hardware supports it, float16 on older GPUs, else float32.",
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    jit_compile: str = setting(
        "auto",
        "Compile the training step with XLA, or with several devices the gradients of each; auto "
        "does so on GPUs.",
        choices=("auto", "true", "false"),
    )
    fused_attention: bool = setting(
        True,
        "Compute attention on an NVIDIA GPU by cuDNN and Triton, which write no scores to memory: "
        "in steps compiled with XLA, in bfloat16 or float16, with batches of one "
        "length, a multiple of 64, and heads of at most 128 units; and the other parts of a layer "
        "by kernels of one pass. Each is tried at the start; what the GPU does not take stays as "
        "XLA compiles it, and the log says why.",
    )
    gradient_checkpointing: bool = setting(
        False,
        "Recompute the activations of each layer in the backward pass instead of storing them, "
        "which saves memory and takes longer.",
    )
    threads: int | None = setting(
        None,
        "Number of CPU threads per operation; if not given, one per core.",
        minimum=1,
        is_optional=True,
        maximum=4096,  # TensorFlow dies or hangs where it cannot create them
    )
    use_tpu: bool = setting(False, "Train on a TPU.")
    tpu_name: str | None = setting(
        None, "Name or address of the TPU; if not given, the TPU of this machine is used."
    )
    tpu_zone: str | None = setting(
        None, "Google Cloud zone of the TPU; if not given, it is detected."
    )
    gcp_project: str | None = setting(
        None, "Google Cloud project of the TPU; if not given, it is detected."
    )

    def check_paths(self) -> None:
        """Checks that TensorFlow is there, and whether there can be a GPU if one is asked for."""
        super().check_paths()
        tensorflow_packages.check()
        if self.distribution == "multi_worker":
            tensorflow_packages.require_model_garden()
        if self.distribution == "mirrored" and not self.num_devices and cannot_have_gpu():
            raise ValueError(
                "--distribution=mirrored: no driver of a GPU runs on this machine (nvidia-smi "
                "shows NVIDIA's). To use logical devices of the CPU instead, set their number, for "
                "example --num_devices=2."
            )


def has_nvidia_gpu() -> bool:
    """Returns whether NVIDIA's driver has found a GPU."""
    return any(map(glob.glob, NVIDIA_FILES))


def cannot_have_gpu() -> bool:
    """Returns whether no driver of a GPU runs on this machine; False where this is unknown."""
    return sys.platform == "linux" and not any(map(glob.glob, NVIDIA_FILES + _OTHER_FILES))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(SettingsGroup):
    """How a training step is taken, and how often progress is saved and logged."""

    GROUP = "training"

    do_train: bool = setting(False, "Train the model.")
    learning_rate: float | tuple[float, ...] = setting(
        5e-5,
        "Peak learning rate, reached at the end of the warm-up.",
        minimum=0,
        affects=TRAINING,
    )
    train_batch_size: int = setting(
        32,
        "Effective training batch size, in examples per step over all devices and micro-batches.",
        minimum=1,
        maximum=1 << 20,
        affects=TRAINING,
    )
    optimizer: str = setting(
        "adamw",
        "; ".join(f"{name}: {spec.description}" for name, spec in OPTIMIZERS.items()) + ".",
        choices=tuple(OPTIMIZERS),
        affects=TRAINING,
    )
    weight_decay: float = setting(
        0.01,
        "Weight decay of all weights but biases and LayerNorm; 0 disables it.",
        minimum=0,
        affects=TRAINING,
    )
    seed: int = setting(
        12345,
        "Random seed of weight initialization, dropout and the order of the training data.",
        minimum=0,
        maximum=2**32 - 1,  # of NumPy's seeds
        affects=TRAINING,
    )
    save_checkpoints_steps: int = setting(
        5000, "Number of training steps between checkpoints.", minimum=1
    )
    keep_checkpoint_max: int = setting(
        5, "Number of most recent checkpoints to keep; 0 keeps all.", minimum=0
    )
    gradient_accumulation_steps: int = setting(
        1,
        "Number of micro-batches per training step, which each device processes one after the "
        "other to save memory; 1 means no accumulation.",
        minimum=1,
    )
    clip_per_replica: bool = setting(
        False,
        "Clip the gradient of each device before the gradients are summed, as Google's programs "
        "do on TPUs, instead of clipping their sum.",
        affects=TRAINING,
    )
    nan_policy: str = setting(
        "stop",
        "What to do if the loss or gradient of a step is NaN or infinite: stop training or skip "
        "the step.",
        choices=("stop", "skip"),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSettings(SettingsGroup):
    """Whether and how checkpoints are evaluated."""

    GROUP = "evaluation"

    do_eval: bool = setting(False, "Evaluate every checkpoint and keep the best one.")
    eval_batch_size: int | None = setting(8, "Evaluation batch size, in examples.", minimum=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSettings(SettingsGroup):
    """Where the trained model is exported to."""

    GROUP = "prediction and export"

    export_dir: str | None = setting(
        None,
        "Folder to export the best checkpoint to as a SavedModel; if not given, nothing is "
        "exported.",
    )

    def check_paths(self) -> None:
        """Checks the folder of the export."""
        super().check_paths()
        if self.export_dir:
            files.check_writable(self.export_dir, "--export_dir")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoggingSettings(SettingsGroup):
    """How often a run reports, and what it draws."""

    GROUP = "logging"

    log_steps: int | None = setting(
        None,
        "Number of training steps between reports in the log and in metrics.jsonl; if not given, "
        "100, or a tenth of a shorter run.",
        minimum=1,
        is_optional=True,
    )
    report_to: str = setting(
        "tensorboard",
        "Where metrics and settings are reported besides the log and metrics.jsonl: to "
        "TensorBoard, or by its files also to Weights & Biases (wandb).",
        choices=("wandb", "tensorboard"),
    )
    plots: bool = setting(True, "Plot the results at the end.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.report_to == "wandb":
            module_spec = importlib.util.find_spec("wandb")
            # A spec without origin is a mere folder, such as that of wandb's logs.
            if module_spec is None or module_spec.origin is None:
                raise ValueError("report_to=wandb requires wandb: pip install 'albert-tf2[wandb]'")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings(
    ModelSettings, DeviceSettings, LoggingSettings, EvaluationSettings, TrainingSettings
):
    """Base of the settings of every program that trains."""

    @property
    def names_for_training(self) -> set[str]:
        """The settings that the result of training depends on."""
        return {f.name for f in fields_of(type(self)) if f.affects in (TRAINING, MODEL)}

    @property
    def names_for_model(self) -> set[str]:
        """The settings that evaluation and prediction need as they were in training."""
        return {field.name for field in fields_of(type(self)) if field.affects == MODEL}

    @property
    def weights(self) -> str | None:
        """Checkpoint, folder or name of a model that a run starts with; None for random weights."""
        return self.init_checkpoint

    @property
    def source(self) -> ModelSource:
        """The model that a run starts with: that of `weights`, or else that in its own folder.

        Once the run has trained, its own folder has the record of the training.
        """
        return self._source_at(self._place)

    @property
    def _place(self) -> ModelPath:
        """Where the model is that a run starts with."""
        return ModelPath(self.weights or self.output_dir)

    def _source_at(self, place: ModelPath) -> ModelSource:
        """Returns the `source` in a place, whose folder is not listed again."""
        trained = self.trained_in(RunFolder(self.output_dir), place)
        return ModelSource(place, trained, self.albert_config_file)

    def trained_in(self, folder: RunFolder, place: ModelPath | None = None) -> RunFolder | None:
        """Returns the folder of the weights that a run starts with; None for random weights.

        This is the run's own folder if it contains a trained model, else that of `weights`.

        Args:
            folder: the folder of the run.
            place: where the weights are, if they were looked for.
        """
        if folder.is_trained or (folder.has_checkpoint and not self.do_train):
            return folder
        if not self.weights:
            return None
        return (place or self._place).folder.records

    def completed(self) -> Self:
        """Returns these settings with the model's files that are next to its weights.

        All paths are checked. TensorFlow is not imported for local paths, so that mistakes are
        reported early.

        Raises:
            ValueError, OSError: a file or folder is missing or unusable, or neither a config nor
                weights are given. The message names the flag, and what was looked for.
        """
        settings = self._with_model_files(self._place)
        settings.check_paths()
        return settings

    def _with_model_files(self, place: ModelPath) -> Self:
        """Returns these settings with the weights and the files of the model; see `completed`."""
        init_checkpoint = self.weights and place.path
        if self.weights and not RunFolder(self.output_dir).checkpoints():  # a new run
            try:
                _ = place.checkpoint
            except FileNotFoundError as error:
                raise FileNotFoundError(f"--init_checkpoint: {error}") from None
        config_file = self.albert_config_file
        if not config_file:
            if not self._has_weights:
                raise ValueError(
                    "--albert_config_file is required: an albert_config.json, or the name of an "
                    "architecture, such as albert_base, for random weights; or --init_checkpoint, "
                    "a model to start with"
                )
            config_file = self._source_at(place).config_file
        return dataclasses.replace(
            self, init_checkpoint=init_checkpoint, albert_config_file=config_file
        )

    @property
    def _has_weights(self) -> bool:
        """Whether the run starts with weights of others, or has its own."""
        return bool(self.weights) or RunFolder(self.output_dir).checkpoint is not None

    def require_a_phase(self) -> None:
        """Raises ValueError when nothing is asked for, which is an error on a command line."""
        if not self.do_train and not self.do_eval:
            raise ValueError("nothing to do: give --do_train, --do_eval or both")
