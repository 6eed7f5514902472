"""Properties of masking, compared with a plain version of Google's algorithm for one instance."""

from __future__ import annotations

import collections
import functools
import operator
import random

import numpy as np
import pytest

from albert_tf.data.masking import (
    BatchStream,
    PerInstanceStream,
    mask_batch,
    ngram_probabilities,
    num_to_predict,
    starts_word,
    word_start_table,
)
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


def mask(rows, budget, settings=None, seed=5, seq_length=11, labels=None, numbered=False):
    input_ids, starts, maskable = make_batch(rows, seq_length)
    settings = settings or MaskingSettings(max_predictions_per_seq=7)
    budgets = np.broadcast_to(np.asarray(budget), len(rows)).astype(np.int64)
    if numbered:
        stream = PerInstanceStream((seed,), 3, len(rows), settings, seq_length)
    else:
        stream = BatchStream(np.random.default_rng(seed))
    batch = mask_batch(
        input_ids, starts, maskable, budgets, settings, MASK, VOCAB_SIZE, stream, labels
    )
    return input_ids, batch


def positions_of(batch):
    return [
        positions[weights > 0].tolist()
        for positions, weights in zip(
            batch["masked_lm_positions"], batch["masked_lm_weights"], strict=True
        )
    ]


def candidates_of(row, whole_words=True):
    found = []
    for position, kind in enumerate(row):
        if kind in "CS":
            continue
        if whole_words and kind == "c" and found:
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


def test_word_starts_of_a_wordpiece_vocabulary():
    table = word_start_table(["[CLS]", "the", "##s", "字", "##字"], is_sentencepiece=False)
    assert table.tolist() == [True, True, False, True, False]


@pytest.mark.parametrize("piece", ["▁the", "▁", "<unk>", ".", "_", "[", "naïve", "9", "字", "'s"])
def test_pieces_that_start_a_word(piece):
    assert starts_word(piece)


@pytest.mark.parametrize("piece", ["the", "Ing", "s.", "__", "[CLS]"])
def test_pieces_inside_a_word(piece):
    assert not starts_word(piece)
    assert word_start_table([piece, "▁" + piece], True).tolist() == [False, True]


def test_short_ngrams_are_favored_in_proportion_to_one_over_n():
    np.testing.assert_allclose(ngram_probabilities(3, True), [6 / 11, 3 / 11, 2 / 11])
    np.testing.assert_allclose(ngram_probabilities(3, False), [2 / 11, 3 / 11, 6 / 11])


def test_num_to_predict_rounds_half_to_even_and_is_bounded():
    settings = MaskingSettings(max_predictions_per_seq=7)
    lengths = np.array([4, 10, 30, 20, 400])  # 0.6, 1.5, 4.5, 3, 60
    assert num_to_predict(lengths, settings).tolist() == [1, 2, 4, 3, 7]


def test_probability_zero_masks_nothing():
    settings = MaskingSettings(masked_lm_prob=0.0)
    assert num_to_predict(np.array([5, 500]), settings).tolist() == [0, 0]
    input_ids, batch = mask(["CwwSwwS"], 0, settings)
    np.testing.assert_array_equal(batch["input_ids"], input_ids)
    assert not batch["masked_lm_weights"].any()
    assert not batch["masked_lm_positions"].any()


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


def test_single_pieces_use_the_whole_budget():
    _, batch = mask(["CwwwwwSwwwS"] * 50, 5)
    assert {len(positions) for positions in positions_of(batch)} == {5}


def test_without_whole_words_each_piece_is_a_candidate():
    settings = MaskingSettings(do_whole_word_mask=False, max_predictions_per_seq=7, ngram=1)
    _, batch = mask(["CwccSwcS"] * 200, 1, settings)
    assert {tuple(positions) for positions in positions_of(batch)} == {(1,), (2,), (3,), (5,), (6,)}


def test_a_continuation_after_the_middle_separator_joins_the_word_before_it():
    _, batch = mask(["CwScwS"] * 100, 1)
    assert {tuple(positions) for positions in positions_of(batch)} == {(4,)}
    _, batch = mask(["CwScwS"] * 100, 2)
    assert {tuple(positions) for positions in positions_of(batch)} == {(1, 3), (4,)}


