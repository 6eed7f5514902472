"""Loads checkpoints of any family into a model, and reports what was and was not loaded.

This package writes checkpoints in the name-based format of TensorFlow 1, a mapping from variable
names to arrays stored as `<prefix>.index` and `<prefix>.data-00000-of-00001`. Google's code can
read them: they have Google's variable names, the optimizer's moments as `<variable>/adam_m` and
`<variable>/adam_v` (`lamb_m` and `lamb_v` with albert_zh's LAMB), and `global_step`.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import families, finding, releases, run_record
from albert_tf.checkpoints.containers import WeightFile, open_checkpoint, open_weights, read_tensor
from albert_tf.checkpoints.families import (
    ADAPTERS,
    GLOBAL_STEP,
    PARTS,
    POOLER,
    PROJECTION,
    by_name,
    is_encoder,
    part_of,
)
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.model.config import AlbertConfig
from albert_tf.model.huggingface_tokenizer import (
    TOKENIZER_CONFIG_FILE,
    is_tokenizer_file,
    load_tokenizer,
)
from albert_tf.model.included_configs import config_file
from albert_tf.model.objectives import NONE, SOP
from albert_tf.model.tokenization import Tokenizer

_UNSEEN = ("num_attention_heads", "hidden_act", "num_hidden_layers", "ln_type")
_MAX_LISTED_NAMES = 16  # per list of a report


def read_step(prefix: str) -> int:
    """Returns the `global_step` of a checkpoint; 0 if it has none or another format.

    Raises:
        ValueError: the checkpoint is damaged.
    """
    if not files.exists(prefix + ".index"):
        return 0
    reader = open_checkpoint(prefix)
    if not reader.has_tensor(GLOBAL_STEP):
        return 0
    return int(read_tensor(reader, GLOBAL_STEP, prefix))


class LoadReport:
    """The comparison of a checkpoint with a model.

    Weights have the names of the model's variables.

    Args:
        weights: the open checkpoint.
        model: the model; None for one that has the weights of the checkpoint.
        init_from_group0: as in `load_checkpoint`.

    Attributes:
        prefix: the checkpoint.
        title: family of the checkpoint and file format.
        entries: weight of the checkpoint → how it is computed from the arrays in the file.
        loaded: variables that the checkpoint has with the shape of the model.
        missing: variables of the model that the checkpoint lacks.
        misshapen: variable → (shape in the checkpoint, shape in the model).
        unused: weights of the checkpoint that the model does not have.
        unknown: those of them, with their names in the file, that belong to the encoder of its
            family, and that no model here computes.
        found: all weights of the checkpoint, without optimizer moments and counters.
        bookkeeping: number of optimizer moments and counters.
        notes: what keeps a checkpoint of this family from fitting the model's config.
        fits: whether the checkpoint has all weights of the model's encoder, and no others. The
            pooler does not count if only one of them has it.
    """

    def __init__(
        self, weights: WeightFile, model: Any = None, init_from_group0: bool = False
    ) -> None:
        recognized = families.recognize(weights.shapes)
        wanted = {name: entry.shape for name, entry in recognized.entries.items()}
        if model is not None:
            wanted = {name: tuple(x.shape) for name, x in by_name(model.variables).items()}
        self._weights = weights
        self.prefix = weights.path
        self.title = f"{families.TITLES[recognized.family]} ({weights.container})"
        self.entries = families.fit(recognized.entries, wanted, init_from_group0)
        self._drop_identity_projection(wanted)
        surplus = sorted(self.entries.keys() - wanted.keys())
        self.missing = sorted(wanted.keys() - self.entries.keys())
        self.misshapen = {
            name: (list(self.entries[name].shape), list(wanted[name]))
            for name in sorted(self.entries.keys() & wanted.keys())
            if self.entries[name].shape != wanted[name]
        }
        self.loaded = sorted(self.entries.keys() & wanted.keys() - self.misshapen.keys())
        self.unused = surplus + recognized.unmapped
        self.unknown = recognized.unknown
        self.found = [*self.entries, *recognized.unmapped]
        self.bookkeeping = len(recognized.bookkeeping)
        config = getattr(model, "config", None)
        self.notes = families.differences(recognized, self.entries, config)
        # New adapters change nothing, but a model is wrong without those that it was trained with.
        encoder = [name for name in self.missing if is_encoder(name)]
        encoder += [
            n for n in (*self.misshapen, *surplus) if is_encoder(n) or n.startswith(ADAPTERS)
        ]
        both = all(any(n.startswith(POOLER) for n in names) for names in (self.entries, wanted))
        self._decisive = [name for name in encoder if both or not name.startswith(POOLER)]
        self.fits = not (self.notes or self.unknown or self._decisive)

    def _drop_identity_projection(self, wanted: Mapping[str, Any]) -> None:
        """Removes a projection that the model lacks (E = H) if it is the identity."""
        names = [f"{PROJECTION}/kernel", f"{PROJECTION}/bias"]
        if not set(names) & wanted.keys() and set(names) <= self.entries.keys():
            kernel, bias = self.read(names).values()
            if np.array_equal(kernel, np.eye(*kernel.shape)) and not bias.any():
                for name in names:
                    del self.entries[name]

    def read(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Returns name → weight of the checkpoint, float32.

        Raises:
            ValueError: the file is damaged.
        """
        entries = {name: self.entries[name] for name in names}
        return {
            name: np.asarray(entry.compute(*map(self._weights.read, entry.sources)), np.float32)
            for name, entry in entries.items()
        }

    @property
    def heading(self) -> str:
        """The checkpoint, its family, and the number of its weights."""
        return f"{self.prefix}: {self.title}, {len(self.found)} weights"

    def __str__(self) -> str:
        """Returns the number of weights in each part of the model, and the names not loaded."""
        counts = collections.Counter(map(part_of, self.found))
        parts = ", ".join(f"{part} {counts[part]}" for part in PARTS if part in counts)
        sizes = ", ".join(f"{k} {size}" for k, size in families.sizes(self.entries).items())
        return "\n".join(
            [
                f"{self.heading}, {self.bookkeeping} moments, counters and copies",
                f"  {sizes or 'no sizes'}",
                *([f"  weights: {parts}"] if parts else []),
                *(f"  note: {note}" for note in self.notes),
                *_first(f"  missing    {name}" for name in self.missing),
                *_first(f"  misshapen  {text}" for text in self.other_shapes),
                *_first(f"  unused     {name}" for name in self.unused),
            ]
        )

    @property
    def other_shapes(self) -> list[str]:
        """The misshapen variables, with both shapes."""
        return [f"{n} has the shape {t}, here {o}" for n, (t, o) in self.misshapen.items()]

    @property
    def reason(self) -> str:
        """Why the checkpoint does not fit: the keys of the config that differ, or else a weight.

        A weight of the encoder comes before one of a head, which may be new.
        """
        if self.unknown:
            return (
                f"no model here has its weight {_and_more(self.unknown)}. Merge a LoRA into the "
                "weights before saving; relative positions are not supported"
            )
        if self.notes:
            return "; ".join(self.notes)
        misfits = dict(zip(self.misshapen, self.other_shapes, strict=True))
        misfits |= {name: f"{name} is missing" for name in self.missing}
        misfits |= {name: f"{name} is not in the model" for name in self.unused}
        return _and_more([misfits[name] for name in self._decisive] or list(misfits.values()))


