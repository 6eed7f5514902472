"""Tagging schemes: the labels of tokens, the spans that they mark, and the metrics of spans."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import TOKEN_CLASSIFICATION
from albert_tf.finetuning import rows
from albert_tf.finetuning.rows import BadRowError, Examples, Row, RowReports, parse_text
from albert_tf.finetuning.token_classification import AUTO, RAW, Settings
from albert_tf.model.tokenization import find_words, is_cjk, word_kind

# Reads sentences with a label for each token.
#
# Files have one token per line, with the token in the first column and its label in the last one,
# and blank lines between sentences. In Chinese, a token is often a character:
#
#     U.N.      B-ORG
#     official  O
#     Ekeus     B-PER

EXTENSIONS = (".txt", ".conll", ".tsv")
DOCUMENT_START = "-DOCSTART-"
_TOKENS = "tokens"


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """The tokens of a sentence and their labels.

    Attributes:
        line: line number of the first token in the file, starting at 1; each token has its own
            line.
        tokens: one or more tokens.
        labels: the label of each token; None if a test file does not have it.
    """

    line: int
    tokens: tuple[str, ...]
    labels: tuple[str | None, ...]

    @property
    def is_labeled(self) -> bool:
        """Whether every token has a label."""
        return None not in self.labels

    @property
    def content(self) -> tuple[tuple[str | None, ...], ...]:
        """The tokens and labels."""
        return self.tokens, self.labels


def read_sentences(
    settings: Settings, split: str, labels: Sequence[str] = ()
) -> Examples[Sentence]:
    """Reads the sentences of a split.

    Args:
        settings: the folder and the columns.
        split: "train", "dev" or "test"; in a test file, labels may be missing.
        labels: all valid labels; () to accept any.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there are several files or no sentence, or a line has no token, no label or an
            unknown label; the message names the file and the lines.
    """
    existing = rows.existing_files(settings.data_dir, split, EXTENSIONS)
    if not existing:
        names = " or ".join(split + extension for extension in EXTENSIONS)
        raise FileNotFoundError(f"{settings.data_dir}: contains no {names}")
    path = os.path.join(settings.data_dir, existing[0])
    reports = RowReports(path)
    sentences = []
    for first_line, lines in _split_sentences(files.read_text(path)):
        parsed = reports.parsed(
            enumerate(lines, first_line),
            lambda line, _: _parse_line(line, settings, labels, split == "test"),
        )
        words = [word for _, word in parsed]
        tokens = tuple(token for token, _ in words)
        gold = tuple(label for _, label in words)
        sentences.append(Sentence(first_line, tokens, gold))
        if None in gold:
            reports.note(first_line, "no known label, so the test split is not evaluated")
    return reports.examples(split, sentences, "sentence")


def _split_sentences(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the line number of the first line, starting at 1, and the lines of each sentence."""
    lines: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.strip(" \t\r") and not line.startswith(DOCUMENT_START):
            lines.append(line.rstrip("\r"))
        elif lines:
            yield number - len(lines), lines
            lines = []


def _parse_line(
    line: str, settings: Settings, labels: Sequence[str], is_test: bool
) -> tuple[str, str | None]:
    """Returns the token and its label, which is None if a test file does not have it."""
    # Not `split()`, because an ideographic space can be a token of Chinese text.
    cells = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
    count = len(cells)
    place, label_place = (
        column if column >= 0 else count + column
        for column in (settings.token_column, settings.label_column)
    )
    if not 0 <= place < count or not cells[place]:
        raise BadRowError(f"no token in column {settings.token_column} of {count}")
    label = ""
    if 0 <= label_place < count and label_place != place:
        label = cells[label_place].strip()
    if label and (label in labels or not labels):
        return cells[place], label
    if is_test:
        return cells[place], None
    if not label:
        raise BadRowError(f"no label in column {settings.label_column} of {count}")
    raise BadRowError(f"unknown label {files.quote(label)}; expected {rows.abbreviate(labels)}")


def parse_words(row: Row) -> str | list[str]:
    """Returns the text or the list of tokens of a row."""
    if not isinstance(row, dict) or _TOKENS not in row:
        return parse_text(row)
    tokens = row[_TOKENS]
    if not isinstance(tokens, list):
        raise BadRowError(f"{_TOKENS!r}: expected a list, got {json.dumps(tokens)[:50]}")
    return [rows.check_text(token, "a token") for token in tokens]


