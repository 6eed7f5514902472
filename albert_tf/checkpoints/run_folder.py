"""The folder of a run: its record, checkpoints, evaluations, metrics and lock.

Programs and functions that work with a run get its `RunFolder`, and no other module knows the names
of these files. Each is written whole, under a temporary name, or line by line:

* `run.json`: the `RunRecord`;
* `albert_config.json`: the model's config;
* `model.ckpt-<step>`, `model.ckpt-interrupted_<step>`, `model.ckpt-best`: checkpoints;
* `evaluations.jsonl` and `metrics.jsonl`: a line for each evaluation and for each report. Lines are
  only appended, and of those of the same step, the last one counts;
* `runs.jsonl`: a line for each start.

TensorFlow is not imported here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import os
import re
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import filelock
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import huggingface, run_record
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.model.config import AlbertConfig, is_hugging_face

BEST = "model.ckpt-best"  # the best checkpoint of a run
NUMBERED = re.compile(r"model\.ckpt-([0-9]+)")  # the others, by step
# Of a run that a signal stopped, by step: only to resume it, neither evaluated nor used otherwise.
INTERRUPTED = re.compile(r"model\.ckpt-interrupted_([0-9]+)")
DATA_SUFFIX = ".data-00000-of-00001"  # data file of checkpoints with a single shard


CONFIG_FILE = "albert_config.json"
EVALUATIONS_FILE = "evaluations.jsonl"
METRICS_FILE = "metrics.jsonl"
STARTS_FILE = "runs.jsonl"
LOCK_FILE = ".lock"
EVAL = "eval/"  # prefix of the metrics of evaluations in `metrics.jsonl` and TensorBoard
_HUGGING_FACE_FILE = "config.json"

# Files left behind by a process that was killed while writing: parts of a checkpoint, and temporary
# files of `files.write_atomically`.
_HALF_WRITTEN = re.compile(
    rf"\.model\.ckpt-\w+-[0-9a-f]{{8}}\.(index|data-).*|[\w.-]+{files.HALF_WRITTEN}"
)


class RunFolder:
    """The folder of a run, of a converted or saved model, or of any other model.

    Args:
        path: the folder, which may not exist yet.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._record: RunRecord | None = None

    def file(self, name: str) -> str:
        """Returns the path of a file of the folder."""
        return os.path.join(self.path, name)

    # The record.

    @property
    def record(self) -> RunRecord:
        """The record, which is read once; an empty one if there is none.

        In a folder of Hugging Face, `config.json` says which task and labels the model has, if the
        record does not.

        Raises:
            ValueError: a file is damaged.
        """
        if self._record is None:
            path = self.file(run_record.FILE)
            text = files.read_text(path) if files.exists(path) else ""
            record = RunRecord.from_json(text, path) if text else RunRecord()
            task = record.task or self._hugging_face_task()
            self._record = dataclasses.replace(record, task=task)
        return self._record

    def _hugging_face_task(self) -> dict[str, Any]:
        path = self.file(_HUGGING_FACE_FILE)
        values = files.read_json(path) if files.exists(path) else {}
        if not is_hugging_face(values):
            return {}
        try:
            return huggingface.read_task(values)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def write_record(self, record: RunRecord) -> None:
        """Replaces the record."""
        files.write_file(self.file(run_record.FILE), record.to_json())
        self._record = record

    def add_start(self, record: RunRecord) -> None:
        """Appends a start, with its settings, to `runs.jsonl`."""
        row = {**record.start, "settings": record.settings}
        files.append_json_lines(self.file(STARTS_FILE), [row])

    # The config.

    def check_config(self, config: AlbertConfig, source: str) -> None:
        """Compares a model's config with the one in the folder, if there is one.

        Args:
            config: the config.
            source: its file, for the message.

        Raises:
            ValueError: the folder contains the config of another model.
        """
        path = self.file(CONFIG_FILE)
        if not files.exists(path):
            return
        here = config.to_dict()
        there = AlbertConfig.from_json_file(path).to_dict()
        differing = [
            f"{key} is {there.get(key)} there, but {here.get(key)} in {source}"
            for key in sorted(here.keys() | there.keys())
            if here.get(key) != there.get(key)
        ]
        if differing:
            raise ValueError(
                f"--output_dir={self.path} contains another model ({path}): "
                f"{'; '.join(differing)}. Choose another folder."
            )

    def keep_config(self, config: AlbertConfig) -> None:
        """Writes the model's config unless the folder has one."""
        if not files.exists(self.file(CONFIG_FILE)):
            config.to_json_file(self.file(CONFIG_FILE))

    # Checkpoints.

    def checkpoints(self, names: re.Pattern[str] = NUMBERED) -> dict[int, str]:
        """Returns the numbered checkpoints as step → prefix, in ascending order.

        They are found by their `.index` files. The text file `checkpoint` is ignored because in
        released archives it contains a path on another machine.

        Args:
            names: pattern of their names, whose group 1 is the step.
        """
        if not files.is_directory(self.path):
            return {}
        matches = (
            names.fullmatch(name.removesuffix(".index"))
            for name in files.list_directory(self.path)
            if name.endswith(".index")
        )
        steps = {int(match[1]): self.file(match[0]) for match in matches if match}
        return dict(sorted(steps.items()))

    def resumable(self) -> dict[int, str]:
        """Returns the checkpoints that training can be resumed from, as `checkpoints` does.

        These are the numbered ones, and the one of a run that a signal stopped.
        """
        return dict(sorted((self.checkpoints(INTERRUPTED) | self.checkpoints()).items()))

    @property
    def best(self) -> str:
        """Prefix of `model.ckpt-best`, which may not exist."""
        return self.file(BEST)

    @property
    def has_best(self) -> bool:
        """Whether `model.ckpt-best` exists."""
        return files.exists(self.best + ".index")

    @property
    def trained(self) -> str | None:
        """Prefix of `model.ckpt-best`, or else of the newest checkpoint; None if there is none."""
        if self.has_best:
            return self.best
        return next(reversed(self.checkpoints().values()), None)

    @property
    def step(self) -> int | None:
        """The step that training is resumed from; None if there is no checkpoint."""
        trained = 1 if self.has_best else None  # any step after 0: the model has been trained
        return max(self.resumable(), default=trained)

    # Evaluations and metrics.

    def evaluations(self, present: Collection[str] = ()) -> list[Evaluation]:
        """Returns the evaluations, of which the last one with the same data and step counts.

        They are in the order of evaluation.

        Args:
            present: digests of checkpoints that exist, whose evaluations count in any case: another
                checkpoint of the step of `model.ckpt-best` may have been evaluated after it.

        Raises:
            ValueError: the file is damaged.
        """
        fields = typing.get_type_hints(Evaluation)
        rows = files.read_own_json_lines(self.file(EVALUATIONS_FILE), fields)
        found = [Evaluation(**{name: row[name] for name in fields if name in row}) for row in rows]
        last = {entry.key: number for number, entry in enumerate(found)}
        of_checkpoint = {(entry.key, entry.checkpoint): n for n, entry in enumerate(found)}
        others = {n for (_, checkpoint), n in of_checkpoint.items() if checkpoint in present}
        return [found[number] for number in sorted(others.union(last.values()))]

    def add_evaluation(self, evaluation: Evaluation) -> None:
        """Appends an evaluation, also to the metrics."""
        files.append_json_lines(self.file(EVALUATIONS_FILE), [dataclasses.asdict(evaluation)])
        self.add_metrics(
            evaluation.step, {EVAL + name: x for name, x in evaluation.metrics.items()}
        )

    def add_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Appends a line to the metrics."""
        files.append_json_lines(self.file(METRICS_FILE), [{"step": step, **values}])

    def metrics(self) -> list[dict[str, Any]]:
        """Returns the lines of the metrics, sorted by step, training before evaluation.

        Raises:
            ValueError: the file is damaged.
        """
        rows = files.read_own_json_lines(self.file(METRICS_FILE), {"step": int})
        last = {(row["step"], any(name.startswith(EVAL) for name in row)): row for row in rows}
        return [last[key] for key in sorted(last)]

    # The lock.

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Context manager that locks the folder and removes partial files of a killed process.

        The file `.lock` is locked by the process that writes to the folder. The kernel releases the
        lock whenever and however the process ends, so it is never stale; the file itself stays. A
        process may lock the same folder again while it holds the lock. There is no locking on
        remote paths, and on file systems that do not support it (with a warning).

        Raises:
            FileNotFoundError: the folder does not exist.
            ValueError: another process holds the lock.
        """
        if files.is_remote(self.path):
            text = "%s is remote and cannot be locked: only one process may write to it"
            logging.info(text, self.path)
            yield
            return
        os.stat(self.path)
        path = os.path.join(os.path.realpath(self.path), LOCK_FILE)
        # A singleton for each path counts how often this process has acquired the lock. A soft lock
        # is only a file and would outlive a killed process.
        held = filelock.FileLock(
            path, timeout=0, is_singleton=True, thread_local=False, fallback_to_soft=False
        )
        is_first = not held.is_locked
        with contextlib.ExitStack() as stack:
            if self._acquire(held):
                stack.callback(held.release)
                if is_first:
                    self._remove_half_written()
            yield

    def _acquire(self, held: filelock.BaseFileLock) -> bool:
        """Acquires the lock; returns False if the folder does not support locking."""
        try:
            held.acquire()
        except filelock.Timeout:
            raise ValueError(
                f"{self.path} is in use by another process. Two runs in one folder would overwrite "
                "each other: wait for that run, stop it, or choose another --output_dir."
            ) from None
        except OSError as error:
            text = "%s: not locked against other processes (%s)"
            logging.warning(text, self.path, error.strerror)
            return False
        return True

    def _remove_half_written(self) -> None:
        for name in sorted(os.listdir(self.path)):
            if _HALF_WRITTEN.fullmatch(name):
                logging.info("%s: removing the partial file %s", self.path, name)
                os.remove(self.file(name))


