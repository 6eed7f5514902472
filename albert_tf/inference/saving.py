"""Writes a model and its tokenizer to a folder that `from_pretrained` reads: `save_pretrained`.

`from_pretrained` gives what it returns methods of this name, which users of transformers call. The
Keras callback `PretrainedCheckpoint` saves a model after an epoch.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf import files
from albert_tf.checkpoints import run_record, store
from albert_tf.checkpoints.load_report import WithVariables
from albert_tf.checkpoints.model_folder import ModelFolder
from albert_tf.checkpoints.run_folder import BEST, CONFIG_FILE, RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.checkpoints.weight_names import (
    ADAPTERS,
    GLOBAL_STEP,
    by_name,
    is_encoder,
    variable_name,
)
from albert_tf.finetuning import registry
from albert_tf.finetuning.registry import TaskSpec
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import Tokenizer, check_tokenizer, list_files
from albert_tf.setting_values import ValueType

_LABELS = ValueType("labels", str, is_tuple=True, is_scalar=False)


@runtime_checkable
class Savable(WithVariables, Protocol):
    """A model of ours, or one of a task of your own."""

    @property
    def config(self) -> AlbertConfig:
        """The config of its encoder."""


def save_pretrained(
    model: tf_keras.layers.Layer,
    folder: files.PathLike,
    tokenizer: Tokenizer | None = None,
    labels: Sequence[str] | None = None,
) -> None:
    """Writes a model that was trained with Keras to a folder.

    The folder contains `albert_config.json`, `model.ckpt-best` with Google's variable names, the
    vocabulary, and `run.json` with the task and the labels. `from_pretrained`, `load_predictor`,
    `albert predict --model_dir` and `--init_checkpoint` of the programs accept it.
    `albert convert` converts it for Hugging Face's transformers. A model that was
    saved there before is replaced: a kill leaves the old one or the new one, whole. Other files in
    the folder are left alone.

    >>> model, tokenizer = albert_tf.from_pretrained(
    ...     "albert_tiny/", "classification", num_labels=2
    ... )
    >>> save_pretrained(model, "topics", tokenizer, labels=["sports", "politics"])
    >>> result = albert_tf.load_predictor("topics")("The match ended 2:1.")
    >>> sorted(result["probabilities"])
    ['politics', 'sports']

    Args:
        model: an `AlbertEncoder`, `AlbertForPretraining` or one of the classes with a head.
        folder: the folder, which is created if needed.
        tokenizer: the tokenizer of the model; without one, no vocabulary is saved.
        labels: names of the outputs of a classifier of texts or tokens, in the order of their ids.
            Defaults to the `labels` of the model, which `from_pretrained` has read from its folder,
            or else to "0", "1" and so on.

    Raises:
        ValueError: the class of the model is not supported; the number of labels differs from that
            of the outputs; labels are given for a model without them; the folder contains the
            checkpoints of a run, or another vocabulary; or a variable has the name of another one,
            or a name that is not read again.
        OSError: the folder cannot be written to.
    """
    folder = files.path_text(folder, "folder")
    if tokenizer is not None:
        check_tokenizer(tokenizer)
    savable, spec = _recognize(model)
    tensors = _name_variables(savable)
    named = _check_labels(savable, spec, labels)
    now = _prepare(folder)
    kept = _kept_vocabulary(now) if tokenizer is None else []
    record = _with_vocabulary(_describe(savable, spec, named), tokenizer, folder, now)
    with files.replacing(folder, kept) as new:
        _write_vocabulary(tokenizer, new)
        savable.config.to_json_file(os.path.join(new, CONFIG_FILE))
        store.save_checkpoint(os.path.join(new, BEST), tensors | {GLOBAL_STEP: np.int64(0)})
        RunFolder(new).write_record(record)


def save_tokenizer(tokenizer: Tokenizer, folder: files.PathLike) -> None:
    """Writes a tokenizer to a folder, beside a model that was saved there, or alone.

    `run.json` records whether the tokenizer lowercases; what it says of the model stays.

    Args:
        tokenizer: the tokenizer.
        folder: the folder, which is created if needed.

    Raises:
        ValueError: the folder contains the checkpoints of a run, or another vocabulary.
        OSError: the folder cannot be written to.
    """
    folder = files.path_text(folder, "folder")
    now = _prepare(folder)
    record = _with_vocabulary(RunFolder(now).record, tokenizer, folder, now)
    with files.replacing(folder) as new:
        _write_vocabulary(tokenizer, new)
        RunFolder(new).write_record(record)


def add_methods(model: Any, tokenizer: Tokenizer) -> None:
    """Gives a model and its tokenizer the method `save_pretrained`, as transformers has it.

    That of the model saves the tokenizer too, and takes the arguments of the function.
    """

    def save_model(
        folder: files.PathLike,
        tokenizer: Tokenizer = tokenizer,
        labels: Sequence[str] | None = None,
    ) -> None:
        save_pretrained(model, folder, tokenizer, labels)

    model.save_pretrained = save_model
    tokenizer.save_pretrained = functools.partial(save_tokenizer, tokenizer)


def check_savable(model: tf_keras.layers.Layer, labels: Sequence[str] | None) -> None:
    """Checks that `save_pretrained` can save a model with these labels.

    Raises:
        ValueError: as in `save_pretrained`, but for what the folder contains.
    """
    known, spec = _recognize(model)
    _check_labels(known, spec, labels)
    _name_variables(known)


def _recognize(model: tf_keras.layers.Layer) -> tuple[Savable, TaskSpec]:
    """Returns a model, and the task of its class.

    Raises:
        ValueError: there is none, or the model has no weights yet.
    """
    if isinstance(model, tf_keras.layers.Layer) and not model.variables:
        raise ValueError(f"{type(model).__name__} has no weights yet: call or train it first")
    fitting = [
        spec
        for spec in registry.rows()
        if type(model) is spec.head_class
        and all(getattr(model, name) == value for name, value in spec.head_arguments.items())
    ]
    if not fitting or not isinstance(model, Savable):
        heads = sorted({spec.head_class.__name__ for spec in registry.rows()})
        raise ValueError(
            f"cannot save a {type(model).__name__}: expected one of {', '.join(heads)}"
        )
    # Regression and classification with several labels have more arguments than classification.
    return model, max(fitting, key=lambda spec: len(spec.head_arguments))


def _check_labels(model: Savable, spec: TaskSpec, labels: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the names of the outputs; () for a task without labels."""
    count: int | None = getattr(model, "num_labels", None)
    if count is None or spec.num_outputs is not None:
        if labels is not None:
            raise ValueError(f"labels={labels!r:.60}: a {type(model).__name__} has none")
        return ()
    labels = None if labels is None else cast("tuple[str, ...]", _LABELS.convert(labels))
    of_model: Sequence[str] = getattr(model, "labels", ())
    named = tuple(labels or of_model or map(str, range(count)))
    if len(set(named)) != count:
        raise ValueError(
            f"labels={list(named)}: expected {count} different ones, as the model has outputs"
        )
    return named


