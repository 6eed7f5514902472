"""Loads checkpoints of any family into a model, and reports what was and was not loaded.

This package writes checkpoints in the name-based format of TensorFlow 1, a mapping from variable
names to arrays stored as `<prefix>.index` and `<prefix>.data-00000-of-00001`. Google's code can
read them: they have Google's variable names, the optimizer's moments as `<variable>/adam_m` and
`<variable>/adam_v` (`lamb_m` and `lamb_v` with albert_zh's LAMB), and `global_step`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping
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
from albert_tf.model.config import AlbertConfig, config_file
from albert_tf.model.huggingface_tokenizer import (
    TOKENIZER_CONFIG_FILE,
    is_tokenizer_file,
    load_tokenizer,
)
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


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """The result of loading a checkpoint, or of comparing it with a model.

    Weights have the names of the model's variables.

    Attributes:
        prefix: the checkpoint.
        loaded: variables that are loaded from the checkpoint.
        missing: variables of the model that the checkpoint lacks.
        misshapen: variable → (shape in the checkpoint, shape in the model).
        unused: weights of the checkpoint that the model does not have.
        unknown: those of them, with their names in the file, that belong to the encoder of its
            family, and that no model here computes.
        title: family of the checkpoint and file format.
        found: all weights of the checkpoint, without optimizer moments and counters.
        bookkeeping: number of optimizer moments and counters.
        sizes: sizes inferred from shapes, with the keys of `AlbertConfig`.
        notes: reasons why the checkpoint does not fit, and other differences.
        fits: whether the checkpoint has all weights of the model's encoder, and no others. The
            pooler does not count if only one of them has it.
    """

    prefix: str
    loaded: list[str]
    missing: list[str]
    misshapen: dict[str, tuple[list[int], list[int]]]
    unused: list[str]
    unknown: list[str]
    title: str
    found: list[str]
    bookkeeping: int
    sizes: dict[str, int]
    notes: list[str]
    fits: bool

    @property
    def heading(self) -> str:
        """The checkpoint, its family, and the number of its weights."""
        return f"{self.prefix}: {self.title}, {len(self.found)} weights"

    def __str__(self) -> str:
        """Returns the number of weights in each part of the model, and the names not loaded."""
        counts = collections.Counter(map(part_of, self.found))
        parts = ", ".join(f"{part} {counts[part]}" for part in PARTS if part in counts)
        shapes = self.misshapen.items()
        return "\n".join(
            [
                f"{self.heading}, {self.bookkeeping} moments, counters and copies",
                "  " + (", ".join(f"{k} {size}" for k, size in self.sizes.items()) or "no sizes"),
                *([f"  weights: {parts}"] if parts else []),
                *(f"  note: {note}" for note in self.notes),
                *_first(f"  missing    {name}" for name in self.missing),
                *_first(f"  misshapen  {n}: {theirs}, here {ours}" for n, (theirs, ours) in shapes),
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
            more = f" (and {len(self.unknown) - 1} more)" if len(self.unknown) > 1 else ""
            return (
                f"no model here has its weight {self.unknown[0]}{more}. Merge a LoRA into the "
                "weights before saving; relative positions are not supported"
            )
        misfits = [
            *self.other_shapes,
            *(f"{name} is missing" for name in self.missing),
            *(f"{name} is not in the model" for name in self.unused),
        ]
        of_encoder = [text for text in misfits if is_encoder(text) or text.startswith(ADAPTERS)]
        found = of_encoder or misfits
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return "; ".join(self.notes) or "".join(found[:1]) + more


def _first(lines: Iterable[str]) -> list[str]:
    """Returns the first lines, and a line with the number of the others."""
    every = list(lines)
    more = len(every) - _MAX_LISTED_NAMES
    return every if more <= 1 else [*every[:_MAX_LISTED_NAMES], f"  … and {more} more"]


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
    weights = open_weights(path)
    report, entries = _compare(model, weights, init_from_group0)
    if not report.loaded:
        raise ValueError(f"{report}\nNothing in this checkpoint fits the model.")
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
    values = _read_all(weights, {name: entries[name] for name in report.loaded})
    release = releases.containing(values)
    _log(report, release, _uses_pooler(model))
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


def _uses_pooler(model: Any) -> bool:
    """Returns whether an output of a model depends on the encoder's pooler."""
    return getattr(model, "uses_pooler", True)


