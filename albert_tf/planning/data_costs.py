"""Records, bytes and time of the program that creates pre-training records."""

from __future__ import annotations

import dataclasses

import numpy as np

from albert_tf.data.settings import SPECIAL_TOKENS_PER_PAIR
from albert_tf.data.tfrecord import encode_examples, frame_records

# Records per second of one core at sequence length 128 and 512, of long documents; docs/scaling.md.
MEASURED_RATES = {128: 29_000.0, 512: 8_800.0}


@dataclasses.dataclass(frozen=True)
class DataCosts:
    """Costs of creating the records.

    Attributes:
        tokens: number of tokens of the text.
        records: number of records.
        record_bytes: mean size of a record, with its TFRecord frame.
        core_seconds: CPU time of all cores together.
    """

    tokens: float
    records: float
    record_bytes: float
    core_seconds: float

    @property
    def total_bytes(self) -> float:
        """Size of all records."""
        return self.records * self.record_bytes


def record_bytes(length: int, predictions: int, vocab_size: int, filled: float) -> float:
    """Returns the mean size of a record in bytes, with its TFRecord frame.

    Numbers are stored in one byte for each seven bits, so the size depends on the ids, which follow
    Zipf's law: vocabularies list frequent words first. A record with such ids is encoded and
    measured.

    Args:
        length: S, tokens per sequence.
        predictions: P, masked positions per sequence.
        vocab_size: V.
        filled: mean share of the S tokens that are not padding.
    """
    rng = np.random.default_rng(0)
    tokens = max(SPECIAL_TOKENS_PER_PAIR, min(length, round(filled * length)))
    masked = max(1, min(predictions, round(0.15 * tokens)))
    ids = np.floor(vocab_size ** rng.uniform(size=length)).astype(np.int64)
    is_token = (np.arange(length) < tokens).astype(np.int64)
    is_masked = (np.arange(predictions) < masked).astype(np.int64)
    positions = np.linspace(1, tokens - 1, predictions).astype(np.int64)
    features = {
        "input_ids": ids * is_token,
        "input_mask": is_token,
        "segment_ids": is_token,
        "token_boundary": is_token,
        "masked_lm_positions": positions * is_masked,
        "masked_lm_ids": ids[positions] * is_masked,
        "masked_lm_weights": is_masked.astype(np.float32),
        "next_sentence_labels": np.zeros(1, np.int64),
    }
    rows = {name: values[np.newaxis] for name, values in features.items()}  # [1, …]
    return float(len(frame_records(encode_examples(rows))[0]))


def rate_of_core(length: int) -> float:
    """Returns the records per second of one core, interpolated between the MEASURED_RATES.

    The time of a record is a constant plus a part proportional to its length.
    """
    (short, fast), (long, slow) = sorted(MEASURED_RATES.items())
    per_token = (1 / slow - 1 / fast) / (long - short)
    return 1 / (1 / fast + (length - short) * per_token)


def data_costs(
    *,
    text_bytes: float,
    bytes_per_token: float,
    filled: float,
    dupe_factor: int,
    length: int,
    predictions: int,
    vocab_size: int,
) -> DataCosts:
    """Returns the costs of creating the records of a text.

    Args:
        text_bytes: size of the text.
        bytes_per_token: mean size of a token in the text.
        filled: mean share of the S tokens of a record that are not padding.
        dupe_factor: number of times that the text is used, with other masks.
        length: S.
        predictions: P.
        vocab_size: V.
    """
    tokens = text_bytes / bytes_per_token
    used = max(1.0, filled * length - SPECIAL_TOKENS_PER_PAIR)  # tokens of text per record
    records = tokens * dupe_factor / used
    return DataCosts(
        tokens=tokens,
        records=records,
        record_bytes=record_bytes(length, predictions, vocab_size, filled),
        core_seconds=records / rate_of_core(length),
    )
