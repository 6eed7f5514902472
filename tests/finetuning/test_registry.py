"""The registry of tasks: its rows, what it refuses, and the files that add to it."""

import dataclasses
import inspect
import sys

import pytest

from albert_tf.finetuning import registry
from albert_tf.finetuning.registry import TaskSpec
from albert_tf.finetuning.settings import FineTuningSettings

# Here, because a test must not import TensorFlow with a copy of `sys.modules`.
from albert_tf.finetuning.task import FineTuningTask
from albert_tf.finetuning.text_task import TextTask
from albert_tf.settings import fields_of

SPEC = TaskSpec("poetry", FineTuningSettings, FineTuningTask, len)


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """What a test registers or imports is gone after it."""
    monkeypatch.setattr(registry, "_rows", dict(registry._rows))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


@pytest.mark.parametrize("spec", registry._BUILT_IN, ids=lambda spec: spec.name)
def test_every_row_refers_to_what_exists(spec):
    settings_class, head = registry.resolve(spec.settings), registry.resolve(spec.head)
    assert issubclass(settings_class, FineTuningSettings)
    assert issubclass(registry.resolve(spec.task), TextTask)
    assert issubclass(registry.resolve(spec.task), FineTuningTask) == spec.is_fine_tuned
    assert set(spec.head_settings) <= {field.name for field in fields_of(settings_class)}
    arguments = set(inspect.signature(head.__init__).parameters)
    assert {*spec.head_settings, *spec.head_arguments} <= arguments


def test_a_task_is_found_by_its_name_and_may_be_replaced_unless_it_is_one_of_the_package():
    with pytest.raises(ValueError, match=r"task='poetry': expected one of 'classifi.*import"):
        registry.get("poetry")
    registry.register(SPEC)
    again = dataclasses.replace(SPEC, head_variable="verses")
    registry.register(again)
    assert registry.get("poetry") is again
    assert registry.names()[-1] == "poetry"
    for name in ("spans", "pretraining"):
        with pytest.raises(ValueError, match=f"'{name}' is a task of albert_tf"):
            registry.register(dataclasses.replace(SPEC, name=name))
    with pytest.raises(ValueError, match=r"name='Poetry!': expected lowercase letters"):
        dataclasses.replace(SPEC, name="Poetry!")


def test_a_file_is_imported_once_as_a_module(tmp_path):
    (tmp_path / "verse.py").write_text("import rhyme\nvalues = []\n")
    (tmp_path / "rhyme.py").write_text("")
    for name in (str(tmp_path / "verse.py"), "verse"):
        registry.import_tasks(name)
        sys.modules["verse"].values.append(name)
    assert len(sys.modules["verse"].values) == 2


@pytest.mark.parametrize(
    ("name", "content", "error", "problem"),
    [
        ("gone.py", None, FileNotFoundError, r"gone\.py: no such file"),
        ("no_such_module", None, ValueError, "no_such_module: cannot be imported"),
        ("broken.py", "import no_such_module", ValueError, r"broken\.py: cannot be imported: No"),
        ("json.py", "", ValueError, r"json\.py: .* has the same module name, 'json'. Rename"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(
    tmp_path, monkeypatch, name, content, error, problem
):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(error, match=problem):
        registry.import_tasks(name)
