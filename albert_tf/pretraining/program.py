"""The pre-training program, as a function of its settings.

It trains from the latest checkpoint in the output directory, or from scratch. Each checkpoint is
evaluated on held-out records as soon as it is saved; the results are eval_results.txt,
model.ckpt-best and the metrics in TensorBoard and metrics.jsonl.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from absl import logging

from albert_tf.checkpoints import finding, loading, run_record, saved_model, signatures
from albert_tf.checkpoints.loading import ModelSource
from albert_tf.checkpoints.run_folder import Evaluation
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.model.config import AlbertConfig
from albert_tf.pretraining import dynamic_masking, record_files
from albert_tf.pretraining.settings import Settings
from albert_tf.pretraining.task import PretrainingTask, Records, format_results
from albert_tf.training.hooks import Hook
from albert_tf.training.run import Run


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


def run(settings: Settings, hooks: Sequence[Hook] = ()) -> Result:
    """Pre-trains and evaluates, depending on the settings; resumes an existing run.

    Args:
        settings: the completed settings.
        hooks: called in training; see `training.hooks`.

    Raises:
        ValueError, OSError: settings, records or checkpoints are invalid or inconsistent; the
            message says which.
        ArithmeticError: the loss became NaN or infinite.
        InterruptedRunError: a signal stopped the run; the same settings resume it.
    """
    objective = settings.sentence_objective or record_files.find_objective(settings.input_file)
    settings = dataclasses.replace(settings, sentence_objective=objective)
    with Run.open(settings) as run:
        task = make_task(run)
        run.admit(describe_data(task))
        if settings.do_train:
            name_optimizer_of_layout(settings, run.config)
            run.train(task, hooks)
        if not run.is_chief:
            logging.info("Training finished. Only the first worker evaluates and exports.")
            return Result(run.folder.path, has_files=False)
        evaluations = run.evaluate(task) if settings.do_eval else []
        if settings.export_dir:
            export(settings.export_dir, run.folder.path, task)
        run.begin()
        return Result(run.folder.path, tuple(evaluations))


def make_task(run: Run) -> PretrainingTask:
    """Returns the task with its records.

    Raises:
        ValueError: see `find_records`; or there are fewer records than a batch has.
    """
    settings = run.settings
    task = PretrainingTask(
        run.config,
        settings.max_seq_length,
        settings.prediction_slots,
        settings.sentence_objective,
        settings.sentence_loss_weight,
    )
    train_records = eval_records = find_records(settings, task, "input_file")
    if settings.do_eval and settings.eval_input_file:
        eval_records = find_records(settings, task, "eval_input_file")
    if settings.do_train:
        record_files.check_batch_size(train_records.files, settings.train_batch_size)
    task.use(train_records, eval_records, settings)
    return task


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


def describe_data(task: PretrainingTask) -> RunRecord:
    """Returns the record of the training records, of their vocabulary and of the task.

    The vocabulary is known if the records were created by create_pretraining_data.py.

    Raises:
        ValueError: the records were created with different vocabularies.
    """
    train_files, eval_files = task.train_records.files, task.eval_records.files
    known = record_files.find_vocabulary([*train_files, *eval_files])
    path = record_files.name_files([file.path for file in train_files])
    data = FileRecord.of(record_files.checksum_of(train_files), path)
    return dataclasses.replace(
        known,
        files={**known.files, run_record.TRAINING_DATA: data},
        task={run_record.SELECTION_METRIC: task.selection_metric},
    )


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
    try:
        tokenizer, vocabulary_file = source.tokenizer, source.vocabulary_file
    except FileNotFoundError:
        tokenizer, vocabulary_file = None, None
        logging.warning(
            "%s has no vocabulary, so the export takes no texts. Copy that of the records there.",
            output_dir,
        )
    with saved_model.float32_models():
        model = task.build_model()
        loading.load_weights(model, source.weights.path)
        length = task.config.max_position_embeddings
        exported = signatures.embeddings_export(model.encoder, tokenizer, length)
        model_files = saved_model.model_files(source.config_file, vocabulary_file, RunRecord())
        return saved_model.export(export_dir, model.variables, exported, model_files)


def name_optimizer_of_layout(settings: Settings, config: AlbertConfig) -> None:
    """Logs the optimizer of albert_zh's trainer if its layout is trained with Google's LAMB.

    It is not selected by the layout: `--optimizer=lamb` is Google's LAMB for every config.
    """
    if settings.optimizer == "lamb" and config.layout == "albert_zh":
        logging.info(
            "--optimizer=lamb is Google's LAMB. albert_zh's run_pretraining.py trains its layout "
            "with --optimizer=lamb_albert_zh."
        )
