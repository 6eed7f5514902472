"""SavedModels: their signatures, in a process that only imports TensorFlow, and their files."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.tf_example import encode_examples
from albert_tf.export import saved_model
from albert_tf.export.signatures import Export, token_inputs, token_signatures
from albert_tf.export.text_graph import BATCH_SIZE, compute_in_batches, text_signatures
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForClassification
from tests.conftest import TINY_SHAPE

LENGTH, NUM_LABELS = 11, 3
SHAPE = {"num_hidden_layers": 2, "num_hidden_groups": 1, "type_vocab_size": 2}
PAIRS = [("The river", "A boat at the landing, and the rain"), ("Crème \U0001f600", ""), ("", "")]
# Neither this library nor Keras 2 is imported.
SERVER = """
import json, sys
import numpy as np
import tensorflow as tf
import tensorflow_text
served = tf.saved_model.load(sys.argv[1]).signatures
data = np.load(sys.argv[2])
inputs = {
    "serving_default": {"input": [bytes.fromhex(text) for text in data["examples"].tolist()]},
    "tensors": {name: data[name] for name in ("input_ids", "input_mask", "segment_ids")},
    "texts": {name: data[name].tolist() for name in ("text_a", "text_b")},
}
found = {
    name: {
        key: value.numpy().tolist()
        for key, value in served[name](**{x: tf.constant(y) for x, y in columns.items()}).items()
    }
    for name, columns in inputs.items()
}
print(json.dumps([sorted({"albert_tf", "tf_keras"} & set(sys.modules)), sorted(served), found]))
"""


def outputs(found):
    return {
        "probabilities": tf.nn.softmax(found),
        "predictions": tf.argmax(found, axis=-1, output_type=tf.int32),
        "threshold": tf.constant(0.25),
    }


@pytest.fixture(scope="module")
def model():
    return AlbertForClassification(AlbertConfig(**TINY_SHAPE | SHAPE), NUM_LABELS)


@pytest.fixture(scope="module")
def batch(toy_tokenizer):
    """PAIRS as ids."""
    return toy_tokenizer(PAIRS, max_length=LENGTH, padding="max_length")


@pytest.fixture(scope="module")
def folder(model, toy_tokenizer, tmp_path_factory):
    """The folder of a classifier's export."""
    tokens = token_signatures(token_inputs(LENGTH), lambda batch: outputs(model(batch)))
    texts = text_signatures(toy_tokenizer, model, outputs, LENGTH)
    exported = Export(tokens | texts, {"labels.txt": b"no\nyes\nmaybe\n"})
    parent = tmp_path_factory.mktemp("export")
    return saved_model.export(str(parent), model.variables, exported, {"run.json": b"{}"})


class Embedding(tf.Module):
    """The smallest model that can be exported."""

    def __init__(self):
        self.table = tf.Variable(tf.ones((97, NUM_LABELS)))

    def __call__(self, batch):
        return tf.reduce_sum(tf.gather(self.table, batch["input_ids"]), 1)


def export_embedding(parent, extra=(), inputs=None, **options):
    model = Embedding()
    inputs = inputs or token_inputs(LENGTH)
    signatures = token_signatures(inputs, lambda batch: outputs(model(batch)), **options)
    return saved_model.export(str(parent), model.variables, Export(signatures, dict(extra)), {})


@pytest.mark.slow
def test_an_export_only_requires_tensorflow(model, batch, folder, tmp_path):
    examples = [text.hex() for text in encode_examples(batch)]  # arrays of bytes lose zeros
    text_a, text_b = zip(*PAIRS, strict=True)
    np.savez(tmp_path / "data.npz", examples=examples, text_a=text_a, text_b=text_b, **batch)
    left_out = ("PYTHONPATH", "TF_USE_LEGACY_KERAS")  # the latter makes TensorFlow load tf_keras
    done = subprocess.run(
        [sys.executable, "-P", "-c", SERVER, folder, str(tmp_path / "data.npz")],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in left_out},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    foreign, names, served = json.loads(done.stdout.splitlines()[-1])
    assert foreign == []
    assert names == ["serving_default", "tensors", "texts"]
    wanted = outputs(model(batch, training=False))
    for found in served.values():
        np.testing.assert_allclose(found["probabilities"], wanted["probabilities"], atol=1e-6)
        np.testing.assert_array_equal(found["predictions"], wanted["predictions"])
        assert found["threshold"] == 0.25


