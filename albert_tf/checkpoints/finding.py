"""Finds checkpoints, configs and vocabularies in folders. TensorFlow is not imported here.

Released archives, folders of Hugging Face, TF-Hub modules and the output directories of this
repository's programs hold them under different names.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from typing import Any

from absl import logging

from albert_tf import files
from albert_tf.checkpoints.names import BEST, DATA_SUFFIX, NUMBERED
from albert_tf.settings import with_current_names

SAVED_MODEL = "saved_model.pb"
_VARIABLES = os.path.join("variables", "variables")  # the checkpoint of a SavedModel
# Hugging Face's repositories hold one model in several formats: the first of these is opened.
_HUGGING_FACE_FILES = ("model.safetensors", "pytorch_model.bin", "tf_model.h5")
_OTHER_FILES = re.compile(r"\.(safetensors|bin|pt|pth|h5|hdf5)$")
_SHARD = re.compile(r"\.data-(\d+)-of-(\d+)$")
ACCEPTED = (
    "a TensorFlow checkpoint prefix (<prefix>.index), a SavedModel, model.safetensors, "
    "pytorch_model.bin, a Keras .h5 file, or a folder with one of them"
)

CONFIG_PATTERNS = ("albert_config*.json", "bert_config*.json", "config.json", "config_*.json")
MODEL_PATTERNS = ("*.model",)  # SentencePiece
VOCABULARY_PATTERNS = ("vocab*.txt", "*_vocab.txt")  # WordPiece
SENTENCEPIECE_NAME, WORDPIECE_NAME = "spiece.model", "vocab.txt"  # of runs, as of Hugging Face
ASSETS = "assets"  # the folder of a SavedModel, as TF-Hub's modules are, for such files
EXTRA_ASSETS = "assets.extra"  # the same in models that the fine-tuning programs export
LABELS_FILE = "labels.txt"  # in these: the names of labels, one a line
RUN_FILE = "run.json"  # in the output directories of this repository's programs
TASK_FILE = "task.json"  # there, too: what the checkpoints were fine-tuned for


def find_checkpoint(path: str) -> str:
    """Returns the checkpoint that `path` names.

    Args:
        path: the prefix of a TensorFlow checkpoint, one of its files, a file of another format, or
            a folder with one checkpoint. Of the checkpoints of a run, `model.ckpt-best` is taken,
            or else the newest. The text file `checkpoint` of a folder is ignored: in released
            archives it names a path on another machine.

    Returns:
        the prefix of a TensorFlow checkpoint (`<prefix>.index` and all shards exist), or a file.

    Raises:
        FileNotFoundError: there is none, or shards of its data are missing.
        ValueError: the folder holds several; the message lists them.
    """
    if files.is_directory(path):
        found = _candidates(path)
        found = _of_run(path, found) or found
        if not found:
            raise FileNotFoundError(
                f"{path}: this folder holds no checkpoint. Expected: {ACCEPTED}"
            )
        if len(found) > 1:
            raise ValueError(
                f"{path} holds several checkpoints, name one: {', '.join(sorted(found))}"
            )
        path = os.path.join(path, found[0])
    prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    if files.exists(prefix + ".index"):
        _check_shards(prefix)
        return prefix
    if prefix == path and files.exists(path):
        return path
    raise FileNotFoundError(f"{path}: no such checkpoint. Expected: {ACCEPTED}")


def _of_run(folder: str, candidates: list[str]) -> list[str]:
    """Returns the best of the checkpoints of a run, or else the newest; [] where there is none."""
    found = (NUMBERED.fullmatch(name) for name in candidates)
    numbered = sorted((int(match[1]), match[0]) for match in found if match)
    names = [name for _, name in numbered] + [BEST] * (BEST in candidates)
    if len(names) > 1:
        logging.info("%s holds several checkpoints: taking %s", folder, names[-1])
    return names[-1:]


def _candidates(folder: str) -> list[str]:
    names = [name for name in files.list_directory(folder) if not name.startswith(".")]
    found = [name[: -len(".index")] for name in names if name.endswith(".index")]
    if SAVED_MODEL in names:
        found.append(_VARIABLES)
    same_model = [name for name in _HUGGING_FACE_FILES if name in names]
    others = [name for name in names if _OTHER_FILES.search(name) and name not in same_model]
    return found + same_model[:1] + others


def _check_shards(prefix: str) -> None:
    folder, base = os.path.split(prefix)
    names = files.list_directory(folder)
    shards = [_SHARD.search(name) for name in names if name.startswith(base + ".data-")]
    present = {(int(match[1]), int(match[2])) for match in shards if match}
    counts = {count for _, count in present}
    if not counts:
        raise FileNotFoundError(f"{prefix}.index has no data: {prefix}{DATA_SUFFIX} is missing")
    missing = [
        [f"{prefix}.data-{i:05d}-of-{n:05d}" for i in range(n) if (i, n) not in present]
        for n in sorted(counts)
    ]
    if all(missing):
        raise FileNotFoundError(f"the checkpoint {prefix} lacks data: {', '.join(missing[0])}")


def folder_of(checkpoint: str) -> str:
    """Returns the folder of a checkpoint; of a SavedModel's variables, that of the SavedModel.

    Args:
        checkpoint: a folder itself, or a checkpoint inside of it, as `find_checkpoint` returns it.
    """
    if files.is_directory(checkpoint):
        return checkpoint
    folder = os.path.dirname(checkpoint)
    parent = os.path.dirname(folder)
    if checkpoint.endswith(_VARIABLES) and files.exists(os.path.join(parent, SAVED_MODEL)):
        folder = parent
    return folder or "."


def records_of(folder: str) -> str:
    """Returns where a run's records are: in its folder, or among the extra files of its export."""
    extra = os.path.join(folder, EXTRA_ASSETS)
    is_export = files.exists(os.path.join(folder, SAVED_MODEL)) and files.is_directory(extra)
    return extra if is_export else folder


