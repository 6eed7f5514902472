"""The server of twenty lines: many requests at once, and those that it refuses."""

from __future__ import annotations

import concurrent.futures
import importlib
import sys

import pytest

import albert_tf
from tests.inference.conftest import TEXTS, write_folder

pytest.importorskip("fastapi", reason="needs the extra web")
pytest.importorskip("httpx2", reason="the test client of FastAPI needs it")
from fastapi.testclient import TestClient

pytestmark = pytest.mark.ci

HEADS = {"output_weights": (2, 12), "output_bias": (2,)}


@pytest.fixture
def server(tmp_path, config_file, toy_spm_model, monkeypatch):
    """The module of the server, opened for a classifier."""
    folder = write_folder(tmp_path, config_file, toy_spm_model, HEADS)
    monkeypatch.setenv("MODEL_DIR", str(folder))
    monkeypatch.delitem(sys.modules, "server", raising=False)
    return importlib.import_module("server")


def test_requests_at_the_same_time_get_the_answers_of_a_predictor(server):
    requests = [
        [{"text": text, "text_b": TEXTS[-1 - number % 3]} for text in TEXTS[: 1 + number % 4]]
        for number in range(24)
    ]
    answer = albert_tf.load_predictor(server.os.environ["MODEL_DIR"])
    with TestClient(server.app) as client, concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda rows: client.post("/predict", json=rows).json(), requests))
        assert client.post("/predict", json=[]).json() == []
    for rows, answers in zip(requests, found, strict=True):
        expected = answer([(row["text"], row["text_b"]) for row in rows])
        assert [one["label"] for one in answers] == [one["label"] for one in expected]
        for one, wanted in zip(answers, expected, strict=True):
            assert one["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-5)


@pytest.mark.parametrize(
    ("rows", "status", "told"),
    [
        ([{"text": "A boat"}, {"words": "A boat"}], 400, "row 1: expected"),
        ([{"text": 3}], 400, "row 0: "),
        ({"text": "A boat"}, 422, "valid list"),
    ],
)
def test_a_bad_request_is_told_what_was_expected(server, rows, status, told):
    with TestClient(server.app) as client:
        answer = client.post("/predict", json=rows)
    assert answer.status_code == status
    assert told in answer.text
