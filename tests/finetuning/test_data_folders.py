"""Every task finds its files in the folders that people have: by cards, names and endings."""

from __future__ import annotations

import gzip
import json
import lzma

import pytest

from albert_tf.finetuning import classification, race, squad, token_classification
from albert_tf.finetuning.race.reading import read_data as read_choices
from albert_tf.finetuning.splits import MissingSplitError
from albert_tf.finetuning.squad.reading import read_data as read_questions
from albert_tf.finetuning.token_classification.reading import read_data as read_tags
from tests.read_classes import read_data as read_classes

TEXTS = [{"text": "rain on the roof", "label": 0}, {"text": "sun on the sea", "label": 1}]
CHOICES = [{"question": "Which is wet?", "options": ["rain", "sand"], "label": 0}]
QUESTIONS = [
    {
        "id": "q1",
        "context": "Ada wrote it in Turin.",
        "question": "Where did Ada write it?",
        "answers": {"text": ["Turin"], "answer_start": [16]},
    }
]
TAGS = [{"tokens": ["Ada", "rests"], "ner_tags": ["B-PER", "O"]}]
# Door → (its program, its settings, what reads its data, a row).
DOORS = {
    "classes": (classification, {"task_name": "tsv"}, lambda s: read_classes(s)[1], TEXTS),
    "choices": (race, {"task_name": "choice"}, read_choices, CHOICES),
    "questions": (squad, {}, read_questions, QUESTIONS),
    "tags": (token_classification, {}, lambda s: read_tags(s)[1], TAGS),
}


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def settings_for(door, folder, **values):
    module, known, _, _ = DOORS[door]
    given = {"data_dir": str(folder), "output_dir": str(folder / "out"), "do_eval": False}
    return module.Settings(**given | {"do_train": True} | known | values)


def read(door, folder, **values):
    return DOORS[door][2](settings_for(door, folder, **values))


CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: train_clean.jsonl
  - split: test
    path: dev.jsonl
---
"""


@pytest.mark.parametrize("door", DOORS)
def test_the_card_says_which_files_are_which_split(tmp_path, door):
    rows = DOORS[door][3]
    write_lines(tmp_path / "train_clean.jsonl", rows)
    write_lines(tmp_path / "train.jsonl", rows * 3)
    write_lines(tmp_path / "dev.jsonl", rows)
    assert len(read(door, tmp_path)["train"].examples) == 3 * len(rows)
    (tmp_path / "README.md").write_text(CARD)
    assert len(read(door, tmp_path)["train"].examples) == len(rows)
    said = (
        r"no dev data: .*README\.md has train \(train_clean\.jsonl\), test \(dev\.jsonl\); "
        "--dev_fraction=0.1 takes a tenth of the training data instead"
    )
    with pytest.raises(MissingSplitError, match=said):
        read(door, tmp_path, do_eval=True)
    (tmp_path / "train_clean.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match=r"'train_clean\.jsonl', of .* is missing"):
        read(door, tmp_path)


SETS = """---
configs:
- config_name: mrpc
  data_files: pairs.csv
  sep: "\\t"
- config_name: rte
  data_dir: rte_files
dataset_info:
- config_name: mrpc
  features:
  - {name: label, dtype: {class_label: {names: [equivalent, not_equivalent]}}}
- config_name: rte
  features:
  - {name: label, dtype: {class_label: {names: [entailment, not_entailment]}}}
