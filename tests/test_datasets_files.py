"""Files of `datasets` have the examples, and train the weights, of the files of before."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest

from tests.conftest import ROOT, python_with
from tests.finetuning.test_hub_layouts import DATA_SETS, read, train, write

pytestmark = pytest.mark.slow

FORMS = ["saved", "shards", "parquet", "lines", "array", "compressed", "csv"]
WRITTEN = [name for name in DATA_SETS if name != "cluener"]  # whose types are keys, not columns


def forms_of(name):
    return [form for form in FORMS if form != "csv" or "csv" in DATA_SETS[name].layouts()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder with a subfolder for each data set; each has one for each form."""
    root = tmp_path_factory.mktemp("datasets")
    cases = {
        name: {"rows": DATA_SETS[name].rows, "features": DATA_SETS[name].features}
        for name in WRITTEN
    }
    (root / "cases.json").write_text(json.dumps(cases))
    script = str(ROOT / "tests" / "datasets_files.py")
    python = python_with("datasets", "ALBERT_TF_DATASETS_PYTHON")
    subprocess.run([python, script, str(root / "cases.json"), str(root)], check=True)
    return root


def place(folder, name, form):
    """The folder of a form; of RACE, that of the level is made to have one above it."""
    found = folder / name / form
    if name != "race":
        return found
    above = folder / name / f"{form}_levels"
    if not above.exists():
        above.mkdir()
        (above / "high").symlink_to(found)
    return above


@pytest.mark.parametrize("name", WRITTEN)
def test_every_form_has_the_examples_of_the_files_of_before(folder, tmp_path, name):
    labels, expected = read(name, write(name, "old", tmp_path))
    for form in forms_of(name):
        found_labels, found = read(name, place(folder, name, form))
        assert list(map(repr, found.examples)) == list(map(repr, expected.examples)), form
        assert (found.checksum(), found_labels) == (expected.checksum(), labels), form


@pytest.fixture(scope="module")
def expected(tmp_path_factory, config_file, toy_spm_model):
    place = write("mnli", "old", tmp_path_factory.mktemp("before"))
    return train("mnli", place, config_file, toy_spm_model)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_trains_the_weights_of_the_archive(
    folder, config_file, toy_spm_model, expected, form
):
    weights, digest = train("mnli", folder / "mnli" / form, config_file, toy_spm_model)
    assert digest == expected[1]
    assert set(weights) == set(expected[0])
    for name, value in expected[0].items():
        np.testing.assert_array_equal(weights[name], value, err_msg=name)