def _log(report: LoadReport, release: releases.Release | None, uses_pooler: bool) -> None:
    """Logs what was loaded in one line, with a table if something is unusual.

    The line names the release of these weights. It says which heads are new and which are loaded,
    so that these are not mixed up; a pooler is new if an output depends on it.
    """
    if not report.fits:
        logging.warning("Loading a part of the encoder because of allow_partial:\n%s", report)
    else:
        logging.debug("%s", report)
        for note in (*report.notes, *report.other_shapes):
            logging.warning("%s: %s", report.prefix, note)
    new = sorted([*report.missing, *report.misshapen])
    loaded_heads = [name for name in report.loaded if not is_encoder(name)]
    new_adapters = [name for name in new if name.startswith(ADAPTERS)]
    new_heads = [name for name in new if not is_encoder(name) and name not in new_adapters]
    new_pooler = [name for name in new if name.startswith(POOLER) and uses_pooler]
    parts = {
        f"They are those of {release}": release,
        f"{len(report.unused)} not in the model are ignored": report.unused,
        f"Heads loaded from the checkpoint: {', '.join(loaded_heads)}": loaded_heads,
        f"New heads with random weights: {', '.join(new_heads)}": new_heads,
        f"New pooler with random weights: {', '.join(new_pooler)}": new_pooler,
        f"New adapters, which change nothing yet: {len(new_adapters)} variables": new_adapters,
    }
    first = f"{report.prefix}: {report.title}, {len(report.loaded)} variables loaded"
    log = logging.warning if new_heads or new_pooler else logging.info
    log("%s", ". ".join([first, *(text for text, applies in parts.items() if applies)]))


def load_weights(model: Any, prefix: str) -> None:
    """Loads all weights of a trained model including its heads, and the pooler if it is used.

    Raises:
        FileNotFoundError: the checkpoint does not exist.
        ValueError: a weight is missing or has another shape, or the checkpoint's encoder has
            others. The model is unchanged.
    """
    weights = open_weights(prefix)
    report, entries = _compare(model, weights)
    unneeded = () if _uses_pooler(model) else (POOLER,)
    missing = [name for name in report.missing if not name.startswith(unneeded)]
    if missing or not report.fits or report.misshapen:
        logging.debug("%s", report)
        raise ValueError(
            f"{report.prefix} does not contain the weights of this task and model: "
            f"{report.reason}.\nPass the --albert_config_file that belongs to it, or train first "
            "(--verbosity=1 lists all weights)."
        )
    _warn_of_config(model, _config_beside(prefix), "the config beside the checkpoint")
    _assign(model, _read_all(weights, entries))


def inspect_checkpoint(path: str, model: Any = None) -> LoadReport:
    """Reports what `load_checkpoint` would do, or without a model, the content of a checkpoint.

    Raises:
        FileNotFoundError: the checkpoint does not exist.
        ValueError: the checkpoint is damaged. Weights that do not fit are only reported.
    """
    return _compare(model, open_weights(path))[0]


def read_weights(
    path: str, model: Any = None, init_from_group0: bool = False
) -> dict[str, np.ndarray]:
    """Returns all weights of a checkpoint, float32, with the names of this package.

    Args:
        path: as in `find_checkpoint`.
        model: the model whose layout the weights are converted to, if several are possible.
        init_from_group0: as in `load_checkpoint`.
    """
    weights = open_weights(path)
    entries = _compare(model, weights, init_from_group0)[1]
    return _read_all(weights, entries)


def _read_all(weights: WeightFile, entries: Mapping[str, families.Entry]) -> dict[str, np.ndarray]:
    return {
        name: np.asarray(entry.compute(*map(weights.read, entry.sources)), np.float32)
        for name, entry in entries.items()
    }


