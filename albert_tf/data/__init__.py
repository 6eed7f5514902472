"""Creates pre-training records from text, without TensorFlow.

>>> from albert_tf import data
>>> settings = data.Settings(
...     input_file="corpus/*.txt",
...     output_file="records/train@8",
...     spm_model_file="30k-clean.model",
... )
>>> print(data.run(settings))  # doctest: +SKIP
4711 instances in 8 files
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from albert_tf.data.settings import Settings

if TYPE_CHECKING:
    from albert_tf.data.program import Result

__all__ = ["Settings", "run"]


def run(settings: Settings) -> Result:
    """Creates pre-training records from text, as create_pretraining_data.py does.

    Args:
        settings: the flags of that program. `Settings.make` also applies albert_zh's defaults.

    Returns:
        The metadata: settings, vocabulary, counts and files.

    Raises:
        ValueError, OSError: settings, files or text are invalid or do not match; the message says
            which.
    """
    from albert_tf.data import program

    return program.run(settings)
