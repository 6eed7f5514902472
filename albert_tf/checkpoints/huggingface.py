"""Writes models in Hugging Face's format: `config.json`, `model.safetensors` and tokenizer files.

The result can be loaded with `transformers.AlbertForPreTraining.from_pretrained(folder)`. Compared
with Google's format, names differ (see `families`), kernels are transposed, the projection from E
to H exists even if E = H, and "gelu" is the exact function with erf; Google's is called "gelu_new".
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece
import tokenizers
from absl import logging
from tokenizers import models, normalizers, pre_tokenizers, processors

from albert_tf import files
from albert_tf.checkpoints.families import (
    PROJECTION,
    check_google_layout,
    group_obstacle,
    name_map,
)
from albert_tf.checkpoints.run_record import (
    CLASSIFICATION,
    MULTI_LABEL,
    MULTIPLE_CHOICE,
    REGRESSION,
    SPANS,
    TOKEN_CLASSIFICATION,
)
from albert_tf.model import tokenization
from albert_tf.model.config import ACTIVATIONS, LAYER_NORM_EPSILON, AlbertConfig
from albert_tf.model.huggingface_tokenizer import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE
from albert_tf.model.tokenization import (
    SENTENCEPIECE_NAME,
    SPIECE_UNDERLINE,
    WORDPIECE_NAME,
    FullTokenizer,
    character_class,
)

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
# Weight of a head → class with that head; the first match is used.
_ARCHITECTURES = (
    ("cls/seq_relationship/output_weights", "AlbertForPreTraining"),
    ("cls/predictions/output_bias", "AlbertForMaskedLM"),
    ("cls/squad/output_weights", "AlbertForQuestionAnswering"),
)
_CLASSIFIER = "output_weights"  # used by several heads; the task determines which


def config_to_hugging_face(
    config: AlbertConfig,
    tensors: Mapping[str, Any],
    task: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the content of `config.json`.

    Args:
        config: the model's config, with Google's layout.
        tensors: name → weight; the heads among them determine the class that is written.
        task: the entry `task` of a run's `run.json`, with its name and labels.

    Raises:
        ValueError: Hugging Face does not have the activation, or task and head differ in their
            number of labels.
    """
    activations = ACTIVATIONS[config.hidden_act]
    if not activations:
        raise ValueError(f"Hugging Face's ALBERT does not have hidden_act={config.hidden_act!r}")
    heads = (architecture for name, architecture in _ARCHITECTURES if name in tensors)
    values = config.to_dict() | {
        "model_type": "albert",
        "architectures": [next(heads, "AlbertModel")],
        "hidden_act": activations[0],
        "layer_norm_eps": LAYER_NORM_EPSILON,
        "pad_token_id": 0,
    }
    if _CLASSIFIER in tensors:
        size = len(tensors[_CLASSIFIER])
        values |= write_task(size, task or {})
    return values


def to_hugging_face(
    tensors: Mapping[str, np.ndarray], config: AlbertConfig
) -> dict[str, np.ndarray]:
    """Converts weights with Google's names to Hugging Face's names and layout.

    Raises:
        ValueError: Hugging Face's ALBERT does not support this model. The message says why.
    """
    check_google_layout(config, "Hugging Face's")
    if obstacle := group_obstacle(config):
        raise ValueError(obstacle)
    names = name_map("hugging_face", config.num_hidden_groups, config.inner_group_num)
    left_out = sorted(set(tensors) - set(names))
    if left_out:
        logging.warning("Not part of Hugging Face's ALBERT, not written: %s", ", ".join(left_out))
    every = dict(tensors)
    if not config.has_embedding_projection:
        size = config.hidden_size
        every[f"{PROJECTION}/kernel"] = np.eye(size, dtype=np.float32)
        every[f"{PROJECTION}/bias"] = np.zeros(size, np.float32)
    return {
        other: np.ascontiguousarray(every[name].T if name.endswith("/kernel") else every[name])
        for name, other in names.items()
        if name in every
    }


