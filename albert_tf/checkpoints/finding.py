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
from typing import Any

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import releases, run_record
from albert_tf.checkpoints.run_folder import BEST, NUMBERED, RunFolder
from albert_tf.model import huggingface_tokenizer
from albert_tf.model.huggingface_tokenizer import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE
from albert_tf.model.tokenization import SENTENCEPIECE_NAME, WORDPIECE_NAME

SAVED_MODEL = "saved_model.pb"
SPAN_EXPORTS = "saved_model"  # folder with the numbered exports in that of run_squad.py
_VARIABLES = os.path.join("variables", "variables")  # the checkpoint of a SavedModel
# Hugging Face repositories may contain a model in several formats; the first one is used.
SHARDS = "model.safetensors.index.json"  # which file has which weight
_HUGGING_FACE_FILES = ("model.safetensors", SHARDS, "pytorch_model.bin")
_OTHER_FILES = re.compile(r"(?<!-\d{5}-of-\d{5})\.(safetensors|bin|pt|pth)$")
# Beside a model these are not others, but training_args.bin, optimizer.pt and the like.
_PYTORCH = (".bin", ".pt", ".pth")
_SHARD = re.compile(r"\.data-\d+-of-(\d+)$")
ACCEPTED = (
    "a TensorFlow checkpoint prefix (<prefix>.index), a SavedModel, model.safetensors (or "
    f"{SHARDS} of its shards), pytorch_model.bin, a folder with one of them, or an --export_dir"
)

CONFIG_PATTERNS = ("albert_config*.json", "bert_config*.json", "config.json", "config_*.json")
MODEL_PATTERNS = ("*.model",)  # SentencePiece
VOCABULARY_PATTERNS = ("vocab*.txt", "*_vocab.txt")  # WordPiece
ASSETS = "assets"  # folder with such files in a SavedModel, such as a TF-Hub module
EXTRA_ASSETS = "assets.extra"  # the same in models exported by the fine-tuning programs
LABELS_FILE = "labels.txt"  # in exported models: label names, one per line
CACHE = "ALBERT_CACHE"  # environment variable: the folder with the downloaded models


def cache_directory() -> str:
    """Returns the folder with the downloaded models."""
    return os.environ.get(CACHE) or os.path.join(os.path.expanduser("~"), ".cache", "albert_tf")


def find_model(path: str) -> str:
    """Returns the folder of a downloaded model, given its name, and any other path unchanged.

    In the folder of a model, saving it is finished if a kill interrupted that; see `replacing`.

    Args:
        path: a path, or a name as in `releases.named`. A file or folder of that name takes
            precedence.

    Raises:
        FileNotFoundError: the model is not in the cache, or the name is almost that of one. The
            message has the command to download it.
    """
    release = releases.named(path)
    is_remote = files.is_remote(path)
    if release is None or not is_remote:  # and not the address of a release
        files.finish_replacing(path if files.is_directory(path) else os.path.dirname(path) or ".")
    if not is_remote and any(map(files.exists, (path, path + ".index"))):
        return path
    if release is None:
        similar = None if is_remote else releases.similar(path)
        if similar is not None:
            raise FileNotFoundError(
                f"{path}: no such file or folder. Did you mean the released model "
                f"{similar.name!r}? Download it: albert download {similar.name}"
            )
        return path
    folder = os.path.join(cache_directory(), release.name)
    if not files.is_directory(folder):
        raise FileNotFoundError(
            f"{path}: no such file or folder, and the released model of that name is not in "
            f"{cache_directory()}. Download it: albert download {release.name}"
        )
    _announce(path, folder)
    return folder


@functools.cache
def _announce(name: str, folder: str) -> None:
    """Logs, once, which model is used for a name."""
    logging.info("%s: using the downloaded model in %s", name, folder)


def find_checkpoint(path: str) -> str:
    """Returns the checkpoint at `path`.

    Args:
        path: the prefix of a TensorFlow checkpoint, one of its files, a file of another format, a
            folder with one checkpoint, or the name of a downloaded release. Of a run's checkpoints
            `model.ckpt-best` is used, or else the newest one; of an `--export_dir` the newest
            export. The text file `checkpoint` is ignored because in released archives it contains a
            path on another machine.

    Returns:
        The prefix of a TensorFlow checkpoint whose index and shards exist, or a file.

    Raises:
        FileNotFoundError: there is no checkpoint, or shards of its data are missing.
        ValueError: the folder contains several checkpoints. The message lists them.
    """
    path = find_model(path)
    if files.is_directory(path):
        folder = path
        path = newest_export(path)
        if path != folder:
            logging.info("%s contains exported models: using %s", folder, path)
        prefixes = _candidates(path)
        prefixes = _of_run(path, prefixes) or prefixes
        if not prefixes:
            raise FileNotFoundError(
                f"{path}: this folder contains no checkpoint. Expected: {ACCEPTED}"
            )
        if len(prefixes) > 1:
            raise ValueError(
                f"{path} contains several checkpoints, choose one: {', '.join(sorted(prefixes))}"
            )
        path = os.path.join(path, prefixes[0])
    prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    if files.exists(prefix + ".index"):
        _check_shards(prefix)
        return prefix
    if prefix == path and files.exists(path):
        return path
    raise FileNotFoundError(f"{path}: no such checkpoint. Expected: {ACCEPTED}")


