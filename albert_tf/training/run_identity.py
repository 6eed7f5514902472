"""What decides the result of a run, and whether a run that is resumed still has it.

The identity of a run is a flat mapping, name → short text: the settings that decide its result (see
`settings.setting`), the precision that "auto" stands for, and fingerprints of what it is made of:
config, vocabulary, training data and initial checkpoint. Of files the content counts and not the
path, so that a run can be moved. `trained_with.json` in the folder of a run has the identity of the
last run that trained there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence

from absl import logging

from albert_tf import files, included, settings
from albert_tf.checkpoints import containers, store, trained_with
from albert_tf.checkpoints.trained_with import TrainedWith
from albert_tf.config import AlbertConfig
from albert_tf.training.settings import RunSettings

CONFIG, INIT_CHECKPOINT, TRAINING_DATA = "config", "init_checkpoint", "training data"
PRECISION = "precision"
NONE = "none"
# What the weights of step 0 depend on. Everything else may change before a step is trained, as
# when the first step has run out of memory.
_DECIDE_START = {"seed", "optimizer", "init_from_group0", INIT_CHECKPOINT}
_TABLE_WIDTH = 100  # in a wider table each text gets a line of its own

Changes = dict[str, tuple[str, str]]  # name → (before, now)


def describe(
    run: RunSettings, config: AlbertConfig, precision: str, known: TrainedWith
) -> TrainedWith:
    """Returns the identity of a run.

    Args:
        run: its settings.
        config: of the model.
        precision: that the run computes in.
        known: fingerprints and paths of vocabulary and training data, as far as they are known.

    Raises:
        FileNotFoundError, ValueError: there is no such `init_checkpoint`.
    """
    fields = {field.name: field for field in settings.describe(type(run))}
    texts = {name: settings.to_text(getattr(run, name), field) for name, field in fields.items()}
    compared = {settings.TRAINING, settings.MODEL}
    decisive = {name for name, field in fields.items() if field.decides in compared}
    identity = {name: texts[name] for name in sorted(decisive)}
    identity |= {PRECISION: precision, INIT_CHECKPOINT: NONE}
    paths = {}
    if run.init_checkpoint:
        path = containers.find_checkpoint(run.init_checkpoint)
        identity[INIT_CHECKPOINT] = f"digest {containers.digest(path)}"
        paths[INIT_CHECKPOINT] = trained_with.absolute(path)
    others = {
        name: texts[name]
        for name, field in fields.items()
        if name not in decisive | {"allow_changed_settings"}
        and (field.type is not str or field.choices or field.decides == settings.READING)
    }
    described = TrainedWith(identity | known.identity, paths | known.paths, others)
    return adding_config(described, config, included.config_file(run.albert_config_file or ""))


def adding_config(identity: TrainedWith, config: AlbertConfig, path: str) -> TrainedWith:
    """Returns an identity with the fingerprint of a model's config.

    Args:
        identity: of a run.
        config: of the model.
        path: of its file; "" if that is not known.
    """
    content = json.dumps(config.to_dict(), sort_keys=True)
    return identity.adding(CONFIG, hashlib.sha256(content.encode("utf-8")).hexdigest(), path)


def differences_table(columns: Mapping[str, Mapping[str, str]]) -> str:
    """Returns a table of the names whose texts differ; "" where none does.

    Args:
        columns: heading → name → text, such as the identities of two runs or of all workers.
    """
    names = sorted(set().union(*columns.values()))
    rows = [[name, *(column.get(name, "-") for column in columns.values())] for name in names]
    rows = [row for row in rows if len(set(row[1:])) > 1]
    if not rows:
        return ""
    lines = _columns([["", *columns], *rows])
    if max(map(len, lines)) > _TABLE_WIDTH:
        lines = []
        for name, *texts in rows:
            lines += [f"  {name}:", *_columns(zip(columns, texts, strict=True), indent=4)]
    return "\n".join(lines)


def _columns(rows: Iterable[Sequence[str]], indent: int = 2) -> list[str]:
    """Returns lines of cells, as wide in each column as the widest of them."""
    rows = list(rows)
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [" " * indent + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def check(run: RunSettings, identity: TrainedWith) -> Changes:
    """Compares a run with what the model in its folder, or `init_checkpoint`, was trained with.

    Training needs what the last training there had. Evaluation and prediction, and training that
    starts from an `init_checkpoint`, only need the vocabulary and the like.

    Args:
        run: its settings; changes are only logged if `allow_changed_settings` is set.
        identity: of the run, by `describe`.

    Returns:
        what has changed.

    Raises:
        ValueError: something has changed, with a table of it.
    """
    step, allows_changes = _newest_step(run.output_dir), run.allow_changed_settings
    if run.do_train and step is not None:
        changes = check_training(run.output_dir, step, identity, allows_changes)
        if changes:
            return changes
    folder = weights_folder(run)
    names = trained_with.OF_TEXT | (set() if run.do_train else run.names_for_model)
    return check_model(folder, identity, names, allows_changes) if folder else {}


def weights_folder(run: RunSettings) -> str | None:
    """Returns the folder of the weights that a run begins with; None for random weights.

    That is its own, if something has been trained there, or else that of `init_checkpoint`.
    """
    step, path = _newest_step(run.output_dir), run.init_checkpoint
    if step or (step is not None and not run.do_train):
        return run.output_dir
    if not path or files.is_directory(path):
        return path
    return os.path.dirname(path)


def warn_of_vocabulary(run: RunSettings, entries: int, vocab_size: int) -> None:
    """Warns of a vocabulary of another size than that of a model whose vocabulary is not known.

    Args:
        run: settings of the run that begins with the model's weights.
        entries: number of entries of the vocabulary of the run.
        vocab_size: of the model's config.
    """
    folder = weights_folder(run)
    if folder is None or entries == vocab_size or trained_with.read(folder) is not None:
        return
    logging.warning(
        "The vocabulary has %d entries, and the model has vocab_size=%d. If it is not the "
        "vocabulary that the model was trained with, what the model has learned is lost: take the "
        "one that came with %s.",
        entries,
        vocab_size,
        folder or ".",
    )


def check_training(output_dir: str, step: int, run: TrainedWith, allows_changes: bool) -> Changes:
    """Compares a run that trains with the one that has trained in its folder before.

    Args:
        output_dir: folder of the run.
        step: that it is resumed from.
        run: its identity.
        allows_changes: only log what has changed: `--allow_changed_settings`.

    Returns:
        what has changed.

    Raises:
        ValueError: something has changed, with a table of it.
    """
    before = trained_with.read(output_dir)
    if before is None:
        text = "%s has no %s: what it was trained with is not known, and not compared"
        logging.info(text, output_dir, trained_with.FILE)
        return {}
    _log_others(output_dir, before, run)
    changes = _changes(before, run)
    if step == 0:
        later = {name: pair for name, pair in changes.items() if name not in _DECIDE_START}
        if later:
            text = "%s: nothing has been trained yet, so that this may change:\n%s"
            logging.info(text, output_dir, _table(later))
        changes = {name: pair for name, pair in changes.items() if name in _DECIDE_START}
    return _decide(
        f"{output_dir} holds a run with other settings",
        changes,
        "Name another --output_dir, or pass --allow_changed_settings to resume that run with the "
        "new ones.",
        allows_changes,
    )


def check_model(
    folder: str, run: TrainedWith, names: Collection[str], allows_changes: bool
) -> Changes:
    """Compares what is needed to use a model, such as its vocabulary, with its training.

    Args:
        folder: of the model's checkpoint.
        run: identity of the run that uses it, by `describe`.
        names: of the identity, that have to be the same.
        allows_changes: only log what has changed: `--allow_changed_settings`.

    Returns:
        what has changed.

    Raises:
        ValueError: something has changed, with a table of it.
    """
    before = trained_with.read(folder)
    if before is None:
        return {}
    changes = _changes(before, run.only(names))
    return _decide(
        f"the model in {folder} was trained with another {' and '.join(changes)}",
        changes,
        "Give that one, or pass --allow_changed_settings to use the model nevertheless.",
        allows_changes,
    )


def _newest_step(output_dir: str) -> int | None:
    """Returns the step that a run is resumed from; None where there is no checkpoint."""
    steps = list(store.list_checkpoints(output_dir))
    if not steps and files.exists(os.path.join(output_dir, store.BEST + ".index")):
        return 1  # of one that has trained
    return steps[-1] if steps else None


def _changes(before: TrainedWith, now: TrainedWith) -> Changes:
    """Returns what differs of what both know."""
    names = sorted(before.identity.keys() & now.identity.keys())
    return {
        name: (before.show(name), now.show(name)) for name in names if not before.is_same(now, name)
    }


def _table(changes: Changes) -> str:
    before, now = ({name: pair[i] for name, pair in changes.items()} for i in (0, 1))
    return differences_table({"before": before, "now": now})


def _decide(what: str, changes: Changes, advice: str, allows_changes: bool) -> Changes:
    """Returns changes that are allowed, and logs them; raises ValueError where they are not."""
    if changes and not allows_changes:
        raise ValueError(f"{what}:\n{_table(changes)}\n{advice}")
    if changes:
        logging.warning("%s:\n%s\nThis is accepted, as asked.", what, _table(changes))
    return changes


def _log_others(output_dir: str, before: TrainedWith, now: TrainedWith) -> None:
    """Logs what has changed without an influence on the result."""
    both = [
        run.others | {n: p for n, p in run.paths.items() if before.is_same(now, n)}
        for run in (before, now)
    ]
    known = both[0].keys() & both[1].keys()
    old, new = ({name: texts[name] for name in known} for texts in both)
    table = differences_table({"before": old, "now": new})
    if table:
        logging.info("%s: changed, without an influence on the result:\n%s", output_dir, table)
