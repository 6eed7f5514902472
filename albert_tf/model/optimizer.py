"""What the training loop needs of an optimizer: the base class of `Lamb` and `AdamW`."""

from __future__ import annotations

import abc
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf
import tf_keras

from albert_tf.files import JsonObject
from albert_tf.model.fit_schedule import FitSchedule
from albert_tf.model.keras_optimizer import KerasOptimizer, KerasOptions
from albert_tf.model.optimizer_names import OPTIMIZERS
from albert_tf.model.schedules import WarmUpPolynomialDecay, check_rate
from albert_tf.model.tensorflow_internals import call_for_all_replicas, is_inside_xla

if TYPE_CHECKING:
    from typing_extensions import Unpack

WEIGHT_DECAY = 0.01  # Google's


class OptimizerOptions(KerasOptions, total=False):
    """Arguments of `Optimizer` besides the learning rate and the weight decay."""

    exclude: str
    name: str | None
    jit_compile: bool


class Optimizer(KerasOptimizer):
    """Base class of the optimizers: a Keras optimizer with what the training loop needs.

    A new optimizer is a row in `optimizer_names.OPTIMIZERS` and a subclass with the decorator
    `named(<its name>)`, which implements `updated` and, if its slots do not have the shape of the
    weights, `slot_shape`. Its constructor takes the learning rate and the weight decay; other
    arguments have defaults. `TrainStep` and `Trainer` use

        build(variables)                     creates the slots
        slot_variables(variables)            the slots under their names in checkpoints
        apply_gradients_if(is_applied, …)    updates the variables, or skips a bad step
        iterations, learning_rate            the step counter and the rate of the last update

    Weight decay is decoupled from the gradient: it is part of `updated`, see `decay_rate`.

    Args:
        learning_rate: a number or a `LearningRateSchedule`.
        weight_decay: the weight decay, called `weight_decay_rate` by Google; 0 disables it.
        exclude: regular expression that is searched for in the names of variables. Matching
            variables get no weight decay. The default matches biases and the weights of LayerNorm.
        name: name of the optimizer.
        jit_compile: whether to compile the update of each variable with XLA on GPUs. The updates of
            large variables are always compiled.
        **kwargs: arguments of `tf_keras.optimizers.Optimizer`, such as `global_clipnorm`.
    """

    slots: tuple[str, ...]  # as in `OptimizerSpec`; `named` sets them

    def __init__(
        self,
        learning_rate: float | tf_keras.optimizers.schedules.LearningRateSchedule,
        weight_decay: float = WEIGHT_DECAY,
        exclude: str = "LayerNorm|layer_norm|bias",
        name: str | None = None,
        jit_compile: bool = False,
        **kwargs: Unpack[KerasOptions],
    ) -> None:
        check_rate(learning_rate)
        name = name or type(self).__name__
        super().__init__(learning_rate, weight_decay, name, jit_compile, **kwargs)
        self.exclude = exclude
        self._slot_variables: list[dict[str, tf.Variable]] = []  # by the numbers of variables

    @abc.abstractmethod
    def updated(
        self,
        variable: tf.Variable,
        gradient: tf.Tensor,
        slots: dict[str, tf.Tensor],
        is_applied: tf.Tensor,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the value of a variable after an update, and those of its slots.

        Args:
            variable: the variable, before the update.
            gradient: its gradient, dense and finite.
            slots: the values of its slots.
            is_applied: bool scalar; False in a skipped step, which changes nothing.
        """

    def slot_shape(self, slot: str, variable: tf.Variable) -> tf.TensorShape | Sequence[int]:
        """Returns the shape of a slot: by default that of the variable."""
        shape: tf.TensorShape = variable.shape
        return shape

    def decay_rate(self, variable: tf.Variable) -> float:
        """Returns the weight decay of a variable, 0 if it is excluded."""
        return self.weight_decay if self.is_decayed(variable) else 0.0

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Creates the slots of `var_list`. Further calls have no effect."""
        super().build(var_list)
        if self._slot_variables:
            return
        self._slot_variables = [{} for _ in var_list]
        for slot in self.slots:
            for variable, slots in zip(var_list, self._slot_variables, strict=True):
                shape = self.slot_shape(slot, variable)
                slots[slot] = self.add_variable_from_reference(variable, slot, shape)

    def slot_variables(self, var_list: Sequence[tf.Variable]) -> dict[str, tf.Variable]:
        """Returns the slots under their names in checkpoints, such as `<variable>/adam_m`."""
        self.build(var_list)
        return {
            f"{variable.name.split(':')[0]}/{slot}": self._slots_of(variable)[slot]
            for slot in self.slots
            for variable in var_list
        }

    def _slots_of(self, variable: tf.Variable) -> dict[str, tf.Variable]:
        return self._slot_variables[self.number_of(variable)]

    def is_decayed(self, variable: tf.Variable) -> bool:
        """Returns whether a variable is not excluded, also by `exclude_from_weight_decay`."""
        is_matched = bool(self.exclude) and re.search(self.exclude, variable.name) is not None
        return not is_matched and self.is_included_in_decay(variable)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[tf.Tensor, tf.Variable]],
        **kwargs: object,
    ) -> tf.Variable:
        """Updates variables; see `tf_keras.optimizers.Optimizer`.

        The first step after the end of a `WarmUpPolynomialDecay`, from which on the learning rate
        is 0, prints a warning to standard error, except in functions that XLA compiles.

        Raises:
            ValueError: the schedule is a `FitSchedule` that no `fit` has begun.
        """
        self._check_begun()
        self._warn_of_end()
        return super().apply_gradients(grads_and_vars, **kwargs)

    def _check_begun(self) -> None:
        if isinstance(self.schedule, FitSchedule) and not self.schedule.is_begun:
            raise ValueError(
                "num_train_steps=None: only fit of the models of albert_tf, such as "
                "AlbertForClassification, sets the number of steps. In a model of your own and in "
                "a loop of your own, pass num_train_steps"
            )

    def _warn_of_end(self) -> None:
        """Prints a warning in the first step whose learning rate is 0 because the schedule ended.

        The training loop of Keras calls Python only in its first step, so this is part of the step.
        """
        schedule = self.schedule
        if not isinstance(schedule, WarmUpPolynomialDecay) or is_inside_xla():
            return
        text = (
            f"WARNING: the learning rate schedule of {schedule.num_train_steps} steps has ended: "
            "from now on, the learning rate is 0 and training changes nothing. For another `fit`, "
            "call `compile` with a new optimizer, whose num_train_steps is that of all its epochs"
        )
        tf.cond(
            tf.equal(self.iterations, schedule.num_train_steps),
            lambda: tf.print(text, output_stream=sys.stderr),
            lambda: tf.no_op(),
        )

    def update_step(self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable) -> None:
        """Updates one variable. Keras calls this from `apply_gradients`."""
        self._update(variable, gradient, tf.constant(True))

    def apply_gradients_if(
        self,
        is_applied: tf.Tensor,
        grads_and_vars: Iterable[tuple[tf.Tensor, tf.Variable]],
    ) -> None:
        """Updates the variables if a condition holds, and increments `iterations` in any case.

        `updated` handles the condition, so no `tf.cond` is needed, inside which replicas cannot
        communicate. With a distribution strategy, call this in replica context.

        Args:
            is_applied: bool scalar, the same in all replicas.
            grads_and_vars: pairs of a finite gradient, summed over all replicas, and a variable
                that was passed to `build`.
        """
        self.update_learning_rate()
        call_for_all_replicas(self._update_on_all_replicas, list(grads_and_vars), is_applied)

    def _update_on_all_replicas(
        self,
        strategy: tf.distribute.Strategy,
        grads_and_vars: list[tuple[tf.Tensor, tf.Variable]],
        is_applied: tf.Tensor,
    ) -> None:
        for gradient, variable in grads_and_vars:
            strategy.extended.update(
                variable, self._update, args=(gradient, is_applied), group=False
            )
        self.iterations.assign_add(1)

    def _update(
        self,
        variable: tf.Variable,
        gradient: tf.Tensor | tf.IndexedSlices,
        is_applied: tf.Tensor,
    ) -> None:
        """Updates a variable and its slots, or leaves them unchanged if `is_applied` is False."""
        slots = self._slots_of(variable)
        values = {slot: tf.convert_to_tensor(value) for slot, value in slots.items()}
        weight, values = self.updated(variable, tf.convert_to_tensor(gradient), values, is_applied)
        for slot, value in values.items():
            slots[slot].assign(value)
        variable.assign(weight)

    def get_config(self) -> JsonObject:
        """Returns the constructor's arguments, with schedules serialized."""
        learning_rate = self.learning_rate_config()
        return super().get_config() | {"learning_rate": learning_rate, "exclude": self.exclude}


CLASSES: dict[str, type[Optimizer]] = {}  # by the names in `OPTIMIZERS`


def named(name: str) -> Callable[[type[Optimizer]], type[Optimizer]]:
    """Decorator of the class of an optimizer: gives it the slots of its row.

    Args:
        name: a key of `OPTIMIZERS`.
    """

    def register(kind: type[Optimizer]) -> type[Optimizer]:
        kind.slots = OPTIMIZERS[name].slots
        CLASSES[name] = kind
        return tf_keras.saving.register_keras_serializable(package="albert_tf")(kind)

    return register