def _of_run(folder: str, candidates: list[str]) -> list[str]:
    """Returns the best checkpoint of a run, or else the newest one; [] if there is none."""
    matches = (NUMBERED.fullmatch(name) for name in candidates)
    numbered = sorted((int(match[1]), match[0]) for match in matches if match)
    names = [name for _, name in numbered] + [BEST] * (BEST in candidates)
    if len(names) > 1:
        logging.info("%s contains several checkpoints: using %s", folder, names[-1])
    return names[-1:]


def _candidates(folder: str) -> list[str]:
    names = [name for name in files.list_directory(folder) if not name.startswith(".")]
    prefixes = [name[: -len(".index")] for name in names if name.endswith(".index")]
    if SAVED_MODEL in names:
        prefixes.append(_VARIABLES)
    same_model = [name for name in _HUGGING_FACE_FILES if name in names]
    others = [name for name in names if _OTHER_FILES.search(name) and name not in same_model]
    if same_model:
        others = [name for name in others if not name.endswith(_PYTORCH)]
    return prefixes + same_model[:1] + others


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


def _check_shards(prefix: str) -> None:
    folder, base = os.path.split(prefix)
    present = {name for name in files.list_directory(folder) if name.startswith(base + ".data-")}
    counts = {int(match[1]) for match in map(_SHARD.search, present) if match} or {1}
    for count in sorted(counts):
        wanted = {f"{base}.data-{shard:05d}-of-{count:05d}" for shard in range(count)}
        if wanted <= present:
            return
    missing = ", ".join(sorted(wanted - present))
    raise FileNotFoundError(f"{prefix}.index lacks its data: {missing} in {folder or '.'}")


def folder_of(checkpoint: str) -> str:
    """Returns the folder of a checkpoint; of a SavedModel's variables, that of the SavedModel.

    Args:
        checkpoint: a folder itself, or a checkpoint inside of it, as `find_checkpoint` returns it;
            or an `--export_dir`; or the name of a downloaded release.
    """
    checkpoint = find_model(checkpoint)
    if files.is_directory(checkpoint):
        return newest_export(checkpoint)
    folder = os.path.dirname(checkpoint)
    parent = os.path.dirname(folder)
    if checkpoint.endswith(_VARIABLES) and files.exists(os.path.join(parent, SAVED_MODEL)):
        folder = parent
    return folder or "."


def records_of(folder: str) -> RunFolder:
    """Returns where a run's records are: its folder, or the extra files of its export."""
    extra = os.path.join(folder, EXTRA_ASSETS)
    is_export = files.exists(os.path.join(folder, SAVED_MODEL)) and files.is_directory(extra)
    return RunFolder(extra if is_export else folder)


def choose_lower_case(folder: str, given: bool | None, of_weights: bool | None = None) -> bool:
    """Returns whether to lowercase text; True if this is neither given nor known.

    Logs a warning if it is given and the model is known to be for other text.

    Args:
        folder: folder of a model, whose record or tokenizer may say it.
        given: what is asked for, if anything.
        of_weights: what a variable of the model says, if there is one.
    """
    known = records_of(folder).record.settings.get(run_record.LOWER_CASE)
    if known is None:
        flags = read_json_if_there(folder, TOKENIZER_CONFIG_FILE)
        known = flags.get("do_lower_case", of_weights)
    if given is None:
        return known is None or bool(known)
    if known is not None and bool(known) != given:
        logging.warning("do_lower_case=%s, but %s says %s", given, folder, bool(known))
    return given


def find_config(folder: str) -> str:
    """Returns the config in a folder or its `assets/`; several are fine if they are equal.

    Raises:
        FileNotFoundError: there is no config. The message lists the files of the folder.
        ValueError: there are several different configs. The message lists them.
    """
    config_files = _find(folder, CONFIG_PATTERNS)
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


