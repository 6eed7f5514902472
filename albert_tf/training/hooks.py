"""Hooks: what is done during training besides taking steps.

    def log_norm(trainer, result):
        trainer.log(word_norm=float(tf.norm(trainer.model.encoder.embeddings.word_table)))

    pretraining.run(settings, hooks=[every(100, log_norm)])

A hook of your own runs before those of a run, so that what it logs is in the line of the same step.
"""

from __future__ import annotations

from albert_tf.training.loop import Hook, every

__all__ = ["Hook", "every"]
