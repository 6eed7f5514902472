"""Quantized models: how far they are from the model is measured, said, and limited."""

from __future__ import annotations

import dataclasses
import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.export.check import compare, random_texts
from albert_tf.export.signatures import Signature
from albert_tf.inference.convert import Settings, run
from albert_tf.model.config import AlbertConfig
from tests.inference.conftest import KINDS, TEXTS

SAID = r"largest difference of an output from the model, for {}: (\S+), (\S+) of its largest number"
SHAPE = {
    "embedding_size": 16,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 96,
}


@pytest.fixture(scope="module")
def folder_of(toy_tokenizer, tmp_path_factory):
    """A function that returns the folder of a model with random weights, of a kind."""
    home = tmp_path_factory.mktemp("models")

    def save(kind, name="plain"):
        folder = str(home / f"{kind}-{name}")
        if not os.path.exists(folder):
            model_class, arguments, labels = KINDS[kind]
            config = AlbertConfig(**SHAPE, vocab_size=toy_tokenizer.vocab_size)
            model = model_class(config, **arguments)
            model(np.ones((1, 2, 5) if kind == "multiple_choice" else (1, 5), np.int32))
            rng = np.random.default_rng(8)
            for variable in model.variables:
                mean = float("gamma" in variable.name)
                variable.assign(mean + 0.15 * rng.standard_normal(variable.shape))
            albert_tf.save_pretrained(model, folder, toy_tokenizer, labels)
        return folder

    return save


def convert(folder, output, output_format, **options):
    return list(run(Settings(folder, str(output), output_format, **options)))


def difference_of(found, expected):
    """Returns the difference of outputs, name → a list for each batch."""
    count = len(next(iter(expected.values())))
    inputs = {"number": tf.TensorSpec((None,), tf.int32)}
    steps = {name: tf.constant(value) for name, value in expected.items()}
    signature = Signature(
        inputs, lambda batch: {name: step[batch["number"][0]] for name, step in steps.items()}
    )

    def run(batch):
        return {name: np.array(value[batch["number"][0]]) for name, value in found.items()}

    return compare(run, signature, [{"number": np.array([i], np.int32)} for i in range(count)])


@pytest.mark.parametrize(
    ("found", "expected", "absolute", "relative"),
    [
        ([[0.6, -4.5, -9e29]], [[0.5, -4.0, -1e30]], 0.5, 0.125),
        ([[0.0]], [[0.0]], 0.0, 0.0),
        ([[0.3], [4.2]], [[0.1], [4.0]], 0.2, 0.05),  # of the largest number of all batches
    ],
)
def test_a_difference_is_that_of_the_largest_numbers_but_not_of_what_is_excluded(
    found, expected, absolute, relative
):
    difference = difference_of({"score": found}, {"score": expected})
    assert dataclasses.astuple(difference) == pytest.approx((absolute, relative))


def test_log_probabilities_are_compared_as_probabilities():
    found, expected = np.log([[0.5, 1e-9]]), np.log([[0.4, 1e-5]])
    difference = difference_of({"top_log_probs": found}, {"top_log_probs": expected})
    assert dataclasses.astuple(difference) == pytest.approx((0.1, 0.25))


def test_numbers_of_beams_are_compared_where_they_are_of_the_same_beams():
    right = {"start_top_index": [[[3, 7]]], "end_top_log_probs": np.log([[[0.8, 0.2, 0.7, 0.3]]])}
    found = {"start_top_index": [[[3, 8]]], "end_top_log_probs": np.log([[[0.6, 0.4, 0.1, 0.1]]])}
    assert dataclasses.astuple(difference_of(found, right)) == pytest.approx((0.2, 0.25))


