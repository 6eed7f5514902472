"""Finds checkpoints, configs and vocabularies in folders, without importing TensorFlow.

They have different names in released archives, Hugging Face repositories, TF-Hub modules and the
output directories of this package's programs.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import os
import re

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.exported_files import (
    ANSWERING,
    OPENVINO_FILE,
    OPENVINO_WEIGHTS,
    TFLITE_FILE,
)
from albert_tf.checkpoints.module_list import transformer_folder
from albert_tf.checkpoints.releases import find_model
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.model.tokenization import (
    SENTENCEPIECE_NAME,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    WORDPIECE_NAME,
    checksum_of,
    has_ids_of_lines,
    is_tokenizer_file,
    read_files,
)

SAVED_MODEL = "saved_model.pb"
SPAN_EXPORTS = "saved_model"  # folder with the numbered exports in that of run_squad.py
_VARIABLES = os.path.join("variables", "variables")  # the checkpoint of a SavedModel
# Hugging Face repositories may contain a model in several formats; the first one is used.
SHARDS = "model.safetensors.index.json"  # which file has which weight
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")  # owner/model
_HUGGING_FACE_FILES = ("model.safetensors", SHARDS, "pytorch_model.bin")
_OTHER_FILES = re.compile(r"(?<!-\d{5}-of-\d{5})\.(safetensors|bin|pt|pth)$")
# Beside a model these are not others, but training_args.bin, optimizer.pt and the like.
_PYTORCH = (".bin", ".pt", ".pth")
_ADAPTER = "adapter_model."  # of PEFT
_STEP_FOLDER = re.compile(r"checkpoint-(\d+)")
_OF_KERAS = (".keras", ".h5", ".hdf5")
_KERAS_FILE = (
    "a file of Keras, which has neither a vocabulary nor names of labels. Load it with "
    "tf_keras.models.load_model, and save it with albert_tf.save_pretrained(model, folder, "
    "tokenizer)"
)
ACCEPTED = (
    "a TensorFlow checkpoint prefix (<prefix>.index), a SavedModel, model.safetensors (or "
    f"{SHARDS} of its shards), pytorch_model.bin, a folder with one of them, an --export_dir, or "
    "the name of a downloaded model (`albert download` lists them)"
)

CONFIG_PATTERNS = ("albert_config*.json", "bert_config*.json", "config.json", "config_*.json")
_CONFIG_NAMES = CONFIG_PATTERNS[:-1]  # those whose name alone says that it is the model's
_HUGGING_FACE_CONFIG, _HUGGING_FACE_KEY = "config.json", "model_type"
_CONFIG_KEY = "hidden_size"  # by which a file with another name is known
MODEL_PATTERNS = ("*.model",)  # SentencePiece
VOCABULARY_PATTERNS = ("vocab*.txt", "*_vocab.txt")  # WordPiece
ASSETS = "assets"  # folder with such files in a SavedModel, such as a TF-Hub module
EXTRA_ASSETS = "assets.extra"  # the same in models exported by the fine-tuning programs
LABELS_FILE = "labels.txt"  # in exported models: label names, one per line


def find_checkpoint(path: str) -> str:
    """Returns the checkpoint at `path`.

    Args:
        path: the prefix of a TensorFlow checkpoint, one of its files, a file of another format, a
            folder with one checkpoint, or the name of a downloaded release. Of a run's checkpoints
            `model.ckpt-best` is used, or else the newest one; of an `--export_dir` the newest
            export. The text file `checkpoint` is ignored because in released archives it contains a
            path on another machine.

    Returns:
        The prefix of a TensorFlow checkpoint whose index exists, or a file.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: the folder contains several checkpoints, and the message lists them; or it is a
            file of Keras.
    """
    path = find_model(path)
    if files.is_directory(path):
        path = transformer_folder(newest_export(path))
        of_run = RunFolder(path).checkpoint
        names = [os.path.basename(of_run)] if of_run else _candidates(path)
        if not names:
            hint = _of_tflite(path) or _of_steps(path) or _of_keras(path)
            raise FileNotFoundError(
                f"{path}: this folder contains no checkpoint{hint}. Expected: {ACCEPTED}"
            )
        if len(names) > 1:
            raise ValueError(f"{path} {_several(sorted(names))}")
        path = os.path.join(path, names[0])
    prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    if files.exists(prefix + ".index"):
        return prefix
    if prefix == path and files.exists(path):
        if path.endswith(_OF_KERAS):
            raise ValueError(f"{path} is {_KERAS_FILE}")
        return path
    files.check_path(path)
    raise FileNotFoundError(f"{path}: no such checkpoint. {_what_is_there(path)}")


def _of_keras(folder: str) -> str:
    """Returns what to do with a folder that has a file of Keras only; "" for any other."""
    names = [name for name in files.list_directory(folder) if name.endswith(_OF_KERAS)]
    return f", but {names[0]}, {_KERAS_FILE}" if names else ""


def _of_tflite(folder: str) -> str:
    """Returns what to do with a folder that has a TFLite model only; "" for any other."""
    if not files.exists(os.path.join(folder, TFLITE_FILE)):
        return ""
    return (
        f", but {TFLITE_FILE}, which takes ids and is for apps (tf.lite.Interpreter). Predict from "
        "the folder that it was converted from, or convert that to onnx or openvino"
    )


def _of_steps(folder: str) -> str:
    """Returns which folders of checkpoints, as transformers' Trainer writes them, a folder has."""
    steps = [match for match in map(_STEP_FOLDER.fullmatch, files.list_directory(folder)) if match]
    if not steps:
        return ""
    names = [match[0] for match in sorted(steps, key=lambda match: int(match[1]))]
    listed = f"{len(names)} folders, {names[0]} to {names[-1]}" if names[1:] else names[0]
    return f" itself, but in {listed}: pass one of them, such as {os.path.join(folder, names[-1])}"


