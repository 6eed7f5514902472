"""Answers from an exported model, in a process that cannot import some packages.

    python -m tests.answers_without tensorflow tf_keras < QUESTIONS

Standard input has a JSON list of the folder and the arguments of a call, whose answer is printed;
or of null and the arguments of the command `albert`, which is run.
"""

from __future__ import annotations

import json
import sys


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

    folder, arguments = json.load(sys.stdin)
    if folder is None:
        sys.argv = ["albert", *arguments]
        programs.main()
        return
    answer = albert_tf.load_predictor(folder)(*arguments)
    sys.stdout.write(json.dumps(answer if isinstance(answer, list) else answer.tolist()))


if __name__ == "__main__":
    main()
