"""Texts and pairs of texts as the input of a predictor."""

import pytest

from albert_tf.finetuning.token_sequences import encode_pairs, parse_pairs
from tests.finetuning.conftest import ids_of


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        (("a",), ([("a", "")], True)),
        (("a", "b"), ([("a", "b")], True)),
        ((["a", "c"], ["b", ""]), ([("a", "b"), ("c", "")], False)),
        (([("a", "b")],), ([("a", "b")], False)),
    ],
)
def test_a_call_has_one_pair_or_a_list_of_them(arguments, parsed):
    assert parse_pairs(*arguments) == parsed


@pytest.mark.parametrize(
    ("max_seq_length", "num_truncated", "tokens"),
    [
        (7, 0, "[CLS] a b c [SEP] p [SEP]"),
        (6, 1, "[CLS] a b [SEP] p [SEP]"),
        (5, 1, "[CLS] a [SEP] p [SEP]"),
    ],
)
def test_pairs_that_are_too_long_are_truncated_and_counted(
    tokenizer, max_seq_length, num_truncated, tokens
):
    features, count = encode_pairs([("a b c", "p"), ("a", "")], tokenizer, max_seq_length)
    assert count == num_truncated
    assert features.input_ids.tolist() == ids_of(tokens) + ids_of("[CLS] a [SEP]")
