"""Multiple choice as a fine-tuning task: features, loss, metrics and predictions.

Each option of a question is a separate sequence, and the model scores each of them:

    [CLS] passage [SEP] question and option [SEP] padding

Source: `run_race.py` and `race_utils.py` of google-research/albert.

Shapes: B batch size, N questions, C options, S sequence length.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.signatures import Export, token_inputs, token_signatures
from albert_tf.finetuning import metrics, results, rows
from albert_tf.finetuning.batching import Features, Padding, TokenSequences, log_full_sequences
from albert_tf.finetuning.race import Settings
from albert_tf.finetuning.rows import JSON_LINES, BadRowError, Examples, Row, RowReports
from albert_tf.finetuning.task import Batch, FineTuningTask, Outputs, Split
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForMultipleChoice, classification_losses
from albert_tf.model.ops import MASKED_SCORE
from albert_tf.model.tokenization import Tokenizer, split_pairs

# Reads multiple-choice questions: RACE in both of its formats, and custom JSON lines.
#
# The main functions, `read_race` and `read_questions`, each read a split.

LEVELS = ("middle", "high")
ALL_IN_ONE = "all.txt"
RACE_OPTIONS = 4
EXTENSIONS = (".jsonl", ".json")
_LETTERS = list("ABCD")


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question about a passage, with its options.

    Attributes:
        example_id: id of the passage, shared by all its questions.
        passage: the text.
        question: the question, which may have a "_" to be replaced by the option, or be "".
        options: two or more options.
        label: index of the correct option, starting at 0; None if unknown.
        level: part of the data set, such as "middle"; or "".
    """

    example_id: str
    passage: str
    question: str
    options: tuple[str, ...]
    label: int | None
    level: str = ""

    @property
    def is_labeled(self) -> bool:
        """Whether the correct option is known."""
        return self.label is not None

    @property
    def content(self) -> tuple[Any, ...]:
        """All attributes."""
        return dataclasses.astuple(self)


def num_choices(questions: Sequence[Question]) -> int:
    """Returns the largest number of options of any question."""
    return max(len(question.options) for question in questions)


def _text(row: dict[str, Any], key: str) -> str:
    text = rows.text_cell(row, key)
    if not text.strip():
        raise BadRowError(f"{key!r} is empty")
    return text


def _list(row: dict[str, Any], key: str) -> list[Any]:
    values = rows.cell(row, key)
    if not isinstance(values, list):
        raise BadRowError(f"{key!r} is {type(values).__name__}, expected a list")
    return values


def _options(values: Any, num_options: int | None) -> tuple[str, ...]:
    if not isinstance(values, list) or len(values) < 2:
        raise BadRowError(f"options {files.quote(values)}: expected a list of two or more")
    for number, value in enumerate(values, 1):
        if not rows.check_text(value, f"option {number}").strip():
            raise BadRowError(f"option {number} of {len(values)} is empty")
    if num_options not in (None, len(values)):
        raise BadRowError(f"{len(values)} options, expected {num_options}")
    return tuple(values)


def _label(value: Any, options: Sequence[str]) -> int:
    """Returns the index of the correct option, given as its index, letter or text.

    Raises:
        BadRowError: there is no such option, or the label is the index or letter of one option, and
            the text of another.
    """
    number = value
    if isinstance(value, str):
        if len(value) == 1 and "A" <= value <= "Z":
            number = ord(value) - ord("A")
        elif value.isdecimal():
            number = int(value)
        is_index = isinstance(number, int) and number < len(options)
        if not is_index and options.count(value) == 1:
            number = options.index(value)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(options):
        last = chr(ord("A") + min(len(options), 26) - 1)
        raise BadRowError(
            f"label {files.quote(value)} for {len(options)} options: expected 0 to "
            f"{len(options) - 1} or A to {last}"
        )
    if isinstance(value, str) and value in options and options[number] != value:
        raise BadRowError(
            f"label {files.quote(value)} is the index or letter of option {number}, "
            f"{files.quote(options[number])}, and the text of option {options.index(value)}. Write "
            f"the index as a number: {number} or {options.index(value)}"
        )
    return number


