"""Runs this and other implementations in separate processes that alternate.

A contender is a program that is started with a job (JSON, see `Job`) and prints a line of JSON
after its first step. For every number n on its standard input, it then runs n steps and prints a
line with their times. Contenders alternate in rounds, so that all of them run under the same
conditions; the others wait while one computes. On a busy machine, compare `cpu`, the seconds of all
cores together, because other programs affect the wall time. This is less reliable for PyTorch,
whose threads spin while they wait.

Workers import this file as well, so it only imports packages that every peer environment has.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(FOLDER)
SHARED = os.path.join(ROOT, "../shared")
PEER_PYTHON = "ALBERT_PEER_PYTHON"  # environment variable: the Python with the other libraries
OURS = "worker_albert.py"
HUGGING_FACE = "worker_huggingface.py"
INPUTS = ("input_ids", "input_mask", "segment_ids")
BEGIN = time.perf_counter()

Batch = Mapping[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class Job:
    """What a contender computes.

    Attributes:
        worker: file name of the program.
        batches: path of a file written by `save_batches`.
        config: keys of `albert_config.json`.
        task: "pretraining" or "classification".
        training: whether to train (forward, backward, clipping and AdamW) or only predict.
        precision: "float32" or "bfloat16".
        compiled: whether to use `torch.compile`, or XLA for the whole step.
        recompute: whether to use gradient checkpointing.
        micro_batches: number of micro-batches per step; for this implementation only.
        device: for `worker_huggingface.py`, PyTorch's name of the device.
        engine: for prediction, "openvino", or "" for TensorFlow and PyTorch.
    """

    worker: str
    batches: str
    config: dict[str, Any]
    task: str = "pretraining"
    training: bool = True
    precision: str = "bfloat16"
    compiled: bool = False
    recompute: bool = False
    micro_batches: int = 1
    device: str = "cpu"
    engine: str = ""


class Contender:
    """A running contender.

    Attributes:
        ready: the facts that it printed after its first step; None if it could not be started.
        error: the reason if it could not be started or stopped.
    """

    def __init__(self, job: Job) -> None:
        peer = os.environ.get(PEER_PYTHON, sys.executable)
        python = sys.executable if job.worker == OURS else peer
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self._process = subprocess.Popen(
            [python, os.path.join(FOLDER, job.worker), json.dumps(dataclasses.asdict(job))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={"TF_ENABLE_ONEDNN_OPTS": "1"}  # as `import albert_tf`, if TensorFlow comes first
            | os.environ
            | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": ROOT},
            text=True,
        )
        self.steps: list[dict[str, float]] = []
        self.error = ""
        self.ready = self._read()

    def _read(self) -> dict[str, Any] | None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("{"):
                message: dict[str, Any] = json.loads(line)
                return message
        self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        self.error = lines[-1][:200] if lines else f"exit status {self._process.returncode}"
        return None

    def run(self, steps: int) -> None:
        """Runs steps and records the time of each."""
        if self.ready is None:
            return
        assert self._process.stdin
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        answer = self._read()
        if answer is None:
            self.ready = None
        else:
            self.steps += answer["steps"]

    def close(self) -> dict[str, Any]:
        """Stops the program; returns seconds per step and megabytes, or why it was skipped."""
        if self._process.stdin:
            self._process.stdin.close()
        rest = self._read() if self.ready is not None else None
        self._process.wait()
        self._log.close()
        if not self.steps or self.error or rest is None or self.ready is None:
            return {"skipped": self.error or "no step"}
        seconds = [step["seconds"] for step in self.steps]
        return {
            "seconds": round(statistics.median(seconds), 4),
            "mean": round(statistics.fmean(seconds), 4),
            "fastest": round(min(seconds), 4),
            "cpu": round(statistics.fmean(step["cpu"] for step in self.steps), 4),
            **self.ready,
            **rest,
        }


def race(jobs: Mapping[str, Job], rounds: int, steps: Mapping[str, int]) -> dict[str, Any]:
    """Runs all jobs, alternating between them.

    Args:
        jobs: name → job.
        rounds: number of turns of each contender.
        steps: name → number of steps per turn.

    Returns:
        Name → result of `Contender.close`.
    """
    contenders = {name: Contender(job) for name, job in jobs.items()}
    for _ in range(rounds):
        for name, contender in contenders.items():
            contender.run(steps[name])
    return {name: contender.close() for name, contender in contenders.items()}


def chosen(jobs: Mapping[str, Job], names: str) -> dict[str, Job]:
    """Returns the jobs with the given names, separated by semicolons; all if `names` is empty."""
    wanted = [name.strip() for name in names.split(";") if name.strip()]
    if unknown := set(wanted) - set(jobs):
        sys.exit(
            f"--contenders: unknown name {sorted(unknown)[0]!r}, expected one of {'; '.join(jobs)}"
        )
    return {name: job for name, job in jobs.items() if not wanted or name in wanted}


def divided(results: Mapping[str, Any], key: str) -> dict[str, float]:
    """Returns a measurement of each contender relative to the first; skips those without it."""
    first = next(iter(results.values()))
    return {
        name: round(result[key] / first[key], 2)
        for name, result in results.items()
        if key in result and key in first
    }


def versions_of(results: Mapping[str, Any]) -> dict[str, str]:
    """Returns package → version, of all contenders that report versions."""
    of_each = [result.get("versions", {}) for result in results.values()]
    return {package: version for versions in of_each for package, version in versions.items()}


def save_batches(path: str, batches: Sequence[Batch]) -> str:
    """Writes batches to a file that contenders read; returns its path."""
    arrays: dict[str, Any] = {
        f"{i}/{name}": value for i, batch in enumerate(batches) for name, value in batch.items()
    }
    np.savez(path, **arrays)
    return path


def load_batches(path: str) -> list[dict[str, NDArray[Any]]]:
    """Returns the batches in a file written by `save_batches`."""
    batches: dict[int, dict[str, NDArray[Any]]] = {}
    with np.load(path) as arrays:
        for key in arrays:
            number, name = key.split("/")
            batches.setdefault(int(number), {})[name] = arrays[key]
    return [batches[number] for number in sorted(batches)]


def pretraining_batch(rows: int, length: int, predictions: int, vocab_size: int) -> Batch:
    """Returns a batch of random words without padding: B rows of S tokens, P of them masked."""
    rng = np.random.default_rng(5)
    shape = (rows, length)
    positions = [np.sort(rng.permutation(length)[:predictions]) for _ in range(rows)]
    return {
        "input_ids": rng.integers(5, vocab_size, shape, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": np.repeat([np.arange(length) >= length // 2], rows, 0).astype(np.int32),
        "masked_lm_positions": np.stack(positions).astype(np.int32),
        "masked_lm_ids": rng.integers(5, vocab_size, (rows, predictions), np.int32),
        "masked_lm_weights": np.ones((rows, predictions), np.float32),
        "next_sentence_labels": rng.integers(0, 2, (rows, 1), np.int32),
    }


# Functions for workers.


def read_job() -> dict[str, Any]:
    """Returns the job of this program; must be called after all libraries were imported."""
    job: dict[str, Any] = json.loads(sys.argv[1])
    return job | {"imported_megabytes": megabytes()}


def megabytes() -> int:
    """Returns the peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def serve(
    step: Callable[[int], Any],
    job: dict[str, Any],
    device_megabytes: Callable[[], int] = lambda: 0,
    **facts: Any,
) -> None:
    """Runs a first step, reports it, and then runs the steps requested on standard input.

    Args:
        step: computes step number n, from 0, and waits for its result.
        job: the job, from `read_job`.
        device_megabytes: returns the peak memory of a GPU, 0 without one, for the last report.
        facts: values to include in the first report.
    """
    before = megabytes()
    step(0)
    facts["start_seconds"] = round(time.perf_counter() - BEGIN, 1)
    facts["imported_megabytes"] = job["imported_megabytes"]
    print(json.dumps(facts), flush=True)
    number = 0
    for line in sys.stdin:
        steps = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            cpu = time.process_time()
            step(number)
            steps.append({"seconds": time.perf_counter() - begin, "cpu": time.process_time() - cpu})
            number += 1
        print(json.dumps({"steps": steps}), flush=True)
    # Peak memory of the process, and its growth since before the first step.
    peak = {"peak_megabytes": megabytes(), "step_megabytes": megabytes() - before}
    print(json.dumps(peak | {"device_megabytes": device_megabytes()}))