def _first(lines: Iterable[str]) -> list[str]:
    """Returns the first lines, and a line with the number of the others."""
    every = list(lines)
    more = len(every) - _MAX_LISTED_NAMES
    return every if more <= 1 else [*every[:_MAX_LISTED_NAMES], f"  … and {more} more"]


def _and_more(texts: Sequence[str]) -> str:
    """Returns the first text, and the number of the others."""
    return texts[0] + (f" (and {len(texts) - 1} more)" if len(texts) > 1 else "")


def load_checkpoint(
    model: Any, path: str, allow_partial: bool = False, init_from_group0: bool = False
) -> LoadReport:
    """Loads the weights of `model` from a checkpoint of any supported family.

    >>> model = albert_tf.AlbertForPretraining(config)
    >>> report = load_checkpoint(model, "albert_tiny/")
    >>> report.fits, report.missing
    (True, [])

    Args:
        model: a model with Google's variable names, such as `AlbertForPretraining`. If it has a
            `.config`, contradictions between the config and the checkpoint are reported.
        path: as in `find_checkpoint`.
        allow_partial: whether to only warn if weights of the encoder do not fit.
        init_from_group0: whether to initialize all hidden groups from group 0 of the checkpoint, so
            that a model with num_hidden_groups = num_hidden_layers starts from shared weights.

    Returns:
        A report of loaded, missing and unused weights. Heads that are missing in the checkpoint or
        have another shape keep their values, and so does a missing pooler; the report names them,
        and the log if an output depends on them.

    Raises:
        FileNotFoundError: the checkpoint does not exist.
        ValueError: variables of the encoder (`bert/…`) are missing, misshapen or unused, or the
            checkpoint is damaged or of an unsupported family, or has other weights in its encoder,
            such as relative positions or an unmerged LoRA. The model is unchanged.
    """
    report = inspect_checkpoint(path, model, init_from_group0)
    if not report.loaded:
        raise ValueError(f"{report.prefix} has nothing that fits the model: {report.reason}")
    if not (report.fits or allow_partial):
        is_other_sharing = any(re.search("/group_[1-9]", name) for name in report.missing)
        copies = ", --init_from_group0 (run_pretraining.py) to copy them from group 0"
        logging.debug("%s", report)
        raise ValueError(
            f"{report.prefix} does not contain this model's encoder: {report.reason}.\nCheck that "
            "albert_config.json is the one that came with it (--verbosity=1 lists all weights), or "
            f"pass --allow_partial_init to keep the random initialization of the others"
            f"{copies * is_other_sharing}."
        )
    values = report.read(report.loaded)
    release = releases.containing(values)
    _log(report, release, _new(report, model))
    if release is not None and release.config:
        expected = AlbertConfig.from_json_file(release.config)
        _warn_of_config(model, expected, f"{release} (--albert_config_file={release.config})")
    elif not init_from_group0:
        _warn_of_config(model, _config_beside(path), "the config beside the checkpoint")
    _warn_of_objective(model, report.prefix)
    _assign(model, values)
    return report


