"""Token classification as a fine-tuning task, such as named entity recognition (NER).

This file is the whole task: reading sentences, tagging schemes, spans and their metrics, features,
and at the end `TokenClassifier`, which the fine-tuning engine calls. A custom task needs such a
file, a settings class and a script of ten lines.

Files have one token per line, with the token in the first column and its label in the last one, and
blank lines between sentences. In Chinese, a token is often a character:

    U.N.      B-ORG
    official  O
    Ekeus     B-PER

Shapes: B batch size, N windows, S sequence length, K labels.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.config import AlbertConfig
from albert_tf.finetuning import results, tables
from albert_tf.finetuning.batching import Padding
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.sequences import TokenSequences
from albert_tf.finetuning.tables import BadRowError, RowReports
from albert_tf.finetuning.task import Batch, FineTuningTask, Outputs, Split
from albert_tf.heads import AlbertForTokenClassification, classification_losses
from albert_tf.serving import saved_model
from albert_tf.tasks import TOKEN_CLASSIFICATION
from albert_tf.token_classification.settings import AUTO, RAW, Settings
from albert_tf.tokenization import Tokenizer, find_words, is_cjk, word_kind

EXTENSIONS = (".txt", ".conll", ".tsv")
DOCUMENT_START = "-DOCSTART-"
DEV_PREDICTIONS = "dev_predictions.tsv"
TEST_PREDICTIONS = "test_predictions.tsv"
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
_INSIDE = set("BIM")  # after these letters, a span may go on
_CONTINUING = set("IMEL")  # with one of these
_LIKE_TAG = re.compile("[A-Z][-_].+")
# How tokens were cut from text.
WORDS = "words"
CHARACTERS = "characters"
MAX_LABELS = 1000  # more indicate a wrong column
MIN_SEQ_LENGTH = 3  # [CLS] a [SEP]
LOGGED_SENTENCES = 1
SELECTION_METRIC = "f1"
OUTPUTS = {"predictions": 0.0}  # the outputs to collect, and their padding values
NO_LABEL = -1  # in `label_ids`, for all but the first piece of a token

Span = tuple[str, int, int]  # type, first token, last token + 1


# Sentences


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


def find_file(data_dir: str, split: str) -> str:
    """Returns the path of a split's file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: there are several such files.
    """
    names = [split + extension for extension in EXTENSIONS]
    existing = [name for name in names if files.is_file(os.path.join(data_dir, name))]
    if not existing:
        raise FileNotFoundError(f"{data_dir}: contains no {' or '.join(names)}")
    if len(existing) > 1:
        raise ValueError(f"{data_dir} contains {' and '.join(existing)}: keep only one of them")
    return os.path.join(data_dir, existing[0])


def read_sentences(
    settings: Settings, split: str, labels: Sequence[str] = (), is_logged: bool = True
) -> Examples[Sentence]:
    """Reads the sentences of a split.

    Args:
        settings: the folder and the columns.
        split: "train", "dev" or "test"; in a test file, labels may be missing.
        labels: all valid labels; () to accept any.
        is_logged: whether remarks about lines are logged.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there is no sentence, or a line without a token, without a label or with an
            unknown label; the message names the file and the lines.
    """
    path = find_file(settings.data_dir, split)
    is_test = split == "test"
    reports = RowReports(path)
    sentences = []
    for first_line, lines in _split_sentences(files.read_text(path)):
        words = []
        try:
            for line in lines:
                words.append(_parse_line(line, settings, labels, is_test))
        except BadRowError as error:
            reports.bad(first_line + len(words), str(error))
            continue
        tokens, gold = zip(*words, strict=True)
        sentences.append(Sentence(first_line, tokens, gold))
        if None in gold:
            reports.note(first_line, "no known label, so the test split is not evaluated")
    reports.check()
    if is_logged:
        reports.log()
    if not sentences:
        raise ValueError(f"{path}: contains no usable sentence")
    return Examples(path, split, sentences)


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
    raise BadRowError(f"unknown label {files.quote(label)}; expected {tables.abbreviate(labels)}")


# Tags


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
    advice = "Is --label_column right?"
    if not 2 <= len(labels) <= MAX_LABELS:
        raise ValueError(
            f"{train.path}: {len(labels)} different labels ({', '.join(labels[:10])}), expected 2 "
            f"to {MAX_LABELS}. {advice}"
        )
    units = find_units(train)
    if scheme == RAW:
        return Tags(labels, RAW, units)
    tables.check_case(lines, train.path)
    tried = [scheme] if scheme != AUTO else list(LETTERS)
    strange = {name: _labels_outside_of(name, labels) for name in tried}
    fitting = next((name for name in tried if not strange[name]), None)
    if fitting is None:
        label = min(strange.values(), key=len)[0]
        if not any(map(_LIKE_TAG.fullmatch, labels)):
            advice += (
                " If labels do not mark spans (for example, parts of speech), set --tag_scheme=raw."
            )
        raise ValueError(
            f"{train.path}, line {lines[label]}: label {files.quote(label)} does not belong to the "
            f"scheme {' or '.join(tried)}. {advice}"
        )
    if scheme == AUTO and fitting == "iob2" and _has_iob1(train):
        fitting = "iob1"
    if units == WORDS:
        _warn_of_other_words(train)
    return Tags(labels, fitting, units)


def _warn_of_other_words(train: Examples[Sentence]) -> None:
    """Logs how many tokens are none of the words that raw text is cut into."""
    counts = Counter(token for sentence in train.examples for token in sentence.tokens)
    others = {x: count for x, count in counts.items() if find_words(x) != [(x, 0)]}
    if others:
        logging.warning(
            "%s: %d of %d tokens, such as %s, are cut otherwise in raw text. Pass tokens to the "
            "model instead",
            train.path,
            sum(others.values()),
            counts.total(),
            files.quote_all(others),
        )


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
        try:  # Not logged, because training reads the file again.
            train = read_sentences(settings, "train", is_logged=False)
        except FileNotFoundError as error:
            place = "" if trained is None else f", nor labels in {trained.path}"
            raise FileNotFoundError(f"{error}{place}; it is needed for the labels") from None
        return recognize_tags(train, settings.tag_scheme)
    if settings.tag_scheme != AUTO:
        tags = dataclasses.replace(tags, scheme=settings.tag_scheme)
    return tags


def recorded_tags(folder: RunFolder) -> Tags | None:
    """Returns the tags that the record of a run has; None if it is not one of this task.

    Raises:
        ValueError: the record is damaged.
    """
    task = folder.record.task
    if folder.record.task_name != TOKEN_CLASSIFICATION or not folder.record.labels:
        return None
    scheme = task.get("tag_scheme") or guess_tags(folder.record.labels).scheme
    units = task.get("token_units", WORDS)
    if scheme not in (*LETTERS, RAW) or units not in (WORDS, CHARACTERS):
        raise ValueError(
            f"{folder.path}: unknown tag_scheme {scheme!r} or token_units {units!r} in its record"
        )
    return Tags(folder.record.labels, scheme, units)


def details_of(tags: Tags) -> dict[str, Any]:
    """Returns what is recorded of the tags besides their names."""
    return {"tag_scheme": tags.scheme, "token_units": tags.units}


# Spans and metrics


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


# Features


@dataclasses.dataclass(frozen=True)
class Windows:
    """The features of sentences: `[CLS] pieces [SEP]`, with long sentences split into windows.

    Attributes:
        sequences: the token ids of N windows.
        label_ids: for each window, int32 [length of the window]: the label of a token at its first
            piece (0 if it is unknown), and NO_LABEL elsewhere.
    """

    sequences: TokenSequences
    label_ids: list[NDArray[np.int32]]

    def __len__(self) -> int:
        return len(self.label_ids)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Number of pieces in each window, int32 [N]."""
        return self.sequences.lengths

    def batch(self, rows: NDArray[np.integer], seq_length: int) -> dict[str, NDArray[Any]]:
        """Returns `input_ids`, `input_mask`, `segment_ids` and `label_ids`, int32 [B, S]."""
        batch = self.sequences.batch(rows, seq_length)
        label_ids = np.full_like(batch["input_ids"], NO_LABEL)
        label_ids[batch["input_mask"] == 1] = np.concatenate([self.label_ids[n] for n in rows])
        return batch | {"label_ids": label_ids}

    def at_tokens(self, values: NDArray[Any]) -> NDArray[Any]:
        """Returns the elements of `values` [N, S] at the first piece of each token: [tokens]."""
        rows = zip(self.label_ids, values, strict=True)
        return np.concatenate([row[: len(ids)][ids != NO_LABEL] for ids, row in rows])


