"""Tests the lookup of character properties."""

import tensorflow as tf

from albert_tf.serving.graph_characters import CharacterTable


def test_characters_of_all_planes_are_looked_up():
    table = CharacterTable(lambda char: 1 + char.isspace() + 2 * char.isdigit())
    chars = "a 7\u3000\u00b2\U0002a6d6\U000e0041\U0010ffff"
    found = table.look_up(tf.constant([list(map(ord, chars))]))
    assert found.dtype == tf.int32
    assert found.numpy().tolist() == [[1, 2, 3, 2, 3, 1, 1, 1]]
