"""See `typings/tf_keras`."""

from typing import Any

import tensorflow as tf

def __getattr__(name: str) -> Any: ...

class LearningRateSchedule:
    def __call__(self, step: tf.Tensor | int) -> tf.Tensor: ...
    def get_config(self) -> dict[str, Any]: ...