def save_hugging_face(
    directory: str,
    tensors: Mapping[str, np.ndarray],
    config: AlbertConfig,
    vocab_file: str | None = None,
    spm_model_file: str | None = None,
    do_lower_case: bool = True,
    task: Mapping[str, Any] | None = None,
) -> None:
    """Writes a folder that `from_pretrained` of `transformers` can load.

    Args:
        directory: an existing folder.
        tensors: name → weight, with Google's names.
        config: the model's config.
        vocab_file: WordPiece vocabulary, written as `vocab.txt` and `tokenizer.json`.
        spm_model_file: SentencePiece model, written as `spiece.model` and `tokenizer.json`.
        do_lower_case: whether the tokenizer lowercases.
        task: as in `config_to_hugging_face`.

    Raises:
        ValueError: Hugging Face's ALBERT does not support this model, safetensors or tokenizers is
            not installed, or the vocabulary is invalid.
    """
    weights = to_hugging_face(tensors, config)
    try:
        import tokenizers  # noqa: F401 - is it installed?
        from safetensors.numpy import save
    except ImportError:
        raise ValueError(
            "writing a Hugging Face model requires safetensors and tokenizers: pip install "
            "'albert-tf2[hf]'"
        ) from None
    values = config_to_hugging_face(config, tensors, task)
    files.write_json(os.path.join(directory, CONFIG_FILE), values)
    with files.write_atomically(os.path.join(directory, WEIGHTS_FILE), "wb") as stream:
        stream.write(save(weights, metadata={"format": "pt"}))
    if vocab_file or spm_model_file:
        tokenizer = FullTokenizer(
            None if spm_model_file else vocab_file,
            do_lower_case,
            spm_model_file,
            max_length=config.max_position_embeddings,
        )
        _write_tokenizer(directory, spm_model_file or vocab_file or "", tokenizer)


def _write_tokenizer(directory: str, source: str, tokenizer: FullTokenizer) -> None:
    """Writes the vocabulary, `tokenizer.json` and `tokenizer_config.json`."""
    name = SENTENCEPIECE_NAME if tokenizer.is_sentencepiece else WORDPIECE_NAME
    files.copy(source, os.path.join(directory, name))
    tokenizer_class = "PreTrainedTokenizerFast"  # does exactly what tokenizer.json says
    try:
        content = tokenizer_json(tokenizer)
        with files.write_atomically(os.path.join(directory, TOKENIZER_FILE)) as stream:
            stream.write(content)
    except ValueError as error:
        tokenizer_class = "AlbertTokenizer"
        logging.warning("%s. transformers needs sentencepiece and protobuf for %s", error, name)
    symbols = {"pad": tokenizer.pad_id, "unk": tokenizer.unk_id, "mask": tokenizer.mask_id}
    symbols |= {"cls": tokenizer.cls_id, "sep": tokenizer.sep_id}
    values = {
        "tokenizer_class": tokenizer_class,
        "do_lower_case": tokenizer.do_lower_case,
        # ALBERT was trained with segments, which AlbertTokenizer omits by default.
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": tokenizer.max_length,
        **{f"{symbol}_token": tokenizer.pieces[i] for symbol, i in symbols.items()},
    }
    files.write_json(os.path.join(directory, TOKENIZER_CONFIG_FILE), values)


# The task and the labels of a model in Hugging Face's `config.json`, read and written.
#
# `architectures`, `problem_type`, `id2label` and `num_labels` say there what a run of this package
# records in `run.json`. `RunFolder` reads them with `read_task` where there is no such record, so
# that every program and function knows the same of a folder.

_SEQUENCE = "AlbertForSequenceClassification"
# Class of a fine-tuned model → task; that of _SEQUENCE depends on `problem_type`.
_TASKS = {
    _SEQUENCE: CLASSIFICATION,
    "AlbertForTokenClassification": TOKEN_CLASSIFICATION,
    "AlbertForMultipleChoice": MULTIPLE_CHOICE,
    "AlbertForQuestionAnswering": SPANS,
}
_PROBLEM_TYPES = {
    "single_label_classification": CLASSIFICATION,
    "multi_label_classification": MULTI_LABEL,
    "regression": REGRESSION,
}
_DEFAULT_LABEL = "LABEL_{}"
_DEFAULT_COUNT = 2  # transformers does not write this number of labels


