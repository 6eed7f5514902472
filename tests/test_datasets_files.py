"""Files that `datasets` has written train the weights of GLUE's archive, byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from albert_tf import classification
from tests.cli.fine_tuning_programs import SENTENCES
from tests.conftest import ROOT
from tests.script_runner import tensors

pytestmark = pytest.mark.slow

OTHER_PYTHON = "ALBERT_TF_DATASETS_PYTHON"
# Folders that `datasets_files` writes, as --data_dir, and the split that flags name.
FORMS = [
    ("saved", {}),
    ("hub", {}),
    ("hub/mrpc", {}),
    ("data_folder", {}),
    ("parquet", {}),
    ("lines", {}),
    ("array", {}),
    ("compressed", {}),
    ("csv", {}),
    ("", {"train_file": "saved/train", "dev_file": "parquet/validation.parquet"}),
]


def rows(count):
    return [
        {
            "sentence1": SENTENCES[number % 7],
            "sentence2": SENTENCES[number * 3 % 5] + ' "quoted", 字😀',
            "label": int(number % 3 == 0),
            "idx": number + 100,
        }
        for number in range(count)
    ]


SPLITS = {"train": rows(23), "validation": rows(11)}


def datasets_python():
    """A Python that has `datasets`; skips the test if there is none."""
    python = os.environ.get(OTHER_PYTHON, sys.executable)
    if subprocess.run(
        [python, "-c", "import datasets"], capture_output=True, check=False
    ).returncode:
        pytest.skip(f"{python} has no datasets; {OTHER_PYTHON} may name one that has")
    return python


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    python = datasets_python()
    root = tmp_path_factory.mktemp("datasets")
    (root / "rows.json").write_text(json.dumps(SPLITS))
    script = str(ROOT / "tests" / "datasets_files.py")
    subprocess.run([python, script, str(root / "rows.json"), str(root)], check=True)
    archive = root / "archive" / "MRPC"
    archive.mkdir(parents=True)
    for split, name in (("train", "train"), ("validation", "dev")):
        lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"]
        for row in SPLITS[split]:
            cells = [row["label"], row["idx"], 0, row["sentence1"], row["sentence2"]]
            lines.append("\t".join(map(str, cells)) + "\n")
        (archive / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def train(folder, config_file, toy_spm_model):
    def run(name, data_dir, **named):
        settings = classification.Settings(
            task_name="mrpc",
            data_dir=str(folder / data_dir) if data_dir else None,
            output_dir=str(folder / "out" / name),
            albert_config_file=str(config_file),
            spm_model_file=str(toy_spm_model),
            train_batch_size=4,
            train_step=3,
            max_seq_length=40,
            **{flag: str(folder / path) for flag, path in named.items()},
        )
        result = classification.run(settings)
        return tensors(f"{result.output_dir}/model.ckpt-3"), result.metrics

    return run


@pytest.fixture(scope="module")
def expected(train):
    return train("archive", "archive")


@pytest.mark.parametrize(("data_dir", "named"), FORMS)
def test_every_form_trains_the_weights_of_the_archive(train, expected, data_dir, named):
    weights, metrics = train(data_dir.replace("/", "_") or "named", data_dir, **named)
    assert set(weights) == set(expected[0])
    for name, value in expected[0].items():
        np.testing.assert_array_equal(weights[name], value, err_msg=name)
    assert metrics == expected[1]
