"""Pairs of texts as token sequences."""

from __future__ import annotations

from albert_tf.finetuning.text_pairs import encode_pairs


def test_a_pair_that_fits_exactly_is_whole_and_one_token_less_truncates_it(toy_tokenizer):
    pairs = [("The river carries the rain.", "A small boat waits."), ("The rain.", "")]
    (whole, _), _ = toy_tokenizer.sequences(*map(list, zip(*pairs, strict=True)), 100)
    for room, num_truncated in ((len(whole), 0), (len(whole) - 1, 1)):
        sequences, found = encode_pairs(pairs, toy_tokenizer, room)
        assert (found, sequences.lengths.max()) == (num_truncated, room)
