"""A variable of the head of each kind, by which the head of a checkpoint is recognized."""

from __future__ import annotations

SHARED_HEAD = "output_weights"  # of most tasks
SPANS_HEAD = "cls/squad/output_weights"
ANSWERABLE_SPANS_HEAD = "start_logits/dense/kernel"
