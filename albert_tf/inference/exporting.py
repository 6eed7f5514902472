"""Exports the model in a folder: `export_saved_model`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import cast

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints import tasks
from albert_tf.checkpoints.model_protocols import encoder_of
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.export import embeddings, saved_model
from albert_tf.export.signatures import Export
from albert_tf.finetuning import registry
from albert_tf.finetuning.task import AnyFineTuningTask
from albert_tf.inference.model_task import find_task, open_task
from albert_tf.inference.pretrained import load_trained
from albert_tf.inference.settings import TENSORFLOW, PredictorSettings
from albert_tf.inference.tensorflow_predictor import TensorFlowPredictor
from albert_tf.model.poolings import EXPORTED_POOLINGS


def export_saved_model(
    folder: str, export_dir: str, task: str | None = None, max_seq_length: int | None = None
) -> str:
    """Writes a SavedModel of the model in a folder, as `--export_dir` of the programs does.

    Its signatures take serialized examples, tensors and, to classify or embed texts, raw strings
    (docs/serving.md). Its weights are float32. TensorFlow Serving can serve it, and
    `albert predict --model_dir` and `load_predictor` accept its folder.

    >>> model, tokenizer = albert_tf.from_pretrained(
    ...     "albert_tiny/", "classification", num_labels=2
    ... )
    >>> albert_tf.save_pretrained(model, "topics", tokenizer, labels=["sports", "politics"])
    >>> served = tf.saved_model.load(albert_tf.export_saved_model("topics", "export"))
    >>> text = tf.constant(["The match ended 2:1."])
    >>> answer = served.signatures["texts"](text_a=text, text_b=tf.constant([""]))
    >>> answer["probabilities"].shape
    TensorShape([1, 2])

    Args:
        folder: a folder that `load_predictor` accepts, such as one written by `save_pretrained`.
        export_dir: parent folder of the exports, which is created if needed.
        task: as in `load_predictor`. A model that was not fine-tuned is exported for embeddings.
        max_seq_length: sequence length of serialized examples, and maximum sequence length of
            texts, in tokens. Defaults to that of training, or else to the model's maximum.

    Returns:
        The folder of the export, `<export_dir>/<Unix time>`.

    Raises:
        FileNotFoundError: the folder has no checkpoint, config or vocabulary.
        ValueError: the model has no head for the task; `max_seq_length` exceeds the model's
            maximum, or leaves no room for the context after a question of the longest length; or
            `export_dir` cannot be written to.
    """
    source = ModelSource.open(folder)
    model_files = saved_model.model_files(
        source.config_file, source.vocabulary_file, source.run.record
    )
    with saved_model.float32_models():
        made = make_export(source, find_task(source, task), max_seq_length)
        return saved_model.export(export_dir, made.variables, made.exported, model_files)


@dataclasses.dataclass(frozen=True)
class ExportedModel:
    """What a model exports, and the variables that its signatures use.

    Attributes:
        variables: the variables, float32.
        exported: the signatures, and the files beside them.
        max_seq_length: maximum sequence length of texts, in tokens.
        labels: names of the model's outputs; () if they have none.
    """

    variables: Sequence[tf.Variable]
    exported: Export
    max_seq_length: int
    labels: tuple[str, ...] = ()


def make_export(
    source: ModelSource,
    task: str,
    max_seq_length: int | None,
    poolings: Sequence[str] = EXPORTED_POOLINGS,
) -> ExportedModel:
    """Returns what the model in a folder exports. Call it in `saved_model.float32_models`.

    Args:
        source: the model.
        task: the name of the task.
        max_seq_length: see `export_saved_model`.
        poolings: the embeddings that a model that was not fine-tuned returns, if it has a pooler.

    Raises:
        ValueError: as in `export_saved_model`.
    """
    spec = registry.get(task)
    if not spec.is_fine_tuned:
        return _export_embeddings(source, max_seq_length, poolings)
    options = PredictorSettings(max_seq_length=max_seq_length, engine=TENSORFLOW)
    predictor = TensorFlowPredictor(source, task, options)
    fine_tuned = cast("AnyFineTuningTask", predictor.task)
    length = fine_tuned.max_seq_length
    exported = fine_tuned.make_export(predictor.model, length, source.run)
    return ExportedModel(predictor.model.variables, exported, length, predictor.labels)


def _export_embeddings(
    source: ModelSource, max_seq_length: int | None, poolings: Sequence[str]
) -> ExportedModel:
    """Returns what a model that was not fine-tuned exports; see `make_export`."""
    has_masked_lm = "masked-LM head" in source.parts
    model, tokenizer = load_trained(
        source, tasks.PRETRAINING if has_masked_lm else tasks.EMBEDDINGS
    )
    modules = source.sentence_modules
    takes_texts = modules is None or not modules.lowercases
    if not takes_texts:
        logging.warning("%s: the export takes no texts, which are lowercased", source.folder)
    options = PredictorSettings(max_seq_length=max_seq_length)
    length = open_task(source, tasks.EMBEDDINGS, options).max_seq_length
    exported = embeddings.embeddings_export(
        encoder_of(model),
        tokenizer if takes_texts else None,
        length,
        embeddings.poolings_of(source.parts, poolings),
        modules,
    )
    return ExportedModel(model.variables, exported, length)