LOSS = "eval_loss"  # the metric that decides between equally good checkpoints
_DIGEST_LENGTH = 16


def digest_of_data(*parts: Any) -> str:
    """Returns a short hash of everything that a result depends on."""
    return hashlib.sha256(repr(parts).encode("utf-8")).hexdigest()[:_DIGEST_LENGTH]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The metrics of one checkpoint.

    Attributes:
        step: `global_step` of the checkpoint.
        metrics: name → value.
        checkpoint: digest of the checkpoint; "" for one outside the output directory.
        measured_on: digest of the data and settings that the metrics depend on.
        precision: compute dtype, such as "float32"; None if it was not recorded.
    """

    step: int
    metrics: dict[str, float]
    checkpoint: str
    measured_on: str
    precision: str | None = None

    @property
    def key(self) -> tuple[int, str, str | None]:
        """What two evaluations of the same checkpoint, trained again, have in common."""
        return self.step, self.measured_on, self.precision


def best_of(
    evaluations: Iterable[Evaluation], metric: str, official_order: bool = False
) -> Evaluation | None:
    """Returns the evaluation with the largest value of a metric above -1.

    Of several with the same value, it is the one with the lowest `eval_loss`, if that is measured;
    of those with the same loss, the first one.

    Args:
        evaluations: evaluations ordered by step.
        metric: name of the metric.
        official_order: whether it is the first one whatever its loss, as in Google's programs.
    """
    best = None
    best_rank = (-1.0, math.inf)  # Google's programs start with -1
    for evaluation in evaluations:
        loss = 0.0 if official_order else evaluation.metrics.get(LOSS, 0.0)
        rank = evaluation.metrics[metric], -loss
        if rank > best_rank:
            best = evaluation
            best_rank = rank
    return best


def heading(evaluations: Sequence[Evaluation]) -> str:
    """Returns the first line of a results file: a comment that states the precision.

    It is "" for float32, so that the file equals Google's. It does not have the form `key = value`,
    because scripts expect numbers as values.
    """
    name = evaluations[-1].precision if evaluations else None
    if name in (None, "float32"):
        return ""
    return f"# Computed in {name}; --precision=float32 gives Google's numbers.\n"
