"""The registry of tasks: its rows, what it refuses, and the files that add to it."""

import dataclasses
import inspect
import sys

import pytest

from albert_tf.checkpoints import tasks
from albert_tf.finetuning import registry

# Here, because a test must not import TensorFlow with a copy of `sys.modules`.
from albert_tf.finetuning.registry import TaskSpec
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.task import FineTuningTask, Task
from albert_tf.inference.embeddings import EmbeddingTask  # whose package registers it
from albert_tf.model.heads import AlbertForClassification
from albert_tf.settings import fields_of

SPEC = TaskSpec("poetry", FineTuningTask, AlbertForClassification)


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """What a test registers or imports is gone after it."""
    monkeypatch.setattr(registry, "_users", dict(registry._users))
    monkeypatch.setattr(tasks, "_head_settings", dict(tasks._head_settings))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


@pytest.mark.parametrize("spec", registry.rows(), ids=lambda spec: spec.name)
def test_every_row_refers_to_what_exists(spec):
    assert issubclass(spec.settings_class, FineTuningSettings)
    assert set(spec.head_settings) <= {field.name for field in fields_of(spec.settings_class)}
    arguments = set(inspect.signature(spec.head_class.__init__).parameters)
    assert {*spec.head_settings, *spec.head_arguments} <= arguments
    assert issubclass(spec.task, Task)


def test_the_rows_have_the_names_and_the_order_of_the_table_of_names():
    assert registry.names()[: len(tasks.NAMES)] == tasks.NAMES  # those of users follow
    for spec in registry.rows():
        assert spec.head_settings == tasks.head_settings(spec.name)


def test_no_model_is_fine_tuned_for_words_in_masks_and_embeddings():
    for name in ("fill_mask", "embeddings", "pretraining"):
        with pytest.raises(ValueError, match=": no model is fine-tuned for it"):
            _ = registry.get(name).fine_tuned
    assert registry.get("embeddings").task is EmbeddingTask


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
