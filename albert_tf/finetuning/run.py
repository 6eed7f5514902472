"""Fine-tunes a model on a task: trains, evaluates all checkpoints, predicts and exports.

    result = fine_tune(settings, make_task)

This engine is the same for all tasks; a task implements the interface `FineTuningTask`. A run
writes its files to the folder `output_dir`, and running the same settings again resumes it.
Several learning rates, or `num_runs` above 1, make a sweep, with a subfolder for each run.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf
from absl import logging

from albert_tf import files, optimization, tasks
from albert_tf.checkpoints import containers, finding, loading, run_record
from albert_tf.checkpoints.pretrained import ModelSource
from albert_tf.checkpoints.run_record import TrainedWith
from albert_tf.config import AlbertConfig
from albert_tf.finetuning import batching, model_files, prediction, sweeps
from albert_tf.finetuning.prediction import Predictor
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.task import FineTuningTask, Outputs, Split
from albert_tf.huggingface_tokenizer import is_tokenizer_file, list_files, load_tokenizer
from albert_tf.serving import saved_model
from albert_tf.tokenization import Tokenizer
from albert_tf.training import devices, reporting, run_directory, session
from albert_tf.training.evaluation import CheckpointEvaluator, EarlyStopping

GPU_MULTIPLE = 8  # for which tensor cores are fastest
MOST_LENGTHS = 64  # of batches on CPUs, by default

SettingsType = TypeVar("SettingsType", bound=FineTuningSettings)
MakeTask = Callable[[SettingsType, AlbertConfig, Tokenizer], FineTuningTask]


def fine_tune(
    settings: SettingsType, make_task: MakeTask[SettingsType], name: str = ""
) -> FineTuningResult:
    """Runs the phases that the settings enable: training, evaluation, prediction and export.

    If no phase is enabled, trains and evaluates.

    Args:
        settings: the settings, shared by all runs of a sweep.
        make_task: builds the task from the settings, the model's config and the tokenizer.
        name: name of the task in `albert_tf.tasks`, unless the task itself has one; "" if it is not
            registered, so that its models cannot be used for prediction from text.

    Returns:
        The result of the best checkpoint; in a sweep, of the best run.

    Raises:
        ValueError, OSError: settings, files or data are invalid or inconsistent; the message says
            which.
        ArithmeticError: the loss became NaN or infinite, outside of a sweep.
        InterruptedRunError: a signal stopped the run; the same settings resume it.
    """
    settings = model_files.complete(settings)
    runs = sweeps.plan_runs(settings)
    files.ensure_directory(settings.output_dir, "--output_dir")
    config = session.read_config(settings.output_dir, settings.albert_config_file or "")
    if settings.export_dir:
        files.ensure_directory(settings.export_dir, "--export_dir")
    tokenizer = read_tokenizer(settings, config)
    task = make_task(settings, config, tokenizer)
    name = task.name or name
    if name:
        tasks.get(name)
    data = {split: task.read(split) for split in settings.splits}
    contents = describe_contents(settings, tokenizer, task, data.get("train")).with_task(name)
    session.warn_of_vocabulary(runs[0], tokenizer.vocab_size, config.vocab_size)
    with (
        session.open_session(settings, config) as opened,
        contextlib.ExitStack() as folders,
    ):
        if len(runs) > 1 and devices.is_multi_worker(opened.strategy):
            raise ValueError(
                "sweeps cannot use several workers: set one --learning_rate and --num_runs=1"
            )
        for run in runs:
            task.check_folder(run.output_dir, settings.do_train)
        for run in runs if len(runs) > 1 else ():  # another process may be using one of them
            files.ensure_directory(run.output_dir, "--output_dir")
            folders.enter_context(run_directory.lock(run.output_dir))
        identities = {run.output_dir: opened.identify(run, contents) for run in runs}
        return _make_runs(runs, identities, task, _make_features(task, data), opened)


def _make_runs(
    runs: Sequence[SettingsType],
    identities: Mapping[str, TrainedWith],
    task: FineTuningTask,
    splits: Mapping[str, Split],
    opened: session.Session,
) -> FineTuningResult:
    """Executes the runs, exports the best model, and returns the result.

    Args:
        runs: the settings of each run; see `sweeps.plan_runs`.
        identities: output folder → identity of the run in it.
        task: the task.
        splits: name → examples and their features.
        opened: devices and folder of the session.
    """
    texts: list[str] = []

    def make_run(run_settings: SettingsType) -> sweeps.Result:
        folder = run_settings.output_dir
        run = FineTuningRun(run_settings, task, splits, opened, identities[folder])
        result, text = run.do_all()
        if len(runs) > 1 and folder not in text:
            text = f"{folder}:\n{text}"
        texts.append(text)
        return result

    best = sweeps.make_runs(runs, make_run, opened.settings.output_dir, task.selection_metric)
    if best.settings.export_dir and opened.is_chief:
        FineTuningRun(best.settings, task, {}, opened).export(best.settings.export_dir)
    text = "".join(texts).removesuffix("\n")
    has_files = opened.is_chief and not splits.keys().isdisjoint(("train", "dev"))
    return FineTuningResult(best.settings.output_dir, best.step, best.metrics, text, has_files)


def describe_contents(
    settings: FineTuningSettings, tokenizer: Tokenizer, task: FineTuningTask, train: Any
) -> TrainedWith:
    """Returns the labels, and fingerprints of vocabulary, training data and the task's module.

    The module is that of a task outside of this package: its loss and metrics are in there.

    Args:
        settings: the settings, shared by all runs.
        tokenizer: the tokenizer, with the vocabulary.
        task: the task that read the data.
        train: the training examples, or None without training.
    """
    path = settings.spm_model_file or settings.vocab_file or ""
    contents = run_record.of_tokenizer(tokenizer, path).with_labels(task.labels)
    if train is not None:
        path = getattr(train, "path", "")
        contents = contents.adding(run_record.TRAINING_DATA, task.checksum(train), path)
    source = _source_of(task)
    if source:
        checksum = hashlib.sha256(files.read_bytes(source)).hexdigest()
        contents = contents.adding(run_record.TASK_MODULE, checksum, source)
    return contents


def _source_of(task: FineTuningTask) -> str | None:
    """Returns the file of a task's class; None in this package, and without a file."""
    if type(task).__module__.startswith(f"{tasks.__package__}."):
        return None
    try:
        return inspect.getsourcefile(type(task))
    except (OSError, TypeError):  # typed into an interpreter
        return None


