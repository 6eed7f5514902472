"""Model outputs become answers, with the order and the ties of Google's program."""

import json
import math

import numpy as np
import pytest

from albert_tf.finetuning.squad import answers as squad_answers
from albert_tf.finetuning.squad.answers import (
    Answers,
    Candidates,
    candidates_v1,
    candidates_v2,
    decode,
)
from albert_tf.finetuning.squad.questions import SquadExample
from albert_tf.finetuning.squad.windows import SquadFeatures
from albert_tf.finetuning.token_sequences import TokenSequences

CONTEXT = "ab cd ef gh ij"  # five pieces of two characters
SEQ_LENGTH = 11


def make_window(context=CONTEXT, windows=((0, 5),), max_context=None, example_index=None):
    """Returns features with a question of one piece: [CLS] q [SEP] window [SEP], window at 3."""
    pieces = np.concatenate([np.arange(begin, end) for begin, end in windows]).astype(np.int32)
    sizes = np.array([end - begin for begin, end in windows], np.int32)
    rows = np.zeros(len(windows), np.int32)
    ids = np.arange(sizes.sum() + 4 * len(windows), dtype=np.int32)
    return SquadFeatures(
        sequences=TokenSequences(ids, sizes + 4, rows + 3, {}),
        example_index=rows if example_index is None else np.array(example_index, np.int32),
        query_lengths=rows + 1,
        first_char=3 * pieces,
        last_char=3 * pieces + 1,
        is_max_context=np.array([True] * len(pieces) if max_context is None else max_context),
    )


def make_candidates(spans, null_scores=None):
    """Returns candidates; a row per feature of (start, end, start score, end score)."""
    columns = [np.array([[span[i] for span in row] for row in spans]) for i in range(4)]
    starts, ends, *scores = columns
    null = None if null_scores is None else np.array(null_scores, np.float32)
    return Candidates(starts, ends, *(part.astype(np.float32) for part in scores), null)


def example(qas_id="q1", context=CONTEXT):
    return SquadExample(qas_id, "q", context)


def nbest_of(spans, features=None, null_scores=None, n_best_size=20, max_answer_length=30):
    answers = decode(
        [example()],
        make_window() if features is None else features,
        make_candidates(spans, null_scores),
        n_best_size,
        max_answer_length,
    )
    return answers.nbest["q1"]


def texts(nbest):
    return [entry["text"] for entry in nbest]


def test_the_best_span_is_the_answer_and_probabilities_are_among_the_n_best():
    nbest = nbest_of([[(3, 4, 1.0, 0.5), (5, 5, 2.0, 1.0), (7, 7, -1.0, 0.0)]], n_best_size=2)
    assert texts(nbest) == ["ef", "ab cd"]
    assert nbest[0]["start_log_prob"] == 2.0
    assert nbest[0]["end_log_prob"] == 1.0
    weight = math.exp(-1.5)
    assert nbest[0]["probability"] == pytest.approx(1 / (1 + weight), abs=1e-12)
    assert nbest[1]["probability"] == pytest.approx(weight / (1 + weight), abs=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [(0, 3), (2, 3), (8, 8), (3, 8), (10, 10), (5, 4), (3, 6)],
    ids=["cls", "separator", "last", "end_outside", "padding", "backwards", "too_long"],
)
def test_invalid_spans_are_skipped(wrong):
    nbest = nbest_of([[(*wrong, 9.0, 9.0), (4, 4, 0.0, 0.0)]], max_answer_length=3)
    assert texts(nbest) == ["cd"]


@pytest.mark.parametrize(
    ("span", "text"),
    [((3, 5), "ab cd ef"), ((5, 7), "ef gh ij"), ((3, 3), "ab"), ((7, 7), "ij")],
    ids=["longest", "longest_last", "first", "last"],
)
def test_spans_at_the_bounds_are_answers(span, text):
    assert texts(nbest_of([[(*span, 9.0, 9.0)]], max_answer_length=3)) == [text]


@pytest.mark.parametrize(
    ("max_answer_length", "expected"),
    [
        (1, ["cd"]),
        (3, ["cd"]),
        (4, ["ab cd ef gh", "cd"]),
        (5, ["ab cd ef gh ij", "ab cd ef gh", "cd"]),
    ],
)
def test_an_answer_may_have_exactly_the_maximum_length(max_answer_length, expected):
    spans = [[(3, 7, 9.0, 9.0), (3, 6, 0.0, 0.0), (4, 4, -1.0, 0.0)]]
    assert texts(nbest_of(spans, max_answer_length=max_answer_length)) == expected


@pytest.mark.parametrize(("n_best_size", "count"), [(1, 1), (2, 2), (3, 3), (4, 3)])
def test_the_n_best_list_has_at_most_that_many_texts(n_best_size, count):
    spans = [[(3, 3, 3.0, 0.0), (4, 4, 2.0, 0.0), (3, 3, 1.0, 0.0), (5, 5, 0.0, 0.0)]]
    assert texts(nbest_of(spans, n_best_size=n_best_size)) == ["ab", "cd", "ef"][:count]
    logits = np.arange(3, dtype=np.float32)[None]
    candidates = candidates_v1(logits, logits, n_best_size)
    assert sorted(set(candidates.starts[0].tolist())) == [2, 1, 0][:n_best_size][::-1]


def test_only_the_start_needs_its_maximum_context():
    features = make_window(max_context=[True, True, False, False, True])
    nbest = nbest_of([[(5, 6, 9.0, 9.0), (4, 5, 0.0, 0.0)]], features)
    assert texts(nbest) == ["cd ef"]


