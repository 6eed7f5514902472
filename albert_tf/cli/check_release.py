r"""Compares a checkpoint with the released ones, tensor by tensor.

    albert check-release --input=albert_tiny

compares the checksum of every tensor with those of nine releases by Google and albert_zh, and lists
the tensors that were altered, are missing or were added. Converted releases are recognized as well.
To fine-tune a release with the published settings, pass its recipe to the program of the task, for
example `run_classifier.py --flagfile=lcqmc_tiny`.
"""

from __future__ import annotations

import dataclasses

from absl import logging

from albert_tf.checkpoints import finding
from albert_tf.settings import REQUIRED, SettingsGroup, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(SettingsGroup):
    """What to check."""

    input: str = setting(REQUIRED, "Folder of a released model, or a checkpoint in it.")


def run(settings: Settings) -> str:
    """Returns a report that compares a checkpoint with the release that it is, or is closest to."""
    if logging.get_verbosity() == logging.INFO:
        logging.set_verbosity(logging.WARNING)
    path = finding.find_checkpoint(settings.input)

    from albert_tf.checkpoints import loading, releases

    return str(releases.identify(path, loading.read_weights(path)))