def _rows_of_article(
    article: Any, place: str, level: str, is_test: bool
) -> list[tuple[str, dict[str, Any]]]:
    """Returns (place, row) of each question of RACE, with the keys of `read_questions`."""
    if not isinstance(article, dict):
        raise BadRowError("not a JSON object")
    passage = _text(article, "article")
    keys = ["questions", "options", "answers"]
    if is_test and "answers" not in article:
        keys.remove("answers")
    columns = [_list(article, key) for key in keys]
    if len(set(map(len, columns))) > 1:
        counts = [f"{len(column)} {key}" for column, key in zip(columns, keys, strict=True)]
        raise BadRowError(f"{', '.join(counts)}: expected equal numbers")
    example_id = rows.check_text(str(article.get("id", place)), "'id'")
    found = []
    for number, (question, options, *answers) in enumerate(zip(*columns, strict=True), 1):
        row = {
            "passage": passage,
            "question": question,
            "options": options,
            # As a number, because a letter may also be the text of an option.
            "label": next((_LETTERS.index(x) if x in _LETTERS else x for x in answers), None),
            "id": example_id,
            "level": level,
        }
        found.append((f"{place}, question {number} of {example_id}", row))
    return found


def _text_files(folder: str) -> list[str]:
    try:
        return files.expand_patterns([os.path.join(glob.escape(folder), "*.txt")], "--data_dir")
    except ValueError:  # no file matches
        return []


def _read_articles(folder: str, level: str) -> Iterator[tuple[str, Any]]:
    """Yields (place, JSON object) of each article, from the lines of `all.txt` or from files."""
    together = os.path.join(folder, ALL_IN_ONE)
    if files.is_file(together):
        for line, row in rows.read(together, JSON_LINES):
            yield f"{level}/{ALL_IN_ONE}, line {line}", row
        return
    for path in _text_files(folder):
        place = f"{level}/{os.path.basename(path)}"
        try:
            yield place, json.loads(files.read_text(path))
        except ValueError as error:
            yield place, BadRowError(f"expected a JSON object: {error}")


def _level_folders(data_dir: str, split: str, levels: Sequence[str]) -> dict[str, str]:
    roots = [os.path.join(data_dir, "RACE"), data_dir]
    for root in roots:
        folders = {level: os.path.join(root, split, level) for level in levels}
        existing = {level: folder for level, folder in folders.items() if _text_files(folder)}
        if existing:
            for level in folders.keys() - existing:
                logging.warning("%s does not exist; continuing without it", folders[level])
            return existing
    tried = " and ".join(os.path.join(root, split, "{" + ",".join(levels) + "}") for root in roots)
    raise FileNotFoundError(
        f"no RACE questions: neither {ALL_IN_ONE} nor other .txt files in {tried}. --data_dir must "
        "be the folder that contains RACE/."
    )


def read_race(data_dir: str, split: str, levels: Sequence[str] = LEVELS) -> Examples[Question]:
    """Reads a split of RACE, middle before high, as Google's program does.

    Both formats are supported: `<split>/<level>/all.txt` with one article per line, or the folders
    of the original distribution with one file per article, sorted by name.

    Args:
        data_dir: parent folder of `RACE/`, or that folder.
        split: "train", "dev" or "test".
        levels: the levels to read, from LEVELS.

    Raises:
        FileNotFoundError: there are no questions.
        ValueError: there is a bad article or question (invalid JSON, an empty article, missing
            options, an invalid answer); the message names the file, the article and the question.
    """
    numbered: list[tuple[str, Any]] = []
    folders = _level_folders(data_dir, split, levels)
    reports = RowReports(os.path.dirname(next(iter(folders.values()))))
    for level, folder in folders.items():
        expand = functools.partial(_rows_of_article, level=level, is_test=split == "test")
        articles = reports.parsed(_read_articles(folder, level), expand)
        numbered += [pair for _, pairs in articles for pair in pairs]
    return _parse_questions(numbered, split, reports, "race", RACE_OPTIONS)


def _parse_questions(
    numbered: Iterable[tuple[str, Any]],
    split: str,
    reports: RowReports,
    task: str,
    num_options: int | None = None,
) -> Examples[Question]:
    parsed = reports.parsed(numbered, lambda row, place: parse_question(row, split, num_options))
    return reports.examples(split, [question for _, question in parsed], "question", task)


