"""Keeps the progress of an unfinished run of the data program in a work directory.

The directory contains these files:

* `run.json`: the settings that determine the bytes of the outputs;
* `run.lock`: locked by the process that uses the directory;
* `chunk-000012-000001048576-000.spill`, …: the records of the chunk of file 12 at offset 1048576;
* `chunk-000012-000001048576.json`: written when this chunk is finished; its blocks, counts and text
  checksum;
* `output-00003.json`: written when output 3 is complete; its name, instances and bytes.

Each file is written under a temporary name and then renamed. The directory is therefore consistent
whenever a process is killed, and the next run continues from it.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import filelock
from absl import logging

from albert_tf import files
from albert_tf.data import corpus
from albert_tf.data.corpus import Position

_RUN = "run.json"
_LOCK = "run.lock"
_OUTPUT_LOCK = ".records.lock"
_OURS = re.compile(
    rf"{_LOCK}|({_RUN}|chunk-[\d-]+\.json|chunk-[\d-]+\.spill|output-\d+\.json)({files.HALF_WRITTEN})?"
)
_NAMES = {
    "chunk": re.compile(r"chunk-(\d+)-(\d+)\.json"),
    "output": re.compile(r"output-(\d+)\.json"),
}

# Kind of file → the types of its fields.
_ENTRIES: dict[str, dict[str, type]] = {
    "chunk": {"checksum": str, "blocks": list, "counts": dict},
    "output": {"name": str, "instances": int, "bytes": int},
}


class WorkDirectory:
    """The finished chunks and outputs of a run.

    Args:
        path: the directory, created by `open_work_directory`.
    """

    def __init__(self, path: str):
        self.path = path

    def chunk_stem(self, chunk: Position) -> str:
        """Returns the path prefix of a chunk's files."""
        number, offset = chunk
        return os.path.join(self.path, f"chunk-{number:06d}-{offset:012d}")

    def finish_chunk(
        self, chunk: Position, checksum: str, blocks: list[str], counts: Mapping[str, int]
    ) -> None:
        """Records that a chunk is finished, with all its records in `blocks`."""
        names = [os.path.basename(block) for block in blocks]
        entry = {"checksum": checksum, "blocks": names, "counts": counts}
        _write_json(f"{self.chunk_stem(chunk)}.json", entry)

    def chunk_checksum(self, chunk: Position) -> str:
        """Returns the checksum of a finished chunk's text, or "" if the chunk is not finished."""
        path = f"{self.chunk_stem(chunk)}.json"
        return str(_read_entry(path, "chunk")["checksum"]) if os.path.exists(path) else ""

    def forget_chunk(self, chunk: Position) -> None:
        """Marks a chunk as unfinished, before it is encoded again."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(f"{self.chunk_stem(chunk)}.json")

    def keep_chunks(self, chunks: Collection[Position]) -> None:
        """Discards all other chunks, left by another text, and the outputs made from them."""
        for number, offset in self._finished("chunk"):
            if (number, offset) not in chunks:
                self.forget_outputs()
                self.forget_chunk((number, offset))

    def blocks(self) -> list[str]:
        """Returns the blocks of all finished chunks, in order."""
        return [
            os.path.join(self.path, name)
            for entry in self._finished("chunk").values()
            for name in entry["blocks"]
        ]

    def text_checksum(self) -> str:
        """Returns the checksum of the text of all finished chunks; see `corpus.text_checksum`."""
        entries = self._finished("chunk").values()
        return corpus.text_checksum(entry["checksum"] for entry in entries)

    def counts(self) -> collections.Counter[str]:
        """Returns the sum of the counts of all finished chunks."""
        total: collections.Counter[str] = collections.Counter()
        for entry in self._finished("chunk").values():
            total.update(entry["counts"])
        return total

    def finish_output(self, output: int, name: str, instances: int, size: int) -> None:
        """Records that an output is complete under its final name."""
        entry = {"name": name, "instances": instances, "bytes": size}
        _write_json(os.path.join(self.path, f"output-{output:05d}.json"), entry)

    def finished_outputs(self) -> dict[int, dict[str, Any]]:
        """Returns index → name, instances and bytes of each finished output."""
        return {output: entry for (output,), entry in self._finished("output").items()}

    def forget_outputs(self) -> None:
        """Marks all outputs as unfinished, because a chunk has changed."""
        for output in self.finished_outputs():
            _remove_if_exists(os.path.join(self.path, f"output-{output:05d}.json"))

    def is_empty(self) -> bool:
        """Returns whether no instance has been created: chunks of blank text do not count."""
        return not self.counts()["instances"]

    def remove(self) -> None:
        """Removes this program's files, `run.json` last, and then the directory if it is empty."""
        ours = sorted(filter(_OURS.fullmatch, os.listdir(self.path)))
        for name in ours:  # in alphabetical order: chunk, output, run.json, run.lock
            _remove_if_exists(os.path.join(self.path, name))
        with contextlib.suppress(OSError):  # it still contains the user's files
            os.rmdir(self.path)

    def _finished(self, kind: str) -> dict[tuple[int, ...], dict[str, Any]]:
        names = map(_NAMES[kind].fullmatch, os.listdir(self.path))
        blocks = sorted((tuple(map(int, name.groups())), name[0]) for name in names if name)
        return {key: _read_entry(os.path.join(self.path, name), kind) for key, name in blocks}


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
            path = os.path.join(folder, f".{name}{_OUTPUT_LOCK}")  # hidden: globs do not match it
            stack.enter_context(lock(path, f"--output_file={stem}"))
            stack.callback(_remove_if_exists, path)  # removed before it is released
        yield


