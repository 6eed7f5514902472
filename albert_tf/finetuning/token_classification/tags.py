"""Tagging schemes: the labels of tokens, the spans that they mark, and the metrics of spans."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Sequence

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import TOKEN_CLASSIFICATION
from albert_tf.finetuning import rows
from albert_tf.finetuning.rows import BadRowError, Examples, Row, parse_text
from albert_tf.finetuning.token_classification import RAW, Settings
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

    line: int = dataclasses.field(repr=False)
    tokens: tuple[str, ...]
    labels: tuple[str | None, ...]


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
    path = rows.find_file(settings.data_dir, split, EXTENSIONS)
    numbered = [
        (number, line.rstrip("\r"))
        for number, line in enumerate(files.read_text(path).split("\n"), 1)
        if line.strip(" \t\r") and not line.startswith(DOCUMENT_START)
    ]
    sentences: list[tuple[int, list[str], list[str | None]]] = []
    last = 0  # line of the last token
    for number, (token, label) in rows.parse_rows(
        path, numbered, lambda line, _: _parse_line(line, settings, labels, split == "test")
    ):
        if number > last + 1 or not sentences:
            sentences.append((number, [], []))
        sentences[-1][1].append(token)
        sentences[-1][2].append(label)
        last = number
    found = [Sentence(line, tuple(tokens), tuple(gold)) for line, tokens, gold in sentences]
    return Examples(path, found, all(None not in sentence.labels for sentence in found))


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
# The first letters of all other labels in the schemes IOB1, IOB2, BIOES (also called IOBES), BILOU
# (BIOUL, BILUO), BMES and BMEWO.
_LETTERS = set("BIESMLUW")
# A span goes on if one of the first letters is followed by one of the second.
_INSIDE = set("BIM")
_CONTINUING = set("IMEL")
# How tokens were cut from text.
WORDS = "words"
CHARACTERS = "characters"

Span = tuple[str, int, int]  # type, first token, last token + 1


@dataclasses.dataclass(frozen=True)
class Tags:
    """The labels of a model, and what they are labels of.

    Attributes:
        labels: the labels, in the order of their ids.
        is_raw: whether each token with a label other than O is a span of its own, because labels do
            not mark the beginning and the inside of spans.
        units: what the tokens of the training data are, and so the tokens of raw text: WORDS as
            those of `find_words`, or CHARACTERS.
    """

    labels: tuple[str, ...]
    is_raw: bool = False
    units: str = WORDS


def find_tags(train: Examples[Sentence], is_raw: bool = False) -> Tags:
    """Returns the labels of the training data, sorted.

    Raises:
        ValueError: there are fewer than two labels or too many, or one does not mark spans; the
            message names it.
    """
    lines: dict[str, int] = {}
    for sentence in train.examples:
        for line, label in enumerate(sentence.labels, sentence.line):
            lines.setdefault(str(label), line)
    labels = tuple(sorted(lines))
    rows.check_number_of_labels(labels, train.path)
    strange = [label for label in labels if not _marks_spans(label)]
    if strange and not is_raw:
        raise ValueError(
            f"{train.path}, line {lines[strange[0]]}: label {files.quote(strange[0])} is neither O "
            f"nor one of {', '.join(sorted(_LETTERS))} with a type, such as B-PER. Is "
            "--label_column right? If labels do not mark spans (for example, parts of speech), set "
            "--tag_scheme=raw."
        )
    return Tags(labels, is_raw, find_units(train))


def _marks_spans(label: str) -> bool:
    """Returns whether a label is one of a tagging scheme."""
    return label == OUTSIDE or label.partition("-")[0] in _LETTERS


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


def find_spans(labels: Sequence[str | None], is_raw: bool = False) -> list[Span]:
    """Returns the spans of a sentence by the rules of conlleval, which cover all schemes.

    After B, I or M, a span is continued by I, M, E or L of the same type. Any other label but O
    starts a new span, so that invalid label sequences also define spans.

    Args:
        labels: the label of each token.
        is_raw: whether every token with a label other than O is a span, as with `conlleval -r`.

    >>> find_spans(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
    [('PER', 0, 2), ('LOC', 3, 4), ('LOC', 4, 5)]
    """
    spans = []
    begin = 0
    last_letter = OUTSIDE
    last_kind = ""
    for place, label in enumerate([*labels, OUTSIDE]):
        letter, _, kind = str(label).partition("-")
        if is_raw and label != OUTSIDE:
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
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], is_raw: bool = False
) -> dict[str, float]:
    """Returns precision, recall and F1 of spans, and the accuracy of labels, all in [0, 1].

    As in conlleval, a span is correct if its type and both ends are, and 0/0 counts as 0.
    `precision_PER` etc. are the metrics of the spans of a type.

    Args:
        gold: the true labels of each sentence.
        predicted: the predicted labels of each sentence.
        is_raw: see `find_spans`.
    """
    num_gold: Counter[str] = Counter()
    num_predicted: Counter[str] = Counter()
    num_right: Counter[str] = Counter()
    hits = 0
    for labels, guesses in zip(gold, predicted, strict=True):
        spans = set(find_spans(labels, is_raw))
        guessed = set(find_spans(guesses, is_raw))
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


def recorded_tags(folder: RunFolder, is_raw: bool = False) -> Tags | None:
    """Returns the tags that the record of a run has; None if it is not one of this task.

    Labels that transformers saved are raw if they do not mark spans.
    """
    record = folder.record
    if record.task_name != TOKEN_CLASSIFICATION or not record.labels:
        return None
    is_raw = is_raw or not all(map(_marks_spans, record.labels))
    return Tags(record.labels, is_raw, record.task.get("token_units", WORDS))


def read_data(
    settings: Settings, trained: RunFolder | None = None
) -> tuple[Tags, dict[str, Examples[Sentence]]]:
    """Returns the tags, and the sentences of each split; see `read_sentences`.

    The tags are those of the trained model, unless it is trained now, or else those of the train
    file.

    Args:
        settings: the settings of the program.
        trained: the folder of the trained model; None if there is none.

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
            data["train"] = read_sentences(settings, "train")
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}, which is needed for the labels") from None
        tags = find_tags(data["train"], is_raw)
    for split in settings.splits:
        if split not in data:
            data[split] = read_sentences(settings, split, tags.labels)
    return tags, data
