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

import contextlib
import dataclasses
import gzip
import os
import shutil
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from typing import ClassVar

from absl import logging

from albert_tf import files, tensorflow_packages
from albert_tf.checkpoints import loading, releases
from albert_tf.checkpoints.releases import Release
from albert_tf.settings import SettingsGroup, setting

_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile)
_RESOURCE_FORKS = "__MACOSX"  # a folder that macOS adds to ZIP files
_BLOCK_BYTES = 1 << 20
_OTHER_BYTES = 64 << 20
_HIDDEN = "download"  # the folder in the cache for what is being downloaded
# A model in safetensors, its configs and its vocabulary; not the same weights in other formats.
_FILES_ON_HUB = ("*.json", "*.model", "vocab.txt", "model*.safetensors")


def download(name: str, *, cache_dir: files.PathLike | None = None) -> str:
    """Downloads a released model, unless it is in the cache, and returns its folder.

    >>> download("albert_base_v2")  # doctest: +SKIP
    '/home/me/.cache/albert_tf/albert_base_v2'

    An archive is downloaded and unpacked in a temporary folder, and its tensors are compared with
    the checksums of the release. Only then the folder gets its name, so a model in the cache is
    always complete. If that is the default cache folder, `from_pretrained`, `load_predictor` and
    the programs then accept its name.

    Args:
        name: name of the model, such as "albert_base_v2"; `albert download` lists all names.
        cache_dir: local folder of the downloaded models; defaults to the environment variable
            `ALBERT_CACHE`, or else to `~/.cache/albert_tf`.

    Raises:
        ValueError: there is no such model, or the archive is damaged, unsafe, or does not contain
            the tensors of the release. Nothing is installed.
        OSError: the archive cannot be downloaded, or the disk is full. Nothing is installed.
    """
    release = _find_release(name)
    cache = files.path_text(cache_dir or releases.cache_directory(), "cache_dir")
    if files.is_remote(cache):
        raise ValueError(f"cache_dir: {cache}: models are downloaded to local folders only")
    folder = os.path.join(cache, release.name)
    if os.path.isdir(folder):
        files.remove_abandoned(cache, _HIDDEN)
        return folder
    files.ensure_directory(os.path.dirname(folder), "cache_dir")
    with files.hidden_directory(cache, _HIDDEN, "cache_dir") as temporary:
        try:
            archive = _fetch(release.url, temporary)
        except OSError as error:
            raise OSError(
                f"{error}\nWithout a connection, unpack {release.url} so that {folder} has the "
                "config, the vocabulary and the weights themselves"
            ) from None
        unpacked = os.path.join(temporary, "unpacked")
        try:
            _unpack(archive, unpacked, _largest_size(release))
            model = _model_folder(unpacked)
            _verify(release, model)
        except _DAMAGE as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{release.url}: unsafe or damaged archive ({reason:.100})") from None
        except (ValueError, FileNotFoundError) as error:
            raise ValueError(f"{error}\n{release.url}: nothing was installed") from None
        os.rename(model, folder)
    return folder


def _find_release(name: str) -> Release:
    release = releases.named(name)
    if release is None:
        names = ", ".join(row.name for row in releases.downloadable())
        hint = releases.suggestion(name) or f"Expected one of {names}"
        if "/" in name:
            hint = f"If it is a model of the Hugging Face Hub, pass --hub. {hint}"
        raise ValueError(f"{name!r} is not a released model. {hint}")
    return release


def _fetch(url: str, folder: str) -> str:
    """Downloads a file to a folder, with a progress bar, and returns its path."""
    tensorflow_packages.check()
    from tf_keras.utils import get_file

    try:
        with contextlib.redirect_stdout(sys.stderr):
            path = str(get_file("archive", url, cache_subdir=".", cache_dir=folder))
    except OSError:
        raise
    except Exception as error:  # of no other class if the server cannot be reached
        path = os.path.join(folder, "archive")
        if not (os.path.isfile(path) and not os.path.getsize(path)):  # for which the bar has no end
            raise OSError(str(error)) from None
    if not os.path.getsize(path):
        raise OSError(f"{url}: the download is empty, and nothing was installed. Try again later")
    return path


def _largest_size(release: Release) -> int:
    """Returns the number of bytes that the files of a release may have.

    These are the weights and two moments of each of them, float32, and smaller files. The heads, of
    which `parameters` does not know, are less than a quarter of the rest.
    """
    return 4 * 3 * release.parameters * 5 // 4 + _OTHER_BYTES


def _check_size(sizes: Iterable[int], largest: int) -> None:
    total = sum(sizes)
    if total > largest:
        raise ValueError(
            f"the archive unpacks to {total / 1e6:,.0f} MB, and this release has at most "
            f"{largest / 1e6:,.0f} MB"
        )


def _unpack(archive: str, folder: str, largest: int) -> None:
    """Unpacks an archive.

    Args:
        archive: the file.
        folder: the folder, which is created.
        largest: number of bytes that the files may have.

    Raises:
        ValueError: they have more. Other errors: it is damaged, or has files outside of the folder.
    """
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            _check_size((member.file_size for member in zipped.infolist()), largest)
            zipped.extractall(folder)
        shutil.rmtree(os.path.join(folder, _RESOURCE_FORKS), ignore_errors=True)
        return
    with tarfile.TarFile.open(archive) as tar:
        _check_size((member.size for member in tar), largest)
        # Unlike the filter of Keras, this one refuses links to files outside of the folder.
        tar.extractall(folder, filter="data")
        while tar.fileobj and tar.fileobj.read(_BLOCK_BYTES):
            pass  # the checksum of gzip is at the end, behind the last member


def _model_folder(folder: str) -> str:
    """Returns the innermost folder that contains all files of an archive."""
    names = os.listdir(folder)
    if len(names) == 1 and os.path.isdir(os.path.join(folder, names[0])):
        return _model_folder(os.path.join(folder, names[0]))
    return folder


def _verify(release: Release, folder: str) -> None:
    """Reads all tensors, and compares them with the checksums of the release if they are known.

    Raises:
        ValueError: tensors differ. The message names the first one.
    """
    tensors = loading.read_weights(folder)
    if not release.tensors:
        text = "%s: all %d tensors can be read, but the checksums of this release are not known"
        logging.info(text, release.name, len(tensors))
        return
    here = releases.checksums(tensors)
    names = sorted(here.keys() | release.tensors.keys())
    if wrong := [name for name in names if here.get(name) != release.tensors.get(name)]:
        raise ValueError(
            f"{release.name}: {len(wrong)} of {len(names)} tensors are not those of the release, "
            f"such as {wrong[0]}"
        )
    logging.info("%s; all %d tensors match the release", release, len(tensors))


def download_from_hub(name: str, cache_dir: str | None = None) -> str:
    """Downloads the files of a model from the Hugging Face Hub, and returns their folder.

        download.download_from_hub("textattack/albert-base-v2-imdb")

    Args:
        name: the repository, as `organization/name`.
        cache_dir: folder of the downloaded files; defaults to that of `huggingface_hub`.

    Raises:
        ValueError: `huggingface_hub` is not installed, or the name is not that of a repository.
        OSError: the Hub cannot be reached, or has no such model.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ValueError(
            "downloading from the Hugging Face Hub requires huggingface_hub: pip install "
            "'albert-tf2[hf]'"
        ) from None
    return str(snapshot_download(name, allow_patterns=list(_FILES_ON_HUB), cache_dir=cache_dir))


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
        return download_from_hub(settings.name, settings.cache_dir)
    if settings.name:
        return download(settings.name, cache_dir=settings.cache_dir)
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
