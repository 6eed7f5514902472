"""The pre-training program, as a function of its settings.

It trains on records from the newest checkpoint of the output directory, or anew, and evaluates
every checkpoint: eval_results.txt and model.ckpt-best.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from absl import logging

from albert_tf import optimization
from albert_tf.checkpoints.names import GLOBAL_STEP
from albert_tf.checkpoints.trained_with import TrainedWith
from albert_tf.pretraining import input_pipeline, record_files
from albert_tf.pretraining.record_files import RecordFile
from albert_tf.pretraining.settings import Settings
from albert_tf.pretraining.task import PretrainingTask, format_results, write_pretraining_results
from albert_tf.training import devices, evaluation, run_directory, run_identity, session
from albert_tf.training.cluster import Workers
from albert_tf.training.evaluation import Evaluation
from albert_tf.training.step import Batch

PAPER_LEARNING_RATE = 0.00176  # with LAMB; section 4.1 of the ALBERT paper
PAPER_BATCH_SIZE = 4096
# At a fourth of the paper's batch size, the square-root rule gives half of its learning rate.
MUCH_SMALLER = 4


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run measured. Its `str` has the metrics of the last checkpoint.

    Attributes:
        output_dir: folder of the run.
        evaluations: of the checkpoints, by step; () without do_eval, and on all workers but the
            first.
    """

    output_dir: str
    evaluations: tuple[Evaluation, ...] = ()

    def __str__(self) -> str:
        return format_results(self.evaluations[-1]).rstrip("\n") if self.evaluations else ""


def run(settings: Settings) -> Result:
    """Pre-trains and evaluates, as far as the settings ask for it; resumes a run that is there.

    Raises:
        ValueError, OSError: settings, records and checkpoints do not go together; says which.
        ArithmeticError: the loss became NaN or infinite.
        InterruptedRunError: a signal asked to stop; the same settings resume the run.
    """
    if not settings.do_train and not settings.do_eval:
        raise ValueError("nothing to do: give --do_train, --do_eval or both")
    with devices.join_workers(settings) as workers:
        return _run(settings, workers)


def _run(settings: Settings, workers: Workers | None) -> Result:
    """Does the work of `run`, with the other workers if there are any."""
    config = session.read_config(settings.output_dir, settings.albert_config_file)
    task = PretrainingTask(config, settings.max_seq_length, settings.max_predictions_per_seq)
    with (
        run_directory.made(settings.output_dir, is_shared=workers is not None),
        session.open_session(settings, config, workers) as opened,
    ):
        skip = settings.skip_bad_records
        train_files = eval_files = task.find_records(settings.input_file, "input_file", skip)
        if settings.do_eval and settings.eval_input_file:
            eval_files = task.find_records(settings.eval_input_file, "eval_input_file", skip)
        identity = opened.identify(settings, describe_contents(train_files, eval_files))
        if settings.do_train:
            record_files.check_batch_size(train_files, settings.train_batch_size)
            train(settings, task, train_files, opened, identity)
        if not settings.do_eval:
            return Result(settings.output_dir)
        if not opened.is_chief:
            logging.info("Trained. The first worker evaluates.")
            return Result(settings.output_dir)
        evaluations = evaluate(settings, task, eval_files)
        opened.begin_work()
        return Result(settings.output_dir, tuple(evaluations))


def describe_contents(
    train_files: Sequence[RecordFile], eval_files: Sequence[RecordFile]
) -> TrainedWith:
    """Returns fingerprints of the records to train on, and of the vocabulary they were made with.

    The vocabulary is known of records of create_pretraining_data.py.

    Raises:
        ValueError: the records were made with several vocabularies.
    """
    known = record_files.find_vocabulary([*train_files, *eval_files])
    path, others = train_files[0].path, len(train_files) - 1
    path += f" and {others} more" if others else ""
    return known.adding(run_identity.TRAINING_DATA, record_files.checksum(train_files), path)


def train(
    settings: Settings,
    task: PretrainingTask,
    files: Sequence[RecordFile],
    opened: session.Session,
    identity: TrainedWith | None = None,
) -> None:
    """Trains from the newest checkpoint of `output_dir`, or anew, to the last step."""
    strategy = opened.strategy
    schedule = optimization.WarmUpPolynomialDecay(
        choose_learning_rate(settings),
        settings.num_train_steps,
        settings.num_warmup_steps,
        settings.start_warmup_step,
        settings.poly_power,
    )
    opened.agree(identity)
    trainer = session.make_trainer(
        settings,
        task,
        schedule,
        strategy,
        init_from_group0=settings.init_from_group0,
        identity=identity,
    )
    opened.begin_work()
    batch_size = settings.train_batch_size
    rows = devices.local_rows(strategy, batch_size)

    def batches_from(step: int) -> Iterator[Batch]:
        dataset = input_pipeline.training_dataset(
            files, task.features, batch_size, settings.seed, start=step * batch_size, rows=rows
        )
        return input_pipeline.batches(dataset, files, task.features)

    trainer.train(batches_from)


def evaluate(
    settings: Settings, task: PretrainingTask, files: Sequence[RecordFile]
) -> list[Evaluation]:
    """Evaluates the checkpoints of `output_dir`, and returns the evaluations by step."""
    batch_size, max_steps = settings.eval_batch_size, settings.max_eval_steps
    dataset = input_pipeline.evaluation_dataset(files, task.features, batch_size)
    model = task.build_model()
    one_checkpoint = evaluation.Evaluator(model, task, dataset, max_steps)

    def measure() -> dict[str, float]:
        with input_pipeline.damage_named(files, task.features):
            return one_checkpoint.evaluate()

    evaluator = evaluation.CheckpointEvaluator(
        settings.output_dir,
        model,
        measure,
        task.selection_metric,
        evaluation.digest(record_files.identity(files), batch_size, max_steps),
        write_pretraining_results,
    )
    evaluations = evaluator.evaluate_all(settings.init_checkpoint)
    last = evaluations[-1]
    # Unlike in fine-tuning, the results of a run are those of its last checkpoint.
    run_directory.record_results(
        settings.output_dir, {"eval": last.metrics | {GLOBAL_STEP: last.step}}
    )
    return evaluations


def choose_learning_rate(settings: Settings) -> float:
    """Returns the peak learning rate; warns of the paper's with a much smaller batch than its."""
    rate, batch_size = settings.learning_rate, settings.train_batch_size
    scaled = scaled_learning_rate(rate, batch_size)
    if settings.scale_learning_rate:
        logging.info("--learning_rate=%g for this batch: %g", rate, scaled)
        return scaled
    is_papers = math.isclose(rate, PAPER_LEARNING_RATE, rel_tol=1e-3)
    if is_papers and batch_size * MUCH_SMALLER <= PAPER_BATCH_SIZE:
        logging.warning(
            "--learning_rate=%g belongs to batches of %d, and --train_batch_size is %d. By the "
            "square-root rule the rate for it is %.3g: pass --scale_learning_rate, or "
            "--learning_rate=%.3g.",
            rate,
            PAPER_BATCH_SIZE,
            batch_size,
            scaled,
            scaled,
        )
    return rate


def scaled_learning_rate(rate: float, batch_size: int) -> float:
    """Returns rate · sqrt(batch_size / 4096): the square-root rule of the LAMB paper.

    Args:
        rate: for batches of 4096.
        batch_size: number of examples of a step, over all devices.
    """
    return rate * math.sqrt(batch_size / PAPER_BATCH_SIZE)
