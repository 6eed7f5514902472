"""LAMB and AdamW as in Google's ALBERT, with its learning rate schedule and gradient clipping.

Unlike the optimizers that libraries ship, these have no bias correction. That matters for short
runs: after 12 steps the moments of a bias-corrected Adam give a step 6.6 times smaller.
Source: `optimization.py` and `lamb_optimizer.py` of google-research/albert; LAMB: arXiv 1904.00962.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf import kernels

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-6
WEIGHT_DECAY_RATE = 0.01
CLIP_NORM = 1.0
# XLA takes 0.1 s a shape: an update wins that back from half a million elements on.
ELEMENTS_PER_WIDTH = 2048
# Weights whose name holds one of these are neither decayed nor scaled layer-wise.
EXCLUDED = re.compile("LayerNorm|layer_norm|bias")
SLOTS = ("adam_m", "adam_v")


class WarmUpPolynomialDecay(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Google's schedule: linear warm-up, then polynomial decay to 0.

    Update number t, counted from 1, has the rate
    `learning_rate` · (1 − min(t, T)/T)^power with T = `num_train_steps`. While
    t − `start_warmup_step` < `num_warmup_steps` it is
    `learning_rate` · (t − `start_warmup_step`) / `num_warmup_steps` instead: negative before
    `start_warmup_step`, and the decay does not begin anew behind the warm-up.

    Google's graph reads its step counter for the rate and increments it with no order between the
    two. In its recorded runs the increment comes first, but for a step here and there: hence t,
    not t − 1.

    Args:
        learning_rate: the peak.
        num_train_steps: T, the step at which the rate reaches 0.
        num_warmup_steps: length of the warm-up in steps, 0 for none.
        start_warmup_step: step at which the warm-up begins.
        power: 1.0 decays linearly.
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
            raise ValueError(f"num_train_steps={num_train_steps}: at least 1 was expected")
        self.learning_rate = learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps
        self.start_warmup_step = start_warmup_step
        self.power = power

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """The rate, float32 scalar, of the update that follows `step` finished ones."""
        t = tf.cast(step, tf.float32) + 1.0
        done = tf.minimum(t, self.num_train_steps) / self.num_train_steps
        rate = self.learning_rate * (1.0 - done) ** self.power
        if not self.num_warmup_steps:
            return rate
        warm = t - self.start_warmup_step
        warm_rate = self.learning_rate * warm / self.num_warmup_steps
        return tf.where(warm < self.num_warmup_steps, warm_rate, rate)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            "learning_rate": self.learning_rate,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
            "start_warmup_step": self.start_warmup_step,
            "power": self.power,
        }


class AdamW(tf_keras.optimizers.Optimizer):
    """Adam with decoupled weight decay and without bias correction.

    m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², u = m/(√v + ε), plus 0.01·w for weights that decay,
    then w ← w − lr·u. β₁ = 0.9, β₂ = 0.999, ε = 1e-6.

    Args:
        learning_rate: a number or a schedule of the step.
    """

    layer_adaptation = False
    # Bool scalar: whether steps change anything; None: they do. A step that is left out so costs
    # no pass over the weights, and no condition, which many devices and XLA would not have.
    is_active: tf.Tensor | None = None

    def __init__(
        self, learning_rate: float | tf_keras.optimizers.schedules.LearningRateSchedule
    ) -> None:
        super().__init__(name=type(self).__name__, jit_compile=False)
        self._learning_rate = self._build_learning_rate(learning_rate)

    def build(self, var_list: list[tf.Variable]) -> None:
        """Makes the moments of `var_list`, all 0; safe to call again."""
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._moments = {
            slot: [self.add_variable_from_reference(variable, slot) for variable in var_list]
            for slot in SLOTS
        }
        self._built = True

    def slot_variables(self, var_list: list[tf.Variable]) -> dict[str, tf.Variable]:
        """The moments under Google's names, `<variable>/adam_m` and `<variable>/adam_v`."""
        self.build(var_list)
        return {
            f"{variable.name.split(':')[0]}/{slot}": moments[self._index(variable)]
            for slot, moments in self._moments.items()
            for variable in var_list
        }

    def _index(self, variable: tf.Variable) -> int:
        return self._index_dict[self._var_key(variable)]

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """One step of one variable; `gradient` has its shape."""
        slots = [self._moments[slot][self._index(variable)] for slot in SLOTS]
        decays = not EXCLUDED.search(variable.name)
        new = _updated(
            variable.shape.num_elements() // ELEMENTS_PER_WIDTH,
            *map(tf.convert_to_tensor, (gradient, *slots, variable)),
            [self._or_keep(beta, 1.0) for beta in (BETA_1, BETA_2)],
            [self._or_keep(1.0 - beta, 0.0) for beta in (BETA_1, BETA_2)],
            self._or_keep(tf.convert_to_tensor(self.learning_rate), 0.0),
            decays,
            decays and self.layer_adaptation,
        )
        for old, value in zip((*slots, variable), new, strict=True):
            old.assign(value)

    def _or_keep(self, factor: Any, idle: float) -> Any:
        """A factor of the update, or what it is in a step that changes nothing."""
        return factor if self.is_active is None else tf.where(self.is_active, factor, idle)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"learning_rate": self._serialize_hyperparameter(self._learning_rate)}


