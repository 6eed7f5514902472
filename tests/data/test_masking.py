"""Properties of masking, compared with a plain version of Google's algorithm for one instance."""

from __future__ import annotations

import collections
import functools
import operator
import random

import numpy as np
import pytest

from albert_tf.data.documents import word_start_table
from albert_tf.data.masking import mask_batch, ngram_probabilities, num_to_predict
from albert_tf.data.random_streams import PerInstanceStream, RandomStream
from albert_tf.data.settings import MaskingSettings

CLS, SEP, MASK, VOCAB_SIZE = 2, 3, 4, 97


def make_batch(rows, seq_length=11):
    """Parses rows: "C" [CLS], "S" [SEP], "w" first piece of a word, "c" piece inside a word."""
    shape = (len(rows), seq_length)
    input_ids, starts = np.zeros(shape, np.int32), np.zeros(shape, bool)
    for index, row in enumerate(rows):
        for position, kind in enumerate(row):
            ordinary = 10 + (7 * index + 3 * position) % 80
            input_ids[index, position] = {"C": CLS, "S": SEP}.get(kind, ordinary)
            starts[index, position] = kind == "w"
    return input_ids, starts, input_ids > SEP


def mask(rows, budget, settings=None, seed=5, seq_length=11, numbered=False):
    input_ids, starts, maskable = make_batch(rows, seq_length)
    settings = settings or MaskingSettings(max_predictions_per_seq=7)
    budgets = np.broadcast_to(np.asarray(budget), len(rows)).astype(np.int64)
    if numbered:
        stream = PerInstanceStream((seed,), 3, len(rows), settings, seq_length)
    else:
        stream = RandomStream(np.random.default_rng(seed))
    batch = mask_batch(input_ids, starts, maskable, budgets, settings, MASK, VOCAB_SIZE, stream)
    return input_ids, batch


def positions_of(batch):
    return [
        positions[weights > 0].tolist()
        for positions, weights in zip(
            batch["masked_lm_positions"], batch["masked_lm_weights"], strict=True
        )
    ]


def candidates_of(row):
    """Positions of each whole word of a row."""
    found = []
    for position, kind in enumerate(row):
        if kind in "CS":
            continue
        if kind == "c" and found:
            found[-1].append(position)
        else:
            found.append([position])
    return found


def choose_one_at_a_time(row, budget, ngram, rng):
    """Google's algorithm, for one row."""
    candidates = candidates_of(row)
    order = list(range(len(candidates)))
    rng.shuffle(order)
    lengths = range(1, ngram + 1)
    covered = set()
    for first in order:
        if len(covered) >= budget:
            break
        length = rng.choices(lengths, [1 / n for n in lengths])[0]
        chosen = functools.reduce(operator.iadd, candidates[first : first + length], [])
        while len(covered) + len(chosen) > budget and length > 1:
            length -= 1
            chosen = functools.reduce(operator.iadd, candidates[first : first + length], [])
        if len(covered) + len(chosen) <= budget and not covered & set(chosen):
            covered |= set(chosen)
    return sorted(covered)


def test_pieces_without_a_mark_start_a_word_in_a_wordpiece_vocabulary():
    table = word_start_table(["[CLS]", "the", "##s", "字", "##字"], is_sentencepiece=False)
    assert table.tolist() == [True, True, False, True, False]


def test_pieces_with_a_space_or_another_sign_start_a_word_in_a_sentencepiece_vocabulary():
    starting = ["▁the", "▁", "<unk>", ".", "_", "[", "naïve", "9", "字", "'s"]
    inside = ["the", "Ing", "s.", "__", "[CLS]"]
    assert word_start_table(starting, True).all()
    assert not word_start_table(inside, True).any()


def test_short_ngrams_are_favored_in_proportion_to_one_over_n():
    np.testing.assert_allclose(ngram_probabilities(3, True), [6 / 11, 3 / 11, 2 / 11])
    np.testing.assert_allclose(ngram_probabilities(3, False), [2 / 11, 3 / 11, 6 / 11])


def test_num_to_predict_rounds_half_to_even_and_is_bounded():
    settings = MaskingSettings(max_predictions_per_seq=7)
    lengths = np.array([3, 4, 10, 30, 20, 47, 53, 400])  # 0.45, 0.6, 1.5, 4.5, 3, 7.05, 7.95, 60
    assert num_to_predict(lengths, settings).tolist() == [1, 1, 2, 4, 3, 7, 7, 7]
    assert not num_to_predict(lengths, MaskingSettings(masked_lm_prob=0.0)).any()


def test_masked_words_are_whole_and_within_the_budget():
    rng = random.Random(5)
    rows = ["C" + "".join(rng.choices("wwc", k=5)) + "SwcS" for _ in range(300)]
    budgets = np.array([rng.randint(1, 7) for _ in rows])
    _, batch = mask(rows, budgets)
    for row, budget, positions in zip(rows, budgets, positions_of(batch), strict=True):
        assert len(positions) <= budget
        left = set(positions)
        for candidate in candidates_of(row):
            assert left.issuperset(candidate) or left.isdisjoint(candidate)
            left -= set(candidate)
        assert not left


