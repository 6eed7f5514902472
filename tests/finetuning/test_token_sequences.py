"""Token sequences without padding, and the batches that are made of them."""

import logging

import numpy as np
import pytest

from albert_tf.finetuning.token_sequences import TokenSequences, log_full_sequences

SEQUENCES = [([2, 7, 3], 3), ([2, 8, 9, 3, 7, 3], 4), ([2, 3], 2), ([2, 5, 3, 6, 3], 3)]
LABELS = {"label_ids": np.array([1, 0, 2, 1], np.int32)}


def test_a_batch_is_padded_and_in_the_requested_order():
    sequences = TokenSequences.pack(SEQUENCES, LABELS)
    assert (len(sequences), sequences.lengths.tolist()) == (4, [3, 6, 2, 5])
    batch = sequences.batch(np.array([3, 0]), 7)
    assert batch["input_ids"].tolist() == [[2, 5, 3, 6, 3, 0, 0], [2, 7, 3, 0, 0, 0, 0]]
    assert batch["input_mask"].tolist() == [[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0, 0]]
    assert batch["segment_ids"].tolist() == [[0, 0, 0, 1, 1, 0, 0], [0] * 7]
    assert batch["label_ids"].tolist() == [1, 1]
    assert {value.dtype.name for value in batch.values()} == {"int32"}


def test_ids_of_any_vocabulary_are_kept():
    sequences = [([2, 65_535, 3], 3), ([2, 7, 65_536, 3], 4), ([2, 250_000, 8], 3)]
    packed = TokenSequences.pack(sequences, {})
    batch = packed.batch(np.arange(3), 4)
    assert batch["input_ids"].tolist() == [[2, 65_535, 3, 0], [2, 7, 65_536, 3], [2, 250_000, 8, 0]]
    assert TokenSequences.pack(sequences[:1], {}).input_ids.nbytes == 6


def test_a_batch_is_at_least_as_long_as_its_longest_sequence():
    sequences = TokenSequences.pack(SEQUENCES, LABELS)
    assert sequences.batch(np.array([1, 3]), 6)["input_ids"].shape == (2, 6)
    with pytest.raises(ValueError, match="a sequence has 6 ids, more than seq_length=5"):
        sequences.batch(np.array([1, 3]), 5)
    assert sequences.batch(np.array([3]), 5)["input_ids"].shape == (1, 5)


@pytest.mark.parametrize(("max_seq_length", "said"), [(5, "1 of 4"), (6, "1 of 4"), (7, None)])
def test_sequences_of_the_maximum_length_are_counted(caplog, max_seq_length, said):
    caplog.set_level(logging.INFO)
    log_full_sequences("x.tsv", TokenSequences.pack(SEQUENCES, LABELS), max_seq_length)
    expected = f"x.tsv: {said} sequences have --max_seq_length={max_seq_length} or more tokens"
    assert (expected in caplog.text) == (said is not None)
    assert bool(caplog.text) == (said is not None)
