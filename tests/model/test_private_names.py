"""What this package needs of TensorFlow and tf_keras without a public name is there."""

from __future__ import annotations

import re

import pytest
import tensorflow as tf
import tf_keras

from albert_tf.model import keras_optimizer
from albert_tf.model.optimization import AdamW
from albert_tf.model.tensorflow_internals import is_inside_xla
from tests.conftest import ROOT

# Attributes of instances are set in the constructor.
OPTIMIZER = tf_keras.optimizers.Adam()


@pytest.mark.parametrize("name", re.findall(r"`(_\w+)`", keras_optimizer.__doc__ or ""))
def test_keras_has_the_private_names_of_optimizers(name):
    OPTIMIZER.build([])
    assert hasattr(OPTIMIZER, name)


def test_private_names_are_used_in_their_files_alone():
    private = (
        r"__internal__|tf_keras\.src|tensorflow\.(compiler|python)|self\.(_index_dict|_var_key)\b"
    )
    found = {
        path.name
        for path in (ROOT / "albert_tf").rglob("*.py")
        if re.search(private, path.read_text(encoding="utf-8"))
    }
    assert found == {
        "keras_3.py",
        "keras_optimizer.py",
        "tensorflow_internals.py",
        "tensorflow_releases.py",
    }


def test_a_variable_that_was_excluded_from_decay_is_not_decayed():
    kernel, other = tf.Variable([1.0], name="kernel"), tf.Variable([1.0], name="other")
    optimizer = AdamW(0.5)
    optimizer.exclude_from_weight_decay(var_list=[other])
    optimizer.build([kernel, other])
    assert [optimizer.number_of(variable) for variable in (kernel, other)] == [0, 1]
    assert [optimizer.is_decayed(variable) for variable in (kernel, other)] == [True, False]


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_function_knows_whether_xla_compiles_it(jit_compile):
    seen = []

    @tf.function(jit_compile=jit_compile, autograph=False)
    def traced(x):
        seen.append(is_inside_xla())
        return x

    traced(tf.constant(1.0))
    assert seen[-1] is jit_compile
    assert not is_inside_xla()
