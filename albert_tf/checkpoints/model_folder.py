"""Finds the parts of a model in its folder, which is listed once, without importing TensorFlow.

Checkpoint, config and vocabulary have different names in released archives, Hugging Face
repositories, TF-Hub modules and the output directories of this package's programs.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import os
import re
from pathlib import PureWindowsPath

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import releases, run_folder, run_record
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

# Models that were exported for runtimes other than TensorFlow. They answer without it, but are no
# checkpoints: nothing can be trained or converted.
OPENVINO_FILE = "model.xml"
OPENVINO_WEIGHTS = "model.bin"
ONNX_FILE = "model.onnx"
TFLITE_FILE = "albert_model.tflite"  # official; for an app that tokenizes texts itself
# Those that a predictor opens → all files of the model.
_PARTS = {OPENVINO_FILE: (OPENVINO_FILE, OPENVINO_WEIGHTS), ONNX_FILE: (ONNX_FILE,)}
ANSWERING = _PARTS.keys()

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
_PICKLES = (b"\x80", b"PK\x03\x04")  # first bytes, also of PyTorch's archives of them
# Formats of files of weights.
SAFETENSORS, PYTORCH, PICKLE = "safetensors", "PyTorch", "pickle"
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
MODULES_FILE = "modules.json"  # of sentence-transformers: the model and what follows it


class ModelFolder:
    """A folder and what it holds, as it was when the first name was asked for.

    The folder and each of its subfolders are listed once. Make another one after writing files.

    Args:
        path: the folder; one that does not exist holds nothing.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._folders: dict[str, ModelFolder] = {}

    @functools.cached_property
    def exists(self) -> bool:
        """Whether the folder exists."""
        return files.is_directory(self.path)

    @functools.cached_property
    def _types(self) -> dict[str, str]:
        """Name → type, as `files.list_types` returns it."""
        return files.list_types(self.path) if self.exists else {}

    @property
    def names(self) -> list[str]:
        """The sorted names of the files and subfolders."""
        return list(self._types)

    def has(self, name: str) -> bool:
        """Returns whether the folder has a file or a subfolder of a name."""
        return bool(self._types.get(name))

    def has_file(self, name: str) -> bool:
        """Returns whether the folder has a file of a name."""
        return self._types.get(name) == "file"

    def file(self, name: str) -> str:
        """Returns the path of a file of the folder."""
        return os.path.join(self.path, name)

    def folder(self, name: str) -> ModelFolder:
        """Returns a subfolder, which may not exist."""
        if name not in self._folders:
            self._folders[name] = ModelFolder(self.file(name))
            self._folders[name].exists = self._types.get(name) == "directory"
        return self._folders[name]

    # Which folder has the model.

    @functools.cached_property
    def current(self) -> ModelFolder:
        """The folder with the files that count: this one, or the one of `files.current`.

        Raises:
            ValueError: what a kill has left of saving a model is damaged.
        """
        path = files.current(self.path, self.names)
        return self if path == self.path else ModelFolder(path)

    @functools.cached_property
    def best_run(self) -> ModelFolder:
        """The folder of the best run if this is that of a sweep, and otherwise the folder itself.

        The folder of the sweep may have been moved with those of its runs.

        Raises:
            ValueError: no run has a best checkpoint, or the table names a folder elsewhere.
        """
        if self.candidates or not self.has_file(run_folder.SWEEP_SUMMARY):
            return self
        summary = self.file(run_folder.SWEEP_SUMMARY)
        *_, last = files.read_text(summary).splitlines() or [""]
        if not last.startswith(run_folder.BEST_OF_SWEEP):
            raise ValueError(
                f"{summary} names no best run: pass the folder of a run, such as one of "
                f"{files.quote_all([name for name in self.names if self.folder(name).exists])}"
            )
        named = PureWindowsPath(last.removeprefix(run_folder.BEST_OF_SWEEP)).name  # of any system
        path = files.inside(self.path, named, summary, is_name=True)
        logging.log_first_n(logging.INFO, "%s: using the best run, %s", 1, self.path, named)
        return self.folder(os.path.basename(path))

    @functools.cached_property
    def newest_export(self) -> ModelFolder:
        """The newest export if this is an `--export_dir`, and otherwise the folder itself.

        As in a model server, that is the subfolder with the largest number.
        """
        if self.candidates:
            return self
        for parent in (self, self.folder(SPAN_EXPORTS)):
            for name in sorted(filter(str.isdecimal, parent.names), key=int, reverse=True):
                if parent.folder(name).has(SAVED_MODEL):
                    return parent.folder(name)
        return self

    @functools.cached_property
    def modules(self) -> list[files.JsonObject] | None:
        """The modules of a folder of sentence-transformers, in the order of their application.

        These are the objects in `modules.json`, with the class as `type` and the subfolder as
        `path`; None if the folder has no such file.

        Raises:
            ValueError: the file is damaged.
        """
        if not self.has_file(MODULES_FILE):
            return None
        path = self.file(MODULES_FILE)
        modules = files.load_json(files.read_text(path), path)
        if not isinstance(modules, list) or not all(isinstance(x, dict) for x in modules):
            raise ValueError(f"{path}: expected a list of modules")
        for module in modules:
            files.check_fields(module, path, {"type": str, "path": str})
        return list(modules)

    def folder_of_module(self, number: int) -> ModelFolder:
        """Returns the subfolder with the files of one of the `modules`, or the folder itself.

        Raises:
            ValueError: it is not in the folder.
        """
        name = (self.modules or [])[number]["path"]
        path = files.inside(self.path, name, self.file(MODULES_FILE))
        return self if path == self.path else ModelFolder(path)

    @functools.cached_property
    def transformer(self) -> ModelFolder:
        """The folder of the first module; the folder itself without a list of modules."""
        return self.folder_of_module(0) if self.modules else self

    # What a model consists of.

    @functools.cached_property
    def candidates(self) -> list[str]:
        """The names of the checkpoints, of each model in one format only."""
        names = [name for name in self.names if not name.startswith(".")]
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

    @property
    def checkpoint(self) -> str:
        """Path of the only checkpoint, or of a run's best or newest one.

        Raises:
            FileNotFoundError, ValueError: there is none, or there are several; see
                `find_checkpoint`.
        """
        of_run = run_folder.best_or_newest(filter(self.has, self.names))
        if of_run and (later := run_folder.interrupted_after(self.names, of_run)):
            _warn_of_interruption(self.path, of_run, later)
        names = [of_run] if of_run else self.candidates
        if not names:
            hint = self._of_tflite() or self._of_steps() or self._of_keras()
            raise FileNotFoundError(
                f"{self.path}: this folder contains no checkpoint{hint}. Expected: {ACCEPTED}"
            )
        if len(names) > 1:
            raise ValueError(f"{self.path} {_several(sorted(names))}")
        return self.file(names[0])

    def _of_keras(self) -> str:
        """Returns what to do with a folder that has a file of Keras only; "" for any other."""
        names = [name for name in self.names if name.endswith(_OF_KERAS)]
        return f", but {names[0]}, {_KERAS_FILE}" if names else ""

    def _of_tflite(self) -> str:
        """Returns what to do with a folder that has a TFLite model only; "" for any other."""
        if not self.has(TFLITE_FILE):
            return ""
        return (
            f", but {TFLITE_FILE}, which takes ids and is for apps (tf.lite.Interpreter). Predict "
            "from the folder that it was converted from, or convert that to onnx or openvino"
        )

    def _of_steps(self) -> str:
        """Returns which folders of checkpoints, as transformers' Trainer writes them, it has."""
        steps = [match for match in map(_STEP_FOLDER.fullmatch, self.names) if match]
        if not steps:
            return ""
        names = [match[0] for match in sorted(steps, key=lambda match: int(match[1]))]
        listed = f"{len(names)} folders, {names[0]} to {names[-1]}" if names[1:] else names[0]
        return f" itself, but in {listed}: pass one of them, such as {self.file(names[-1])}"

    @functools.cached_property
    def records(self) -> RunFolder:
        """Where a run's records are: its folder, or the extra files of its export."""
        extra = self.folder(EXTRA_ASSETS)
        return RunFolder(extra.path if self.has(SAVED_MODEL) and extra.exists else self.path)

    @functools.cached_property
    def config_file(self) -> str:
        """Path of the config here or in `assets/`; several are fine if they are equal.

        Raises:
            FileNotFoundError: there is no config. The message lists the files of the folder.
            ValueError: there are several different configs. The message lists them.
        """
        found = self._find(_CONFIG_NAMES)
        if not found:
            others = self._find(CONFIG_PATTERNS)
            found = [path for path in others if _CONFIG_KEY in files.read_json(path)]
        if not found:
            raise self._missing(
                "config", CONFIG_PATTERNS, "config_file=…, a program's --albert_config_file"
            )
        if found[1:] and len({_content(path) for path in found}) > 1:
            raise ValueError(
                f"{self.path} contains several configs; choose one (config_file=…, "
                f"--albert_config_file): {', '.join(found)}"
            )
        return found[0]

    @functools.cached_property
    def vocabulary(self) -> tuple[str | None, str | None]:
        """Paths of the WordPiece vocabulary or tokenizer, and of the SentencePiece model.

        One of them is None. In a Hugging Face folder, this is the tokenizer (see
        `HuggingFaceTokenizer`), unless the record of the training says that the model was trained
        with the vocabulary.

        Raises:
            FileNotFoundError: there is no vocabulary. The message lists the files of the folder.
            ValueError: there are several vocabularies. The message lists them.
        """
        found, vocabularies = self.tokenizers, self._vocabularies
        if not found:
            patterns = (TOKENIZER_FILE, *MODEL_PATTERNS, *VOCABULARY_PATTERNS)
            raise self._missing("vocabulary", patterns, "vocab_file=… or spm_model_file=…")
        if found[0] not in vocabularies and not self._is_trained_with(vocabularies):
            return found[0], None
        if len(vocabularies) > 1:
            raise ValueError(
                f"{self.path} contains several vocabularies; choose one (spm_model_file=…, "
                f"vocab_file=…): {', '.join(vocabularies)}"
            )
        is_sentencepiece = vocabularies[0].endswith(".model")
        return (None, vocabularies[0]) if is_sentencepiece else (vocabularies[0], None)

    def _is_trained_with(self, vocabularies: list[str]) -> bool:
        """Returns whether the record of the training names one of some vocabularies."""
        recorded = self.records.record.files.get(run_record.VOCABULARY)
        return recorded is not None and any(map(recorded.has, map(checksum_of, vocabularies)))

    @functools.cached_property
    def tokenizers(self) -> list[str]:
        """The vocabularies here and in `assets/`, after Hugging Face's tokenizers."""
        vocabularies = self._vocabularies
        tokenizers = self._find((TOKENIZER_FILE,))
        if {SENTENCEPIECE_NAME, WORDPIECE_NAME}.intersection(map(os.path.basename, vocabularies)):
            tokenizers += self._find((TOKENIZER_CONFIG_FILE,))
        if not tokenizers and self._has_lines_of_transformers():
            tokenizers.append(self.file(TOKENIZER_CONFIG_FILE))  # as if it were empty
        return tokenizers + vocabularies

    @functools.cached_property
    def _vocabularies(self) -> list[str]:
        return self._find(MODEL_PATTERNS + VOCABULARY_PATTERNS)

    def _has_lines_of_transformers(self) -> bool:
        """Returns whether the ids of a `vocab.txt` are the numbers of its lines, with a warning."""
        path, config = self.file(WORDPIECE_NAME), self.file(_HUGGING_FACE_CONFIG)
        if not (self.has_file(WORDPIECE_NAME) and self.has_file(_HUGGING_FACE_CONFIG)):
            return False
        if _HUGGING_FACE_KEY not in files.read_json(config) or not has_ids_of_lines(path):
            return False
        _warn_of_lines(path)
        return True

    def _find(self, patterns: tuple[str, ...]) -> list[str]:
        """Returns the files here and in `assets/` whose names match a pattern."""
        wanted = re.compile("|".join(map(fnmatch.translate, patterns)))
        return [
            place.file(name)
            for place in (self, self.folder(ASSETS), self.folder(EXTRA_ASSETS))
            for name in filter(wanted.match, place.names)
        ]

    def _missing(self, what: str, patterns: tuple[str, ...], way_out: str) -> FileNotFoundError:
        present = files.quote_all(self.names if self.exists else files.list_directory(self.path))
        return FileNotFoundError(
            f"{self.path}: no {what} found. Looked for {', '.join(patterns)} here and in "
            f"{ASSETS}/; found {present}. Add the file or specify it: {way_out}"
        )