def test_a_continuation_with_nothing_before_it_is_a_candidate():
    _, batch = mask(["CcwSwS"] * 100, 1)
    assert {tuple(positions) for positions in positions_of(batch)} == {(1,), (2,), (4,)}


def test_rows_without_a_candidate_or_a_budget_are_unchanged():
    input_ids, batch = mask(["CSS", "CwwSwS"], [2, 0])
    np.testing.assert_array_equal(batch["input_ids"], input_ids)
    assert positions_of(batch) == [[], []]


@pytest.mark.parametrize("row", ["CwwwwwwSwwwwwS", "CwcwwccwSwcwwS"])
@pytest.mark.parametrize(
    ("ngram", "numbered"), [(1, False), (3, False), (4, False), (3, True), (4, True)]
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
        return collections.Counter(
            position for chosen, times in sets.items() for position in chosen for _ in range(times)
        )

    pairs = [(by_position(found), by_position(expected)), (found, expected)]
    for ours, theirs in pairs:
        for key, times in theirs.most_common(12):
            error = np.sqrt(2 * times * max(0.01, 1 - times / count))
            assert abs(ours[key] - times) < 4 * error + 1, key


def test_positions_are_ascending_and_everything_beyond_them_is_zero():
    settings = MaskingSettings(max_predictions_per_seq=7)
    input_ids, batch = mask(["CwwcwwSwwwS", "CwSwS"], [5, 1], settings)
    assert batch["masked_lm_positions"].shape == (2, 7)
    for row, positions in enumerate(positions_of(batch)):
        count = len(positions)
        assert positions == sorted(set(positions))
        for padded in (
            batch["masked_lm_positions"],
            batch["masked_lm_ids"],
            batch["masked_lm_weights"],
        ):
            assert not padded[row, count:].any()
        np.testing.assert_array_equal(
            batch["masked_lm_ids"][row, :count], input_ids[row, positions]
        )


def test_only_chosen_positions_change():
    input_ids, batch = mask(["CwwwwwwwwwwwwwwwwwwwwwwwwwwwSwwwwS"] * 40, 7, seq_length=37)
    chosen = np.zeros(input_ids.shape, bool)
    for row, positions in enumerate(positions_of(batch)):
        chosen[row, positions] = True
    np.testing.assert_array_equal(batch["input_ids"][~chosen], input_ids[~chosen])


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


def test_labels_may_differ_from_the_input():
    rows = ["CwwwwSwwwS"] * 30
    labels = np.full((30, 11), 95, np.int32)
    _, batch = mask(rows, 4, labels=labels)
    assert set(batch["masked_lm_ids"][batch["masked_lm_weights"] > 0].tolist()) == {95}


@pytest.mark.parametrize("numbered", [False, True])
def test_permutation_moves_as_many_other_tokens_within_their_row(numbered):
    settings = MaskingSettings(max_predictions_per_seq=7, do_permutation=True)
    rows = ["CwwcwwwwwcwwwSwwwcwwwwS"] * 60
    input_ids, batch = mask(rows, 5, settings, seq_length=29, numbered=numbered)
    assert batch["masked_lm_positions"].shape == (60, 14)
    moved_somewhere = 0
    for row, positions in enumerate(positions_of(batch)):
        assert len(positions) == 10
        np.testing.assert_array_equal(batch["masked_lm_ids"][row, :10], input_ids[row, positions])
        # Tokens that were neither masked nor replaced: all permuted tokens are still present.
        before = collections.Counter(input_ids[row, positions].tolist())
        after = collections.Counter(batch["input_ids"][row, positions].tolist())
        assert sum((before & after).values()) >= 5
        moved_somewhere += sum((before & after).values()) > np.sum(
            input_ids[row, positions] == batch["input_ids"][row, positions]
        )
    assert moved_somewhere > 40


def test_equal_generators_draw_equal_masks():
    rows = ["CwwcwwSwwwS"] * 20
    one, other = mask(rows, 4, seed=7)[1], mask(rows, 4, seed=7)[1]
    different = mask(rows, 4, seed=8)[1]
    np.testing.assert_array_equal(one["input_ids"], other["input_ids"])
    np.testing.assert_array_equal(one["masked_lm_positions"], other["masked_lm_positions"])
    assert (one["masked_lm_positions"] != different["masked_lm_positions"]).any()
