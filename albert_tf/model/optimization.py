"""Google ALBERT's optimizers, LAMB and AdamW, albert_zh's LAMB, and the learning rate schedule.

Unlike the implementations in common libraries, these have no bias correction, which matters in
short runs: at step 12, bias correction makes the update 6.6 times smaller. They are Keras
optimizers:

    schedule = WarmUpPolynomialDecay(5e-5, num_train_steps=1000, num_warmup_steps=100)
    model.compile(Lamb(schedule, global_clipnorm=1.0), loss)

`fine_tuning_optimizer` makes the one that fine-tuning usually needs.

Source: `optimization.py` and `lamb_optimizer.py` of google-research/albert; LAMB: arXiv 1904.00962.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from albert_tf.model.kernels import compiled
from albert_tf.model.ops import CPU, op, register_kernel
from albert_tf.model.optimizer_names import OPTIMIZERS

# XLA takes 0.1 s to compile each shape, which pays off from half a million elements on.
MIN_COMPILED_ELEMENTS = 2**19
WEIGHT_DECAY = 0.01  # Google's


@tf_keras.saving.register_keras_serializable(package="albert_tf")
class WarmUpPolynomialDecay(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Google's learning rate schedule: linear warm-up, then polynomial decay to 0.

    The learning rate after t completed steps is
    `learning_rate` · (1 − min(t, T)/T)^power with T = `num_train_steps`. As long as
    t − `start_warmup_step` < `num_warmup_steps`, it is
    `learning_rate` · (t − `start_warmup_step`) / `num_warmup_steps` instead: 0 in the first step of
    the warm-up, and negative before `start_warmup_step`. The decay is measured from step 0, not
    from the end of the warm-up.

    >>> schedule = WarmUpPolynomialDecay(1e-3, num_train_steps=10, num_warmup_steps=2)
    >>> [round(float(schedule(step)), 5) for step in (0, 1, 2, 9, 10)]
    [0.0, 0.0005, 0.0008, 0.0001, 0.0]

    Args:
        learning_rate: the base learning rate, from which the rate decays.
        num_train_steps: T, the step at which the learning rate reaches 0.
        num_warmup_steps: length of the warm-up in steps; 0 disables it.
        start_warmup_step: step at which the warm-up starts.
        power: exponent of the decay; 1.0 is linear.
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        start_warmup_step: int = 0,
        power: float = 1.0,
    ) -> None:
        if num_train_steps < 1:
            raise ValueError(f"num_train_steps={num_train_steps}: expected 1 or more")
        self.learning_rate = learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps
        self.start_warmup_step = start_warmup_step
        self.power = power

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """Returns the learning rate after `step` completed steps, float32 scalar."""
        t = tf.cast(step, tf.float32)
        done = tf.minimum(t, self.num_train_steps) / self.num_train_steps
        rate = self.learning_rate * (1.0 - done) ** self.power
        if not self.num_warmup_steps:
            return rate
        warm = t - self.start_warmup_step
        warm_rate = self.learning_rate * warm / self.num_warmup_steps
        return tf.where(warm < self.num_warmup_steps, warm_rate, rate)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            "learning_rate": self.learning_rate,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
            "start_warmup_step": self.start_warmup_step,
            "power": self.power,
        }


class Optimizer(tf_keras.optimizers.Optimizer):
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
        **kwargs: Any,
    ) -> None:
        super().__init__(
            name=name or type(self).__name__,
            weight_decay=weight_decay,
            jit_compile=jit_compile,
            **kwargs,
        )
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.exclude = exclude

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

    def slot_shape(self, slot: str, variable: tf.Variable) -> Sequence[int]:
        """Returns the shape of a slot: by default that of the variable."""
        return variable.shape

    def decay_rate(self, variable: tf.Variable) -> float:
        """Returns the weight decay of a variable, 0 if it is excluded."""
        return self.weight_decay if self._use_weight_decay(variable) else 0.0

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Creates the slots of `var_list`. Further calls have no effect."""
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._slot_variables: list[dict[str, tf.Variable]] = [{} for _ in var_list]
        for slot in self.slots:
            for variable, slots in zip(var_list, self._slot_variables, strict=True):
                shape = self.slot_shape(slot, variable)
                slots[slot] = self.add_variable_from_reference(variable, slot, shape)
        self._built = True

    def slot_variables(self, var_list: Sequence[tf.Variable]) -> dict[str, tf.Variable]:
        """Returns the slots under their names in checkpoints, such as `<variable>/adam_m`."""
        self.build(var_list)
        return {
            f"{variable.name.split(':')[0]}/{slot}": self._slots_of(variable)[slot]
            for slot in self.slots
            for variable in var_list
        }

    def _slots_of(self, variable: tf.Variable) -> dict[str, tf.Variable]:
        return self._slot_variables[self._index_dict[self._var_key(variable)]]

    def _apply_weight_decay(self, variables: Sequence[tf.Variable]) -> None:
        """Does nothing: the decay is part of the update.

        Keras would additionally subtract learning_rate · `weight_decay` · w from all variables.
        """

    def _use_weight_decay(self, variable: tf.Variable) -> bool:
        """Returns whether a variable is not excluded, also by `exclude_from_weight_decay`."""
        is_matched = bool(self.exclude) and re.search(self.exclude, variable.name) is not None
        return not is_matched and super()._use_weight_decay(variable)

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
        self._compute_current_learning_rate()
        tf.__internal__.distribute.interim.maybe_merge_call(
            self._update_on_all_replicas,
            self._distribution_strategy,
            list(grads_and_vars),
            is_applied,
        )

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

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, with schedules serialized."""
        learning_rate = self._serialize_hyperparameter(self._learning_rate)
        return super().get_config() | {"learning_rate": learning_rate, "exclude": self.exclude}


_CLASSES: dict[str, type[Optimizer]] = {}


def named(name: str) -> Callable[[type[Optimizer]], type[Optimizer]]:
    """Decorator of the class of an optimizer: gives it the slots of its row.

    Args:
        name: a key of `OPTIMIZERS`.
    """

    def register(kind: type[Optimizer]) -> type[Optimizer]:
        kind.slots = OPTIMIZERS[name].slots
        _CLASSES[name] = kind
        return tf_keras.saving.register_keras_serializable(package="albert_tf")(kind)

    return register


@named("adamw")
class AdamW(Optimizer):
    """Adam with decoupled weight decay, and without bias correction.

    For a variable w with the gradient g:

        m ← β₁m + (1−β₁)g,  v ← β₂v + (1−β₂)g²
        u = m / (√v + ε), plus `weight_decay` · w unless w is excluded
        w ← w − learning_rate · u

    The defaults are Google's. Google's programs also clip gradients by their global norm, which is
    `global_clipnorm=1.0` here.

    Args:
        learning_rate: a number or a `LearningRateSchedule`.
        weight_decay: the weight decay, called `weight_decay_rate` by Google; 0 disables it.
        beta_1: β₁ in [0, 1), the exponential decay rate of the first moment m.
        beta_2: β₂ in [0, 1), the exponential decay rate of the second moment v.
        epsilon: ε, added to the square root of the second moment.
        **kwargs: `exclude`, a regular expression for the variables without weight decay and, in
            `Lamb`, without layer adaptation, which are biases and the weights of LayerNorm by
            default; and other arguments of `Optimizer`, such as `name` and `global_clipnorm`.

    >>> kernel = tf.Variable([1.0, 2.0], name="kernel")
    >>> step = AdamW(learning_rate=0.1).apply_gradients([(tf.constant([0.5, -0.5]), kernel)])
    >>> kernel.numpy().round(3)
    array([0.683, 2.314], dtype=float32)
    """

    layer_adaptation = False
    adapts_excluded = False  # whether layer adaptation includes excluded variables

    def __init__(
        self,
        learning_rate: float | tf_keras.optimizers.schedules.LearningRateSchedule,
        weight_decay: float = WEIGHT_DECAY,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def updated(
        self,
        variable: tf.Variable,
        gradient: tf.Tensor,
        slots: dict[str, tf.Tensor],
        is_applied: tf.Tensor,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """See `Optimizer`. The condition selects coefficients, without a pass over the weights."""
        coefficients = AdamCoefficients(
            beta_1=tf.where(is_applied, self.beta_1, 1.0),
            share_1=tf.where(is_applied, 1.0 - self.beta_1, 0.0),
            beta_2=tf.where(is_applied, self.beta_2, 1.0),
            share_2=tf.where(is_applied, 1.0 - self.beta_2, 0.0),
            rate=tf.where(is_applied, tf.convert_to_tensor(self.learning_rate), 0.0),
            epsilon=self.epsilon,
            decay_rate=self.decay_rate(variable),
            adapts=self.layer_adaptation
            and (self.adapts_excluded or self._use_weight_decay(variable)),
        )
        weight = tf.convert_to_tensor(variable)
        m, v, weight = adam_update(gradient, *slots.values(), weight, coefficients)
        return weight, dict(zip(slots, (m, v), strict=True))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, with schedules serialized."""
        names = ("beta_1", "beta_2", "epsilon")
        return super().get_config() | {name: getattr(self, name) for name in names}


