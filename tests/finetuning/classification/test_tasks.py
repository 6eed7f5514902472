"""The table of tasks: files, columns, labels and metrics, as in Google's and CLUE's programs."""

import pytest

from albert_tf.finetuning.classification.tasks import TASKS, Columns, find_task
from tests.read_classes import read_examples

# Task, folder and split; file, and columns of the first text, the second, the label and the id; and
# whether the first line is a header.
FILES = """
cola CoLA train: train.tsv 3 - 1 - no
cola CoLA dev: dev.tsv 3 - 1 - no
cola CoLA test: test.tsv 1 - - 0 yes
mnli MNLI train: train.tsv 8 9 -1 0 yes
mnli MNLI dev: dev_matched.tsv 8 9 -1 0 yes
mnli MNLI test: test_matched.tsv 8 9 - 0 yes
mismnli MNLI train: train.tsv 8 9 -1 0 yes
mismnli MNLI dev: dev_mismatched.tsv 8 9 -1 0 yes
mismnli MNLI test: test_mismatched.tsv 8 9 - 0 yes
mrpc MRPC train: train.tsv 3 4 0 - yes
mrpc MRPC dev: dev.tsv 3 4 0 - yes
mrpc MRPC test: test.tsv 3 4 - 0 yes
rte RTE train: train.tsv 1 2 -1 0 yes
rte RTE dev: dev.tsv 1 2 -1 0 yes
rte RTE test: test.tsv 1 2 - 0 yes
sst-2 SST-2 train: train.tsv 0 - 1 - yes
sst-2 SST-2 dev: dev.tsv 0 - 1 - yes
sst-2 SST-2 test: test.tsv 1 - - 0 yes
sts-b STS-B train: train.tsv 7 8 -1 0 yes
sts-b STS-B dev: dev.tsv 7 8 -1 0 yes
sts-b STS-B test: test.tsv 7 8 - 0 yes
qqp QQP train: train.tsv 3 4 5 0 yes
qqp QQP dev: dev.tsv 3 4 5 0 yes
qqp QQP test: test.tsv 1 2 - 0 yes
qnli QNLI train: train.tsv 1 2 -1 0 yes
qnli QNLI dev: dev.tsv 1 2 -1 0 yes
qnli QNLI test: test.tsv 1 2 - 0 yes
wnli WNLI train: train.tsv 1 2 -1 0 yes
wnli WNLI dev: dev.tsv 1 2 -1 0 yes
wnli WNLI test: test.tsv 1 2 - 0 yes
ax diagnostic test: diagnostic.tsv 1 2 - 0 yes
lcqmc LCQMC train: train.txt 0 1 2 - maybe, train.tsv 0 1 2 - maybe
lcqmc LCQMC dev: dev.txt 0 1 2 - maybe, dev.tsv 0 1 2 - maybe
lcqmc LCQMC test: test.txt 0 1 2 - maybe, test.tsv 0 1 2 - maybe
sentence_pair LCQMC train: train_0827.txt 1 2 0 - maybe, train_0827.tsv 1 2 0 - maybe
sentence_pair LCQMC dev: dev_0827.txt 1 2 0 - maybe, dev_0827.tsv 1 2 0 - maybe
sentence_pair LCQMC test: test_0827.txt 1 2 0 - maybe, test_0827.tsv 1 2 0 - maybe
xnli XNLI train: multinli/multinli.train.zh.tsv 0 1 2 - yes, multinli.train.zh.tsv 0 1 2 - yes, \
train.json premise hypo label id yes
xnli XNLI dev: xnli.dev.tsv 6 7 1 - yes, dev.json premise hypo label id yes
xnli XNLI test: xnli.test.tsv 6 7 1 - yes, test.json premise hypo label id yes
chnsenticorp ChnSentiCorp train: train.tsv 1 - 0 - maybe
chnsenticorp ChnSentiCorp dev: dev.tsv 1 - 0 - maybe
chnsenticorp ChnSentiCorp test: test.tsv 1 - 0 - maybe
"""
# The columns of CLUE, whose files are train.json, dev.json and test.json.
CLUE = {
    "afqmc": Columns("sentence1", "sentence2", "label", "id"),
    "tnews": Columns("sentence", None, "label", "id"),
    "iflytek": Columns("sentence", None, "label", "id"),
    "cmnli": Columns("sentence1", "sentence2", "label", "id"),
    "ocnli": Columns("sentence1", "sentence2", "label", "id"),
    "csl": Columns("keyword", "abst", "label", "id"),
    "wsc": Columns("text", None, "label", "id"),
    "copa": Columns("text_a", "text_b", "label", "id"),
}
HEADERS = {True: "yes", False: "no", None: "maybe"}


