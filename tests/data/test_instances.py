"""Documents, pairs of segments or sentences, truncation, and the layout of instances."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import random

import numpy as np
import pytest

from albert_tf.data import documents as tokenized_documents
from albert_tf.data.documents import Documents, tokenize_documents, word_start_table
from albert_tf.data.instances import _pairs_of_document, _truncate, create_batches
from albert_tf.data.settings import DOC_SENTENCES, FULL_SENTENCES, InstanceSettings

CLS, SEP, MASK = 2, 3, 4


class Tokenizer:
    """The part of the tokenizer interface that instances use."""

    cls_id, sep_id, mask_id, vocab_size = CLS, SEP, MASK, 97


def make_documents(*documents):
    """Builds documents from the lengths of their sentences; every token has a different id."""
    lengths = [length for document in documents for length in document]
    ids = np.arange(10, 10 + sum(lengths), dtype=np.int32)
    ends = np.cumsum(lengths).tolist()
    return Documents(
        ids=ids,
        word_starts=np.ones(len(ids), bool),
        sentence_starts=[0, *ends],
        sentence_ends=ends,
        document_starts=[0, *np.cumsum([len(document) for document in documents]).tolist()],
    )


def settings(max_seq_length=11, **others):
    defaults = {"dupe_factor": 1, "short_seq_prob": 0.0, "max_predictions_per_seq": 7}
    return InstanceSettings(max_seq_length=max_seq_length, **defaults | others)


def pairs_of(documents, options, document=0, seed=5):
    return list(_pairs_of_document(documents, document, options, random.Random(seed)))


def rows_of(documents, options, position=(0, 0)):
    batches = list(create_batches(documents, options, Tokenizer(), position))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def tokenized(tokenizer, *parts):
    return tokenize_documents(parts, tokenizer, word_start_table(tokenizer.pieces, True))


@pytest.fixture(autouse=True)
def few_lines_at_once(monkeypatch):
    monkeypatch.setattr(tokenized_documents, "LINES_AT_ONCE", 3)


def test_lines_become_documents(toy_tokenizer):
    parts = [
        ["the river", "the boat", "", "  ", "children skate", "\u3000", "winter"],
        ["", "the sea", ""],
    ]
    documents = tokenized(toy_tokenizer, *parts)
    assert documents.num_documents == 4
    assert documents.document_starts == [0, 2, 3, 4, 5]
    sentences = [line for part in parts for line in part if line.strip()]
    spans = itertools.pairwise(documents.sentence_starts)
    for sentence, (begin, end) in zip(sentences, spans, strict=True):
        assert documents.ids[begin:end].tolist() == toy_tokenizer.encode(sentence)
    table = word_start_table(toy_tokenizer.pieces, True)
    np.testing.assert_array_equal(documents.word_starts, table[documents.ids])


@pytest.mark.parametrize(
    ("lines", "num_documents"),
    [
        (["the river", "´", "the boat"], 1),  # normalized to a space and a mark, without pieces
        (["the river", "\u0301", "the boat"], 2),
        (["", " "], 0),
    ],
)
def test_a_blank_line_ends_a_document_but_a_line_without_tokens_does_not(
    toy_tokenizer, lines, num_documents
):
    documents = tokenized(toy_tokenizer, lines)
    assert documents.num_documents == num_documents
    batches = list(create_batches(documents, settings(), toy_tokenizer, (0, 0)))
    assert bool(batches) == bool(num_documents)


@pytest.mark.parametrize(("text", "starts"), [("the__", False), ("the_", True), ("the字", True)])
def test_the_spelling_of_an_unknown_piece_decides_whether_it_starts_a_word(
    toy_tokenizer, text, starts
):
    documents = tokenized(toy_tokenizer, ["sea", text, "boat"])
    is_unknown = documents.ids == toy_tokenizer.unk_id
    assert documents.word_starts[is_unknown].tolist() == [starts]


def test_the_split_is_uniform_over_sentence_boundaries_and_half_of_the_pairs_are_swapped():
    documents = make_documents([2, 2, 2, 2])
    pairs = [pairs_of(documents, settings(), seed=seed) for seed in range(3000)]
    splits = collections.Counter(min(pair[1], pair[3]) for (pair,) in pairs)
    assert set(splits) == {2, 4, 6}
    assert all(count == pytest.approx(1000, abs=130) for count in splits.values())
    assert np.mean([pair[4] for (pair,) in pairs]) == pytest.approx(0.5, abs=0.05)


def test_one_sentence_gets_a_random_second_segment_and_label_1():
    documents = make_documents([4], [2, 3, 5, 7], [6])
    starts = collections.Counter()
    for seed in range(1000):
        ((begin_a, end_a, begin_b, end_b, label),) = pairs_of(documents, settings(), seed=seed)
        assert (begin_a, end_a, label) == (0, 4, 1)
        starts[begin_b] += 1
        # Sentences until 8 - 4 tokens are reached, or the document ends.
        assert end_b == {4: 9, 6: 14, 9: 14, 14: 21, 21: 27}[begin_b]
    assert starts[21] == pytest.approx(500, abs=80)  # by document first, then by sentence


def test_another_document_is_drawn_ten_times_at_most():
    class Stuck(random.Random):
        """Draws the first of everything."""

        def __init__(self):
            super().__init__(5)
            self.drawn = []

        def randrange(self, start, stop=None, step=1):
            self.drawn.append((start, stop))
            return 0 if stop is None else start

    rng = Stuck()
    documents = make_documents([4, 2], [3])
    options = settings(max_seq_length=9, sentence_objective="nsp", short_seq_prob=0.0)
    for seed in range(20):  # until the second segment is to be random
        rng.seed(seed)
        rng.drawn.clear()
        first, *_ = _pairs_of_document(documents, 0, options, rng)
        if first[4]:
            break
    # The split, then the documents, of which there are two, then a sentence of the same document.
    assert rng.drawn[:12] == [(1, 2), *[(2, None)] * 10, (0, 2)]
    assert first == (0, 4, 0, 4, 1)


def test_a_single_document_supplies_its_own_random_segments():
    assert pairs_of(make_documents([4]), settings()) == [(0, 4, 0, 4, 1)]


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
    assert replaced > 200


def test_without_an_objective_the_pairs_are_the_text_in_its_order():
    documents = make_documents([3, 1, 4, 1, 5, 2, 6, 30, 5, 3], [4], [2, 2])
    options = settings(sentence_objective="none", short_seq_prob=0.5)
    for seed in range(50):
        for document, (begin, end) in enumerate([(0, 60), (60, 64), (64, 68)]):
            rows = pairs_of(documents, options, document, seed)
            assert {label for *_, label in rows} == {0}
            offsets = [begin, *(offset for row in rows for offset in row[:4]), end]
            assert offsets[::2] == offsets[1::2]  # each segment begins where the last one ended
    rows = rows_of(make_documents([4]), settings(sentence_objective="none", masked_lm_prob=0.0))
    assert rows["input_ids"].tolist() == [[CLS, 10, 11, 12, 13, SEP, SEP, 0, 0, 0, 0]]
    assert rows["segment_ids"].tolist() == [[0] * 6 + [1] + [0] * 4]


def test_short_targets_are_drawn_once_for_a_pass_over_a_document():
    documents = make_documents([1] * 400, [1] * 400)
    options = settings(max_seq_length=103, short_seq_prob=1.0)
    targets = []
    for seed in range(300):
        pairs = pairs_of(documents, options, seed=seed)
        sizes = {
            end_a - begin_a + end_b - begin_b for begin_a, end_a, begin_b, end_b, _ in pairs[:-1]
        }
        assert len(sizes) <= 1
        targets += sizes
    assert (min(targets) < 6, max(targets) > 95) == (True, True)
    assert np.mean(targets) == pytest.approx(51, abs=6)
    assert len(pairs_of(documents, settings(max_seq_length=103))) == 4


def test_short_targets_are_from_two_tokens_to_all_that_fit():
    documents = make_documents([1] * 400, [1] * 400)
    options = settings(max_seq_length=8, short_seq_prob=1.0)
    first = [pairs_of(documents, options, seed=seed)[0] for seed in range(300)]
    sizes = [end_a - begin_a + end_b - begin_b for begin_a, end_a, begin_b, end_b, _ in first]
    assert set(sizes) == {2, 3, 4, 5}


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
        assert 0 <= begin_a[row] <= a - left[0]
        assert begin <= begin_b[row] <= end - left[1]


def test_truncation_removes_front_and_back_tokens_with_equal_probability():
    table = np.array([(0, 20, 50, 55, 0)] * 4000)
    begin_a, _, _, _ = _truncate(table, 13, np.random.default_rng(5))
    assert begin_a.mean() == pytest.approx(6, abs=0.12)  # 12 of 20 tokens are removed
    assert begin_a.var() == pytest.approx(3, abs=0.25)


def test_an_instance_is_laid_out_as_cls_a_sep_b_sep():
    rows = rows_of(make_documents([3, 4]), settings(masked_lm_prob=0.0, dupe_factor=9))
    a, b = [10, 11, 12], [13, 14, 15, 16]
    expected = {
        0: ([CLS, *a, SEP, *b, SEP, 0], [0] * 5 + [1] * 5 + [0]),
        1: ([CLS, *b, SEP, *a, SEP, 0], [0] * 6 + [1] * 4 + [0]),
    }
    labels = rows["next_sentence_labels"][:, 0].tolist()
    assert set(labels) == {0, 1}
    for row, label in enumerate(labels):
        found = rows["input_ids"][row].tolist(), rows["segment_ids"][row].tolist()
        assert found == expected[label]
        assert rows["input_mask"][row].tolist() == [1] * 10 + [0]
    assert rows["masked_lm_ids"].shape == (9, 7)


def test_token_boundaries_are_word_starts_and_special_tokens():
    starts = np.arange(12) % 3 == 0
    documents = dataclasses.replace(make_documents([4, 5], [3]), word_starts=starts)
    rows = rows_of(documents, settings(masked_lm_prob=0.0))
    ids, used = rows["input_ids"], rows["input_mask"]
    expected = used & ((ids < 10) | starts[np.maximum(ids - 10, 0)])
    np.testing.assert_array_equal(rows["token_boundary"], expected)


def test_special_tokens_spelled_in_the_text_are_never_masked_and_labels_may_be_other_ids():
    documents = make_documents([30, 30], [30, 30])
    documents.ids[::2] = SEP
    documents = dataclasses.replace(documents, labels=documents.ids + 500)
    rows = rows_of(documents, settings(max_seq_length=37, dupe_factor=20))
    used = rows["masked_lm_weights"] > 0
    labels = set(rows["masked_lm_ids"][used].tolist())
    assert min(labels) >= 510
    assert not {SEP + 500, CLS + 500} & labels
    assert len(labels) > 40
    assert not rows["masked_lm_ids"][~used].any()
    assert rows["input_ids"].max() < 500


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


def sentences_of(documents):
    """Returns the documents as lists of sentences, which are lists of ids."""
    starts = documents.sentence_starts
    sentences = [documents.ids[a:b].tolist() for a, b in itertools.pairwise(starts)]
    return [sentences[a:b] for a, b in itertools.pairwise(documents.document_starts)]


def tokens_of(rows):
    """Returns the tokens of each instance without the padding."""
    lengths = rows["input_mask"].sum(axis=1)
    return [row[:length].tolist() for row, length in zip(rows["input_ids"], lengths, strict=True)]


def pack_one_at_a_time(documents, crosses_documents, max_tokens):
    """RoBERTa's rule, by adding one sentence after the other, without the first and last token."""
    found = []
    open_instance, size = [], 0
    for document in sentences_of(documents):
        if not crosses_documents and open_instance:
            found.append(open_instance)
            open_instance, size = [], 0
        separator = [SEP] if open_instance else []
        for sentence in document:
            if open_instance and size + len(separator) + len(sentence) > max_tokens:
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
    rows = rows_of(documents, settings(13, instance_format=instance_format, masked_lm_prob=0.0))
    expected = pack_one_at_a_time(documents, instance_format == FULL_SENTENCES, 11)
    assert tokens_of(rows) == [[CLS, *content, SEP] for content in expected]
    assert not rows["segment_ids"].any()
    assert not rows["next_sentence_labels"].any()


