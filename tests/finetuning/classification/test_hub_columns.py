"""Each task reads the columns and the names of labels that the Hub has for it.

The examples are those of the files that were read before, Google's or the authors', in which the
labels are written.
"""

import json

import pytest

from albert_tf.finetuning.classification import Settings
from tests.hub_files import (
    WITHOUT_NAMES,
    class_label,
    describe_in_page,
    list_of,
    write_json_lines,
    write_parquet,
)
from tests.read_classes import read_data

INFERENCE = class_label("entailment", "neutral", "contradiction")
ENTAILMENT = class_label("entailment", "not_entailment")
NEWS = class_label(*(str(n) for n in range(100, 117) if n not in (105, 111)))


def tsv(*rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def lines(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def blanks(count):
    return ["-"] * count


# Task; the rows of the Hub, with the feature of the label; the file of before, and its content.
TASKS = {
    "cola": (
        [
            {"sentence": "a b", "label": 1, "idx": 0},
            {"sentence": "c", "label": 0, "idx": 1},
        ],
        class_label("unacceptable", "acceptable"),
        ("CoLA/train.tsv", tsv(["s", 1, "*", "a b"], ["s", 0, "", "c"])),
    ),
    "sst-2": (
        [{"sentence": "a b", "label": 1, "idx": 0}, {"sentence": "c", "label": 0, "idx": 1}],
        class_label("negative", "positive"),
        ("SST-2/train.tsv", tsv(["sentence", "label"], ["a b", 1], ["c", 0])),
    ),
    "mrpc": (
        [
            {"sentence1": "a", "sentence2": "b", "label": 1, "idx": 0},
            {"sentence1": "c", "sentence2": "d", "label": 0, "idx": 1},
        ],
        class_label("not_equivalent", "equivalent"),
        ("MRPC/train.tsv", tsv(blanks(5), [1, "-", "-", "a", "b"], [0, "-", "-", "c", "d"])),
    ),
    "rte": (
        [
            {"sentence1": "a", "sentence2": "b", "label": 1, "idx": 0},
            {"sentence1": "c", "sentence2": "d", "label": 0, "idx": 1},
        ],
        ENTAILMENT,
        (
            "RTE/train.tsv",
            tsv(blanks(4), [0, "a", "b", "not_entailment"], [1, "c", "d", "entailment"]),
        ),
    ),
    "wnli": (
        [{"sentence1": "a", "sentence2": "b", "label": 1, "idx": 7}],
        class_label("not_entailment", "entailment"),
        ("WNLI/train.tsv", tsv(blanks(4), [7, "a", "b", 1])),
    ),
    "sts-b": (
        [{"sentence1": "a", "sentence2": "b", "label": 2.5, "idx": 7}],
        {"dtype": "float32", "_type": "Value"},
        ("STS-B/train.tsv", tsv(blanks(10), [7, *blanks(6), "a", "b", 2.5])),
    ),
    "qqp": (
        [{"question1": "a", "question2": "b", "label": 1, "idx": 7}],
        class_label("not_duplicate", "duplicate"),
        ("QQP/train.tsv", tsv(blanks(6), [7, "-", "-", "a", "b", 1])),
    ),
    "qnli": (
        [{"question": "a", "sentence": "b", "label": 1, "idx": 7}],
        ENTAILMENT,
        ("QNLI/train.tsv", tsv(blanks(4), [7, "a", "b", "not_entailment"])),
    ),
    "mnli": (
        [
            {"premise": "a", "hypothesis": "b", "label": 0, "idx": 0},
            {"premise": "c", "hypothesis": "d", "label": 1, "idx": 1},
            {"premise": "e", "hypothesis": "f", "label": 2, "idx": 2},
        ],
        INFERENCE,
        (
            "MNLI/train.tsv",
            tsv(
                blanks(12),
                [0, *blanks(7), "a", "b", "-", "entailment"],
                [1, *blanks(7), "c", "d", "-", "neutral"],
                [2, *blanks(7), "e", "f", "-", "contradiction"],
            ),
        ),
    ),
    "xnli": (
        [
            {"premise": "a", "hypothesis": "b", "label": 2},
            {"premise": "c", "hypothesis": "d", "label": 0},
        ],
        INFERENCE,
        (
            "XNLI/multinli/multinli.train.zh.tsv",
            tsv(blanks(3), ["a", "b", "contradictory"], ["c", "d", "entailment"]),
        ),
    ),
    "lcqmc": (
        [{"text1": "一", "text2": "二", "label": 1}, {"text1": "三", "text2": "四", "label": 0}],
        class_label("0", "1"),
        ("LCQMC/train.txt", tsv(["一", "二", 1], ["三", "四", 0])),
    ),
    "sentence_pair": (
        [{"query": "一", "title": "二", "score": 1}, {"query": "三", "title": "四", "score": 0}],
        {},
        ("train_0827.txt", tsv([1, "一", "二"], [0, "三", "四"])),
    ),
    # bq_corpus
    "tsv": (
        [
            {"sentence1": "一", "sentence2": "二", "label": 1, "idx": 0},
            {"sentence1": "三", "sentence2": "四", "label": 0, "idx": 1},
        ],
        class_label("0", "1"),
        ("train.tsv", tsv(["text_a", "text_b", "label"], ["一", "二", 1], ["三", "四", 0])),
    ),
    "chnsenticorp": (
        [{"text": "好", "label": 1}, {"text": "差", "label": 0}],
        class_label("negative", "positive"),
        ("train.tsv", tsv(["label", "text_a"], [1, "好"], [0, "差"])),
    ),
    "afqmc": (
        [{"sentence1": "一", "sentence2": "二", "label": 1, "idx": 7}],
        class_label("0", "1"),
        ("train.json", lines({"sentence1": "一", "sentence2": "二", "label": "1", "id": 7})),
    ),
    "cmnli": (
        [{"sentence1": "一", "sentence2": "二", "label": 0, "idx": 7}],
        class_label("neutral", "entailment", "contradiction"),
        ("train.json", lines({"sentence1": "一", "sentence2": "二", "label": "neutral", "id": 7})),
    ),
    "tnews": (
        [{"sentence": "一", "label": 5, "idx": 7}],
        NEWS,
        ("train.json", lines({"sentence": "一", "label": "106", "id": 7})),
    ),
    "iflytek": (
        [{"sentence": "一", "label": 118, "idx": 7}],
        class_label(*map(str, range(119))),
        ("train.json", lines({"sentence": "一", "label": "118", "id": 7})),
    ),
    "csl": (
        [{"idx": 7, "corpus_id": 3, "abst": "文", "label": 1, "keyword": ["甲", "乙"]}],
        class_label("0", "1"),
        ("train.json", lines({"id": 7, "abst": "文", "keyword": ["甲", "乙"], "label": "1"})),
    ),
    "wsc": (
        [
            {
                "idx": 7,
                "text": "甲说乙好",
                "label": 1,
                "target": {
                    "span1_text": "甲",
                    "span1_index": 0,
                    "span2_text": "乙",
                    "span2_index": 2,
                },
            }
        ],
        class_label("true", "false"),
        (
            "train.json",
            lines(
                {
                    "id": 7,
                    "text": "甲说乙好",
                    "label": "false",
                    "target": {
                        "span1_text": "甲",
                        "span1_index": 0,
                        "span2_text": "乙",
                        "span2_index": 2,
                    },
                }
            ),
        ),
    ),
}
# Tasks whose labels are known without names: they are numbers, or the ids themselves.
KNOWN_IDS = [
    *("cola", "sst-2", "mrpc", "wnli", "sts-b", "qqp", "lcqmc", "sentence_pair", "chnsenticorp"),
    *("afqmc", "iflytek"),
]


def read(folder, name, split="train", **values):
    phase = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}[split]
    settings = Settings(
        task_name=name, data_dir=str(folder), output_dir="out", **{phase: True}, **values
    )
    task, data = read_data(settings)
    examples = [(x.text_a, x.text_b, x.label) for x in data[split].examples]
    return task, examples, [x.guid for x in data[split].examples]


def read_old(folder, name):
    file, content = TASKS[name][2]
    (folder / "old" / file).parent.mkdir(parents=True)
    (folder / "old" / file).write_text(content, encoding="utf-8")
    return read(folder / "old", name)


@pytest.mark.parametrize("write", WITHOUT_NAMES)
@pytest.mark.parametrize("name", KNOWN_IDS)
def test_numbers_are_the_labels_of_the_task_without_names(tmp_path, name, write):
    rows, _, _ = TASKS[name]
    (tmp_path / "hub").mkdir()
    write(tmp_path / "hub", {"train": rows})
    expected_task, expected, _ = read_old(tmp_path, name)
    task, found, guids = read(tmp_path / "hub", name)
    assert (task, found) == (expected_task, expected)
    if "idx" in rows[0]:
        assert guids == [str(row["idx"]) for row in rows]


def test_the_header_of_an_archive_need_not_fit(tmp_path):
    (tmp_path / "MRPC").mkdir()
    rows = tsv(["Quality"], [1, "-", "-", "a", "b"], [0, "-", "-", "c", "d"])
    (tmp_path / "MRPC" / "train.tsv").write_text(rows)
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE" / "train.tsv").write_text(tsv(["index"], [0, "a", "b", "entailment"]))
    assert read(tmp_path, "mrpc")[1] == [("a", "b", "1"), ("c", "d", "0")]
    assert read(tmp_path, "rte")[1] == [("a", "b", "entailment")]


def test_the_diagnostic_set_of_glue_is_predicted_from_the_hub_and_its_archive(tmp_path):
    rows = [{"premise": "a", "hypothesis": "b", "label": -1, "idx": 7}]
    rows.append({"premise": "c", "hypothesis": "d", "label": -1, "idx": 9})
    (tmp_path / "hub").mkdir()
    write_parquet(tmp_path / "hub", {"test": rows}, {"label": INFERENCE})
    (tmp_path / "old" / "diagnostic").mkdir(parents=True)
    content = tsv(["index", "sentence1", "sentence2"], [7, "a", "b"], [9, "c", "d"])
    (tmp_path / "old" / "diagnostic" / "diagnostic.tsv").write_text(content)
    found, before = (read(tmp_path / folder, "ax", "test") for folder in ("hub", "old"))
    assert found == before
    assert found[1:] == ([("a", "b", None), ("c", "d", None)], ["7", "9"])


@pytest.mark.parametrize(
    ("name", "configuration"),
    [
        ("cola", "cola"),
        ("sst-2", "sst2"),
        ("sts-b", "stsb"),
        ("mnli", "mnli"),
        ("wsc", "cluewsc2020"),
        ("xnli", "zh"),
        ("tnews", "tnews"),
    ],
)
def test_a_repository_has_a_folder_for_the_task(tmp_path, name, configuration):
    rows, feature, _ = TASKS[name]
    (tmp_path / "hub" / configuration).mkdir(parents=True)
    (tmp_path / "hub" / "other").mkdir()
    write_parquet(tmp_path / "hub" / configuration, {"train": rows}, {"label": feature})
    write_parquet(tmp_path / "hub" / "other", {"train": [{"text": "no"}]}, {})
    assert read(tmp_path / "hub", name)[1] == read_old(tmp_path, name)[1]


@pytest.mark.parametrize("write", WITHOUT_NAMES)
@pytest.mark.parametrize("name", ["rte", "mnli", "xnli", "tnews"])
def test_ids_without_names_are_refused_where_the_order_matters(tmp_path, name, write):
    write(tmp_path, {"train": TASKS[name][0]})
    with pytest.raises(ValueError, match=r"train\.(jsonl|csv), line .*the order of the ids is not"):
        read(tmp_path, name)


def test_names_that_are_not_those_of_the_task_are_refused(tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "label": 1}]
    write_parquet(tmp_path, {"train": rows}, {"label": class_label("no", "yes")})
    with pytest.raises(ValueError, match="labels are named 'no', 'yes'; expected those of the ta"):
        read(tmp_path, "rte")
    assert read(tmp_path, "afqmc")[1] == [("a", "b", "1")]
    (tmp_path / "lines").mkdir()
    write_json_lines(tmp_path / "lines", {"train": rows})
    describe_in_page(tmp_path / "lines", {"label": class_label("no", "yes")})
    with pytest.raises(ValueError, match=r"README\.md: the labels are named 'no', 'yes'"):
        read(tmp_path / "lines", "rte")