def described(name, split):
    """Returns the line of `FILES` of a task."""
    task = TASKS[name]
    files = []
    for source in task.splits[split]:
        places = (source.columns.text_a, source.columns.text_b)
        places += (source.columns.label, source.columns.guid)
        shown = ["-" if place is None else str(place) for place in places]
        files.append(" ".join([source.file, *shown, HEADERS[source.has_header]]))
    return f"{name} {task.folder} {split}: {', '.join(files)}"


def test_each_task_has_these_files_and_columns():
    found = [described(name, split) for name in TASKS for split in TASKS[name].splits]
    clue = []
    for name, columns in CLUE.items():
        of_clue = (columns.text_a, columns.text_b, columns.label, columns.guid)
        shown = " ".join("-" if place is None else place for place in of_clue)
        for split in ("train", "dev", "test"):
            clue.append(f"{name} {name} {split}: {split}.json {shown} yes")
    assert found == FILES.split("\n")[1:-1] + clue


BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
INFERENCE = ("contradiction", "entailment", "neutral")
TNEWS = tuple("100 101 102 103 104 106 107 108 109 110 112 113 114 115 116".split())

# Labels in the order of Google's checkpoints; metrics, of which the one marked selects the best
# checkpoint; and the name of the file for GLUE's leaderboard.
TASK_ROWS = [
    ("cola", BINARY, "eval_accuracy matthew_corr*", "CoLA.tsv"),
    ("mnli", INFERENCE, "eval_accuracy*", "MNLI-m.tsv"),
    ("mismnli", INFERENCE, "eval_accuracy*", "MNLI-mm.tsv"),
    ("mrpc", BINARY, "eval_accuracy* f1", "MRPC.tsv"),
    ("rte", ENTAILMENT, "eval_accuracy*", "RTE.tsv"),
    ("sst-2", BINARY, "eval_accuracy*", "SST-2.tsv"),
    ("sts-b", (), "MSE pearson* spearman", "STS-B.tsv"),
    ("qqp", BINARY, "eval_accuracy* f1", "QQP.tsv"),
    ("qnli", ENTAILMENT, "eval_accuracy*", "QNLI.tsv"),
    ("wnli", BINARY, "eval_accuracy*", "WNLI.tsv"),
    ("ax", INFERENCE, "eval_accuracy*", "AX.tsv"),
    ("lcqmc", BINARY, "eval_accuracy* f1", ""),
    ("sentence_pair", BINARY, "eval_accuracy* f1", ""),
    ("xnli", INFERENCE, "eval_accuracy*", ""),
    ("chnsenticorp", BINARY, "eval_accuracy*", ""),
    ("afqmc", BINARY, "eval_accuracy*", ""),
    ("tnews", TNEWS, "eval_accuracy*", ""),
    ("iflytek", tuple(map(str, range(119))), "eval_accuracy*", ""),
    ("cmnli", INFERENCE, "eval_accuracy*", ""),
    ("ocnli", INFERENCE, "eval_accuracy*", ""),
    ("csl", BINARY, "eval_accuracy*", ""),
    ("wsc", ("true", "false"), "eval_accuracy*", ""),
    ("copa", BINARY, "eval_accuracy*", ""),
]