def _remove_if_exists(path: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(path)


@contextlib.contextmanager
def open_work_directory(path: str, run: Mapping[str, Any]) -> Iterator[WorkDirectory]:
    """Creates a work directory, or opens the one of an interrupted run to resume it.

    If the body of the `with` statement raises, finished work stays in the directory.

    Args:
        path: the directory.
        run: the settings that determine the bytes of the outputs; JSON values.

    Raises:
        ValueError: the directory belongs to an interrupted run with different settings, is in use
            by another process, or contains unrelated files.
    """
    with contextlib.ExitStack() as stack:
        files.make_directory(path, "--work_dir")
        names = os.listdir(path)
        if _RUN not in names and not all(map(_OURS.fullmatch, names)):
            raise ValueError(
                f"--work_dir={path}: contains other files; choose an empty or a new directory"
            )
        stack.enter_context(lock(os.path.join(path, _LOCK), f"--work_dir={path}"))
        directory = WorkDirectory(path)
        _check_run(directory, json.loads(json.dumps(run)))
        for name in os.listdir(path):
            if _OURS.fullmatch(name) and name.endswith(".tmp"):  # left by a killed process
                _remove_if_exists(os.path.join(path, name))
        try:
            yield directory
        except BaseException:
            if directory.is_empty():
                directory.remove()
            else:
                logging.warning(
                    "%s: finished work is kept; run the same command again to resume", path
                )
            raise


def _check_run(directory: WorkDirectory, run: Mapping[str, Any]) -> None:
    """Compares `run` with that of an interrupted run, or saves it if there is nothing to resume.

    The text may have changed since: chunks are compared with it later, one by one.
    """
    path = directory.path
    before = _read_json(os.path.join(path, _RUN))
    if not before or directory.is_empty():
        directory.keep_chunks([])
        _write_json(os.path.join(path, _RUN), run)
    elif changes := describe_changes(before, run):
        raise ValueError(
            f"{path}: the interrupted run had different settings: {changes}. Resume it with those, "
            "or remove the directory to start over."
        )
    else:
        logging.info("%s: resuming an interrupted run", path)


def describe_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Returns a description of the values of `now` that differ from `before`; "" if none do."""
    changed = (key for key in now if before.get(key) != now[key])
    return "; ".join(f"{key} {before.get(key)!r}, now {now[key]!r}" for key in changed)


def remove_work_directory(path: str, run: Mapping[str, Any]) -> None:
    """Removes the remains of a work directory if this run was killed while it removed it."""
    if os.path.isdir(path):
        # A ValueError means that the directory is in use or belongs to another run: it stays.
        with contextlib.suppress(ValueError), open_work_directory(path, run) as directory:
            directory.remove()


def _read_json(path: str) -> dict[str, Any]:
    """Returns the content of a JSON file, or {} if it does not exist."""
    try:
        return files.read_json(path)
    except FileNotFoundError:
        return {}


def _read_entry(path: str, kind: str) -> dict[str, Any]:
    """Returns the content of a file written by `finish_chunk` or `finish_output`.

    Raises:
        ValueError: the file is corrupt; the message names it.
    """
    entry = files.read_json(path)
    types = {key: type(value) for key, value in entry.items()}
    if types == _ENTRIES[kind]:
        names = entry.get("blocks", [])
        counts = entry.get("counts", {}).values()
        if {*map(type, names)} <= {str} and {*map(type, counts)} <= {int}:
            return entry
    raise ValueError(
        f"{path}: damaged. Remove the directory {os.path.dirname(path)} to start over."
    )


def _write_json(path: str, content: Mapping[str, Any]) -> None:
    with files.write_atomically(path) as stream:
        json.dump(content, stream)