def test_an_id_without_a_name_is_named(tmp_path):
    rows = [{"text": "a", "label": 0}, {"text": "b", "label": 2}]
    write_parquet(tmp_path, {"train": rows}, {"label": class_label("no", "yes")})
    with pytest.raises(ValueError, match="row 2: label 2: expected an id below 2"):
        read(tmp_path, "tsv")


@pytest.mark.parametrize("name", ["mnli", "sts-b", "wsc", "mrpc"])
def test_a_test_split_has_minus_one_for_no_label(tmp_path, name):
    rows, feature, _ = TASKS[name]
    unlabeled = [row | {"label": -1.0 if name == "sts-b" else -1} for row in rows]
    split = "test_matched" if name == "mnli" else "test"
    write_parquet(tmp_path, {split: unlabeled}, {"label": feature})
    _, found, guids = read(tmp_path, name, "test")
    assert [label for _, _, label in found] == [None] * len(rows)
    assert guids == [str(row["idx"]) for row in rows]


def test_a_task_of_pairs_needs_two_texts_and_others_one(tmp_path):
    write_json_lines(tmp_path, {"train": [{"sentence": "a", "label": 1}]})
    with pytest.raises(ValueError, match="expected two texts for this task, found 'sentence'"):
        read(tmp_path, "mrpc")
    write_json_lines(tmp_path, {"train": [{"x": "a", "y": "b", "label": 1}]})
    with pytest.raises(ValueError, match=r"no column 'text_a' or .* among 'x', 'y', 'label'"):
        read(tmp_path, "mrpc")
    columns = {"text_a_column": "x", "text_b_column": "y"}
    assert read(tmp_path, "mrpc", **columns)[1] == [("a", "b", "1")]
    write_json_lines(tmp_path, {"train": [{"text1": "a", "text2": "b", "label": 1}]})
    with pytest.raises(ValueError, match="expected one text for this task, found 'text1', 'text2'"):
        read(tmp_path, "sst-2")


# One's own data


@pytest.mark.parametrize("kind", ["Sequence", "List"])
def test_labels_of_ones_own_data_are_names_and_lists_of_them_any_number(tmp_path, kind):
    rows = [{"text": "a", "label": 2}, {"text": "b", "label": 0}, {"text": "c", "label": -1}]
    write_parquet(tmp_path, {"train": rows}, {"label": class_label("sad", "calm", "angry")})
    task, found, _ = read(tmp_path, "tsv")
    assert task.labels == ("sad", "calm", "angry")
    assert found == [("a", "", "angry"), ("b", "", "sad")]
    assert not task.is_multi_label
    (tmp_path / "lists").mkdir()
    rows = [{"text": "a", "labels": [2, 0]}, {"text": "b", "labels": []}]
    feature = list_of(class_label("sad", "calm", "angry"), kind)
    write_parquet(tmp_path / "lists", {"train": rows}, {"labels": feature})
    task, found, _ = read(tmp_path / "lists", "tsv")
    assert (task.labels, task.is_multi_label) == (("sad", "calm", "angry"), True)
    assert found == [("a", "", ("angry", "sad")), ("b", "", ())]
