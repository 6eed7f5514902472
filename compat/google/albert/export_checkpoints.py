r"""Writes a checkpoint without optimizer slots, like Google's program of this name.

    python -m albert.export_checkpoints --albert_directory=model --export_path=exported/model.ckpt

reads model/albert_config.json and model/model.ckpt-best, and writes exported/model.ckpt.*, with the
encoder, the pre-training heads and global_step 0. Unlike Google's program, it does not write random
weights for heads that the checkpoint lacks, as the checkpoint of a fine-tuned model does.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from absl import logging

from albert_tf import files
from albert_tf.cli import console
from albert_tf.settings import REQUIRED, SettingsGroup, setting

if TYPE_CHECKING:
    from albert_tf.checkpoints.load_report import LoadReport


@dataclasses.dataclass(frozen=True)
class ExportSettings(SettingsGroup):
    """Settings of the export, with the names of Google's flags."""

    albert_directory: str = setting(REQUIRED, "Folder with albert_config.json and the checkpoint.")
    export_path: str = setting(REQUIRED, "What to write.")
    checkpoint_name: str = setting("model.ckpt-best", "The checkpoint in albert_directory.")
    do_lower_case: bool = setting(True, "Whether the vocabulary is for lower-cased text.")

    @property
    def config_file(self) -> str:
        """Path of the model's config."""
        return os.path.join(self.albert_directory, "albert_config.json")

    @property
    def checkpoint(self) -> str:
        """Prefix of the checkpoint to export."""
        return os.path.join(self.albert_directory, self.checkpoint_name)


def run(settings: ExportSettings) -> str:
    """Writes the checkpoint, and returns the text to print.

    Raises:
        OSError, ValueError: a file is missing, or does not contain the whole encoder.
    """
    import numpy as np

    from albert_tf import AlbertConfig, AlbertForPretraining
    from albert_tf.checkpoints import loading, store, weight_names

    model = AlbertForPretraining(AlbertConfig.from_json_file(settings.config_file))
    report = loading.load_checkpoint(model, settings.checkpoint)
    files.ensure_directory(os.path.dirname(os.path.abspath(settings.export_path)), "--export_path")
    tensors = {
        weight_names.variable_name(variable): variable
        for variable in model.variables
        if weight_names.variable_name(variable) in report.loaded
    }
    step = {weight_names.GLOBAL_STEP: np.int64(0)}  # the dtype that Google's programs restore
    store.save_checkpoint(settings.export_path, tensors | step)
    return _describe(settings, report)


def _describe(settings: ExportSettings, report: LoadReport) -> str:
    left_out = [*report.missing, *report.misshapen]
    if left_out:
        logging.warning("Not in the checkpoint, so not exported: %s", ", ".join(sorted(left_out)))
    return f"wrote {len(report.loaded)} variables to {settings.export_path}"


if __name__ == "__main__":
    console.start(ExportSettings, run, __doc__)
