"""Calls a signature of a SavedModel in a process with TensorFlow and tensorflow-text alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys

# It imports neither this library nor Keras 2. Rows are batched as they come.
SERVER = """
import json, sys
import tensorflow as tf
import tensorflow_text

def encoded(value):
    if isinstance(value, list):
        return [encoded(entry) for entry in value]
    return value.encode("utf-8", "surrogateescape")

def decoded(value):
    if isinstance(value, list):
        return [decoded(entry) for entry in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value

folder, name, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
loaded = tf.saved_model.load(folder)
columns = json.load(sys.stdin)
found = {}
for begin in range(0, len(next(iter(columns.values()))), size):
    batch = {
        key: tf.constant(encoded(column[begin : begin + size])) for key, column in columns.items()
    }
    for key, value in loaded.signatures[name](**batch).items():
        rows = decoded(value.numpy().tolist())
        found[key] = found.get(key, []) + rows if value.shape.rank else rows
assert not {"albert_tf", "tf_keras"} & set(sys.modules)
print(json.dumps(found))
"""


def serve(folder, signature="texts", batch_size=32, **columns):
    """Returns output name → rows; characters of U+DC80 and above stand for invalid bytes."""
    left_out = ("PYTHONPATH", "TF_USE_LEGACY_KERAS")  # the latter makes TensorFlow load tf_keras
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        [sys.executable, "-P", "-c", SERVER, str(folder), signature, str(batch_size)],
        input=json.dumps(columns),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])