class AdamCoefficients(NamedTuple):
    """The numbers of an update with AdamW or LAMB.

    Attributes:
        beta_1: β₁, or 1 in a skipped step, float32 scalar.
        share_1: 1 − β₁, or 0 in a skipped step, float32 scalar.
        beta_2: β₂, or 1 in a skipped step, float32 scalar.
        share_2: 1 − β₂, or 0 in a skipped step, float32 scalar.
        rate: the learning rate, or 0 in a skipped step, float32 scalar.
        epsilon: ε.
        decay_rate: the weight decay.
        adapts: whether the update is scaled by LAMB's trust ratio.
    """

    beta_1: tf.Tensor
    share_1: tf.Tensor
    beta_2: tf.Tensor
    share_2: tf.Tensor
    rate: tf.Tensor
    epsilon: float
    decay_rate: float
    adapts: bool


@op
def adam_update(gradient, m, v, weight, by):
    """Returns the updated moments and weight, given the `AdamCoefficients`."""
    m = by.beta_1 * m + by.share_1 * gradient
    v = by.beta_2 * v + by.share_2 * tf.square(gradient)
    update = m / (tf.sqrt(v) + by.epsilon)
    if by.decay_rate:
        update += by.decay_rate * weight
    if by.adapts:
        update *= trust_ratio(tf.norm(weight), tf.norm(update))
    return m, v, weight - by.rate * update