def _name_variables(model: Savable) -> dict[str, tf.Variable]:
    """Returns the variables of a model by their names in a checkpoint.

    Raises:
        ValueError: two have the same name, or loading would ignore one of a replaced layer.
    """
    encoder: Savable = getattr(model, "encoder", model)
    for variable in encoder.variables:
        name = variable_name(variable)
        if not (is_encoder(name) or name.startswith(ADAPTERS)):
            raise ValueError(
                f"a layer of the encoder has a variable called {name!r}, which a model without "
                f"that layer would ignore: begin its name with {ADAPTERS!r}"
            )
    return by_name(model.variables)


def _describe(model: Savable, spec: TaskSpec, labels: tuple[str, ...]) -> RunRecord:
    """Returns what is known of a model's training: its objective or task, and its labels."""
    settings = {name: getattr(model, name) for name in spec.head_settings}
    if hasattr(model, run_record.OBJECTIVE):
        settings[run_record.OBJECTIVE] = getattr(model, run_record.OBJECTIVE)
    if not spec.is_fine_tuned:
        return RunRecord(settings=settings)
    return RunRecord(settings=settings, task={"name": spec.name, "labels": list(labels)})


def _prepare(folder: str) -> str:
    """Makes a folder, in which another model may be replaced.

    Returns:
        The folder with the files of that model; see `files.current`.

    Raises:
        ValueError: it is the folder of a run, or what a kill has left of saving is damaged.
    """
    files.ensure_directory(folder, "folder")
    if numbered := RunFolder(folder).checkpoints():
        raise ValueError(
            f"{folder} has the checkpoints of a run, such as {numbered[max(numbered)]}: save the "
            "model in another folder"
        )
    return files.current(folder)


def _with_vocabulary(
    record: RunRecord, tokenizer: Tokenizer | None, folder: str, now: str
) -> RunRecord:
    """Returns a record that describes the tokenizer of a folder.

    Args:
        record: the record.
        tokenizer: the tokenizer that is saved; None for the one that stays.
        folder: the folder.
        now: the folder with its files.
    """
    if tokenizer is not None:
        known = run_record.of_tokenizer(tokenizer, _vocabulary_path(tokenizer, folder, now))
    else:
        of_folder = RunFolder(now).record
        known = of_folder.only(run_record.LOWER_CASE, run_record.VOCABULARY)
    settings = {**record.settings, **known.settings}
    return dataclasses.replace(record, settings=settings, files=known.files)


def _write_vocabulary(tokenizer: Tokenizer | None, folder: str) -> None:
    for name, content in (tokenizer.vocabulary_files if tokenizer else {}).items():
        files.write_file(os.path.join(folder, name), content)


def _kept_vocabulary(folder: str) -> list[str]:
    """Returns the names of the files of tokenizers in a folder, which a new model there has too."""
    paths = [path for found in ModelFolder(folder).tokenizers for path in list_files(found)]
    return sorted({os.path.basename(path) for path in paths if os.path.dirname(path) == folder})


def _vocabulary_path(tokenizer: Tokenizer, folder: str, now: str) -> str:
    """Returns the path in a folder that a tokenizer is recorded with.

    Raises:
        ValueError: the folder has another tokenizer.
    """
    names = list(tokenizer.vocabulary_files)
    for place in dict.fromkeys((folder, now)):  # files of the first that `now` lacks stay, too
        own = [os.path.join(place, name) for name in names]
        if others := [other for other in ModelFolder(place).tokenizers if other not in own]:
            raise ValueError(f"{folder} has another vocabulary, {others[0]}: save elsewhere")
    return os.path.join(folder, names[-1])


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
        folder: files.PathLike,
        tokenizer: Tokenizer | None = None,
        labels: Sequence[str] | None = None,
        monitor: str | None = None,
        mode: str = "min",
    ) -> None:
        super().__init__()
        if mode not in ("min", "max"):
            raise ValueError(f"mode={mode!r}: expected 'min' or 'max'")
        self.folder = files.path_text(folder, "folder")
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
                names = ", ".join(metrics) or "the metrics, of which there are none"
                raise ValueError(f"monitor={self.monitor!r}: expected one of {names}")
            value = metrics[self.monitor]
            sign = 1 if self.mode == "min" else -1
            if self.best is not None and not sign * value < sign * self.best:
                return
            self.best = value
        save_pretrained(self.model, self.folder, self.tokenizer, self.labels)