def parse_question(row: dict[str, Any], split: str, num_options: int | None = None) -> Question:
    """Returns the question in a JSON object; see `read_questions`.

    Args:
        row: the object.
        split: "train", "dev" or "test".
        num_options: the number of options; None for any.

    Raises:
        BadRowError: the object is not a valid question.
    """
    passage = _text(row, "passage")
    options = _options(rows.cell(row, "options"), num_options)
    question = rows.text_cell(row, "question") if "question" in row else ""
    is_labeled = split != "test" or row.get("label") is not None
    label = _label(rows.cell(row, "label"), options) if is_labeled else None
    example_id = rows.check_text(str(row.get("id", "")), "'id'")
    level = str(row.get("level", ""))
    if level:
        level = rows.check_name(level, "'level'")
    return Question(example_id, passage, question, options, label, level)


def parse_choice(row: Row) -> Question:
    """Returns the question of a row, without its label."""
    if not isinstance(row, dict):
        raise BadRowError("expected a JSON object with passage, question and options")
    return parse_question({key: row[key] for key in row if key != "label"}, "test")


def read_questions(data_dir: str, split: str) -> Examples[Question]:
    """Reads a split of a custom task: `<split>.jsonl` or `.json`, with one JSON object per line.

    The keys of an object are:

    * `passage`: the text;
    * `question`: optional; may have a "_" to be replaced by the option;
    * `options`: two or more; the number may vary between questions;
    * `label`: index (starting at 0), letter or text of the correct option; optional in test files;
    * `id`: optional;
    * `level`: optional; accuracy is also reported for each level.

    Args:
        data_dir: folder of the file.
        split: "train", "dev" or "test".

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there is a bad question; the message names the file, the line and the question.
    """
    paths = [os.path.join(data_dir, split + ending) for ending in EXTENSIONS]
    path = next((path for path in paths if files.is_file(path)), "")
    if not path:
        raise FileNotFoundError(f"no {split} questions: neither {' nor '.join(paths)} exists")
    return _parse_questions(_read_custom(path, split), split, RowReports(path), "choice")


def _read_custom(path: str, split: str) -> Iterator[tuple[str, Any]]:
    """Yields (place, JSON object with an id) of each line."""
    for line, row in rows.read(path, JSON_LINES):
        place = f"line {line}"
        if isinstance(row, dict):
            place += f" ({row['id']})" if "id" in row else ""
            row = row | {"id": row.get("id", f"{split}-{line - 1}")}
        yield place, row


BLANK = "_"
SPECIAL_TOKENS = 3
SELECTION_METRIC = "eval_accuracy"
# The outputs to collect, and their padding values for missing options.
OUTPUTS = {"logits": MASKED_SCORE, "probabilities": 0.0}


def fill_in(question: str, option: str) -> str:
    """Returns the question with "_" replaced by the option, or with the option appended."""
    return question.replace(BLANK, option) if BLANK in question else f"{question} {option}"


def option_sequences(
    data: Examples[Question], tokenizer: Tokenizer, max_seq_length: int, max_qa_length: int
) -> Iterator[tuple[list[int], int]]:
    """Yields C sequences for each question: (token ids, number of ids in segment 0).

    Args:
        data: the questions.
        tokenizer: the tokenizer.
        max_seq_length: see `make_features`.
        max_qa_length: see `make_features`; must fit into `max_seq_length`.
    """
    cls_id = tokenizer.cls_id
    sep_id = tokenizer.sep_id
    count = num_choices(data.examples)
    passage = ""
    passage_ids = [0]
    for question in data.examples:
        if question.passage != passage:  # consecutive questions share a passage
            passage = question.passage
            passage_ids = tokenizer.encode(question.passage)
        text = tokenizer.preprocess(question.question)
        for option in question.options:
            # Not `encode`: question and option are normalized separately, and only once.
            tokens = tokenizer.tokenize_preprocessed(fill_in(text, tokenizer.preprocess(option)))
            ending = tokenizer.convert_tokens_to_ids(tokens)[-max_qa_length:]
            kept = passage_ids[: max_seq_length - SPECIAL_TOKENS - len(ending)]
            ids = [cls_id, *kept, sep_id, *ending, sep_id]
            yield ids, len(kept) + 2 if tokenizer.has_segments else len(ids)
        yield from [([], 0)] * (count - len(question.options))


