"""The pre-training program, as a function of its settings.

It trains from the latest checkpoint in the output directory, or from scratch. Each checkpoint is
evaluated on held-out records as soon as it is saved; the results are eval_results.txt,
model.ckpt-best and the metrics in TensorBoard and metrics.jsonl.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from absl import logging

from albert_tf.checkpoints import record_comparison, run_record
from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.data.record_metadata import FoundRecords
from albert_tf.model.config import AlbertConfig
from albert_tf.model.objectives import SOP, find
from albert_tf.pretraining import record_files
from albert_tf.pretraining.features import pretraining_features
from albert_tf.pretraining.record_streams import (
    ONE_ORDER,
    STREAM_ORDER,
    choose_streams,
    possible_streams,
)
from albert_tf.pretraining.record_task import RecordTask, format_results
from albert_tf.pretraining.records import (
    Records,
    describe_contents,
    find_vocabulary,
    records_to_mask,
    records_with_masks,
)
from albert_tf.pretraining.settings import Settings
from albert_tf.training.hooks import Hook
from albert_tf.training.run import Run

PAPER_LEARNING_RATE = 0.00176  # with LAMB; section 4.1 of the ALBERT paper
PAPER_BATCH_SIZE = 4096
# At a quarter of the paper's batch size, the square-root rule halves the learning rate.
MUCH_SMALLER = 4


@dataclasses.dataclass(frozen=True)
class PretrainingResult:
    """The result of a run; its `str` lists the metrics of the last checkpoint.

    Attributes:
        output_dir: folder of the run.
        evaluations: evaluations of the checkpoints, sorted by step; empty without do_eval, and on
            all workers but the first.
        has_files: whether this process wrote the files of the run; with several workers, only the
            first does.
    """

    output_dir: str
    evaluations: tuple[Evaluation, ...] = ()
    has_files: bool = True

    def __str__(self) -> str:
        return format_results(self.evaluations[-1]).rstrip("\n") if self.evaluations else ""


def run(
    settings: Settings,
    train_records: FoundRecords,
    eval_records: FoundRecords,
    hooks: Sequence[Hook] = (),
) -> PretrainingResult:
    """Pre-trains and evaluates, depending on the settings; resumes an existing run.

    Args:
        settings: completed settings, with the sentence objective.
        train_records: the record files to train on.
        eval_records: the record files to evaluate on.
        hooks: called in training; see `training.hooks`.

    Raises:
        ValueError, OSError: settings, records or checkpoints are invalid or inconsistent; the
            message says which.
        ArithmeticError: the loss became NaN or infinite.
        InterruptedRunError: a signal stopped the run; the same settings resume it.
    """
    with Run.open(settings) as run:
        task = make_task(settings, run.config, train_records, eval_records, not run.is_chief)
        if settings.do_train:
            task.num_streams = streams_of(settings, run.folder, task.train_records.counts)
        run.admit(describe_data(task, run.is_chief))
        if settings.do_train:
            check_learning_rate(settings.learning_rate, settings.train_batch_size)
            run.train(task, hooks)
        if not run.is_chief:
            logging.info("Training finished. Only the first worker evaluates.")
            return PretrainingResult(run.folder.path, has_files=False)
        evaluations = run.evaluate(task) if settings.do_eval else []
        run.begin()
        return PretrainingResult(run.folder.path, tuple(evaluations))


def check_learning_rate(learning_rate: float, batch_size: int) -> None:
    """Logs a warning if the paper's learning rate is used with a much smaller batch size."""
    is_papers = math.isclose(learning_rate, PAPER_LEARNING_RATE, rel_tol=1e-3)
    if is_papers and batch_size * MUCH_SMALLER <= PAPER_BATCH_SIZE:
        logging.warning(
            "The default --learning_rate is meant for batches of %d, but --train_batch_size is %d. "
            "By the square-root rule of the LAMB paper, pass --learning_rate=%.3g.",
            PAPER_BATCH_SIZE,
            batch_size,
            PAPER_LEARNING_RATE * math.sqrt(batch_size / PAPER_BATCH_SIZE),
        )


