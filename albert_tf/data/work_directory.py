"""Keeps the progress of an unfinished run of the data program in a work directory.

The directory contains these files:

* `run.json`: the settings that determine the bytes of the outputs;
* `run.lock`: locked by the process that uses the directory;
* `chunk-000012-000001048576-<checksum>-000.spill`, …: the records of the chunk of file 12 at
  offset 1048576, with the checksum of its text;
* `chunk-000012-000001048576-<checksum>.json`: written when this chunk is finished; its blocks and
  counts;
* `output-000007-<checksum>.json`: written when this output is finished, of blocks with this
  checksum; its numbers of records and bytes.

Each file is written under a temporary name and then renamed. The directory is therefore
consistent whenever a process is killed, and the next run continues from it. If the text has
changed since, the checksums differ: such chunks are not found, and created again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import filelock
from absl import logging

from albert_tf import files
from albert_tf.data.chunks import Position

_RUN = "run.json"
_LOCK = "run.lock"
_CHUNK = re.compile(r"chunk-[\da-f-]+\.json")
# Of a chunk with records, those that are used before all are written.
_COUNTS = ("instances", "documents", "sentences", "tokens", "positions", "record_bytes")
_OURS = re.compile(rf"{_LOCK}|{_RUN}.*|(chunk|output)-\d.*")  # half-written files included


class FinishedChunk(NamedTuple):
    """A chunk whose records are in the work directory.

    Attributes:
        position: identifies the chunk.
        checksum: checksum of its text.
        blocks: names of the blocks with its records, in order.
        counts: what it adds to the counts in the metadata.
    """

    position: Position
    checksum: str
    blocks: list[str]
    counts: Mapping[str, int]


def chunk_stem(directory: str, position: Position, checksum: str) -> str:
    """Returns the path prefix of a chunk's files."""
    number, offset = position
    return os.path.join(directory, f"chunk-{number:06d}-{offset:012d}-{checksum}")


def finish_chunk(directory: str, chunk: FinishedChunk) -> None:
    """Records that a chunk is finished, with all its records in its blocks."""
    path = f"{chunk_stem(directory, chunk.position, chunk.checksum)}.json"
    _write_json(path, {"blocks": chunk.blocks, "counts": chunk.counts})


def find_chunk(directory: str, position: Position, checksum: str) -> FinishedChunk | None:
    """Returns the finished chunk with this position and text, or None.

    Raises:
        ValueError: the record of the chunk is damaged.
    """
    path = f"{chunk_stem(directory, position, checksum)}.json"
    if not os.path.exists(path):
        return None
    entry = files.read_json(path, {"blocks": list, "counts": dict})
    counts = entry["counts"]
    files.check_fields(counts, f"{path}: counts", dict.fromkeys((*_COUNTS, *counts), int))
    blocks = list(map(str, entry["blocks"]))
    for name in blocks:
        files.inside(directory, name, path, is_name=True)
    return FinishedChunk(position, checksum, blocks, counts)


def finish_output(directory: str, output: int, blocks: str, path: str, instances: int) -> None:
    """Records that an output is finished.

    Args:
        directory: the work directory.
        output: index of the output.
        blocks: checksum of the blocks that it was made of.
        path: the output.
        instances: its number of records.
    """
    content = {"instances": instances, "bytes": files.file_size(path)}
    _write_json(_output_file(directory, output, blocks), content)


def find_output(directory: str, output: int, blocks: str, path: str) -> int:
    """Returns the number of records of an output that is finished and still there; or else 0."""
    record = _output_file(directory, output, blocks)
    if not (os.path.exists(record) and files.is_file(path)):
        return 0
    entry = files.read_json(record, {"instances": int, "bytes": int})
    is_same = files.file_size(path) == entry["bytes"]
    return int(entry["instances"]) if is_same else 0


def _output_file(directory: str, output: int, blocks: str) -> str:
    return os.path.join(directory, f"output-{output:06d}-{blocks}.json")


def _has_finished_chunks(directory: str) -> bool:
    return any(map(_CHUNK.fullmatch, os.listdir(directory)))


def _clear(directory: str) -> None:
    """Removes this program's files but the lock."""
    ours = set(filter(_OURS.fullmatch, os.listdir(directory))) - {_LOCK}
    # run.json first: after a kill, the next run does not take the other files for its own.
    for name in sorted(ours, key=lambda name: name != _RUN):
        os.remove(os.path.join(directory, name))


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Locks a work directory; the kernel releases the lock if the process is killed.

    On file systems without locks, this logs a warning and continues without a lock.

    Raises:
        ValueError: another process holds the lock.
    """
    path = os.path.join(directory, _LOCK)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(filelock.FileLock(path, timeout=0, fallback_to_soft=False))
        except filelock.Timeout:
            raise ValueError(
                f"--work_dir={directory}: another process is using it; wait until that has finished"
            ) from None
        except OSError as error:
            logging.warning("%s: cannot lock out other processes (%s)", path, error.strerror)
        yield


@contextlib.contextmanager
def open_work_directory(path: str, run: Mapping[str, object]) -> Iterator[None]:
    """Opens a work directory, which is created if needed and removed at the end.

    After an error, it remains if it contains finished work.

    Args:
        path: the directory.
        run: what must be equal for an interrupted run to be resumed: settings, vocabulary and file
            names, as JSON values.

    Raises:
        ValueError: the directory contains an interrupted run with different values, is in use
            by another process, or contains unrelated files.
    """
    files.ensure_directory(path, "--work_dir")
    names = os.listdir(path)
    if _RUN not in names and not all(map(_OURS.fullmatch, names)):
        raise ValueError(
            f"--work_dir={path}: contains other files; choose an empty or a new directory"
        )
    with _locked(path):
        _resume_or_start(path, run)
        try:
            yield
            _clear(path)
        finally:
            if _has_finished_chunks(path):
                logging.warning(
                    "%s: finished work is kept; run the same command again to resume", path
                )
            else:
                _clear(path)
                with contextlib.suppress(OSError):
                    os.remove(os.path.join(path, _LOCK))
                with contextlib.suppress(OSError):  # it still contains the user's files
                    os.rmdir(path)


def _resume_or_start(directory: str, run: Mapping[str, object]) -> None:
    """Compares `run` with that of an interrupted run, or saves it if there is nothing to resume.

    The text may have changed since: chunks are compared with it later, one by one.
    """
    path = os.path.join(directory, _RUN)
    if not (os.path.exists(path) and _has_finished_chunks(directory)):
        _clear(directory)
        _write_json(path, run)
    elif changes := describe_changes(files.read_json(path), run):
        raise ValueError(
            f"{directory}: the interrupted run had different settings: {changes}. Resume it "
            "with those, or remove the directory to start over."
        )
    else:
        logging.info("%s: resuming an interrupted run", directory)


def describe_changes(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Returns a description of the values of `now` that differ from `before`; "" if none do."""
    changed = (key for key in now if before.get(key) != now[key])
    return "; ".join(f"{key} {before.get(key)!r}, now {now[key]!r}" for key in changed)


def _write_json(path: str, content: Mapping[str, object]) -> None:
    files.write_file(path, json.dumps(content))
