"""Tests the names of the poolings."""

from albert_tf.inference.settings import Settings
from albert_tf.serving.poolings import POOLINGS
from albert_tf.settings import describe


def test_the_setting_has_every_pooling():
    (field,) = (field for field in describe(Settings) if field.name == "pooling")
    assert tuple(field.choices) == POOLINGS
