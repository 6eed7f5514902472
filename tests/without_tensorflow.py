"""Answers from an exported model, in a process that cannot import TensorFlow.

    python -m tests.without_tensorflow < QUESTIONS

Standard input has a JSON list of the folder and the arguments of a call; the answer is printed.
"""

from __future__ import annotations

import json
import sys

PACKAGES = ("tensorflow", "tf_keras", "keras", "tensorflow_text")


class WithoutTensorFlow:
    """A finder that refuses the packages of TensorFlow."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in PACKAGES:
            raise ImportError(f"{name} was imported")


def main():
    sys.meta_path.insert(0, WithoutTensorFlow())
    import albert_tf

    folder, arguments = json.load(sys.stdin)
    answer = albert_tf.load_predictor(folder)(*arguments)
    sys.stdout.write(json.dumps(answer if isinstance(answer, list) else answer.tolist()))


if __name__ == "__main__":
    main()