@pytest.mark.parametrize(("name", "labels", "metrics", "leaderboard_file"), TASK_ROWS)
def test_each_task_has_these_labels_metrics_and_submissions(
    name, labels, metrics, leaderboard_file
):
    task = TASKS[name]
    keys = [key + "*" * (key == task.selection_metric) for key in task.metrics]
    assert (task.labels, " ".join(keys)) == (labels, metrics)
    assert (task.leaderboard_file, task.is_multi_label) == (leaderboard_file, False)
    assert (task.is_regression, task.num_labels) == (not labels, max(len(labels), 1))


def test_what_only_some_tasks_have():
    assert list(TASKS) == [name for name, *_ in TASK_ROWS]
    assert {name for name, task in TASKS.items() if task.skips_short_rows} == {"qqp"}
    groups = {name: task.group_size for name, task in TASKS.items() if task.group_size != 1}
    assert groups == {"copa": 2}
    aliases = {name: dict(task.label_aliases) for name, task in TASKS.items() if task.label_aliases}
    assert aliases == {"xnli": {"contradictory": "contradiction"}}
    rows = {(name, source.only) for name in TASKS for source in TASKS[name].splits["test"]}
    assert {row for row in rows if row[1]} == {("xnli", (0, "zh"))}
    fields = {name: TASKS[name].clue_fields for name in TASKS}
    assert {name: dict(given) for name, given in fields.items() if given is not None} == {
        name: {"label_desc": ""} if name == "tnews" else {} for name in CLUE
    }


# File, and the number of cells that its rows need at least.
WIDTHS = [
    *(("cola train CoLA/train.tsv", 4), ("cola dev CoLA/dev.tsv", 4), ("cola test test.tsv", 2)),
    *(("mnli train train.tsv", 10), ("mnli dev dev_matched.tsv", 10)),
    *(("mnli test test_matched.tsv", 10), ("mismnli test test_mismatched.tsv", 10)),
    *(("mrpc train train.tsv", 5), ("mrpc test test.tsv", 5)),
    *(("rte train train.tsv", 3), ("rte test test.tsv", 3)),
    *(("sst-2 train train.tsv", 2), ("sst-2 test test.tsv", 2)),
    *(("sts-b train train.tsv", 9), ("sts-b test test.tsv", 9)),
    ("qqp test test.tsv", 3),  # see `test_reading` for the others
    *(("qnli train train.tsv", 3), ("wnli dev dev.tsv", 3), ("ax test diagnostic.tsv", 3)),
    *(("lcqmc train train.txt", 3), ("sentence_pair train train_0827.txt", 3)),
    *(("xnli train multinli.train.zh.tsv", 3), ("xnli dev xnli.dev.tsv", 8)),
    ("chnsenticorp train train.tsv", 2),
]
NO_HEADER = ("CoLA/train.tsv", "CoLA/dev.tsv", "train.txt", "train_0827.txt")


@pytest.mark.parametrize(("place", "width"), WIDTHS)
def test_a_row_has_as_many_cells_as_the_last_column_needs(write, place, width):
    name, split, file = place.split()
    task = TASKS[name]
    label = "0.5" if task.is_regression else task.labels[0]
    # Where the label is the last cell, this is also the second text here.
    row = [label] * width if name != "xnli" else ["zh", *[label] * (width - 1)]
    lines = [row] if file in NO_HEADER or name == "chnsenticorp" else [["head"] * width, row]
    assert len(read_examples(name, write(file, *lines), split)) == 1
    with pytest.raises(ValueError, match=f"expected {width} or more columns, got {width - 1}"):
        read_examples(name, write(file, *lines, row[:-1]), split)


def test_names_are_found_in_any_case_and_under_their_aliases():
    assert find_task("CoLA") is TASKS["cola"]
    assert find_task("LCQMC_pair") is TASKS["lcqmc"]
    with pytest.raises(
        ValueError, match=r"Task not found: colla\. .*'cola'.*afqmc, ax, .*tsv for a custom"
    ):
        find_task("colla")
