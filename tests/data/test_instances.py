"""Properties of segment pairs, truncation and instance layout."""

from __future__ import annotations

import collections
import dataclasses
import random

import numpy as np
import pytest

from albert_tf.data.instances import (
    BATCH_SIZE,
    Documents,
    _pairs_of_document,
    _truncate,
    create_batches,
    tokenize_documents,
)
from albert_tf.data.masking import word_start_table
from albert_tf.data.settings import InstanceSettings
from albert_tf.sentence_objectives import OBJECTIVES

CLS, SEP, MASK = 2, 3, 4


class Tokenizer:
    """The part of the tokenizer interface that instances use."""

    cls_id, sep_id, mask_id, vocab_size = CLS, SEP, MASK, 97


def make_documents(*documents):
    """Builds documents from the lengths of their sentences; every token has a different id."""
    lengths = [length for document in documents for length in document]
    ids = np.arange(10, 10 + sum(lengths), dtype=np.int32)
    return Documents(
        ids=ids,
        word_starts=np.ones(len(ids), bool),
        sentence_starts=[0, *np.cumsum(lengths).tolist()],
        document_starts=[0, *np.cumsum([len(document) for document in documents]).tolist()],
    )


def settings(max_seq_length=11, **others):
    return InstanceSettings(
        **{
            "max_seq_length": max_seq_length,
            "dupe_factor": 1,
            "short_seq_prob": 0.0,
            "max_predictions_per_seq": 7,
            **others,
        }
    )


def pairs_of(documents, options, document=0, seed=5):
    return list(_pairs_of_document(documents, document, options, random.Random(seed)))


def rows_of(documents, options, position=(0, 0), borrowed=None):
    batches = list(create_batches(documents, options, Tokenizer(), position, borrowed))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def test_lines_become_documents(toy_tokenizer):
    table = word_start_table(toy_tokenizer.pieces, True)
    parts = [
        ["the river", "the boat", "", "  ", "children skate", "\u3000", "winter"],
        ["", "the sea", ""],
    ]
    documents = tokenize_documents(parts, toy_tokenizer, table)
    assert documents.num_documents == 4
    assert documents.document_starts == [0, 2, 3, 4, 5]
    sentences = [line for part in parts for line in part if line.strip()]
    for sentence, begin, end in zip(
        sentences, documents.sentence_starts, documents.sentence_starts[1:], strict=False
    ):
        assert documents.ids[begin:end].tolist() == toy_tokenizer.encode(sentence)
    assert documents.sentence_starts[-1] == len(documents.ids) == len(documents.word_starts)
    np.testing.assert_array_equal(documents.word_starts, table[documents.ids])


def test_a_blank_line_ends_a_document_but_a_line_without_tokens_does_not(toy_tokenizer):
    table = word_start_table(toy_tokenizer.pieces, True)
    # An acute accent is normalized to a space and a mark: not blank, but it has no pieces.
    documents = tokenize_documents([["the river", "´", "the boat"]], toy_tokenizer, table)
    assert (documents.num_documents, len(documents.sentence_starts)) == (1, 3)
    documents = tokenize_documents([["the river", "\u0301", "the boat"]], toy_tokenizer, table)
    assert documents.num_documents == 2


def test_no_text_makes_no_document(toy_tokenizer):
    table = word_start_table(toy_tokenizer.pieces, True)
    documents = tokenize_documents([["", " "], []], toy_tokenizer, table)
    assert documents.num_documents == 0
    assert list(create_batches(documents, settings(), toy_tokenizer, (0, 0))) == []


def test_tokenizing_many_lines_at_once_changes_nothing(toy_tokenizer, monkeypatch):
    table = word_start_table(toy_tokenizer.pieces, True)
    lines = ["the river", "", "the __ boat", "winter", "", "", "字", "the sea"] * 5
    expected = tokenize_documents([lines], toy_tokenizer, table)
    monkeypatch.setattr("albert_tf.data.instances.LINES_AT_ONCE", 3)
    found = tokenize_documents([lines], toy_tokenizer, table)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.word_starts, expected.word_starts)
    assert found.document_starts == expected.document_starts


def test_the_spelling_of_an_unknown_piece_decides_whether_it_starts_a_word(toy_tokenizer):
    table = word_start_table(toy_tokenizer.pieces, True)
    unk = toy_tokenizer.unk_id
    for text, expected in [("the__", [False]), ("the_", [True]), ("the字", [True])]:
        documents = tokenize_documents([["sea", text, "boat"]], toy_tokenizer, table)
        assert documents.word_starts[documents.ids == unk].tolist() == expected, text


