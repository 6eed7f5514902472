"""The outputs on the dev split that are kept, so that the best checkpoint is not computed again."""

from __future__ import annotations

from albert_tf.finetuning.batch_runner import Outputs


class DevOutputs:
    """Keeps the outputs of the best checkpoint, and of the one that was evaluated last."""

    def __init__(self) -> None:
        # Digest of a checkpoint → its selection metric, and its outputs.
        self._kept: dict[str, tuple[float, Outputs]] = {}

    def add(self, checkpoint: str, metric: float, outputs: Outputs) -> None:
        """Keeps the outputs of a checkpoint, besides those of the best one before it.

        Args:
            checkpoint: digest of the checkpoint.
            metric: its selection metric; larger is better.
            outputs: its outputs on the dev split.
        """
        best = max(self._kept.items(), key=lambda item: item[1][0], default=None)
        self._kept = {} if best is None else dict([best])
        self._kept[checkpoint] = metric, outputs

    def get(self, checkpoint: str) -> Outputs | None:
        """Returns the outputs of a checkpoint, given its digest; None if they are not kept."""
        return self._kept[checkpoint][1] if checkpoint in self._kept else None
