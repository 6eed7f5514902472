"""The output directory of a run: one process at a time, and what was run there.

* `.lock` is locked by the process that writes to the directory. The kernel releases the lock when
  the process ends, however it ends, so it is never stale; the file itself stays.
* `run.json` describes the run, and `runs.jsonl` this and all earlier ones, a line each.
* `results.json` has the metrics that the run ended with.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import platform
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import filelock
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
_GIT_SECONDS = 10


@contextlib.contextmanager
def made(output_dir: str, is_shared: bool = False) -> Iterator[None]:
    """Makes a directory for a `with` block; where the block fails and left it empty, removes it.

    Args:
        output_dir: may exist.
        is_shared: leave it to other workers, which may be about to use it.

    Raises:
        ValueError: it cannot be made or written to.
    """
    if is_shared:
        files.make_directory(output_dir, "--output_dir")
        yield
        return
    with files.made_directory(output_dir, "--output_dir") as is_new:
        try:
            yield
        except BaseException:
            if is_new:
                with contextlib.suppress(OSError):
                    _remove_free_lock(output_dir)
            raise


def _remove_free_lock(directory: str) -> None:
    """Removes the file of a lock that nobody holds, if there is nothing else in the directory."""
    path = os.path.join(directory, LOCK_FILE)
    if os.listdir(directory) == [LOCK_FILE] and not os.path.getsize(path):
        os.remove(path)


@contextlib.contextmanager
def lock(output_dir: str) -> Iterator[None]:
    """Holds a directory against other processes, and clears up after one that was killed.

    What that one has left half-written is removed, as nobody else is writing here. The process that
    holds the directory may take it again. Nothing is locked on remote paths, on file systems
    without locks (with a warning), and where the directory cannot be written to.

    Args:
        output_dir: an existing directory.

    Raises:
        FileNotFoundError: it does not exist.
        ValueError: another process holds it; names that process, its host and when it began.
    """
    if files.is_remote(output_dir):
        logging.log_first_n(
            logging.INFO,
            "%s is not locked, as it is remote: let one process at a time write to it",
            1,
            output_dir,
        )
        yield
        return
    os.stat(output_dir)
    path = os.path.join(os.path.realpath(output_dir), LOCK_FILE)
    # One object for each path in a process counts how often it is taken. A soft lock, a mere file,
    # would outlive a process that is killed.
    held = filelock.FileLock(
        path, timeout=0, is_singleton=True, thread_local=False, fallback_to_soft=False
    )
    is_first = not held.is_locked
    if not _acquire(held, output_dir):
        yield
        return
    try:
        if is_first:
            _remove_half_written(output_dir)
            owner = {"pid": os.getpid(), "host": socket.gethostname(), "started": _now()}
            _write_owner(path, json.dumps(owner) + "\n")
        yield
    finally:
        if is_first and held.is_locked:  # else this is a forked process
            _write_owner(path, "")
        held.release()


def _acquire(held: filelock.BaseFileLock, output_dir: str) -> bool:
    """Returns whether the lock is taken: not where there can be none."""
    try:
        held.acquire()
    except filelock.Timeout:
        raise ValueError(
            f"{output_dir} is in use by {_owner(held.lock_file)}. Two runs in one folder would "
            "spoil one another: wait for that one, end it, or name another --output_dir."
        ) from None
    except OSError as error:
        if error.errno not in _READ_ONLY:
            logging.warning("%s: not held against other processes (%s)", output_dir, error.strerror)
        return False
    return True


def _write_owner(path: str, text: str) -> None:
    """Writes who holds a lock into its file, where it must not be renamed to."""
    # On a full disk, or on Windows, where the file is closed to everybody: it is held nevertheless.
    with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def _owner(path: str) -> str:
    try:
        entry = json.loads(files.read_text(path))
        return f"process {entry['pid']} on {entry['host']}, which began {entry['started']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has not written it yet
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
    changes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Writes `run.json`, and adds the same as a line to `runs.jsonl`.

    Args:
        output_dir: an existing directory.
        command: the program and its arguments, as `sys.argv`.
        settings: name → value of all settings, defaults included; "flags" in the file.
        config: of the model, as in albert_config.json.
        device: what computes, and how: devices and precision.
        changes: folder → what is not as it was when its checkpoints were trained, and was
            accepted; "changed_settings" in the file.

    Returns:
        what was written. Besides the arguments: `started` (UTC), the working `directory`, `host`,
        `platform`, `versions`, and `source`, the git commit of this package and whether files
        differ from it; None where it is not run from a git tree.
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
    if changes:
        entry["changed_settings"] = dict(changes)
    _write(os.path.join(output_dir, RUN_FILE), _to_json(entry, indent=1) + "\n")
    path = os.path.join(output_dir, RUNS_FILE)
    _write(path, _read(path) + _to_json(entry) + "\n")
    return entry


def _versions() -> dict[str, str]:
    """Returns package → version of what a run's numbers depend on."""
    # Here, as a lock is taken at once in processes that do not wait for TensorFlow.
    import numpy as np
    import tensorflow as tf
    import tf_keras

    return {
        "python": platform.python_version(),
        "albert_tf": albert_tf.__version__,
        "tensorflow": tf.__version__,
        "tf_keras": tf_keras.__version__,
        "numpy": np.__version__,
    }


def _source() -> dict[str, Any] | None:
    """Returns the commit of the git tree that this package is a part of, if it is of one."""
    try:
        # Fails where the package is only installed below somebody's tree, which does not have it.
        _git("ls-files", "--error-unmatch", os.path.basename(__file__))
        commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "-uno")
    except (OSError, subprocess.SubprocessError):  # git is not installed, or says no
        return None
    return {"commit": commit, "dirty": bool(changes)}


def _git(*arguments: str) -> str:
    """Returns what git answers in the package's folder."""
    command = ["git", "-C", os.path.dirname(os.path.abspath(__file__)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_GIT_SECONDS)
    return done.stdout.strip()


def record_results(output_dir: str, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Puts the metrics of some phases into `results.json`; those of the others stay.

    Args:
        output_dir: an existing directory.
        results: phase, one of `PHASES` → name → figure.

    Returns:
        what the file holds now.

    Raises:
        ValueError: the file is damaged.
    """
    found = read_results(output_dir) | dict(results)
    merged = {phase: found[phase] for phase in PHASES if phase in found}
    _write(os.path.join(output_dir, RESULTS_FILE), _to_json(merged, indent=1) + "\n")
    return merged


def read_results(output_dir: str) -> dict[str, dict[str, Any]]:
    """Returns phase → name → figure of `results.json`; nothing where there is no such file.

    Raises:
        ValueError: the file is damaged.
    """
    path = os.path.join(output_dir, RESULTS_FILE)
    if not files.exists(path):
        return {}
    known = files.read_own_json(path, dict.fromkeys(PHASES, dict | None))
    return {phase: known[phase] for phase in PHASES if known.get(phase) is not None}


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
