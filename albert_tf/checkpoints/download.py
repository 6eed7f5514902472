"""Downloads released models into the cache folder, and others by `download_from_hub` alone.

    >>> path = download("albert_base_v2")  # doctest: +SKIP
    >>> model, tokenizer = albert_tf.from_pretrained("albert_base_v2")  # doctest: +SKIP

An archive is downloaded and unpacked in a temporary folder, and its tensors are compared with the
checksums of the release. Only then the folder gets its name, so a model in the cache is always
complete.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
import zlib

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import loading, releases
from albert_tf.checkpoints.releases import Release

_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile)
_RESOURCE_FORKS = "__MACOSX"  # a folder that macOS adds to ZIP files
_BLOCK_BYTES = 1 << 20


def download(name: str, *, cache_dir: str | None = None) -> str:
    """Downloads a released model, unless it is in the cache, and returns its folder.

    >>> download("albert_base_v2")  # doctest: +SKIP
    '/home/me/.cache/albert_tf/albert_base_v2'

    If the model is in the default cache folder, `from_pretrained`, `load_predictor` and the
    programs then accept its name.

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
    cache = cache_dir or releases.cache_directory()
    if files.is_remote(cache):
        raise ValueError(f"cache_dir: {cache}: models are downloaded to local folders only")
    folder = os.path.join(cache, release.name)
    if os.path.isdir(folder):
        return folder
    files.ensure_directory(os.path.dirname(folder), "cache_dir")
    with tempfile.TemporaryDirectory(prefix=".download-", dir=cache) as temporary:
        archive = _fetch(release.url, temporary)
        unpacked = os.path.join(temporary, "unpacked")
        try:
            _unpack(archive, unpacked)
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
        on_hub = ". For a model of the Hugging Face Hub, pass --hub" if "/" in name else ""
        raise ValueError(f"{name!r} is not a released model. {hint}{on_hub}")
    return release


def _fetch(url: str, folder: str) -> str:
    """Downloads a file to a folder, with a progress bar, and returns its path."""
    from tf_keras.utils import get_file

    try:
        with contextlib.redirect_stdout(sys.stderr):
            return str(get_file("archive", url, cache_subdir=".", cache_dir=folder))
    except OSError:
        raise
    except Exception as error:  # of no other class if the server cannot be reached
        raise OSError(str(error)) from None


def _unpack(archive: str, folder: str) -> None:
    """Unpacks an archive; raises an error if it is damaged, or has files outside of the folder."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(folder)
        shutil.rmtree(os.path.join(folder, _RESOURCE_FORKS), ignore_errors=True)
        return
    with tarfile.TarFile.open(archive) as tar:
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


# A model in safetensors, its configs and its vocabulary; not the same weights in other formats.
_FILES = ("*.json", "*.model", "vocab.txt", "model*.safetensors")


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
    return str(snapshot_download(name, allow_patterns=list(_FILES), cache_dir=cache_dir))
