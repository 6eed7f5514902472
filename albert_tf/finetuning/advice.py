"""Warns of settings and vocabularies that are valid, but rarely what was meant."""

from __future__ import annotations

from absl import logging

from albert_tf.checkpoints import run_record
from albert_tf.finetuning.plan import training_steps
from albert_tf.finetuning.prepared_task import PreparedTask
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.model.tokenization import Tokenizer
from albert_tf.training.run import Run


def warn_of_vocabulary(run: Run[FineTuningSettings], tokenizer: Tokenizer) -> None:
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


def give_advice(run: Run[FineTuningSettings], task: PreparedTask) -> None:
    """Warns about missing weights, no warm-up and too few checkpoints of a new run."""
    settings = run.settings
    if run.folder.is_trained:
        return
    num_steps, num_warmup_steps = training_steps(settings, task.count_examples())
    if not settings.init_checkpoint:
        logging.warning("No --init_checkpoint: training starts from random weights")
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