def _content(path: str) -> str:
    """Returns the content of a JSON file, which does not depend on the order of its keys."""
    return json.dumps(files.read_json(path), sort_keys=True)


@functools.cache
def _warn_of_lines(path: str) -> None:
    logging.warning(
        "%s has blank or repeated lines, and no %s says more of it: the ids are the numbers of the "
        "lines, as in transformers, and text is lowercased",
        *(path, TOKENIZER_CONFIG_FILE),
    )


@functools.cache
def _warn_of_interruption(path: str, used: str, later: str) -> None:
    logging.warning(
        "%s: %s is used, but the run went on to %s, where it was stopped. Run its command again to "
        "finish it, or pass that checkpoint",
        *(path, used, later),
    )


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


class ModelPath:
    """What users give for a model, and where it leads, which is looked for on first use.

    Args:
        given: a folder, a checkpoint in it, an `--export_dir`, the folder of a sweep, or the name
            of a downloaded release; see `find_checkpoint`.
    """

    def __init__(self, given: str) -> None:
        self.given = given

    @classmethod
    def of(cls, path: files.PathLike | ModelPath) -> ModelPath:
        """Returns where a path leads; what was looked for already stays as it is."""
        return path if isinstance(path, ModelPath) else cls(files.path_text(path, "path"))

    @functools.cached_property
    def _found(self) -> tuple[str, ModelFolder]:
        """The path, and the folder that it is or is in."""
        is_remote = files.is_remote(self.given)
        release = releases.named(self.given) if is_remote else None  # the address of one
        if release is None and self.given.startswith(releases.HUGGING_FACE):
            name = self.given.removeprefix(releases.HUGGING_FACE)
            raise FileNotFoundError(
                f"{self.given}: a page of the Hugging Face Hub. Download the model, and pass its "
                f"folder: albert download {name} --hub"
            )
        if release is None:
            path, folder = _current(self.given)
            if is_remote or path == folder.path or _is_there(path):
                return path, folder
            release = releases.named(self.given)
            if release is None:
                if hint := releases.suggestion(path):
                    raise FileNotFoundError(f"{path}: no such file or folder. {hint}")
                return path, folder
        cached = releases.downloaded(release, self.given)
        return cached, ModelFolder(cached)

    @property
    def path(self) -> str:
        """The folder of a downloaded model, given its name, and any other path unchanged.

        If saving the model was interrupted when all of its files were written, the path is that of
        the new files; see `files.replacing`. A file or folder takes precedence over a release of
        its name.

        Raises:
            FileNotFoundError: the model is not in the cache, or the name is almost that of one. The
                message has the command to download it.
        """
        return self._found[0]

    @property
    def _is_folder(self) -> bool:
        path, folder = self._found
        return path == folder.path

    @functools.cached_property
    def outer(self) -> ModelFolder:
        """The folder that contains that of the model, or is it.

        Of the variables of a SavedModel, it is that of the SavedModel.
        """
        path, folder = self._found
        if self._is_folder:
            return folder.best_run.newest_export
        return _saved_model(folder.current, path)

    @functools.cached_property
    def folder(self) -> ModelFolder:
        """The folder with the config and the vocabulary."""
        files.check_path(self.path)
        return self.outer.transformer if self._is_folder else self.outer

    @functools.cached_property
    def checkpoint(self) -> str:
        """Path of the checkpoint, as `find_checkpoint` returns it."""
        path = self.outer.transformer.checkpoint if self._is_folder else self.path
        prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
        if files.exists(prefix + ".index"):
            return prefix
        if prefix == path and files.exists(path):
            if path.endswith(_OF_KERAS):
                raise ValueError(f"{path} is {_KERAS_FILE}")
            if not (files.is_remote(path) or is_exported(path) or path.endswith(SHARDS)):
                weight_format(path)
            return path
        files.check_path(path)
        raise FileNotFoundError(f"{path}: no such checkpoint. {_what_is_there(path)}")

    @property
    def folder_of_checkpoint(self) -> ModelFolder:
        """As `folder`, but the SavedModel's if the folder of its variables is given.

        Raises:
            FileNotFoundError, ValueError: see `find_checkpoint`.
        """
        is_in = os.path.dirname(self.checkpoint) == self.folder.path
        return _saved_model(self.folder, self.checkpoint) if is_in else self.folder


