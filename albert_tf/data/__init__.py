"""From text to pre-training records, without TensorFlow.

from albert_tf import data
data.run(data.Settings(input_file="corpus/*.txt", output_file="records/train@8",
                       spm_model_file="30k-clean.model"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from albert_tf.data.settings import Settings

if TYPE_CHECKING:
    from albert_tf.data.program import Result

__all__ = ["Settings", "run"]


def run(settings: Settings) -> Result:
    """Creates pre-training records from text, as create_pretraining_data.py; see `program.run`."""
    from albert_tf.data import program

    return program.run(settings)
