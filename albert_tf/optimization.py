"""LAMB and AdamW as in Google's ALBERT, with its learning rate schedule and gradient clipping.

Unlike the optimizers that libraries ship, these have no bias correction. That matters for short
runs: after 12 steps the moments of a bias-corrected Adam give a step 6.6 times smaller.
Source: `optimization.py` and `lamb_optimizer.py` of google-research/albert; LAMB: arXiv 1904.00962.
"""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf
import tf_keras

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-6
WEIGHT_DECAY_RATE = 0.01
CLIP_NORM = 1.0
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
        m_slot, v_slot = (self._moments[slot][self._index(variable)] for slot in SLOTS)
        gradient = tf.convert_to_tensor(gradient)
        m = BETA_1 * m_slot + (1.0 - BETA_1) * gradient
        v = BETA_2 * v_slot + (1.0 - BETA_2) * tf.square(gradient)
        m_slot.assign(m)
        v_slot.assign(v)
        update = m / (tf.sqrt(v) + EPSILON)
        if not EXCLUDED.search(variable.name):
            update += WEIGHT_DECAY_RATE * variable
            if self.layer_adaptation:
                update *= trust_ratio(tf.norm(variable), tf.norm(update))
        variable.assign_sub(tf.convert_to_tensor(self.learning_rate) * update)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"learning_rate": self._serialize_hyperparameter(self._learning_rate)}


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


def clip_gradients(
    gradients: list[tf.Tensor | None],
) -> tuple[list[tf.Tensor | None], tf.Tensor]:
    """Scales the gradients so that their global norm is at most 1.

    Args:
        gradients: one a variable, None where the loss does not depend on it.

    Returns:
        the gradients, None in the same places, and their global norm before clipping.
    """
    present = [gradient for gradient in gradients if gradient is not None]
    clipped, norm = tf.clip_by_global_norm(present, CLIP_NORM)
    rest = iter(clipped)
    return [None if gradient is None else next(rest) for gradient in gradients], norm
