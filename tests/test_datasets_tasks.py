"""What `datasets` writes has the examples of each task in its format of before."""

from __future__ import annotations

import json
import subprocess

import pytest

from albert_tf.finetuning.squad import Settings as SquadSettings
from albert_tf.finetuning.squad.question_files import read_squad
from albert_tf.finetuning.squad.reading import read_data as read_squad_data
from tests.conftest import ROOT
from tests.finetuning.classification import test_hub_columns as classification
from tests.finetuning.race import test_hub_data_sets as race
from tests.finetuning.squad import test_question_rows as squad
from tests.finetuning.token_classification import test_sentence_rows as tags
from tests.hub_files import class_label, list_of, write_json_lines
from tests.test_datasets_files import datasets_python

pytestmark = pytest.mark.slow

NAMED, ALL = ("saved", "parquet"), ("saved", "parquet", "lines")
LISTS = {
    "rows": [{"text": "a", "labels": [2, 0]}, {"text": "b", "labels": []}],
    "features": {"labels": list_of(class_label("sad", "calm", "angry"))},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder with a subfolder for each data set; each has one for each form."""
    cases = {"lists": LISTS, "tags": {"rows": tags.ROWS, "features": tags.FEATURES}}
    cases["squad"] = {"rows": squad.rows_of(squad.QUESTIONS), "features": {}}
    for name, (rows, feature, _) in classification.TASKS.items():
        cases[name] = {"rows": rows, "features": {"label": feature} if feature else {}}
    for name, (rows, features, _) in race.DATA_SETS.items():
        cases[name] = {"rows": rows, "features": features}
    root = tmp_path_factory.mktemp("datasets")
    (root / "cases.json").write_text(json.dumps(cases))
    script = str(ROOT / "tests" / "datasets_tasks.py")
    subprocess.run([datasets_python(), script, str(root / "cases.json"), str(root)], check=True)
    return root


@pytest.mark.parametrize("name", classification.TASKS)
def test_classification_has_the_examples_of_the_files_of_before(folder, tmp_path, name):
    _, expected, _ = classification.read_old(tmp_path, name)
    for form in ALL if name in classification.KNOWN_IDS else NAMED:
        assert classification.read(folder / name / form, name)[1] == expected, form


def test_lists_are_any_number_of_labels(folder):
    for form in NAMED:
        task, found, _ = classification.read(folder / "lists" / form, "tsv")
        assert task.is_multi_label
        assert found == [("a", "", ("angry", "sad")), ("b", "", ())]


@pytest.mark.parametrize("name", race.DATA_SETS)
def test_multiple_choice_has_the_questions_of_ones_own_files(folder, tmp_path, name):
    write_json_lines(tmp_path, {"train": race.DATA_SETS[name][2]})
    expected = [(x.passage, x.question, x.options, x.label) for x in race.read(tmp_path).examples]
    for form in ALL:
        data = race.read(folder / name / form)
        found = [(x.passage, x.question, x.options, x.label) for x in data.examples]
        assert found == expected, form


def test_tags_are_those_of_columns(folder, tmp_path):
    expected = tags.read_columns(tmp_path, tags.COLUMNS)
    for form in NAMED:
        assert tags.read(folder / "tags" / form) == expected


def test_questions_are_those_of_squads_format(folder, tmp_path):
    (tmp_path / "squad.json").write_text(squad.squad_of(squad.QUESTIONS))
    expected = read_squad(str(tmp_path / "squad.json"), is_training=True)
    for form in ALL:
        where = str(folder / "squad" / form)
        settings = SquadSettings(data_dir=where, output_dir="out", do_train=True)
        squad.same(read_squad_data(settings)["train"], expected)
