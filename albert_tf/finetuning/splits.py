"""The splits of a task's data: opened, read, and their examples with the features made of them.

The rows of a split are in files that flags name, in a folder, or were passed from Python.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from absl import logging

from albert_tf import files
from albert_tf.finetuning.examples import Examples, FeaturesType
from albert_tf.finetuning.settings import SplitSettings
from albert_tf.tables import Table, open_table
from albert_tf.tables.card import Configuration, find_configuration, find_configuration_of
from albert_tf.tables.label_names import find_labels
from albert_tf.tables.splits import (
    ENDINGS,
    best_names,
    describe,
    find_described,
    find_files,
    find_folder,
    find_groups,
    find_split,
)
from albert_tf.tables.text_rows import FORMS_BY_SEPARATOR

if TYPE_CHECKING:  # what needs TensorFlow
    from typing_extensions import Self


DataType = TypeVar("DataType")  # the examples of a split, as the task's `read` returns them
AnySplit: TypeAlias = "Split[Any, Any]"

TRAIN = "train"
DEV = "dev"


@dataclasses.dataclass(frozen=True, eq=False)
class Split(Generic[DataType, FeaturesType]):
    """Examples and their features.

    Attributes:
        name: "train", "dev", "test", or another split that the task predicts.
        data: the examples, as returned by `FineTuningTask.read`.
        features: their features, as returned by `FineTuningTask.make_features`.
    """

    name: str
    data: DataType
    features: FeaturesType


def make_splits(
    make_features: Callable[[DataType, str], FeaturesType], data: Mapping[str, DataType]
) -> dict[str, Split[DataType, FeaturesType]]:
    """Returns splits with their features; splits of the same examples (as in SQuAD) share them.

    Args:
        make_features: returns the features of the examples of a split, given its name.
        data: name → examples of each split.
    """
    splits: dict[str, Split[DataType, FeaturesType]] = {}
    for name, examples in data.items():
        existing = [split.features for split in splits.values() if split.data is examples]
        features = existing[0] if existing else make_features(examples, name)
        splits[name] = Split(name, examples, features)
    return splits


_DEV_ADVICE = "; --dev_fraction=0.1 takes a tenth of the training data instead"


class MissingSplitError(FileNotFoundError):
    """There are no data of a split; the message says what there is."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """The files in which a task expects its splits.

    Attributes:
        names: files relative to the folder, in the layout of before the Hub, of which one is a
            split; if none exists, files are found by the words in their names.
        takes_first: whether, of several of these files, the first one is meant; else they are
            refused.
        configurations: names of the data set, such as "mrpc": of subfolders, of which the first one
            that has data is read instead of the folder, and of configurations in a card.
        suffix: see `find_split`.
        endings: see `find_split`.
        form: format of text whatever a file is called; "" for that of its name.
        quoting: see `open_table`.
    """

    names: Sequence[str] = ()
    takes_first: bool = False
    configurations: Sequence[str] = ()
    suffix: str = ""
    endings: Collection[str] = ENDINGS
    form: str = ""
    quoting: bool = False


@dataclasses.dataclass(frozen=True)
class SplitFiles:
    """The files of a split.

    Attributes:
        paths: the files in order.
        name: which of `Layout.names` it is; "" if it has another name or place.
        configuration: what the card of its repository calls the data set; "" if there is none.
        form: the format of its text that the card says; "" for that of the names.
    """

    paths: Sequence[str]
    name: str = ""
    configuration: str = ""
    form: str = ""


@dataclasses.dataclass(frozen=True)
class SplitTables:
    """Where the rows of each split are.

    Attributes:
        data_dir: the folder; None if there is none.
        named: split → files that a flag names, as `find_files` takes them.
        given: name of a split, such as "validation" → rows that were passed from Python; None to
            read files.
    """

    data_dir: str | None = None
    named: Mapping[str, str] = dataclasses.field(default_factory=dict)
    given: Mapping[str, Table] | None = None

    @classmethod
    def of(
        cls, settings: SplitSettings, data_dir: str | None, given: Mapping[str, Table] | None = None
    ) -> Self:
        """Returns the tables that settings name, or those that are given instead of them."""
        named = {
            "train": settings.train_file,
            "dev": settings.dev_file,
            "test": settings.test_file,
        }
        return cls(data_dir, named, given)

    def open(self, split: str, layout: Layout) -> tuple[Table, str]:
        """Opens the rows of a split.

        Args:
            split: "train", "dev" or "test".
            layout: where the task expects them.

        Returns:
            The table, and which of `layout.names` it is; "" if it has another name or place.

        Raises:
            MissingSplitError: there are none; the message says what the folder has.
            ValueError, OSError: several files may be meant, or a file is missing or damaged.
        """
        if self.given is not None:
            return self._given(self.given, split, layout), ""
        found = self.find(split, layout)
        table = open_described(
            found.paths, layout.form or found.form, layout.quoting, found.configuration
        )
        return table, found.name

    def find(self, split: str, layout: Layout) -> SplitFiles:
        """Returns the files of a split; see `open`.

        What a card says about them comes first, then the files of `layout.names`, then the words in
        the names of files.
        """
        names = [name.lower() for name in layout.configurations]
        pattern = self.named.get(split)
        if pattern:
            found = SplitFiles(find_files(pattern, f"--{split}_file"))
            described = find_configuration_of(found.paths[0], names)
        else:
            found, described = self._in_folder(split, layout, names)
        if described is None:
            return found
        form = FORMS_BY_SEPARATOR[described.separator]
        return dataclasses.replace(found, configuration=described.name, form=form)

    def _in_folder(
        self, split: str, layout: Layout, names: Sequence[str]
    ) -> tuple[SplitFiles, Configuration | None]:
        """Returns the files of a split in the folder, and what a card says about the data set."""
        if not self.data_dir:
            raise MissingSplitError(f"no {split} data: set --data_dir or --{split}_file.")
        folder = find_folder(self.data_dir, layout.configurations, layout.endings)
        described = find_configuration(folder, names)
        if described is None:
            return self._by_words(self.data_dir, folder, split, layout), None
        if not described.patterns:
            return self._by_words(described.base, described.base, split, layout), described
        return self._by_card(self.data_dir, described, split, layout), described

    @staticmethod
    def _given(given: Mapping[str, Table], split: str, layout: Layout) -> Table:
        """Returns the rows of a split that were passed from Python."""
        names = best_names(list(given), split, layout.suffix)
        if not names:
            advice = ""
            if split == DEV:
                advice = "; dev_fraction=0.1 takes a tenth of the training data"
            raise MissingSplitError(
                f"no {split} data: the argument `data` has {', '.join(given) or 'nothing'}{advice}"
            )
        if len(names) > 1:
            raise ValueError(
                f"the argument `data` has {' and '.join(names)}: pass only one for {split}"
            )
        return given[names[0]]

    @staticmethod
    def _by_card(data_dir: str, described: Configuration, split: str, layout: Layout) -> SplitFiles:
        """Returns the files of a split that the card of a repository names."""
        paths = find_described(described, split, layout.suffix, layout.endings)
        if not paths:
            splits = ", ".join(f"{name} ({', '.join(p)})" for name, p in described.patterns.items())
            has_train = best_names(list(described.patterns), TRAIN)
            advice = _DEV_ADVICE if split == DEV and has_train else ""
            raise MissingSplitError(f"no {split} data: {described.card} has {splits}{advice}.")
        name = os.path.relpath(paths[0], data_dir)
        return SplitFiles(paths, name if len(paths) == 1 and name in layout.names else "")

    def _by_words(self, data_dir: str, folder: str, split: str, layout: Layout) -> SplitFiles:
        """Returns the files of a split by their names.

        Args:
            data_dir: the folder of `layout.names`.
            folder: the folder with files of other names.
            split: see `open`.
            layout: see `open`.
        """
        name = find_name(data_dir, layout.names, layout.takes_first)
        if name is not None:
            return SplitFiles([os.path.join(data_dir, name)], name)
        try:
            return SplitFiles(find_split(folder, split, layout.suffix, layout.endings))
        except FileNotFoundError:
            raise MissingSplitError(self._missing(split, layout, folder)) from None

    def _missing(self, split: str, layout: Layout, folder: str) -> str:
        """Returns the message about a missing split."""
        groups = find_groups(folder, layout.endings)
        has = describe(folder, groups)
        other = f"a file with the word {split} in its name that ends in {' '.join(layout.endings)}"
        expected = f"{', '.join(layout.names)}, or {other}" if layout.names else other
        advice = ""
        has_train = any(group.split == TRAIN for group in groups)
        if split == DEV and has_train:
            advice = _DEV_ADVICE
        return f"no {split} data in {folder}: {has}. Expected {expected}{advice}."


def needed_for_labels(error: FileNotFoundError) -> str:
    """Returns the message about missing training data that are read for the labels alone."""
    return f"{str(error).removesuffix('.')}. It is needed for the labels."


def open_described(
    paths: Sequence[str], form: str = "", quoting: bool = False, configuration: str = ""
) -> Table:
    """Opens files of rows, with the names of labels that they have, or that are beside them.

    Args:
        paths: the files; see `open_table`.
        form: see `open_table`.
        quoting: see `open_table`.
        configuration: see `find_labels`.
    """
    table = open_table(paths, form, quoting)
    if table.labels:
        return table
    labels, source = find_labels(paths[0], configuration)
    if not labels:
        return table
    logging.info("%s: the names of the labels are those in %s", table.path, source)
    return table.with_labels(labels, source)


def find_name(data_dir: str, names: Collection[str], takes_first: bool = False) -> str | None:
    """Returns which of some files exists; None if there is none.

    Args:
        data_dir: the folder.
        names: the files, relative to the folder.
        takes_first: whether, of several files, the first one is meant.

    Raises:
        ValueError: there are several files, and the first one is not meant.
    """
    existing = [name for name in names if files.is_file(os.path.join(data_dir, name))]
    if len(existing) > 1 and not takes_first:
        raise ValueError(f"{data_dir} contains {' and '.join(existing)}: keep only one of them")
    return existing[0] if existing else None


ExamplesType = TypeVar("ExamplesType", bound=Examples[Any])

_SEED = 12345  # not `--seed`, with which the runs of a sweep differ


def read_splits(
    splits: Collection[str],
    dev_fraction: float,
    read: Callable[[str], ExamplesType],
    known: Mapping[str, ExamplesType] | None = None,
    group_of: Callable[[Any], Hashable] | None = None,
) -> dict[str, ExamplesType]:
    """Returns the examples of the splits that a run uses.

    Args:
        splits: their names.
        dev_fraction: the fraction of the training examples that is the dev split; 0 to read it.
        read: returns the examples of a split; raises `MissingSplitError` if there are none.
        known: splits that have been read.
        group_of: what examples have in common that must be in the same split, such as a passage.

    Raises:
        ValueError: a dev split is asked for although there is one, or the data are too few.
    """
    data = dict(known or {})
    if dev_fraction and not {TRAIN, DEV}.isdisjoint(splits):
        _refuse_dev(read)
        whole = data.get(TRAIN) or read(TRAIN)
        data[TRAIN], data[DEV] = divide(whole, dev_fraction, group_of)
    return {split: data[split] if split in data else read(split) for split in splits}


def _refuse_dev(read: Callable[[str], ExamplesType]) -> None:
    """Raises a ValueError if there are data of the dev split."""
    try:
        found = read(DEV)
    except MissingSplitError:
        return
    raise ValueError(f"--dev_fraction: there are dev data, {found.path}. Leave out this flag")


def divide(
    whole: ExamplesType,
    fraction: float,
    group_of: Callable[[Any], Hashable] | None = None,
) -> tuple[ExamplesType, ExamplesType]:
    """Returns training and dev examples, each in the order of the file.

    The same examples are chosen in every run: at random, with a fixed seed.

    Args:
        whole: all examples.
        fraction: the fraction that becomes the dev split.
        group_of: see `read_splits`.

    Raises:
        ValueError: one of them would be empty.
    """
    keys: Sequence[Hashable] = range(len(whole))
    if group_of is not None:
        keys = list(map(group_of, whole.examples))
    groups = list(dict.fromkeys(keys))
    count = round(fraction * len(groups))
    if not 0 < count < len(groups):
        what = "examples" if group_of is None else "passages"
        raise ValueError(
            f"--dev_fraction={fraction:g} of {len(groups)} {what} in {whole.path} leaves none for "
            f"{'training' if count else 'evaluation'}"
        )
    chosen = set(random.Random(_SEED).sample(groups, count))
    parts = [
        [place for place, key in enumerate(keys) if (key in chosen) == is_dev]
        for is_dev in (False, True)
    ]
    logging.info(
        "--dev_fraction=%g: %d of %d examples in %s are for evaluation, not for training",
        *(fraction, len(parts[1]), len(whole), whole.path),
    )
    train, dev = map(whole.take, parts)
    return train, dev