def _warn_of_objective(model: Any, prefix: str) -> None:
    """Warns if the sentence head was trained with another objective, whose head may fit as well."""
    record = finding.records_of(finding.folder_of(prefix)).record
    theirs = record.settings.get(run_record.OBJECTIVE)
    ours = getattr(model, run_record.OBJECTIVE, theirs)
    if theirs and theirs != ours:
        logging.warning(
            "%s was trained with sentence_objective=%s, and this model has %s", prefix, theirs, ours
        )


def _warn_of_config(model: Any, expected: AlbertConfig | None, source: str) -> None:
    """Warns of what differs from the config of the weights, and does not show in their shapes.

    This is no error, because a released config may be wrong, and the one that is given right: that
    in the archive of Google's Chinese tiny has one layer.
    """
    config = getattr(model, "config", None)
    if expected is None or not isinstance(config, AlbertConfig):
        return
    for key in _UNSEEN:
        theirs, ours = getattr(expected, key), getattr(config, key)
        if theirs != ours:
            logging.warning(
                "%s is %r in %s, %r in the model's config: the outputs are not those that it was "
                "trained for",
                *(key, theirs, source, ours),
            )


def _config_beside(path: str) -> AlbertConfig | None:
    """Returns the config beside a checkpoint; None if there is none, or several, or a bad one."""
    try:
        return AlbertConfig.from_json_file(finding.find_config(finding.folder_of(path)))
    except (OSError, ValueError):
        return None


def _new(report: LoadReport, model: Any) -> list[str]:
    """Returns the variables that keep their values, but a pooler that no output depends on."""
    unneeded = () if getattr(model, "uses_pooler", True) else (POOLER,)
    new = [*report.missing, *report.misshapen]
    return sorted(name for name in new if not name.startswith(unneeded))


