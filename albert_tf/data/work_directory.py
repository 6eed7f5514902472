"""The work directory: what an unfinished run of the data program has done so far.

It has these files, each written under a temporary name and then renamed:

* `run.json`: what decides the bytes of the outputs;
* `run.lock`: locked by the process that uses the directory;
* `chunk-000012-000.spill`, …: the records of chunk 12;
* `chunk-000012.json`: chunk 12 is finished; its blocks, its counts and the checksum of its text;
* `output-00003.json`: output 3 is complete; its name, instances and bytes.

So the directory is consistent whenever a process is killed, and the next one continues from it.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import filelock
from absl import logging

from albert_tf import files
from albert_tf.data import corpus

_RUN, _LOCK = "run.json", "run.lock"
_OUTPUT_LOCK = ".records.lock"
_HALF_WRITTEN = r"\.[0-9a-f]{8}\.tmp"  # what `files.write_atomically` appends
_OURS = re.compile(
    rf"{_LOCK}|({_RUN}|chunk-\d+\.json|chunk-\d+-\d+\.spill|output-\d+\.json)({_HALF_WRITTEN})?"
)

# Kind of a file → the types of what is in it.
_ENTRIES: dict[str, dict[str, type]] = {
    "chunk": {"checksum": str, "blocks": list, "counts": dict},
    "output": {"name": str, "instances": int, "bytes": int},
}


class WorkDirectory:
    """The finished chunks and outputs of a run.

    Args:
        path: the directory. `open_work_directory` makes it.
    """

    def __init__(self, path: str):
        self.path = path

    def chunk_stem(self, chunk: int) -> str:
        """The beginning of the names of a chunk's files."""
        return os.path.join(self.path, f"chunk-{chunk:06d}")

    def finish_chunk(
        self, chunk: int, checksum: str, blocks: list[str], counts: Mapping[str, int]
    ) -> None:
        """Notes that all records of a chunk are in `blocks`."""
        names = [os.path.basename(block) for block in blocks]
        entry = {"checksum": checksum, "blocks": names, "counts": counts}
        _write_json(f"{self.chunk_stem(chunk)}.json", entry)

    def chunk_checksum(self, chunk: int) -> str:
        """The checksum of a finished chunk's text, or "" for one that is not finished."""
        path = f"{self.chunk_stem(chunk)}.json"
        return str(_read_entry(path, "chunk")["checksum"]) if os.path.exists(path) else ""

    def forget_chunk(self, chunk: int) -> None:
        """Takes back `finish_chunk`, if it was called, before the chunk is encoded again."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(f"{self.chunk_stem(chunk)}.json")

    def keep_chunks(self, count: int) -> None:
        """Forgets chunks from number `count` on, of a text that was longer at the time."""
        for chunk in self._finished("chunk"):
            if chunk >= count:
                self.forget_chunk(chunk)

    def blocks(self) -> list[str]:
        """The blocks of all finished chunks, in order."""
        return [
            os.path.join(self.path, name)
            for entry in self._finished("chunk").values()
            for name in entry["blocks"]
        ]

    def text_checksum(self) -> str:
        """The checksum of the text of all finished chunks; see `corpus.text_checksum`."""
        entries = self._finished("chunk").values()
        return corpus.text_checksum(entry["checksum"] for entry in entries)

    def counts(self) -> collections.Counter[str]:
        """The counts of all finished chunks together."""
        total: collections.Counter[str] = collections.Counter()
        for entry in self._finished("chunk").values():
            total.update(entry["counts"])
        return total

    def finish_output(self, output: int, name: str, instances: int, size: int) -> None:
        """Notes that an output is complete under its final name."""
        entry = {"name": name, "instances": instances, "bytes": size}
        _write_json(os.path.join(self.path, f"output-{output:05d}.json"), entry)

    def finished_outputs(self) -> dict[int, dict[str, Any]]:
        """Name, instances and bytes of the finished outputs, by number."""
        return self._finished("output")

    def forget_outputs(self) -> None:
        """Takes back all `finish_output`, because a chunk has changed."""
        for output in self.finished_outputs():
            os.remove(os.path.join(self.path, f"output-{output:05d}.json"))

    def is_empty(self) -> bool:
        """Whether no instance has been made. Chunks of blank text are not worth keeping."""
        return not self.counts()["instances"]

    def remove(self) -> None:
        """Removes the directory and what this program put into it, `run.json` at last."""
        ours = sorted(filter(_OURS.fullmatch, os.listdir(self.path)))
        for name in ours:  # in the order of the alphabet: chunk, output, run.json, run.lock
            os.remove(os.path.join(self.path, name))
        with contextlib.suppress(OSError):  # there are other files in it
            os.rmdir(self.path)

    def _finished(self, kind: str) -> dict[int, dict[str, Any]]:
        names = map(re.compile(rf"{kind}-(\d+)\.json").fullmatch, os.listdir(self.path))
        found = sorted((int(name[1]), name[0]) for name in names if name)
        return {number: _read_entry(os.path.join(self.path, name), kind) for number, name in found}


@contextlib.contextmanager
def lock(path: str, what: str) -> Iterator[None]:
    """Holds a lock file against other processes; the kernel releases that of a killed process.

    Nothing is held on file systems without locks (with a warning).

    Raises:
        ValueError: another process holds it and so is writing `what`.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(filelock.FileLock(path, timeout=0, fallback_to_soft=False))
        except filelock.Timeout:
            raise ValueError(f"{what}: another process is writing this; wait for its end") from None
        except OSError as error:
            logging.warning("%s: not held against other processes (%s)", path, error.strerror)
        yield