---
"""


def test_the_name_of_a_task_chooses_the_data_set_of_a_card_with_its_labels_and_format(tmp_path):
    (tmp_path / "README.md").write_text(SETS)
    (tmp_path / "pairs.csv").write_text('sentence1\tsentence2\tlabel\n"a, b"\tc\t0\nd\te\t1\n')
    rows = [{"sentence1": "a", "sentence2": "b", "label": 1}]
    write_lines(tmp_path / "rte_files" / "train.jsonl", rows)
    first, second = read("classes", tmp_path, task_name="mrpc")["train"].examples
    assert (first.text_a, first.label, second.label) == ("a, b", "0", "1")
    (third,) = read("classes", tmp_path, task_name="rte")["train"].examples
    assert third.label == "not_entailment"
    for file, text, labels in (
        ("pairs.csv", "a, b", ["equivalent", "not_equivalent"]),
        ("rte_files/train.jsonl", "a", ["not_entailment"]),
    ):
        named = {"data_dir": None, "train_file": str(tmp_path / file)}
        data = read("classes", tmp_path, task_name="tsv", **named)["train"]
        assert (data.examples[0].text_a, [x.label for x in data.examples]) == (text, labels)
    with pytest.raises(ValueError, match="the configurations mrpc, rte, of which none is the"):
        read("classes", tmp_path)


def test_a_card_that_cannot_be_used_does_not_refuse_a_file_that_a_flag_names(tmp_path, caplog):
    card = "---\nconfigs:\n- {config_name: x, data_files: train.csv, sep: ;}\n---"
    (tmp_path / "README.md").write_text(card)
    (tmp_path / "train.csv").write_text("text,label\nrain,0\nsun,1\n")
    named = {"data_dir": None, "train_file": str(tmp_path / "train.csv")}
    assert len(read("classes", tmp_path, **named)["train"].examples) == 2
    assert "columns separated by ';', expected a comma or a tab" in caplog.text
    assert f"It is not used for {tmp_path / 'train.csv'}" in caplog.text
    with pytest.raises(ValueError, match="columns separated by ';'"):
        read("classes", tmp_path)


def test_a_file_of_an_archive_that_a_card_names_is_read_as_that_of_the_archive(tmp_path):
    card = "---\nconfigs:\n- {config_name: x, data_files: train.tsv}\n---"
    (tmp_path / "README.md").write_text(card)
    (tmp_path / "train.tsv").write_text("source\t1\t\ta text of four columns\n")
    (example,) = read("classes", tmp_path, task_name="cola")["train"].examples
    assert example.text_a == "a text of four columns"


@pytest.mark.parametrize("place", ["LCQMC/data", "lcqmc", "Lcqmc", "LCQMC", ""])
def test_the_folder_of_a_task_may_have_any_files_of_splits(tmp_path, place):
    rows = [{"sentence1": "水", "sentence2": "海", "label": 1}]
    write_lines(tmp_path / place / "train-00000-of-00001.jsonl", rows)
    (example,) = read("classes", tmp_path, task_name="lcqmc")["train"].examples
    assert example.text_b == "海"


@pytest.mark.parametrize(("task", "place"), [("sst-2", "sst2"), ("sst-2", "SST-2/data")])
def test_a_folder_has_any_of_the_names_of_a_task(tmp_path, task, place):
    write_lines(tmp_path / place / "train.jsonl", [{"sentence": "rain", "label": 1}])
    assert len(read("classes", tmp_path, task_name=task)["train"].examples) == 1


@pytest.mark.parametrize("place", ["RACE/high", "race/high", "RACE/all", "RACE/data"])
def test_the_folder_of_race_may_have_any_files_of_splits(tmp_path, place):
    row = {"example_id": "high1.txt", "article": "It rains.", "question": "What does it do?"}
    row |= {"options": ["rain", "snow", "shine", "hail"], "answer": "A"}
    write_lines(tmp_path / place / "train.jsonl", [row])
    levels = {"high_only": place.endswith("high")}
    data = read("choices", tmp_path, task_name="race", **levels)["train"]
    assert [question.label for question in data.examples] == [0]


@pytest.mark.parametrize(
    ("train", "dev", "test"),
    [
        ("en-ud-train.conllu", "en-ud-dev.conllu", "en-ud-test.conllu"),
        ("eng.train", "eng.testa", "eng.testb"),
        ("example.train", "example.dev", "example.test"),
        ("train.bio", "valid.bio", "test.bio"),
        ("train.char.bmes", "dev.char.bmes", "test.char.bmes"),
        ("my_train.iob2.gz", "my_dev.iob2.xz", "my_test.txt"),
    ],
)
def test_files_of_tokens_have_the_usual_names(tmp_path, train, dev, test):
    pack = {".gz": gzip.compress, ".xz": lzma.compress}
    for number, name in enumerate((train, dev, test)):
        content = "".join(f"word{n} B-PER\nrests O\n\n" for n in range(number + 1)).encode()
        (tmp_path / name).write_bytes(pack.get(name[-3:], bytes)(content))
    found = read("tags", tmp_path, do_eval=True, do_predict=True)
    assert [len(found[split].examples) for split in ("train", "dev", "test")] == [1, 2, 3]


def test_universal_dependencies_are_read_as_they_are(tmp_path):
    """The fourth column has the tags, and ranges and empty nodes are no tokens."""
    tree = "# text = Vámonos\n1-2\tVámonos\t_\t_\n1\tVamos\tir\tVERB\n2\tnos\tyo\tPRON\n\n"
    (tmp_path / "es_ancora-ud-train.conllu").write_text(tree, encoding="utf-8")
    columns = {"token_column": 1, "label_column": 3, "tag_scheme": "raw"}
    (sentence,) = read("tags", tmp_path, **columns)["train"].examples
    assert (sentence.tokens, sentence.labels) == (("Vamos", "nos"), ("VERB", "PRON"))


@pytest.mark.parametrize("use", ["data_dir", "train_file"])
def test_the_folders_of_spark_are_read(tmp_path, use):
    folder = tmp_path / "train.csv"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    for number in range(2):
        (folder / f"part-0000{number}-3c9a.csv").write_text(f"text,label\nrain {number},{number}\n")
    value = {"data_dir": str(tmp_path)} if use == "data_dir" else {use: str(folder)}
    data = read("classes", tmp_path, **{"data_dir": None} | value)["train"]
    assert [(each.text_a, each.label) for each in data.examples] == [
        ("rain 0", "0"),
        ("rain 1", "1"),
    ]


@pytest.mark.parametrize("orient", ["columns", "split"])
@pytest.mark.parametrize("door", DOORS)
def test_tables_of_pandas_are_refused_with_what_to_do(tmp_path, door, orient):
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame(DOORS[door][3]).to_json(tmp_path / "train.json", orient=orient)
    said = r'train\.json, line 1: .* whole table, .* to_json\(path, orient="records", lines=True\)'
    with pytest.raises(ValueError, match=said):
        read(door, tmp_path)


@pytest.mark.parametrize("door", ["classes", "tags"])
def test_missing_training_data_are_said_in_whole_sentences(tmp_path, door):
    with pytest.raises(FileNotFoundError, match=r"[a-z]\. It is needed for the labels\.$"):
        read(door, tmp_path)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match=r"folder\.csv is a folder, but not one that"):
        read(door, tmp_path, train_file=str(tmp_path / "folder.csv"))
    state = tmp_path / "folder.csv" / "state.json"
    state.write_text('{"_data_files": [{"filename": "a.arrow"}]}')
    with pytest.raises(FileNotFoundError, match=r"Copy the whole folder again\. It is needed"):
        read(door, tmp_path, train_file=str(tmp_path / "folder.csv"))
