"""Tests that windows, candidates and answers are the same in a graph as in Python."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.serving import graph_spans
from albert_tf.squad import decoding, windows
from albert_tf.squad.reading import SquadExample
from tests.conftest import TOY_TEXT

QUESTIONS = [
    ("What waits?", TOY_TEXT),
    ("Who skated where the boat lay in winter, and who was young?", "The boat  waits. " * 2),
    ("", "The river"),
    ("What?", ""),
    ("Where is the landing?", "\u0301"),
    ("What river?", "Ice… “The river carries ½ of the rain”, (1999, 7) ,, " * 9),
]
LENGTHS = {"max_seq_length": 23, "doc_stride": 5, "max_query_length": 7}
N_BEST, MAX_ANSWER = 4, 6


@pytest.fixture(scope="module", params=[5, 100], name="stride")
def doc_stride(request):
    """Features of contexts that are shorter and longer than a window."""
    return request.param


@pytest.fixture(scope="module", name="features")
def make_features(toy_tokenizer, stride):
    settings = windows.WindowSettings(**LENGTHS | {"doc_stride": stride})
    examples = [SquadExample(str(n), *texts) for n, texts in enumerate(QUESTIONS)]
    return examples, windows.make_features(examples, toy_tokenizer, settings, False)


def make_reader(tokenizer, stride, threshold=None):
    lengths = LENGTHS | {"doc_stride": stride}
    settings = graph_spans.SpanSettings(
        **lengths, n_best_size=N_BEST, max_answer_length=MAX_ANSWER, threshold=threshold
    )
    return graph_spans.SpanReader(tokenizer, settings)


def scores_of(ids, mask, seed):
    """Returns logits [N, S] of a fake model that depend on its input, with many ties."""
    places = np.arange(ids.shape[1])
    found = (ids * 7 + places * (3 + seed) + ids.sum(axis=1, keepdims=True)) % (11 + seed)
    return np.where(mask > 0, found, -9).astype(np.float32) / 4


def fake_model(batch, seed):
    return tf.constant(scores_of(batch["input_ids"].numpy(), batch["input_mask"].numpy(), seed))


def test_windows_match_the_program(toy_tokenizer, features, stride):
    _, expected = features
    reader = make_reader(toy_tokenizer, stride)
    questions, contexts = map(tf.constant, zip(*QUESTIONS, strict=True))
    found = reader.make_windows(questions, reader._aligner.tokenize(contexts))
    is_full = found.lengths.numpy() > 0
    np.testing.assert_array_equal(found.questions.numpy()[is_full], expected.example_index)
    np.testing.assert_array_equal(found.numbers.numpy()[is_full], expected.doc_span_index)
    batch = expected.batch(np.arange(len(expected)), found.batch["input_ids"].shape[1])
    for name, values in found.batch.items():
        np.testing.assert_array_equal(values.numpy()[is_full], batch[name], name)
    places = tf.ragged.range(found.begins, found.begins + found.lengths)
    owners = places.with_flat_values(tf.gather(found.owners, places.flat_values))
    is_max = (owners == found.numbers[:, None]).flat_values
    np.testing.assert_array_equal(is_max, expected.is_max_context)


@pytest.mark.ci
@pytest.mark.parametrize("has_odds", [False, True])
def test_answers_match_the_program(toy_tokenizer, features, stride, has_odds):
    examples, expected = features
    batch = expected.batch(np.arange(len(expected)), int(expected.lengths.max()))
    logits = [scores_of(batch["input_ids"], batch["input_mask"], seed) for seed in (0, 1)]
    odds = logits[0][:, 0] + logits[1][:, 0] if has_odds else None
    candidates = decoding.candidates_v1(*logits, N_BEST)
    candidates = decoding.Candidates(**vars(candidates) | {"null_scores": odds})
    answers = decoding.decode(examples, expected, candidates, N_BEST, MAX_ANSWER)
    threshold = float(np.median(list(answers.null_odds.values()))) if has_odds else None
    predictions = answers.predictions(threshold)

    def find_candidates(batch):
        starts, ends = (fake_model(batch, seed) for seed in (0, 1))
        found = graph_spans.best_pairs(starts, ends, batch["input_mask"], N_BEST)
        nulls = starts[:, 0] + ends[:, 0] if has_odds else None
        return graph_spans.Candidates(**vars(found) | {"null_scores": nulls})

    reader = make_reader(toy_tokenizer, stride, threshold)
    questions, contexts = map(tf.constant, zip(*QUESTIONS, strict=True))
    found = reader.answer(questions, contexts, find_candidates)
    assert ("null_odds" in found) == has_odds
    found = {name: values.numpy() for name, values in found.items()}
    assert any(answers.begins[name][0] > 30 for name in answers.best)
    for row, (name, best) in enumerate(answers.best.items()):
        pairs = zip(answers.nbest[name], answers.begins[name], strict=True)
        wanted = [(e["text"], e["probability"], begin) for e, begin in pairs if begin >= 0]
        texts = [text.decode() for text in found["answers"][row]]
        assert texts == [text for text, *_ in wanted] + [""] * (N_BEST - len(wanted))
        scores = [score for _, score, _ in wanted]
        np.testing.assert_allclose(found["scores"][row, : len(wanted)], scores, atol=1e-6)
        for (text, _, begin), ours, end in zip(
            wanted, found["begins"][row], found["ends"][row], strict=False
        ):
            assert (ours, end) == (begin, begin + len(text))
        if has_odds:
            assert found["null_odds"][row] == np.float32(answers.null_odds[name])
        is_answered = wanted and predictions[name] == best
        first = (wanted[0][0], wanted[0][2]) if is_answered else ("", -1)
        assert (found["answer"][row].decode(), found["begin"][row]) == first


def test_padding_is_not_a_candidate():
    logits = tf.constant([[1.0, 2.0, 9.0]])
    found = graph_spans.best_pairs(logits, logits, tf.constant([[1, 1, 0]]), 2)
    assert sorted(set(found.starts.numpy().ravel())) == [0, 1]


def test_beams_pair_each_start_with_its_ends():
    starts, ends = tf.constant([[3, 1]]), tf.constant([[4, 5, 2, 6]])
    found = graph_spans.beams(-starts, starts, -ends, ends, tf.constant([0.5]))
    assert found.starts.numpy().tolist() == [[3, 3, 1, 1]]
    assert found.end_scores.numpy().tolist() == [[-4, -5, -2, -6]]


@pytest.mark.ci
def test_answers_are_found_in_a_graph(toy_tokenizer):
    reader = make_reader(toy_tokenizer, 5, 0.5)

    def find_candidates(batch):
        logits = tf.cast(batch["input_ids"], tf.float32)
        found = graph_spans.best_pairs(logits, logits, batch["input_mask"], N_BEST)
        return graph_spans.Candidates(**vars(found) | {"null_scores": logits[:, 0]})

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2, autograph=False)
    def answer(questions, contexts):
        return reader.answer(questions, contexts, find_candidates)

    questions, contexts = map(tf.constant, zip(*QUESTIONS, strict=True))
    expected = reader.answer(questions, contexts, find_candidates)
    for name, values in answer(questions, contexts).items():
        np.testing.assert_array_equal(values, expected[name], name)
