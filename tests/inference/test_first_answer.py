"""Few texts are answered without waiting for XLA, and always the same; many are compiled for."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.inference import predictor
from albert_tf.inference.model_task import open_task
from albert_tf.inference.predictor import MANY_ROWS, Predictor
from albert_tf.inference.settings import PredictorSettings
from albert_tf.inference.tensorflow_engine import TensorFlowEngine
from albert_tf.model import dispatch
from albert_tf.model.kernels.loops import MIN_WIDTH

LAYERS = 3
WORDS = "river", "boat", "rain", "sea"
TEXTS = [" ".join(WORDS[i % 4] for i in range(length)) for length in (1, 9, 30)]


@pytest.fixture(autouse=True, scope="module")
def _eager():
    """Replaces the folder's fixture, which computes eagerly and hides OpenVINO."""


@pytest.fixture(scope="module")
def folder(toy_tokenizer, tmp_path_factory):
    """The folder of an encoder that is just wide enough for parts of it to be compiled."""
    folder = str(tmp_path_factory.mktemp("wide"))
    config = albert_tf.AlbertConfig(
        vocab_size=toy_tokenizer.vocab_size,
        embedding_size=8,
        hidden_size=MIN_WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=MIN_WIDTH,
        max_position_embeddings=48,
    )
    model = albert_tf.AlbertEncoder(config)
    rng = np.random.default_rng(4)
    for variable in model.variables:
        mean = float("gamma" in variable.name)
        variable.assign(mean + 0.2 * rng.standard_normal(variable.shape))
    albert_tf.save_pretrained(model, folder, toy_tokenizer)
    return folder


@pytest.fixture(scope="module")
def opened(folder):
    """Task and engine of the encoder."""
    source = ModelSource.open(folder)
    engine = TensorFlowEngine(source, "embeddings", "tensorflow")
    return open_task(source, "embeddings", PredictorSettings()), engine


def functions_of(step):
    """Returns the functions that the graph of a step calls."""
    graph = step.get_concrete_function().graph.as_graph_def()
    return graph, list(graph.library.function)


def is_compiled(function):
    return function.attr["_XlaMustCompile"].b


def test_only_what_computes_many_rows_has_parts_that_xla_compiles(opened):
    task, engine = opened
    features = task.features_of([task.parse_call(text)[0][0] for text in TEXTS])
    started = engine.start(task, features, is_many=False)
    graph, functions = functions_of(started.step)
    assert not any(map(is_compiled, functions))
    # The block is a function that is called by all layers, and optimized once.
    calls = [node.op for node in graph.node if node.op.endswith("PartitionedCall")]
    assert len(functions) == 1
    assert len(calls) == LAYERS
    assert started.multiple == 1  # a length of its own costs nothing
    many = engine.start(task, features, is_many=True)
    assert any(map(is_compiled, functions_of(many.step)[1]))
    assert many.multiple > 1


def test_a_last_layer_at_some_positions_needs_no_function_of_its_own(opened):
    encoder = opened[1].model
    ids = tf.constant(np.random.default_rng(8).integers(5, 50, (2, 9)), tf.int32)
    positions = tf.constant([[3, 8], [1, 1]])

    @functools.partial(tf.function, input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
    @dispatch.uncompiled()
    def step(ids, positions):
        return encoder(ids, output_positions=positions)

    assert len(functions_of(step)[1]) == 1
    expected = encoder(ids, output_positions=positions)
    for name, found in step(ids, positions).items():
        np.testing.assert_allclose(found, expected[name], atol=1e-4)


def test_an_answer_depends_on_the_call_alone_and_hardly_on_its_size(opened):
    embed = Predictor(*opened)
    first = [embed(text) for text in TEXTS]
    many = embed(TEXTS * (MANY_ROWS // len(TEXTS) + 1))[: len(TEXTS)]
    again = [embed(text) for text in TEXTS]
    np.testing.assert_array_equal(again, first)
    np.testing.assert_allclose(many, first, atol=1e-5)
    scale = np.abs(first).max()
    assert scale > 0.1  # the tolerance is small beside the numbers


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_openvino_computes_many_rows_where_it_is_not_asked_for(folder, policy, monkeypatch, caplog):
    pytest.importorskip("openvino", reason="openvino is an extra")
    monkeypatch.setattr(predictor, "MANY_ROWS", len(TEXTS))
    tf_keras.mixed_precision.set_global_policy(policy)
    by_tensorflow = albert_tf.load_predictor(folder, engine="tensorflow")
    by_openvino = albert_tf.load_predictor(folder, engine="openvino")
    caplog.set_level("INFO")
    embed = albert_tf.load_predictor(folder)
    precision = policy.removeprefix("mixed_")
    assert f"tensorflow in {precision}, calls of 512 rows and more by openvino" in caplog.text
    np.testing.assert_array_equal(embed(TEXTS[1]), by_tensorflow(TEXTS[1]))
    assert embed.engine == "tensorflow"
    np.testing.assert_array_equal(embed(TEXTS), by_openvino(TEXTS))
    assert embed.engine == "openvino"
    np.testing.assert_array_equal(embed(TEXTS[1]), by_tensorflow(TEXTS[1]))
    assert embed.model.compute_dtype == precision