def make_features(
    data: Examples[Question],
    tokenizer: Tokenizer,
    max_seq_length: int,
    max_qa_length: int,
) -> TokenSequences:
    """Returns the token sequences of questions, identical to those of Google's program.

    Args:
        data: the questions.
        tokenizer: the tokenizer.
        max_seq_length: S; passages are truncated at their end.
        max_qa_length: maximum number of tokens of question and option together; longer ones are
            truncated at their start.

    Returns:
        C sequences per question, and the column `label_ids`, which is 0 if the label is unknown.

    Raises:
        ValueError: the lengths leave no room for the texts.
    """
    room = max_seq_length - SPECIAL_TOKENS
    if room < 1:
        raise ValueError(
            f"--max_seq_length={max_seq_length}: expected at least {SPECIAL_TOKENS + 1}"
        )
    labels = np.array([question.label or 0 for question in data.examples], np.int32)
    sequences = option_sequences(data, tokenizer, max_seq_length, min(max_qa_length, room))
    return TokenSequences.pack(sequences, {"label_ids": labels}, num_choices(data.examples))


class MultipleChoice(FineTuningTask):
    """Multiple choice as a fine-tuning task.

        choose = albert_tf.load_predictor("race_model/")
        choose("The river was wider.", "The river is _ now.", ["narrower", "colder"])

    Lists of passages, questions and options are answered by a list of results. The result of a
    prediction is a dict of `prediction` (zero-based index), `answer` (the option) and
    `probabilities`.

    Args:
        settings: the settings of the program.
        config: the model's config.
        tokenizer: the tokenizer.
    """

    selection_metric = SELECTION_METRIC
    outputs = OUTPUTS
    demos = (
        {"passage": "Anna sells bread.", "question": "Anna sells _.", "options": "bread\ntea"},
    )

    def __init__(self, settings: Settings, config: AlbertConfig, tokenizer: Tokenizer) -> None:
        self.settings = settings
        self.config = config
        self.tokenizer = tokenizer

    def read(self, split: str) -> Examples[Question]:
        """Returns the questions of a split; see `read_race` and `read_questions`."""
        settings = self.settings
        if settings.task_name == "choice":
            return read_questions(settings.data_dir, split)
        if settings.middle_only and settings.high_only:
            raise ValueError("--middle_only and --high_only exclude each other: set one of them")
        levels: Sequence[str] = LEVELS
        if settings.middle_only:
            levels = ["middle"]
        elif settings.high_only:
            levels = ["high"]
        return read_race(settings.data_dir, split, levels)

    def make_features(self, data: Examples[Question], split: str) -> TokenSequences:
        """Returns the token sequences and labels of a split."""
        logging.info("Tokenizing the %d questions of %s", len(data), data.path)
        features = self._features(data)
        log_full_sequences(data.path, features, self.max_seq_length)
        return features

    def _features(self, data: Examples[Question]) -> TokenSequences:
        return make_features(data, self.tokenizer, self.max_seq_length, self.settings.max_qa_length)

    def build_model(self) -> AlbertForMultipleChoice:
        """Returns the model with random weights."""
        return AlbertForMultipleChoice(self.config, self.settings.dropout_prob)

    def losses(self, outputs: Any, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the cross-entropies, [B], and whether predictions are correct, bool [B].

        Args:
            outputs: logits, float32 [B, C].
            batch: has `label_ids`, int32 [B].
        """
        labels = batch["label_ids"]
        predictions = tf.argmax(outputs, axis=-1, output_type=labels.dtype)
        return classification_losses(outputs, labels), {"accuracy": predictions == labels}

    def predictions(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns `logits` and `probabilities`, both [B, C]."""
        return {"logits": outputs, "probabilities": tf.nn.softmax(outputs)}

    def measure(self, split: Split, outputs: Outputs, batch_size: int) -> dict[str, float]:
        """Returns the accuracy and the losses; see `evaluate`."""
        return evaluate(split.data, outputs["logits"], batch_size)

    def measured_with(self, split: Split, batch_size: int, padding: Padding) -> tuple[Any, ...]:
        """Returns the batch size, over which Google's program averages the loss."""
        return (batch_size,)

    parse_row = staticmethod(parse_choice)

    def parse_call(  # type: ignore[override]
        self,
        passage: str | Sequence[str],
        question: str | Sequence[str],
        options: Sequence[str] | Sequence[Sequence[str]],
    ) -> tuple[list[Question], bool]:
        """Returns the questions in the arguments of a call, and whether it is for a single one.

        Args:
            passage: the text that the question is about; or a list of them.
            question: the question, in which "_" stands for the option; may be "". Or a list.
            options: two or more options; or a list of them for each question.

        Raises:
            ValueError: the lists have different lengths, or hold other values.
        """
        passages, questions = split_pairs(passage, question)
        rows: Sequence[Any] = [options] if isinstance(passage, str) else options
        if len(rows) != len(passages) or any(isinstance(row, str) for row in rows):
            raise ValueError(f"{len(passages)} passages: expected a list of options for each")
        found = [
            Question("", text, asked, tuple(row), None)
            for text, asked, row in zip(passages, questions, rows, strict=True)
        ]
        return found, isinstance(passage, str)

    def features_of(self, examples: Sequence[Question]) -> TokenSequences:
        """Returns the token sequences of questions."""
        return self._features(Examples("questions", "test", list(examples)))

    def results(
        self, examples: Sequence[Question], features: Features, outputs: Outputs
    ) -> list[dict[str, Any]]:
        """Returns the option that is chosen for each question."""
        return [
            {
                "prediction": int(row.argmax()),
                "answer": question.options[row.argmax()],
                "probabilities": results.as_json(row[: len(question.options)]),
            }
            for question, row in zip(examples, outputs["probabilities"], strict=True)
        ]

    @staticmethod
    def show(row: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, float]:
        """Returns the probabilities of the options, for the web page."""
        return dict(zip(row["options"], result["probabilities"], strict=True))

    def write_predictions(
        self, folder: RunFolder, split: Split, outputs: Outputs, step: int
    ) -> str:
        """Writes the predicted answers and, if labels are known, `predict_results.txt`.

        Returns:
            The text of `predict_results.txt`, or "" without labels.
        """
        write_predictions(folder, split.data, outputs["probabilities"])
        return self.write_test_results(folder, split, outputs, step)

    def served_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns `probabilities` [B, C] and `predictions` [B], the indices of the best options."""
        return {
            "probabilities": tf.nn.softmax(outputs),
            "predictions": tf.argmax(outputs, axis=-1, output_type=tf.int32),
        }

    def make_export(self, model: Any, max_seq_length: int, folder: RunFolder) -> Export:
        """Returns an export with inputs [B, C, S], for any number of options C.

        A missing option is a row of zeros. A serialized example contains the concatenated sequences
        of all options, as in Google's records.
        """
        options = tf.TensorSpec([None, None, max_seq_length], tf.int32)
        inputs = dict.fromkeys(token_inputs(max_seq_length), options)
        serve = functools.partial(self.serve, model)
        return Export(token_signatures(inputs, serve, takes_examples=False))


def evaluate(data: Examples[Question], logits: NDArray[Any], batch_size: int) -> dict[str, float]:
    """Returns the metrics of Google's program, and `eval_accuracy_<level>` for each level.

    Args:
        data: the questions, which must have labels.
        logits: float [N, C], in the order of the questions.
        batch_size: see `metrics.loss_metrics`.
    """
    labels = np.array([question.label for question in data.examples])
    predictions = logits.argmax(axis=1)
    measured = {SELECTION_METRIC: metrics.accuracy(predictions, labels)}
    levels = np.array([question.level for question in data.examples])
    for level in sorted(set(levels.tolist()) - {""}):
        chosen = levels == level
        measured[f"{SELECTION_METRIC}_{level}"] = metrics.accuracy(
            predictions[chosen], labels[chosen]
        )
    losses = metrics.losses_of_examples(logits, labels)
    return measured | metrics.loss_metrics(losses, batch_size)


def write_predictions(
    folder: RunFolder, data: Examples[Question], probabilities: NDArray[np.float32]
) -> None:
    """Writes `<task>_predictions.jsonl`, with a JSON object for each question.

    The keys are `id` (of the passage), `question`, `prediction` (an index, starting at 0), `answer`
    (the letter of the prediction) and `probabilities` (of the question's options).
    """
    with files.write_atomically(folder.file(f"{data.task}_predictions.jsonl")) as stream:
        for question, row in zip(data.examples, probabilities, strict=True):
            prediction = int(row.argmax())
            line = {
                "id": question.example_id,
                "question": question.question,
                "prediction": prediction,
                "answer": chr(ord("A") + prediction),
                "probabilities": [float(p) for p in row[: len(question.options)]],
            }
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
