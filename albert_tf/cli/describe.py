r"""Describes a model: its shape, parameters, FLOPs and memory, without building it.

    albert describe albert_base_v2
    albert describe my_model --max_seq_length=128 --train_batch_size=32

The argument is a config of this package, a config file, a checkpoint, the folder of a model, or the
name of a downloaded one. FLOPs are those of matmuls. The memory of training is an estimate:
weights, gradients, moments of the optimizer and activations.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import ClassVar

from albert_tf import files
from albert_tf.checkpoints.model_folder import ModelPath
from albert_tf.data.settings import MaskingSettings, SequenceSettings
from albert_tf.model.config import AlbertConfig, config_file
from albert_tf.model.costs import (
    StepShape,
    activation_bytes,
    count_blocks,
    count_parameters,
    encoder_flops,
    state_bytes,
)
from albert_tf.settings import REQUIRED, SettingsGroup, redefined, setting
from albert_tf.training.settings import DeviceSettings, TrainingSettings

BYTES = {"float32": 4, "bfloat16": 2}
MILLION = 1e6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(SettingsGroup):
    """Which model, and for which batches."""

    ARGUMENT: ClassVar[str] = "model"

    model: str = setting(
        REQUIRED,
        "Name of a config of this package, config file, checkpoint, folder of a model, or name of "
        "a downloaded one, also without --model=.",
    )
    max_seq_length: int = redefined(SequenceSettings, "max_seq_length", 128, "Tokens per sequence.")
    max_predictions_per_seq: int = redefined(MaskingSettings, "max_predictions_per_seq", 20)
    train_batch_size: int = redefined(
        TrainingSettings, "train_batch_size", 32, "Sequences per training step on one device."
    )
    precision: str = redefined(
        DeviceSettings,
        "precision",
        "float32",
        "Precision of matmuls and activations.",
        choices=tuple(BYTES),
    )


def run(settings: Settings) -> str:
    """Returns the description of a model, for `albert describe`.

    >>> lines = run(Settings(model="albert_base_v2")).splitlines()
    >>> lines[0]
    'albert_base_v2: 12 layers of 768 units, 12 heads, embeddings of 128, 30,000 words'
    >>> lines[-3]
    'FLOPs per token, forward                  174.8 million'

    Raises:
        FileNotFoundError, ValueError: there is no such model, or its config is invalid.
    """
    config = AlbertConfig.for_model(find_config(settings.model))
    config.check_length(settings.max_seq_length)
    return "\n".join([_headline(settings.model, config), "", *_lines(settings, config)])


def find_config(model: str) -> str:
    """Returns the config file of a model; see `Settings.model`."""
    if model.endswith(".json"):
        return model
    try:
        return ModelPath(model).folder_of_checkpoint.config_file
    except FileNotFoundError:
        config = config_file(model)
        if files.exists(model) or config == model:  # it is no name
            raise
        return config


def _headline(model: str, config: AlbertConfig) -> str:
    layout = "" if config.layout == "google" else f", layout {config.layout}"
    return (
        f"{os.path.basename(os.path.normpath(model))}: {count_blocks(config)} layers of "
        f"{config.hidden_size} units, {config.num_attention_heads} heads, embeddings of "
        f"{config.embedding_size}, {config.vocab_size:,} words{layout}"
    )


def _lines(settings: Settings, config: AlbertConfig) -> Iterator[str]:
    """Yields a line for each number."""

    def line(name: str, value: str) -> str:
        return f"{name:34}{value:>13}"

    for name, number in config.weights_by_part.items():
        if number:
            yield line(f"  {name}", f"{number:,}")
    yield line("parameters of the encoder", f"{config.num_weights:,}")
    yield line("with the pre-training heads", f"{count_parameters(config):,}")
    shape = StepShape(
        settings.train_batch_size, settings.max_seq_length, settings.max_predictions_per_seq
    )
    size = BYTES[settings.precision]
    activations = activation_bytes(config, shape, size)
    state = state_bytes(config, size)
    flops = encoder_flops(config, shape) / shape.tokens
    yield ""
    yield f"for {shape.rows} sequences of {shape.length} tokens, {settings.precision}"
    yield line("FLOPs per token, forward", f"{flops / MILLION:,.1f}") + " million"
    yield line("memory of weights and optimizer", f"{state / MILLION:,.0f}") + " MB"
    yield line("memory of a training step", f"{(state + activations) / MILLION:,.0f}") + " MB"