def _several(names: list[str]) -> str:
    """Returns what a folder has instead of one checkpoint, and what to do."""
    adapters = [name for name in names if name.startswith(_ADAPTER)]
    others = [name for name in names if name not in adapters]
    if adapters and len(others) == 1:
        return (
            f"has an adapter, {adapters[0]}, next to {others[0]}. Merge it into the weights "
            f"(model.merge_and_unload() of PEFT), or choose {others[0]} to do without it"
        )
    return f"contains several checkpoints, choose one: {', '.join(names)}"


def _what_is_there(path: str) -> str:
    """Returns the checkpoints beside one that does not exist, and what may have been meant."""
    folder = os.path.dirname(path)
    if files.is_directory(folder or "."):
        if names := _candidates(folder or "."):
            return f"{folder or 'The current folder'} has {files.quote_all(names)}"
        unset = files.unset_variable(path)
        return f"{folder or 'The current folder'} has none{unset}. Expected: {ACCEPTED}"
    if _HUB_NAME.fullmatch(path):
        return (
            f"There is no folder {folder} either. If it is a model of the Hugging Face Hub, "
            f"download it: albert download {path} --hub"
        )
    return f"There is no folder {folder} either. Expected: {ACCEPTED}"


def _candidates(folder: str) -> list[str]:
    """Returns the names of the checkpoints in a folder, of each model in one format only."""
    names = [name for name in files.list_directory(folder) if not name.startswith(".")]
    prefixes = [name[: -len(".index")] for name in names if name.endswith(".index")]
    if SAVED_MODEL in names:
        prefixes.append(_VARIABLES)
    same_model = [name for name in _HUGGING_FACE_FILES if name in names]
    others = [name for name in names if _OTHER_FILES.search(name) and name not in same_model]
    if same_model:
        others = [name for name in others if not name.endswith(_PYTORCH)]
    if OPENVINO_FILE in names:
        others = [name for name in others if name != OPENVINO_WEIGHTS]
    found = prefixes + same_model[:1] + others
    return found or [name for name in ANSWERING if name in names]


