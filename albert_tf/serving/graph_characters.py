"""Character properties from Python, inside a TensorFlow graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

# Covers all planes with characters that have distinct properties. Characters beyond them have the
# same properties as the last one here, which is unassigned.
_NUM_CODES = 0x30000
_SURROGATES = range(0xD800, 0xE000)  # never in valid text


class CharacterTable(tf.Module):
    """A lookup table from characters to small numbers.

    Args:
        function: maps a character to its number, 0 to 127.
    """

    def __init__(self, function: Callable[[str], int]) -> None:
        super().__init__(name="characters")
        numbers = np.zeros(_NUM_CODES, np.int8)
        for code in range(_NUM_CODES):
            if code not in _SURROGATES:
                numbers[code] = function(chr(code))
        self._numbers = tf.constant(numbers)

    def look_up(self, codes: tf.Tensor) -> tf.Tensor:
        """Returns the numbers of code points, int32, in the shape of `codes` (int32)."""
        numbers = tf.gather(self._numbers, tf.minimum(codes, _NUM_CODES - 1))
        return tf.cast(numbers, tf.int32)
