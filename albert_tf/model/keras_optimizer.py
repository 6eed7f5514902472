"""The optimizer of tf_keras, with public names for what is private in it and needed here.

tf_keras documents that a subclass implements `build`, `update_step` and `get_config`. The training
loop needs more: to update variables on a condition, and to find their slots. Nothing else of this
package uses a private name of tf_keras' optimizers. They are the same in tf_keras 2.16 to 2.21, and
a test says which one another release lacks. What would break without it:

* `_learning_rate`, `_build_learning_rate`: every optimizer of Keras sets the first by the second;
  `learning_rate`, and with it all training, would fail.
* `_compute_current_learning_rate`: the rate of a schedule would stay that of the first step.
* `_serialize_hyperparameter`: saved models would lack their schedule.
* `_index_dict`, `_var_key`: with several devices, each has a copy of a variable, and the slots of a
  copy would not be found.
* `_use_weight_decay`: `exclude_from_weight_decay` would have no effect.
* `_apply_weight_decay`: Keras would decay the weights a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

import tensorflow as tf
import tf_keras

from albert_tf.files import JsonObject
from albert_tf.model import keras_3

if TYPE_CHECKING:
    from typing_extensions import Unpack


class KerasOptions(TypedDict, total=False):
    """Further arguments of `tf_keras.optimizers.Optimizer`."""

    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    use_ema: bool
    ema_momentum: float
    ema_overwrite_frequency: int | None


class KerasOptimizer(tf_keras.optimizers.Optimizer):
    """A Keras optimizer that leaves the decay of weights to its subclass.

    Args:
        learning_rate: a number or a `LearningRateSchedule`.
        weight_decay: the weight decay, which the subclass applies.
        name: name of the optimizer.
        jit_compile: whether Keras compiles the update of each variable with XLA on GPUs.
        **kwargs: further arguments of `tf_keras.optimizers.Optimizer`.
    """

    def __init__(
        self,
        learning_rate: float | tf_keras.optimizers.schedules.LearningRateSchedule,
        weight_decay: float,
        name: str,
        jit_compile: bool,
        **kwargs: Unpack[KerasOptions],
    ) -> None:
        keras_3.refuse(learning_rate, "learning_rate")
        super().__init__(name=name, weight_decay=weight_decay, jit_compile=jit_compile, **kwargs)
        self._learning_rate = self._build_learning_rate(learning_rate)

    def update_learning_rate(self) -> None:
        """Sets `learning_rate` to that of the schedule after `iterations` steps."""
        self._compute_current_learning_rate()

    @property
    def schedule(self) -> object:
        """The schedule of the learning rate; a variable if the learning rate is a number."""
        return self._learning_rate

    def learning_rate_config(self) -> float | JsonObject:
        """Returns the learning rate for `get_config`; a schedule as its own config."""
        config: float | JsonObject = self._serialize_hyperparameter(self._learning_rate)
        return config

    def number_of(self, variable: tf.Variable) -> int:
        """Returns the number of a variable, or of what one is a copy of, in the list of `build`."""
        return self._index_dict[self._var_key(variable)]

    def is_included_in_decay(self, variable: tf.Variable) -> bool:
        """Returns whether `exclude_from_weight_decay` was not called for a variable."""
        return self._use_weight_decay(variable)

    def _apply_weight_decay(self, variables: Sequence[tf.Variable]) -> None:
        """Does nothing. Keras would subtract learning_rate · `weight_decay` · w from variables."""