def list_checkpoints(directory: str) -> dict[int, str]:
    """Returns the numbered checkpoints of a directory, step → prefix, in ascending order.

    They are found by their `.index` files. The text file `checkpoint` is ignored: in released
    archives it names a path on another machine.
    """
    if not files.is_directory(directory):
        return {}
    names = (
        name.removesuffix(".index")
        for name in files.list_directory(directory)
        if name.endswith(".index")
    )
    found = map(NUMBERED.fullmatch, names)
    steps = {int(match[1]): os.path.join(directory, match[0]) for match in found if match}
    return dict(sorted(steps.items()))


def find_config(folder: str) -> str:
    """The config in a folder or in its `assets/`; several are fine if their content is the same.

    Raises:
        FileNotFoundError: there is none; the text lists what is there.
        ValueError: there are several different ones; lists them.
    """
    found = _find(folder, CONFIG_PATTERNS)
    if not found:
        raise _missing(
            folder, "config", CONFIG_PATTERNS, "config_file=…, a program's --albert_config_file"
        )
    if len({json.dumps(files.read_json(path), sort_keys=True) for path in found}) > 1:
        raise ValueError(
            f"{folder} holds several configs; name one (config_file=…, --albert_config_file): "
            f"{', '.join(found)}"
        )
    return found[0]


def find_vocabulary(folder: str) -> tuple[str | None, str | None]:
    """The vocabulary in a folder or in its `assets/`, or else of the run that wrote the folder.

    Returns:
        paths of the WordPiece vocabulary and of the SentencePiece model; one of them is None.

    Raises:
        FileNotFoundError: there is none; the text lists what is there.
        ValueError: there are several; lists them.
    """
    found = list_vocabularies(folder)
    if len(found) > 1:
        raise ValueError(
            f"{folder} holds several vocabularies; name one (spm_model_file=… or vocab_file=…): "
            f"{', '.join(found)}"
        )
    if found:
        is_sentencepiece = found[0].endswith(".model")
        return (None, found[0]) if is_sentencepiece else (found[0], None)
    named = _vocabulary_of_run(folder)
    if not named or not all(map(files.exists, named.values())):
        gone = f" ({RUN_FILE} names {', '.join(named.values())}: gone)" if named else ""
        way_out = f"vocab_file=… or spm_model_file=…{gone}. load_checkpoint loads weights alone"
        raise _missing(folder, "vocabulary", MODEL_PATTERNS + VOCABULARY_PATTERNS, way_out)
    return named.get("vocab_file"), named.get("spm_model_file")