@pytest.mark.parametrize(
    ("shape", "is_fixed", "batches", "of_each"),
    [
        ((None, None), False, 1, (64, 16)),
        ((None, None, None), False, 1, (64, 2, 16)),
        ((None, 128), True, 8, (1, 128)),
        ((None, 512), True, 2, (1, 512)),
    ],
)
def test_it_is_measured_on_random_texts_of_all_words(shape, is_fixed, batches, of_each):
    inputs = dict.fromkeys(("input_ids", "input_mask", "p_mask"), tf.TensorSpec(shape, tf.int32))
    made = random_texts(Signature(inputs, dict), is_fixed, vocab_size=90)
    assert [{name: array.shape for name, array in batch.items()} for batch in made] == [
        dict.fromkeys(inputs, of_each)
    ] * batches
    ids = {token for batch in made for token in batch["input_ids"].flat}
    assert ids == set(range(5, 90))
    assert all(batch["input_mask"].all() and not batch["p_mask"].any() for batch in made)


def test_it_is_measured_on_the_examples_of_the_run(folder_of, tmp_path):
    folder = folder_of("classification", "with examples")
    rows = [{"text": text} for text in TEXTS if text]
    with open(f"{folder}/examples.jsonl", "w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)
    options = {"quantization": "float16", "max_seq_length": 24}
    *_, said, _ = convert(folder, tmp_path / "new", "tflite", **options)
    rows = "3 rows of the run's examples and random ids"
    absolute, relative = re.fullmatch(SAID.format(rows), said).groups()
    assert 0 < float(absolute) <= float(relative) < 0.01  # of probabilities


def test_one_that_is_too_far_is_not_written_unless_asked_for(folder_of, tmp_path):
    folder, new = folder_of("classification"), tmp_path / "new"
    options = {"quantization": "float16", "max_seq_length": 24}
    with pytest.raises(ValueError, match=r"more than --quantization_tolerance=1e-09; nothing was"):
        convert(folder, new, "tflite", **options, quantization_tolerance=1e-9)
    assert not list(tmp_path.iterdir())
    *_, said, _ = convert(folder, new, "tflite", **options, quantization_tolerance=1.0)
    assert re.fullmatch(SAID.format("random ids"), said)


# Name → the numbers in the results of a predictor.
NUMBERS = {
    "classification": lambda found: [list(row["probabilities"].values()) for row in found],
    "regression": lambda found: [row["score"] for row in found],
    "embeddings": lambda found: found,
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_an_onnx_file_of_8_bits_answers_as_its_float_file_nearly_does(kind, folder_of, tmp_path):
    pytest.importorskip("tf2onnx", reason="needs the extra onnx")
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    import onnx

    found = {}
    for quantization in ("none", "int8"):
        output = tmp_path / quantization
        convert(folder_of(kind), output, "onnx", quantization=quantization)
        assert [path.name for path in output.glob("model.onnx*")] == ["model.onnx"]
        predict = albert_tf.load_predictor(output)
        assert predict.engine == "onnx"
        found[quantization] = np.asarray(NUMBERS[kind](predict(TEXTS)))
    arrays = onnx.load(str(tmp_path / "int8" / "model.onnx")).graph.initializer
    matrices = [(array.data_type, np.prod(array.dims)) for array in arrays if len(array.dims) == 2]
    floats = sum(size for kind, size in matrices if kind == onnx.TensorProto.FLOAT)
    assert floats < 0.2 * sum(size for _, size in matrices)  # positions and segments
    difference = np.abs(found["int8"] - found["none"]).max()
    assert 0 < difference < 0.1 * np.abs(found["none"]).max()


@pytest.mark.parametrize("kind", ["token_classification", "multiple_choice", "answerable_spans"])
def test_other_tasks_are_quantized_within_the_tolerance(kind, folder_of, tmp_path):
    pytest.importorskip("tf2onnx", reason="needs the extra onnx")
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    *_, said, _ = convert(folder_of(kind), tmp_path / "new", "onnx", quantization="int8")
    assert 0 < float(re.fullmatch(SAID.format("random ids"), said).group(2)) < 0.1
