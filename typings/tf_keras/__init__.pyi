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
    def compile(
        self,
        optimizer: Any = ...,
        loss: Any = ...,
        metrics: Any = ...,
        loss_weights: Any = ...,
        weighted_metrics: Any = ...,
        **kwargs: Any,
    ) -> None: ...
    def fit(self, *args: Any, **kwargs: Any) -> Any: ...
    def evaluate(self, *args: Any, **kwargs: Any) -> Any: ...
    def predict(self, *args: Any, **kwargs: Any) -> Any: ...
    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any: ...
    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any: ...
    def predict_on_batch(self, *args: Any, **kwargs: Any) -> Any: ...
    def train_step(self, data: Any) -> Any: ...