def _make_features(task: FineTuningTask, data: Mapping[str, Any]) -> dict[str, Split]:
    """Returns splits with their features; splits of the same examples (as in SQuAD) share them."""
    splits: dict[str, Split] = {}
    for name, examples in data.items():
        existing = [split.features for split in splits.values() if split.data is examples]
        features = existing[0] if existing else task.make_features(examples, name)
        splits[name] = Split(name, examples, features)
    return splits


def list_model_folders(settings: FineTuningSettings) -> list[str]:
    """Returns the folders that may contain a trained model: runs and `init_checkpoint`."""
    folders = [run.output_dir for run in sweeps.plan_runs(settings)]
    if settings.init_checkpoint:
        folders.append(finding.folder_of(settings.init_checkpoint))
    return folders


def _find_lower_case(settings: FineTuningSettings) -> bool | None:
    """Returns `do_lower_case`; if it is not given, what is known of the weights, None if nothing.

    The tokenizer of a Hugging Face folder knows it itself.
    """
    is_trained = finding.has_trained(settings.output_dir)
    weights = settings.output_dir if is_trained else settings.init_checkpoint
    if not weights or is_tokenizer_file(settings.spm_model_file or settings.vocab_file or ""):
        return settings.do_lower_case
    return ModelSource(weights, do_lower_case=settings.do_lower_case).do_lower_case


