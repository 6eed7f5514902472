"""Tests SavedModels of fine-tuned models in a process that only imports TensorFlow."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.heads import AlbertForClassification
from albert_tf.serving import saved_model
from albert_tf.serving.signatures import Export, token_inputs, token_signatures
from tests.conftest import TINY_SHAPE

LENGTH, NUM_LABELS = 11, 3
CONFIG = AlbertConfig(
    **TINY_SHAPE | {"num_hidden_layers": 2, "num_hidden_groups": 1, "type_vocab_size": 2}
)
# A server imports TensorFlow, but neither this library nor Keras 2.
SERVER = """
import json, sys
import numpy as np
import tensorflow as tf
served = tf.saved_model.load(sys.argv[1]).signatures
data = np.load(sys.argv[2])
examples = served["serving_default"](input=tf.constant(
    [bytes.fromhex(text) for text in data["serialized"].tolist()]
))
tensors = served["tensors"](**{
    name: tf.constant(data[name]) for name in ("input_ids", "input_mask", "segment_ids")
})
foreign = {"albert_tf", "tf_keras"} & set(sys.modules)
print(json.dumps({
    "foreign": sorted(foreign),
    "signatures": sorted(served),
    "examples": {name: value.numpy().tolist() for name, value in examples.items()},
    "tensors": {name: value.numpy().tolist() for name, value in tensors.items()},
}))
"""


def outputs(found):
    return {
        "probabilities": tf.nn.softmax(found),
        "predictions": tf.argmax(found, axis=-1, output_type=tf.int32),
        "threshold": tf.constant(0.25),
    }


@pytest.fixture(scope="module", name="model")
def make_model():
    return AlbertForClassification(CONFIG, NUM_LABELS)


class Embedding(tf.Module):
    """The smallest model that can be exported."""

    def __init__(self):
        self.table = tf.Variable(tf.ones((97, NUM_LABELS)))

    def __call__(self, batch):
        return tf.reduce_sum(tf.gather(self.table, batch["input_ids"]), 1)


def export(parent, model, extra=(), inputs=None, **options):
    """Exports a model, and returns the folder of the SavedModel."""
    inputs = inputs or token_inputs(LENGTH)
    signatures = token_signatures(inputs, lambda batch: outputs(model(batch)), **options)
    exported = Export(signatures, dict(extra))
    return saved_model.export(str(parent), model.variables, exported, {})


@pytest.fixture(scope="module", name="batch")
def make_batch():
    rng = np.random.default_rng(5)
    lengths = np.array([9, 7, 8, 5, 6])
    mask = (np.arange(LENGTH) < lengths[:, None]).astype(np.int32)
    return {
        "input_ids": rng.integers(5, 97, mask.shape).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(LENGTH) >= 4).astype(np.int32) * mask,
    }


def serialize(batch):
    def integers(values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    return [
        tf.train.Example(
            features=tf.train.Features(
                feature={name: integers(values[row]) for name, values in batch.items()}
            )
        ).SerializeToString()
        for row in range(len(batch["input_ids"]))
    ]


@pytest.fixture(scope="module", name="folder")
def write_export(model, tmp_path_factory):
    parent = tmp_path_factory.mktemp("export")
    extra = {"labels.txt": b"no\nyes\nmaybe\n"}
    return export(parent, model, extra)


@pytest.mark.ci
def test_an_export_only_requires_tensorflow(model, batch, folder, tmp_path):
    # The tensors are trimmed to the longest row, since padding does not affect the outputs.
    short = {name: values[:, :9] for name, values in batch.items()}
    serialized = [text.hex() for text in serialize(batch)]  # arrays of bytes lose trailing zeros
    np.savez(tmp_path / "data.npz", serialized=serialized, **short)
    # Parts of tf-models-official set this variable, with which TensorFlow loads tf_keras.
    environment = {n: value for n, value in os.environ.items() if n != "TF_USE_LEGACY_KERAS"}
    done = subprocess.run(
        [sys.executable, "-c", SERVER, folder, str(tmp_path / "data.npz")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout.splitlines()[-1])
    assert served["foreign"] == []
    assert served["signatures"] == ["serving_default", "tensors"]
    wanted = outputs(model(batch, training=False))
    for way in ("examples", "tensors"):
        found = served[way]
        np.testing.assert_allclose(found["probabilities"], wanted["probabilities"], atol=1e-6)
        np.testing.assert_array_equal(found["predictions"], wanted["predictions"])
        assert found["threshold"] == 0.25


def test_the_weights_are_stored_once(folder):
    names = os.listdir(f"{folder}/variables")
    assert names == os.listdir(f"{folder}/tensors/variables") != []
    for name in names:
        assert os.path.samefile(f"{folder}/variables/{name}", f"{folder}/tensors/variables/{name}")


def test_without_hard_links_the_weights_are_stored_twice(tmp_path, monkeypatch):
    def refuse(*arguments, **more):
        raise OSError("no hard links")

    for folder in ("variables", "tensors/variables"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "variables.index").write_text(folder)
    monkeypatch.setattr(os, "link", refuse)
    saved_model._share_weights(str(tmp_path / "tensors"), str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["tensors", "variables"]
    assert (tmp_path / "tensors/variables/variables.index").read_text() == "tensors/variables"


def test_a_subfolder_only_takes_tensors(model, batch, folder):
    signatures = tf.saved_model.load(f"{folder}/tensors").signatures
    assert set(signatures) == {"serving_default"}
    found = signatures["serving_default"](**{name: tf.constant(batch[name]) for name in batch})
    wanted = outputs(model(batch, training=False))
    np.testing.assert_allclose(found["probabilities"], wanted["probabilities"], atol=1e-6)


def test_a_server_may_compute_in_bfloat16(model, batch, folder):
    option = "auto_mixed_precision_onednn_bfloat16"  # of TensorFlow Serving's --mixed_precision
    tf.config.optimizer.set_experimental_options({option: True})
    try:
        tensors = tf.saved_model.load(folder).signatures["tensors"]
        found = tensors(**{name: tf.constant(batch[name]) for name in batch})
    finally:
        tf.config.optimizer.set_experimental_options({option: False})
    wanted = outputs(model(batch, training=False))
    np.testing.assert_allclose(found["probabilities"], wanted["probabilities"], atol=0.02)


@pytest.mark.slow
def test_openvino_converts_the_folder_of_tensors(model, batch, folder):
    openvino = pytest.importorskip("openvino", reason="openvino is an extra")
    run = openvino.compile_model(openvino.convert_model(f"{folder}/tensors"), "CPU")
    found = run(batch)
    wanted = outputs(model(batch, training=False))
    np.testing.assert_allclose(found["probabilities"], wanted["probabilities"], atol=1e-4)
    np.testing.assert_array_equal(found["predictions"], wanted["predictions"])


@pytest.mark.slow
def test_tf2onnx_converts_the_folder_of_tensors(model, batch, folder, tmp_path):
    pytest.importorskip("tf2onnx", reason="tf2onnx is not a dependency")
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not a dependency")
    path = str(tmp_path / "model.onnx")
    command = ["-m", "tf2onnx.convert", f"--saved-model={folder}/tensors", f"--output={path}"]
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    names = ["probabilities", "predictions"]
    found = onnxruntime.InferenceSession(path).run(names, dict(batch))
    wanted = outputs(model(batch, training=False))
    np.testing.assert_allclose(found[0], wanted["probabilities"], atol=1e-4)
    np.testing.assert_array_equal(found[1], wanted["predictions"])


def test_the_signature_is_the_official_one(folder):
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    ((), inputs) = serve.structured_input_signature
    assert {name: (spec.dtype, spec.shape.rank) for name, spec in inputs.items()} == {
        "input": (tf.string, 1)
    }
    forms = {name: (s.dtype, s.shape.as_list()) for name, s in serve.structured_outputs.items()}
    assert forms == {
        "probabilities": (tf.float32, [None, NUM_LABELS]),
        "predictions": (tf.int32, [None]),
        "threshold": (tf.float32, []),
    }


def test_extra_files_are_exported(folder):
    with open(f"{folder}/assets.extra/labels.txt", encoding="utf-8") as stream:
        assert stream.read() == "no\nyes\nmaybe\n"


def test_earlier_exports_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(saved_model.time, "time", lambda: 1700000000.5)
    paths = [export(tmp_path, Embedding()) for _ in range(2)]
    assert paths == [str(tmp_path / "1700000000"), str(tmp_path / "1700000001")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1700000000", "1700000001"]


def test_the_default_signature_may_take_tensors_of_a_fixed_length(tmp_path):
    inputs = token_inputs(LENGTH, "p_mask")
    path = export(tmp_path, Embedding(), inputs=inputs, takes_examples=False, any_length=False)
    signatures = tf.saved_model.load(path).signatures
    assert set(signatures) == {"serving_default", "examples"}
    ((), inputs) = signatures["serving_default"].structured_input_signature
    assert set(inputs) == {"input_ids", "input_mask", "segment_ids", "p_mask"}
    assert {tuple(spec.shape) for spec in inputs.values()} == {(None, LENGTH)}


def test_a_failed_export_leaves_no_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no_folder"):
        export(tmp_path, Embedding(), {"no_folder/labels.txt": b""})
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_reported_and_leaves_no_files(tmp_path, monkeypatch):
    def fill_disk(root, folder, **options):
        reason = f"{folder}/saved_model.pb.tmp4b2e; No space left on device"
        raise tf.errors.ResourceExhaustedError(None, None, reason)

    monkeypatch.setattr(tf.saved_model, "save", fill_disk)
    message = rf"^{tmp_path}/\d+: the SavedModel cannot be written: No space left on device\. Free"
    with pytest.raises(OSError, match=message):
        export(tmp_path, Embedding())
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="--export_dir: cannot write to"):
        export(tmp_path / "file", Embedding())