OUTSIDE = "O"  # the label of tokens outside of spans
# Tagging scheme → the first letters of its other labels.
LETTERS = {
    "iob2": set("BI"),
    "iob1": set("BI"),
    "bioes": set("BIES"),  # also called IOBES
    "bilou": set("BILU"),  # also called BIOUL and BILUO
    "bmes": set("BMES"),
    "bmewo": set("BMEW"),
}
# A span goes on if one of the first letters is followed by one of the second.
_INSIDE = set("BIM")
_CONTINUING = set("IMEL")
# How tokens were cut from text.
WORDS = "words"
CHARACTERS = "characters"

Span = tuple[str, int, int]  # type, first token, last token + 1


@dataclasses.dataclass(frozen=True)
class Tags:
    """The labels of a model and their tagging scheme.

    Attributes:
        labels: the labels, in the order of their ids.
        scheme: how labels mark spans: a key of LETTERS, or RAW.
        units: what the tokens of the training data are, and so the tokens of raw text: WORDS as
            those of `find_words`, or CHARACTERS.
    """

    labels: tuple[str, ...]
    scheme: str
    units: str = WORDS


def recognize_tags(train: Examples[Sentence], scheme: str = AUTO) -> Tags:
    """Returns the labels of the training data, sorted, and their tagging scheme.

    Raises:
        ValueError: there are fewer than two labels or too many, or a label does not belong to the
            scheme (or to any scheme); the message names it.
    """
    lines: dict[str, int] = {}
    for sentence in train.examples:
        for line, label in enumerate(sentence.labels, sentence.line):
            lines.setdefault(str(label), line)
    labels = tuple(sorted(lines))
    rows.check_number_of_labels(labels, train.path)
    units = find_units(train)
    if scheme == RAW:
        return Tags(labels, RAW, units)
    tried = [scheme] if scheme != AUTO else list(LETTERS)
    strange = {name: _labels_outside_of(name, labels) for name in tried}
    fitting = next((name for name in tried if not strange[name]), None)
    if fitting is None:
        label = min(strange.values(), key=len)[0]
        raise ValueError(
            f"{train.path}, line {lines[label]}: label {files.quote(label)} does not belong to the "
            f"scheme {' or '.join(tried)}. Is --label_column right? If labels do not mark spans "
            "(for example, parts of speech), set --tag_scheme=raw."
        )
    if scheme == AUTO and fitting == "iob2" and _has_iob1(train):
        fitting = "iob1"
    return Tags(labels, fitting, units)


def find_units(train: Examples[Sentence]) -> str:
    """Returns WORDS or CHARACTERS, by what letters and digits next to each other are.

    A Chinese character is a token in both. Evidence of words are tokens of several characters;
    evidence of characters are neighbors of one letter or digit each, such as 1 9 8 7.
    """
    num_words = num_characters = 0
    for sentence in train.examples:
        single = [len(token) == 1 for token in sentence.tokens]
        num_words += single.count(False)
        in_word = [
            is_single and word_kind(token) == "a"
            for token, is_single in zip(sentence.tokens, single, strict=True)
        ]
        num_characters += sum(map(bool.__and__, in_word, in_word[1:]))
    return WORDS if num_words > num_characters else CHARACTERS


def cut(text: str, units: str) -> list[tuple[str, int]]:
    """Returns the tokens of raw text, and the index of the first character of each."""
    if units == CHARACTERS:
        return [(char, place) for place, char in enumerate(text) if not char.isspace()]
    return find_words(text)


def join_tokens(tokens: Sequence[str], units: str) -> str:
    """Returns the text of tokens: with spaces between words, but not beside Chinese characters.

    >>> join_tokens(["New", "York"], WORDS), join_tokens(["北", "京"], WORDS)
    ('New York', '北京')
    """
    text = ""
    for token in tokens:
        is_spaced = text and units == WORDS and not (is_cjk(text[-1]) or is_cjk(token[:1] or " "))
        text += f" {token}" if is_spaced else token
    return text


def _labels_outside_of(scheme: str, labels: Sequence[str]) -> list[str]:
    """Returns the labels that do not belong to a scheme."""
    allowed = LETTERS[scheme]
    return [x for x in labels if x != OUTSIDE and x.partition("-")[0] not in allowed]


def guess_tags(labels: Sequence[str]) -> Tags:
    """Returns labels with the first scheme that all of them belong to, or RAW if there is none."""
    fitting = (name for name in LETTERS if not _labels_outside_of(name, labels))
    return Tags(tuple(labels), next(fitting, RAW))


def _has_iob1(train: Examples[Sentence]) -> bool:
    """Returns whether any span starts with "I-", as in IOB1 unless it follows one of its type."""
    return any(
        str(sentence.labels[begin]).startswith("I")
        for sentence in train.examples
        for _, begin, _ in find_spans(sentence.labels)
    )


