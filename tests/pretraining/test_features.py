"""The features of pre-training records, and the values that a model accepts."""

from __future__ import annotations

import pytest

from albert_tf.model.config import AlbertConfig
from albert_tf.model.objectives import find
from albert_tf.pretraining.features import pretraining_features, without_masks

# Name → length and the number of values from 0 on, in records of 11 tokens with 7 masks.
TOKENS = {"input_ids": (11, 97), "input_mask": (11, 2), "segment_ids": (11, 3)}
MASKS = {
    "masked_lm_positions": (7, 11),
    "masked_lm_ids": (7, 97),
    "masked_lm_weights": (7, 0),  # floats, without a limit
}


def described(features):
    return {name: (*feature.shape, feature.limit) for name, feature in features.items()}


@pytest.mark.parametrize(
    ("objective", "labels"),
    [
        ("sop", {"next_sentence_labels": (1, 2)}),
        ("nsp", {"next_sentence_labels": (1, 2)}),
        ("none", {}),
    ],
)
def test_features_have_the_lengths_of_the_flags_and_the_limits_of_the_model(objective, labels):
    features = pretraining_features(AlbertConfig(97, type_vocab_size=3), 11, 7, find(objective))
    assert described(features) == TOKENS | MASKS | labels
    unmasked = described(without_masks(features))
    assert unmasked == TOKENS | labels | {"token_boundary": (11, 2)}