def read_tokenizer(settings: FineTuningSettings, config: AlbertConfig) -> Tokenizer:
    """Returns the tokenizer, after checking the vocabulary and `max_seq_length` against the model.

    Raises:
        ValueError: token ids or positions would be out of range; the message names both numbers.
    """
    tokenizer = load_tokenizer(
        settings.vocab_file, _find_lower_case(settings), settings.spm_model_file
    )
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(
            f"{settings.spm_model_file or settings.vocab_file} has {tokenizer.vocab_size} entries, "
            f"but {settings.albert_config_file} has vocab_size={config.vocab_size}: the vocabulary "
            "does not belong to this model"
        )
    config.check_length(settings.max_seq_length)
    return tokenizer


def training_steps(settings: FineTuningSettings, num_examples: int) -> tuple[int, int]:
    """Returns the number of training steps and the number of warm-up steps.

    These are `train_step` and `warmup_step`. With `num_train_epochs`, they are the number of full
    batches in these epochs and the fraction `warmup_proportion` of it, both rounded down.

    Raises:
        ValueError: the epochs amount to less than one step.
    """
    if not settings.num_train_epochs:
        return settings.train_step, settings.warmup_step
    steps = int(num_examples / settings.train_batch_size * settings.num_train_epochs)
    if steps < 1:
        raise ValueError(
            f"--num_train_epochs={settings.num_train_epochs} with {num_examples} examples is less "
            f"than one step of --train_batch_size={settings.train_batch_size}"
        )
    return steps, int(steps * settings.warmup_proportion)