def newest_export(folder: str) -> str:
    """Returns the newest export in an `--export_dir`, and any other folder unchanged.

    As in a model server, that is the subfolder with the largest number.
    """
    if _candidates(folder):
        return folder
    for parent in filter(files.is_directory, (folder, os.path.join(folder, SPAN_EXPORTS))):
        numbers = (name for name in files.list_directory(parent) if name.isdecimal())
        for name in sorted(numbers, key=int, reverse=True):
            if files.exists(os.path.join(parent, name, SAVED_MODEL)):
                return os.path.join(parent, name)
    return folder


def folder_of(checkpoint: str) -> str:
    """Returns the folder of a checkpoint; of a SavedModel's variables, that of the SavedModel.

    Args:
        checkpoint: a folder itself, or a checkpoint inside of it, as `find_checkpoint` returns it;
            or an `--export_dir`; or the name of a downloaded release.
    """
    checkpoint = find_model(checkpoint)
    files.check_path(checkpoint)
    if files.is_directory(checkpoint):
        return transformer_folder(newest_export(checkpoint))
    folder = files.current(os.path.dirname(checkpoint) or ".")
    parent = os.path.dirname(folder)
    if checkpoint.endswith(_VARIABLES) and files.exists(os.path.join(parent, SAVED_MODEL)):
        folder = parent
    return folder


def records_of(folder: str) -> RunFolder:
    """Returns where a run's records are: its folder, or the extra files of its export."""
    extra = os.path.join(folder, EXTRA_ASSETS)
    is_export = files.exists(os.path.join(folder, SAVED_MODEL)) and files.is_directory(extra)
    return RunFolder(extra if is_export else folder)


def find_config(folder: str) -> str:
    """Returns the config in a folder or its `assets/`; several are fine if they are equal.

    Raises:
        FileNotFoundError: there is no config. The message lists the files of the folder.
        ValueError: there are several different configs. The message lists them.
    """
    config_files = _find(folder, _CONFIG_NAMES)
    if not config_files:
        others = _find(folder, CONFIG_PATTERNS)
        config_files = [path for path in others if _CONFIG_KEY in files.read_json(path)]
    if not config_files:
        raise _missing(
            folder, "config", CONFIG_PATTERNS, "config_file=…, a program's --albert_config_file"
        )
    if len({json.dumps(files.read_json(path), sort_keys=True) for path in config_files}) > 1:
        raise ValueError(
            f"{folder} contains several configs; choose one (config_file=…, --albert_config_file): "
            f"{', '.join(config_files)}"
        )
    return config_files[0]


def find_vocabulary(
    folder: str, vocab_file: str | None = None, spm_model_file: str | None = None
) -> tuple[str | None, str | None]:
    """Returns the given vocabulary, or if none is given, that in a folder or its `assets/`.

    In a Hugging Face folder, this is the tokenizer (see `HuggingFaceTokenizer`), unless the record
    of the training says that the model was trained with the vocabulary.

    Returns:
        The paths of the WordPiece vocabulary, or of the Hugging Face tokenizer, and of the
        SentencePiece model; one of them is None.

    Raises:
        FileNotFoundError: there is no vocabulary. The message lists the files of the folder.
        ValueError: there are several vocabularies. The message lists them.
    """
    if vocab_file or spm_model_file:
        return vocab_file, spm_model_file
    found, vocabularies = list_tokenizers(folder), list_vocabularies(folder)
    if not found:
        patterns = (TOKENIZER_FILE, *MODEL_PATTERNS, *VOCABULARY_PATTERNS)
        raise _missing(folder, "vocabulary", patterns, "vocab_file=… or spm_model_file=…")
    trained_with = records_of(folder).record.files.get(run_record.VOCABULARY)
    checksums = map(checksum_of, vocabularies)
    is_of_vocabulary = trained_with is not None and any(map(trained_with.has, checksums))
    if found[0] not in vocabularies and not is_of_vocabulary:
        return found[0], None
    if len(vocabularies) > 1:
        raise ValueError(
            f"{folder} contains several vocabularies; choose one (spm_model_file=…, vocab_file=…): "
            f"{', '.join(vocabularies)}"
        )
    is_sentencepiece = vocabularies[0].endswith(".model")
    return (None, vocabularies[0]) if is_sentencepiece else (vocabularies[0], None)