def _assign(model: Any, values: Mapping[str, np.ndarray]) -> None:
    """Assigns the variables once all values were read, because the file may be damaged."""
    for name, variable in by_name(model.variables).items():
        if name in values:
            variable.assign(values[name])


def _compare(
    model: Any, weights: WeightFile, init_from_group0: bool = False
) -> tuple[LoadReport, dict[str, families.Entry]]:
    """Returns a report of the weights that fit a model, and the entries that compute them."""
    recognized = families.recognize(weights.shapes)
    variables = [] if model is None else model.variables
    wanted = {name: tuple(variable.shape) for name, variable in by_name(variables).items()}
    entries = families.fit(recognized.entries, wanted, init_from_group0)
    if model is not None:
        _drop_identity_projection(weights, entries, wanted)
    obstacle, notes = _remarks(recognized, entries, getattr(model, "config", None))
    common = sorted(entries.keys() & wanted.keys())
    loaded = [name for name in common if entries[name].shape == wanted[name]]
    misshapen = {
        name: (list(entries[name].shape), list(wanted[name]))
        for name in common
        if entries[name].shape != wanted[name]
    }
    missing = sorted(wanted.keys() - entries.keys())
    unused = [] if model is None else sorted(entries.keys() - wanted.keys())
    # With `init_from_group0` the other groups are not needed. Otherwise unused weights of the
    # encoder mean that the checkpoint belongs to another model.
    surplus = [n for n in unused if not (init_from_group0 and re.search("/group_[1-9]", n))]
    is_shared = all(any(n.startswith(POOLER) for n in names) for names in (entries, wanted))
    optional = () if is_shared else (POOLER,)
    differing = [n for n in (*missing, *misshapen, *surplus) if not n.startswith(optional)]
    misfits = bool(recognized.unknown) or any(map(is_encoder, differing))
    # New adapters change nothing, but a model is wrong without those that it was trained with.
    misfits |= any(name.startswith(ADAPTERS) for name in (*misshapen, *surplus))
    report = LoadReport(
        prefix=weights.path,
        loaded=loaded,
        missing=missing,
        misshapen=misshapen,
        unused=unused + recognized.unmapped,
        unknown=recognized.unknown,
        title=f"{families.TITLES[recognized.family]} ({weights.container})",
        found=[*entries, *recognized.unmapped],
        bookkeeping=len(recognized.bookkeeping),
        sizes=families.sizes(entries),
        notes=[obstacle, *notes] if obstacle else notes,
        fits=not (obstacle or misfits),
    )
    return report, entries


def _remarks(
    recognized: families.Recognized, entries: dict[str, families.Entry], config: Any
) -> tuple[str, list[str]]:
    """Returns why a checkpoint fits no such model, "" if it may, and what differs from a config."""
    if recognized.refusal or not isinstance(config, AlbertConfig):
        return recognized.refusal, []
    is_theirs = recognized.family == "hugging_face"
    obstacle = families.group_obstacle(config) if is_theirs else ""
    return obstacle, families.differences(recognized, entries, config)


def _config_beside(path: str) -> AlbertConfig | None:
    """Returns the config beside a checkpoint; None if there is none, or several, or a bad one."""
    try:
        return AlbertConfig.from_json_file(finding.find_config(finding.folder_of(path)))
    except (OSError, ValueError):
        return None


def _drop_identity_projection(
    weights: WeightFile, entries: dict[str, families.Entry], wanted: dict[str, Any]
) -> None:
    """Removes a projection that the model lacks (E = H) if it is the identity."""
    names = [f"{PROJECTION}/kernel", f"{PROJECTION}/bias"]
    if not set(names) & set(wanted) and set(names) <= set(entries):
        kernel, bias = _read_all(weights, {name: entries[name] for name in names}).values()
        if np.array_equal(kernel, np.eye(*kernel.shape)) and not bias.any():
            for name in names:
                del entries[name]


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
