"""Fine-tunes a model on a task: trains, evaluates all checkpoints, predicts and exports.

This is the same for all tasks. A run writes its files to the folder `output_dir`, and running the
same settings again resumes it. Several learning rates, or `num_runs` above 1, make a sweep: a loop
over runs, each in a subfolder.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Sequence

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import containers, loading, record_comparison, run_record, tasks
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import CONFIG_FILE
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.export import saved_model
from albert_tf.finetuning import batching
from albert_tf.finetuning.batching import Outputs
from albert_tf.finetuning.engine import FineTuning, training_order, training_steps
from albert_tf.finetuning.examples import choose_examples
from albert_tf.finetuning.result import FineTuningResult, RunResult
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.splits import DEV, TRAIN, AnySplit, make_splits
from albert_tf.finetuning.sweep import run_all
from albert_tf.finetuning.task import AnyFineTuningTask
from albert_tf.model import initialization
from albert_tf.model.tokenization import Tokenizer
from albert_tf.training import devices, replicas
from albert_tf.training.admission import InitialWeights
from albert_tf.training.hooks import Hook
from albert_tf.training.run import Run


def fine_tune(
    task: AnyFineTuningTask,
    source: ModelSource,
    name: str = "",
    hooks: Sequence[Hook] = (),
    weights: InitialWeights | None = None,
) -> FineTuningResult:
    """Runs the phases that the settings enable: training, evaluation, prediction and export.

    Args:
        task: the task, with its completed settings and, unless its `read` reads them, its data.
        source: the model that the runs start with; see `run.open_source`.
        name: name of the task in `albert_tf.finetuning.registry`, unless the task itself has one;
            "" if it is not registered, so that its models cannot be used for prediction from text.
        hooks: called in training; see `training.hooks`.
        weights: those of `init_checkpoint`, if they have been compared before.

    Returns:
        The result of the best checkpoint; in a sweep, of the best run.

    Raises:
        ValueError, OSError: settings, files or data are invalid or inconsistent; the message says
            which.
        ArithmeticError: the loss became NaN or infinite, outside of a sweep.
        InterruptedRunError: a signal stopped the run; the same settings resume it.
    """
    settings: FineTuningSettings = task.settings
    tokenizer = source.unchecked_tokenizer  # `Run.admit` compares it with that of the training
    planned = settings.runs()
    if settings.export_dir:
        files.ensure_directory(settings.export_dir, "--export_dir")
    with devices.open_devices(settings) as opened:
        if len(planned) > 1 and replicas.is_multi_worker(opened.strategy):
            raise ValueError(
                "sweeps cannot use several workers: set one --learning_rate and --num_runs=1"
            )
        data = {split: task.read(split) for split in settings.splits}
        known = describe_task(settings, tokenizer, task, data.get(TRAIN), name)
        weights = weights or InitialWeights(settings.init_checkpoint)

        # Features are made once for all runs, and only if the first one is admitted.
        splits = functools.cache(functools.partial(make_splits, task.make_features, data))

        def run_one(each: FineTuningSettings) -> tuple[RunResult, str]:
            with Run.open(each, opened) as run:
                run.admit(known, weights)
                _warn_of_vocabulary(run, tokenizer)
                return _do_phases(run, FineTuning(task, splits(), opened.strategy), hooks)

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
    run: Run[FineTuningSettings], task: FineTuning, hooks: Sequence[Hook]
) -> tuple[RunResult, str]:
    """Trains, evaluates and predicts, depending on the splits that exist.

    Returns:
        The metrics of the best checkpoint, and the text to print.
    """
    if TRAIN in task.splits:
        _check_order(run, task)
        _give_advice(run, task)
        run.train(task, hooks, run.settings.early_stopping_patience)
        if run.is_chief:
            run.folder.keep_examples(choose_examples(task.task.as_row, task.splits[TRAIN].data))
    if not run.is_chief:
        logging.info("Training finished. Only the first worker evaluates and predicts.")
        return RunResult(run.settings), ""
    result, text = RunResult(run.settings), ""
    if DEV in task.splits:
        result, text = _evaluate(run, task)
    for name, split in task.splits.items():
        if name not in (TRAIN, DEV):
            step, outputs = _predict_with_best(run, task, split)
            run.begin()
            text += task.task.write_predictions(run.folder, split, outputs, step)
    run.begin()
    return result, text


def _check_order(run: Run[FineTuningSettings], task: FineTuning) -> None:
    """Raises ValueError if a run to resume had its examples in another order.

    With `allow_changed_settings`, this is a warning.
    """
    settings, folder = run.settings, run.folder
    recorded = folder.record.settings
    num_steps, _ = training_steps(settings, task.count_examples())
    is_resumed = 0 < max(folder.resumable(), default=0) < num_steps
    if not (is_resumed and recorded) or training_order(settings).batches_to_sort == 1:
        return
    if recorded.get(run_record.SORTED_ORDER) == batching.SORTED_ORDER:
        return
    record_comparison.refuse_unless_allowed(
        f"{folder.path} contains a run that sorted batches of several epochs together by length, "
        "so that an epoch had some examples several times and others not at all. This version has "
        "each example once an epoch, and cannot continue in that order.",
        "Choose another --output_dir, or pass --allow_changed_settings to resume it in the new "
        "order.",
        settings,
    )


def _evaluate(run: Run[FineTuningSettings], task: FineTuning) -> tuple[RunResult, str]:
    """Evaluates all checkpoints, and writes the predictions of the best for the dev split.

    Returns:
        The metrics of the best checkpoint (empty if the selection metric is undefined), and the
        text to print.
    """
    evaluations = run.evaluate(task)
    dev = task.splits[DEV]
    task.task.write_dev_predictions(run.folder, dev, lambda: _predict_with_best(run, task, dev)[1])
    text = task.task.describe_evaluations(run.folder, evaluations)
    best = task.task.best_of(evaluations)
    if best is None:
        remark = f"no {task.selection_metric}"
        return RunResult(run.settings, evaluations[-1].step, remark=remark), text
    return RunResult(run.settings, best.step, best.metrics), text


def _predict_with_best(
    run: Run[FineTuningSettings], task: FineTuning, split: AnySplit
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


def _export(run: Run[FineTuningSettings], task: AnyFineTuningTask, export_dir: str) -> None:
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
        exported = task.make_export(model, settings.max_seq_length, run.folder)
        saved_model.export(export_dir, model.variables, exported, model_files)


# What a run records of its task.


def describe_task(
    settings: FineTuningSettings,
    tokenizer: Tokenizer,
    task: AnyFineTuningTask,
    train: object,
    name: str = "",
) -> RunRecord:
    """Returns the record of the task, its vocabulary, training data and module.

    The module is that of a task outside of this package: its loss and metrics are in there.

    Args:
        settings: the settings, shared by all runs.
        tokenizer: the tokenizer, with the vocabulary.
        task: the task that read the data.
        train: the training examples, or None without training.
        name: name of the task in the registry, unless the task itself has one.

    Raises:
        ValueError: no task of this name is registered.
    """
    name = task.name or name
    if name:
        tasks.canonical(name)  # raises ValueError unless it is registered
    of_text = run_record.of_tokenizer(tokenizer, settings.vocabulary_file)
    known = dict(of_text.files)
    if train is not None:
        path = str(getattr(train, "path", ""))
        known[run_record.TRAINING_EXAMPLES] = FileRecord.of(task.checksum(train), path)
    source = _source_of(task)
    if source:
        known[run_record.TASK_MODULE] = FileRecord.of(
            hashlib.sha256(files.read_bytes(source)).hexdigest(), source
        )
    details = {
        "name": name,
        "labels": list(task.labels),
        run_record.SELECTION_METRIC: task.selection_metric,
        **task.details(),
    }
    order = {}
    if train is not None and training_order(settings).batches_to_sort > 1:
        order[run_record.SORTED_ORDER] = batching.SORTED_ORDER
    return RunRecord(settings={**of_text.settings, **order}, files=known, task=details)


def _source_of(task: AnyFineTuningTask) -> str | None:
    """Returns the file of a task's class; None in this package, and without a file."""
    if type(task).__module__.startswith("albert_tf."):
        return None
    try:
        return inspect.getsourcefile(type(task))
    except (OSError, TypeError):  # typed into an interpreter
        return None


