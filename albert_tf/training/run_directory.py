"""The output directory of a run: locking, and the files that describe the run.

* `.lock` is locked by the process that writes to the directory. The kernel releases the lock
  whenever and however the process ends, so it is never stale; the file itself stays.
* `run.json` describes the last start that trained, and `runs.jsonl` all starts, one per line.
* `results.json` contains the final metrics of the run.
* `reporting.json` contains how the run reports its metrics, so that a resumed run does the same.
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
from albert_tf.checkpoints import finding
from albert_tf.checkpoints.finding import RUN_FILE

LOCK_FILE = ".lock"
RUNS_FILE = "runs.jsonl"
RESULTS_FILE = "results.json"
REPORTING_FILE = "reporting.json"
PHASES = ("train", "eval", "test")

# Files left behind by a process that was killed while writing: parts of a checkpoint, and temporary
# files of `files.write_atomically`.
_HALF_WRITTEN = re.compile(
    r"\.model\.ckpt-\w+-[0-9a-f]{8}\.(index|data-).*|[\w.-]+\.[0-9a-f]{8}\.tmp"
)
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
_GIT_SECONDS = 10


@contextlib.contextmanager
def made(output_dir: str, is_shared: bool = False) -> Iterator[None]:
    """Context manager that creates a directory, and removes it again if the block fails unused.

    Args:
        output_dir: the directory, which may exist.
        is_shared: whether other workers use the directory too, so that it must not be removed.

    Raises:
        ValueError: the directory cannot be created or written to.
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
    """Removes the lock file if it is not in use and the directory contains nothing else."""
    path = os.path.join(directory, LOCK_FILE)
    if os.listdir(directory) == [LOCK_FILE] and not os.path.getsize(path):
        os.remove(path)


@contextlib.contextmanager
def lock(output_dir: str) -> Iterator[None]:
    """Context manager that locks a directory and removes partial files of a killed process.

    A process may lock the same directory again while it holds the lock. There is no locking on
    remote paths, on file systems that do not support it (with a warning), and in read-only
    directories.

    Args:
        output_dir: an existing directory.

    Raises:
        FileNotFoundError: the directory does not exist.
        ValueError: another process holds the lock. The message names the process, its host and when
            it started.
    """
    if files.is_remote(output_dir):
        logging.log_first_n(
            logging.INFO,
            "%s is remote and cannot be locked: make sure that only one process writes to it",
            1,
            output_dir,
        )
        yield
        return
    os.stat(output_dir)
    path = os.path.join(os.path.realpath(output_dir), LOCK_FILE)
    # A singleton for each path counts how often this process has acquired the lock. A soft lock is
    # only a file and would outlive a killed process.
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
        if is_first and held.is_locked:  # not locked in a forked process
            _write_owner(path, "")
        held.release()


def _acquire(held: filelock.BaseFileLock, output_dir: str) -> bool:
    """Acquires the lock; returns False if the directory does not support locking."""
    try:
        held.acquire()
    except filelock.Timeout:
        raise ValueError(
            f"{output_dir} is in use by {_owner(held.lock_file)}. Two runs in one folder would "
            "overwrite each other: wait for that run, stop it, or choose another --output_dir."
        ) from None
    except OSError as error:
        if error.errno not in _READ_ONLY:
            logging.warning(
                "%s: not locked against other processes (%s)", output_dir, error.strerror
            )
        return False
    return True


def _write_owner(path: str, text: str) -> None:
    """Writes the owner into the lock file in place, because the file must not be replaced."""
    # This may fail on a full disk; the lock is still held.
    with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def _owner(path: str) -> str:
    try:
        entry = json.loads(files.read_text(path))
        return f"process {entry['pid']} on {entry['host']}, which started {entry['started']}"
    except (OSError, ValueError, KeyError, TypeError):  # not written yet
        return "another process"


