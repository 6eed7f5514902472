"""What this package uses of Keras with a type: base classes and decorators.

All other names are unknown to type checkers.
"""

from typing import Any

from tf_keras import callbacks as callbacks
from tf_keras import layers as layers
from tf_keras import optimizers as optimizers
from tf_keras import saving as saving

def __getattr__(name: str) -> Any: ...

class Model(layers.Layer):
    optimizer: optimizers.Optimizer
