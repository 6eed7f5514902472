"""The table of classification and regression tasks, with one row per task.

A row defines the files and columns of a task, its labels in order, its metrics and the format of
its submissions. `reading` reads the files. GLUE tasks follow Google's `classifier_utils.py`;
Chinese tasks follow albert_zh and CLUE.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType

from albert_tf import files
from albert_tf.finetuning.examples import is_none
from albert_tf.finetuning.rows import Column
from albert_tf.spelling import did_you_mean

ACCURACY = "eval_accuracy"
BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
# The order of `output_weights` in Google's checkpoints of MNLI.
INFERENCE = ("contradiction", "entailment", "neutral")

MICRO_F1 = "micro_f1"


MOST_COLUMNS = 10  # of labels, in a message


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a file, by index (negative to count from the end) or by name.

    Names refer to the header, or to the keys of JSON lines.

    Attributes:
        text_a: the first or only text; None to find it by the header.
        text_b: the second text; None if there is none.
        label: the label; None if there is none, as in most test files. In a multi-label task, the
            list of labels, or the columns that have 1 or 0 for each label.
        guid: id of the example; None for `<split>-<row number>`.
    """

    text_a: Column | None = None
    text_b: Column | None = None
    label: Column | tuple[Column, ...] | None = None
    guid: Column | None = None

    @property
    def labels(self) -> tuple[Column, ...]:
        """The column of the label, or those of all labels of a multi-label task, if given."""
        if isinstance(self.label, tuple):
            return self.label
        return () if self.label is None else (self.label,)

    @property
    def used(self) -> set[Column]:
        """All columns that are given."""
        columns = (self.text_a, self.text_b, self.guid, *self.labels)
        return {column for column in columns if column is not None}

    def __str__(self) -> str:
        """Returns what is read from which column, such as "text: review, label: stars"."""
        text = "text" if self.text_b is None else "first text"
        parts = {text: self.text_a, "second text": self.text_b, "id": self.guid}
        named = [f"{part}: {column}" for part, column in parts.items() if column is not None]
        label = ", ".join(map(str, self.labels[:MOST_COLUMNS]))
        more = ", …" if len(self.labels) > MOST_COLUMNS else ""
        if label:
            named.insert(len(named) - (self.guid is not None), f"label: {label}{more}")
        return ", ".join(named) or "nothing"


@dataclasses.dataclass(frozen=True)
class SplitSource:
    """A file from which a split can be read.

    Attributes:
        file: name of the file in the task's folder. `.jsonl` and `.json` files have one JSON object
            per line, `.csv` files are comma-separated and may quote cells, and all others are
            tab-separated without quoting, as in Google's programs.
        columns: the columns of the rows.
        has_header: whether the first line is a header; None to detect it by the names of columns.
        only: (column, value) that rows must have; others are ignored.
        expand: converts a JSON object to rows with the keys of `columns`.
        is_custom: whether columns that are None are found by their default names.
    """

    file: str
    columns: Columns
    has_header: bool | None = True
    only: tuple[int, str] | None = None
    expand: Callable[[files.JsonObject], list[files.JsonObject]] | None = None
    is_custom: bool = False


Splits = Mapping[str, tuple[SplitSource, ...]]  # see `ClassificationTask`


@dataclasses.dataclass(frozen=True)
class ClassificationTask:
    """A classification or regression task.

    Attributes:
        name: value of `--task_name`, in lower case.
        folder: name of the task's folder in the data directory. Files in the data directory itself
            are found, too.
        splits: "train", "dev" and "test", if they exist → candidate files; the first existing one
            is read.
        labels: the labels, in the order of their ids; empty to read them from the training data.
        is_regression: whether labels are numbers, so that the model has a single output.
        is_multi_label: whether an example has any number of labels, even none.
        configurations: names of the task's folder on the Hugging Face Hub, if it is not `name`.
        suffix: further word in the names of its splits there, such as "matched".
        metrics: keys of `metrics.METRICS`.
        selection_metric: the metric that selects the best checkpoint; larger is better.
        label_aliases: alternative spelling in the files → label.
        leaderboard_file: name of the file to submit to GLUE; "" for none.
        clue_fields: additional fields in each line of CLUE's `<task>_predict.json`; None if there
            is no such file.
        group_size: number of consecutive rows that are the options of one question. The answer is
            the row with the highest probability of the last label.
        first_id: the id of the first label, 0 or 1, in data with ids of labels that the settings
            name; None if it is not known.
        skips_short_rows: whether rows with too few columns are skipped and empty texts are kept,
            without counting as bad, as Google's program does for this task only.
    """

    name: str
    folder: str
    splits: Splits
    labels: tuple[str, ...] = ()
    is_regression: bool = False
    metrics: tuple[str, ...] = (ACCURACY,)
    selection_metric: str = ACCURACY
    label_aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    leaderboard_file: str = ""
    clue_fields: Mapping[str, str] | None = None
    group_size: int = 1
    skips_short_rows: bool = False
    is_multi_label: bool = False
    first_id: int | None = None
    configurations: tuple[str, ...] = ()
    suffix: str = ""

    @property
    def num_labels(self) -> int:
        """Number of outputs of the model."""
        return 1 if self.is_regression else len(self.labels)


