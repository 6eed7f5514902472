"""The features of pre-training records, with the values that a model expects.

Shapes: S sequence length, P masked positions.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from albert_tf.model.config import AlbertConfig
from albert_tf.model.objectives import SentenceObjective

LABELS = "next_sentence_labels"  # BERT's name, of the labels of any sentence objective
TOKEN_BOUNDARY = "token_boundary"  # Google's name of the feature that marks where words start
MADE_BY_MASKING = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


class Feature(NamedTuple):
    """The expected values of a feature.

    Attributes:
        shape: shape of the values.
        dtype: dtype of the values, tf.int64 or tf.float32.
        limit: the integers of the first record must be in [0, limit); 0 for no limit.
        limit_hint: where the limit comes from, for error messages.
    """

    shape: tuple[int, ...]
    dtype: tf.DType
    limit: int = 0
    limit_hint: str = ""


Features = dict[str, Feature]  # by name


def pretraining_features(
    config: AlbertConfig,
    max_seq_length: int,
    max_predictions_per_seq: int,
    objective: SentenceObjective,
) -> Features:
    """Returns the features of records with masks.

    Args:
        config: the model's config.
        max_seq_length: S.
        max_predictions_per_seq: P.
        objective: the sentence objective, whose labels are only read for its head.
    """
    words = f"the model has vocab_size={config.vocab_size}: is the vocabulary a different one?"
    segments = f"the model has type_vocab_size={config.type_vocab_size}"
    tokens = (max_seq_length,)
    masked = (max_predictions_per_seq,)
    features = {
        "input_ids": Feature(tokens, tf.int64, config.vocab_size, words),
        "input_mask": Feature(tokens, tf.int64, 2),
        "segment_ids": Feature(tokens, tf.int64, config.type_vocab_size, segments),
        "masked_lm_positions": Feature(masked, tf.int64, max_seq_length),
        "masked_lm_ids": Feature(masked, tf.int64, config.vocab_size, words),
        "masked_lm_weights": Feature(masked, tf.float32),
    }
    if objective.has_head:
        labels = f"the labels of sentence_objective={objective.abbreviation}"
        features[LABELS] = Feature((1,), tf.int64, objective.num_classes, labels)
    return features


def without_masks(features: Features) -> Features:
    """Returns the features of records that are masked in training."""
    kept = {name: feature for name, feature in features.items() if name not in MADE_BY_MASKING}
    return kept | {TOKEN_BOUNDARY: features["input_mask"]}