def find_spans(labels: Sequence[str | None], scheme: str = AUTO) -> list[Span]:
    """Returns the spans of a sentence by the rules of conlleval, which cover all schemes.

    After B, I or M, a span is continued by I, M, E or L of the same type. Any other label but O
    starts a new span, so that invalid label sequences also define spans.

    Args:
        labels: the label of each token.
        scheme: with RAW, every token with a label other than O is a span, as with `conlleval -r`.

    >>> find_spans(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
    [('PER', 0, 2), ('LOC', 3, 4), ('LOC', 4, 5)]
    """
    spans = []
    begin = 0
    last_letter = OUTSIDE
    last_kind = ""
    for place, label in enumerate([*labels, OUTSIDE]):
        letter, _, kind = str(label).partition("-")
        if scheme == RAW and label != OUTSIDE:
            letter = "S"
            kind = str(label)
        is_continued = last_letter in _INSIDE and letter in _CONTINUING and kind == last_kind
        if not is_continued:
            if last_letter != OUTSIDE:
                spans.append((last_kind, begin, place))
            begin = place
        last_letter = letter
        last_kind = kind
    return spans


def span_metrics(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], scheme: str = AUTO
) -> dict[str, float]:
    """Returns precision, recall and F1 of spans, and the accuracy of labels, all in [0, 1].

    As in conlleval, a span is correct if its type and both ends are, and 0/0 counts as 0.
    `precision_PER` etc. are the metrics of the spans of a type.

    Args:
        gold: the true labels of each sentence.
        predicted: the predicted labels of each sentence.
        scheme: see `find_spans`.
    """
    num_gold: Counter[str] = Counter()
    num_predicted: Counter[str] = Counter()
    num_right: Counter[str] = Counter()
    hits = 0
    for labels, guesses in zip(gold, predicted, strict=True):
        spans = set(find_spans(labels, scheme))
        guessed = set(find_spans(guesses, scheme))
        num_gold.update(kind for kind, _, _ in spans)
        num_predicted.update(kind for kind, _, _ in guessed)
        num_right.update(kind for kind, _, _ in spans & guessed)
        hits += sum(label == guess for label, guess in zip(labels, guesses, strict=True))
    metrics = _ratios(num_right.total(), num_predicted.total(), num_gold.total())
    metrics["accuracy"] = hits / sum(map(len, gold))
    for kind in sorted({*num_gold, *num_predicted} - {""}):
        ratios = _ratios(num_right[kind], num_predicted[kind], num_gold[kind])
        metrics.update({f"{name}_{kind}": value for name, value in ratios.items()})
    return metrics


def _ratios(num_right: int, num_predicted: int, num_gold: int) -> dict[str, float]:
    """Returns precision, recall and F1."""
    return {
        "precision": num_right / num_predicted if num_predicted else 0.0,
        "recall": num_right / num_gold if num_gold else 0.0,
        "f1": 2 * num_right / (num_predicted + num_gold) if num_predicted + num_gold else 0.0,
    }


def find_tags(settings: Settings, trained: RunFolder | None = None) -> Tags:
    """Returns the tags that a trained model has, or else those of the train file.

    Args:
        settings: the settings of the program.
        trained: the folder of the trained model; None if there is none.

    Raises:
        FileNotFoundError: there is no train file.
        ValueError: the train file is invalid, or its label column does not contain labels.
    """
    tags = None if trained is None else recorded_tags(trained)
    if tags is None:
        try:
            train = read_sentences(settings, "train")
        except FileNotFoundError as error:
            place = "" if trained is None else f", nor labels in {trained.path}"
            raise FileNotFoundError(f"{error}{place}; it is needed for the labels") from None
        return recognize_tags(train, settings.tag_scheme)
    if settings.tag_scheme != AUTO:
        tags = dataclasses.replace(tags, scheme=settings.tag_scheme)
    return tags


def recorded_tags(folder: RunFolder) -> Tags | None:
    """Returns the tags that the record of a run has; None if it is not one of this task."""
    task = folder.record.task
    if folder.record.task_name != TOKEN_CLASSIFICATION or not folder.record.labels:
        return None
    scheme = task.get("tag_scheme") or guess_tags(folder.record.labels).scheme
    return Tags(folder.record.labels, scheme, task.get("token_units", WORDS))


def read_data(
    settings: Settings, trained: RunFolder | None = None
) -> tuple[Tags, dict[str, Examples[Sentence]]]:
    """Returns the tags, and the sentences of each split; see `find_tags` and `read_sentences`.

    The tags are those of the trained model, unless it is trained now.
    """
    tags = find_tags(settings, None if settings.do_train else trained)
    return tags, {split: read_sentences(settings, split, tags.labels) for split in settings.splits}
