"""Dynamic masking: masks that are drawn during training, new ones in every epoch.

`create_pretraining_data.py --masked_lm_prob=0` writes records without masked tokens. With
`--dynamic_masking`, the input pipeline masks each batch by the same algorithm that the data
program uses (`data.masking`): n-grams of whole words, Chinese words too, since the records mark
where words start.

The masks of an instance are a function of the seed and of its number in the order of training,
which counts on from epoch to epoch. They do not depend on the batch size, on the number of
workers, or on where a run was interrupted. For evaluation, the seed is a constant, and the number
is that of the record.

Shapes: B batch size, S sequence length, P prediction slots.
Source: RoBERTa (arXiv 1907.11692), section 4.1.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from albert_tf.data.dynamic_masks import mask_instances
from albert_tf.data.record_metadata import FoundRecords
from albert_tf.data.settings import MaskingSettings
from albert_tf.pretraining.features import MADE_BY_MASKING, TOKEN_BOUNDARY
from albert_tf.training.task import Batch

EVALUATION_SEED = 20  # any constant: the masks of an evaluation are the same in all runs


@dataclasses.dataclass(frozen=True)
class DynamicMasking:
    """Masks batches of parsed records.

    Attributes:
        settings: how tokens are chosen.
        mask_id: id of [MASK].
        vocab_size: number of entries of the vocabulary, from which random tokens are drawn.
        seed: random seed.
    """

    settings: MaskingSettings
    mask_id: int
    vocab_size: int
    seed: int

    def for_evaluation(self) -> DynamicMasking:
        """Returns the same masking with a seed that is equal in all runs."""
        return dataclasses.replace(self, seed=EVALUATION_SEED)

    def mask(self, batch: Batch, first: tf.Tensor) -> Batch:
        """Returns a batch with masked tokens and their labels.

        Args:
            batch: `input_ids`, `input_mask` and `token_boundary`, int32 [B, S], and other features,
                which stay as they are.
            first: number of the first instance of the batch, an int64 scalar.
        """
        others = dict(batch)
        arguments = [others.pop("input_ids"), batch["input_mask"], others.pop(TOKEN_BOUNDARY)]
        names = ("input_ids", *MADE_BY_MASKING)

        def mask_arrays(*arrays: Any) -> list[NDArray[np.generic]]:
            masked = self.mask_arrays(*arrays)
            return [masked[name] for name in names]

        dtypes = [tf.int32, tf.int32, tf.int32, tf.float32]
        tensors = tf.numpy_function(mask_arrays, [*arguments, first], dtypes, stateful=False)
        shape = arguments[0].shape
        shapes = [shape, *[(shape[0], self.settings.prediction_slots)] * len(MADE_BY_MASKING)]
        return others | dict(zip(names, map(tf.ensure_shape, tensors, shapes), strict=True))

    def mask_arrays(
        self,
        input_ids: NDArray[np.int32],
        input_mask: NDArray[np.int32],
        token_boundary: NDArray[np.int32],
        first: int,
    ) -> dict[str, NDArray[np.generic]]:
        """Returns what `mask_batch` returns for some instances.

        Args:
            input_ids: int32 [B, S].
            input_mask: int32 [B, S].
            token_boundary: int32 [B, S].
            first: number of the first instance; the others follow it.
        """
        by = self.settings, self.mask_id, self.vocab_size, self.seed
        return mask_instances(input_ids, input_mask, token_boundary, first, *by)


def for_records(found: FoundRecords, settings: MaskingSettings, seed: int) -> DynamicMasking | None:
    """Returns how to mask records, or None if they contain masked tokens already.

    Args:
        found: the record files, with their metadata.
        settings: how tokens are chosen.
        seed: random seed.

    Raises:
        ValueError: only some of the files contain masked tokens, or their labels depend on how
            albert_zh masks words.
    """
    unmasked = {
        path: info
        for path, info in found.items()
        if info and info.settings.get("masked_lm_prob") == 0
    }
    if not unmasked:
        return None
    for path, info in unmasked.items():
        if info.settings.get("albert_zh_compat"):
            raise ValueError(
                f"{path} was created with albert_zh_compat, whose labels depend on the masked "
                "words. Create the records with --segment_chinese_words instead."
            )
    if masked := found.keys() - unmasked.keys():
        raise ValueError(
            f"{min(masked)} contains masked tokens, but {min(unmasked)} does not: expected records "
            "that were all created with --masked_lm_prob=0"
        )
    fields = (field.name for field in dataclasses.fields(MaskingSettings))
    only = MaskingSettings(**{name: getattr(settings, name) for name in fields})
    return DynamicMasking(only, info.mask_id, info.vocabulary["size"], seed)
