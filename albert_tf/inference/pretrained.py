"""Models and their tokenizers in folders: `from_pretrained` and `save_pretrained`.

Released archives, Hugging Face repositories, TF-Hub modules and the output directories of this
package's programs contain the same three things with different names: a config, weights and a
vocabulary. `finding` finds them; whatever is missing or ambiguous can be passed as an argument.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tf_keras

from albert_tf import files
from albert_tf.checkpoints import finding, run_record, store
from albert_tf.checkpoints.families import ADAPTERS, GLOBAL_STEP, by_name, is_encoder, variable_name
from albert_tf.checkpoints.loading import load_checkpoint, load_weights
from albert_tf.checkpoints.run_folder import BEST, CONFIG_FILE, RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.finetuning import registry
from albert_tf.finetuning.registry import TaskSpec
from albert_tf.inference.inputs import ModelFolder
from albert_tf.model.tokenization import Tokenizer

NUM_LABELS = "num_labels"  # argument of the heads whose number of outputs is not fixed


def make_model(
    source: ModelFolder, task: str, num_labels: int | None = None, **head_arguments: Any
) -> Any:
    """Returns a model with random weights for a task; see `albert_tf.from_pretrained`."""
    spec = registry.get(task)
    head = registry.resolve(spec.head)
    parameters = inspect.signature(head.__init__).parameters
    of_training = source.run.record.values_for(registry.resolve(spec.settings), spec.head_settings)
    arguments = {**spec.head_arguments, **of_training, **head_arguments}
    if run_record.OBJECTIVE in parameters:
        arguments = {run_record.OBJECTIVE: source.objective, **arguments}
    if NUM_LABELS not in parameters and num_labels is not None:
        raise ValueError(
            f"num_labels={num_labels}: a model for {spec.name} has no labels. Expected another "
            'task, such as task="classification"'
        )
    if NUM_LABELS in parameters and NUM_LABELS not in arguments:
        arguments[NUM_LABELS] = num_labels or source.count_outputs(spec)
    return head(source.config, **arguments)


def load_trained(source: ModelFolder, task: str) -> tuple[Any, Tokenizer]:
    """Returns a model with all weights that a task needs, and its tokenizer.

    Raises:
        ValueError: as in `from_pretrained`, or the checkpoint lacks the head, or a pooler that the
            model uses.
    """
    tokenizer = source.tokenizer
    model = make_model(source, task)
    if "pooler" not in source.parts and not getattr(model, "uses_pooler", False):
        leave_out_pooler(model)
    load_weights(model, source.checkpoint)
    return model, tokenizer


def leave_out_pooler(model: Any) -> None:
    """Removes the pooler from a model, for a checkpoint that has none.

    The model's outputs must not depend on it: its encoder has no `pooled_output` afterwards.
    """
    encoder = getattr(model, "encoder", model)
    encoder.pooler, encoder.add_pooling_layer = None, False


def from_pretrained(
    folder: str,
    task: str | None = None,
    num_labels: int | None = None,
    *,
    config_file: str | None = None,
    vocab_file: str | None = None,
    spm_model_file: str | None = None,
    do_lower_case: bool | None = None,
    **head_arguments: Any,
) -> tuple[Any, Tokenizer]:
    """Returns a model with the weights from a folder, and its tokenizer.

    >>> encoder, tokenizer = albert_tf.from_pretrained("albert_tiny/")
    >>> encoder(tokenizer(["The river", "A boat"]))["pooled_output"].shape
    TensorShape([2, 12])
    >>> classifier, _ = albert_tf.from_pretrained("albert_tiny/", "classification", num_labels=3)
    >>> classifier(tokenizer(["The river", "A boat"])).shape
    TensorShape([2, 3])

    `load_predictor` returns a callable that takes texts and returns labels or answers.

    Args:
        folder: a folder with a config, a vocabulary, and weights of any family that
            `load_checkpoint` supports. Or a checkpoint in such a folder, or the name of a
            downloaded model (see `download`). In the folder of a run, `model.ckpt-best` is used, or
            else the newest checkpoint; in an `--export_dir`, the newest export.
        task: what the model is for: "embeddings" for an `AlbertEncoder`, "pretraining" for an
            `AlbertForPretraining`; for a head, "classification", "multi_label_classification",
            "regression", "multiple_choice", "spans", "answerable_spans", "token_classification" or
            a registered task of your own.
            Default: the task that the folder was fine-tuned for, or else "embeddings".
        num_labels: number of labels; defaults to that of the head in the checkpoint.
        config_file: the config; defaults to the one in the folder.
        vocab_file: a WordPiece vocabulary or a Hugging Face `tokenizer.json`; defaults to what is
            in the folder.
        spm_model_file: a SentencePiece model; defaults to the vocabulary in the folder.
        do_lower_case: whether to lowercase text. Defaults to the value that is recorded in the
            folder (by the run, in Hugging Face's tokenizer_config.json, or in a TF-Hub module), or
            else True. The tokenizer of a Hugging Face folder does not take another value.
        **head_arguments: arguments of the model's constructor, such as `use_pooled_output=False`.
            They default to the values that the model was trained with, if these are recorded.

    Returns:
        The model and the tokenizer. A head that is missing in the checkpoint has random weights,
        and a warning is logged.

    Raises:
        FileNotFoundError: there is no config, checkpoint or vocabulary.
        ValueError: there are several configs, checkpoints or vocabularies; the encoder is
            incomplete; the task is unknown or ambiguous; or the vocabulary is not the model's.
    """
    source = ModelFolder(folder, config_file, vocab_file, spm_model_file, do_lower_case)
    tokenizer = source.tokenizer
    model = make_model(source, task or source.find_task(), num_labels, **head_arguments)
    load_checkpoint(model, source.checkpoint)
    return model, tokenizer


def save_pretrained(
    model: Any,
    folder: str,
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
        labels: names of the outputs of a classifier of texts or tokens, in the order of their ids;
            "0", "1" and so on if not given.

    Raises:
        ValueError: the class of the model is not supported; the number of labels differs from that
            of the outputs; labels are given for a model without them; the folder contains the
            checkpoints of a run, or another vocabulary; or a variable has the name of another one,
            or a name that is not read again.
        OSError: the folder cannot be written to.
    """
    spec = _find_spec(model)
    tensors = _name_variables(model)
    named = _check_labels(model, spec, labels)
    files.ensure_directory(folder, "folder")
    if numbered := RunFolder(folder).checkpoints():
        raise ValueError(
            f"{folder} has the checkpoints of a run, such as {numbered[max(numbered)]}: save the "
            "model in another folder"
        )
    record = _describe(model, spec, named)
    if tokenizer is not None:
        known = run_record.of_tokenizer(tokenizer, _vocabulary_path(tokenizer, folder))
        settings = {**record.settings, **known.settings}
        record = dataclasses.replace(record, settings=settings, files=known.files)
    with files.replacing(folder) as new:
        for name, content in (tokenizer.vocabulary_files if tokenizer else {}).items():
            files.write_file(os.path.join(new, name), content)
        model.config.to_json_file(os.path.join(new, CONFIG_FILE))
        store.save_checkpoint(os.path.join(new, BEST), tensors | {GLOBAL_STEP: np.int64(0)})
        RunFolder(new).write_record(record)


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
        _check_labels(self.model, _find_spec(self.model), self.labels)
        _name_variables(self.model)

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


def _find_spec(model: Any) -> TaskSpec:
    """Returns the task of a model's class.

    Raises:
        ValueError: there is none, or the model has no weights yet.
    """
    if not model.variables:
        raise ValueError(f"{type(model).__name__} has no weights yet: call or train it first")
    fitting = [
        spec
        for spec in registry.rows()
        if type(model) is registry.resolve(spec.head)
        and all(getattr(model, name) == value for name, value in spec.head_arguments.items())
    ]
    if not fitting:
        heads = sorted({registry.resolve(spec.head).__name__ for spec in registry.rows()})
        raise ValueError(
            f"cannot save a {type(model).__name__}: expected one of {', '.join(heads)}"
        )
    # Regression and classification with several labels have more arguments than classification.
    return max(fitting, key=lambda spec: len(spec.head_arguments))


def _check_labels(model: Any, spec: TaskSpec, labels: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the names of the outputs; () for a task without labels."""
    count = getattr(model, NUM_LABELS, None)
    if count is None or spec.num_outputs is not None:
        if labels is not None:
            raise ValueError(f"labels={list(labels)}: a {type(model).__name__} has none")
        return ()
    named = tuple(labels or map(str, range(count)))
    if len(set(named)) != count:
        raise ValueError(
            f"labels={list(named)}: expected {count} different ones, as the model has outputs"
        )
    return named


def _name_variables(model: Any) -> dict[str, Any]:
    """Returns the variables of a model by their names in a checkpoint.

    Raises:
        ValueError: two have the same name, or loading would ignore one of a replaced layer.
    """
    for variable in getattr(model, "encoder", model).variables:
        name = variable_name(variable)
        if not (is_encoder(name) or name.startswith(ADAPTERS)):
            raise ValueError(
                f"a layer of the encoder has a variable called {name!r}, which a model without "
                f"that layer would ignore: begin its name with {ADAPTERS!r}"
            )
    return by_name(model.variables)


def _describe(model: Any, spec: TaskSpec, labels: tuple[str, ...]) -> RunRecord:
    """Returns what is known of a model's training: its objective or task, and its labels."""
    settings = {name: getattr(model, name) for name in spec.head_settings}
    if hasattr(model, run_record.OBJECTIVE):
        settings[run_record.OBJECTIVE] = model.sentence_objective
    if not spec.is_fine_tuned:
        return RunRecord(settings=settings)
    return RunRecord(settings=settings, task={"name": spec.name, "labels": list(labels)})


def _vocabulary_path(tokenizer: Tokenizer, folder: str) -> str:
    """Returns the path in a folder that a tokenizer is recorded with.

    Raises:
        ValueError: the folder has another tokenizer.
    """
    paths = [os.path.join(folder, name) for name in tokenizer.vocabulary_files]
    if others := [other for other in finding.list_tokenizers(folder) if other not in paths]:
        raise ValueError(f"{folder} has another vocabulary, {others[0]}: save elsewhere")
    return paths[-1]