def find_vocabulary(folder: str) -> tuple[str | None, str | None]:
    """Returns the vocabulary in a folder or its `assets/`, or else that of the run in the folder.

    In a Hugging Face folder, this is the tokenizer (see `huggingface_tokenizer`), unless the record
    of the training says that the model was trained with the vocabulary.

    Returns:
        The paths of the WordPiece vocabulary, or of the Hugging Face tokenizer, and of the
        SentencePiece model; one of them is None.

    Raises:
        FileNotFoundError: there is no vocabulary. The message lists the files of the folder.
        ValueError: there are several vocabularies. The message lists them.
    """
    vocabularies = list_vocabularies(folder)
    if tokenizer := _find_tokenizer(folder, vocabularies):
        return tokenizer, None
    if len(vocabularies) > 1:
        raise ValueError(
            f"{folder} contains several vocabularies; choose one (spm_model_file=…, vocab_file=…): "
            f"{', '.join(vocabularies)}"
        )
    if vocabularies:
        is_sentencepiece = vocabularies[0].endswith(".model")
        return (None, vocabularies[0]) if is_sentencepiece else (vocabularies[0], None)
    named = _vocabulary_of_run(folder)
    if not named or not all(map(files.exists, named.values())):
        gone = f" ({run_record.FILE} names {', '.join(named.values())}: missing)" if named else ""
        way_out = f"vocab_file=… or spm_model_file=…{gone}. load_checkpoint only loads weights"
        patterns = (TOKENIZER_FILE, *MODEL_PATTERNS, *VOCABULARY_PATTERNS)
        raise _missing(folder, "vocabulary", patterns, way_out)
    return named.get("vocab_file"), named.get("spm_model_file")


def _find_tokenizer(folder: str, vocabularies: list[str]) -> str | None:
    """Returns the Hugging Face tokenizer in a folder or its `assets/`; None if there is none.

    Args:
        folder: the folder.
        vocabularies: the vocabularies in it.
    """
    found = [path for path in list_tokenizers(folder) if path not in vocabularies]
    if not found:
        return None
    trained_with = records_of(folder).record.files.get(run_record.VOCABULARY)
    checksums = map(huggingface_tokenizer.checksum_of, vocabularies)
    is_of_vocabulary = trained_with is not None and any(map(trained_with.has, checksums))
    return None if is_of_vocabulary else found[0]


def choose_vocabulary(
    folder: str, vocab_file: str | None, spm_model_file: str | None
) -> tuple[str | None, str | None]:
    """Returns the given vocabulary, or if none is given, that of a folder.

    Logs a warning if one is given and the folder has a Hugging Face tokenizer.

    Raises:
        FileNotFoundError, ValueError: as in `find_vocabulary`.
    """
    given = spm_model_file or vocab_file
    if not given:
        return find_vocabulary(folder)
    own = _find_tokenizer(folder, list_vocabularies(folder)) if files.is_directory(folder) else None
    if own and os.path.abspath(given) != os.path.abspath(own):
        logging.warning("%s is used instead of %s, the tokenizer of the model", given, own)
    return vocab_file, spm_model_file


def list_tokenizers(folder: str) -> list[str]:
    """Returns the vocabularies in a folder and its `assets/`, after Hugging Face's tokenizers."""
    vocabularies = list_vocabularies(folder)
    tokenizers = _find(folder, (TOKENIZER_FILE,))
    if {SENTENCEPIECE_NAME, WORDPIECE_NAME}.intersection(map(os.path.basename, vocabularies)):
        tokenizers += _find(folder, (TOKENIZER_CONFIG_FILE,))
    return tokenizers + vocabularies


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
    is_tokenizer = huggingface_tokenizer.is_tokenizer_file(path)
    for source in huggingface_tokenizer.list_files(path):
        name = os.path.basename(source) if is_tokenizer else own_name
        files.copy(source, os.path.join(folder, name))


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
    if not files.is_directory(folder):
        return FileNotFoundError(f"{folder}: cannot look for a {what}: no such directory")
    present = ", ".join(files.list_directory(folder)) or "nothing"
    return FileNotFoundError(
        f"{folder}: no {what} found. Looked for {', '.join(patterns)} here and in {ASSETS}/; found "
        f"{present}. Add the file or specify it: {way_out}"
    )


def _vocabulary_of_run(folder: str) -> dict[str, str]:
    """Returns the vocabulary flags of the run in a folder, as absolute or remote paths."""
    record = RunFolder(folder).record
    named = {name: record.settings.get(name) for name in ("vocab_file", "spm_model_file")}
    start = record.start.get("directory", "")
    return {name: files.join(start, str(path)) for name, path in named.items() if path}


def read_json_if_there(folder: str, name: str) -> dict[str, Any]:
    """Reads a JSON object from a file in a folder; {} if the file does not exist."""
    path = os.path.join(folder, name)
    return files.read_json(path) if files.exists(path) else {}
