"""What Python knows about characters, inside a TensorFlow graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

# All characters of the planes that have any with properties of their own; the characters beyond
# them are like the last one here, which is assigned to nothing.
_NUM_CODES = 0x30000
_SURROGATES = range(0xD800, 0xE000)  # in no valid text


class CharacterTable(tf.Module):
    """A small number for each character.

    Args:
        function: takes a character, and returns its number, 0 to 127.
    """

    def __init__(self, function: Callable[[str], int]) -> None:
        super().__init__(name="characters")
        numbers = np.zeros(_NUM_CODES, np.int8)
        for code in range(_NUM_CODES):
            if code not in _SURROGATES:
                numbers[code] = function(chr(code))
        self._numbers = tf.constant(numbers)

    def look_up(self, codes: tf.Tensor) -> tf.Tensor:
        """Returns the numbers, int32, of code points, int32, in the same shape."""
        numbers = tf.gather(self._numbers, tf.minimum(codes, _NUM_CODES - 1))
        return tf.cast(numbers, tf.int32)