def _log(report: LoadReport, release: releases.Release | None, new: Sequence[str]) -> None:
    """Logs what was loaded in one line, with a table if something is unusual.

    The line names the release of these weights. It says which heads are new and which are loaded,
    so that these are not mixed up.
    """
    if not report.fits:
        logging.warning("Loading a part of the encoder because of allow_partial:\n%s", report)
        new = []  # the table has them
    for text in report.other_shapes if report.fits else ():
        logging.warning("%s: %s", report.prefix, text)
    random = [name for name in new if not name.startswith(ADAPTERS)]  # adapters change nothing yet
    loaded_heads = [name for name in report.loaded if not is_encoder(name)]
    parts = [f"{report.prefix}: {report.title}, {len(report.loaded)} variables loaded"]
    if release:
        parts.append(f"They are those of {release}")
    if loaded_heads:
        parts.append(f"Heads loaded from the checkpoint: {', '.join(loaded_heads)}")
    if random:
        parts.append(f"New, with random weights: {', '.join(random)}")
    log = logging.warning if random else logging.info
    log("%s", ". ".join(parts))


def load_weights(model: Any, prefix: str) -> None:
    """Loads all weights of a trained model including its heads, and the pooler if it is used.

    Raises:
        FileNotFoundError: the checkpoint does not exist.
        ValueError: a weight is missing or has another shape, or the checkpoint's encoder has
            others. The model is unchanged.
    """
    report = inspect_checkpoint(prefix, model)
    if not report.fits or _new(report, model):
        logging.debug("%s", report)
        raise ValueError(
            f"{report.prefix} does not contain the weights of this task and model: "
            f"{report.reason}.\nPass the --albert_config_file that belongs to it, or train first "
            "(--verbosity=1 lists all weights)."
        )
    _warn_of_config(model, _config_beside(prefix), "the config beside the checkpoint")
    _assign(model, report.read(report.loaded))


def inspect_checkpoint(path: str, model: Any = None, init_from_group0: bool = False) -> LoadReport:
    """Reports what `load_checkpoint` would do, or without a model, the content of a checkpoint.

    Raises:
        FileNotFoundError: the checkpoint does not exist.
        ValueError: the checkpoint is damaged. Weights that do not fit are only reported.
    """
    return LoadReport(open_weights(path), model, init_from_group0)


def read_weights(
    path: str, model: Any = None, init_from_group0: bool = False
) -> dict[str, np.ndarray]:
    """Returns all weights of a checkpoint, float32, with the names of this package.

    Args:
        path: as in `find_checkpoint`.
        model: the model whose layout the weights are converted to, if several are possible.
        init_from_group0: as in `load_checkpoint`.
    """
    report = inspect_checkpoint(path, model, init_from_group0)
    return report.read(report.entries)


def _assign(model: Any, values: Mapping[str, np.ndarray]) -> None:
    """Assigns the variables once all values were read, because the file may be damaged."""
    variables = by_name(model.variables)
    for name, value in values.items():
        variables[name].assign(value)


