"""Parameters, FLOPs and memory of a pre-training step.

Everything here follows from the config and the shape of the batch; nothing is measured.
Dimensions are those of `modeling.py`: B rows, S tokens, P masked positions, V vocabulary, E
embedding size, H hidden size, I intermediate size, A attention heads.
"""

from __future__ import annotations

import dataclasses

from albert_tf.model.config import AlbertConfig
from albert_tf.model.objectives import SOP, find
from albert_tf.model.optimizer_names import OPTIMIZERS

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
