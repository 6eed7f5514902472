"""A predictor that several threads call at the same time answers each of them."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import itertools
import pickle
import sys

import numpy as np
import pytest

import albert_tf
from tests.inference.conftest import LONG, TEXTS

THREADS = 16
ENGINES = [
    "tensorflow",
    pytest.param(
        "openvino",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("openvino") is None, reason="needs the extra openvino"
        ),
    ),
]


@pytest.fixture(autouse=True, scope="module")
def _eager():
    """Replaces the folder's fixture, which computes eagerly and hides OpenVINO."""


@pytest.fixture
def _switching():
    """Lets another thread continue after nearly every step of the interpreter."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture(scope="module")
def inputs():
    """Texts of different lengths and words."""
    words = " ".join(TEXTS).split()
    rng = np.random.default_rng(7)
    return [" ".join(rng.choice(words, 1 + number)) for number in range(24)]


def call_all(function, arguments):
    """Returns the results of calls, which THREADS threads make at the same time."""
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, arguments))


def count_wrong(embed, inputs, calls):
    """Returns how many of some calls by threads have another result than the call alone."""
    asked = list(itertools.islice(itertools.cycle(range(len(inputs))), calls))
    found = call_all(lambda number: embed(inputs[number]), asked)  # the first ones compile
    expected = np.stack([embed(text) for text in inputs])
    differences = np.abs(expected[:, None] - expected).max(-1) + np.eye(len(inputs))
    assert differences.min() > 1e-3  # a mix-up shows
    return int((np.abs(np.stack(found) - expected[asked]).max(-1) > 1e-4).sum())


@pytest.mark.ci
@pytest.mark.usefixtures("_switching")
@pytest.mark.parametrize("engine", ENGINES)
def test_each_thread_gets_the_answer_to_its_own_text(saved, inputs, engine):
    embed = albert_tf.load_predictor(saved("embeddings"), engine=engine)
    assert count_wrong(embed, inputs, 1_000) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("_switching")
@pytest.mark.parametrize("engine", ENGINES)
def test_none_of_twenty_thousand_calls_gets_the_answer_to_another(saved, inputs, engine):
    embed = albert_tf.load_predictor(saved("embeddings"), engine=engine)
    assert count_wrong(embed, inputs, 20_000) == 0


@pytest.mark.usefixtures("_switching")
def test_each_text_that_is_too_long_is_counted_once(saved):
    embed = albert_tf.load_predictor(saved("embeddings"), engine="tensorflow")
    call_all(embed.task.features_of, [[(LONG, "")]] * 200)
    assert embed.num_truncated == 200


def test_a_predictor_that_is_pickled_says_what_to_do_instead(saved):
    embed = albert_tf.load_predictor(saved("embeddings"), engine="tensorflow")
    with pytest.raises(TypeError, match=r"Call albert_tf\.load_predictor with the same folder"):
        pickle.dumps(embed)
