"""Predictions of trained models from text: labels, tags, answers, embeddings and masked words.

>>> from albert_tf import inference
>>> settings = inference.Settings(model_dir="lcqmc_model", text="你多大了", text_b="你几岁")
>>> next(inference.run(settings))  # doctest: +SKIP
{'label': '1', 'probabilities': {'0': 0.03, '1': 0.97}}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from albert_tf.inference.settings import Settings

__all__ = ["Settings", "run", "serve"]


def run(settings: Settings) -> Iterator[dict[str, Any]]:
    """Yields a JSON object for each input, in their order, as `run_predict.py` prints them.

    Args:
        settings: as the flags of that program.

    Raises:
        ValueError, OSError: settings, model and input do not go together; says which.
    """
    settings.check_paths()
    from albert_tf.inference import program  # TensorFlow, which settings do without

    return program.run(settings)


def serve(settings: Settings) -> None:
    """Serves the page and the JSON endpoint of `run_predict.py --web`, until Ctrl-C or SIGTERM.

    Args:
        settings: as the flags of that program.

    Raises:
        ValueError, OSError: the model cannot be used, the extra `web` is missing, or the address is
            not free.
    """
    settings.check_paths()
    from albert_tf.inference import web  # TensorFlow and starlette, which settings do without

    web.serve(settings)