@pytest.mark.parametrize("instance_format", [FULL_SENTENCES, DOC_SENTENCES])
def test_a_sentence_of_exactly_a_sequence_is_whole_and_a_longer_one_is_truncated(instance_format):
    documents = make_documents([11, 12, 25])
    rows = rows_of(documents, settings(13, instance_format=instance_format, masked_lm_prob=0.0))
    found = tokens_of(rows)
    assert found[0] == [CLS, *range(10, 21), SEP]
    for tokens, sentence in zip(found[1:], sentences_of(documents)[0][1:], strict=True):
        first = tokens[1]
        assert tokens == [CLS, *range(first, first + 11), SEP]
        assert sentence[0] <= first <= sentence[-11]


def test_an_instance_of_three_tokens_has_a_token_to_predict():
    options = settings(instance_format=DOC_SENTENCES, dupe_factor=3)
    rows = rows_of(make_documents([1]), options)
    assert tokens_of(rows)[0][::2] == [CLS, SEP]
    assert rows["masked_lm_weights"].sum(axis=1).tolist() == [1, 1, 1]
    assert rows["masked_lm_ids"][:, 0].tolist() == [10, 10, 10]


@pytest.mark.parametrize(("count", "sizes"), [(512, [512]), (513, [512, 1])])
def test_a_batch_has_512_instances_unless_it_is_the_last(count, sizes):
    batches = create_batches(make_documents([4]), settings(dupe_factor=count), Tokenizer(), (0, 0))
    assert [len(batch["input_ids"]) for batch in batches] == sizes


def test_separators_between_documents_are_not_masked():
    options = settings(13, instance_format=FULL_SENTENCES, masked_lm_prob=0.5)
    rows = rows_of(make_documents(*[[2]] * 900), options)
    separators = [3, 6, 9]  # after every document of two tokens, and at the end
    assert (rows["input_ids"][:-1, [*separators, 12]] == SEP).all()
    assert rows["token_boundary"][:-1, [*separators, 12]].all()
    positions = set(rows["masked_lm_positions"][rows["masked_lm_weights"] > 0].tolist())
    assert positions == set(range(1, 12)) - set(separators)


def test_a_sentence_pair_has_two_sentences_of_a_document():
    options = settings(instance_format="sentence_pair", sentence_objective="none")
    documents = make_documents([3, 1, 4], [1], [5, 2])
    rows = rows_of(documents, dataclasses.replace(options, masked_lm_prob=0.0))
    (a, b, c), (d,), (e, f) = sentences_of(documents)
    pairs = [(a, b), (c, []), (d, []), (e, f)]
    assert tokens_of(rows) == [[CLS, *first, SEP, *second, SEP] for first, second in pairs]
