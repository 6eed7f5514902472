"""A Keras callback that saves the model as `save_pretrained` does: `PretrainedCheckpoint`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tf_keras

from albert_tf.inference.saving import check_savable, save_pretrained
from albert_tf.model.tokenization import Tokenizer


class PretrainedCheckpoint(tf_keras.callbacks.Callback):
    """Keras callback that saves the model after an epoch, as `save_pretrained` does.

    The folder always contains the last or the best model.

    >>> model, tokenizer = albert_tf.from_pretrained(
    ...     "albert_tiny/", "classification", num_labels=2
    ... )
    >>> model.compile(albert_tf.fine_tuning_optimizer(1e-4, 3), "mse")
    >>> keep = PretrainedCheckpoint("best", tokenizer, ["sports", "politics"], monitor="loss")
    >>> batch, targets = tokenizer(["A goal", "A law"]), np.eye(2)
    >>> history = model.fit(batch, targets, epochs=3, verbose=0, callbacks=[keep])
    >>> keep.best == min(history.history["loss"])
    True

    Args:
        folder: as in `save_pretrained`.
        tokenizer: as in `save_pretrained`.
        labels: as in `save_pretrained`.
        monitor: name of the metric, such as "val_accuracy", by which the best model is selected;
            None saves the model after every epoch.
        mode: "min" if smaller values of the metric are better, "max" if larger ones are.

    Attributes:
        best: the metric of the saved model; None before the first epoch, and without `monitor`.

    Raises:
        ValueError: `mode` is neither "min" nor "max"; or, in training, the model cannot be saved,
            or there is no such metric.
    """

    def __init__(
        self,
        folder: str,
        tokenizer: Tokenizer | None = None,
        labels: Sequence[str] | None = None,
        monitor: str | None = None,
        mode: str = "min",
    ) -> None:
        super().__init__()
        if mode not in ("min", "max"):
            raise ValueError(f"mode={mode!r}: expected 'min' or 'max'")
        self.folder = folder
        self.tokenizer = tokenizer
        self.labels = labels
        self.monitor = monitor
        self.mode = mode
        self.best: float | None = None

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Checks that the model can be saved before it is trained."""
        check_savable(self.model, self.labels)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Saves the model if it is the best one so far."""
        if self.monitor is not None:
            metrics = dict(logs or {})
            if self.monitor not in metrics:
                names = ", ".join(metrics)
                raise ValueError(f"monitor={self.monitor!r}: expected one of {names}")
            value = metrics[self.monitor]
            sign = 1 if self.mode == "min" else -1
            if self.best is not None and not sign * value < sign * self.best:
                return
            self.best = value
        save_pretrained(self.model, self.folder, self.tokenizer, self.labels)
