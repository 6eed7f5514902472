"""The masks of batches that are masked in training, as a function of seed and place in the order.

Needs nothing but NumPy and the modules beside it, so that a machine without TensorFlow can mask.

Shapes: B batch size, S sequence length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from albert_tf.data.masking import mask_batch, num_to_predict
from albert_tf.data.random_streams import PerInstanceStream

if TYPE_CHECKING:
    from albert_tf.data.settings import MaskingSettings

# Mixed into the seed, so that masks have a random stream separate from that of the shuffle.
_MASKS = 4


def mask_instances(
    input_ids: NDArray[np.int32],
    input_mask: NDArray[np.int32],
    token_boundary: NDArray[np.int32],
    first: int,
    settings: MaskingSettings,
    mask_id: int,
    vocab_size: int,
    seed: int,
) -> dict[str, NDArray[np.generic]]:
    """Returns what `mask_batch` returns for some instances.

    Args:
        input_ids: int32 [B, S].
        input_mask: int32 [B, S].
        token_boundary: int32 [B, S], 1 for the first token of a word.
        first: number of the first instance in the order of training; the others follow it.
        settings: how tokens are chosen.
        mask_id: id of [MASK].
        vocab_size: number of entries of the vocabulary, from which random tokens are drawn.
        seed: random seed.
    """
    lengths = input_mask.sum(axis=1)  # [B]
    # [CLS] is the first token of an instance and [SEP] the last one. As in the data program,
    # no token with one of their ids is masked.
    special = input_ids[:, :1], np.take_along_axis(input_ids, lengths[:, None] - 1, axis=1)
    is_special = (input_ids == special[0]) | (input_ids == special[1])  # [B, S]
    count, seq_length = input_ids.shape
    stream = PerInstanceStream((seed, _MASKS), int(first), count, settings, seq_length)
    return mask_batch(
        input_ids,
        token_boundary > 0,
        (input_mask > 0) & ~is_special,
        num_to_predict(lengths, settings),
        settings,
        mask_id,
        vocab_size,
        stream,
    )
