"""Identity of a run: everything its result depends on, compared when the run is resumed.

An identity is a flat mapping from names to short texts: the settings that affect the result (see
`settings.setting`), the precision that "auto" resolved to, and fingerprints of config, vocabulary,
training data and initial checkpoint. Files are compared by content, not by path, so a run can be
moved. `trained_with.json` in the folder of a run stores the identity of the last training there.
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
# What the weights of step 0 depend on. Everything else may change before the first step, for
# example after it ran out of memory.
_DECIDE_START = {"seed", "optimizer", "init_from_group0", INIT_CHECKPOINT}
_TABLE_WIDTH = 100  # in a wider table, each text is on a separate line

Changes = dict[str, tuple[str, str]]  # name → (before, now)


def describe(
    run: RunSettings, config: AlbertConfig, precision: str, known: TrainedWith
) -> TrainedWith:
    """Returns the identity of a run.

    Args:
        run: the settings of the run.
        config: the model's config.
        precision: the compute dtype.
        known: fingerprints and paths of vocabulary and training data, as far as they are known.

    Raises:
        FileNotFoundError, ValueError: `init_checkpoint` does not exist or is invalid.
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
        if name not in decisive | {"allow_changed_settings"} and field.is_recorded
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
    """Returns a table of the names whose texts differ; "" if there are none.

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
    """Formats rows of cells as lines with aligned columns."""
    rows = list(rows)
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [" " * indent + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def check(run: RunSettings, identity: TrainedWith) -> Changes:
    """Compares a run with the training of the model in its folder or of `init_checkpoint`.

    Resumed training needs the same identity as before. Training that starts from an
    `init_checkpoint` only needs the same vocabulary and tokenization; evaluation, prediction and
    export also need the same task and labels, and the settings that the model's output depends on.

    Args:
        run: the settings of the run; with `allow_changed_settings`, changes are only logged.
        identity: the identity of the run, as returned by `describe`.

    Returns:
        The changes.

    Raises:
        ValueError: something has changed. The message has a table of the changes.
    """
    step, allows_changes = _newest_step(run.output_dir), run.allow_changed_settings
    if run.do_train and step is not None:
        changes = check_training(run.output_dir, step, identity, allows_changes)
        if changes:
            return changes
    folder = weights_folder(run)
    names = set(trained_with.OF_TEXT)
    if not run.do_train:
        names |= {trained_with.TASK, trained_with.LABELS, *run.names_for_model}
    return check_model(folder, identity, names, allows_changes) if folder else {}


def weights_folder(run: RunSettings) -> str | None:
    """Returns the folder of the weights that a run starts with; None for random weights.

    This is the run's own folder if it contains a trained model, else that of `init_checkpoint`.
    """
    step, path = _newest_step(run.output_dir), run.init_checkpoint
    if step or (step is not None and not run.do_train):
        return run.output_dir
    if not path or files.is_directory(path):
        return path
    return os.path.dirname(path)


def warn_of_vocabulary(run: RunSettings, entries: int, vocab_size: int) -> None:
    """Warns if the vocabulary's size differs from that of a model with unknown vocabulary.

    Args:
        run: settings of the run that starts with the model's weights.
        entries: number of entries in the vocabulary of the run.
        vocab_size: `vocab_size` of the model's config.
    """
    folder = weights_folder(run)
    if folder is None or entries == vocab_size or trained_with.read(folder) is not None:
        return
    logging.warning(
        "The vocabulary has %d entries, but the model has vocab_size=%d. A pre-trained model is "
        "useless with a vocabulary other than the one it was trained with: use the vocabulary that "
        "came with %s.",
        entries,
        vocab_size,
        folder or ".",
    )


def check_training(output_dir: str, step: int, run: TrainedWith, allows_changes: bool) -> Changes:
    """Compares a training run with the previous training in its folder.

    Args:
        output_dir: folder of the run.
        step: the step that training is resumed from.
        run: the identity of the run.
        allows_changes: whether to only log changes (`--allow_changed_settings`).

    Returns:
        The changes.

    Raises:
        ValueError: something has changed. The message has a table of the changes.
    """
    before = trained_with.read(output_dir)
    if before is None:
        text = "%s has no %s: cannot check whether it was trained with the same settings"
        logging.info(text, output_dir, trained_with.FILE)
        return {}
    _log_others(output_dir, before, run)
    changes = _changes(before, run)
    if step == 0:
        later = {name: pair for name, pair in changes.items() if name not in _DECIDE_START}
        if later:
            text = "%s: nothing has been trained yet, so these changes are accepted:\n%s"
            logging.info(text, output_dir, _table(later))
        changes = {name: pair for name, pair in changes.items() if name in _DECIDE_START}
    return _decide(
        f"{output_dir} contains a run with other settings",
        changes,
        "Choose another --output_dir, or pass --allow_changed_settings to resume that run with the "
        "new settings.",
        allows_changes,
    )


def check_model(
    folder: str, run: TrainedWith, names: Collection[str], allows_changes: bool
) -> Changes:
    """Checks that a model is used with the vocabulary and settings it was trained with.

    Args:
        folder: folder of the model's checkpoint.
        run: identity of the run that uses the model, as returned by `describe`.
        names: the names in the identity that must be the same.
        allows_changes: whether to only log changes (`--allow_changed_settings`).

    Returns:
        The changes.

    Raises:
        ValueError: something has changed. The message has a table of the changes.
    """
    before = trained_with.read(folder)
    if before is None:
        return {}
    changes = _changes(before, run.only(names))
    return _decide(
        f"the model in {folder} was trained with another {' and '.join(changes)}",
        changes,
        "Use the same one, or pass --allow_changed_settings to use the model anyway.",
        allows_changes,
    )


def _newest_step(output_dir: str) -> int | None:
    """Returns the step that a run is resumed from; None if there is no checkpoint."""
    steps = list(store.list_resumable(output_dir))
    if not steps and files.exists(os.path.join(output_dir, store.BEST + ".index")):
        return 1  # any step after 0: the model has been trained
    return steps[-1] if steps else None


def _changes(before: TrainedWith, now: TrainedWith) -> Changes:
    """Returns the differences between two identities in the names that both have."""
    names = sorted(before.identity.keys() & now.identity.keys())
    return {
        name: (before.show(name), now.show(name)) for name in names if not before.is_same(now, name)
    }


def _table(changes: Changes) -> str:
    before, now = ({name: pair[i] for name, pair in changes.items()} for i in (0, 1))
    return differences_table({"before": before, "now": now})


def _decide(what: str, changes: Changes, advice: str, allows_changes: bool) -> Changes:
    """Logs and returns changes that are allowed; raises ValueError if they are not."""
    if changes and not allows_changes:
        raise ValueError(f"{what}:\n{_table(changes)}\n{advice}")
    if changes:
        logging.warning("%s:\n%s\nAccepted by --allow_changed_settings.", what, _table(changes))
    return changes


def _log_others(output_dir: str, before: TrainedWith, now: TrainedWith) -> None:
    """Logs changes that do not affect the result."""
    both = [
        run.others | {n: p for n, p in run.paths.items() if before.is_same(now, n)}
        for run in (before, now)
    ]
    known = both[0].keys() & both[1].keys()
    old, new = ({name: texts[name] for name in known} for texts in both)
    table = differences_table({"before": old, "now": new})
    if table:
        logging.info("%s: changes that do not affect the result:\n%s", output_dir, table)