def list_tokenizers(folder: str) -> list[str]:
    """Returns the vocabularies in a folder and its `assets/`, after Hugging Face's tokenizers."""
    vocabularies = list_vocabularies(folder)
    tokenizers = _find(folder, (TOKENIZER_FILE,))
    if {SENTENCEPIECE_NAME, WORDPIECE_NAME}.intersection(map(os.path.basename, vocabularies)):
        tokenizers += _find(folder, (TOKENIZER_CONFIG_FILE,))
    if not tokenizers and _has_lines_of_transformers(folder):
        tokenizers.append(os.path.join(folder, TOKENIZER_CONFIG_FILE))  # as if it were empty
    return tokenizers + vocabularies


@functools.cache
def _warn_of_lines(path: str) -> None:
    logging.warning(
        "%s has blank or repeated lines, and no %s says more of it: the ids are the numbers of the "
        "lines, as in transformers, and text is lowercased",
        *(path, TOKENIZER_CONFIG_FILE),
    )


def _has_lines_of_transformers(folder: str) -> bool:
    """Returns whether the ids of a `vocab.txt` are the numbers of its lines, with a warning."""
    path = os.path.join(folder, WORDPIECE_NAME)
    config = os.path.join(folder, _HUGGING_FACE_CONFIG)
    if not (files.is_file(path) and files.is_file(config)):
        return False
    if _HUGGING_FACE_KEY not in files.read_json(config) or not has_ids_of_lines(path):
        return False
    _warn_of_lines(path)
    return True


def list_vocabularies(folder: str) -> list[str]:
    """Returns the vocabularies of both kinds in a folder and its `assets/`."""
    return _find(folder, MODEL_PATTERNS + VOCABULARY_PATTERNS)


def keep_vocabulary(path: str, is_sentencepiece: bool, folder: str) -> None:
    """Copies a vocabulary to the folder of a run, unless it has one.

    The folder then contains everything that is needed to use the model.

    Args:
        path: path of the vocabulary, or of a Hugging Face tokenizer.
        is_sentencepiece: whether it is a SentencePiece model.
        folder: an existing folder.
    """
    if list_tokenizers(folder):
        return
    own_name = SENTENCEPIECE_NAME if is_sentencepiece else WORDPIECE_NAME
    for name, content in read_files(path).items():
        target = name if is_tokenizer_file(path) else own_name
        files.write_file(os.path.join(folder, target), content)


def _find(folder: str, patterns: tuple[str, ...]) -> list[str]:
    """Returns the files of a folder and its `assets/` whose names match a pattern."""
    places = [folder, *(os.path.join(folder, name) for name in (ASSETS, EXTRA_ASSETS))]
    return [
        os.path.join(place, name)
        for place in filter(files.is_directory, places)
        for name in files.list_directory(place)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    ]


def _missing(folder: str, what: str, patterns: tuple[str, ...], way_out: str) -> FileNotFoundError:
    present = files.quote_all(files.list_directory(folder))
    return FileNotFoundError(
        f"{folder}: no {what} found. Looked for {', '.join(patterns)} here and in {ASSETS}/; found "
        f"{present}. Add the file or specify it: {way_out}"
    )


def read_json_if_there(folder: str, name: str) -> files.JsonObject:
    """Reads a JSON object from a file in a folder; {} if the file does not exist."""
    path = os.path.join(folder, name)
    return files.read_json(path) if files.exists(path) else {}
