"""The random numbers for masking: one stream for a batch, or one for each numbered instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from albert_tf.data.settings import MaskingSettings

_PHILOX_BLOCK = 4  # numbers for each step of the counter of NumPy's Philox generator


class RandomStream:
    """The random numbers for masking a batch, in which each row is an instance.

    They come from one generator, so that the numbers of a row depend on the other rows.

    Args:
        rng: the generator.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def uniform(self, rows: NDArray[np.integer]) -> NDArray[np.float64]:
        """Returns the next number in [0, 1) of each row: float64 [n].

        Args:
            rows: [n], indices of instances, ascending. One that is repeated gets several numbers.
        """
        return self._rng.random(len(rows))

    def integers(self, rows: NDArray[np.integer], limit: int) -> NDArray[np.int32]:
        """Returns the next integer in [0, limit) of each row: int32 [n]; `rows` as above."""
        return self._rng.integers(0, limit, len(rows), dtype=np.int32)


class PerInstanceStream(RandomStream):
    """A stream for each numbered instance, which depends only on the seed and that number.

    Row n of an endless table of random numbers belongs to instance n. A batch is the same as a part
    of a larger one, whatever process makes it.

    Args:
        seed: random seed of the table.
        first: number of the first instance in the batch; the others follow it.
        count: number of instances.
        settings: how they are masked.
        seq_length: S.
    """

    def __init__(
        self,
        seed: tuple[int, ...],
        first: int,
        count: int,
        settings: MaskingSettings,
        seq_length: int,
    ) -> None:
        # Two numbers for each candidate that is tried, and two for each prediction; tokens are
        # chosen twice with `do_permutation`, and permuted.
        numbers = 2 * seq_length * (1 + settings.do_permutation) + 3 * settings.prediction_slots
        blocks = -(-numbers // _PHILOX_BLOCK)
        bits = np.random.Philox(seed=np.random.SeedSequence(seed)).advance(first * blocks)
        self._table = np.random.Generator(bits).random((count, blocks * _PHILOX_BLOCK))
        self._used = np.zeros(count, np.int64)  # [N], count of numbers drawn from each row

    def uniform(self, rows: NDArray[np.integer]) -> NDArray[np.float64]:
        """See `RandomStream`."""
        wanted = np.bincount(rows, minlength=len(self._used))  # [N]
        before = wanted.cumsum() - wanted  # [N], count of numbers drawn for earlier rows
        columns = self._used[rows] + np.arange(len(rows)) - before[rows]  # [n]
        self._used += wanted
        drawn: NDArray[np.float64] = self._table[rows, columns]
        return drawn

    def integers(self, rows: NDArray[np.integer], limit: int) -> NDArray[np.int32]:
        """See `RandomStream`."""
        return (self.uniform(rows) * limit).astype(np.int32)
