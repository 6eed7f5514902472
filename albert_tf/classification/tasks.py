"""The classification and regression tasks: one table, a row each.

A row says in which files a task's examples lie, in which columns, which labels there are and in
what order, and what is measured and handed in. `reading` reads them. GLUE's rows are
those of the official `classifier_utils`, the Chinese ones those of albert_zh and CLUE.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

ACCURACY = "eval_accuracy"
BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
# In this order in Google's checkpoints of MNLI, and so in their `output_weights`.
INFERENCE = ("contradiction", "entailment", "neutral")

Column = int | str
JsonRow = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Columns:
    """Where a row has what: a column counted from 0 (or from the end: -1), or a name.

    Names are those of a file's header, or keys of JSON lines.

    Attributes:
        text_a: the first or only text; None where it is looked up in the header.
        text_b: the second text.
        label: None where there is none, as in most test files.
        guid: the row's own name; without it, rows are called `<split>-<row number>`.
    """

    text_a: Column | None = None
    text_b: Column | None = None
    label: Column | None = None
    guid: Column | None = None


@dataclasses.dataclass(frozen=True)
class Source:
    """A file that a split may be read from.

    Attributes:
        file: its name below the task's folder. `.jsonl` and `.json` have a JSON object a line,
            `.csv` commas and quotes, everything else tabs and no quoting, as official.
        columns: where its rows have what.
        has_header: whether the first line names the columns; None: if one of its cells is a name
            that is looked for.
        only: rows with this (column, value), others are of no concern.
        expand: turns a JSON object into rows with the keys of `columns`.
        is_custom: whether columns that are None are looked for by their usual names.
    """

    file: str
    columns: Columns
    has_header: bool | None = True
    only: tuple[int, str] | None = None
    expand: Callable[[JsonRow], list[JsonRow]] | None = None
    is_custom: bool = False


@dataclasses.dataclass(frozen=True)
class ClassificationTask:
    """A row of the table.

    Attributes:
        name: value of `--task_name`, lower case.
        folder: below the data directory; the data directory itself serves too.
        splits: "train", "dev" and "test", where there are such, with the files that may hold them;
            the first one that exists is read.
        labels: in the order of their ids; empty: to be read from the training data.
        is_regression: labels are numbers, and there is one output.
        metrics: keys of `metrics.METRICS`.
        selection_metric: the one that picks the best checkpoint; larger is better.
        label_aliases: other spellings that occur in the files.
        unlabeled: labels of rows that nobody could agree on: left out, and counted.
        leaderboard_file: name under which GLUE takes predictions; "" where it does not.
        clue_fields: what a line of CLUE's `<task>_predict.json` has besides id and label; None:
            no such file is written.
        group_size: consecutive rows that are one question's options; the one with the highest
            probability of the last label is the answer.
        skips_short_rows: rows with too few columns are skipped, and empty texts kept, without
            being counted as bad, as the official program does for this task alone.
    """

    name: str
    folder: str
    splits: Mapping[str, tuple[Source, ...]]
    labels: tuple[str, ...] = ()
    is_regression: bool = False
    metrics: tuple[str, ...] = (ACCURACY,)
    selection_metric: str = ACCURACY
    label_aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unlabeled: tuple[str, ...] = ()
    leaderboard_file: str = ""
    clue_fields: Mapping[str, str] | None = None
    group_size: int = 1
    skips_short_rows: bool = False

    @property
    def num_labels(self) -> int:
        """Number of the model's outputs."""
        return 1 if self.is_regression else len(self.labels)


def _glue(
    name: str,
    folder: str,
    columns: Columns,
    test_columns: Columns,
    labels: tuple[str, ...],
    suffix: str = "",
    **settings: Any,
) -> ClassificationTask:
    """A GLUE task; `suffix` is that of MNLI's two development sets."""
    splits = {
        "train": (Source("train.tsv", columns),),
        "dev": (Source(f"dev{suffix}.tsv", columns),),
        "test": (Source(f"test{suffix}.tsv", test_columns),),
    }
    return ClassificationTask(name, folder, splits, labels, **settings)