def test_a_pass_uses_every_sentence_of_a_document_once():
    documents = make_documents([3, 1, 4, 1, 5, 2, 6, 5, 3, 5])
    for seed in range(50):
        covered = []
        for begin_a, end_a, begin_b, end_b, label in pairs_of(documents, settings(), seed=seed):
            first, second = sorted([(begin_a, end_a), (begin_b, end_b)])
            if begin_b != end_a and begin_a != end_b:
                assert label == 1  # one sentence was left at the end
                continue
            assert first[1] == second[0]
            assert label == (begin_a > begin_b)
            covered += range(first[0], second[1])
        assert covered == list(range(len(covered)))
        assert len(covered) >= len(documents.ids) - 6


def test_a_pair_ends_with_the_sentence_that_reaches_the_target():
    documents = make_documents([3, 3, 3, 3, 3, 3])
    lengths = {
        end_a - begin_a + end_b - begin_b
        for seed in range(20)
        for begin_a, end_a, begin_b, end_b, _ in pairs_of(documents, settings(), seed=seed)
    }
    assert lengths == {9}  # the target is 8 tokens


def test_swapped_pairs_are_labeled_1_half_of_the_time():
    documents = make_documents([4, 4])
    labels = [pairs_of(documents, settings(), seed=seed)[0][4] for seed in range(2000)]
    assert np.mean(labels) == pytest.approx(0.5, abs=0.05)


def test_the_split_is_uniform_over_sentence_boundaries():
    documents = make_documents([2, 2, 2, 2])
    counts = collections.Counter()
    for seed in range(3000):
        (pair,) = pairs_of(documents, settings(), seed=seed)
        counts[min(pair[1], pair[3])] += 1
    assert set(counts) == {2, 4, 6}
    assert all(count == pytest.approx(1000, abs=130) for count in counts.values())


def test_one_sentence_gets_a_random_second_segment_and_label_1():
    documents = make_documents([4], [2, 3, 5, 7], [6])
    starts = collections.Counter()
    for seed in range(1000):
        ((begin_a, end_a, begin_b, end_b, label),) = pairs_of(documents, settings(), seed=seed)
        assert (begin_a, end_a, label) == (0, 4, 1)
        assert begin_b >= 4  # another document
        starts[begin_b] += 1
        in_last = begin_b == 21
        # Sentences until 8 - 4 tokens are reached, or the document ends.
        expected = {4: 9, 6: 14, 9: 14, 14: 21, 21: 27}[begin_b]
        assert end_b == expected
        assert in_last == (end_b == 27)
    assert starts[21] == pytest.approx(500, abs=80)  # by document first, then by sentence


def test_a_long_first_sentence_still_gets_a_second_segment():
    documents = make_documents([30], [2, 3])
    ((_, end_a, begin_b, end_b, _),) = pairs_of(documents, settings())
    assert end_a == 30
    assert end_b - begin_b in (2, 3)


def test_sentences_replaced_by_a_random_segment_are_used_again():
    documents = make_documents([2, 2, 2, 2, 2], [9], [8], [7], [6])
    options = settings(random_next_sentence=True)
    replaced = 0
    for seed in range(200):
        at = 0
        for begin_a, end_a, begin_b, end_b, label in pairs_of(documents, options, seed=seed):
            assert begin_a == at
            is_random = begin_b >= 10
            assert label == is_random
            replaced += is_random
            at = end_a if is_random else end_b
        assert at == 10
    assert replaced > 100


def test_half_of_the_second_segments_of_next_sentence_prediction_are_from_other_documents():
    documents = make_documents([4, 4], [9])
    options = settings(sentence_objective="nsp")
    firsts = [pairs_of(documents, options, seed=seed)[0] for seed in range(2000)]
    assert {row[:4] for row in firsts} == {(0, 4, 4, 8), (0, 4, 8, 17)}
    assert all((row[2] == 8) == row[4] for row in firsts)
    assert np.mean([row[4] for row in firsts]) == pytest.approx(0.5, abs=0.05)


def test_without_an_objective_the_pairs_are_the_text_in_its_order():
    documents = make_documents([3, 1, 4, 1, 5, 2, 6, 30, 5, 3], [4], [2, 2])
    options = settings(sentence_objective="none", short_seq_prob=0.5)
    for seed in range(50):
        for document, (begin, end) in enumerate([(0, 60), (60, 64), (64, 68)]):
            rows = pairs_of(documents, options, document, seed)
            assert {label for *_, label in rows} == {0}
            offsets = [begin, *(offset for row in rows for offset in row[:4]), end]
            assert offsets[::2] == offsets[1::2]  # each segment begins where the last one ended