def read_task(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the task that a model was fine-tuned for, and what `run.json` would record of it.

    Labels have the names that `pipeline` of transformers returns, such as "LABEL_0" if the model
    was trained without names.

    Args:
        values: the content of `config.json`.

    Returns:
        The entry `task` of `run.json`: the name of the task, unless its class is unknown, and its
        labels, if it has any; {} if the model was not fine-tuned.

    Raises:
        ValueError: the ids of the labels are not 0, 1, 2 and so on; or the problem type is unknown.
    """
    classes = values.get("architectures") or []
    task = next((_TASKS[name] for name in classes if name in _TASKS), "")
    if task in (MULTIPLE_CHOICE, SPANS):
        return {"name": task}
    labels = _read_labels(values)
    if task == TOKEN_CLASSIFICATION:
        return {"name": task, "labels": labels}
    if task == CLASSIFICATION:
        kind = values.get("problem_type")
        if kind is None:  # as transformers decides by the number of labels
            kind = "regression" if len(labels) == 1 else "single_label_classification"
        if kind not in _PROBLEM_TYPES:
            expected = ", ".join(_PROBLEM_TYPES)
            raise ValueError(f"problem_type={kind!r:.100}: expected one of {expected}")
        task = _PROBLEM_TYPES[kind]
    if not task and (classes or are_default(labels)):
        return {}
    named = {"name": task} if task else {}
    return named | {"labels": [] if task == REGRESSION else labels}


def are_default(labels: Sequence[str]) -> bool:
    """Returns whether labels are those of a model that was trained without names."""
    return list(labels) == _default_labels(len(labels))


def _default_labels(count: int) -> list[str]:
    return [_DEFAULT_LABEL.format(number) for number in range(count)]


def _read_labels(values: Mapping[str, Any]) -> list[str]:
    names = values.get("id2label") or {}
    if not isinstance(names, dict) or set(names) != {str(n) for n in range(len(names))}:
        raise ValueError(f"id2label={names!r:.100}: expected names of the labels 0, 1, 2, …")
    if names:
        return [str(names[str(number)]) for number in range(len(names))]
    return _default_labels(int(values.get("num_labels") or _DEFAULT_COUNT))


def write_task(size: int, task: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entries of `config.json` for a head with the weights `output_weights`.

    Args:
        size: number of outputs of the head.
        task: the entry `task` of `run.json`; {} if there is none.

    Raises:
        ValueError: task and head differ in their number of labels.
    """
    name = task.get("name")
    if name == MULTIPLE_CHOICE:
        return {"architectures": ["AlbertForMultipleChoice"]}
    labels = list(task.get("labels", ()))
    if labels and len(labels) != size:
        raise ValueError(
            f"the head has {size} outputs, but the task has {len(labels)} labels: "
            f"{', '.join(labels[:10])}"
        )
    labels = labels or _default_labels(size)
    values = {
        "architectures": [_SEQUENCE],
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    if name == TOKEN_CLASSIFICATION:
        return values | {"architectures": ["AlbertForTokenClassification"]}
    if not name and labels:
        name = CLASSIFICATION
    kind = next((kind for kind, task_name in _PROBLEM_TYPES.items() if task_name == name), None)
    return values | ({"problem_type": kind} if kind else {})


# Puts together a tokenizer of Hugging Face's library `tokenizers`, and writes it as JSON.
#
# Normalization, in part by regular expressions with Python's character classes, is followed by
# SentencePiece's unigram model or WordPiece, as in `tokenization`. `transformers` reads the result
# without protobuf or tiktoken. The ids equal those of `FullTokenizer`, except for the differences
# listed in docs/differences.md.
#
# The normalizers process a text in parts, split at special tokens such as `[MASK]`.

_UNIGRAM = 1  # SentencePiece's model type
_FINAL_SIGMA, _SIGMA = "\u03c2", "\u03a3"
_MARGIN = 0.01  # by which the score of a suppressed piece is lower than that of its parts


def tokenizer_json(tokenizer: FullTokenizer) -> str:
    """Returns the content of `tokenizer.json` for a vocabulary.

    Raises:
        ValueError: the library does not support the SentencePiece model. The message says why.
    """
    theirs = _unigram(tokenizer) if tokenizer.is_sentencepiece else _wordpiece(tokenizer)
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    for number in sorted({tokenizer.pad_id, tokenizer.unk_id, cls, sep, tokenizer.mask_id}):
        # With SentencePiece, a space before [MASK] is part of the masked word.
        takes_space = tokenizer.is_sentencepiece and number == tokenizer.mask_id
        symbol = tokenizer.pieces[number]
        token = tokenizers.AddedToken(symbol, lstrip=takes_space, normalized=False)
        theirs.add_special_tokens([token])
    names = tokenizer.pieces[cls], tokenizer.pieces[sep]
    single = "{}:0 $A:0 {}:0".format(*names)
    theirs.post_processor = processors.TemplateProcessing(
        single, f"{single} $B:1 {names[1]}:1", list(zip(names, (cls, sep), strict=True))
    )
    return str(theirs.to_str())


def _replace(pattern: str, content: str) -> Any:
    return normalizers.Replace(tokenizers.Regex(pattern), content)


def _lower() -> list[Any]:
    """Returns the steps of `str.lower`; `Lowercase` by itself ignores the context of Σ."""

    def is_cased(char: str) -> bool:
        return (char + _SIGMA).lower().endswith(_FINAL_SIGMA)

    def is_ignorable(char: str) -> bool:
        return ("A" + char + _SIGMA).lower().endswith(_FINAL_SIGMA) and not is_cased(char)

    cased, ignored = map(character_class, (is_cased, is_ignorable))
    is_final = f"(?<={cased}|{cased}{ignored}){_SIGMA}(?!{ignored}*{cased})"
    return [_replace(is_final, _FINAL_SIGMA), normalizers.Lowercase()]


def _wordpiece(tokenizer: FullTokenizer) -> Any:
    """Returns the steps of `BasicTokenizer` and `WordpieceTokenizer`."""
    unknown, longest = tokenization.UNKNOWN_TOKEN, tokenization.MAX_INPUT_CHARS_PER_WORD
    model = models.WordPiece(tokenizer.vocab, unk_token=unknown, max_input_chars_per_word=longest)
    theirs = tokenizers.Tokenizer(model)
    # By Python's classes of characters: those of `BertNormalizer` are of another Unicode version.
    steps = [_replace(character_class(tokenization.is_dropped), "")]
    if tokenizer.do_lower_case:
        marks = _replace(character_class(tokenization.is_mark), "")
        steps += [*_lower(), normalizers.NFD(), marks]
    theirs.normalizer = normalizers.Sequence(steps)
    words = character_class(str.isspace) + "+"
    alone = map(character_class, (tokenization.is_cjk, tokenization.is_punctuation))
    splits = [(words, "removed"), *((symbols, "isolated") for symbols in alone)]
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(tokenizers.Regex(symbols), how) for symbols, how in splits]
    )
    theirs.decoder = tokenizers.decoders.WordPiece()
    return theirs