def _glue(columns: Columns, test_columns: Columns, suffix: str = "") -> Splits:
    """Returns the files of a GLUE task; `suffix` distinguishes MNLI's two dev sets."""
    return {
        "train": (SplitSource("train.tsv", columns),),
        "dev": (SplitSource(f"dev{suffix}.tsv", columns),),
        "test": (SplitSource(f"test{suffix}.tsv", test_columns),),
    }


def _clue(
    name: str,
    columns: Columns,
    labels: tuple[str, ...],
    expand: Callable[[files.JsonObject], list[files.JsonObject]] | None = None,
    clue_fields: Mapping[str, str] = MappingProxyType({}),
    group_size: int = 1,
    configurations: tuple[str, ...] = (),
) -> ClassificationTask:
    """Returns a CLUE task: JSON lines, without labels in the test file."""
    splits = {
        split: (SplitSource(f"{split}.json", columns, expand=expand),)
        for split in ("train", "dev", "test")
    }
    return ClassificationTask(
        name,
        name,
        splits,
        labels,
        clue_fields=clue_fields,
        group_size=group_size,
        configurations=configurations,
    )


def _mark_spans(row: files.JsonObject) -> list[files.JsonObject]:
    """Marks the noun with `_ _` and the pronoun with `[ ]` in the text, for WSC."""
    text, target, spans = row["text"], row["target"], []
    for number, marks in ((1, ("_", "_")), (2, ("[", "]"))):
        start, span = target[f"span{number}_index"], target[f"span{number}_text"]
        if text[start : start + len(span)] != span:
            raise ValueError(f"the text does not have {files.quote(span)} at character {start}")
        spans.append((start, start + len(span), marks))
    for start, end, (left, right) in sorted(spans, reverse=True):
        text = text[:start] + left + text[start:end] + right + text[end:]
    return [{**row, "text": text}]


def _pair_with_choices(row: files.JsonObject) -> list[files.JsonObject]:
    """Returns a row for each of the two choices, with the cause before the effect, for COPA."""
    pairs: list[files.JsonObject] = []
    for number in (0, 1):
        texts = [row["premise"], row[f"choice{number}"]]
        if row["question"] not in ("cause", "effect"):
            raise ValueError(
                f"question {files.quote(row['question'])}: expected 'cause' or 'effect'"
            )
        first, second = texts if row["question"] == "effect" else texts[::-1]
        pair = {"text_a": first, "text_b": second}
        pair |= {name: row[name] for name in ("id", "idx") if name in row}
        if not is_none(row.get("label")):
            pair["label"] = str(int(int(row["label"]) == number))
        pairs.append(pair)
    return pairs


_PAIR = Columns("sentence1", "sentence2", "label", "id")
_SENTENCE = Columns("sentence", None, "label", "id")
_INDEXED_PAIR = Columns(1, 2, guid=0)
_WITH_F1 = (ACCURACY, "f1")


def _mnli(name: str, suffix: str, leaderboard_file: str) -> ClassificationTask:
    splits = _glue(Columns(8, 9, -1, 0), Columns(8, 9, guid=0), suffix)
    return ClassificationTask(
        name,
        "MNLI",
        splits,
        INFERENCE,
        leaderboard_file=leaderboard_file,
        configurations=("mnli",),
        suffix=suffix.removeprefix("_"),
    )


def _lcqmc(name: str, columns: Columns, stems: tuple[str, str, str]) -> ClassificationTask:
    """Returns a variant of LCQMC, which is distributed with and without a header."""
    splits = {
        split: tuple(SplitSource(stem + end, columns, has_header=None) for end in (".txt", ".tsv"))
        for split, stem in zip(("train", "dev", "test"), stems, strict=True)
    }
    return ClassificationTask(name, "LCQMC", splits, BINARY, metrics=_WITH_F1)


_XNLI_JSON = Columns("premise", "hypo", "label", "id")