def _clue(
    name: str,
    columns: Columns,
    labels: tuple[str, ...],
    expand: Any = None,
    clue_fields: Mapping[str, str] = MappingProxyType({}),
    **settings: Any,
) -> ClassificationTask:
    """A CLUE task: JSON lines, whose test files lack the label."""
    splits = {
        split: (Source(f"{split}.json", columns, expand=expand),)
        for split in ("train", "dev", "test")
    }
    return ClassificationTask(name, name, splits, labels, clue_fields=clue_fields, **settings)


def _mark_spans(row: JsonRow) -> list[JsonRow]:
    """WSC: `_` round the noun and `[ ]` round the pronoun, in the text itself."""
    text, target, spans = row["text"], row["target"], []
    for number, marks in ((1, ("_", "_")), (2, ("[", "]"))):
        start, span = target[f"span{number}_index"], target[f"span{number}_text"]
        if text[start : start + len(span)] != span:
            raise ValueError(f"the text does not have {span!r} at character {start}")
        spans.append((start, start + len(span), marks))
    for start, end, (left, right) in sorted(spans, reverse=True):
        text = text[:start] + left + text[start:end] + right + text[end:]
    return [{**row, "text": text}]


def _pair_with_choices(row: JsonRow) -> list[JsonRow]:
    """COPA: a row for each of the two choices, cause first and effect second."""
    pairs: list[JsonRow] = []
    for number in (0, 1):
        texts = [row["premise"], row[f"choice{number}"]]
        if row["question"] not in ("cause", "effect"):
            raise ValueError(f"question {row['question']!r}: 'cause' or 'effect' was expected")
        first, second = texts if row["question"] == "effect" else texts[::-1]
        pair = {"text_a": first, "text_b": second}
        if "label" in row:
            pair["label"] = str(int(int(row["label"]) == number))
        pairs.append(pair)
    return pairs


_PAIR = Columns("sentence1", "sentence2", "label", "id")
_SENTENCE = Columns("sentence", None, "label", "id")
_INDEXED_PAIR = Columns(1, 2, guid=0)
_WITH_F1 = (ACCURACY, "f1")


def _mnli(name: str, suffix: str, leaderboard_file: str) -> ClassificationTask:
    columns, test_columns = Columns(8, 9, -1, 0), Columns(8, 9, guid=0)
    return _glue(
        name, "MNLI", columns, test_columns, INFERENCE, suffix, leaderboard_file=leaderboard_file
    )


def _lcqmc(name: str, columns: Columns, stems: tuple[str, str, str]) -> ClassificationTask:
    """LCQMC, which is about with a header line and without one."""
    splits = {
        split: tuple(Source(stem + end, columns, has_header=None) for end in (".txt", ".tsv"))
        for split, stem in zip(("train", "dev", "test"), stems, strict=True)
    }
    return ClassificationTask(name, "LCQMC", splits, BINARY, metrics=_WITH_F1)


_XNLI_JSON = Columns("premise", "hypo", "label", "id")

