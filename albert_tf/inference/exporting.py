"""Exports the model in a folder as a SavedModel."""

from __future__ import annotations

import os

from albert_tf import files, tasks
from albert_tf.checkpoints import finding, run_record
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.huggingface_tokenizer import list_files
from albert_tf.inference.model_folder import ModelFolder
from albert_tf.inference.predictor import Options, Predictor
from albert_tf.serving import pretrained_model, saved_model


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
    model_folder = ModelFolder(folder)
    name = model_folder.find_task(task)
    source = model_folder.source
    kept = source.config_file, *list_files(source.vocabulary_file)
    extra_files = {os.path.basename(path): files.read_bytes(path) for path in kept}
    record = model_folder.run.record
    if record != RunRecord():
        extra_files[run_record.FILE] = record.to_json().encode()
    with saved_model.float32_models():
        if not tasks.get(name).is_fine_tuned:
            has_masked_lm = "masked-LM head" in model_folder.source.parts
            model, tokenizer = model_folder.load(
                tasks.PRETRAINING if has_masked_lm else tasks.EMBEDDINGS
            )
            length = max_seq_length or model.config.max_position_embeddings
            poolings = pretrained_model.poolings_of(model_folder.source.parts)
            return pretrained_model.export(
                export_dir, model, tokenizer, length, extra_files, poolings
            )
        options = Options(max_seq_length=max_seq_length)
        predictor = Predictor(model_folder, name, options, {})
        predictor.export(export_dir, extra_files)
    return finding.newest_export(export_dir)
