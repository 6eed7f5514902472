r"""Pre-trains ALBERT on records made by create_pretraining_data.py, and evaluates it.

    python run_pretraining.py --albert_config_file=configs/albert_base.json \
        --input_file=records/train*.tfrecord --output_dir=model --do_train --do_eval \
        --eval_input_file=records/held_out.tfrecord --train_batch_size=32 \
        --learning_rate=0.00015 --num_train_steps=10000 --num_warmup_steps=1000

Writes checkpoints (`model.ckpt-<step>`), metrics.jsonl and TensorBoard summaries to --output_dir.
With --do_eval, each checkpoint is evaluated when it is saved, and eval_results.txt and
model.ckpt-best are written. The training curves are plotted at the end. Run the same command again
to resume a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.model.config import AlbertConfig
from albert_tf.pretraining.metadata_checks import check_records, find_objective, find_record_files
from albert_tf.pretraining.record_streams import check_streams
from albert_tf.pretraining.settings import Settings

if TYPE_CHECKING:
    from albert_tf.pretraining.program import PretrainingResult
    from albert_tf.training.hooks import Hook


__all__ = ["Settings", "run"]


def run(settings: Settings, hooks: Sequence[Hook] = ()) -> PretrainingResult:
    """Pre-trains and evaluates ALBERT, as run_pretraining.py does.

    Running the same settings again resumes the run.

    >>> from albert_tf import pretraining
    >>> settings = pretraining.Settings(
    ...     albert_config_file="albert_config.json",
    ...     input_file="records/train-*",
    ...     output_dir="model",
    ...     train_batch_size=32,
    ...     learning_rate=0.00015,
    ...     do_eval=True,
    ... )
    >>> pretraining.run(settings).evaluations[-1].metrics["masked_lm_accuracy"]  # doctest: +SKIP

    Args:
        settings: the flags of that program.
        hooks: called in training; see `albert_tf.training.hooks`.

    Returns:
        The evaluations of all checkpoints.

    Raises:
        ValueError, OSError: settings, records or checkpoints are invalid or inconsistent; the
            message says which.
        ArithmeticError: the loss became NaN or infinite.
        InterruptedRunError: a signal stopped the run; the same settings resume it.
    """
    settings.require_a_phase()
    settings = settings.completed()
    train_records = find_record_files(settings.input_file, "--input_file")
    if settings.do_train and settings.record_streams is not None:
        check_streams(settings.record_streams, len(train_records), settings.train_batch_size)
    eval_records = train_records
    if settings.do_eval and settings.eval_input_file:
        eval_records = find_record_files(settings.eval_input_file, "--eval_input_file")
    path = settings.albert_config_file or ""
    config = AlbertConfig.for_model(path)
    RunFolder(settings.output_dir).check_config(config, path)
    config.check_length(settings.max_seq_length)
    objective = settings.sentence_objective or find_objective(train_records)
    check_records(train_records | eval_records, objective, config)
    settings = dataclasses.replace(settings, sentence_objective=objective)

    from albert_tf.pretraining import program  # needs TensorFlow, unlike what was checked

    return program.run(settings, train_records, eval_records, hooks)
