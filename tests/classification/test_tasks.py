import pytest

from albert_tf.classification.tasks import ALIASES, TASKS, find_task
from albert_tf.finetuning import metrics

GLUE = "cola mnli mismnli mrpc rte sst-2 sts-b qqp qnli wnli ax".split()
CHINESE = (
    "lcqmc sentence_pair xnli afqmc tnews iflytek cmnli ocnli csl wsc chnsenticorp copa".split()
)


def test_the_table_contains_all_tasks():
    assert set(TASKS) == {*GLUE, *CHINESE}


@pytest.mark.parametrize("name", TASKS)
def test_every_row_is_complete(name):
    task = TASKS[name]
    assert task.name == name == name.lower()
    assert set(task.splits) == ({"test"} if name == "ax" else {"train", "dev", "test"})
    assert bool(task.labels) != task.is_regression
    assert task.num_labels == (1 if task.is_regression else len(set(task.labels)))
    assert set(task.metrics) <= set(metrics.METRICS)
    assert task.selection_metric in task.metrics
    for split, sources in task.splits.items():
        for source in sources:
            assert source.columns.text_a is not None
            assert split == "test" or source.columns.label is not None


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("cola", ("0", "1")),
        ("mnli", ("contradiction", "entailment", "neutral")),
        ("rte", ("entailment", "not_entailment")),
        ("sts-b", ()),
        ("wsc", ("true", "false")),
    ],
)
def test_labels_have_the_ids_of_googles_checkpoints(name, labels):
    assert TASKS[name].labels == labels


def test_label_sets_of_clue():
    tnews = TASKS["tnews"].labels
    assert len(tnews) == 15
    assert tnews[0] == "100"
    assert tnews[-1] == "116"
    assert not {"105", "111"} & set(tnews)
    assert TASKS["iflytek"].num_labels == 119


def test_each_glue_task_has_the_leaderboards_file_name():
    names = [TASKS[name].leaderboard_file for name in GLUE]
    assert names == [
        f"{stem}.tsv"
        for stem in "CoLA MNLI-m MNLI-mm MRPC RTE SST-2 STS-B QQP QNLI WNLI AX".split()
    ]
    assert not any(TASKS[name].leaderboard_file for name in CHINESE)


def test_names_are_found_in_any_case_and_under_their_aliases():
    assert find_task("CoLA") is TASKS["cola"]
    assert find_task("LCQMC_pair") is TASKS["lcqmc"]
    assert {find_task(alias).name for alias in ALIASES} == set(ALIASES.values())


def test_an_unknown_task_is_an_error_that_lists_the_known_ones():
    with pytest.raises(
        ValueError, match=r"Task not found: colla\. .*'cola'.*afqmc, ax, .*tsv for a custom"
    ):
        find_task("colla")