def _saved_model(folder: ModelFolder, checkpoint: str) -> ModelFolder:
    """Returns the folder of a checkpoint; of a SavedModel's variables, that of the SavedModel."""
    parent = ModelFolder(os.path.dirname(folder.path))
    is_module = checkpoint.endswith(_VARIABLES) and files.exists(parent.file(SAVED_MODEL))
    return parent if is_module else folder


def _current(path: str) -> tuple[str, ModelFolder]:
    """Returns a path among the files that count, and the folder that it is or is in.

    See `files.replacing`.
    """
    here = ModelFolder(path or "./")
    if here.exists:
        return here.current.path, here.current
    folder, name = os.path.split(path)
    beside = ModelFolder(folder or ".")
    replaced = beside.current.file(name)
    return (replaced, beside.current) if _is_there(replaced) else (path, beside)


def _is_there(path: str) -> bool:
    """Returns whether there is a file, or a checkpoint with a prefix."""
    return any(map(files.exists, (path, path + ".index")))


def _what_is_there(path: str) -> str:
    """Returns the checkpoints beside one that does not exist, and what may have been meant."""
    folder = os.path.dirname(path)
    beside = ModelFolder(folder or ".")
    if not beside.candidates and (meant := files.similar_path(path, ending=".index")):
        return f"Did you mean {meant!r}?"
    unset = files.unset_variable(path)
    if beside.exists:
        if beside.candidates:
            return f"{folder or 'The current folder'} has {files.quote_all(beside.candidates)}"
        return f"{folder or 'The current folder'} has none{unset}. Expected: {ACCEPTED}"
    if _HUB_NAME.fullmatch(path):
        return (
            f"There is no folder {folder} either. If it is a model of the Hugging Face Hub, "
            f"download it: albert download {path} --hub"
        )
    return f"There is no folder {folder} either{unset}. Expected: {ACCEPTED}"


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
    return ModelPath(path).checkpoint