def make_features(
    data: Examples[Sentence],
    labels: Sequence[str],
    tokenizer: Tokenizer,
    max_seq_length: int,
    is_logged: bool = True,
) -> Windows:
    """Returns the windows of sentences, in their order. Each token is in exactly one window.

    Tokens are encoded separately. A token without pieces, such as a lone accent, becomes [UNK].

    Args:
        data: the sentences.
        labels: the labels, in the order of their ids.
        tokenizer: the tokenizer.
        max_seq_length: S; longer sentences are split between tokens.
        is_logged: whether to log the first sentences, and the number of split sentences.

    Raises:
        ValueError: `max_seq_length` leaves no room for a token.
    """
    if max_seq_length < MIN_SEQ_LENGTH:
        raise ValueError(f"--max_seq_length={max_seq_length}: expected {MIN_SEQ_LENGTH} or more")
    id_of: dict[str | None, int] = {label: number for number, label in enumerate(labels)}
    id_of[None] = 0
    room = max_seq_length - 2
    sequences = []
    label_ids = []
    num_split = num_parts = 0
    for number, sentence in enumerate(data.examples):
        pieces = [
            (ids or [tokenizer.unk_id])[:room] for ids in tokenizer.encode_batch(sentence.tokens)
        ]
        windows = list(_windows([len(ids) for ids in pieces], room))
        if len(windows) > 1:
            num_split += 1
            num_parts += len(windows)
        for begin, end in windows:
            ids = [tokenizer.cls_id]
            row = [NO_LABEL]
            for token in range(begin, end):
                ids += pieces[token]
                row += [id_of[sentence.labels[token]]] + [NO_LABEL] * (len(pieces[token]) - 1)
            sequences.append(([*ids, tokenizer.sep_id], len(ids) + 1))
            label_ids.append(np.array([*row, NO_LABEL], np.int32))
        if is_logged and number < LOGGED_SENTENCES:
            first = " ".join(tokenizer.convert_ids_to_tokens(sequences[-1][0]))
            logging.info("%s, line %d: %s", data.path, sentence.line, first)
    if is_logged and num_split:
        logging.info(
            "%s: %d of %d sentences are longer than max_seq_length=%d; split into %d windows",
            data.path,
            num_split,
            len(data),
            max_seq_length,
            num_parts,
        )
    return Windows(TokenSequences.pack(sequences, {}), label_ids)


