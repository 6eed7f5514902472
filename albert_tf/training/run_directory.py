"""The output directory of a run: one process at a time, and what was run there.

* `.lock` is held by the process that writes to the directory. The kernel lets go of it when the
  process ends, however it ends, so it is never stale; the file itself stays.
* `run.json` describes the run, and `runs.jsonl` this and all earlier ones, a line each.
* `results.json` has the figures that the run ended with.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import importlib.metadata
import json
import os
import platform
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import logging

import albert_tf
from albert_tf import files

LOCK_FILE = ".lock"
RUN_FILE = "run.json"
RUNS_FILE = "runs.jsonl"
RESULTS_FILE = "results.json"
PHASES = ("train", "eval", "test")

# What a process leaves behind that is killed while it writes: parts of a checkpoint, and temporary
# files of `files.write_atomically`.
_HALF_WRITTEN = re.compile(
    r"\.model\.ckpt-\w+-[0-9a-f]{8}\.(index|data-).*|[\w.-]+\.[0-9a-f]{8}\.tmp"
)
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
# TensorFlow is published under several names; the first one that is installed counts.
_DISTRIBUTIONS = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly"),
    "tf_keras": ("tf-keras", "tf-keras-nightly"),
    "numpy": ("numpy",),
}
_GIT_SECONDS = 10

_held: dict[str, int] = {}  # directory → open lock file, of this process


def _let_go_in_child() -> None:
    """A forked process must not keep alive the lock of the one that it came from."""
    for handle in _held.values():
        os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)


@contextlib.contextmanager
def lock(output_dir: str) -> Iterator[None]:
    """Holds a directory against other processes, and clears up after one that was killed.

    What that has left half-written is removed, as nobody else is writing here. The process that has
    the directory may take it again, as where training evaluates. There is no lock on remote paths,
    on file systems and systems without locks (with a warning), and where the directory cannot be
    written to, as nothing can be spoiled there.

    Args:
        output_dir: an existing directory.

    Raises:
        FileNotFoundError: it does not exist.
        ValueError: another process has it; names that process, its host and when it began.
    """
    key = os.path.realpath(output_dir)
    if key in _held or files.is_remote(output_dir):
        yield
        return
    handle = _take(output_dir)
    if handle is None:
        yield
        return
    _held[key] = handle
    try:
        _remove_half_written(output_dir)
        yield
    finally:
        if _held.pop(key, None) is not None:  # else this is a forked process
            os.truncate(handle, 0)
            os.close(handle)


def _take(output_dir: str) -> int | None:
    """The open file of the lock; None where there can be none."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    path = os.path.join(output_dir, LOCK_FILE)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        if error.errno in _READ_ONLY:
            return None
        raise
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = _owner(handle)
        os.close(handle)
        raise ValueError(
            f"{output_dir} is in use by {owner}. Two runs in one folder would spoil one another: "
            "wait for that one, end it, or name another --output_dir."
        ) from None
    except OSError as error:
        os.close(handle)
        logging.warning("%s: not held against other processes (%s)", output_dir, error.strerror)
        return None
    entry = {"pid": os.getpid(), "host": socket.gethostname(), "started": _now()}
    with contextlib.suppress(OSError):  # a full disk: it is held nevertheless
        os.truncate(handle, 0)
        os.pwrite(handle, (json.dumps(entry) + "\n").encode(), 0)
    return handle


def _owner(handle: int) -> str:
    try:
        entry = json.loads(os.pread(handle, 4096, 0))
        return f"process {entry['pid']} on {entry['host']}, which began {entry['started']}"
    except (ValueError, KeyError, TypeError):  # it has not written it yet
        return "another process"


def _remove_half_written(output_dir: str) -> None:
    for name in sorted(os.listdir(output_dir)):
        if _HALF_WRITTEN.fullmatch(name):
            logging.info("%s: removing %s, which was left half-written", output_dir, name)
            os.remove(os.path.join(output_dir, name))


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def describe_run(
    output_dir: str,
    command: Sequence[str],
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
    device: Mapping[str, Any],
) -> dict[str, Any]:
    """Writes `run.json`, and adds the same as a line to `runs.jsonl`.

    Args:
        output_dir: an existing directory.
        command: the program and its arguments, as `sys.argv`.
        settings: name → value of all settings, defaults included; "flags" in the file.
        config: the model's, as in albert_config.json.
        device: what computes, and how: name, count, precision, as far as is known.

    Returns:
        what was written. Besides the arguments: `started` (UTC), `directory` where the command was
        given, `host`, `platform`, `versions`, and `source`: the git commit of the program and
        whether files differ from it, or None where it is not run from a git tree.
    """
    entry = {
        "started": _now(),
        "command": list(command),
        "directory": os.getcwd(),
        "flags": dict(settings),
        "config": dict(config),
        "versions": _versions(),
        "source": _source(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "device": dict(device),
    }
    _write(os.path.join(output_dir, RUN_FILE), _to_json(entry, indent=1) + "\n")
    path = os.path.join(output_dir, RUNS_FILE)
    _write(path, _read(path) + _to_json(entry) + "\n")
    return entry


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {
        "python": platform.python_version(),
        "albert_tf": albert_tf.__version__,
    }
    for module, distributions in _DISTRIBUTIONS.items():
        found[module] = None
        for name in reversed(distributions):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[module] = importlib.metadata.version(name)
    return found


def _source() -> dict[str, Any] | None:
    """Commit of the tree that this package is a part of, if it is part of one."""
    # Where the package is only installed below somebody's git tree, git does not know this file.
    if _git("ls-files", "--error-unmatch", os.path.basename(__file__)) is None:
        return None
    commit, changed = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "-uno")
    return None if commit is None else {"commit": commit, "dirty": bool(changed)}


def _git(*arguments: str) -> str | None:
    """What git answers in the package's folder; None where it fails or is not installed."""
    folder = os.path.dirname(os.path.abspath(__file__))
    try:
        done = subprocess.run(
            ["git", "-C", folder, *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=_GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def record_results(output_dir: str, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Puts the metrics of some phases into `results.json`; those of the others stay.

    Args:
        output_dir: an existing directory.
        results: phase, one of `PHASES` → name → figure.

    Returns:
        what the file holds now.

    Raises:
        ValueError: there is no such phase, or the file is damaged.
    """
    if unknown := sorted(set(results) - set(PHASES)):
        raise ValueError(f"results of {unknown[0]!r}: expected one of {', '.join(PHASES)}")
    path = os.path.join(output_dir, RESULTS_FILE)
    try:
        known = json.loads(_read(path) or "{}")
        found = {phase: known.get(phase) for phase in PHASES} | dict(results)
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path}: not written by this program ({error}); move it away") from None
    merged = {phase: figures for phase, figures in found.items() if figures is not None}
    _write(path, _to_json(merged, indent=1) + "\n")
    return merged


def _to_json(content: Mapping[str, Any], indent: int | None = None) -> str:
    def plain(value: Any) -> Any:
        """Numbers of numpy as numbers, anything else in words."""
        return value.item() if hasattr(value, "item") else str(value)

    return json.dumps(content, indent=indent, ensure_ascii=False, default=plain)


def _read(path: str) -> str:
    """The text of a file; "" where there is none. A last line that was cut short is ended."""
    try:
        text = files.read_text(path)
    except FileNotFoundError:
        return ""
    return text if text.endswith("\n") or not text else text + "\n"


def _write(path: str, text: str) -> None:
    with files.write_atomically(path) as stream:
        stream.write(text)