_ROWS = (
    ClassificationTask(
        "cola",
        "CoLA",
        {
            "train": (SplitSource("train.tsv", Columns(3, label=1), has_header=False),),
            "dev": (SplitSource("dev.tsv", Columns(3, label=1), has_header=False),),
            "test": (SplitSource("test.tsv", Columns(1, guid=0)),),
        },
        BINARY,
        metrics=(ACCURACY, "matthew_corr"),
        selection_metric="matthew_corr",
        leaderboard_file="CoLA.tsv",
    ),
    _mnli("mnli", "_matched", "MNLI-m.tsv"),
    _mnli("mismnli", "_mismatched", "MNLI-mm.tsv"),
    ClassificationTask(
        "mrpc",
        "MRPC",
        _glue(Columns(3, 4, 0), Columns(3, 4, guid=0)),
        BINARY,
        metrics=_WITH_F1,
        leaderboard_file="MRPC.tsv",
    ),
    ClassificationTask(
        "rte",
        "RTE",
        _glue(Columns(1, 2, -1, 0), _INDEXED_PAIR),
        ENTAILMENT,
        leaderboard_file="RTE.tsv",
    ),
    ClassificationTask(
        "sst-2",
        "SST-2",
        _glue(Columns(0, label=1), Columns(1, guid=0)),
        BINARY,
        leaderboard_file="SST-2.tsv",
        configurations=("sst2",),
    ),
    ClassificationTask(
        "sts-b",
        "STS-B",
        _glue(Columns(7, 8, -1, 0), Columns(7, 8, guid=0)),
        is_regression=True,
        metrics=("MSE", "pearson", "spearman"),
        selection_metric="pearson",
        leaderboard_file="STS-B.tsv",
        configurations=("stsb",),
    ),
    ClassificationTask(
        "qqp",
        "QQP",
        _glue(Columns(3, 4, 5, 0), _INDEXED_PAIR),
        BINARY,
        metrics=_WITH_F1,
        leaderboard_file="QQP.tsv",
        skips_short_rows=True,
    ),
    ClassificationTask(
        "qnli",
        "QNLI",
        _glue(Columns(1, 2, -1, 0), _INDEXED_PAIR),
        ENTAILMENT,
        leaderboard_file="QNLI.tsv",
    ),
    ClassificationTask(
        "wnli",
        "WNLI",
        _glue(Columns(1, 2, -1, 0), _INDEXED_PAIR),
        BINARY,
        leaderboard_file="WNLI.tsv",
    ),
    # GLUE's diagnostic set, to be predicted by a model of MNLI.
    ClassificationTask(
        "ax",
        "diagnostic",
        {"test": (SplitSource("diagnostic.tsv", _INDEXED_PAIR),)},
        INFERENCE,
        leaderboard_file="AX.tsv",
    ),
    _lcqmc("lcqmc", Columns(0, 1, 2), ("train", "dev", "test")),
    # albert_zh's version of LCQMC.
    _lcqmc("sentence_pair", Columns(1, 2, 0), ("train_0827", "dev_0827", "test_0827")),
    ClassificationTask(
        "xnli",
        "XNLI",
        {
            "train": (
                SplitSource("multinli/multinli.train.zh.tsv", Columns(0, 1, 2)),
                SplitSource("multinli.train.zh.tsv", Columns(0, 1, 2)),
                SplitSource("train.json", _XNLI_JSON),
            ),
            "dev": (
                SplitSource("xnli.dev.tsv", Columns(6, 7, 1), only=(0, "zh")),
                SplitSource("dev.json", _XNLI_JSON),
            ),
            "test": (
                SplitSource("xnli.test.tsv", Columns(6, 7, 1), only=(0, "zh")),
                SplitSource("test.json", _XNLI_JSON),
            ),
        },
        INFERENCE,
        label_aliases={"contradictory": "contradiction"},
        configurations=("xnli", "zh"),
    ),
    ClassificationTask(
        "chnsenticorp",
        "ChnSentiCorp",
        {
            split: (SplitSource(f"{split}.tsv", Columns(1, label=0), has_header=None),)
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
    _clue("cmnli", _PAIR, INFERENCE),
    _clue("ocnli", _PAIR, INFERENCE),
    _clue("csl", Columns("keyword", "abst", "label", "id"), BINARY),
    _clue(
        "wsc",
        Columns("text", None, "label", "id"),
        ("true", "false"),
        _mark_spans,
        configurations=("wsc", "cluewsc2020"),
    ),
    _clue(
        "copa", Columns("text_a", "text_b", "label", "id"), BINARY, _pair_with_choices, group_size=2
    ),
)

TASKS: dict[str, ClassificationTask] = {task.name: task for task in _ROWS}
ALIASES = {"lcqmc_pair": "lcqmc", "copa-zh": "copa", "mnli-mm": "mismnli", "mnli-m": "mnli"}
CUSTOM_TASK = "tsv"


def find_task(name: str) -> ClassificationTask:
    """Returns the task with the name `--task_name`, ignoring case.

    Raises:
        ValueError: there is no such task; the message lists all tasks.
    """
    key = name.strip().lower()
    key = ALIASES.get(key, key)
    if key not in TASKS:
        available = f"{', '.join(sorted(TASKS))}, and {CUSTOM_TASK} for a custom task"
        said = (
            f"Task not found: {name}.",
            did_you_mean(key, (*TASKS, CUSTOM_TASK)),
            f"Available tasks: {available}",
        )
        raise ValueError(" ".join(filter(None, said)))
    return TASKS[key]