def _windows(lengths: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Yields (first token, last token + 1) of each window, which has at most `room` pieces."""
    begin = size = 0
    for token, length in enumerate(lengths):
        if size + length > room:
            yield begin, token
            begin = token
            size = 0
        size += length
    yield begin, len(lengths)


# The task


class TokenClassifier(FineTuningTask):
    """The token classification task for the fine-tuning engine.

    Args:
        tags: the labels and their scheme.
        settings: the settings of the program.
        config: the model's config.
        tokenizer: the tokenizer.
    """

    selection_metric = SELECTION_METRIC
    outputs = OUTPUTS

    def __init__(
        self, tags: Tags, settings: Settings, config: AlbertConfig, tokenizer: Tokenizer
    ) -> None:
        self.tags = tags
        self.labels = tags.labels
        self.settings = settings
        self.config = config
        self.tokenizer = tokenizer

    @classmethod
    def make(
        cls,
        settings: Settings,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        trained: RunFolder | None = None,
    ) -> TokenClassifier:
        """Returns the task, with the labels of the trained model or else of the training data."""
        tags = find_tags(settings, None if settings.do_train else trained)
        return cls(tags, settings, config, tokenizer)

    # Data.

    def read(self, split: str) -> Examples[Sentence]:
        """Returns the sentences of a split; see `read_sentences`."""
        return read_sentences(self.settings, split, self.tags.labels)

    def make_features(self, data: Examples[Sentence], split: str) -> Windows:
        """Returns the windows of sentences."""
        length = self.settings.max_seq_length
        return make_features(data, self.tags.labels, self.tokenizer, length)

    # Training.

    def build_model(self) -> AlbertForTokenClassification:
        """Returns the model with random weights."""
        return AlbertForTokenClassification(
            self.config, len(self.tags.labels), self.settings.dropout_prob
        )

    def sample_weights(self, batch: Batch) -> tf.Tensor:
        """Returns 1 for the first piece of each token and 0 for the others, float32 [B, S]."""
        return tf.cast(batch["label_ids"] != NO_LABEL, tf.float32)

    def losses(self, outputs: Any, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the cross-entropies, [B, S], and whether labels are correct, bool [B, S].

        Args:
            outputs: logits, float32 [B, S, K].
            batch: has `label_ids`, int32 [B, S].
        """
        labels = batch["label_ids"]  # [B, S]
        hits = self.predictions(outputs)["predictions"] == labels  # [B, S]
        return classification_losses(outputs, tf.maximum(labels, 0)), {"accuracy": hits}

    # Evaluation and prediction.

    def predictions(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns `predictions`, int32 [B, S], the label id of each piece."""
        return {"predictions": tf.argmax(outputs, -1, tf.int32)}

    def predicted_labels(self, split: Split, outputs: Outputs) -> list[tuple[str, ...]]:
        """Returns the predicted labels of each sentence."""
        windows = cast(Windows, split.features)
        ids = iter(windows.at_tokens(outputs["predictions"]))
        names = self.tags.labels
        return [tuple(names[next(ids)] for _ in s.tokens) for s in split.data.examples]

    def measure(self, split: Split, outputs: Outputs, batch_size: int) -> dict[str, float]:
        """Returns the metrics of `span_metrics`."""
        gold = [sentence.labels for sentence in split.data.examples]
        return span_metrics(gold, self.predicted_labels(split, outputs), self.tags.scheme)

    def measured_with(self, split: Split, batch_size: int, padding: Padding) -> tuple[Any, ...]:
        """Returns the labels and the tagging scheme, by which spans are measured."""
        return (self.tags,)

    def describe_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> str:
        """Returns the metrics of the best checkpoint as text."""
        best = self.best_of(evaluations) or evaluations[-1]
        metrics = best.metrics | {"global_step": best.step}
        return f"best checkpoint of {folder.path}\n{results.format_metrics(metrics)}"

    def write_dev_predictions(
        self, folder: RunFolder, split: Split, predict: Callable[[], Outputs]
    ) -> None:
        """Writes `dev_predictions.tsv`; see `write_predictions`."""
        labels = self.predicted_labels(split, predict())
        write_predictions(folder.file(DEV_PREDICTIONS), split.data, labels)

    def write_predictions(
        self, folder: RunFolder, split: Split, outputs: Outputs, step: int
    ) -> str:
        """Writes `test_predictions.tsv` and, if labels are known, `predict_results.txt`.

        Returns:
            The text of `predict_results.txt`, or "" without labels.
        """
        path = folder.file(TEST_PREDICTIONS)
        write_predictions(path, split.data, self.predicted_labels(split, outputs))
        logging.info("Predictions of %d sentences: %s", len(split.data), path)
        if not split.data.has_labels:
            return ""
        metrics: dict[str, float] = self.measure(split, outputs, 1) | {"global_step": step}
        return results.write_test_results(folder, metrics, self.selection_metric)

    # The folder of a run, and its export.

    def check_trained(self, folder: RunFolder, is_training: bool) -> None:
        """Compares the labels with those that the model in a folder was trained with.

        Raises:
            ValueError: they differ.
        """
        recorded = recorded_tags(folder)
        if recorded is not None and recorded.labels != self.labels:
            raise ValueError(
                f"{folder.path} contains a model with the labels {', '.join(recorded.labels)}, "
                f"but the task has {', '.join(self.labels)}. Use another --output_dir; "
                "to start from this model, pass it as --init_checkpoint."
            )

    def details(self) -> dict[str, Any]:
        """Returns the tagging scheme, and whether tokens are words or characters."""
        return details_of(self.tags)

    def served_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns `probabilities`, float32 [B, S, K], and `predictions`, int32 [B, S]."""
        return {"probabilities": tf.nn.softmax(outputs), **self.predictions(outputs)}

    def export(
        self,
        model: Any,
        export_dir: str,
        max_seq_length: int,
        extra_files: Mapping[str, bytes],
        folder: RunFolder,
    ) -> None:
        """Writes a SavedModel, with `labels.txt` beside the vocabulary."""
        labels = "".join(f"{label}\n" for label in self.tags.labels).encode()
        saved_model.export_saved_model(
            export_dir,
            model,
            saved_model.token_features(max_seq_length),
            self.served_outputs,
            any_length=True,
            extra_files={**extra_files, "labels.txt": labels},
        )


def write_predictions(
    path: str, data: Examples[Sentence], predicted: Sequence[Sequence[str]]
) -> None:
    r"""Writes one token per line and blank lines between sentences, for `conlleval -d '\t'`.

    A line contains the token, its label if all labels are known, and the predicted label, separated
    by tabs.

    Args:
        path: the file.
        data: the sentences.
        predicted: the predicted labels of each sentence.
    """
    has_labels = data.has_labels
    with files.write_atomically(path) as stream:
        for sentence, guesses in zip(data.examples, predicted, strict=True):
            for cells in zip(sentence.tokens, sentence.labels, guesses, strict=True):
                shown = cells if has_labels else (cells[0], cells[2])
                stream.write("\t".join(map(str, shown)) + "\n")
            stream.write("\n")