def is_exported(checkpoint: str) -> bool:
    """Returns whether the path of a checkpoint is that of a file for another runtime."""
    return os.path.basename(checkpoint) in ANSWERING


def weight_format(path: str) -> str:
    """Returns the format of a local file of weights: SAFETENSORS, PYTORCH or PICKLE.

    Raises:
        ValueError: neither its name nor its first bytes are those of such a file; the message names
            the folder that may be meant.
    """
    start = files.read_start(path, 9)
    if path.endswith(".safetensors") or start[8:] == b"{":
        return SAFETENSORS
    if path.endswith(_PYTORCH):
        return PYTORCH
    if start.startswith(_PICKLES):
        return PICKLE
    folder = os.path.dirname(path) or os.curdir
    meant = f"Did you mean the folder {folder!r}?"
    has_model = bool(ModelFolder(folder).candidates)
    raise ValueError(
        f"{path}: not a weight file. {meant if has_model else f'Expected: {ACCEPTED}'}"
    )


def read_exported(path: str) -> dict[str, bytes]:
    """Returns name → content of the files of an exported model, the graph first.

    Runtimes get the contents: they would map a file, which ends the process if it is truncated, and
    changes the answers if another one is copied over it.

    Args:
        path: a file whose name is in `ANSWERING`.

    Raises:
        FileNotFoundError: a file does not exist.
    """
    folder, name = os.path.split(path)
    return {part: files.read_bytes(os.path.join(folder, part)) for part in _PARTS[name]}


def keep_vocabulary(path: str, is_sentencepiece: bool, folder: str) -> None:
    """Copies a vocabulary to the folder of a run, unless it has one.

    The folder then contains everything that is needed to use the model.

    Args:
        path: path of the vocabulary, or of a Hugging Face tokenizer.
        is_sentencepiece: whether it is a SentencePiece model.
        folder: an existing folder.
    """
    if ModelFolder(folder).tokenizers:
        return
    own_name = SENTENCEPIECE_NAME if is_sentencepiece else WORDPIECE_NAME
    for name, content in read_files(path).items():
        target = name if is_tokenizer_file(path) else own_name
        files.write_file(os.path.join(folder, target), content)
