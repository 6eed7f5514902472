"""The folder of a run: its record, checkpoints, evaluations, metrics and lock.

Programs and functions that work with a run get its `RunFolder`, and no other module knows the names
of these files. Each is written whole, under a temporary name, or line by line:

* `run.json`: the `RunRecord`;
* `albert_config.json`: the model's config;
* `model.ckpt-<step>`, `model.ckpt-interrupted_<step>`, `model.ckpt-best`: checkpoints;
* `checkpoints.jsonl`: a line for each checkpoint that was saved, with its digest;
* `evaluations.jsonl` and `metrics.jsonl`: a line for each evaluation and for each report. Of those
  of the same step, the last one counts; a run that resumes from an earlier step first removes the
  reports of the steps that it trains again;
* `runs.jsonl`: a line for each start;
* `examples.jsonl`: a few rows of the training data, to try the model with.

TensorFlow is not imported here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping

import filelock
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import run_record, tasks
from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.model.config import AlbertConfig, is_hugging_face

BEST = "model.ckpt-best"  # the best checkpoint of a run
NUMBERED = re.compile(r"model\.ckpt-([0-9]+)")  # the others, by step
# Of a run that a signal stopped, by step: only to resume it, neither evaluated nor used otherwise.
INTERRUPTED = re.compile(r"model\.ckpt-interrupted_([0-9]+)")
DATA_SUFFIX = ".data-00000-of-00001"  # data file of checkpoints with a single shard

CONFIG_FILE = "albert_config.json"
CHECKPOINTS_FILE = "checkpoints.jsonl"
EVALUATIONS_FILE = "evaluations.jsonl"
METRICS_FILE = "metrics.jsonl"
STARTS_FILE = "runs.jsonl"
EXAMPLES_FILE = "examples.jsonl"
EVAL = "eval/"  # prefix of the metrics of evaluations in `metrics.jsonl` and TensorBoard
LOCK_FILE = ".lock"
SWEEP_SUMMARY = "sweep_results.txt"  # in the folder above those of the runs that it compares
BEST_OF_SWEEP = "best: "  # beginning of its last line, before the folder of the best run
_HUGGING_FACE_FILE = "config.json"
# Fields of the lines.
_CHECKPOINT = {"step": int, "digest": str}
_METRICS = {"step": int}
_DIGEST_LENGTH = 16
_BLOCK_BYTES = 1 << 20
# Left behind by a process that was killed while writing: parts of a checkpoint, and temporary files
# of `files.write_atomically`.
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

    # What saving a model has left, if a kill interrupted it.

    @property
    def current(self) -> RunFolder:
        """The folder with the files that count now: this one, or another; see `files.current`.

        Raises:
            ValueError: what a kill has left is damaged.
        """
        place = files.current(self.path)
        return self if place == self.path else RunFolder(place)

    def finish_saving(self) -> None:
        """Puts the files that count into this folder, which must be one to write to.

        Raises:
            ValueError: what a kill has left is damaged.
        """
        files.finish_replacing(self.path)
        self._record = None

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

    @property
    def predicts_masked_words(self) -> bool:
        """Whether a folder of Hugging Face says that its model is one for masked words."""
        return tasks.predicts_masked_words(self._hugging_face_config())

    def _hugging_face_task(self) -> files.JsonObject:
        try:
            return tasks.read_task(self._hugging_face_config())
        except ValueError as error:
            raise ValueError(f"{self.file(_HUGGING_FACE_FILE)}: {error}") from None

    def _hugging_face_config(self) -> files.JsonObject:
        """Returns the content of Hugging Face's `config.json`; {} if there is none."""
        path = self.file(_HUGGING_FACE_FILE)
        values = files.read_json_if_there(path)
        return values if is_hugging_face(values) else {}

    def write_record(self, record: RunRecord) -> None:
        """Replaces the record."""
        files.write_file(self.file(run_record.FILE), record.to_json())
        self._record = record

    def add_start(self, record: RunRecord) -> None:
        """Appends a start, with its settings, to `runs.jsonl`."""
        row = {**record.start, "settings": record.settings}
        files.append_json_lines(self.file(STARTS_FILE), [row])

    def keep_examples(self, rows: Collection[files.JsonObject]) -> None:
        """Writes rows of the training data as `albert predict` reads them, if there are any.

        They are logged the first time, because a model may be given to those who may not see them.
        """
        if not rows:
            return
        path = self.file(EXAMPLES_FILE)
        if not files.is_file(path):
            logging.info("%s has rows of the training data, for albert predict --web", path)
        files.write_json_lines(path, rows)

    def examples(self) -> list[files.JsonObject]:
        """Returns the rows of `keep_examples`; [] if there are none.

        Raises:
            ValueError: the file is damaged.
        """
        return files.read_own_json_lines(self.file(EXAMPLES_FILE), {})

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
        found = _by_step(self._names(), names)
        return {step: self.file(name) for step, name in found.items()}

    def _names(self) -> list[str]:
        return files.list_directory(self.path) if files.is_directory(self.path) else []

    def resumable(self) -> dict[int, str]:
        """Returns the checkpoints that training can be resumed from, as `checkpoints` does.

        These are the numbered ones, and the one of a run that a signal stopped.
        """
        names = self._names()
        found = _by_step(names, INTERRUPTED) | _by_step(names)
        return {step: self.file(found[step]) for step in sorted(found)}

    @property
    def best(self) -> str:
        """Prefix of `model.ckpt-best`, which may not exist."""
        return self.file(BEST)

    @property
    def has_best(self) -> bool:
        """Whether `model.ckpt-best` exists."""
        return files.exists(self.best + ".index")

    @property
    def checkpoint(self) -> str | None:
        """Prefix of the checkpoint to use, `model.ckpt-best` or else the newest one, or None."""
        if self.has_best:
            return self.best
        return next(reversed(self.checkpoints().values()), None)

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to use or to resume from, possibly that of step 0."""
        return self.has_best or bool(self.resumable())

    @property
    def is_trained(self) -> bool:
        """Whether training has got beyond step 0.

        Where `model.ckpt-best` is the only checkpoint, its step is not known without opening it;
        only a model that was trained is left alone with it.
        """
        steps = self.resumable()
        return max(steps) > 0 if steps else self.has_best

    def add_checkpoint(self, step: int, digest: str) -> None:
        """Records a checkpoint that is saved, with its `digest`, once."""
        if digest not in self.saved_digests().get(step, ()):
            files.append_json_lines(self.file(CHECKPOINTS_FILE), [{"step": step, "digest": digest}])

    def saved_digests(self) -> dict[int, list[str]]:
        """Returns step → digests of the checkpoints that runs in this folder have saved.

        Raises:
            ValueError: the file is damaged.
        """
        digests: dict[int, list[str]] = {}
        for row in files.read_own_json_lines(self.file(CHECKPOINTS_FILE), _CHECKPOINT):
            digests.setdefault(row["step"], []).append(row["digest"])
        return digests

    def forget_after(self, step: int) -> int:
        """Removes what is recorded of steps that are trained again; returns the number of reports.

        Evaluations stay, because they belong to a checkpoint, not only to a step.

        Args:
            step: the step that training continues from.

        Raises:
            ValueError: a file is damaged.
        """
        path = self.file(CHECKPOINTS_FILE)
        rows = files.read_own_json_lines(path, _CHECKPOINT)
        kept = [row for row in rows if row["step"] <= step]
        if len(kept) < len(rows):
            files.write_json_lines(path, kept)
        path = self.file(METRICS_FILE)
        rows = files.read_own_json_lines(path, _METRICS)
        kept = [row for row in rows if row["step"] <= step or _is_of_evaluation(row)]
        if len(kept) < len(rows):
            files.write_json_lines(path, kept)
        return len(rows) - len(kept)

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
        found = [Evaluation(**{name: row[name] for name in fields}) for row in rows]
        kept = []
        later: dict[object, set[str]] = {}  # key → checkpoints of the evaluations that follow
        for entry in reversed(found):
            checkpoints = later.setdefault(entry.key, set())
            is_present = entry.checkpoint in present and entry.checkpoint not in checkpoints
            if is_present or not checkpoints:
                kept.append(entry)
            checkpoints.add(entry.checkpoint)
        return kept[::-1]

    def add_evaluation(self, evaluation: Evaluation) -> None:
        """Appends an evaluation, also to the metrics."""
        files.append_json_lines(self.file(EVALUATIONS_FILE), [dataclasses.asdict(evaluation)])
        self.add_metrics(
            evaluation.step, {EVAL + name: x for name, x in evaluation.metrics.items()}
        )

    def add_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Appends a line to the metrics."""
        files.append_json_lines(self.file(METRICS_FILE), [{"step": step, **values}])

    def metrics(self) -> list[files.JsonObject]:
        """Returns the lines of the metrics, sorted by step, training before evaluation.

        Raises:
            ValueError: the file is damaged.
        """
        rows = files.read_own_json_lines(self.file(METRICS_FILE), _METRICS)
        last = {(row["step"], _is_of_evaluation(row)): row for row in rows}
        return [last[key] for key in sorted(last)]

    @property
    def best_evaluation(self) -> Evaluation | None:
        """The latest evaluation of `model.ckpt-best`; None if there is none.

        Raises:
            ValueError: the file is damaged.
        """
        if not self.has_best:
            return None
        name = digest(self.best)
        matching = [entry for entry in self.evaluations([name]) if entry.checkpoint == name]
        return matching[-1] if matching else None

    # The lock.

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Context manager that locks the folder, and removes partial files of a killed process.

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
        # A singleton for each path counts how often this process has acquired the lock. A soft lock
        # is only a file and would outlive a killed process.
        held = filelock.FileLock(
            os.path.join(os.path.realpath(self.path), LOCK_FILE),
            timeout=0,
            is_singleton=True,
            thread_local=False,
            fallback_to_soft=False,
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


def digest(prefix: str) -> str:
    """Returns a short hash of the content of a TensorFlow checkpoint.

    Only the index is read, because it contains a checksum of each tensor.
    """
    return digest_of_files([prefix + ".index"])


def digest_of_files(paths: Iterable[str]) -> str:
    """Returns a short hash of the content of files, one after the other."""
    content = hashlib.sha256()
    for path in paths:
        with files.open_binary(path) as stream:
            while block := stream.read(_BLOCK_BYTES):
                content.update(block)
    return content.hexdigest()[:_DIGEST_LENGTH]


def best_or_newest(names: Iterable[str]) -> str | None:
    """Returns the checkpoint to use, by the names of the files of a run, or None."""
    names = list(names)
    return BEST if f"{BEST}.index" in names else next(reversed(_by_step(names).values()), None)


def interrupted_after(names: Iterable[str], used: str) -> str | None:
    """Returns the checkpoint of a later step at which a signal stopped the run, or None.

    Args:
        names: the names of the files of the run.
        used: the name of a checkpoint; the best one is used whatever came later.
    """
    numbered = NUMBERED.fullmatch(used)
    last = next(reversed(_by_step(names, INTERRUPTED).items()), None)
    return last[1] if numbered and last and last[0] > int(numbered[1]) else None


def _by_step(names: Iterable[str], of: re.Pattern[str] = NUMBERED) -> dict[int, str]:
    """Returns the checkpoints among the names of files as step → name, in ascending order."""
    matches = (
        of.fullmatch(name.removesuffix(".index")) for name in names if name.endswith(".index")
    )
    return dict(sorted((int(match[1]), match[0]) for match in matches if match))


def _is_of_evaluation(row: files.JsonObject) -> bool:
    """Returns whether a line of the metrics is of an evaluation, not of training."""
    return any(name.startswith(EVAL) for name in row)