# Settings and vocabularies that are valid, but rarely what was meant.


def _warn_of_vocabulary(run: Run[FineTuningSettings], tokenizer: Tokenizer) -> None:
    """Warns if the vocabulary's size differs from that of a model with unknown vocabulary."""
    entries, vocab_size = tokenizer.vocab_size, run.config.vocab_size
    if run.trained is None or entries == vocab_size:
        return
    if run_record.VOCABULARY not in run.trained.record.files:
        logging.warning(
            "The vocabulary has %d entries, but the model has vocab_size=%d. A pre-trained model "
            "is useless with a vocabulary other than the one it was trained with: use the "
            "vocabulary that came with %s.",
            entries,
            vocab_size,
            run.trained.path,
        )


_USUAL_EPOCHS = (1, 20)  # of fine-tuning; the published settings have 2 to 10, of WNLI 50


def _warn_of_epochs(settings: FineTuningSettings, num_examples: int) -> None:
    """Warns if the default number of steps is less than an epoch, or more than twenty."""
    is_default = settings.train_step == type(settings).train_step
    if not is_default or settings.num_train_epochs:
        return
    epochs = settings.train_step * settings.train_batch_size / max(num_examples, 1)
    fewest, most = _USUAL_EPOCHS
    if not fewest <= epochs <= most:
        logging.warning(
            "The default --train_step=%d is %.3g epochs: %d batches of %d of the %d examples. %s. "
            "Try --num_train_epochs=3, which has a warm-up as well",
            settings.train_step,
            epochs,
            settings.train_step,
            settings.train_batch_size,
            num_examples,
            "Some are never trained on" if epochs < fewest else "So many rarely help",
        )


def _give_advice(run: Run[FineTuningSettings], task: FineTuning) -> None:
    """Warns about missing weights, epochs, no warm-up and too few checkpoints of a new run."""
    settings = run.settings
    if run.folder.is_trained:
        return
    num_steps, num_warmup_steps = training_steps(settings, task.count_examples())
    if not settings.init_checkpoint:
        logging.warning("No --init_checkpoint: training starts from random weights")
    _warn_of_epochs(settings, task.count_examples())
    if not num_warmup_steps and num_steps > 1:
        logging.warning(
            "No warm-up, with which fine-tuning may diverge. The published settings have one: try "
            "--warmup_step=%d, or --num_train_epochs, or a recipe with --flagfile",
            max(num_steps // 10, 1),
        )
    if settings.do_eval and settings.save_checkpoints_steps >= num_steps:
        logging.info(
            "Only the last checkpoint is evaluated: --save_checkpoints_steps=%d compares four",
            max(num_steps // 4, 1),
        )
