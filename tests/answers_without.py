"""Answers from an exported model, in a process that cannot import some packages.

    python -m tests.answers_without tensorflow tf_keras < QUESTIONS

Standard input has a JSON list of the folder, the arguments of a call, whose answer is printed, and
the options of its predictor; or of null, the arguments of the command `albert`, which is run, and
no options.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def answer_without(folder, arguments, options=None):
    """What a process prints that cannot import what the server image lacks."""
    lacking = _without_tensorflow_and_unlisted()
    done = subprocess.run(
        [sys.executable, "-m", "tests.answers_without", *lacking],
        cwd=ROOT,
        input=json.dumps([folder, arguments, options or {}]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def _without_tensorflow_and_unlisted():
    """The modules of TensorFlow, and of dependencies that docker/server.txt does not list."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    dependencies = project.split("\ndependencies = [")[1].split("\n]")[0]
    required = set(re.findall(r'^    "(.+?)",', dependencies, re.MULTILINE))
    listed = (ROOT / "docker" / "server.txt").read_text(encoding="utf-8").splitlines()
    needed = {line for line in listed if not line.startswith("#")}
    assert needed < required
    others = {re.split("[<>=]", line)[0] for line in required - needed}
    owners = importlib.metadata.packages_distributions()
    modules = [name for name, found in owners.items() if others & {x.lower() for x in found}]
    assert len(modules) >= len(others) > 3
    return ["tensorflow", "tf_keras", "keras", "tensorflow_text", *sorted(modules)]


class Without:
    """A finder that refuses packages."""

    def __init__(self, packages):
        self._packages = packages

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self._packages:
            raise ImportError(f"{name} was imported")


def main():
    sys.meta_path.insert(0, Without(sys.argv[1:]))
    import albert_tf
    from albert_tf.cli import programs

    folder, arguments, options = json.load(sys.stdin)
    if folder is None:
        sys.argv = ["albert", *arguments]
        programs.main()
        return
    answer = albert_tf.load_predictor(folder, **options)(*arguments)
    sys.stdout.write(json.dumps(answer if isinstance(answer, list) else answer.tolist()))


if __name__ == "__main__":
    main()