def make_task(
    settings: Settings,
    config: AlbertConfig,
    train_records: FoundRecords,
    eval_records: FoundRecords,
    only_first: bool = False,
) -> RecordTask:
    """Returns the task with its records.

    Args:
        settings: completed settings, with the sentence objective.
        config: the model's config.
        train_records: the record files to train on.
        eval_records: the record files to evaluate on.
        only_first: whether only the first file is opened, because another worker checks all.

    Raises:
        ValueError: see `records_to_mask`.
    """
    features = pretraining_features(
        config,
        settings.max_seq_length,
        settings.prediction_slots,
        find(settings.sentence_objective or SOP),
    )

    def check(found: FoundRecords, is_trained_on: bool) -> Records:
        if not settings.dynamic_masking:
            return records_with_masks(found, features, only_first)
        seed = settings.seed
        return records_to_mask(found, features, settings, seed, is_trained_on, only_first)

    training = evaluating = check(train_records, settings.do_train)
    if eval_records is not train_records:
        evaluating = check(eval_records, is_trained_on=False)
    total = training.num_records
    if settings.do_train and total < settings.train_batch_size:
        logging.warning(
            "--train_batch_size=%d is larger than the data: each batch repeats some of the %d "
            "records, as in Google's program.",
            settings.train_batch_size,
            total,
        )
    return RecordTask(config, settings, training, evaluating)


def streams_of(settings: Settings, folder: RunFolder, counts: Sequence[int]) -> int:
    """Returns the number of streams in which a run reads its records.

    A run that is resumed keeps its number, unless the settings name another one.

    Args:
        settings: settings of the run.
        folder: the folder of the run.
        counts: number of records of each file to train on.

    Raises:
        ValueError: see `choose_streams`; or the run has read its records in streams of another
            order, and `allow_changed_settings` is not set.
    """
    batch_size = settings.train_batch_size
    chosen = choose_streams(settings.record_streams, counts, batch_size, settings.seed)
    recorded = folder.record.settings
    if not (folder.is_trained and recorded):
        return chosen
    before = recorded.get(run_record.RECORD_STREAMS, ONE_ORDER)
    if before != ONE_ORDER and recorded.get(run_record.STREAM_ORDER) != STREAM_ORDER:
        record_comparison.refuse_unless_allowed(
            f"{folder.path} contains a run that read its records in {before} streams of whole "
            "files, which read some records of an epoch several times and others not at all. This "
            "version reads each record once an epoch, and cannot continue in that order.",
            "Choose another --output_dir (with --init_checkpoint to start with the weights of that "
            "run), or pass --allow_changed_settings to resume it in the new order.",
            settings,
        )
    if settings.record_streams is not None:
        return chosen
    return next((n for n in possible_streams(len(counts), batch_size) if n == before), chosen)


def describe_data(task: RecordTask, is_chief: bool = True) -> RunRecord:
    """Returns the record of the training records, of their vocabulary and of the task.

    The vocabulary is known if the records were created by create_pretraining_data.py.

    Args:
        task: the task.
        is_chief: whether this worker has opened all files; the others know their metadata.

    Raises:
        ValueError: the records were created with different vocabularies.
    """
    train_files, eval_files = task.train_records.files, task.eval_records.files
    known = find_vocabulary([*train_files, *eval_files])
    path = record_files.name_files(train_files)
    data = {
        run_record.RECORD_METADATA: FileRecord.of(record_files.metadata_checksum(train_files), path)
    }
    if is_chief:
        checksum = record_files.checksum_of(train_files)
        data[run_record.TRAINING_DATA] = FileRecord.of(checksum, path)
        data |= describe_contents([file.path for file in train_files])
    order = {run_record.RECORD_STREAMS: task.num_streams}
    if task.num_streams != ONE_ORDER:
        order[run_record.STREAM_ORDER] = STREAM_ORDER
    return dataclasses.replace(
        known,
        settings={**known.settings, **order},
        files={**known.files, **data},
        task={run_record.SELECTION_METRIC: task.selection_metric},
    )