_ROWS = (
    ClassificationTask(
        "cola",
        "CoLA",
        {
            "train": (Source("train.tsv", Columns(3, label=1), has_header=False),),
            "dev": (Source("dev.tsv", Columns(3, label=1), has_header=False),),
            "test": (Source("test.tsv", Columns(1, guid=0)),),
        },
        BINARY,
        metrics=(ACCURACY, "matthew_corr"),
        selection_metric="matthew_corr",
        leaderboard_file="CoLA.tsv",
    ),
    _mnli("mnli", "_matched", "MNLI-m.tsv"),
    _mnli("mismnli", "_mismatched", "MNLI-mm.tsv"),
    _glue(
        "mrpc",
        "MRPC",
        Columns(3, 4, 0),
        Columns(3, 4, guid=0),
        BINARY,
        metrics=_WITH_F1,
        leaderboard_file="MRPC.tsv",
    ),
    _glue(
        "rte", "RTE", Columns(1, 2, -1, 0), _INDEXED_PAIR, ENTAILMENT, leaderboard_file="RTE.tsv"
    ),
    _glue(
        "sst-2",
        "SST-2",
        Columns(0, label=1),
        Columns(1, guid=0),
        BINARY,
        leaderboard_file="SST-2.tsv",
    ),
    _glue(
        "sts-b",
        "STS-B",
        Columns(7, 8, -1, 0),
        Columns(7, 8, guid=0),
        (),
        is_regression=True,
        metrics=("MSE", "pearson", "spearman"),
        selection_metric="pearson",
        leaderboard_file="STS-B.tsv",
    ),
    _glue(
        "qqp",
        "QQP",
        Columns(3, 4, 5, 0),
        _INDEXED_PAIR,
        BINARY,
        metrics=_WITH_F1,
        leaderboard_file="QQP.tsv",
        skips_short_rows=True,
    ),
    _glue(
        "qnli",
        "QNLI",
        Columns(1, 2, -1, 0),
        _INDEXED_PAIR,
        ENTAILMENT,
        leaderboard_file="QNLI.tsv",
    ),
    _glue("wnli", "WNLI", Columns(1, 2, -1, 0), _INDEXED_PAIR, BINARY, leaderboard_file="WNLI.tsv"),
    # GLUE's diagnostic set, for a model of MNLI.
    ClassificationTask(
        "ax",
        "diagnostic",
        {"test": (Source("diagnostic.tsv", _INDEXED_PAIR),)},
        INFERENCE,
        leaderboard_file="AX.tsv",
    ),
    _lcqmc("lcqmc", Columns(0, 1, 2), ("train", "dev", "test")),
    # albert_zh's own copy of LCQMC.
    _lcqmc("sentence_pair", Columns(1, 2, 0), ("train_0827", "dev_0827", "test_0827")),
    ClassificationTask(
        "xnli",
        "XNLI",
        {
            "train": (
                Source("multinli/multinli.train.zh.tsv", Columns(0, 1, 2)),
                Source("multinli.train.zh.tsv", Columns(0, 1, 2)),
                Source("train.json", _XNLI_JSON),
            ),
            "dev": (
                Source("xnli.dev.tsv", Columns(6, 7, 1), only=(0, "zh")),
                Source("dev.json", _XNLI_JSON),
            ),
            "test": (
                Source("xnli.test.tsv", Columns(6, 7, 1), only=(0, "zh")),
                Source("test.json", _XNLI_JSON),
            ),
        },
        INFERENCE,
        label_aliases={"contradictory": "contradiction"},
    ),
    ClassificationTask(
        "chnsenticorp",
        "ChnSentiCorp",
        {
            split: (Source(f"{split}.tsv", Columns(1, label=0), has_header=None),)
            for split in ("train", "dev", "test")
        },
        BINARY,
    ),
    _clue("afqmc", _PAIR, BINARY),
    _clue(
        "tnews",
        _SENTENCE,
        tuple(str(label) for label in range(100, 117) if label not in (105, 111)),
        clue_fields={"label_desc": ""},
    ),
    _clue("iflytek", _SENTENCE, tuple(map(str, range(119)))),
    _clue("cmnli", _PAIR, INFERENCE, unlabeled=("-",)),
    _clue("ocnli", _PAIR, INFERENCE, unlabeled=("-",)),
    _clue("csl", Columns("keyword", "abst", "label", "id"), BINARY),
    _clue("wsc", Columns("text", None, "label", "id"), ("true", "false"), _mark_spans),
    _clue("copa", Columns("text_a", "text_b", "label"), BINARY, _pair_with_choices, group_size=2),
)

TASKS: dict[str, ClassificationTask] = {task.name: task for task in _ROWS}
ALIASES = {"lcqmc_pair": "lcqmc", "copa-zh": "copa", "mnli-mm": "mismnli", "mnli-m": "mnli"}
CUSTOM_TASK = "tsv"


def find_task(name: str) -> ClassificationTask:
    """The row of a `--task_name`, in any case.

    Raises:
        ValueError: there is none; the text lists those that there are.
    """
    key = name.strip().lower()
    key = ALIASES.get(key, key)
    if key not in TASKS:
        raise ValueError(
            f"Task not found: {name}. Known are {', '.join(sorted(TASKS))}, and {CUSTOM_TASK} for "
            "a custom task"
        )
    return TASKS[key]
