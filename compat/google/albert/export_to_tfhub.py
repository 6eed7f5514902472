r"""Writes a TF-Hub module, like Google's program of this name.

    python -m albert.export_to_tfhub --albert_directory=albert_base --export_path=albert_base_hub

reads albert_config.json, 30k-clean.model and model.ckpt-best in albert_base/, and writes a folder
for `hub.load` and `hub.KerasLayer`, in TensorFlow 2's format; see
albert_tf/export/hub_module.py.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

from albert.export_checkpoints import ExportSettings
from albert_tf.cli import compatibility, console
from albert_tf.export import convert

VOCABULARY = "30k-clean.model"  # the only name that Google's program supports


@dataclasses.dataclass(frozen=True)
class Settings(ExportSettings):
    """Settings of the export, with the names of Google's flags."""


def run(settings: Settings) -> Iterator[str]:
    """Converts the checkpoint; see `convert.run`."""
    return convert.run(
        convert.Settings(
            input=settings.checkpoint,
            output=settings.export_path,
            output_format="tf_hub",
            albert_config_file=settings.config_file,
            spm_model_file=os.path.join(settings.albert_directory, VOCABULARY),
            do_lower_case=settings.do_lower_case,
        )
    )


if __name__ == "__main__":
    compatibility.IGNORED[Settings] = {"use_einsum": bool}
    console.start(Settings, run, __doc__)