def _is_large(_, m, *__):
    # Of the moment, because Keras's LossScaleOptimizer gives gradients of unknown shape.
    return m.shape.num_elements() >= MIN_COMPILED_ELEMENTS


@register_kernel(adam_update, CPU, when=_is_large)
@compiled
def _adam_update(gradient, m, v, weight, by):
    """The same operations in one pass over memory."""
    return adam_update.function(gradient, m, v, weight, by)


@named("lamb")
class Lamb(AdamW):
    """LAMB: `AdamW` with the update u of each variable w scaled by the trust ratio ‖w‖/‖u‖.

    The ratio is 1 if either norm is 0. The arguments are those of `AdamW`.

    >>> kernel = tf.Variable([3.0, 4.0], name="kernel")
    >>> step = Lamb(learning_rate=0.1).apply_gradients([(tf.constant([0.5, -0.5]), kernel)])
    >>> round(float(tf.norm(kernel - [3.0, 4.0])), 3)  # 0.1 of the norm of the weights, 5
    0.5
    """

    layer_adaptation = True


@named("lamb_albert_zh")
class LambAlbertZh(Lamb):
    """The LAMB of albert_zh's `run_pretraining.py`, which adapts the update of every variable.

    Unlike in `Lamb`, the trust ratio also applies to variables that match `exclude`, biases and the
    weights of LayerNorm. The moments are called `lamb_m` and `lamb_v` in checkpoints.

    Source: `LAMBOptimizer` in `optimization.py` of brightmart/albert_zh.

    >>> bias = tf.Variable([3.0, 4.0], name="bias")
    >>> step = LambAlbertZh(learning_rate=0.1).apply_gradients([(tf.constant([0.5, -0.5]), bias)])
    >>> round(float(tf.norm(bias - [3.0, 4.0])), 3)
    0.5
    """

    adapts_excluded = True


def trust_ratio(weight_norm: tf.Tensor, update_norm: tf.Tensor) -> tf.Tensor:
    """Returns LAMB's trust ratio ‖w‖/‖u‖, or 1 if either norm is 0."""
    ratio = tf.math.divide_no_nan(weight_norm, update_norm)
    return tf.where((weight_norm > 0) & (update_norm > 0), ratio, tf.ones_like(ratio))


def fine_tuning_optimizer(
    learning_rate: float,
    num_train_steps: int,
    warmup_proportion: float = 0.1,
    weight_decay: float = WEIGHT_DECAY,
) -> AdamW:
    """Returns an AdamW for fine-tuning: with warm-up, linear decay and clipped gradients.

    These are the settings of Google's fine-tuning programs, and of the recipes. Without a warm-up,
    fine-tuning often diverges.

    >>> optimizer = fine_tuning_optimizer(2e-5, num_train_steps=300)
    >>> round(float(optimizer.learning_rate), 7), optimizer.global_clipnorm
    (0.0, 1.0)

    Args:
        learning_rate: the peak learning rate; 1e-5 to 5e-5 for models of the size of base.
        num_train_steps: number of training steps: the number of batches per epoch times the number
            of epochs. The learning rate is 0 after the last one.
        warmup_proportion: fraction of the steps used for the warm-up, in [0, 1].
        weight_decay: the weight decay.

    Raises:
        ValueError: `num_train_steps` or `warmup_proportion` is out of range.
    """
    if not 0 <= warmup_proportion <= 1:
        raise ValueError(f"warmup_proportion={warmup_proportion}: expected a number in [0, 1]")
    warmup_steps = int(num_train_steps * warmup_proportion)
    schedule = WarmUpPolynomialDecay(learning_rate, num_train_steps, warmup_steps)
    return AdamW(schedule, weight_decay, global_clipnorm=1.0)


def create_optimizer(
    name: str, schedule: WarmUpPolynomialDecay, weight_decay: float = WEIGHT_DECAY
) -> Optimizer:
    """Returns the optimizer with the given name, a key of `OPTIMIZERS`."""
    return _CLASSES[name](schedule, weight_decay)


def optimizers_of(names: Iterable[str], other_than: Optimizer) -> list[str]:
    """Returns the names of the optimizers that a checkpoint has the slots of.

    Args:
        names: names of the checkpoint's tensors.
        other_than: optimizers with the same names of slots are left out.
    """
    found = {name.rpartition("/")[2] for name in names}
    return [
        name
        for name, spec in OPTIMIZERS.items()
        if spec.slots != other_than.slots and found.issuperset(spec.slots)
    ]