@contextlib.contextmanager
def lock_outputs(stems: Sequence[str]) -> Iterator[None]:
    """Holds outputs against other processes, whatever the work directories of those are.

    Args:
        stems: as `records.Outputs.stems`. Remote ones are not held.

    Raises:
        ValueError: another process is writing one of them.
    """
    with contextlib.ExitStack() as stack:
        for stem in dict.fromkeys(itertools.filterfalse(files.is_remote, stems)):
            folder, name = os.path.split(stem)
            path = os.path.join(folder, f".{name}{_OUTPUT_LOCK}")  # no glob for records finds it
            stack.enter_context(lock(path, f"--output_file={stem}"))
            stack.callback(_remove_if_there, path)  # before it is released
        yield


def _remove_if_there(path: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(path)


@contextlib.contextmanager
def open_work_directory(path: str, run: Mapping[str, Any]) -> Iterator[WorkDirectory]:
    """Makes a work directory, or opens that of an interrupted run to resume it.

    If the body raises, what is finished stays there to be resumed.

    Args:
        path: the directory.
        run: what decides the bytes of the outputs; JSON values.

    Raises:
        ValueError: there is an interrupted run with other settings; or another process is using
            the directory; or it has other files.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(files.made_directory(path, "--work_dir"))
        names = os.listdir(path)
        if _RUN not in names and not all(map(_OURS.fullmatch, names)):
            raise ValueError(
                f"--work_dir={path}: holds other files; name an empty or a new directory"
            )
        stack.enter_context(lock(os.path.join(path, _LOCK), f"--work_dir={path}"))
        directory = WorkDirectory(path)
        _check_run(directory, json.loads(json.dumps(run)))
        for name in os.listdir(path):
            if _OURS.fullmatch(name) and name.endswith(".tmp"):  # of a process that was killed
                os.remove(os.path.join(path, name))
        try:
            yield directory
        except BaseException:
            if directory.is_empty():
                directory.remove()
            else:
                logging.warning("%s: finished parts are kept; the same command resumes", path)
            raise


def _check_run(directory: WorkDirectory, run: Mapping[str, Any]) -> None:
    """Compares `run` with that of an interrupted run, or writes it if there is nothing to resume.

    The text may have changed: chunks are compared with it one by one.
    """
    path = directory.path
    before = _read_json(os.path.join(path, _RUN))
    if not before or directory.is_empty():
        directory.keep_chunks(0)
        _write_json(os.path.join(path, _RUN), run)
    elif changes := describe_changes(before, run):
        raise ValueError(
            f"{path}: the interrupted run had other settings: {changes}. Resume it with those, or "
            "remove the directory to start anew."
        )
    else:
        logging.info("%s: resuming an interrupted run", path)


def describe_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Returns which values of `now` are others than `before`, with both; "" if none is."""
    changed = (key for key in now if before.get(key) != now[key])
    return "; ".join(f"{key} {before.get(key)!r}, now {now[key]!r}" for key in changed)


def remove_work_directory(path: str, run: Mapping[str, Any]) -> None:
    """Removes what is left if this run was killed while it removed its work directory."""
    if os.path.isdir(path):
        # The directory of another run, or in use: not ours to remove.
        with contextlib.suppress(ValueError), open_work_directory(path, run) as directory:
            directory.remove()


def _read_json(path: str) -> dict[str, Any]:
    """The content of a file; {} if it does not exist."""
    try:
        return files.read_json(path)
    except FileNotFoundError:
        return {}


def _read_entry(path: str, kind: str) -> dict[str, Any]:
    """Reads what `finish_chunk` or `finish_output` wrote.

    Raises:
        ValueError: it is something else; names the file.
    """
    entry = files.read_json(path)
    types = {key: type(value) for key, value in entry.items()}
    if types == _ENTRIES[kind]:
        names, counts = entry.get("blocks", []), entry.get("counts", {}).values()
        if {*map(type, names)} <= {str} and {*map(type, counts)} <= {int}:
            return entry
    raise ValueError(
        f"{path}: damaged. Remove the directory {os.path.dirname(path)} to start anew."
    )


def _write_json(path: str, content: Mapping[str, Any]) -> None:
    with files.write_atomically(path) as stream:
        json.dump(content, stream)