def _unigram(tokenizer: FullTokenizer) -> Any:
    """Returns the steps of `preprocess_text`, of SentencePiece and of `encode_pieces`."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.sentencepiece_model)
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    replaces = normalizer.remove_extra_whitespaces and normalizer.escape_whitespaces
    is_before = normalizer.add_dummy_prefix and not trainer.treat_whitespace_as_suffix
    if trainer.model_type != _UNIGRAM or trainer.byte_fallback or not (replaces and is_before):
        raise ValueError(
            "tokenizer.json requires a SentencePiece model of the type unigram, without byte "
            'fallback, that replaces spaces by one "▁" before each word'
        )
    scores, numbers = _scores(tokenizer, proto)
    theirs = tokenizers.Tokenizer(models.Unigram(scores, tokenizer.unk_id, False))
    combining = character_class(tokenization.is_combining)
    steps = [_replace(character_class(str.isspace) + "+", " "), normalizers.NFKD()]
    # "▁" is prepended to the first character, which may be removed: a space replaces it.
    steps += [_replace(f"^{combining}+", " "), _replace(combining, "")]
    steps += _lower() if tokenizer.do_lower_case else []
    if charsmap := normalizer.precompiled_charsmap:
        # NFC first, because `Precompiled` does not compose Hangul syllables.
        steps += [normalizers.NFC(), normalizers.Precompiled(charsmap)]
    steps += [_replace(" {2,}", " "), _replace(" +$", "")]
    theirs.normalizer = normalizers.Sequence(steps)
    # Adds "▁" at the start of a text, but not after a special token: "[MASK]." has no space there.
    splits: list[Any] = [pre_tokenizers.Metaspace(SPIECE_UNDERLINE, prepend_scheme="first")]
    if numbers:
        number = f"^{SPIECE_UNDERLINE}(?:{'|'.join(map(re.escape, numbers))}),(?!\\d)"
        splits.append(pre_tokenizers.Split(tokenizers.Regex(number), "isolated"))
    theirs.pre_tokenizer = pre_tokenizers.Sequence(splits)
    theirs.decoder = tokenizers.decoders.Metaspace(SPIECE_UNDERLINE, prepend_scheme="first")
    return theirs


def _scores(tokenizer: FullTokenizer, proto: Any) -> tuple[list[tuple[str, float]], list[str]]:
    """Returns the pieces with their scores, and the numbers that are split from a comma.

    `encode_pieces` splits pieces such as "▁1999,", so they get a score too low to be selected.
    Where the model would select such a piece, the text is split after the comma, unless a digit
    follows: then another piece such as "▁10,000" may have the better score. Inside words,
    `encode_pieces` begins the number with "▁", which cannot be expressed: a warning lists these.
    """
    sp = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.sentencepiece_model)
    scores = {piece.piece: float(piece.score) for piece in proto.pieces}
    numbers, inside = [], []
    for piece in filter(tokenization.has_number_comma, tokenizer.pieces):
        body = piece[:-1].replace(SPIECE_UNDERLINE, "")
        apart = math.fsum([*map(sp.get_score, sp.encode(body)), scores.get(",", 0.0)])
        if not piece.startswith(SPIECE_UNDERLINE):
            inside.append(piece)
        elif scores[piece] > apart:
            numbers.append(body)
        scores[piece] = min(scores[piece], apart - _MARGIN)
    if inside:
        text = "%d pieces have other ids inside of words in tokenizer.json: %s"
        logging.warning(text, len(inside), " ".join(inside))
    return [(piece, scores[piece]) for piece in tokenizer.pieces], sorted(numbers)
