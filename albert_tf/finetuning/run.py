"""Fine-tunes a model on a task: trains, evaluates all checkpoints, predicts and exports.

This is the same for all tasks; a task implements the interface `FineTuningTask`. A run writes its
files to the folder `output_dir`, and running the same settings again resumes it. Several learning
rates, or `num_runs` above 1, make a sweep: a loop over runs, each in a subfolder.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import containers, loading, saved_model
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import CONFIG_FILE, RunFolder
from albert_tf.finetuning import advice
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.kept_examples import choose_examples
from albert_tf.finetuning.prepared_task import PreparedTask
from albert_tf.finetuning.result import FineTuningResult, Result
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.splits import DEV, TRAIN, AnySplit, make_splits
from albert_tf.finetuning.sweep import run_all
from albert_tf.finetuning.task import AnyTask
from albert_tf.finetuning.task_record import describe_task
from albert_tf.model import initialization
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import Tokenizer
from albert_tf.training import devices, replicas
from albert_tf.training.hooks import Hook
from albert_tf.training.run import Run

MakeTask = Callable[[FineTuningSettings, AlbertConfig, Tokenizer, RunFolder | None], AnyTask]


def fine_tune(
    settings: FineTuningSettings,
    source: ModelSource,
    make_task: MakeTask,
    name: str = "",
    hooks: Sequence[Hook] = (),
) -> FineTuningResult:
    """Runs the phases that the settings enable: training, evaluation, prediction and export.

    Args:
        settings: the completed settings.
        source: the model that the runs start with; see `finetuning.open_source`.
        make_task: makes the task, as `FineTuningTask.make` does.
        name: name of the task in `albert_tf.finetuning.registry`, unless the task itself has one;
            "" if it is not registered, so that its models cannot be used for prediction from text.
        hooks: called in training; see `training.hooks`.

    Returns:
        The result of the best checkpoint; in a sweep, of the best run.

    Raises:
        ValueError, OSError: settings, files or data are invalid or inconsistent; the message says
            which.
        ArithmeticError: the loss became NaN or infinite, outside of a sweep.
        InterruptedRunError: a signal stopped the run; the same settings resume it.
    """
    tokenizer = source.unchecked_tokenizer  # `Run.admit` compares it with that of the training
    planned = settings.runs()
    if settings.export_dir:
        files.ensure_directory(settings.export_dir, "--export_dir")
    with devices.open_devices(settings) as opened:
        if len(planned) > 1 and replicas.is_multi_worker(opened.strategy):
            raise ValueError(
                "sweeps cannot use several workers: set one --learning_rate and --num_runs=1"
            )
        task = make_task(planned[0], source.config, tokenizer, source.trained)
        data = {split: task.read(split) for split in settings.splits}
        known = describe_task(settings, tokenizer, task, data.get(TRAIN), name)

        # Features are made once for all runs, and only if the first one is admitted.
        splits = functools.cache(functools.partial(make_splits, task, data))

        def run_one(each: FineTuningSettings) -> tuple[Result, str]:
            with Run.open(each, opened) as run:
                run.admit(known)
                advice.warn_of_vocabulary(run, tokenizer)
                return _do_phases(run, PreparedTask(task, splits(), opened.strategy), hooks)

        if len(planned) == 1:
            best, text = run_one(planned[0])
        else:
            best, text = run_all(planned, run_one, settings.output_dir, task.selection_metric)
        if settings.export_dir and opened.is_chief:
            with Run.open(best.settings, opened) as run:
                _export(run, task, settings.export_dir)
    has_files = opened.is_chief and not data.keys().isdisjoint((TRAIN, DEV))
    text = text.removesuffix("\n")
    return FineTuningResult(best.settings.output_dir, best.step, best.metrics, text, has_files)


def _do_phases(
    run: Run[FineTuningSettings], task: PreparedTask, hooks: Sequence[Hook]
) -> tuple[Result, str]:
    """Trains, evaluates and predicts, depending on the splits that exist.

    Returns:
        The metrics of the best checkpoint, and the text to print.
    """
    if TRAIN in task.splits:
        advice.give_advice(run, task)
        run.train(task, hooks, run.settings.early_stopping_patience)
        if run.is_chief:
            run.folder.keep_examples(choose_examples(task.task, task.splits[TRAIN].data))
    if not run.is_chief:
        logging.info("Training finished. Only the first worker evaluates and predicts.")
        return Result(run.settings), ""
    result, text = Result(run.settings), ""
    if DEV in task.splits:
        result, text = _evaluate(run, task)
    for name, split in task.splits.items():
        if name not in (TRAIN, DEV):
            step, outputs = _predict_with_best(run, task, split)
            run.begin()
            text += task.files.write_predictions(run.folder, split, outputs, step)
    run.begin()
    return result, text


def _evaluate(run: Run[FineTuningSettings], task: PreparedTask) -> tuple[Result, str]:
    """Evaluates all checkpoints, and writes the predictions of the best for the dev split.

    Returns:
        The metrics of the best checkpoint (empty if the selection metric is undefined), and the
        text to print.
    """
    evaluations = run.evaluate(task)
    dev = task.splits[DEV]
    task.files.write_dev_predictions(run.folder, dev, lambda: _predict_with_best(run, task, dev)[1])
    text = task.files.describe_evaluations(run.folder, evaluations)
    best = task.files.best_of(evaluations)
    if best is None:
        remark = f"no {task.selection_metric}"
        return Result(run.settings, evaluations[-1].step, remark=remark), text
    return Result(run.settings, best.step, best.metrics), text


def _predict_with_best(
    run: Run[FineTuningSettings], task: PreparedTask, split: AnySplit
) -> tuple[int, Outputs]:
    """Returns the step of the best checkpoint, and the model's outputs for a split.

    The outputs for the examples of the dev split are those of the evaluation, unless an earlier
    command has evaluated the checkpoint.
    """
    prefix = run.best_checkpoint()
    step = loading.read_step(prefix)
    kept = task.known_outputs(split, containers.digest(prefix))
    if kept is not None:
        return step, kept
    with initialization.deferred():
        model = run.evaluation_model(task)
        loading.load_weights(model, prefix)
    return step, task.compute_outputs(model, split)


def _export(run: Run[FineTuningSettings], task: AnyTask, export_dir: str) -> None:
    """Exports the best checkpoint as a SavedModel, with its config, vocabulary and record.

    The model is exported in float32, even after mixed-precision training, because the serving
    hardware may not support bfloat16.

    Raises:
        FileNotFoundError: there is no checkpoint.
    """
    settings = run.settings
    with saved_model.float32_models():
        with initialization.deferred():
            model = task.build_model()
            loading.load_weights(model, run.best_checkpoint())
        model_files = saved_model.model_files(
            run.folder.file(CONFIG_FILE), settings.vocabulary_file, run.folder.record
        )
        exported = task.exporter().make_export(model, settings.max_seq_length, run.folder)
        saved_model.export(export_dir, model.variables, exported, model_files)
