"""RoBERTa's instance formats: what an instance contains, and where separators are."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from albert_tf.data.settings import DOC_SENTENCES, FULL_SENTENCES, InstanceSettings
from tests.data.test_instances import CLS, SEP, make_documents, rows_of, settings

LENGTHS = [[3, 1, 4], [1], [5, 2, 6, 5], [3, 5], [14, 2]]  # tokens of the sentences of 5 documents
SEQ_LENGTH = 13


def make_rows(documents, instance_format, **changes):
    """Returns the tokens of each instance, without masks, and the other features."""
    changes = {"masked_lm_prob": 0.0} | changes
    options = settings(SEQ_LENGTH, instance_format=instance_format, **changes)
    rows = rows_of(documents, options)
    lengths = rows["input_mask"].sum(axis=1)
    tokens = [row[:length].tolist() for row, length in zip(rows["input_ids"], lengths, strict=True)]
    return tokens, rows


def sentences_of(documents):
    """Returns the documents as lists of sentences, which are lists of ids."""
    starts = documents.sentence_starts
    sentences = [documents.ids[a:b].tolist() for a, b in itertools.pairwise(starts)]
    return [sentences[a:b] for a, b in itertools.pairwise(documents.document_starts)]


def pack_one_at_a_time(documents, crosses_documents):
    """RoBERTa's rule, by adding one sentence after the other, without the first and last token."""
    found = []
    open_instance, size = [], 0
    for document in sentences_of(documents):
        if not crosses_documents and open_instance:
            found.append(open_instance)
            open_instance, size = [], 0
        separator = [SEP] if open_instance else []
        for sentence in document:
            if open_instance and size + len(separator) + len(sentence) > SEQ_LENGTH - 2:
                found.append(open_instance)
                open_instance, size, separator = [], 0, []
            open_instance = open_instance + separator + sentence
            size, separator = len(open_instance), []
    return [*found, open_instance]


@pytest.mark.parametrize("instance_format", [FULL_SENTENCES, DOC_SENTENCES])
def test_as_many_sentences_as_fit_are_packed(instance_format):
    rng = random.Random(5)
    shapes = [[rng.randint(1, 11) for _ in range(rng.randint(1, 5))] for _ in range(60)]
    documents = make_documents(*shapes)
    tokens, rows = make_rows(documents, instance_format)
    expected = pack_one_at_a_time(documents, instance_format == FULL_SENTENCES)
    assert tokens == [[CLS, *content, SEP] for content in expected]
    assert not rows["segment_ids"].any()
    assert not rows["next_sentence_labels"].any()


def test_a_longer_sentence_is_truncated_and_alone():
    documents = make_documents([2], [14, 2])
    tokens, _ = make_rows(documents, FULL_SENTENCES)
    sentence = sentences_of(documents)[1][0]
    assert [len(row) for row in tokens] == [4, SEQ_LENGTH, 4]
    begin = sentence.index(tokens[1][1])
    assert tokens[1][1:-1] == sentence[begin : begin + SEQ_LENGTH - 2]


def test_separators_between_documents_are_not_masked():
    documents = make_documents(*[[2], [2], [2]] * 300)
    tokens, rows = make_rows(documents, FULL_SENTENCES, masked_lm_prob=0.5)
    assert len(tokens[0]) == SEQ_LENGTH
    separators = [3, 6, 9]  # after every document of two tokens, and at the end
    for name in ("input_ids", "token_boundary"):
        expected = SEP if name == "input_ids" else 1
        assert (rows[name][:-1, [*separators, 12]] == expected).all()
    positions = set(rows["masked_lm_positions"][rows["masked_lm_weights"] > 0].tolist())
    assert positions == set(range(1, 12)) - set(separators)


@pytest.mark.parametrize("objective", ["none", "nsp", "sop"])
def test_a_sentence_pair_has_two_sentences(objective):
    documents = make_documents(*LENGTHS * 40)
    tokens, rows = make_rows(documents, "sentence_pair", sentence_objective=objective)
    whole = {tuple(sentence) for document in sentences_of(documents) for sentence in document}
    following = {
        (tuple(a), tuple(b))
        for document in sentences_of(documents)
        for a, b in itertools.pairwise(document)
    }
    labels = rows["next_sentence_labels"][:, 0]
    consecutive = []
    for row in tokens:
        middle = row.index(SEP)
        pair = tuple(row[1:middle]), tuple(row[middle + 1 : -1])
        if sum(map(len, pair)) < SEQ_LENGTH - 3:  # not truncated
            assert set(pair) <= whole | {()}
        consecutive.append((pair in following) - (pair[::-1] in following))
    if objective == "nsp":
        assert (labels[np.array(consecutive) == 1] == 0).mean() > 0.95
        assert 0.2 < labels.mean() < 0.8
    elif objective == "sop":
        assert not labels[np.array(consecutive) == 1].any()
        assert labels[np.array(consecutive) == -1].all()
    assert np.count_nonzero(consecutive) > 0.15 * len(tokens)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"sentence_objective": "sop"},
            "'sop' needs pairs, which instance_format='full_sentences'",
        ),
        ({"random_next_sentence": True}, "'nsp' needs pairs"),
        ({"albert_zh_compat": True}, "cannot be combined with instance_format=full_sentences"),
        ({"max_seq_length": 3}, "max_seq_length=3: expected 4 or more, for 2 special tokens"),
        ({"instance_format": "words"}, "expected one of 'segment_pair', 'sentence_pair', 'full"),
    ],
)
def test_what_does_not_fit_the_format_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        InstanceSettings(**{"instance_format": FULL_SENTENCES} | changes)
