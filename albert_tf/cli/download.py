r"""Downloads a released model, or lists them.

    albert download
    albert download albert_base_v2
    albert download albert_base_v2 --cache_dir=models
    albert download textattack/albert-base-v2-imdb --hub

Without a name, this prints the names of the models, their numbers of parameters, and which of them
are in the cache folder; then the TF-Hub modules of the same models. With a name, the model is
downloaded to the cache folder and its path is printed. Every tensor is compared with the released
checksums where they are known.

All programs and `from_pretrained` accept the name of a downloaded model in place of a folder or a
checkpoint. They never download it themselves. Names of the Hugging Face Hub such as
albert/albert-base-v2 are accepted for the same releases; with --hub, any model of the Hub is
downloaded from there with the library huggingface_hub, and is given by the folder that is printed.
"""

from __future__ import annotations

import dataclasses
import os
from typing import ClassVar

from albert_tf.checkpoints import download, releases
from albert_tf.settings import SettingsGroup, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(SettingsGroup):
    """What to download, and where to."""

    ARGUMENT: ClassVar[str] = "name"

    name: str | None = setting(
        None, "Name of the model, also without --name=; if not given, the models are listed."
    )
    cache_dir: str | None = setting(
        None,
        "Local folder of the downloaded models; if not given, the one in the environment variable "
        "ALBERT_CACHE, or else ~/.cache/albert_tf.",
    )
    hub: bool = setting(
        False,
        "Download from the Hugging Face Hub, where the name is that of a repository, such as "
        "albert/albert-base-v2; the cache is that of huggingface_hub unless cache_dir is given.",
    )


def run(settings: Settings) -> str:
    """Returns the folder of the downloaded model, or the list of models."""
    if settings.hub:
        if not settings.name:
            raise ValueError("--hub requires the name of a repository, as organization/name")
        return download.download_from_hub(settings.name, settings.cache_dir)
    if settings.name:
        return download.download(settings.name, cache_dir=settings.cache_dir)
    cache = settings.cache_dir or releases.cache_directory()
    width = max(len(row.name) for row in releases.downloadable())
    lines = []
    for is_hub_module, heading in (
        (False, "model"),
        (True, "the same models as TF-Hub modules"),
    ):
        lines += ["", f"{'name':{width}}   parameters  {heading}"]
        for row in releases.downloadable():
            if row.is_hub_module != is_hub_module:
                continue
            also = "".join(f", also {alias}" for alias in row.aliases)
            state = ", in the cache" if os.path.isdir(os.path.join(cache, row.name)) else ""
            lines.append(f"{row.name:{width}}  {row.parameters:11,}  {row.title}{also}{state}")
    return "\n".join([*lines[1:], "", f"cache folder: {cache}"])
