"""Settings that every program that trains has: model, devices, and the training itself.

TensorFlow is not imported here.
"""

from __future__ import annotations

import dataclasses
import os

from albert_tf import files
from albert_tf.checkpoints import finding
from albert_tf.settings import MODEL, REQUIRED, TRAINING, SettingsGroup, describe, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings(SettingsGroup):
    """Which model is trained, where its weights come from and where results go."""

    GROUP = "model"

    albert_config_file: str | None = setting(
        None,
        "JSON file with the architecture of the model: albert_config.json, or the config.json of "
        "Hugging Face's.",
    )
    output_dir: str = setting(
        REQUIRED, "Folder for checkpoints, logs and results; a run found there is resumed."
    )
    init_checkpoint: str | None = setting(
        None, "Checkpoint to initialize the weights from, where output_dir has none yet."
    )
    allow_partial_init: bool = setting(
        False, "Accept an init_checkpoint that lacks some variables of the encoder."
    )
    allow_changed_settings: bool = setting(
        False,
        "Resume or use a run with other data, vocabulary or settings than it was trained with.",
    )

    def check_paths(self) -> None:
        """Checks config, output folder and, unless the run has checkpoints, `init_checkpoint`."""
        super().check_paths()
        if self.albert_config_file:
            files.check_file(self.albert_config_file, "--albert_config_file")
        files.check_writable(self.output_dir, "--output_dir")
        if self.init_checkpoint and not finding.list_checkpoints(self.output_dir):
            try:
                finding.find_checkpoint(self.init_checkpoint)
            except FileNotFoundError as error:
                raise FileNotFoundError(f"--init_checkpoint: {error}") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceSettings(SettingsGroup):
    """Where and in which precision a run computes."""

    GROUP = "devices"

    distribution: str = setting(
        "auto",
        "Distribution strategy; auto uses a TPU with use_tpu, the workers of TF_CONFIG, all local "
        "GPUs, or the CPU.",
        choices=("auto", "one_device", "mirrored", "multi_worker", "tpu"),
    )
    num_devices: int = setting(
        0, "Number of local devices to train on; 0 uses all GPUs, or one CPU.", minimum=0
    )
    worker_timeout: int = setting(
        600, "Number of seconds to wait for the other workers of TF_CONFIG to start.", minimum=1
    )
    precision: str = setting(
        "auto",
        "Mixed precision: dtype of matmuls and activations; auto picks bfloat16 where the hardware "
        "multiplies it. Variables stay float32.",
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    jit_compile: str = setting(
        "auto",
        "Compile the training step with XLA; auto compiles on GPUs only.",
        choices=("auto", "true", "false"),
    )
    recompute: bool = setting(
        False,
        "Gradient checkpointing: keep the activations of one layer and recompute the others in "
        "the backward pass.",
    )
    threads: int = setting(0, "Number of CPU threads of an operation; 0 uses all cores.", minimum=0)
    use_tpu: bool = setting(False, "Train on a TPU.")
    tpu_name: str | None = setting(None, "Name or address of the TPU; default: the local one.")
    tpu_zone: str | None = setting(None, "Zone of the Cloud TPU.")
    gcp_project: str | None = setting(None, "Google Cloud project of the TPU.")

    @property
    def has_workers(self) -> bool:
        """Whether the environment may name other processes to train with, in TF_CONFIG."""
        return bool(os.environ.get("TF_CONFIG")) and self.distribution in ("auto", "multi_worker")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(SettingsGroup):
    """How a training step is taken, and how often progress is saved and logged."""

    GROUP = "training"

    do_train: bool = setting(False, "Train the model.")
    learning_rate: float | tuple[float, ...] = setting(
        5e-5,
        "Peak learning rate, reached at the end of the warm-up.",
        minimum=0,
        decides=TRAINING,
    )
    train_batch_size: int = setting(
        32,
        "Number of examples of a training step, over all devices.",
        minimum=1,
        decides=TRAINING,
    )
    optimizer: str = setting("adamw", "Optimizer.", choices=("adamw", "lamb"), decides=TRAINING)
    seed: int = setting(
        12345,
        "Random seed of new weights, dropout and the order of the data.",
        minimum=0,
        decides=TRAINING,
    )
    save_checkpoints_steps: int = setting(5000, "Number of steps between checkpoints.", minimum=1)
    save_checkpoints_secs: float = setting(
        0.0, "Number of seconds after which a checkpoint is due as well; 0 for never.", minimum=0
    )
    keep_checkpoint_max: int = setting(
        5, "Number of recent checkpoints to keep; 0 keeps all.", minimum=0
    )
    log_steps: int = setting(100, "Number of steps between lines of the log.", minimum=1)
    gradient_accumulation_steps: int = setting(
        1, "Number of micro-batches that each device splits its share of a batch into.", minimum=1
    )
    max_batch_per_device: int = setting(
        0, "Largest micro-batch of a device, in examples; 0 for no limit.", minimum=0
    )
    clip_per_replica: bool = setting(
        False,
        "Clip the gradient of each device before they are summed, as Google's TPU runs.",
        decides=TRAINING,
    )
    nan_policy: str = setting(
        "stop",
        "What a loss or gradient that is not finite does: stop the run or skip the step.",
        choices=("stop", "skip"),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSettings(SettingsGroup):
    """Whether and how checkpoints are evaluated."""

    GROUP = "evaluation"

    do_eval: bool = setting(False, "Evaluate checkpoints and keep the best.")
    eval_batch_size: int = setting(8, "Number of examples of an evaluation step.", minimum=1)
    pictures: bool | None = setting(None, "Draw plots; default: if matplotlib is installed.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings(ModelSettings, DeviceSettings, EvaluationSettings, TrainingSettings):
    """Base of the settings of every program that trains."""

    @property
    def names_for_model(self) -> set[str]:
        """The settings that evaluation and prediction need as they were in training."""
        return {field.name for field in describe(type(self)) if field.decides == MODEL}

    def require_a_phase(self) -> None:
        """Raises ValueError when nothing is asked for, which is an error on a command line."""
        if not self.do_train and not self.do_eval:
            raise ValueError("nothing to do: give --do_train, --do_eval or both")