def test_windows_of_a_question_are_merged_and_texts_are_distinct():
    features = make_window(windows=((0, 3), (2, 5)))
    spans = [[(3, 3, 1.0, 1.0), (5, 5, 0.0, 0.5)], [(3, 3, 3.0, 3.0), (4, 5, 2.0, 2.0)]]
    nbest = nbest_of(spans, features)
    assert texts(nbest) == ["ef", "gh ij", "ab"]
    assert nbest[0]["start_log_prob"] == 3.0


def test_equal_scores_keep_their_order():
    nbest = nbest_of([[(6, 6, 1.0, 0.0), (3, 3, 0.0, 1.0), (4, 4, 0.5, 0.5)]])
    assert texts(nbest) == ["gh", "ab", "cd"]


def test_a_span_from_several_beams_has_the_mean_score():
    nbest = nbest_of([[(3, 3, 4.0, 0.0), (4, 4, 1.0, 0.5), (3, 3, 0.0, -2.0)]])
    assert texts(nbest) == ["cd", "ab"]
    assert (nbest[1]["start_log_prob"], nbest[1]["end_log_prob"]) == (2.0, -1.0)


def test_answers_are_stripped_and_keep_their_offset():
    spaced = SquadExample("q1", "q", "\u00a0b cd ef gh i\u3000")
    answers = decode([spaced], make_window(), make_candidates([[(3, 7, 0.0, 0.0)]]), 20, 30)
    assert answers.best["q1"] == "b cd ef gh i"
    assert answers.begins == {"q1": [1]}


@pytest.mark.parametrize(
    ("null_scores", "text", "score", "odds"),
    [(None, "empty", 0.0, None), ([0.25], "", -1e6, {"q0": 1e6, "q1": 0.25})],
)
def test_a_question_without_candidates_gets_googles_answer(null_scores, text, score, odds):
    questions = [example("q0", ""), example("q1")]
    features = make_window(example_index=[1])
    candidates = make_candidates([[(0, 0, 9.0, 9.0)]], null_scores)
    answers = decode(questions, features, candidates, 20, 30)
    entry = {"text": text, "probability": 1.0, "start_log_prob": score, "end_log_prob": score}
    assert answers.nbest == {"q0": [entry], "q1": [entry]}
    assert answers.best == {"q0": text, "q1": text}
    assert answers.begins == {"q0": [-1], "q1": [-1]}
    assert answers.null_odds == odds


def test_null_odds_are_the_minimum_over_windows_and_zero_has_no_sign():
    """The file of Google's program has 0.0, never -0.0."""
    features = make_window(windows=((0, 3), (2, 5), (0, 5)), example_index=[0, 0, 1])
    candidates = make_candidates([[(3, 3, 0.0, 0.0)]] * 3, [2.5, -0.5, -0.0])
    answers = decode([example("q0"), example("q1")], features, candidates, 20, 30)
    assert json.dumps(answers.null_odds) == '{"q0": -0.5, "q1": 0.0}'


def test_odds_equal_to_the_threshold_are_answered_unless_strict():
    answers = Answers({"a": "x", "b": "y", "c": "z"}, {}, {"a": -1.0, "b": 0.5, "c": 0.75})
    assert answers.predictions() == {"a": "x", "b": "y", "c": "z"}
    assert answers.predictions(0.5) == {"a": "x", "b": "y", "c": ""}
    assert answers.predictions(0.5, strict=True) == {"a": "x", "b": "", "c": ""}
    assert Answers({"a": "x"}, {}).predictions(0.5) == {"a": "x"}


def test_each_start_of_the_beam_has_its_own_ends():
    scores, ends = np.array([[0.5, 0.25]]), np.array([[4, 5, 6, 7, 8, 9]])
    found = candidates_v2(scores, np.array([[3, 4]]), ends / 10, ends, np.array([0.75]))
    assert found.starts.tolist() == [[3, 3, 3, 4, 4, 4]]
    assert found.ends.tolist() == [[4, 5, 6, 7, 8, 9]]
    assert found.start_scores.tolist() == [[0.5, 0.5, 0.5, 0.25, 0.25, 0.25]]
    assert found.end_scores.tolist() == [[0.4, 0.5, 0.6, 0.7, 0.8, 0.9]]
    assert found.null_scores.tolist() == [0.75]


def test_the_first_of_equal_logits_is_tried_first():
    start = np.array([[0.0, 2.0, 2.0, 1.0], [1.0, 0.0, 0.0, 0.0]], np.float32)
    end = np.array([[1.0, 0.0, 1.0, 3.0], [0.0, 0.0, 5.0, 0.0]], np.float32)
    candidates = candidates_v1(start, end, n_best_size=2)
    assert candidates.starts.tolist() == [[1, 1, 2, 2], [0, 0, 1, 1]]
    assert candidates.ends.tolist() == [[3, 0, 3, 0], [2, 0, 2, 0]]
    assert candidates.start_scores.tolist() == [[2, 2, 2, 2], [1, 1, 0, 0]]
    assert candidates.end_scores.tolist() == [[3, 1, 3, 1], [5, 0, 5, 0]]
    assert candidates_v1(start, end, n_best_size=9).starts.shape == (2, 16)


def test_many_features_are_decoded_in_parts_with_the_same_result(monkeypatch):
    rng = np.random.default_rng(7)
    features = make_window(windows=[(0, 5)] * 7, example_index=[0, 0, 1, 1, 1, 2, 2])
    logits = rng.normal(size=(2, 7, SEQ_LENGTH)).astype(np.float32)
    questions = [example(f"q{number}") for number in range(3)]
    whole = decode(questions, features, candidates_v1(*logits, 5), 20, 30)
    monkeypatch.setattr(squad_answers, "ROWS_AT_ONCE", 2)
    parts = decode(questions, features, candidates_v1(*logits, 5), 20, 30)
    assert whole == parts
