"""Reads the tags and the sentences of each split, from files of columns or from rows with lists.

Rows are as the Hub has them:

    {"tokens": ["U.N.", "official", "Ekeus"], "ner_tags": [3, 0, 1]}

The tags are names, or ids whose names the metadata of the table or `--tag_names` have. In rows of
Universal Dependencies, ranges of tokens and empty nodes are no tokens, as in CoNLL-U; and a row
without tokens is no sentence. CLUENER's rows are read too: the tokens are the characters of the
text, except white space, with labels in the scheme IOB2.

    {"text": "浙商银行", "label": {"company": {"浙商银行": [[0, 3]]}}}
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

from absl import logging

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning import rows
from albert_tf.finetuning.columns import LABEL, TOKENS, Field, places_of
from albert_tf.finetuning.examples import Examples, Unlabeled, encode_examples, is_none
from albert_tf.finetuning.rows import BadRowError, Column, Row, cell, check_text
from albert_tf.finetuning.splits import (
    TRAIN,
    Layout,
    SplitTables,
    needed_for_labels,
    open_described,
    read_splits,
)
from albert_tf.finetuning.token_classification.sentences import (
    Sentence,
    SentenceReader,
    named_tag,
    read_columns,
)
from albert_tf.finetuning.token_classification.settings import RAW, Settings
from albert_tf.finetuning.token_classification.spans import OUTSIDE
from albert_tf.finetuning.token_classification.tags import TagFinder, Tags, recorded_tags
from albert_tf.finetuning.token_classification.token_lines import DOCUMENT_START
from albert_tf.finetuning.token_classification.windows import make_windows
from albert_tf.model.tokenization import Tokenizer
from albert_tf.tables import LabelNames, Table
from albert_tf.tables.compression import ending_of
from albert_tf.tables.splits import ENDINGS, ENDINGS_OF_SPLITS

TAGS = Field("tags", ("ner_tags", "tags", "labels", "ner"), flag="tag_column", takes_first=True)
_NO_TAG = (-1, -100)  # in place of the id of a tag, as in `-100` of transformers
# Columns of Universal Dependencies: the part of speech, which ranges have not, and the number of
# the token that a token depends on, which empty nodes have not either.
_UPOS, _HEAD = "upos", "head"
_NOT_ANNOTATED = "_"


@dataclasses.dataclass
class _RowReader:
    """Converts rows to sentences; see `read_rows`.

    Attributes:
        table: the rows.
        is_test: whether tags may be missing.
        labels: all valid labels; () to accept any.
        tag_column: the column of the tags in the settings; None to find it by its name.
        tag_names: the names of tags that are ids, unless the table has them; None if not given.
        unlabeled: where the first tokens without a known tag are, of each sentence that has some.
        left_out: what is left out → where.
        num_overlapping: the number of spans that are left out because they overlap others.
    """

    table: Table
    is_test: bool
    labels: Sequence[str]
    tag_column: str | None
    tag_names: LabelNames | None
    unlabeled: Unlabeled
    left_out: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def sentences(self) -> Iterator[Sentence]:
        """Yields the sentences; see `SentenceReader`."""
        count = 0
        for _, sentence in rows.parse_rows(self.table.place, self.table.objects(), self.parse):
            if sentence is not None:
                count += 1
                yield sentence
        self._report(count)

    def parse(self, row: Row, number: int) -> Sentence | None:
        """Returns the sentence of a row; None for a mark between documents, and without tokens.

        Raises:
            BadRowError: the row has no list of tokens, or other tags than those of the labels.
        """
        if not isinstance(row, dict):
            raise BadRowError("expected a list of tokens, in JSON, Parquet or Arrow")
        places = places_of(row)
        column = TOKENS.find(places)
        if column is None and "text" in places and (self.is_test or "label" in places):
            label_column = LABEL.find(places, "label")
            tokens, tags = self._of_spans(row, str(places["text"]), label_column, number)
        elif column is None:
            raise TOKENS.missing(row)
        else:
            tokens = _tokens(cell(row, column))
            tags = self._tags(row, str(column), places, len(tokens)) if tokens else []
            tokens, tags = self._annotated(row, places, tokens, tags, number)
        if tokens == [DOCUMENT_START]:
            return None
        if not tokens:
            self._leave_out("sentences without a token", number)
            return None
        known = [self._checked(tag, index) for index, tag in enumerate(tags)]
        if None in known:
            self.unlabeled.add(self.table.place(number))
        return Sentence(number, tuple(tokens), tuple(known))

    def _leave_out(self, what: str, number: int, count: int = 1) -> None:
        self.left_out.setdefault(what, []).extend([self.table.place(number)] * count)

    def _report(self, num_sentences: int) -> None:
        """Logs which tags are not known, and what is left out."""
        self.unlabeled.report(num_sentences)
        for what, places in self.left_out.items():
            logging.warning(
                "%s: %d %s are left out; the first is in %s",
                *(
                    self.table.path,
                    len(places),
                    what,
                    places[0].removeprefix(f"{self.table.path}, "),
                ),
            )

    def _annotated(
        self,
        row: files.JsonObject,
        places: Mapping[str, Column],
        tokens: list[str],
        tags: list[str | None],
        number: int,
    ) -> tuple[list[str], list[str | None]]:
        """Returns the tokens and tags without what is no token in Universal Dependencies."""
        upos = self._names_of(row, places, _UPOS, len(tokens))
        if upos is None:
            return tokens, tags
        heads = self._names_of(row, places, _HEAD, len(tokens))
        if heads is None or not any(head.isdecimal() for head in heads):
            heads = ["0"] * len(tokens)
        kept = [
            at
            for at, (part, head) in enumerate(zip(upos, heads, strict=True))
            if part != _NOT_ANNOTATED and head not in (_NOT_ANNOTATED, "None")
        ]
        if len(kept) < len(tokens):
            what = "ranges of tokens and empty nodes, which are no tokens,"
            self._leave_out(what, number, len(tokens) - len(kept))
        return [tokens[at] for at in kept], [tags[at] for at in kept]

    def _names_of(
        self, row: files.JsonObject, places: Mapping[str, Column], name: str, count: int
    ) -> list[str] | None:
        """Returns the values of a list as texts; None if there is no list of this length."""
        values = row[str(places[name])] if name in places else None
        if not isinstance(values, list) or len(values) != count:
            return None
        names = self.table.labels.get(str(places[name]))
        return [str(value if names is None else names.decode(value)) for value in values]

    def _checked(self, tag: str | None, index: int) -> str | None:
        """Returns a tag; None if a test split has none or an unknown one."""
        if tag is not None and (tag in self.labels or not self.labels):
            return tag
        if self.is_test:
            return None
        if tag is None:
            raise BadRowError(f"token {index + 1} has no tag")
        expected = rows.abbreviate(self.labels)
        raise BadRowError(f"unknown label {files.quote(tag)}; expected {expected}")

    def _tags(
        self, row: files.JsonObject, tokens: str, places: Mapping[str, Column], count: int
    ) -> list[str | None]:
        column = self._tag_column(row, tokens, places, count)
        if column is None:
            return [None] * count
        values = cell(row, column)
        if self.is_test and is_none(values):
            return [None] * count
        if not isinstance(values, list) or len(values) != count:
            raise BadRowError(
                f"{column!r} is {files.quote(values)}, expected a list of {count} tags, one for "
                "each token"
            )
        names = self.table.labels.get(column)
        if names and self.tag_names and self.tag_names.names != names.names:
            raise BadRowError(
                f"--tag_names has {files.quote_all(self.tag_names.names)}, but the data have "
                f"{files.quote_all(names.names)}: leave out the flag"
            )
        return [_tag(value, column, names or self.tag_names) for value in values]

    def _tag_column(
        self, row: files.JsonObject, tokens: str, places: Mapping[str, Column], count: int
    ) -> str | None:
        """Returns the column of the tags; None if a test split has none.

        Raises:
            BadRowError: there is none, or several may be meant.
        """
        found = TAGS.find(places, self.tag_column)
        if found is not None:
            return str(found)
        others = [
            name
            for name, value in row.items()
            if name != tokens and isinstance(value, list) and len(value) == count
        ]
        if self.tag_column is None and len(others) == 1 and count > 1:
            return others[0]
        if self.is_test:
            return None
        error = TAGS.missing(row, self.tag_column)
        raise BadRowError(f"{files.quote_all(others)} may be meant; {error}") if others else error

    def _of_spans(
        self, row: files.JsonObject, text_column: str, label_column: Column | None, number: int
    ) -> tuple[list[str], list[str | None]]:
        """Returns the characters of a text, and the tags of its spans, as CLUENER has them."""
        text = check_text(row[text_column], repr(text_column))
        spans = None if label_column is None else row[str(label_column)]
        is_known = not is_none(spans)
        tags: list[str | None] = [OUTSIDE if is_known else None] * len(text)
        for begin, end, kind in _spans(spans, text) if is_known else ():
            if any(tag != OUTSIDE for tag in tags[begin:end]):
                self._leave_out("spans, which overlap others,", number)
                continue
            tags[begin:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - begin - 1)]
        kept = [place for place, character in enumerate(text) if not character.isspace()]
        return [text[place] for place in kept], [tags[place] for place in kept]


def _tokens(values: object) -> list[str]:
    if not isinstance(values, list):
        raise BadRowError(f"the tokens are {files.quote(values)}, expected a list")
    for number, value in enumerate(values, 1):
        token = check_text(value, f"token {number}")
        if not token or any(character in token for character in "\t\n\r"):
            raise BadRowError(
                f"token {number} is {files.quote(token)}, expected text without tabs and line "
                "breaks"
            )
    return values


def _tag(value: object, column: str, names: LabelNames | None) -> str | None:
    """Returns a tag by its name or id; None if it stands for none."""
    if value is None or (value in _NO_TAG and not isinstance(value, bool)):
        return None
    if isinstance(value, str):
        return named_tag(value.strip(), names) or None
    if names is None or not isinstance(value, int):
        raise BadRowError(
            f"{column!r} has {files.quote(value)} without a name: pass the names of the tags in "
            "the order of their ids, as --tag_names=O,B-PER,I-PER"
        )
    if not 0 <= value < len(names.names):
        raise BadRowError(f"tag {value}: expected an id below {len(names.names)}")
    return names.names[value]


def _spans(value: object, text: str) -> list[tuple[int, int, str]]:
    """Returns (begin, end, type) of each span, from the first on; of several, the longest first.

    Args:
        value: type → text of the span → list of [first character, last character].
        text: the text.
    """
    found = []
    try:
        for kind, places in dict(value).items():  # type: ignore[call-overload]
            for word, ranges in (places or {}).items():
                for first, last in ranges or []:
                    if text[first : last + 1] != word:
                        raise BadRowError(
                            f"the text does not have {files.quote(word)} at characters {first} to "
                            f"{last}"
                        )
                    found.append((first, last + 1, str(kind)))
    except (AttributeError, TypeError, ValueError) as error:
        if isinstance(error, BadRowError):
            raise
        raise BadRowError(
            f"label {files.quote(value)}: expected type → text → list of [first, last] character"
        ) from None
    return sorted(found, key=lambda span: (span[0], -span[1]))


def read_rows(
    table: Table,
    is_test: bool,
    labels: Sequence[str] = (),
    tag_column: str | None = None,
    tag_names: Sequence[str] = (),
) -> SentenceReader:
    """Reads the sentences of rows.

    Args:
        table: the rows.
        is_test: whether tags may be missing.
        labels: all valid labels; () to accept any.
        tag_column: the name of the column of the tags; None for a usual name.
        tag_names: the names of tags that are ids, in their order; () if they are not given.
    """
    unlabeled = Unlabeled(table.path, is_test=True)
    names = LabelNames(tuple(tag_names), is_list=True) if tag_names else None
    reader = _RowReader(table, is_test, labels, tag_column, names, unlabeled)
    return SentenceReader(table.path, reader.sentences(), unlabeled)


EXTENSIONS = (".txt", ".conll", ".tsv", ".conllu", ".bio", ".iob", ".iob2", ".bioes", ".bmes")
_TABLES = tuple(ending for ending in ENDINGS if ending not in EXTENSIONS)


def open_sentences(
    settings: Settings,
    split: str,
    labels: Sequence[str] = (),
    given: Mapping[str, Table] | None = None,
) -> SentenceReader:
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
    layout = Layout(names, endings=(*EXTENSIONS, *ENDINGS_OF_SPLITS, *_TABLES))
    is_test = split == "test"
    if given is not None:
        table, _ = tables.open(split, layout)
        return read_rows(table, is_test, labels, settings.tag_column, settings.tag_names)
    found = tables.find(split, layout)
    paths = found.paths
    if ending_of(paths[0]) in _TABLES:
        table = open_described(paths, found.form, configuration=found.configuration)
        return read_rows(table, is_test, labels, settings.tag_column, settings.tag_names)
    if len(paths) > 1:
        raise ValueError(
            f"{paths[0]}: expected one file with the {split} data, got {paths[1]} as well"
        )
    return read_columns(paths[0], settings, is_test, labels)


def read_data(
    settings: Settings,
    trained: RunFolder | None = None,
    given: Mapping[str, Table] | None = None,
    tokenizer: Tokenizer | None = None,
) -> tuple[Tags, dict[str, Examples[Sentence]]]:
    """Returns the tags, and the sentences of each split; see `open_sentences`.

    The tags are those of the trained model, unless it is trained now, or else those of the train
    file.

    Args:
        settings: the settings of the program.
        trained: the folder of the trained model; None if there is none.
        given: split → rows that are read instead of files; None to read the files.
        tokenizer: what tokenizes training data, whose tokens are then forgotten; None to keep them.

    Raises:
        FileNotFoundError: there is no file of a split, or no train file.
        ValueError: a file is invalid, or its label column does not contain labels.
    """
    is_raw = settings.tag_scheme == RAW
    tags = None
    if trained is not None and not settings.do_train:
        tags = recorded_tags(trained, is_raw)
    encode = None
    if tokenizer is not None and settings.do_train:
        encode = functools.partial(
            make_windows, tokenizer=tokenizer, max_seq_length=settings.max_seq_length
        )
    data: dict[str, Examples[Sentence]] = {}
    if tags is None:
        finder = TagFinder()
        try:
            reader = open_sentences(settings, TRAIN, given=given)
        except FileNotFoundError as error:
            raise FileNotFoundError(needed_for_labels(error)) from None
        sentences = map(finder.add, reader.sentences)
        if encode is None or settings.dev_fraction:
            data[TRAIN] = Examples(reader.path, list(sentences), True)
        else:
            data[TRAIN] = encode_examples(reader.path, sentences, encode)
        tags = finder.tags(reader.path, is_raw)
    labels = tags.labels

    def read(split: str) -> Examples[Sentence]:
        return open_sentences(settings, split, labels, given).read_all()

    data = read_splits(settings.splits, settings.dev_fraction, read, data)
    if encode is not None and settings.dev_fraction:
        data[TRAIN] = encode_examples(data[TRAIN].path, data[TRAIN].examples, encode)
    return tags, data