def list_vocabularies(folder: str) -> list[str]:
    """The vocabularies in a folder and in its `assets/`, of both kinds."""
    return _find(folder, MODEL_PATTERNS + VOCABULARY_PATTERNS)


def keep_vocabulary(path: str, is_sentencepiece: bool, folder: str) -> None:
    """Copies a vocabulary into the folder of a run, unless one is there.

    So whoever uses the model needs that folder alone.

    Args:
        path: of the vocabulary.
        is_sentencepiece: its kind.
        folder: an existing one.
    """
    if list_vocabularies(folder):
        return
    name = SENTENCEPIECE_NAME if is_sentencepiece else WORDPIECE_NAME
    with (
        files.open_binary(path) as stream,
        files.write_atomically(os.path.join(folder, name), "wb") as copy,
    ):
        copy.write(stream.read())


def has_trained(output_dir: str) -> bool:
    """Whether a folder holds checkpoints of a run of this repository's programs."""
    return bool(list_checkpoints(output_dir)) or files.exists(
        os.path.join(output_dir, BEST + ".index")
    )


def read_labels(folder: str) -> list[str]:
    """Returns the names of labels that are in an exported model; [] where there are none."""
    found = _find(folder, (LABELS_FILE,))
    return files.read_text(found[0]).splitlines() if found else []


def _find(folder: str, patterns: tuple[str, ...]) -> list[str]:
    """Files of a folder and of its `assets/` whose names match one of the patterns."""
    places = [folder, *(os.path.join(folder, name) for name in (ASSETS, EXTRA_ASSETS))]
    return [
        os.path.join(place, name)
        for place in filter(files.is_directory, places)
        for name in files.list_directory(place)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    ]


def _missing(folder: str, what: str, patterns: tuple[str, ...], way_out: str) -> FileNotFoundError:
    if not files.is_directory(folder):
        return FileNotFoundError(f"{folder}: no such directory, to look for a {what} in")
    present = ", ".join(files.list_directory(folder)) or "nothing"
    return FileNotFoundError(
        f"{folder}: no {what} there. Looked for {', '.join(patterns)}, in {ASSETS}/ too; found "
        f"{present}. Put it there or name it: {way_out}"
    )


def _vocabulary_of_run(folder: str) -> dict[str, str]:
    """The vocabulary flags of the run that wrote this folder, as paths from here."""
    flags, start = flags_of_run(folder)
    named = {name: flags.get(name) for name in ("vocab_file", "spm_model_file")}
    return {name: files.join(start, str(path)) for name, path in named.items() if path}


def flags_of_run(folder: str) -> tuple[dict[str, Any], str]:
    """The flags of the run that wrote this folder, and its working directory; {} and "" without.

    Flags that have been renamed since are under today's names.
    """
    run = read_json_if_there(folder, RUN_FILE)
    flags, directory = run.get("flags", {}), run.get("directory", "")
    if not (isinstance(flags, dict) and isinstance(directory, str)):
        raise ValueError(
            f"{os.path.join(folder, RUN_FILE)}: not written by this program; remove it"
        )
    return with_current_names(flags), directory


def read_json_if_there(folder: str, name: str) -> dict[str, Any]:
    """Reads a JSON object from a file of a folder; {} where there is none."""
    path = os.path.join(folder, name)
    return files.read_json(path) if files.exists(path) else {}
