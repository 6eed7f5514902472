"""The registry of tasks, with a row for everything that a model is fine-tuned or used for.

    registry.register(
        registry.TaskSpec("multi_label", Settings, MultiLabel, AlbertForClassification)
    )

`from_pretrained`, `load_predictor`, `albert predict` and its web page get everything that they know
about a task from its row. A run records the name of the row with its checkpoints.
"""

from __future__ import annotations

import importlib
import os
import sys

from albert_tf.checkpoints import tasks
from albert_tf.finetuning.own_tasks import OWN_TASKS
from albert_tf.finetuning.task_spec import TaskSpec

__all__ = ["DEFAULT", "TaskSpec", "add", "get", "import_tasks", "names", "register", "rows"]

DEFAULT = tasks.EMBEDDINGS  # of a model that was not fine-tuned

_own = {spec.name: spec for spec in OWN_TASKS}
_users: dict[str, TaskSpec] = {}


def add(spec: TaskSpec) -> None:
    """Adds a task of this package, whose name is one of `checkpoints.tasks.NAMES`."""
    _own[spec.name] = spec


def register(spec: TaskSpec) -> None:
    """Adds a task, and replaces one of the same name, for example when a file is imported again.

    Raises:
        ValueError: a task of this package has the same name.
    """
    if spec.name in tasks.ALIASES or spec.name in tasks.NAMES:
        raise ValueError(f"{spec.name!r} is a task of albert_tf: give yours another name")
    _users[spec.name] = spec
    tasks.add(spec.name, spec.head_settings)


def names() -> tuple[str, ...]:
    """Returns the names of all tasks, those of this package first."""
    return tuple(spec.name for spec in rows())


def rows() -> tuple[TaskSpec, ...]:
    """Returns the rows of all tasks, in the order of `names`."""
    return (*_own.values(), *_users.values())


def get(name: str) -> TaskSpec:
    """Returns the row of a task; "pretraining" is another name of "fill_mask".

    Raises:
        ValueError: there is no such task. The message lists all tasks.
    """
    known = tasks.canonical(name)
    spec = _own.get(known) or _users.get(known)
    if spec is None:  # `inference`, which has the tasks without fine-tuning, is not imported
        raise ValueError(f"task={name!r}: no model is fine-tuned for it")
    return spec


def import_tasks(module: str) -> None:
    """Imports a module that registers tasks.

    Args:
        module: path of a Python file, whose folder is added to `sys.path` as for a script; or the
            dotted name of an installed module.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the module cannot be imported, or another one of the same name has been.
    """
    name = module
    path = None
    if module.endswith(".py"):
        path = os.path.realpath(module)
        if not os.path.isfile(path):
            raise FileNotFoundError(f"{module}: no such file. Expected one that registers a task")
        folder = os.path.dirname(path)
        name = os.path.basename(path).removesuffix(".py")
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        imported = importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"{module}: cannot be imported: {error}") from error
    source = os.path.realpath(imported.__file__ or "")
    if path is not None and source != path:
        raise ValueError(f"{module}: {source} has the same module name, {name!r}. Rename the file")
