"""TFLite files of fine-tuned models: outputs and quantization."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.export import signatures, tflite
from albert_tf.export.signatures import Signature, token_inputs
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForClassification
from tests.conftest import TINY_SHAPE

pytestmark = [
    pytest.mark.ci,
    pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning"),
]

LENGTH = 11
# The converter does not quantize weights with fewer than 1024 elements.
SHAPE = {"vocab_size": 997, "hidden_size": 44, "intermediate_size": 60, "num_hidden_layers": 2}
CONFIG = AlbertConfig(**TINY_SHAPE | SHAPE | {"num_hidden_groups": 1, "type_vocab_size": 2})


def predict(content, batch):
    """Returns name → outputs of all rows."""
    runner = tf.lite.Interpreter(model_content=content).get_signature_runner("serving_default")
    assert set(runner.get_input_details()) == set(batch)
    rows = range(len(batch["input_ids"]))
    found = [runner(**{name: value[i : i + 1] for name, value in batch.items()}) for i in rows]
    return {name: np.concatenate([row[name] for row in found]) for name in found[0]}


@pytest.fixture(scope="module")
def model():
    return AlbertForClassification(CONFIG, 3)


def export(path, model, **options):
    def compute(batch):
        return {"probabilities": tf.nn.softmax(model(batch))}

    signature = Signature(token_inputs(LENGTH), compute)
    tflite.write_tflite(str(path), signatures.hold(model.variables), signature, **options)
    return path.read_bytes()


def test_quantized_weights_are_smaller_with_similar_outputs(model, tmp_path):
    mask = (np.arange(LENGTH) < np.array([[11], [7], [5]])).astype(np.int32)
    ids = np.random.default_rng(5).integers(5, 997, mask.shape).astype(np.int32)
    segments = (np.arange(LENGTH) >= 4).astype(np.int32)
    batch = {"input_ids": ids * mask, "input_mask": mask, "segment_ids": segments * mask}
    wanted = tf.nn.softmax(model(batch, training=False)).numpy()
    sizes = []
    for name, least, most in (("none", 0, 1e-6), ("float16", 1e-9, 0.01), ("int8", 1e-6, 0.01)):
        path = tmp_path / name / "model.tflite"
        content = export(path, model, quantization=name)
        assert [entry.name for entry in path.parent.iterdir()] == ["model.tflite"]
        found = predict(content, batch)
        assert set(found) == {"probabilities"}
        assert least <= np.abs(found["probabilities"] - wanted).max() < most
        sizes.append(len(content))
    assert sizes[0] > sizes[1] > sizes[2]