def test_an_empty_second_segment_leaves_only_its_separator():
    rows = rows_of(make_documents([4]), settings(sentence_objective="none", masked_lm_prob=0.0))
    assert rows["input_ids"].tolist() == [[CLS, 10, 11, 12, 13, SEP, SEP, 0, 0, 0, 0]]
    assert rows["segment_ids"].tolist() == [[0] * 6 + [1] + [0] * 4]


def test_a_label_that_the_objective_does_not_have_is_refused(monkeypatch):
    wrong = dataclasses.replace(OBJECTIVES["nsp"], make_pair=lambda a, b, *_: (a, b or a, 2))
    monkeypatch.setitem(OBJECTIVES, "nsp", wrong)
    with pytest.raises(ValueError, match="objective 'nsp' made the label 2: expected 0 to 1"):
        rows_of(make_documents([4]), settings(sentence_objective="nsp"))


def test_a_single_document_supplies_its_own_random_segments():
    documents = make_documents([4])
    assert pairs_of(documents, settings()) == [(0, 4, 0, 4, 1)]


def test_short_targets_are_drawn_once_for_a_pass_over_a_document():
    documents = make_documents([1] * 400, [1] * 400)
    options = settings(max_seq_length=103, short_seq_prob=1.0)
    targets = []
    for seed in range(300):
        sizes = [
            end_a - begin_a + end_b - begin_b
            for begin_a, end_a, begin_b, end_b, _ in pairs_of(documents, options, seed=seed)
        ]
        assert len(set(sizes[:-1])) <= 1
        targets.append(sizes[0])
    assert min(targets) < 6
    assert max(targets) > 95
    assert np.mean(targets) == pytest.approx(51, abs=6)
    assert len(pairs_of(documents, settings(max_seq_length=103))) == 4


@pytest.mark.parametrize("max_tokens", [2, 5, 8, 13])
def test_truncation_shortens_the_longer_segment_or_b_if_equal(max_tokens):
    table = [(0, a, 50, 50 + b, 0) for a in range(1, 15) for b in range(1, 15)]
    begin_a, length_a, begin_b, length_b = _truncate(
        np.array(table), max_tokens, np.random.default_rng(5)
    )
    for row, (_, a, begin, end, _) in enumerate(table):
        left = [a, end - begin]
        while sum(left) > max_tokens:
            left[0 if left[0] > left[1] else 1] -= 1
        assert [length_a[row], length_b[row]] == left
        assert begin_a[row] >= 0
        assert begin_a[row] + left[0] <= a
        assert begin <= begin_b[row]
        assert begin_b[row] + left[1] <= end


def test_truncation_removes_front_and_back_tokens_with_equal_probability():
    table = np.array([(0, 20, 50, 55, 0)] * 4000)
    begin_a, _, _, _ = _truncate(table, 13, np.random.default_rng(5))
    assert begin_a.mean() == pytest.approx(6, abs=0.12)  # 12 of 20 tokens are removed
    assert begin_a.var() == pytest.approx(3, abs=0.25)


def test_an_instance_is_laid_out_as_cls_a_sep_b_sep():
    documents = make_documents([3, 4], [2])
    options = settings(masked_lm_prob=0.0)
    rows = rows_of(documents, options)
    for row in range(2):
        ids = rows["input_ids"][row]
        length = int(rows["input_mask"][row].sum())
        segment = rows["segment_ids"][row]
        middle = int(np.flatnonzero(ids == SEP)[0])
        assert ids[0] == CLS
        assert ids[length - 1] == SEP
        assert np.count_nonzero(ids == SEP) == 2
        assert rows["input_mask"][row].tolist() == [1] * length + [0] * (11 - length)
        assert segment.tolist() == (
            [0] * (middle + 1) + [1] * (length - middle - 1) + [0] * (11 - length)
        )
        assert not ids[length:].any()
        for part in (ids[1:middle], ids[middle + 1 : length - 1]):
            assert (np.diff(part) == 1).all()  # consecutive tokens of the text
    assert rows["next_sentence_labels"].shape == (2, 1)
    assert rows["masked_lm_ids"].shape == (2, 7)


def test_token_boundaries_are_word_starts_and_special_tokens():
    documents = make_documents([4, 5], [3])
    starts = np.arange(12) % 3 == 0
    documents = Documents(
        documents.ids, starts, documents.sentence_starts, documents.document_starts
    )
    options = settings(masked_lm_prob=0.0)
    rows = rows_of(documents, options)
    for ids, boundary, mask in zip(
        rows["input_ids"], rows["token_boundary"], rows["input_mask"], strict=True
    ):
        expected = [
            int(used and (token < 10 or starts[token - 10]))
            for token, used in zip(ids, mask, strict=True)
        ]
        assert boundary.tolist() == expected


