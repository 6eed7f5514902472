"""Names of the optimizers that `--optimizer` accepts, and what programs need to know of them.

TensorFlow is not imported; `optimization.py` has the classes.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class OptimizerSpec:
    """What programs need to know of an optimizer.

    Attributes:
        description: what it is, for `--help`.
        slots: names of what it stores for each weight, such as moments; `<weight>/<slot>` is in
            checkpoints.
    """

    description: str
    slots: tuple[str, ...]


OPTIMIZERS = {
    "adamw": OptimizerSpec("Google's AdamW", ("adam_m", "adam_v")),
    "lamb": OptimizerSpec("Google's LAMB", ("adam_m", "adam_v")),
    "lamb_albert_zh": OptimizerSpec(
        "albert_zh's LAMB, which also applies the trust ratio to biases and LayerNorm",
        ("lamb_m", "lamb_v"),
    ),
}
