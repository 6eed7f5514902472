"""Loads models and their tokenizers from folders: `from_pretrained`.

Released archives, Hugging Face repositories, TF-Hub modules and the output directories of this
package's programs contain the same three things with different names: a config, weights and a
vocabulary. `model_folder` finds them; what is missing or ambiguous can be passed as an argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from albert_tf import files
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.loading import leave_out_pooler, load_checkpoint, load_weights
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.finetuning import registry
from albert_tf.inference import saving
from albert_tf.inference.model_task import find_task
from albert_tf.model import initialization
from albert_tf.model.modeling import AlbertEncoder, AlbertModel
from albert_tf.model.tokenization import Tokenizer

NUM_LABELS = "num_labels"  # argument of the heads whose number of outputs is not fixed
LABELS = "labels"  # argument of the heads whose outputs may have names


def make_model(
    source: ModelSource, task: str, num_labels: int | None = None, **head_arguments: object
) -> AlbertModel | AlbertEncoder:
    """Returns a model with random weights for a task; see `albert_tf.from_pretrained`."""
    spec = registry.get(task)
    head: Callable[..., AlbertModel | AlbertEncoder] = spec.head_class
    parameters = inspect.signature(spec.head_class.__init__).parameters
    of_training = source.run.record.values_for(spec.settings_class, spec.head_settings)
    arguments: dict[str, object] = {**spec.head_arguments, **of_training, **head_arguments}
    if run_record.OBJECTIVE in parameters:
        arguments = {run_record.OBJECTIVE: source.objective, **arguments}
    if NUM_LABELS not in parameters and num_labels is not None:
        raise ValueError(
            f"num_labels={num_labels}: a model for {spec.name} has no labels. Expected another "
            'task, such as task="classification"'
        )
    if NUM_LABELS in parameters and NUM_LABELS not in arguments:
        arguments[NUM_LABELS] = spec.count_outputs(source) if num_labels is None else num_labels
    labels = source.run.record.labels
    is_of_task = source.run.record.task_name == spec.name
    if LABELS in parameters and is_of_task and len(labels) == arguments[NUM_LABELS]:
        arguments = {LABELS: labels, **arguments}
    return head(source.config, **arguments)


def load_trained(source: ModelSource, task: str) -> tuple[AlbertModel | AlbertEncoder, Tokenizer]:
    """Returns a model with all weights that a task needs, and its tokenizer.

    Raises:
        ValueError: as in `from_pretrained`, or the checkpoint lacks the head, or a pooler that the
            model uses.
    """
    tokenizer = source.tokenizer
    with initialization.deferred():
        model = _make_trained(source, task)
        load_weights(model, source.place)
    return model, tokenizer


def copy_trained(
    model: AlbertModel | AlbertEncoder, source: ModelSource, task: str
) -> AlbertModel | AlbertEncoder:
    """Returns a copy of a model of `load_trained` that computes as the global policy says.

    The weights are those of the model: the checkpoint may have been replaced since.
    """
    with initialization.deferred():
        copy = _make_trained(source, task)
        for variable, value in zip(copy.variables, model.variables, strict=True):
            initialization.set_value(variable, value)
    return copy


def _make_trained(source: ModelSource, task: str) -> AlbertModel | AlbertEncoder:
    model = make_model(source, task)
    uses_pooler = isinstance(model, AlbertModel) and model.uses_pooler
    if "pooler" not in source.parts and not uses_pooler:
        leave_out_pooler(model)
    return model


def from_pretrained(
    folder: files.PathLike,
    task: str | None = None,
    num_labels: int | None = None,
    *,
    config_file: files.PathLike | None = None,
    vocab_file: files.PathLike | None = None,
    spm_model_file: files.PathLike | None = None,
    do_lower_case: bool | None = None,
    **head_arguments: object,
) -> tuple[Any, Tokenizer]:  # users know which model they ask for
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
            Default: the task that the folder was fine-tuned for, or else "embeddings", also for a
            Hugging Face model for masked words.
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
        and a warning is logged. Both have a method `save_pretrained(folder)`: that of the model is
        `albert_tf.save_pretrained` with this tokenizer; that of the tokenizer writes its files.

    Raises:
        FileNotFoundError: there is no config, checkpoint or vocabulary.
        ValueError: there are several configs, checkpoints or vocabularies; the encoder is
            incomplete; the task is unknown or ambiguous; or the vocabulary is not the model's.
    """
    source = ModelSource.open(folder, config_file, vocab_file, spm_model_file, do_lower_case)
    tokenizer = source.tokenizer
    with initialization.deferred():
        model = make_model(source, task or find_task(source), num_labels, **head_arguments)
        load_checkpoint(model, source.checkpoint)
    saving.add_methods(model, tokenizer)
    return model, tokenizer
