"""Predicts labels, tags, answers, embeddings and masked words from raw text.

>>> from albert_tf import inference
>>> settings = inference.Settings(model_dir="lcqmc_model", text="你多大了", text_b="你几岁")
>>> next(inference.run(settings))  # doctest: +SKIP
{'label': '1', 'probabilities': {'0': 0.03, '1': 0.97}}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from albert_tf import files
from albert_tf.checkpoints import finding
from albert_tf.finetuning import registry
from albert_tf.inference.settings import Settings

__all__ = ["Settings", "run", "serve"]


def run(settings: Settings) -> Iterator[dict[str, Any]]:
    """Yields a JSON object for each input, in input order, as `albert predict` prints them.

    Args:
        settings: the settings, which correspond to the flags of that program.

    Raises:
        ValueError, OSError: settings, model or input are invalid or inconsistent; the message says
            which.
    """
    _prepare(settings)
    from albert_tf.inference import program  # imports TensorFlow, which the settings do not need

    return program.run(settings)


def serve(settings: Settings) -> None:
    """Serves the web page of `albert predict --web` until Ctrl-C.

    Args:
        settings: the settings, which correspond to the flags of that program.

    Raises:
        ValueError, OSError: the model cannot be used, the extra `web` is not installed, or the
            port is already in use.
    """
    _prepare(settings)
    from albert_tf.inference import web  # imports TensorFlow and Gradio

    web.serve(settings)


def _prepare(settings: Settings) -> None:
    """Checks the paths, and registers the tasks of the user."""
    settings.check_paths()
    model = finding.find_model(settings.model_dir)
    if not files.is_directory(model):
        finding.find_checkpoint(model)
    if settings.task_module:
        registry.import_tasks(settings.task_module)
