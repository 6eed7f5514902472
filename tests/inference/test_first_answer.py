"""Few texts are answered without waiting for XLA, and always the same; many are compiled for."""

from __future__ import annotations

import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.inference.model_task import open_task
from albert_tf.inference.predictor import MANY_ROWS, Predictor
from albert_tf.inference.settings import PredictorSettings
from albert_tf.inference.tensorflow_engine import TensorFlowEngine
from albert_tf.model.kernels.loops import MIN_WIDTH

LAYERS = 3
WORDS = "river", "boat", "rain", "sea"
TEXTS = [" ".join(WORDS[i % 4] for i in range(length)) for length in (1, 9, 30)]


@pytest.fixture(autouse=True, scope="module")
def _eager():
    """Replaces the folder's fixture, which computes eagerly and hides OpenVINO."""


@pytest.fixture(scope="module")
def opened(toy_tokenizer, tmp_path_factory):
    """Task and engine of an encoder that is just wide enough for parts of it to be compiled."""
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
    started = engine.start(task, task.features_of([task.parse_call(text)[0][0] for text in TEXTS]))
    graph, functions = functions_of(started.step)
    assert not any(map(is_compiled, functions))
    # The block is a function that is called by all layers, and optimized once.
    calls = [node.op for node in graph.node if node.op.endswith("PartitionedCall")]
    assert len(functions) == 1
    assert len(calls) == LAYERS
    assert started.multiple == 1  # a length of its own costs nothing
    many = started.for_many
    assert any(map(is_compiled, functions_of(many.step)[1]))
    assert many.multiple > 1


def test_an_answer_depends_on_the_call_alone_and_hardly_on_its_size(opened):
    embed = Predictor(*opened)
    first = [embed(text) for text in TEXTS]
    many = embed(TEXTS * (MANY_ROWS // len(TEXTS) + 1))[: len(TEXTS)]
    again = [embed(text) for text in TEXTS]
    np.testing.assert_array_equal(again, first)
    np.testing.assert_allclose(many, first, atol=1e-5)
    scale = np.abs(first).max()
    assert scale > 0.1  # the tolerance is small beside the numbers
