"""Tests the outputs and quantization of TFLite files of fine-tuned models."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

from albert_tf.config import AlbertConfig
from albert_tf.heads import AlbertForClassification
from albert_tf.serving import saved_model, tflite
from albert_tf.serving.signatures import Signature, token_inputs
from tests.conftest import TINY_SHAPE

pytestmark = pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning")

LENGTH, NUM_LABELS = 11, 3
# The converter does not quantize weights with fewer than 1024 elements.
SHAPE = {"vocab_size": 997, "hidden_size": 44, "intermediate_size": 60, "num_hidden_layers": 2}
CONFIG = AlbertConfig(**TINY_SHAPE | SHAPE | {"num_hidden_groups": 1, "type_vocab_size": 2})
TYPES = {"none": np.float32, "float16": np.float16, "int8": np.int8}


@pytest.fixture(scope="module", name="model")
def make_model():
    return AlbertForClassification(CONFIG, NUM_LABELS)


@pytest.fixture(scope="module", name="batch")
def make_batch():
    mask = (np.arange(LENGTH) < np.array([[11], [7], [5]])).astype(np.int32)
    ids = np.random.default_rng(5).integers(5, 997, mask.shape).astype(np.int32)
    segments = (np.arange(LENGTH) >= 4).astype(np.int32)
    return {"input_ids": ids * mask, "input_mask": mask, "segment_ids": segments * mask}


def outputs(found):
    return {"probabilities": tf.nn.softmax(found)}


def export(path, model, **options):
    signature = Signature(token_inputs(LENGTH), lambda batch: outputs(model(batch)))
    tflite.convert(str(path), saved_model.hold(model.variables), signature, **options)
    return path.read_bytes()


def predict(content, batch):
    """Returns name → outputs of all rows."""
    runner = tf.lite.Interpreter(model_content=content).get_signature_runner("serving_default")
    assert set(runner.get_input_details()) == set(batch)
    rows = range(len(batch["input_ids"]))
    found = [runner(**{name: value[i : i + 1] for name, value in batch.items()}) for i in rows]
    return {name: np.concatenate([row[name] for row in found]) for name in found[0]}


@pytest.fixture(scope="module", name="plain")
def export_plain(model, tmp_path_factory):
    return export(tmp_path_factory.mktemp("plain") / "model.tflite", model)


@pytest.mark.ci
def test_outputs_have_the_same_names_and_values(model, batch, plain):
    found = predict(plain, batch)
    assert set(found) == {"probabilities"}
    wanted = outputs(model(batch, training=False))["probabilities"]
    np.testing.assert_allclose(found["probabilities"], wanted, atol=1e-6)


@pytest.mark.ci
@pytest.mark.parametrize("quantization", ["float16", "int8"])
def test_quantized_weights_are_smaller_with_similar_outputs(
    quantization, plain, model, batch, tmp_path
):
    path = tmp_path / "new" / "model.tflite"
    content = export(path, model, quantization=quantization)
    assert [entry.name for entry in path.parent.iterdir()] == ["model.tflite"]
    weights = {"none": weight_bytes(plain), quantization: weight_bytes(content)}
    item_sizes = {name: np.dtype(TYPES[name]).itemsize for name in weights}
    assert weights[quantization] / weights["none"] == pytest.approx(
        item_sizes[quantization] / item_sizes["none"], rel=0.1
    )
    wanted, found = (predict(file, batch)["probabilities"] for file in (plain, content))
    assert 0 < np.abs(found - wanted).max() < 0.01


def weight_bytes(content):
    """Returns the size of the weights that are large enough to be quantized."""
    buffers = schema.ModelT.InitFromPackedBuf(content).buffers
    sizes = [0 if buffer.data is None else len(buffer.data) for buffer in buffers]
    return sum(size for size in sizes if size >= 1024)


def test_a_folder_that_cannot_be_written_is_reported(model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="--export_dir: cannot write to"):
        export(tmp_path / "file" / "model.tflite", model)
