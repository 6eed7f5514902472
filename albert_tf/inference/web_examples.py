"""The inputs that the web page offers to try a model with."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

from albert_tf import files
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.finetuning.task import AnyTask
from albert_tf.model.tokenization import Tokenizer

TEXTS = "texts"  # a column of texts to compare with one, which only the page has
LISTS = ("options", TEXTS)  # columns with several texts, which are the lines of a field


def choose_examples(source: ModelSource, task: str, predicted: AnyTask) -> list[dict[str, str]]:
    """Returns rows to try a task with: column → text, for the same columns in each.

    They are of the training data if the run has kept some, and then there is a second text only if
    these are pairs. Otherwise they are in a language that the vocabulary has.

    Args:
        source: the model.
        task: name of the task.
        predicted: what the predictor asks of it.

    Raises:
        ValueError: the file of the run is damaged.
    """
    kept: Sequence[Mapping[str, files.Json]] = []
    if source.run.record.task_name == task:
        kept = source.run.examples()
    rows = kept or readable_rows(predicted.demos, predicted.tokenizer)
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: _as_text(row.get(name, "")) for name in columns} for row in rows]


def _as_text(value: files.Json) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def readable_rows(
    rows: Sequence[Mapping[str, str]], tokenizer: Tokenizer
) -> list[Mapping[str, str]]:
    """Returns the rows that the vocabulary has the characters of, Chinese before other languages.

    Vocabularies for Chinese have English words too; those for English have no Chinese characters.
    """
    known = [row for row in rows if not _has_unknown_pieces(row, tokenizer)]
    return sorted(known, key=lambda row: not _is_chinese(row)) or list(rows)


def _has_unknown_pieces(row: Mapping[str, str], tokenizer: Tokenizer) -> bool:
    return any(tokenizer.unk_id in tokenizer.encode(text) for text in row.values())


def _is_chinese(row: Mapping[str, str]) -> bool:
    return any("CJK" in unicodedata.name(char, "") for text in row.values() for char in text)
