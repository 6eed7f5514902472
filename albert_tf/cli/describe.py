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
from albert_tf.checkpoints import finding
from albert_tf.data.settings import MaskingSettings, SequenceSettings
from albert_tf.model.config import OPTIMIZERS, AlbertConfig, config_file
from albert_tf.model.objectives import SOP, find
from albert_tf.settings import REQUIRED, SettingsGroup, redefined, setting
from albert_tf.training.settings import DeviceSettings, TrainingSettings

# Parameters, FLOPs and memory of a pre-training step.
#
# Everything here follows from the config and the shape of the batch; nothing is measured.
# Dimensions are those of `modeling.py`: B rows, S tokens, P masked positions, V vocabulary, E
# embedding size, H hidden size, I intermediate size, A attention heads.

FLOAT_BYTES = 4
FORWARD_AND_BACKWARD = 3  # the backward pass takes two matmuls for each of the forward pass


@dataclasses.dataclass(frozen=True)
class StepShape:
    """Shape of the batch of one device.

    Attributes:
        rows: B, number of sequences.
        length: S, tokens per sequence.
        predictions: P, masked positions per sequence.
    """

    rows: int
    length: int
    predictions: int

    @property
    def tokens(self) -> int:
        """Number of tokens, B · S."""
        return self.rows * self.length


def count_parameters(config: AlbertConfig) -> int:
    """Returns the number of weights of the encoder and both pre-training heads.

    The sentence head is the default one; in one of another objective, each class has H + 1 weights.
    """
    H, width = config.hidden_size, _head_width(config)  # noqa: N806
    masked_lm = (H + 1) * width + 2 * width + config.vocab_size  # dense, LayerNorm, output bias
    sentence_head = find(SOP).num_classes * (H + 1)
    return config.num_weights + masked_lm + sentence_head


def _head_width(config: AlbertConfig) -> int:
    """Returns the hidden size of the masked-LM head."""
    return config.hidden_size if config.layout == "albert_zh" else config.embedding_size


def step_flops(config: AlbertConfig, shape: StepShape) -> float:
    """Returns the FLOPs of all matmuls of a training step on one device.

    The last block computes only the rows of the masked positions and of [CLS], except for its keys
    and values (`AlbertEncoder`, argument `output_positions`).

    Args:
        config: the model.
        shape: the batch of the device.
    """
    E, H, I = config.embedding_size, config.hidden_size, config.intermediate_size  # noqa: E741, N806
    blocks = count_blocks(config)
    queried = shape.rows * (shape.predictions + 1)  # the last block computes these only
    computed = (blocks - 1) * shape.tokens + queried  # token positions, summed over all blocks
    # Multiplications: queries and output H·H each, keys and values H·H each, then H·I twice.
    layers = blocks * shape.tokens * 2 * H * H + computed * (2 * H * H + 2 * H * I)
    attention = computed * 2 * shape.length * H
    projected = shape.tokens * E * H if config.has_embedding_projection else 0
    width = _head_width(config)
    # albert_zh's head projects from H to E, as the embeddings do from E to H.
    of_word = H * width + (H * E if config.layout == "albert_zh" else 0) + E * config.vocab_size
    of_pair = H * H + find(SOP).num_classes * H  # pooler and sentence head
    heads = shape.rows * (shape.predictions * of_word + of_pair)
    return 2.0 * FORWARD_AND_BACKWARD * (projected + heads + layers + attention)


def encoder_flops(config: AlbertConfig, shape: StepShape) -> float:
    """Returns the FLOPs of all matmuls of the encoder's forward pass, for all tokens of a batch."""
    E, H, I = config.embedding_size, config.hidden_size, config.intermediate_size  # noqa: E741, N806
    layers = count_blocks(config) * (4 * H * H + 2 * H * I + 2 * shape.length * H)
    projection = E * H if config.has_embedding_projection else 0
    return 2.0 * (shape.tokens * (layers + projection) + shape.rows * H * H)  # pooler


def count_blocks(config: AlbertConfig) -> int:
    """Returns how often a block of attention and feed-forward network is applied."""
    return config.num_hidden_layers * config.inner_group_num


def state_bytes(config: AlbertConfig, bytes_per_value: int, optimizer: str = "adamw") -> int:
    """Returns the memory of weights, their copy for matmuls, gradients and slots, on each device.

    Args:
        config: the model.
        bytes_per_value: 2 in bfloat16 and float16, 4 in float32, where there is no copy.
        optimizer: a key of `OPTIMIZERS`, whose slots count.
    """
    copy = bytes_per_value if bytes_per_value < FLOAT_BYTES else 0
    of_weight = FLOAT_BYTES * (2 + len(OPTIMIZERS[optimizer].slots)) + copy
    return round(count_parameters(config) * of_weight)


def activation_bytes(config: AlbertConfig, shape: StepShape, bytes_per_value: int) -> int:
    """Returns the memory of the activations that the backward pass of one device needs.

    For each token and block: the input, queries, keys and values, the attention output, the outputs
    of both LayerNorms and their normalized inputs, the intermediate layer before its activation,
    and the attention probabilities. In addition, the float32 logits and their gradient.
    """
    H = config.hidden_size  # noqa: N806
    probabilities = config.num_attention_heads * shape.length
    of_block = shape.tokens * (9 * H + config.intermediate_size + probabilities)
    stored = count_blocks(config) * of_block
    logits = 2 * shape.rows * shape.predictions * config.vocab_size
    return bytes_per_value * stored + FLOAT_BYTES * logits


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
    config = AlbertConfig.from_json_file(find_config(settings.model))
    config.check_length(settings.max_seq_length)
    return "\n".join([_headline(settings.model, config), "", *_lines(settings, config)])


def find_config(model: str) -> str:
    """Returns the config file of a model; see `Settings.model`."""
    if model.endswith(".json"):
        return model
    try:
        return finding.find_config(finding.folder_of(finding.find_checkpoint(model)))
    except FileNotFoundError:
        if files.exists(model):
            raise
        return config_file(model)


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
