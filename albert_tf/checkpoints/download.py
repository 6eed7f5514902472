"""Downloads released models into the cache folder. Only `hub` downloads anything besides.

    >>> path = download("albert_base_v2")  # doctest: +SKIP
    >>> model, tokenizer = albert_tf.from_pretrained("albert_base_v2")  # doctest: +SKIP

An archive is downloaded under a temporary name, and a later call continues where an earlier one
stopped. It is unpacked into a temporary folder, and its tensors are compared with the checksums of
the release. Only then the folder gets its name, so a model in the cache is always complete.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import http.client
import os
import posixpath
import shutil
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import filelock
from absl import logging
from tqdm import tqdm

from albert_tf import files
from albert_tf.checkpoints import finding, releases
from albert_tf.checkpoints.releases import Release

BASE_URL = "ALBERT_BASE_URL"  # environment variable: the address of a mirror
_ATTEMPTS = 5  # to continue after the connection was cut
_READ_SECONDS = 30  # without receiving a byte
_PAUSE_SECONDS = 2
_BLOCK_BYTES = 1 << 18
# HTTP status codes.
_PARTIAL = 206
_NOT_SATISFIABLE = 416
_ZIP_MAGIC = b"PK"
_FILE_TYPE = 0o170000
_LINK_TYPE = 0o120000
_REGULAR_TYPES = (0, 0o040000, 0o100000)
# Of the archive modules, for damaged archives. (BadGzipFile is an OSError.)
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError)
_RESOURCE_FORKS = "__MACOSX/"  # a folder that macOS adds to ZIP files


class _CutError(Exception):
    """The connection was cut before the end of the file."""


class _Member(NamedTuple):
    """A file or folder in an archive; `kind` is "file", "folder", "link" or "device"."""

    name: str
    size: int
    kind: str
    open: Callable[[], Any]


def download(name: str, *, cache_dir: str | None = None, base_url: str | None = None) -> str:
    """Downloads a released model, unless it is in the cache, and returns its folder.

    >>> download("albert_base_v2")  # doctest: +SKIP
    '/home/me/.cache/albert_tf/albert_base_v2'

    If the model is in the default cache folder, `from_pretrained`, `load_predictor` and the
    programs then accept its name.

    Args:
        name: name of the model, such as "albert_base_v2"; `albert download` lists all names.
        cache_dir: local folder of the downloaded models; defaults to the environment variable
            `ALBERT_CACHE`, or else to `~/.cache/albert_tf`.
        base_url: address of a mirror (http://, https:// or file://), which replaces the scheme and
            the host of the archive's address. Defaults to the environment variable
            `ALBERT_BASE_URL`, or else to the authors' servers.

    Raises:
        ValueError: there is no such model, or the archive is damaged, unsafe, or does not contain
            the tensors of the release. Nothing is installed, and the archive is removed.
        OSError: the server cannot be reached, does not have the archive or closes the connection,
            or the disk is full. The next call continues the download.
    """
    release = _find_release(name)
    cache = cache_dir or finding.cache_directory()
    if files.is_remote(cache):
        raise ValueError(f"cache_dir: {cache}: models are downloaded to local folders only")
    folder = os.path.join(cache, release.name)
    if os.path.isdir(folder):
        return folder
    files.make_directory(os.path.dirname(folder), "cache_dir")
    hidden = os.path.join(cache, "." + release.name.replace("/", "--"))
    with _locked(f"{hidden}.lock", release.name):
        if not os.path.isdir(folder):  # another process may have installed it
            url = _address(release, base_url or os.environ.get(BASE_URL))
            archive = f"{hidden}.part"
            _fetch(url, archive, release.name)
            _install(release, url, archive, folder)
    return folder


def _find_release(name: str) -> Release:
    release = releases.named(name)
    if release is None:
        names = ", ".join(row.name for row in releases.downloadable())
        similar = releases.similar(name)
        hint = f"Did you mean {similar.name!r}?" if similar else f"Expected one of {names}"
        on_hub = ". For a model of the Hugging Face Hub, pass --hub" if "/" in name else ""
        raise ValueError(f"{name!r} is not a released model. {hint}{on_hub}")
    return release


def _address(release: Release, base_url: str | None) -> str:
    """Returns where the archive of a release is: on the authors' server, or on a mirror."""
    if not base_url:
        return release.url
    if not base_url.startswith(("http://", "https://", "file://")):
        raise ValueError(f"base_url: {base_url}: expected http://, https:// or file://")
    return base_url.rstrip("/") + urllib.parse.urlsplit(release.url).path


@contextlib.contextmanager
def _locked(path: str, name: str) -> Iterator[None]:
    """Waits until no other process downloads the model."""
    lock = filelock.FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        logging.info("%s: waiting for another process that downloads this model", name)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _fetch(url: str, path: str, name: str) -> None:
    """Downloads a file, of which `path` may contain the beginning."""
    for attempt in range(_ATTEMPTS):
        try:
            return _receive(url, path, name)
        except urllib.error.HTTPError as error:
            raise OSError(f"{url}: the server answered {error.code} {error.reason}") from None
        except urllib.error.URLError as error:
            reason = getattr(error.reason, "strerror", None) or error.reason
            raise ConnectionError(
                f"cannot reach {url}: {reason}. Without a connection, unpack the archive on this "
                "machine and give its folder in place of the name"
            ) from None
        except (_CutError, ConnectionError, TimeoutError, http.client.HTTPException) as error:
            cause = str(error) or type(error).__name__
            logging.warning("%s: the connection was cut (%s)", url, cause)
            if attempt < _ATTEMPTS - 1:
                time.sleep(_PAUSE_SECONDS)
    raise ConnectionError(
        f"{url}: the connection was cut {_ATTEMPTS} times. Run the same command again, which "
        "continues the download"
    )


def _receive(url: str, path: str, name: str) -> None:
    """Requests a file from the end of `path` on, and appends it; or all of it, if it must."""
    start = os.path.getsize(path) if os.path.exists(path) else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        response = urllib.request.urlopen(request, timeout=_READ_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != _NOT_SATISFIABLE or not start:
            raise
        if error.headers.get("Content-Range") == f"bytes */{start}":
            return  # the file is complete
        os.remove(path)
        raise _CutError("the file on the server is another one now") from None
    with response:
        content_range = response.headers.get("Content-Range") or ""
        continues = response.status == _PARTIAL and content_range.startswith(f"bytes {start}-")
        start = start if continues else 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        logging.info("%s: %s of %s bytes", url, "the rest" if start else "all", total or "?")
        with (
            _space_for((total or start) - start, f"downloading {name}", os.path.dirname(path)),
            open(path, "ab" if start else "wb") as stream,
            tqdm(
                desc=name, total=total, initial=start, unit="B", unit_scale=True, disable=None
            ) as bar,
        ):
            for block in _read_blocks(response):
                stream.write(block)
                bar.update(len(block))
    received = os.path.getsize(path)
    if total is not None and received < total:
        raise _CutError(f"{received} of {total} bytes were received")


def _read_blocks(response: Any) -> Iterator[bytes]:
    try:
        while block := response.read(_BLOCK_BYTES):
            yield block
    except (OSError, http.client.HTTPException) as error:
        raise _CutError(str(error)) from None


@contextlib.contextmanager
def _space_for(num_bytes: int, what: str, folder: str) -> Iterator[None]:
    """Raises an OSError with the needed space if a disk is full, or becomes full in the block."""
    free = shutil.disk_usage(folder).free
    try:
        if num_bytes > free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield
    except OSError as error:
        if error.errno not in files.DISK_FULL:
            raise
        raise OSError(
            error.errno,
            f"{error.strerror}: {what} needs {num_bytes:,} bytes, {free:,} were free. Free some "
            "space and run the same command again",
            folder,
        ) from None


def _install(release: Release, url: str, archive: str, folder: str) -> None:
    """Unpacks an archive, checks its tensors, and renames the folder."""
    unpacked = archive.removesuffix(".part") + ".unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)  # of a process that was killed
    os.mkdir(unpacked)
    try:
        _unpack(archive, unpacked, release.name)
        model = _model_folder(unpacked)
        _verify(release, model)
        files.rename(model, folder)
    except (ValueError, FileNotFoundError) as error:
        os.remove(archive)
        raise ValueError(
            f"{error}\n{url}: this archive was removed, and nothing was installed"
        ) from None
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    os.remove(archive)


def _unpack(archive: str, folder: str, name: str) -> None:
    """Unpacks an archive, all of whose members are checked before the first one is written.

    Raises:
        ValueError: the archive is damaged, or has members outside of the folder, links or devices.
        OSError: the disk is full.
    """
    with contextlib.ExitStack() as stack, _explaining_damage(name):
        with open(archive, "rb") as stream:
            is_zip = stream.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC
        members = _list_zip(archive, stack) if is_zip else _list_tar(archive, stack)
        for member in members:
            _check_member(member, name)
        kept = [row for row in members if row.kind == "file" and _RESOURCE_FORKS not in row.name]
        with _space_for(sum(member.size for member in kept), f"unpacking {name}", folder):
            for member in kept:
                path = os.path.join(folder, member.name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with member.open() as source, open(path, "wb") as target:
                    shutil.copyfileobj(source, target, _BLOCK_BYTES)


@contextlib.contextmanager
def _explaining_damage(name: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno:  # the disk, not the archive
            raise
        reason = " ".join(str(error).split())
        raise ValueError(f"{name}: the archive is damaged ({reason})") from None


def _list_tar(path: str, stack: contextlib.ExitStack) -> list[_Member]:
    archive = stack.enter_context(tarfile.TarFile.open(path))
    members = [
        _Member(
            info.name,
            info.size,
            "file" if info.isreg() else "folder" if info.isdir() else _other_kind(info),
            functools.partial(archive.extractfile, info),
        )
        for info in archive
    ]
    while archive.fileobj and archive.fileobj.read(_BLOCK_BYTES):
        pass  # the checksum of gzip is at the end, behind the last member
    return members


def _other_kind(info: tarfile.TarInfo) -> str:
    return "link" if info.issym() or info.islnk() else "device"


def _list_zip(path: str, stack: contextlib.ExitStack) -> list[_Member]:
    archive = stack.enter_context(zipfile.ZipFile(path))
    members = []
    for info in archive.infolist():
        file_type = info.external_attr >> 16 & _FILE_TYPE  # that of Unix, or 0
        kind = "folder" if info.is_dir() else "file"
        if file_type not in _REGULAR_TYPES:
            kind = "link" if file_type == _LINK_TYPE else "device"
        opener = functools.partial(archive.open, info)
        members.append(_Member(info.filename, info.file_size, kind, opener))
    return members


def _check_member(member: _Member, name: str) -> None:
    begin = f"{name}: refused to unpack {member.name!r}, which is"
    if posixpath.isabs(member.name) or ".." in member.name.split("/"):
        raise ValueError(f"{begin} outside of the folder")
    if member.kind not in ("file", "folder"):
        raise ValueError(f"{begin} a {member.kind}")


def _model_folder(folder: str) -> str:
    """Returns the innermost folder that contains all files of an archive."""
    names = os.listdir(folder)
    if len(names) == 1 and os.path.isdir(os.path.join(folder, names[0])):
        return _model_folder(os.path.join(folder, names[0]))
    return folder


def _verify(release: Release, folder: str) -> None:
    """Reads all tensors, and compares them with the checksums of the release if they are known.

    Raises:
        ValueError: tensors differ. The message lists them.
    """
    from albert_tf.checkpoints import loading  # imports TensorFlow

    tensors = loading.read_weights(folder)
    report = releases.identify(release.name, tensors)
    if release.tensors and not (report.is_release and report.release == release):
        raise ValueError(str(report))
    if report.is_release:
        logging.info("%s", report)
    else:
        logging.info(
            "%s: all %d tensors can be read, but the checksums of this release are not known",
            release.name,
            len(tensors),
        )
