"""What an unfinished run of the data program has done so far, on disk.

A directory holds, each written whole under a temporary name and then renamed:

* `run.json`: what decides the bytes of the outputs;
* `run.lock`: held by the process that works here;
* `chunk-000012-000.spill`, …: the records of chunk 12;
* `chunk-000012.json`: chunk 12 is finished; its blocks, counts and the checksum of its text;
* `output-00003.json`: output 3 has its final name; its instances and bytes.

A killed program leaves a directory that says the truth, and the next one goes on from it.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import filelock
from absl import logging

from albert_tf import files

_OURS = re.compile(r"run\.(json|lock)|(chunk-\d+|output-\d+)(-\d+\.spill|\.json)|.+\.tmp")
_RUN, _LOCK = "run.json", "run.lock"


class WorkDirectory:
    """Finished chunks and outputs of one run.

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
        try:
            return str(_read_json(f"{self.chunk_stem(chunk)}.json")["checksum"])
        except FileNotFoundError:
            return ""

    def forget_chunk(self, chunk: int) -> None:
        """Takes back `finish_chunk`, if it was called, before the chunk is made anew."""
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
        """Whether nothing is finished."""
        return not self._finished("chunk") and not self._finished("output")

    def remove(self) -> None:
        """Removes the directory and what this program put into it, `run.json` last."""
        ours = [name for name in os.listdir(self.path) if _OURS.fullmatch(name) and name != _RUN]
        for name in [*ours, _RUN]:
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(self.path, name))
        with contextlib.suppress(OSError):  # somebody put something else there
            os.rmdir(self.path)

    def _finished(self, kind: str) -> dict[int, dict[str, Any]]:
        names = re.compile(rf"{kind}-(\d+)\.json")
        found = sorted(filter(names.fullmatch, os.listdir(self.path)))
        return {
            int(name[len(kind) + 1 : -len(".json")]): _read_json(os.path.join(self.path, name))
            for name in found
        }


@contextlib.contextmanager
def open_work_directory(path: str, run: Mapping[str, Any], resume: bool) -> Iterator[WorkDirectory]:
    """Makes a work directory, or with `resume` finds the one of an interrupted run.

    When the body raises, what is finished stays there to be resumed.

    Args:
        path: the directory.
        run: what decides the bytes of the outputs; JSON values.
        resume: go on where an interrupted run stopped, if one did.

    Raises:
        ValueError: an interrupted run is there and `resume` is False; or it had other settings; or
            another process is at work in it.
    """
    files.make_directory(path, "--work_dir")
    with contextlib.ExitStack() as stack:
        try:  # the lock of a killed process is free
            stack.enter_context(filelock.FileLock(os.path.join(path, _LOCK), timeout=0))
        except filelock.Timeout:
            raise ValueError(f"{path}: another process is writing these outputs") from None
        directory = WorkDirectory(path)
        run = json.loads(json.dumps(run))  # as it will be read back
        before = _read_run(path)
        if before is None:
            if os.listdir(path) != [_LOCK]:
                raise ValueError(
                    f"--work_dir={path}: holds other files; name an empty or a new directory"
                )
            _write_json(os.path.join(path, _RUN), run)
        elif not resume:
            raise ValueError(
                f"{path}: an interrupted run left its finished parts here. Add --resume to go on "
                "with them, or remove the directory to start anew."
            )
        elif changed := [key for key in run if before.get(key) != run[key]]:
            differences = (f"{key} {before.get(key)!r}, now {run[key]!r}" for key in changed)
            raise ValueError(
                f"{path}: the interrupted run had other settings: {'; '.join(differences)}. "
                "Resume it with those, or remove the directory to start anew."
            )
        for name in os.listdir(path):
            if name.endswith(".tmp"):  # half-written when the process was killed
                os.remove(os.path.join(path, name))
        try:
            yield directory
        except BaseException:
            if directory.is_empty():
                directory.remove()
            else:
                logging.warning("%s: finished parts are kept there for --resume", path)
            raise


def _read_run(path: str) -> dict[str, Any] | None:
    try:
        return _read_json(os.path.join(path, _RUN))
    except FileNotFoundError:
        return None


def _read_json(path: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(files.read_text(path))
    return content


def _write_json(path: str, content: Mapping[str, Any]) -> None:
    with files.write_atomically(path) as stream:
        json.dump(content, stream)
