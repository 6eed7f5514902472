"""Keeps the progress of an unfinished run of the data program in a work directory.

The directory contains these files:

* `run.json`: the settings that determine the bytes of the outputs;
* `run.lock`: locked by the process that uses the directory;
* `chunk-000012-000001048576-<checksum>-000.spill`, …: the records of the chunk of file 12 at offset
  1048576, with the checksum of its text;
* `chunk-000012-000001048576-<checksum>.json`: written when this chunk is finished; its blocks and
  counts;
* `output-00003.json`: written when output 3 is complete; its number of instances, and the checksum
  of the whole text.

Each file is written under a temporary name and then renamed. The directory is therefore consistent
whenever a process is killed, and the next run continues from it. If the text has changed since, the
checksums differ: such chunks and outputs are not found, and created again.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import filelock
from absl import logging

from albert_tf import files
from albert_tf.data.corpus import Position

_RUN = "run.json"
_LOCK = "run.lock"
_CHUNK = re.compile(r"chunk-[\da-f-]+\.json")
_OUTPUT = re.compile(r"output-(\d+)\.json")
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


class WorkDirectory:
    """The finished chunks and outputs of a run.

    Args:
        path: the directory, created by `open_work_directory`.
    """

    def __init__(self, path: str):
        self.path = path

    def chunk_stem(self, position: Position, checksum: str) -> str:
        """Returns the path prefix of a chunk's files."""
        number, offset = position
        return os.path.join(self.path, f"chunk-{number:06d}-{offset:012d}-{checksum}")

    def finish_chunk(self, chunk: FinishedChunk) -> None:
        """Records that a chunk is finished, with all its records in its blocks."""
        path = f"{self.chunk_stem(chunk.position, chunk.checksum)}.json"
        _write_json(path, {"blocks": chunk.blocks, "counts": chunk.counts})

    def find_chunk(self, position: Position, checksum: str) -> FinishedChunk | None:
        """Returns the finished chunk with this position and text, or None."""
        path = f"{self.chunk_stem(position, checksum)}.json"
        if not os.path.exists(path):
            return None
        entry = files.read_json(path, {"blocks": list, "counts": dict})
        return FinishedChunk(position, checksum, entry["blocks"], entry["counts"])

    def has_finished_chunks(self) -> bool:
        """Returns whether any chunk is finished."""
        return any(map(_CHUNK.fullmatch, os.listdir(self.path)))

    def finish_output(self, output: int, text_checksum: str, instances: int) -> None:
        """Records that an output is complete under its final name."""
        path = os.path.join(self.path, f"output-{output:05d}.json")
        _write_json(path, {"text_checksum": text_checksum, "instances": instances})

    def finished_outputs(self, text_checksum: str) -> dict[int, int]:
        """Returns index → instances of the complete outputs of a text; forgets those of others."""
        finished = {}
        for match in filter(None, map(_OUTPUT.fullmatch, os.listdir(self.path))):
            path = os.path.join(self.path, match[0])
            entry = files.read_json(path, {"text_checksum": str, "instances": int})
            if entry["text_checksum"] == text_checksum:
                finished[int(match[1])] = entry["instances"]
            else:
                os.remove(path)
        return finished

    def clear(self) -> None:
        """Removes this program's files but the lock."""
        ours = set(filter(_OURS.fullmatch, os.listdir(self.path))) - {_LOCK}
        # run.json first: after a kill, the next run does not take the other files for its own.
        for name in sorted(ours, key=lambda name: name != _RUN):
            os.remove(os.path.join(self.path, name))

    def remove(self) -> None:
        """Removes this program's files, and then the directory if it is empty."""
        self.clear()
        _remove_if_exists(os.path.join(self.path, _LOCK))
        with contextlib.suppress(OSError):  # it still contains the user's files
            os.rmdir(self.path)


@contextlib.contextmanager
def lock(path: str, what: str) -> Iterator[None]:
    """Holds a lock file; the kernel releases it if the process is killed.

    On file systems without locks, this logs a warning and continues without a lock.

    Args:
        path: the lock file.
        what: what the lock protects, for the error message.

    Raises:
        ValueError: another process holds the lock.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(filelock.FileLock(path, timeout=0, fallback_to_soft=False))
        except filelock.Timeout:
            raise ValueError(
                f"{what}: another process is writing this; wait until it has finished"
            ) from None
        except OSError as error:
            logging.warning("%s: cannot lock out other processes (%s)", path, error.strerror)
        yield


@contextlib.contextmanager
def lock_outputs(stems: Sequence[str]) -> Iterator[None]:
    """Locks outputs against other processes, even if those use a different work directory.

    Args:
        stems: see `records.Outputs.stems`. Remote outputs are not locked.

    Raises:
        ValueError: another process is writing one of them.
    """
    with contextlib.ExitStack() as stack:
        for stem in dict.fromkeys(itertools.filterfalse(files.is_remote, stems)):
            folder, name = os.path.split(stem)
            path = os.path.join(folder, f".{name}.records.lock")  # hidden: globs do not match it
            stack.enter_context(lock(path, f"--output_file={stem}"))
            stack.callback(_remove_if_exists, path)  # removed before it is released
        yield


def _remove_if_exists(path: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(path)


@contextlib.contextmanager
def open_work_directory(path: str, run: Mapping[str, Any]) -> Iterator[WorkDirectory]:
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
    with lock(os.path.join(path, _LOCK), f"--work_dir={path}"):
        directory = WorkDirectory(path)
        _resume_or_start(directory, run)
        try:
            yield directory
        except BaseException:
            if not directory.has_finished_chunks():
                directory.remove()
            else:
                logging.warning(
                    "%s: finished work is kept; run the same command again to resume", path
                )
            raise
        directory.remove()


def _resume_or_start(directory: WorkDirectory, run: Mapping[str, Any]) -> None:
    """Compares `run` with that of an interrupted run, or saves it if there is nothing to resume.

    The text may have changed since: chunks are compared with it later, one by one.
    """
    path = os.path.join(directory.path, _RUN)
    if not (os.path.exists(path) and directory.has_finished_chunks()):
        directory.clear()
        _write_json(path, run)
    elif changes := describe_changes(files.read_json(path), run):
        raise ValueError(
            f"{directory.path}: the interrupted run had different settings: {changes}. Resume it "
            "with those, or remove the directory to start over."
        )
    else:
        logging.info("%s: resuming an interrupted run", directory.path)


def describe_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Returns a description of the values of `now` that differ from `before`; "" if none do."""
    changed = (key for key in now if before.get(key) != now[key])
    return "; ".join(f"{key} {before.get(key)!r}, now {now[key]!r}" for key in changed)


def _write_json(path: str, content: Mapping[str, Any]) -> None:
    with files.write_atomically(path) as stream:
        json.dump(content, stream)
