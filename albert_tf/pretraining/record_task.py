"""Pre-training on record files: the task of a run, with its batches and its evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from absl import logging

from albert_tf import files
from albert_tf.checkpoints.evaluations import Evaluation, digest_of_data, heading
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.weight_names import GLOBAL_STEP
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertForPretraining, AlbertModel
from albert_tf.model.objectives import SOP
from albert_tf.model.schedules import WarmUpPolynomialDecay
from albert_tf.pretraining import input_pipeline, record_files
from albert_tf.pretraining.record_streams import ONE_ORDER, StreamPlan, streams_of_rows
from albert_tf.pretraining.records import Records, describe_contents, keep_vocabulary
from albert_tf.pretraining.settings import Settings
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.evaluation import Evaluator
from albert_tf.training.task import Batch, TrainedTask


class RecordTask(PretrainingTask, TrainedTask[Settings]):
    """Pre-training on records, which is evaluated on records.

    Args:
        config: the model's config.
        settings: the settings of the run, with the sentence objective.
        train_records: the records to train on.
        eval_records: the records to evaluate on.
        num_streams: number of streams in which the records are read; see `record_streams`.
    """

    selection_metric = "masked_lm_accuracy"
    official_order = True  # the initial weights show what training gained

    def __init__(
        self,
        config: AlbertConfig,
        settings: Settings,
        train_records: Records,
        eval_records: Records,
        num_streams: int = ONE_ORDER,
    ) -> None:
        super().__init__(
            config,
            settings.max_seq_length,
            settings.prediction_slots,
            settings.sentence_objective or SOP,
        )
        self.train_records = train_records
        self.eval_records = eval_records
        self.num_streams = num_streams
        self.init_from_group0 = settings.init_from_group0
        self._one_hot_segments = settings.one_hot_segments
        self._model_folder = settings.source.folder
        self._eval_batch_size = settings.eval_batch_size
        self._max_eval_steps = settings.max_eval_steps
        self._evaluator: Evaluator | None = None

    def count_examples(self) -> int:
        """Returns the number of records to train on."""
        return self.train_records.num_records

    def build_model(self) -> AlbertForPretraining:
        """Returns the model with random weights."""
        model = super().build_model()
        if self._one_hot_segments:
            model.encoder.embeddings.has_one_hot_segments = True
        return model

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
        """Returns the training batches from a step on; see `TrainedTask`."""
        records = self.train_records
        start = step * settings.train_batch_size
        plan = None
        if self.num_streams != ONE_ORDER:
            count, size = self.num_streams, settings.train_batch_size
            plan = StreamPlan(records.files, count, size, settings.seed, start)
            own = len(streams_of_rows(rows, size, count))
            text = "Records: %d files in %d streams, of which this process reads %d"
            logging.info(text, len(records.files), count, own)
        dataset = input_pipeline.training_dataset(
            records.files,
            records.features,
            settings.train_batch_size,
            settings.seed,
            start=start,
            rows=rows,
            masking=records.masking,
            plan=plan,
        )
        return input_pipeline.batches(dataset, plan.opened if plan else records.files)

    def keep_files(self, folder: RunFolder) -> None:
        """Copies the vocabulary of the records to the folder of a run, if it is found."""
        keep_vocabulary(self.train_records.files, folder.path, self._model_folder)

    def measured_on(self) -> str:
        """Returns a `digest` of everything but the checkpoint that affects the metrics."""
        masking = self.eval_records.masking
        contents = describe_contents([file.path for file in self.eval_records.files])
        return digest_of_data(
            record_files.checksum_of(self.eval_records.files),
            self._eval_batch_size,
            self._max_eval_steps,
            self.objective.abbreviation,
            *([] if masking is None else [masking.for_evaluation()]),
            *(record.digest for record in contents.values()),
        )

    def compute_metrics(self, model: AlbertModel, checkpoint: str) -> dict[str, float]:
        """Returns the metrics on the records to evaluate on; see `TrainedTask`."""
        records = self.eval_records
        if self._evaluator is None or self._evaluator.model is not model:
            dataset = input_pipeline.evaluation_dataset(
                records.files, records.features, self._eval_batch_size, records.masking
            )
            self._evaluator = Evaluator(model, self, dataset, self._max_eval_steps)
        with record_files.damage_named(records.files):
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
