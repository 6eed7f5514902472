"""Pre-training: records in, checkpoints out.

from albert_tf import pretraining
pretraining.run(pretraining.Settings(albert_config_file="albert_config.json",
                                     input_file="records/train*", output_dir="model"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from albert_tf.pretraining.settings import Settings

if TYPE_CHECKING:
    from albert_tf.pretraining.program import Result

__all__ = ["Settings", "run"]


def run(settings: Settings) -> Result:
    """Pre-trains ALBERT and evaluates it, as run_pretraining.py; see `program.run`."""
    from albert_tf.pretraining import program  # TensorFlow, which settings do without

    return program.run(settings)