def _give_advice(
    settings: FineTuningSettings, step: int, num_steps: int, num_warmup_steps: int
) -> None:
    """Logs what is likely to make a run that starts at `step` worse than it could be."""
    if step == 0 and not settings.init_checkpoint:
        logging.warning("No --init_checkpoint: training starts from random weights")
    if step == 0 and not num_warmup_steps and num_steps > 1:
        logging.warning(
            "No warm-up, with which fine-tuning may diverge. The published settings have one: try "
            "--warmup_step=%d, or --num_train_epochs, or a recipe with --flagfile",
            max(num_steps // 10, 1),
        )
    if step == 0 and settings.do_eval and settings.save_checkpoints_steps >= num_steps:
        logging.info(
            "Only the last checkpoint is evaluated: --save_checkpoints_steps=%d compares four",
            max(num_steps // 4, 1),
        )


def training_order(settings: FineTuningSettings) -> batching.TrainingOrder:
    """Returns how training examples are shuffled and batched."""
    size = settings.train_batch_size
    seed = settings.seed
    if settings.official_order:
        return batching.TrainingOrder(size, seed, batching.OFFICIAL_SHUFFLE_BUFFER)
    return batching.TrainingOrder(size, seed, batches_to_sort=settings.BATCHES_TO_SORT)


def padding_multiple(settings: FineTuningSettings, strategy: tf.distribute.Strategy) -> int:
    """Returns the number of tokens of which the lengths of batches are multiples."""
    limit = settings.max_seq_length
    if devices.is_tpu(strategy):  # a single length: TPUs compile each shape separately
        return limit
    if settings.pad_to_multiple:
        return settings.pad_to_multiple
    if tf.config.list_physical_devices("GPU"):
        return GPU_MULTIPLE
    # XLA compiles the operations between the matmuls once for each length.
    return 2 * -(-limit // (2 * MOST_LENGTHS))


class FineTuningRun:
    """One run of a task, with one output folder, learning rate and seed.

    Args:
        settings: the settings of this run, from `sweeps.plan_runs`.
        task: the task.
        splits: name → examples and their features. The model is trained on "train" and evaluated on
            "dev"; all other splits are predicted.
        opened: the session, with devices and folder.
        identity: what the run is trained with; None if it does not train.
    """

    def __init__(
        self,
        settings: FineTuningSettings,
        task: FineTuningTask,
        splits: Mapping[str, Split],
        opened: session.Session,
        identity: TrainedWith | None = None,
    ) -> None:
        self.settings = settings
        self.task = task
        self.splits = splits
        self.session = opened
        self.strategy = opened.strategy
        self.identity = identity
        padding = batching.Padding(
            settings.max_seq_length, padding_multiple(settings, opened.strategy)
        )
        self.padding = task.padding(padding)
        self.model = task.build_model()
        self._predictors: dict[tuple[int, int], Predictor] = {}
        self._steps: dict[Any, prediction.Step] = {}  # signature of the batches → prediction step
        self._dev_outputs: dict[str, Outputs] = {}  # of the best and the last evaluated checkpoint
        self._reports = reporting.of_run(settings)
        self.evaluator = self._make_evaluator(splits["dev"]) if "dev" in splits else None

    def begin_work(self) -> None:
        """Writes the files that describe the run and its model, after the first success."""
        settings = self.settings
        self.session.begin_work(settings)
        if self.session.is_chief and "train" in self.splits:
            self.task.record(settings.output_dir)
            vocabulary = settings.spm_model_file or settings.vocab_file or ""
            is_sentencepiece = bool(settings.spm_model_file)
            finding.keep_vocabulary(vocabulary, is_sentencepiece, settings.output_dir)

    def do_all(self) -> tuple[sweeps.Result, str]:
        """Trains, evaluates and predicts, depending on the splits that exist.

        Returns:
            The metrics of the best checkpoint, and the text to print.
        """
        with self._reports:
            return self._do_all()

    def _do_all(self) -> tuple[sweeps.Result, str]:
        """Does the work of `do_all`, while reports are open."""
        result = sweeps.Result(self.settings)
        text = ""
        if "train" in self.splits:
            self.train(self.splits["train"])
        if not devices.is_chief(self.strategy):
            logging.info("Training finished. Only the first worker evaluates and predicts.")
            return result, text
        if "dev" in self.splits:
            result, text = self.evaluate(self.splits["dev"])
        for name, split in self.splits.items():
            if name not in ("train", "dev"):
                text += self.predict(split)
        return result, text

    def train(self, train: Split) -> None:
        """Trains from the latest checkpoint, if any, and evaluates each new checkpoint."""
        settings = self.settings
        evaluator = self.evaluator
        num_examples = self.task.num_examples(train)
        steps, warmup_steps = training_steps(settings, num_examples)
        schedule = optimization.WarmUpPolynomialDecay(
            sweeps.learning_rate_of(settings), steps, warmup_steps
        )
        signature = prediction.batch_signature(train.features)
        self.session.agree(self.identity)
        trainer = session.make_trainer(
            settings,
            self.task,
            schedule,
            self.strategy,
            signature,
            freeze_encoder=settings.freeze_encoder,
            identity=self.identity,
            reports=self._reports,
        )
        session.log_plan(trainer, schedule, num_examples)
        _give_advice(settings, trainer.step, steps, warmup_steps)
        self.begin_work()
        rows = devices.local_rows(self.strategy, settings.train_batch_size)
        if evaluator is not None and devices.is_chief(self.strategy):
            evaluator.begin(trainer.step)
            if evaluator.stops_training:
                logging.info("Early stopping ended training at step %d", trainer.step)
                trainer.complete_results()
                return
        trainer.train(
            functools.partial(self._training_dataset, train, rows),
            after_save=evaluator.after_save if evaluator is not None else None,
        )

    def _training_dataset(self, train: Split, rows: slice, step: int) -> tf.data.Dataset:
        order = training_order(self.settings)
        return prediction.training_dataset(train.features, order, self.padding, step, rows)

    def _predictor(self, split: Split) -> Predictor:
        """Returns the predictor of a split, cached so that it is traced only once."""
        settings = self.settings
        size = self.settings.predict_batch_size
        if split.name == "dev":
            size = settings.eval_batch_size or size
        key = id(split.features), size
        if key not in self._predictors:
            self._predictors[key] = Predictor(
                self.model,
                split.features,
                size,
                self.padding,
                self.task.outputs,
                self.task.predictions,
                compile_step=self._compile_step,
            )
        return self._predictors[key]

    def _compile_step(
        self, step: prediction.Step, signature: Mapping[str, tf.TensorSpec]
    ) -> prediction.Step:
        """Returns the prediction step, traced once for all splits with the same signature."""
        key = tuple(sorted(signature.items()))
        if key not in self._steps:
            self._steps[key] = prediction.as_tf_function(step, signature)
        return self._steps[key]

    def _measure(self, dev: Split) -> dict[str, float]:
        """Returns the metrics of the loaded checkpoint, and keeps its outputs and the best ones."""
        predictor = self._predictor(dev)
        evaluator = self.evaluator
        outputs = predictor.predict()
        if evaluator is not None:
            best = evaluator.best
            kept = () if best is None else (best.checkpoint,)
            self._dev_outputs = {n: o for n, o in self._dev_outputs.items() if n in kept}
            self._dev_outputs[evaluator.loaded] = outputs
        return self.task.measure(dev, outputs, predictor.batch_size)

    def _make_evaluator(self, dev: Split) -> CheckpointEvaluator:
        settings = self.settings
        task = self.task
        predictor = self._predictor(dev)
        return CheckpointEvaluator(
            settings.output_dir,
            self.model,
            functools.partial(self._measure, dev),
            task.selection_metric,
            task.measured_on(dev, predictor.batch_size, self.padding),
            task.write_evaluations,
            EarlyStopping(settings.early_stopping_patience),
            settings.official_order,
            self._reports,
            task.percentages,
        )

    def evaluate(self, dev: Split) -> tuple[sweeps.Result, str]:
        """Evaluates all checkpoints that have not been evaluated yet, and keeps the best.

        Returns:
            The metrics of the best checkpoint (empty if the selection metric is undefined), and the
            text to print.

        Raises:
            ValueError: there is no checkpoint, or it belongs to a different model.
        """
        settings = self.settings
        metric = self.task.selection_metric
        if self.evaluator is None:
            raise ValueError("there is no dev split to evaluate on")
        evaluations = self.evaluator.evaluate_all(settings.init_checkpoint)
        self.begin_work()
        self.task.write_dev_predictions(
            settings.output_dir, dev, lambda: self._predict_with_best(dev)[1]
        )
        text = self.task.describe_evaluations(settings.output_dir, evaluations)
        best = self.task.best_of(evaluations)
        if best is None:
            return sweeps.Result(settings, evaluations[-1].step, remark=f"no {metric}"), text
        return sweeps.Result(settings, best.step, best.metrics), text

    def predict(self, split: Split) -> str:
        """Predicts a split with the best checkpoint, and returns the text to print."""
        step, outputs = self._predict_with_best(split)
        self.begin_work()
        return self.task.write_predictions(self.settings.output_dir, split, outputs, step)

    def _predict_with_best(self, split: Split) -> tuple[int, Outputs]:
        """Returns the step of the best checkpoint, and the model's outputs for a split.

        The outputs for the dev set's examples are those of the evaluation, unless an earlier
        command has evaluated the checkpoint.
        """
        prefix = prediction.find_best(self.settings.output_dir, self.settings.init_checkpoint)
        step = loading.read_step(prefix)
        dev = self.splits.get("dev")
        if dev is not None and split.features is dev.features:
            kept = self._dev_outputs.get(containers.digest(prefix))
            if kept is not None:
                return step, kept
        loading.load_weights(self.model, prefix)
        return step, self._predictor(split).predict()

    def export(self, export_dir: str) -> None:
        """Exports the best checkpoint as a SavedModel, with its config, vocabulary and records.

        The model is exported in float32, even after mixed-precision training, because the serving
        hardware may not support bfloat16.

        Raises:
            FileNotFoundError: there is no checkpoint.
        """
        settings = self.settings
        with saved_model.float32_models():
            model = self.task.build_model()
            prefix = prediction.find_best(settings.output_dir, settings.init_checkpoint)
            loading.load_weights(model, prefix)
            self.begin_work()
            vocabulary = settings.spm_model_file or settings.vocab_file or ""
            record = run_record.content(settings.output_dir)
            extra_files = {run_record.FILE: run_record.to_json(record).encode()}
            config_file = os.path.join(settings.output_dir, session.CONFIG_NAME)
            for path in (config_file, *list_files(vocabulary)):
                extra_files[os.path.basename(path)] = files.read_bytes(path)
            self.task.export(
                model, export_dir, settings.max_seq_length, extra_files, settings.output_dir
            )
