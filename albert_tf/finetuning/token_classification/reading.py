"""Reads the tags and the sentences of each split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.split_reading import read_splits
from albert_tf.finetuning.split_tables import Layout, SplitTables, open_described
from albert_tf.finetuning.token_classification.sentence_rows import read_rows
from albert_tf.finetuning.token_classification.sentences import Sentence, read_columns
from albert_tf.finetuning.token_classification.settings import RAW, Settings
from albert_tf.finetuning.token_classification.tags import Tags, find_tags, recorded_tags
from albert_tf.tables import Table
from albert_tf.tables.table_files import ending_of

EXTENSIONS = (".txt", ".conll", ".tsv")
_TABLES = (".parquet", ".arrow", ".jsonl", ".json", ".csv")


def read_sentences(
    settings: Settings,
    split: str,
    labels: Sequence[str] = (),
    given: Mapping[str, Table] | None = None,
) -> Examples[Sentence]:
    """Reads the sentences of a split, from a file of columns or from rows with lists.

    Args:
        settings: the folder or the files, and the columns.
        split: "train", "dev" or "test"; in a test split, labels may be missing.
        labels: all valid labels; () to accept any.
        given: split → rows that are read instead of files; None to read the files.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: several files may be meant, or one is invalid; see `read_columns` and
            `read_rows`.
    """
    tables = SplitTables.of(settings, settings.data_dir, given)
    names = [split + extension for extension in EXTENSIONS]
    layout = Layout(names, endings=(*EXTENSIONS, *_TABLES))
    is_test = split == "test"
    if given is not None:
        table, _ = tables.open(split, layout)
        return read_rows(table, is_test, labels, settings.tag_column)
    paths, _ = tables.find(split, layout)
    if ending_of(paths[0]) in _TABLES:
        return read_rows(open_described(paths), is_test, labels, settings.tag_column)
    if len(paths) > 1:
        raise ValueError(
            f"{paths[0]}: expected one file with the {split} data, got {paths[1]} as well"
        )
    return read_columns(paths[0], settings, is_test, labels)


def read_data(
    settings: Settings,
    trained: RunFolder | None = None,
    given: Mapping[str, Table] | None = None,
) -> tuple[Tags, dict[str, Examples[Sentence]]]:
    """Returns the tags, and the sentences of each split; see `read_sentences`.

    The tags are those of the trained model, unless it is trained now, or else those of the train
    file.

    Args:
        settings: the settings of the program.
        trained: the folder of the trained model; None if there is none.
        given: split → rows that are read instead of files; None to read the files.

    Raises:
        FileNotFoundError: there is no file of a split, or no train file.
        ValueError: a file is invalid, or its label column does not contain labels.
    """
    is_raw = settings.tag_scheme == RAW
    tags = None
    if trained is not None and not settings.do_train:
        tags = recorded_tags(trained, is_raw)
    data = {}
    if tags is None:
        try:
            data["train"] = read_sentences(settings, "train", given=given)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} It is needed for the labels.") from None
        tags = find_tags(data["train"], is_raw)
    labels = tags.labels

    def read(split: str) -> Examples[Sentence]:
        return read_sentences(settings, split, labels, given)

    return tags, read_splits(settings.splits, settings.dev_fraction, read, data)
