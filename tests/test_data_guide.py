"""The commands of the guide to data read the folders that they name, as these are on the Hub."""

from __future__ import annotations

import dataclasses
import importlib
import re
import shlex

import pytest

from albert_tf.cli import programs
from albert_tf.cli.flags import parse
from albert_tf.finetuning import classification, race, squad, token_classification
from albert_tf.finetuning.columns import parse_text
from albert_tf.inference import inputs
from albert_tf.tables.python_rows import tables_of
from tests import read_classes
from tests.conftest import ROOT
from tests.data_guide_files import write_guide_data

GUIDE = (ROOT / "docs" / "guides" / "data.md").read_text(encoding="utf-8")
TASKS = (classification, race, squad, token_classification)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder in which the commands of the guide are given."""
    monkeypatch.chdir(tmp_path)
    write_guide_data(tmp_path)


def commands():
    for block in re.findall(r"^```bash\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            command = shlex.split(line.split(" > ")[0])
            if command[0] != "hf":
                yield pytest.param(command[1:], id=" ".join(command[1:4]))


@pytest.mark.parametrize("command", list(commands()))
@pytest.mark.usefixtures("folder")
def test_the_commands_read_what_they_name(command):
    name, *flags = command
    verb = name.removesuffix(".py").replace("_", "-")
    module = programs.PROGRAMS[verb if verb in programs.PROGRAMS else f"run-{verb}"].load()
    settings = parse(module.Settings, flags)
    if module not in TASKS:
        assert inputs.read_inputs(settings, parse_text).total == 2
        return
    reading = importlib.import_module(f"{module.__name__}.reading")
    read_data = read_classes.read_data if module is classification else reading.read_data
    data = read_data(settings)
    data = data[1] if isinstance(data, tuple) else data
    assert {"train", "dev"} <= set(data)
    for split in ("train", "dev"):
        assert data[split].examples


def test_the_python_example_is_read():
    (example,) = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    seen = {}

    def run(settings, data):
        settings = dataclasses.replace(settings, do_train=True, do_eval=True)  # as `run` does
        task, read = read_classes.read_data(settings, given=tables_of(data))
        seen.update(labels=task.labels, texts=[x.text_a for x in read["dev"].examples])

    code = example.replace("classification.run(", "run(")
    exec(compile(code, "data.md", "exec"), {"run": run})
    assert seen == {"labels": ("bad", "good"), "texts": ["A fine film.", "Far too long."]}