@pytest.mark.parametrize(
    ("row", "budget", "changes", "expected"),
    [
        ("CwccSwcS", 1, {"do_whole_word_mask": False, "ngram": 1}, {(1,), (2,), (3,), (5,), (6,)}),
        # A piece inside a word joins the candidate before it, also across a separator, ...
        ("CwScwS", 1, {}, {(4,)}),
        ("CwScwS", 2, {}, {(1, 3), (4,)}),
        # ... and is one itself if there is none.
        ("CcwSwS", 1, {}, {(1,), (2,), (4,)}),
        ("CwwSwS", 0, {}, {()}),
        # A word of exactly the budget is masked; a longer one is not.
        ("CwccS", 3, {}, {(1, 2, 3)}),
        ("CwccS", 2, {}, {()}),
        # An n-gram of up to `ngram` words is cut at the budget, and at the end of the instance.
        ("CwwS", 2, {"ngram": 2}, {(1, 2)}),
        ("CwwS", 3, {"ngram": 3}, {(1, 2), (2,)}),
        ("CSS", 2, {}, {()}),
    ],
)
def test_a_candidate_is_a_whole_word_or_a_piece(row, budget, changes, expected):
    settings = MaskingSettings(max_predictions_per_seq=7, **changes)
    _, batch = mask([row] * 200, budget, settings)
    assert {tuple(positions) for positions in positions_of(batch)} == expected


@pytest.mark.parametrize(
    ("row", "ngram", "numbered"),
    [
        ("CwwwwwwSwwwwwS", 1, False),
        ("CwwwwwwSwwwwwS", 4, True),
        ("CwcwwccwSwcwwS", 3, False),
        ("CwcwwccwSwcwwS", 4, False),
        ("CwcwwccwSwcwwS", 3, True),
    ],
)
def test_chosen_sets_have_the_distribution_of_the_official_algorithm(row, ngram, numbered):
    count, budget = 6000, 4
    settings = MaskingSettings(ngram=ngram, max_predictions_per_seq=7)
    _, batch = mask([row] * count, budget, settings, seq_length=17, numbered=numbered)
    found = collections.Counter(map(tuple, positions_of(batch)))
    rng = random.Random(7)
    expected = collections.Counter(
        tuple(choose_one_at_a_time(row, budget, ngram, rng)) for _ in range(count)
    )

    # Compare positions and the most frequent sets, both within four standard errors.
    def by_position(sets):
        return collections.Counter(position for chosen in sets.elements() for position in chosen)

    pairs = [(by_position(found), by_position(expected)), (found, expected)]
    for ours, theirs in pairs:
        for key, times in theirs.most_common(12):
            error = np.sqrt(2 * times * max(0.01, 1 - times / count))
            assert abs(ours[key] - times) < 4 * error + 1, key


def test_positions_are_ascending_and_everything_beyond_them_is_unchanged_or_zero():
    input_ids, batch = mask(["CwwcwwSwwwS", "CwSwS"], [5, 1])
    assert batch["masked_lm_positions"].shape == (2, 7)
    for row, positions in enumerate(positions_of(batch)):
        count = len(positions)
        assert positions == sorted(set(positions))
        for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
            assert not batch[name][row, count:].any()
        labels = batch["masked_lm_ids"][row, :count]
        np.testing.assert_array_equal(labels, input_ids[row, positions])
        others = np.setdiff1d(np.arange(11), positions)
        np.testing.assert_array_equal(batch["input_ids"][row, others], input_ids[row, others])


@pytest.mark.parametrize("numbered", [False, True])
def test_eighty_percent_are_masked_ten_kept_ten_random(numbered):
    row = "C" + "w" * 60 + "S" + "w" * 40 + "S"
    settings = MaskingSettings(max_predictions_per_seq=50)
    input_ids, batch = mask([row] * 2000, 50, settings, seq_length=107, numbered=numbered)
    row_of, slot = np.nonzero(batch["masked_lm_weights"])
    position = batch["masked_lm_positions"][row_of, slot]
    new, old = batch["input_ids"][row_of, position], input_ids[row_of, position]
    share_masked, share_kept = np.mean(new == MASK), np.mean(new == old)
    # A random id may also be [MASK] or the original id.
    assert len(new) == 100_000
    assert share_masked == pytest.approx(0.8 + 0.1 / VOCAB_SIZE, abs=0.005)
    assert share_kept == pytest.approx(0.1 + 0.1 / VOCAB_SIZE, abs=0.005)
    random_ids = new[(new != MASK) & (new != old)]
    assert set(range(VOCAB_SIZE)) - {MASK} <= set(random_ids.tolist())
    counts = np.bincount(random_ids, minlength=VOCAB_SIZE)
    assert counts[[0, 1, CLS, SEP]].min() > 50  # about 100 of each


@pytest.mark.parametrize("numbered", [False, True])
def test_permutation_moves_as_many_other_tokens_within_their_row(numbered):
    settings = MaskingSettings(max_predictions_per_seq=7, do_permutation=True)
    rows = ["CwwcwwwwwcwwwSwwwcwwwwS"] * 60
    input_ids, batch = mask(rows, 5, settings, seq_length=29, numbered=numbered)
    assert batch["masked_lm_positions"].shape == (60, 14)
    moved = 0
    for row, positions in enumerate(positions_of(batch)):
        assert len(positions) == 10
        before, after = input_ids[row, positions], batch["input_ids"][row, positions]
        np.testing.assert_array_equal(batch["masked_lm_ids"][row, :10], before)
        # Five are masked, kept or replaced; the others are still there.
        present = collections.Counter(before.tolist()) & collections.Counter(after.tolist())
        assert present.total() >= 5
        moved += present.total() > np.sum(before == after)
    assert moved > 40
