"""The public `from_pretrained`: a model and its tokenizer, from a folder of any origin."""

from __future__ import annotations

from typing import Any

from albert_tf.checkpoints.pretrained import ModelSource, load_pretrained
from albert_tf.inference.model_folder import ModelFolder
from albert_tf.model.tokenization import Tokenizer


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
    source = ModelSource(folder, config_file, vocab_file, spm_model_file, do_lower_case)
    if task is None:
        task = ModelFolder(folder, source).find_task()
    return load_pretrained(source, task, num_labels, **head_arguments)