def _remove_half_written(output_dir: str) -> None:
    for name in sorted(os.listdir(output_dir)):
        if _HALF_WRITTEN.fullmatch(name):
            logging.info("%s: removing the partial file %s", output_dir, name)
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
    """Writes `run.json`, and appends the same content as a line to `runs.jsonl`.

    A start that does not train, such as an evaluation, leaves a `run.json` of one that did, because
    its settings are those of the model.

    Args:
        output_dir: an existing directory.
        command: the program and its arguments, such as `sys.argv`.
        settings: name → value of all settings including defaults; "flags" in the file.
        config: the model's config, as in albert_config.json.
        device: the devices and the precision.
        changes: folder → settings that differ from those its checkpoints were trained with and
            that the user accepted; "changed_settings" in the file.

    Returns:
        The line of `runs.jsonl`. Besides the arguments it has `started` (UTC), the working
        `directory`, `host`, `platform`, `versions`, and `source`, the git commit of this package
        and whether files differ from it, or None outside a git repository.
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
    if settings.get("do_train") or not finding.flags_of_run(output_dir)[0].get("do_train"):
        _write(os.path.join(output_dir, RUN_FILE), _to_json(entry, indent=1) + "\n")
    path = os.path.join(output_dir, RUNS_FILE)
    _write(path, _read(path) + _to_json(entry) + "\n")
    return entry


def _versions() -> dict[str, str]:
    """Returns package → version of the packages that results depend on."""
    # Imported here so that programs without TensorFlow can lock directories.
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
    """Returns the commit of the git repository that contains this package, or None."""
    try:
        # Fails if the package is installed inside an unrelated repository that does not track it.
        _git("ls-files", "--error-unmatch", os.path.basename(__file__))
        commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "-uno")
    except (OSError, subprocess.SubprocessError):  # git is not installed, or fails
        return None
    return {"commit": commit, "dirty": bool(changes)}


def _git(*arguments: str) -> str:
    """Returns the output of git, run in the package's folder."""
    command = ["git", "-C", os.path.dirname(os.path.abspath(__file__)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_GIT_SECONDS)
    return done.stdout.strip()


def record_results(output_dir: str, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Updates the metrics of some phases in `results.json`.

    Args:
        output_dir: an existing directory.
        results: phase (one of `PHASES`) → name → value.

    Returns:
        The new content of the file.

    Raises:
        ValueError: the file is damaged.
    """
    found = read_results(output_dir) | dict(results)
    merged = {phase: found[phase] for phase in PHASES if phase in found}
    _write(os.path.join(output_dir, RESULTS_FILE), _to_json(merged, indent=1) + "\n")
    return merged


def read_results(output_dir: str) -> dict[str, dict[str, Any]]:
    """Returns `results.json` as phase → name → value; {} if the file does not exist.

    Raises:
        ValueError: the file is damaged.
    """
    path = os.path.join(output_dir, RESULTS_FILE)
    if not files.exists(path):
        return {}
    known = files.read_own_json(path, dict.fromkeys(PHASES, dict | None))
    return {phase: known[phase] for phase in PHASES if known.get(phase) is not None}


def read_reporting(output_dir: str, name: str, kind: type) -> Any:
    """Returns an entry of `reporting.json`; None if there is none.

    Args:
        output_dir: the directory.
        name: name of the entry.
        kind: type of its value.

    Raises:
        ValueError: the file is damaged, or the value has another type.
    """
    path = os.path.join(output_dir, REPORTING_FILE)
    known = files.read_own_json(path, {}) if files.exists(path) else {}
    return files.read_own_json(path, {name: kind})[name] if name in known else None


def record_reporting(output_dir: str, name: str, value: int | str) -> None:
    """Updates an entry of `reporting.json`: the report interval, or the id of a remote run."""
    path = os.path.join(output_dir, REPORTING_FILE)
    known = files.read_own_json(path, {}) if files.exists(path) else {}
    _write(path, _to_json(known | {name: value}, indent=1) + "\n")


def _to_json(content: Mapping[str, Any], indent: int | None = None) -> str:
    def plain(value: Any) -> Any:
        """Converts NumPy scalars to numbers and anything else to strings."""
        return value.item() if hasattr(value, "item") else str(value)

    return json.dumps(content, indent=indent, ensure_ascii=False, default=plain)


def _read(path: str) -> str:
    """Returns a file's text with the last line terminated; "" if the file does not exist."""
    try:
        text = files.read_text(path)
    except FileNotFoundError:
        return ""
    return text if text.endswith("\n") or not text else text + "\n"


def _write(path: str, text: str) -> None:
    with files.write_atomically(path) as stream:
        stream.write(text)
