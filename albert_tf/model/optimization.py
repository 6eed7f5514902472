"""Google ALBERT's optimizers, LAMB and AdamW, and albert_zh's LAMB.

Unlike the implementations in common libraries, these have no bias correction, which matters in
short runs: at step 12, bias correction makes the update 6.6 times smaller. They are Keras
optimizers:

    schedule = WarmUpPolynomialDecay(5e-5, num_train_steps=1000, num_warmup_steps=100)
    model.compile(Lamb(schedule, global_clipnorm=1.0), loss)

`fine_tuning_optimizer` makes the one that fine-tuning usually needs.

Source: `optimization.py` and `lamb_optimizer.py` of google-research/albert; LAMB: arXiv 1904.00962.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf
import tf_keras

from albert_tf.files import JsonObject
from albert_tf.model.dispatch import CPU, op, register_kernel
from albert_tf.model.fit_schedule import FitSchedule
from albert_tf.model.kernels.loops import compiled
from albert_tf.model.optimizer import (
    CLASSES,
    WEIGHT_DECAY,
    Optimizer,
    OptimizerOptions,
    named,
)
from albert_tf.model.optimizer_names import OPTIMIZERS
from albert_tf.model.schedules import WarmUpPolynomialDecay

if TYPE_CHECKING:
    from typing_extensions import Unpack

# XLA takes 0.1 s to compile each shape, which pays off from half a million elements on.
MIN_COMPILED_ELEMENTS = 2**19


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
        **kwargs: Unpack[OptimizerOptions],
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
            adapts=self.layer_adaptation and (self.adapts_excluded or self.is_decayed(variable)),
        )
        weight = tf.convert_to_tensor(variable)
        m, v = slots.values()
        m, v, weight = adam_update(gradient, m, v, weight, coefficients)
        return weight, dict(zip(slots, (m, v), strict=True))

    def get_config(self) -> JsonObject:
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
def adam_update(
    gradient: tf.Tensor, m: tf.Tensor, v: tf.Tensor, weight: tf.Tensor, by: AdamCoefficients
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the updated moments and weight, given the `AdamCoefficients`."""
    m = by.beta_1 * m + by.share_1 * gradient
    v = by.beta_2 * v + by.share_2 * tf.square(gradient)
    update = m / (tf.sqrt(v) + by.epsilon)
    if by.decay_rate:
        update += by.decay_rate * weight
    if by.adapts:
        update *= trust_ratio(tf.norm(weight), tf.norm(update))
    return m, v, weight - by.rate * update


def _is_large(gradient: tf.Tensor, m: tf.Tensor, *_: object, **__: object) -> bool:
    # Of the moment, because Keras's LossScaleOptimizer gives gradients of unknown shape.
    size: int = m.shape.num_elements()
    return size >= MIN_COMPILED_ELEMENTS


@register_kernel(adam_update, CPU, when=_is_large)
@compiled
def _adam_update(
    gradient: tf.Tensor, m: tf.Tensor, v: tf.Tensor, weight: tf.Tensor, by: AdamCoefficients
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
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
    num_train_steps: int | None = None,
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
            of epochs. The learning rate is 0 after the last one. None: `fit` of the models of this
            package finds it, and warms up and decays again when it is called again.
        warmup_proportion: fraction of the steps used for the warm-up, in [0, 1].
        weight_decay: the weight decay.

    Raises:
        ValueError: `learning_rate`, `num_train_steps` or `warmup_proportion` is out of range.
    """
    if not 0 <= warmup_proportion <= 1:
        raise ValueError(f"warmup_proportion={warmup_proportion}: expected a number in [0, 1]")
    schedule: FitSchedule | WarmUpPolynomialDecay
    if num_train_steps is None:
        schedule = FitSchedule(learning_rate, warmup_proportion)
    else:
        warmup_steps = int(num_train_steps * warmup_proportion)
        schedule = WarmUpPolynomialDecay(learning_rate, num_train_steps, warmup_steps)
    return AdamW(schedule, weight_decay, global_clipnorm=1.0)


def create_optimizer(
    name: str, schedule: WarmUpPolynomialDecay, weight_decay: float = WEIGHT_DECAY
) -> Optimizer:
    """Returns the optimizer with the given name, a key of `OPTIMIZERS`."""
    return CLASSES[name](schedule, weight_decay)


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
