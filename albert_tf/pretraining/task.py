"""The pre-training task: its features, losses, metrics and evaluation files.

The loss is the sum of the masked-LM loss and that of the sentence objective. Source: ALBERT
(arXiv 1909.11942), section 3.1, and Google's `run_pretraining.py`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.families import GLOBAL_STEP
from albert_tf.checkpoints.run_folder import Evaluation, RunFolder, digest_of_data, heading
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.data.records import FoundRecords
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertForPretraining
from albert_tf.model.objectives import SOP, find
from albert_tf.model.ops import cross_entropy
from albert_tf.model.optimization import WarmUpPolynomialDecay
from albert_tf.pretraining import Settings, input_pipeline
from albert_tf.pretraining.input_pipeline import (
    MADE_BY_MASKING,
    TOKEN_BOUNDARY,
    DynamicMasking,
    RecordFile,
)
from albert_tf.training.evaluation import Evaluator
from albert_tf.training.hooks import Hook
from albert_tf.training.run import Run
from albert_tf.training.task import Batch, Sums, Task

LABELS = "next_sentence_labels"  # BERT's name, of the labels of any sentence objective


class Records(NamedTuple):
    """The records to train or to evaluate on.

    Attributes:
        files: the record files.
        features: what to read from them.
        masking: masks the batches; None if the records contain masked tokens.
    """

    files: Sequence[RecordFile]
    features: input_pipeline.Features
    masking: DynamicMasking | None = None


class PretrainingTask(Task):
    """Pre-training by masked language modeling and a sentence objective.

    Args:
        config: the model's config.
        max_seq_length: S, number of tokens per sequence.
        max_predictions_per_seq: P, number of masked positions per sequence.
        sentence_objective: abbreviation of the sentence objective. Without a head, there is no
            loss of pairs, and the labels in the records are not read.

    Raises:
        ValueError: there is no such objective.
    """

    selection_metric = "masked_lm_accuracy"
    official_order = True  # the initial weights show what training gained
    train_records: Records
    eval_records: Records

    def __init__(
        self,
        config: AlbertConfig,
        max_seq_length: int,
        max_predictions_per_seq: int,
        sentence_objective: str = SOP,
    ) -> None:
        self.config = config
        self.objective = find(sentence_objective)
        words = f"the model has vocab_size={config.vocab_size}: is the vocabulary a different one?"
        segments = f"the model has type_vocab_size={config.type_vocab_size}"
        tokens = (max_seq_length,)
        masked = (max_predictions_per_seq,)
        feature = input_pipeline.Feature
        int64 = tf.int64
        self.features: input_pipeline.Features = {
            "input_ids": feature(tokens, int64, config.vocab_size, words),
            "input_mask": feature(tokens, int64, 2),
            "segment_ids": feature(tokens, int64, config.type_vocab_size, segments),
            "masked_lm_positions": feature(masked, int64, max_seq_length),
            "masked_lm_ids": feature(masked, int64, config.vocab_size, words),
            "masked_lm_weights": feature(masked, tf.float32),
        }
        if self.objective.has_head:
            labels = f"the labels of sentence_objective={sentence_objective}"
            self.features[LABELS] = feature((1,), int64, self.objective.num_classes, labels)

    def use(
        self,
        train_records: Records,
        eval_records: Records,
        settings: Settings,
    ) -> None:
        """Sets the records to train and to evaluate on.

        Args:
            train_records: the records to train on.
            eval_records: the records to evaluate on.
            settings: the settings of the run.
        """
        self.train_records = train_records
        self.eval_records = eval_records
        self.init_from_group0 = settings.init_from_group0
        self._settings = settings
        self._evaluator: Evaluator | None = None

    def build_model(self) -> AlbertForPretraining:
        """Returns the model with random weights."""
        return AlbertForPretraining(self.config, self.objective.abbreviation)

    @property
    def unmasked_features(self) -> input_pipeline.Features:
        """The features to read from records for dynamic masking."""
        features = {
            name: feature for name, feature in self.features.items() if name not in MADE_BY_MASKING
        }
        return features | {TOKEN_BOUNDARY: self.features["input_mask"]}

    def loss_weights(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the numbers of masked tokens and of segment pairs in a batch, float32 [2]."""
        pairs = tf.cast(tf.shape(batch["input_ids"])[0], tf.float32)
        return tf.stack((tf.reduce_sum(batch["masked_lm_weights"]), pairs))

    def loss(
        self,
        outputs: dict[str, tf.Tensor],
        batch: dict[str, tf.Tensor],
        weights: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the loss of a batch, and the weighted sums of its metrics.

        Args:
            outputs: the outputs of `AlbertForPretraining`.
            batch: the parsed features.
            weights: `loss_weights` of the global batch, if `batch` is a micro-batch of it (gradient
                accumulation).

        Returns:
            The loss, a float32 scalar, and metric name → (weighted sum, weight), float32 scalars.
        """
        totals = self.loss_weights(batch) if weights is None else weights  # [2]
        labels = batch["masked_lm_ids"]  # [B, P]
        weights = batch["masked_lm_weights"]  # [B, P]
        word_losses, word_hits = cross_entropy(outputs["masked_lm_logits"], labels)  # [B, P]
        words = tf.reduce_sum(weights)
        word_sum = tf.reduce_sum(weights * word_losses)
        # 1e-5 as in Google's `get_masked_lm_output`.
        loss = word_sum / (totals[0] + 1e-5)
        sums = {
            "masked_lm_loss": (word_sum, words),
            "masked_lm_accuracy": (tf.reduce_sum(weights * word_hits), words),
        }
        objective = self.objective
        if objective.has_head:
            labels = batch[LABELS][:, 0]  # [B]
            pair_losses, pair_hits = cross_entropy(outputs[objective.logits_name], labels)  # [B]
            pair_sum = tf.reduce_sum(pair_losses)
            count = tf.cast(tf.size(labels), tf.float32)
            loss += pair_sum / totals[1]
            sums[objective.loss_name] = (pair_sum, count)
            sums[objective.accuracy_name] = (tf.reduce_sum(pair_hits), count)
        return loss, sums

    def count_examples(self) -> int:
        """Returns the number of records to train on."""
        return sum(file.num_records for file in self.train_records.files)

    def schedule(self, settings: Settings) -> WarmUpPolynomialDecay:
        """Returns the learning rate schedule of a run."""
        return WarmUpPolynomialDecay(
            settings.learning_rate,
            settings.num_train_steps,
            settings.num_warmup_steps,
            settings.start_warmup_step,
            settings.poly_power,
        )

    def batches(self, settings: Settings, step: int, rows: slice) -> Iterator[Batch]:
        """Returns the training batches from a step on; see `Task`."""
        records = self.train_records
        dataset = input_pipeline.training_dataset(
            records.files,
            records.features,
            settings.train_batch_size,
            settings.seed,
            start=step * settings.train_batch_size,
            rows=rows,
            masking=records.masking,
        )
        return input_pipeline.batches(dataset, records.files)

    def keep_files(self, folder: RunFolder) -> None:
        """Copies the vocabulary of the records to the folder of a run, if it is found."""
        model_folder = self._settings.model_folder
        input_pipeline.keep_vocabulary(self.train_records.files, folder.path, model_folder)

    def measured_on(self) -> str:
        """Returns a `digest` of everything but the checkpoint that affects the metrics."""
        settings, masking = self._settings, self.eval_records.masking
        return digest_of_data(
            input_pipeline.checksum_of(self.eval_records.files),
            settings.eval_batch_size,
            settings.max_eval_steps,
            self.objective.abbreviation,
            *([] if masking is None else [masking.for_evaluation()]),
        )

    def compute_metrics(self, model: Any, checkpoint: str) -> dict[str, float]:
        """Returns the metrics on the records to evaluate on; see `Task`."""
        records, settings = self.eval_records, self._settings
        if self._evaluator is None or self._evaluator.model is not model:
            dataset = input_pipeline.evaluation_dataset(
                records.files, records.features, settings.eval_batch_size, records.masking
            )
            self._evaluator = Evaluator(model, self, dataset, settings.max_eval_steps)
        with input_pipeline.damage_named(records.files):
            return self._evaluator.evaluate()

    def write_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> None:
        """Writes `eval_results.txt`, with a block of lines for each evaluation."""
        files.write_file(
            folder.file("eval_results.txt"),
            heading(evaluations) + "".join(map(format_results, evaluations)),
        )


def format_results(evaluation: Evaluation) -> str:
    """Returns lines `key = value`, sorted by key, as in Google's `eval_results.txt`."""
    results = evaluation.metrics | {GLOBAL_STEP: evaluation.step}
    return "".join(f"{key} = {results[key]}\n" for key in sorted(results))


PAPER_LEARNING_RATE = 0.00176  # with LAMB; section 4.1 of the ALBERT paper
PAPER_BATCH_SIZE = 4096
# At a quarter of the paper's batch size, the square-root rule halves the learning rate.
MUCH_SMALLER = 4


def check_learning_rate(settings: Settings) -> None:
    """Logs a warning if the paper's learning rate is used with a much smaller batch size."""
    batch_size = settings.train_batch_size
    is_papers = math.isclose(settings.learning_rate, PAPER_LEARNING_RATE, rel_tol=1e-3)
    if is_papers and batch_size * MUCH_SMALLER <= PAPER_BATCH_SIZE:
        logging.warning(
            "The default --learning_rate is meant for batches of %d, but --train_batch_size is %d. "
            "By the square-root rule of the LAMB paper, pass --learning_rate=%.3g.",
            PAPER_BATCH_SIZE,
            batch_size,
            PAPER_LEARNING_RATE * math.sqrt(batch_size / PAPER_BATCH_SIZE),
        )


# The pre-training program, as a function of its settings.
#
# It trains from the latest checkpoint in the output directory, or from scratch. Each checkpoint is
# evaluated on held-out records as soon as it is saved; the results are eval_results.txt,
# model.ckpt-best and the metrics in TensorBoard and metrics.jsonl.


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


def run(
    settings: Settings,
    train_records: FoundRecords,
    eval_records: FoundRecords,
    hooks: Sequence[Hook] = (),
) -> Result:
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
        task = make_task(run, train_records, eval_records)
        run.admit(describe_data(task))
        if settings.do_train:
            check_learning_rate(settings)
            run.train(task, hooks)
        if not run.is_chief:
            logging.info("Training finished. Only the first worker evaluates.")
            return Result(run.folder.path, has_files=False)
        evaluations = run.evaluate(task) if settings.do_eval else []
        run.begin()
        return Result(run.folder.path, tuple(evaluations))


def make_task(run: Run, train_records: FoundRecords, eval_records: FoundRecords) -> PretrainingTask:
    """Returns the task with its records.

    Raises:
        ValueError: see `make_records`; or there are fewer records than a batch has.
    """
    settings = run.settings
    task = PretrainingTask(
        run.config,
        settings.max_seq_length,
        settings.prediction_slots,
        settings.sentence_objective,
    )
    training = evaluating = make_records(train_records, settings, task, settings.do_train)
    if eval_records is not train_records:
        evaluating = make_records(eval_records, settings, task)
    total = sum(file.num_records for file in training.files)
    if settings.do_train and total < settings.train_batch_size:
        raise ValueError(
            f"--train_batch_size={settings.train_batch_size} is larger than the data: {total} "
            "records. Reduce it, or create more data (a larger --dupe_factor)."
        )
    task.use(training, evaluating, settings)
    return task


def make_records(
    found: FoundRecords, settings: Settings, task: PretrainingTask, is_trained_on: bool = False
) -> Records:
    """Returns record files with their numbers of records and masks, after checking their records.

    Args:
        found: the record files.
        settings: the settings of the run.
        task: the pre-training task.
        is_trained_on: whether dynamic masking needs them to have no masks; records that are only
            evaluated may have them.

    Raises:
        ValueError: a file is damaged, its records have other lengths or values than the task's, or
            they are to be masked, but contain masked tokens.
    """
    features, masking = task.features, None
    if settings.dynamic_masking:
        masking = input_pipeline.for_records(found, settings, settings.seed)
        if masking is not None:
            features = task.unmasked_features
        elif is_trained_on:
            raise ValueError(
                "--dynamic_masking: expected records that create_pretraining_data.py wrote with "
                "--masked_lm_prob=0, and a metadata file beside them that says so, but "
                f"{next(iter(found))} contains masked tokens or has no metadata"
            )
    return Records(input_pipeline.check_files(found, features), features, masking)


def describe_data(task: PretrainingTask) -> RunRecord:
    """Returns the record of the training records, of their vocabulary and of the task.

    The vocabulary is known if the records were created by create_pretraining_data.py.

    Raises:
        ValueError: the records were created with different vocabularies.
    """
    train_files, eval_files = task.train_records.files, task.eval_records.files
    known = input_pipeline.find_vocabulary([*train_files, *eval_files])
    path = input_pipeline.name_files(train_files)
    data = FileRecord.of(input_pipeline.checksum_of(train_files), path)
    return dataclasses.replace(
        known,
        files={**known.files, run_record.TRAINING_DATA: data},
        task={run_record.SELECTION_METRIC: task.selection_metric},
    )