@pytest.mark.ci
def test_the_default_signature_is_the_official_one(folder):
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    ((), inputs) = serve.structured_input_signature
    forms = {name: (spec.dtype, spec.shape.as_list()) for name, spec in inputs.items()}
    assert forms == {"input": (tf.string, [None])}
    forms = {name: (s.dtype, s.shape.as_list()) for name, s in serve.structured_outputs.items()}
    assert forms == {
        "probabilities": (tf.float32, [None, NUM_LABELS]),
        "predictions": (tf.int32, [None]),
        "threshold": (tf.float32, []),
    }
    for name, content in (("labels.txt", "no\nyes\nmaybe\n"), ("run.json", "{}")):
        with open(f"{folder}/assets.extra/{name}", encoding="utf-8") as stream:
            assert stream.read() == content


def test_the_default_signature_may_take_tensors_of_a_fixed_length(tmp_path):
    inputs = token_inputs(LENGTH, "p_mask")
    path = export_embedding(tmp_path, inputs=inputs, takes_examples=False, any_length=False)
    signatures = tf.saved_model.load(path).signatures
    assert set(signatures) == {"serving_default", "examples"}
    ((), inputs) = signatures["serving_default"].structured_input_signature
    assert set(inputs) == {"input_ids", "input_mask", "segment_ids", "p_mask"}
    assert {tuple(spec.shape) for spec in inputs.values()} == {(None, LENGTH)}


def test_earlier_exports_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(saved_model.time, "time", lambda: 1700000000.5)
    paths = [export_embedding(tmp_path) for _ in range(2)]
    assert paths == [str(tmp_path / "1700000000"), str(tmp_path / "1700000001")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1700000000", "1700000001"]


def test_a_failed_export_leaves_no_files(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="--export_dir: cannot write to"):
        export_embedding(tmp_path / "file")
    folder = tmp_path / "export"
    with pytest.raises(FileNotFoundError, match="no_folder"):
        export_embedding(folder, {"no_folder/labels.txt": b""})
    assert not list(folder.iterdir())


def describe(batch):
    """Returns a number that depends on all tokens of a row, and the shape of the row's batch."""
    ids = batch["input_ids"] * batch["input_mask"]
    shape = tf.tile(tf.shape(ids)[None], [tf.shape(ids)[0], 1])
    return {"sums": tf.reduce_sum(ids, 1), "shapes": shape}


@functools.cache
def compute_in_graph(is_trimmed):
    tensors = dict.fromkeys(("input_ids", "input_mask"), tf.TensorSpec([None, None], tf.int32))
    return tf.function(
        lambda features: compute_in_batches(describe, features, is_trimmed), [tensors]
    )


@pytest.mark.parametrize("is_trimmed", [False, True])
@pytest.mark.parametrize("count", [0, 1, BATCH_SIZE, BATCH_SIZE + 1, 3 * BATCH_SIZE - 1])
def test_all_rows_are_computed_in_their_order_in_batches_of_limited_size(count, is_trimmed):
    rng = np.random.default_rng(count)
    lengths = rng.integers(0, 20, count)
    mask = np.int32(np.arange(20) < lengths[:, None])
    features = {"input_ids": rng.integers(1, 100, mask.shape, np.int32), "input_mask": mask}
    outputs = compute_in_graph(is_trimmed)(features)
    np.testing.assert_array_equal(outputs["sums"], (features["input_ids"] * mask).sum(axis=1))
    order = np.argsort(-lengths, kind="stable") if is_trimmed else np.arange(count)
    shapes = np.zeros((count, 2), np.int32)
    for begin in range(0, count, BATCH_SIZE):
        rows = order[begin : begin + BATCH_SIZE]
        shapes[rows] = (len(rows), max(lengths[rows].max(), 1) if is_trimmed else 20)
    np.testing.assert_array_equal(outputs["shapes"], shapes)
