"""Opens files that may be compressed: gzip, bzip2, xz, zip or Zstandard; their first bytes tell."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import importlib
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import IO, cast

from albert_tf import files
from albert_tf.tables.file_kinds import MAGIC_BYTES, without_text

_ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"
_OFFICE = "[Content_Types].xml"  # which spreadsheets have, as they are archives
_ZSTANDARD_WINDOW_LOG = 31  # the largest window, which `zstd --long=31` writes


@contextlib.contextmanager
def open_content(path: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Opens a file.

    Yields:
        The stream of its content, and the stream of the bytes as stored, which tells the progress;
        the same one if the file is not compressed.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is compressed and damaged, which is raised where it is read; or in a
            way that cannot be read.
    """
    with files.open_binary(path) as raw, files.naming_file(path):
        start = raw.read(MAGIC_BYTES)
        raw.seek(0)
        magic = next((magic for magic in _OPENERS if start.startswith(magic)), None)
        if magic is None:
            if other := without_text(start):
                kind, advice = other
                raise ValueError(f"{path}: {kind}, which cannot be read. {advice.format(path)}")
            yield raw, raw
            return
        name, open_compressed = _OPENERS[magic]
        damage: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error, lzma.LZMAError)
        damage += (zipfile.BadZipFile, NotImplementedError)
        if magic == _ZSTANDARD_MAGIC:
            damage = (EOFError, OSError, _import_zstd(path).ZstdError)
        with naming_damage(path, name, damage):
            yield open_compressed(path, raw), raw


@contextlib.contextmanager
def naming_damage(path: str, kind: str, damage: tuple[type[Exception], ...]) -> Iterator[None]:
    """Raises a ValueError with the file and its kind for an exception that means damaged content.

    Args:
        path: the file.
        kind: name of its format.
        damage: what the reader of this format raises.
    """
    try:
        yield
    except damage as error:
        if isinstance(error, OSError) and error.errno:  # of the system, not of the content
            raise
        raise ValueError(f"{path}: corrupt {kind} file: {error}") from None


def _import_zstd(path: str) -> ModuleType:
    """Returns the optional package that decompresses Zstandard.

    Raises:
        ValueError: it is not installed; the message names the file that requires it.
    """
    try:
        return importlib.import_module("backports.zstd")
    except ImportError:
        raise ValueError(
            f"{path}: reading Zstandard files requires backports.zstd: "
            "pip install 'albert-tf2[zstd]'"
        ) from None


def _open_zstandard(path: str, raw: IO[bytes]) -> IO[bytes]:
    zstd = _import_zstd(path)
    options = {zstd.DecompressionParameter.window_log_max: _ZSTANDARD_WINDOW_LOG}
    return cast("IO[bytes]", zstd.ZstdFile(raw, options=options))


def _open_zip(path: str, raw: IO[bytes]) -> IO[bytes]:
    """Opens the only file in an archive, such as pandas writes.

    Raises:
        ValueError: the archive has several files or none, or a password.
    """
    archive = zipfile.ZipFile(raw)
    members = [member for member in archive.infolist() if not member.is_dir()]
    if any(member.filename == _OFFICE for member in members):
        raise ValueError(f"{path}: a file of Office, which cannot be read. Save it as CSV in UTF-8")
    if len(members) != 1 or members[0].flag_bits & 1:
        has = "a password" if len(members) == 1 else f"{len(members)} files"
        raise ValueError(f"{path}: an archive with {has}, expected one file. Unpack it")
    return archive.open(members[0])


# First bytes → name of the format, and what opens it.
_OPENERS: dict[bytes, tuple[str, Callable[[str, IO[bytes]], IO[bytes]]]] = {
    b"\x1f\x8b\x08": ("gzip", lambda path, raw: cast("IO[bytes]", gzip.GzipFile(fileobj=raw))),
    b"BZh": ("bzip2", lambda path, raw: bz2.BZ2File(raw)),
    b"\xfd7zXZ\0": ("xz", lambda path, raw: lzma.LZMAFile(raw)),  # noqa: SIM115
    b"PK\3\4": ("zip", _open_zip),
    b"PK\5\6": ("zip", _open_zip),  # without a file
    _ZSTANDARD_MAGIC: ("Zstandard", _open_zstandard),
}
MAGICS = tuple(_OPENERS)
ENDINGS = (".gz", ".gzip", ".bz2", ".xz", ".zip", ".zst", ".zstd")  # of the names of such files


def ending_of(path: str) -> str:
    """Returns the ending of a file's name in lower case, without that of its compression."""
    stem, ending = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if ending in ENDINGS else ending
