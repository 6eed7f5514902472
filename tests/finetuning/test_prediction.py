"""Training datasets, predictions in the order of the file, and weights that lack the head."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints import loading, store
from albert_tf.checkpoints.names import variable_name
from albert_tf.finetuning import prediction
from albert_tf.finetuning.batching import Padding, TrainingOrder
from albert_tf.finetuning.prediction import BatchRunner
from albert_tf.finetuning.sequences import TokenSequences
from albert_tf.heads import AlbertForClassification

PADDING = Padding(max_seq_length=13, multiple=4)
# Sequence length of each question, and its number of options.
LENGTHS = [5, 11, 3, 9, 2, 13, 7]
OPTIONS = [2, 3, 2, 4, 2, 2, 3]


@pytest.fixture(scope="module", name="questions")
def make_questions():
    """Returns questions where question i has OPTIONS[i] options of LENGTHS[i] ids, all i + 1."""
    sequences = []
    for number, (length, options) in enumerate(zip(LENGTHS, OPTIONS, strict=True), 1):
        sequences += [([number] * length, 1)] * options + [([], 0)] * (4 - options)
    labels = np.arange(len(LENGTHS), dtype=np.int32)
    return TokenSequences.pack(sequences, {"label_ids": labels}, num_choices=4)


class CountingModel:
    """A model that counts the tokens of each option, and how often it is traced."""

    def __init__(self):
        self.traces = 0

    def __call__(self, batch, training):
        assert not training
        self.traces += 1
        counts = tf.reduce_sum(batch["input_mask"], axis=-1)
        return {
            "counts": counts,
            "ids": batch["input_ids"][:, 0, 0],
            "sequence": batch["input_ids"][:, :, 0, None] * tf.ones_like(batch["input_ids"]),
        }


def test_predictions_are_in_the_order_of_the_file(questions):
    model = CountingModel()
    runner = BatchRunner(model, questions, 3, PADDING, {"counts": -1, "ids": 0})
    outputs = runner.run()
    assert set(outputs) == {"counts", "ids"}
    assert outputs["ids"].tolist() == list(range(1, 8))
    for row, length, options in zip(outputs["counts"].tolist(), LENGTHS, OPTIONS, strict=True):
        assert row[:options] == [length] * options
        assert set(row[options:]) <= {0, -1}


def test_rows_of_batches_of_different_width_are_padded(questions):
    # The first batch contains only the longest question, with its two options.
    outputs = BatchRunner(CountingModel(), questions, 1, PADDING, {"counts": -1}).run()
    assert outputs["counts"].shape == (7, 4)
    assert outputs["counts"][5].tolist() == [13, 13, -1, -1]


def test_one_trace_serves_all_lengths_and_numbers_of_options(questions):
    model = CountingModel()
    runner = BatchRunner(model, questions, 2, PADDING, {"counts": 0})
    first = runner.run()
    np.testing.assert_array_equal(runner.run()["counts"], first["counts"])
    assert model.traces == 1


def test_the_batch_size_does_not_change_predictions(tiny_config):
    rng = np.random.default_rng(5)
    sequences = [(rng.integers(5, 97, length).tolist(), length // 2) for length in LENGTHS]
    features = TokenSequences.pack(sequences, {"label_ids": np.zeros(7, np.int32)})
    model = AlbertForClassification(tiny_config, 3)
    one, many = (
        BatchRunner(
            model, features, size, padding, {"logits": 0.0}, lambda logits: {"logits": logits}
        ).run()["logits"]
        for size, padding in ((1, Padding(13, 1)), (5, Padding(13, 13)))
    )
    assert one.shape == (7, 3)
    np.testing.assert_allclose(one, many, rtol=1e-4, atol=1e-6)


def test_the_signature_leaves_all_dimensions_unknown(questions):
    signature = prediction.batch_signature(questions)
    assert signature == {
        **dict.fromkeys(
            ("input_ids", "input_mask", "segment_ids"), tf.TensorSpec([None] * 3, tf.int32)
        ),
        "label_ids": tf.TensorSpec([None], tf.int32),
    }


def test_the_iterator_of_training_data_is_deleted_without_delay(questions):
    dataset = prediction.training_dataset(questions, TrainingOrder(2, seed=3), PADDING)
    assert dataset.options().autotune.enabled is False  # see `datasets.prefetch`


def test_training_data_can_start_at_any_step(questions):
    order = TrainingOrder(2, seed=3, batches_to_sort=3)

    def labels(start, count):
        dataset = prediction.training_dataset(questions, order, PADDING, start)
        return [batch["label_ids"].numpy().tolist() for batch in itertools.islice(dataset, count)]

    through = labels(0, 9)
    assert labels(4, 5) == through[4:]
    assert sorted(itertools.chain(*through))[0] == 0


@pytest.fixture(scope="module", name="model")
def make_model(tiny_config):
    return AlbertForClassification(tiny_config, 3)


def weights_of(model):
    return {variable_name(variable): variable.numpy() for variable in model.variables}


def test_weights_are_loaded_with_the_head(model, tmp_path):
    wanted = {name: value + 1 for name, value in weights_of(model).items()}
    store.save_checkpoint(str(tmp_path / "x"), wanted | {"unrelated": np.zeros(2)})
    loading.load_weights(model, str(tmp_path / "x"))
    for name, value in weights_of(model).items():
        np.testing.assert_array_equal(value, wanted[name], err_msg=name)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ({}, "output_bias is missing"),
        ({"output_bias": np.zeros(4)}, r"output_bias has the shape \[4\], here \[3\]"),
    ],
)
def test_a_checkpoint_without_this_head_is_not_evaluated(model, tmp_path, head, message):
    weights = weights_of(model)
    del weights["output_bias"]
    changed = {name: value + 1 for name, value in weights.items()}
    store.save_checkpoint(str(tmp_path / "x"), changed | head)
    with pytest.raises(ValueError, match=message):
        loading.load_weights(model, str(tmp_path / "x"))
    for name, value in weights.items():
        np.testing.assert_array_equal(weights_of(model)[name], value, err_msg=name)