class ModelSource:
    """A model in a folder of any origin, whose parts are found and read when they are asked for.

    Attributes:
        checkpoint: path of the checkpoint.
        folder: the folder with the config, the vocabulary and the records of the training.
    """

    def __init__(
        self,
        path: str,
        config_file: str | None = None,
        vocab_file: str | None = None,
        spm_model_file: str | None = None,
        do_lower_case: bool | None = None,
    ) -> None:
        """Finds a checkpoint, and opens it when it is asked for.

        Args:
            path: as in `find_checkpoint`.
            config_file: path of the config, or name of one of this package; None to look for it.
            vocab_file: path of the WordPiece vocabulary; None to look for a vocabulary.
            spm_model_file: path of the SentencePiece model, likewise.
            do_lower_case: whether the vocabulary is uncased; None for what is recorded, or True.

        Raises:
            FileNotFoundError, ValueError: see `finding.find_checkpoint`.
        """
        self.checkpoint = finding.find_checkpoint(path)
        self.folder = finding.folder_of(path)
        self._config_file = config_file
        self._do_lower_case = do_lower_case
        self._vocabulary = vocab_file, spm_model_file

    @functools.cached_property
    def weights(self) -> WeightFile:
        """The checkpoint, of which only names and shapes have been read.

        Raises:
            ValueError: it is damaged.
        """
        return open_weights(self.checkpoint)

    @functools.cached_property
    def recognized(self) -> families.Recognized:
        """The family of the checkpoint."""
        return families.recognize(self.weights.shapes)

    @functools.cached_property
    def config_file(self) -> str:
        """Path of the config.

        Raises:
            FileNotFoundError, ValueError: see `finding.find_config`.
        """
        if self._config_file:
            return config_file(self._config_file)
        return finding.find_config(self.folder)

    @functools.cached_property
    def config(self) -> AlbertConfig:
        """The config: Google's, albert_zh's or Hugging Face's.

        Raises:
            FileNotFoundError, ValueError: there is no config, or it is invalid.
        """
        return AlbertConfig.from_json_file(self.config_file)

    @functools.cached_property
    def vocabulary(self) -> tuple[str | None, str | None]:
        """Paths of vocabulary or tokenizer, and of the SentencePiece model; one may be None.

        Raises:
            FileNotFoundError, ValueError: see `finding.find_vocabulary`.
        """
        return finding.find_vocabulary(self.folder, *self._vocabulary)

    @property
    def vocabulary_file(self) -> str:
        """Path of the file that the tokenizer uses, which is the SentencePiece model of the two."""
        vocab_file, spm_model_file = self.vocabulary
        return spm_model_file or vocab_file or ""

    @functools.cached_property
    def do_lower_case(self) -> bool:
        """Whether to lowercase text; True if this is neither given nor known.

        Logs a warning if it is given and the model is known to be for other text.
        """
        name = run_record.LOWER_CASE
        flags = finding.read_json_if_there(self.folder, TOKENIZER_CONFIG_FILE)
        known = self.run.record.settings.get(name, flags.get(name))
        is_module = files.exists(files.join(self.folder, finding.SAVED_MODEL))
        if known is None and is_module and name in self.weights.shapes:
            known = self.weights.read(name)  # a variable of TF-Hub modules
        given = self._do_lower_case
        if given is None:
            return known is None or bool(known)
        if known is not None and bool(known) != given:
            logging.warning("do_lower_case=%s, but %s says %s", given, self.folder, bool(known))
        return given

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, whose vocabulary is that of the model; a warning if it probably is not.

        Raises:
            FileNotFoundError: there is no vocabulary.
            ValueError: it is larger than the embedding table, or not the one that the model was
                trained with.
        """
        vocab_file, spm_model_file = self.vocabulary
        has_own_case = is_tokenizer_file(self.vocabulary_file)
        tokenizer = load_tokenizer(
            vocab_file,
            self._do_lower_case if has_own_case else self.do_lower_case,
            spm_model_file,
            max_length=self.config.max_position_embeddings,
        )
        identity = run_record.of_tokenizer(tokenizer, self.vocabulary_file)
        is_known = run_record.check_vocabulary(
            self.run.path, self.run.record, identity.files[run_record.VOCABULARY]
        )
        entries = tokenizer.vocab_size
        vocab_size = self.config.vocab_size
        message = (
            f"{self.vocabulary_file} has {entries} entries, the model of {self.config_file} has "
            f"vocab_size={vocab_size}"
        )
        if entries > vocab_size:
            raise ValueError(f"{message}: they do not match")
        if entries < vocab_size and not is_known:
            logging.warning("%s: make sure that they belong together", message)
        return tokenizer

    @functools.cached_property
    def parts(self) -> set[str]:
        """The parts of the model in the checkpoint, keys of `families.PARTS`."""
        return {part_of(name) for name in self.recognized.entries}

    @property
    def objective(self) -> str:
        """The sentence objective; "none" for masked words without a sentence head.

        Without a record, this is "sop".

        Raises:
            ValueError: a file of the run is damaged.
        """
        if "masked-LM head" in self.parts and "sentence head" not in self.parts:
            return NONE
        recorded = self.run.record.settings.get(run_record.OBJECTIVE)
        return str(SOP if recorded is None else recorded)

    @functools.cached_property
    def run(self) -> RunFolder:
        """The folder with the record of the training."""
        return finding.records_of(self.folder)
