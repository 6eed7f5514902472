"""The pre-training program, as a function of its settings.

It trains from the latest checkpoint in the output directory, or from scratch. Each checkpoint is
evaluated on held-out records as soon as it is saved; the results are eval_results.txt,
model.ckpt-best and the metrics in TensorBoard and metrics.jsonl.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from absl import logging

from albert_tf import files, optimization
from albert_tf.checkpoints import finding, loading, run_record
from albert_tf.checkpoints.names import GLOBAL_STEP
from albert_tf.checkpoints.pretrained import ModelSource
from albert_tf.checkpoints.run_record import TrainedWith
from albert_tf.config import AlbertConfig
from albert_tf.huggingface_tokenizer import list_files
from albert_tf.pretraining import dynamic_masking, input_pipeline, record_files
from albert_tf.pretraining.dynamic_masking import DynamicMasking
from albert_tf.pretraining.record_files import RecordFile
from albert_tf.pretraining.settings import Settings
from albert_tf.pretraining.task import PretrainingTask, format_results, write_pretraining_results
from albert_tf.serving import pretrained_model, saved_model
from albert_tf.training import (
    devices,
    evaluation,
    reporting,
    session,
)
from albert_tf.training.evaluation import CheckpointEvaluator, Evaluation
from albert_tf.training.reporting import Reports
from albert_tf.training.step import Batch

PAPER_LEARNING_RATE = 0.00176  # with LAMB; section 4.1 of the ALBERT paper
PAPER_BATCH_SIZE = 4096
# At a quarter of the paper's batch size, the square-root rule halves the learning rate.
MUCH_SMALLER = 4


@dataclasses.dataclass(frozen=True)
class Result:
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


def run(settings: Settings) -> Result:
    """Pre-trains and evaluates, depending on the settings; resumes an existing run.

    Raises:
        ValueError, OSError: settings, records or checkpoints are invalid or inconsistent; the
            message says which.
        ArithmeticError: the loss became NaN or infinite.
        InterruptedRunError: a signal stopped the run; the same settings resume it.
    """
    settings.require_a_phase()
    config = session.read_config(settings.output_dir, settings.albert_config_file or "")
    objective = settings.sentence_objective or record_files.find_objective(settings.input_file)
    settings = dataclasses.replace(settings, sentence_objective=objective)
    lengths = settings.max_seq_length, settings.prediction_slots
    task = PretrainingTask(config, *lengths, objective, settings.sentence_loss_weight)
    files.make_directory(settings.output_dir, "--output_dir")
    with (
        session.open_session(settings, config) as opened,
        reporting.of_run(settings) as reports,
    ):
        train_records = eval_records = find_records(settings, task, "input_file")
        if settings.do_eval and settings.eval_input_file:
            eval_records = find_records(settings, task, "eval_input_file")
        contents = describe_contents(train_records.files, eval_records.files)
        identity = opened.identify(settings, contents)
        evaluator = None
        if settings.do_eval and opened.is_chief:
            evaluator = make_evaluator(settings, task, eval_records, reports)
        if settings.do_train:
            record_files.check_batch_size(train_records.files, settings.train_batch_size)
        if settings.do_train:
            train(settings, task, train_records, opened, identity, evaluator, reports)
        if not opened.is_chief:
            logging.info("Training finished. Only the first worker evaluates and exports.")
            return Result(settings.output_dir, has_files=False)
        evaluations = evaluate(settings, evaluator) if evaluator is not None else []
        if settings.export_dir:
            export(settings.export_dir, settings.output_dir, task)
        opened.begin_work()
        return Result(settings.output_dir, tuple(evaluations))


class Records(NamedTuple):
    """The records to train or to evaluate on.

    Attributes:
        files: the record files.
        features: what to read from them.
        masking: masks the batches; None if the records contain masked tokens.
    """

    files: Sequence[RecordFile]
    features: record_files.Features
    masking: DynamicMasking | None = None


def find_records(settings: Settings, task: PretrainingTask, flag: str) -> Records:
    """Returns the records of a setting, checked against the task.

    With dynamic masking, the records to evaluate on may contain masked tokens.

    Args:
        settings: the settings of the run.
        task: the pre-training task.
        flag: the setting, input_file or eval_input_file.

    Raises:
        ValueError: see `PretrainingTask.find_records`; or the records are to be masked, but contain
            masked tokens, or name another id of [MASK] than their vocabulary.
    """
    patterns = getattr(settings, flag)
    features = task.features
    masking = None
    if settings.dynamic_masking:
        paths = record_files.list_paths(patterns, flag)
        masking = dynamic_masking.for_records(paths, settings, settings.seed)
        if masking is not None:
            features = task.unmasked_features
        elif settings.do_train and flag == "input_file":
            raise ValueError(
                f"--dynamic_masking: expected records that create_pretraining_data.py wrote with "
                f"--masked_lm_prob=0, and a metadata file beside them that says so, but {paths[0]} "
                "contains masked tokens or has no metadata"
            )
    usable = task.find_records(patterns, flag, features)
    if masking is not None:
        record_files.check_mask_id(usable, settings.model_folder)
    return Records(usable, features, masking)


def describe_contents(
    train_files: Sequence[RecordFile],
    eval_files: Sequence[RecordFile],
) -> TrainedWith:
    """Returns fingerprints of the training records and of their vocabulary.

    The vocabulary is known if the records were created by create_pretraining_data.py.

    Args:
        train_files: the records to train on.
        eval_files: the records to evaluate on.

    Raises:
        ValueError: the records were created with different vocabularies.
    """
    vocabulary = record_files.find_vocabulary([*train_files, *eval_files])
    path = record_files.name_files([file.path for file in train_files])
    return vocabulary.adding(run_record.TRAINING_DATA, record_files.checksum_of(train_files), path)


def train(
    settings: Settings,
    task: PretrainingTask,
    records: Records,
    opened: session.Session,
    identity: TrainedWith | None = None,
    evaluator: CheckpointEvaluator | None = None,
    reports: Reports | None = None,
) -> None:
    """Trains to the last step, from the latest checkpoint in `output_dir` or from scratch.

    Args:
        settings: the settings of the run.
        task: the pre-training task.
        records: the training records.
        opened: the session, with devices and folder.
        identity: what the run is trained with.
        evaluator: evaluates each checkpoint; None for no evaluation.
        reports: of the run, as in `Curves`.
    """
    strategy = opened.strategy
    schedule = make_schedule(settings)
    opened.agree(identity)
    trainer = session.make_trainer(
        settings,
        task,
        schedule,
        strategy,
        init_from_group0=settings.init_from_group0,
        identity=identity,
        reports=reports,
    )
    name_optimizer_of_layout(settings, task.config)
    session.log_plan(trainer, schedule, sum(file.num_records for file in records.files))
    opened.begin_work()
    if opened.is_chief:
        record_files.keep_vocabulary(records.files, settings.output_dir, settings.model_folder)
    if evaluator is not None:
        evaluator.begin(trainer.step)
    batch_size = settings.train_batch_size
    rows = devices.local_rows(strategy, batch_size)

    def batches_from(step: int) -> Iterator[Batch]:
        dataset = input_pipeline.training_dataset(
            records.files,
            records.features,
            batch_size,
            settings.seed,
            start=step * batch_size,
            rows=rows,
            masking=records.masking,
        )
        return input_pipeline.batches(dataset, records.files)

    trainer.train(batches_from, evaluator.after_save if evaluator is not None else None)


def make_schedule(settings: Settings) -> optimization.WarmUpPolynomialDecay:
    """Returns the learning rate schedule of a run."""
    return optimization.WarmUpPolynomialDecay(
        choose_learning_rate(settings),
        settings.num_train_steps,
        settings.num_warmup_steps,
        settings.start_warmup_step,
        settings.poly_power,
    )


def make_evaluator(
    settings: Settings,
    task: PretrainingTask,
    records: Records,
    reports: Reports | None = None,
) -> CheckpointEvaluator:
    """Returns an evaluator of the checkpoints in `output_dir`, with a separate model.

    Args:
        settings: the settings of the run.
        task: the pre-training task.
        records: the records to evaluate on.
        reports: of the run, as in `Curves`.
    """
    batch_size = settings.eval_batch_size
    max_steps = settings.max_eval_steps
    objective = task.objective.abbreviation, task.sentence_loss_weight
    dataset = input_pipeline.evaluation_dataset(
        records.files, records.features, batch_size, records.masking
    )
    masks = [] if records.masking is None else [records.masking.for_evaluation()]
    model = task.build_model()
    one_checkpoint = evaluation.Evaluator(model, task, dataset, max_steps)

    def measure() -> dict[str, float]:
        with input_pipeline.damage_named(records.files):
            return one_checkpoint.evaluate()

    return CheckpointEvaluator(
        settings.output_dir,
        model,
        measure,
        task.selection_metric,
        evaluation.digest(
            record_files.checksum_of(records.files), batch_size, max_steps, *objective, *masks
        ),
        write_pretraining_results,
        official_order=True,  # the initial weights show what training gained
        reports=reports,
    )


def evaluate(settings: Settings, evaluator: CheckpointEvaluator) -> list[Evaluation]:
    """Evaluates all checkpoints that have not been evaluated; returns all evaluations by step."""
    evaluations = evaluator.evaluate_all(settings.init_checkpoint)
    last = evaluations[-1]
    # Unlike in fine-tuning, the results of a run are those of its last checkpoint.
    run_record.record_results(
        settings.output_dir, {"eval": last.metrics | {GLOBAL_STEP: last.step}}
    )
    return evaluations


def export(export_dir: str, output_dir: str, task: PretrainingTask) -> str:
    """Exports the best checkpoint of a run, or else the newest one, as a SavedModel in float32.

    It maps texts to embeddings; without a vocabulary beside the checkpoint, it takes tokens alone.

    Args:
        export_dir: parent folder of the exports.
        output_dir: folder of the run.
        task: the pre-training task.

    Returns:
        The folder of the export.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: the checkpoint is not one of this task, or `export_dir` cannot be written to.
    """
    source = ModelSource(finding.find_checkpoint(output_dir))
    kept = [source.config_file]
    try:
        tokenizer = source.tokenizer
        kept += list_files(source.vocabulary_file)
    except FileNotFoundError:
        tokenizer = None
        logging.warning(
            "%s has no vocabulary, so the export takes no texts. Copy that of the records there.",
            output_dir,
        )
    with saved_model.float32_models():
        model = task.build_model()
        loading.load_weights(model, source.weights.path)
        extra_files = {os.path.basename(path): files.read_bytes(path) for path in kept}
        length = task.config.max_position_embeddings
        return pretrained_model.export(export_dir, model, tokenizer, length, extra_files)


def choose_learning_rate(settings: Settings) -> float:
    """Returns the peak learning rate, scaled to the batch size if the settings ask for it.

    Otherwise, logs a warning if the paper's learning rate is used with a much smaller batch size.
    """
    rate = settings.learning_rate
    batch_size = settings.train_batch_size
    scaled = scaled_learning_rate(rate, batch_size)
    if settings.scale_learning_rate:
        logging.info("--learning_rate=%g scaled to the batch size: %g", rate, scaled)
        return scaled
    is_papers = math.isclose(rate, PAPER_LEARNING_RATE, rel_tol=1e-3)
    if is_papers and batch_size * MUCH_SMALLER <= PAPER_BATCH_SIZE:
        logging.warning(
            "--learning_rate=%g is meant for batches of %d, but --train_batch_size is %d. By the "
            "square-root rule, the learning rate should be %.3g: set --scale_learning_rate, or "
            "--learning_rate=%.3g.",
            rate,
            PAPER_BATCH_SIZE,
            batch_size,
            scaled,
            scaled,
        )
    return rate


def name_optimizer_of_layout(settings: Settings, config: AlbertConfig) -> None:
    """Logs the optimizer of albert_zh's trainer if its layout is trained with Google's LAMB.

    It is not selected by the layout: `--optimizer=lamb` is Google's LAMB for every config.
    """
    if settings.optimizer == "lamb" and config.layout == "albert_zh":
        logging.info(
            "--optimizer=lamb is Google's LAMB. albert_zh's run_pretraining.py trains its layout "
            "with --optimizer=lamb_albert_zh."
        )


def scaled_learning_rate(rate: float, batch_size: int) -> float:
    """Returns rate · sqrt(batch_size / 4096), by the square-root rule of the LAMB paper.

    Args:
        rate: learning rate for batches of 4096 examples.
        batch_size: number of examples per step, over all devices.
    """
    return rate * math.sqrt(batch_size / PAPER_BATCH_SIZE)