@kernels.fused
def _updated(_, gradient, m, v, weight, betas, shares, rate, decays, adapts):
    """Moments and weight after a step: in one pass over memory where they are large."""
    m = betas[0] * m + shares[0] * gradient
    v = betas[1] * v + shares[1] * tf.square(gradient)
    update = m / (tf.sqrt(v) + EPSILON)
    if decays:
        update += WEIGHT_DECAY_RATE * weight
    if adapts:
        update *= trust_ratio(tf.norm(weight), tf.norm(update))
    return m, v, weight - rate * update


class Lamb(AdamW):
    """`AdamW` whose step is scaled by ‖w‖/‖u‖, layer by layer (1 where either norm is 0)."""

    layer_adaptation = True


def trust_ratio(weight_norm: tf.Tensor, update_norm: tf.Tensor) -> tf.Tensor:
    """LAMB's factor: ‖w‖/‖u‖, or 1 where either is 0."""
    ratio = tf.math.divide_no_nan(weight_norm, update_norm)
    return tf.where((weight_norm > 0) & (update_norm > 0), ratio, tf.ones_like(ratio))


OPTIMIZERS = {"lamb": Lamb, "adamw": AdamW}


def create_optimizer(name: str, schedule: WarmUpPolynomialDecay) -> AdamW:
    """The optimizer called `name`, "lamb" or "adamw"."""
    if name not in OPTIMIZERS:
        raise ValueError(f"optimizer={name!r} is none of {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name](schedule)


def clipping_factor(norm: tf.Tensor) -> tf.Tensor:
    """What gradients of a global norm are multiplied by, so that it is at most 1."""
    return CLIP_NORM * tf.minimum(1.0 / norm, 1.0 / CLIP_NORM)


def scale_gradients(gradients: Sequence[tf.Tensor | None], factor: tf.Tensor) -> list[Any]:
    """Gradients times a factor; 0 makes zeros of them even where they are not finite.

    Args:
        gradients: one a variable, None where the loss does not depend on it.
        factor: float32 scalar.
    """
    return [
        None if gradient is None else tf.math.multiply_no_nan(gradient, factor)
        for gradient in gradients
    ]


def clip_gradients(gradients: Sequence[tf.Tensor | None]) -> tuple[list[Any], tf.Tensor]:
    """Scales the gradients so that their global norm is at most 1.

    Of `tf.IndexedSlices`, the gradients of embeddings, the norm takes each row by itself, also
    where several are of one word: so do Google's programs.

    Args:
        gradients: one a variable, None where the loss does not depend on it.

    Returns:
        the gradients, None in the same places, and their global norm before clipping.
    """
    norm = tf.linalg.global_norm([gradient for gradient in gradients if gradient is not None])
    dense = [None if value is None else tf.convert_to_tensor(value) for value in gradients]
    return scale_gradients(dense, clipping_factor(norm)), norm
