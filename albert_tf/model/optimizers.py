"""The optimizers that `--optimizer` accepts: their names, slots and memory.

An optimizer is a row here, and a class in `optimization.py` with the same name. Settings, costs and
the reader of checkpoints know it by its row. TensorFlow is not imported here.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class OptimizerSpec:
    """What programs need to know of an optimizer.

    Attributes:
        description: what it is, for `--help`.
        slots: names of what it stores for a weight, such as moments; `<weight>/<slot>` is in
            checkpoints.
        values_per_weight: number of float32 values that it stores for each weight, for estimates
            of the memory.
    """

    description: str
    slots: tuple[str, ...]
    values_per_weight: float


OPTIMIZERS = {
    "adamw": OptimizerSpec("Google's AdamW", ("adam_m", "adam_v"), 2),
    "lamb": OptimizerSpec("Google's LAMB", ("adam_m", "adam_v"), 2),
    "lamb_albert_zh": OptimizerSpec(
        "albert_zh's LAMB, which also applies the trust ratio to biases and LayerNorm",
        ("lamb_m", "lamb_v"),
        2,
    ),
}
