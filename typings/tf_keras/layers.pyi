"""See `typings/tf_keras`."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

def __getattr__(name: str) -> Any: ...

class Layer(tf.Module):
    built: bool
    def __init__(
        self, trainable: bool = True, name: str | None = None, dtype: Any = None, **kwargs: Any
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...  # as its `call`
    def add_weight(
        self,
        name: str | None = None,
        shape: Sequence[int] | None = None,
        dtype: str | None = None,
        initializer: Any = None,
        **kwargs: Any,
    ) -> tf.Variable: ...
    def get_config(self) -> dict[str, Any]: ...
    @property
    def compute_dtype(self) -> str: ...
    @property
    def dtype_policy(self) -> Any: ...
    @property
    def weights(self) -> list[tf.Variable]: ...
    @property
    def variables(self) -> list[tf.Variable]: ...
    @property
    def trainable_weights(self) -> list[tf.Variable]: ...
    @property
    def trainable_variables(self) -> list[tf.Variable]: ...
    @property
    def non_trainable_weights(self) -> list[tf.Variable]: ...