def test_special_tokens_spelled_in_the_text_are_never_masked():
    documents = make_documents([30, 30], [30, 30])
    documents.ids[::2] = SEP
    rows = rows_of(documents, settings(max_seq_length=37, dupe_factor=20))
    labels = rows["masked_lm_ids"][rows["masked_lm_weights"] > 0]
    assert len(labels) > 100
    assert SEP not in labels
    assert CLS not in labels


def test_batches_are_full_but_for_the_last():
    documents = make_documents(*[[4, 4]] * 100)
    batches = list(create_batches(documents, settings(dupe_factor=11), Tokenizer(), (0, 0)))
    sizes = [len(batch["input_ids"]) for batch in batches]
    assert sizes == [BATCH_SIZE, BATCH_SIZE, 1100 - 2 * BATCH_SIZE]


def test_the_seed_and_the_chunk_determine_the_instances():
    documents = make_documents([3, 4, 2], [2, 6], [5])
    base = settings(dupe_factor=3)

    def ids(options, chunk):
        return rows_of(documents, options, chunk)["input_ids"].tolist()

    assert ids(base, (0, 0)) == ids(base, (0, 0))
    assert ids(base, (0, 0)) != ids(base, (0, 1)) != ids(base, (1, 0))
    assert ids(base, (0, 0)) != ids(settings(dupe_factor=3, random_seed=7), (0, 0))


def test_borrowed_documents_supply_second_segments_and_no_instances():
    documents, other = make_documents([3, 4], [2]), make_documents([1], [2, 5])
    both = make_documents([3, 4], [2], [1], [2, 5])
    joined = documents.followed_by(other)
    assert (joined.sentence_starts, joined.document_starts) == (
        both.sentence_starts,
        both.document_starts,
    )
    options = settings(dupe_factor=50)
    one = make_documents([3])
    alone, helped = rows_of(one, options), rows_of(one, options, borrowed=other)
    assert len(alone["input_ids"]) == len(helped["input_ids"]) == 50
    assert set(alone["input_mask"].sum(axis=1).tolist()) == {9}  # the sentence twice
    # The sentence, and one token or as many as fit into a sequence.
    assert set(helped["input_mask"].sum(axis=1).tolist()) == {7, 11}


def test_labels_of_borrowed_documents_are_kept():
    documents = [
        dataclasses.replace(make_documents([length]), labels=np.full(length, length, np.int32))
        for length in (3, 4)
    ]
    joined = documents[0].followed_by(documents[1])
    assert joined.labels.tolist() == [3] * 3 + [4] * 4


def test_passes_differ():
    documents = make_documents([3, 4, 2, 5, 3], [4, 2])
    rows = rows_of(documents, settings(max_seq_length=37, dupe_factor=4))
    assert len(np.unique(rows["input_ids"], axis=0)) >= 7


def test_the_shortest_sequences_still_work():
    documents = make_documents([1, 1, 1], [1])
    rows = rows_of(documents, settings(max_seq_length=5))
    assert (rows["input_mask"].sum(axis=1) == 5).all()


def test_albert_zh_adds_a_sentence_to_a_single_one():
    # The target is 8 tokens: the long first sentence reaches it alone, yet the next one is added.
    documents = make_documents([9, 2, 3, 9], [4], [9, 9, 9, 9])
    options = settings(albert_zh_compat=True, ngram=1)
    for seed in range(20):
        spans = [sorted(pair[:4]) for pair in pairs_of(documents, options, seed=seed)]
        assert spans == [[0, 9, 9, 11], [11, 14, 14, 23]]
    assert pairs_of(documents, options, document=1) == []  # one sentence makes no pair
    spans = [sorted(pair[:4]) for pair in pairs_of(documents, options, document=2)]
    assert spans == [[27, 36, 36, 45], [45, 54, 54, 63]]


def test_albert_zh_swaps_half_and_never_uses_another_document():
    documents = make_documents([4, 4], [6])
    options = settings(albert_zh_compat=True, ngram=1)
    found = collections.Counter(
        pair for seed in range(2000) for pair in pairs_of(documents, options, seed=seed)
    )
    assert set(found) == {(0, 4, 4, 8, 0), (4, 8, 0, 4, 1)}
    assert found[4, 8, 0, 4, 1] == pytest.approx(1000, abs=100)


def test_labels_may_differ_from_the_tokens():
    documents = make_documents([30, 30], [30, 30])
    labels = documents.ids + 500
    documents = Documents(**{**vars(documents), "labels": labels})
    rows = rows_of(documents, settings(max_seq_length=37, dupe_factor=20))
    used = rows["masked_lm_weights"] > 0
    assert rows["masked_lm_ids"][used].min() >= 510
    assert not rows["masked_lm_ids"][~used].any()
    assert rows["input_ids"].max() < 500
