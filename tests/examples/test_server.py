"""The server of twenty lines: many requests at once, in batches, and those that it refuses."""

from __future__ import annotations

import concurrent.futures
import importlib
import sys

import pytest

import albert_tf
from tests.inference.conftest import TEXTS, write_folder

pytest.importorskip("fastapi", reason="needs the extra web")
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


def test_requests_at_the_same_time_are_answered_in_batches(server, monkeypatch):
    rows = [{"text": text, "text_b": TEXTS[n % 3]} for n, text in enumerate(TEXTS * 20)]
    pairs = [(row["text"], row["text_b"]) for row in rows]
    expected = albert_tf.load_predictor(server.os.environ["MODEL_DIR"])(pairs)
    sizes, predict = [], server.predictor.predict

    def count(examples):
        sizes.append(len(examples))
        return predict(examples)

    monkeypatch.setattr(server.predictor, "predict", count)
    with TestClient(server.app) as client, concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda row: client.post("/predict", json=row).json(), rows))
    assert [answer["label"] for answer in found] == [answer["label"] for answer in expected]
    for answer, wanted in zip(found, expected, strict=True):
        assert answer["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-5)
    assert sum(sizes) == len(rows)
    assert max(sizes) > 1
    assert len(sizes) < len(rows)


def test_a_bad_request_is_told_what_was_expected_and_others_are_answered(server, monkeypatch):
    with TestClient(server.app, raise_server_exceptions=False) as client:
        bad = client.post("/predict", json={"words": "A boat"})
        assert bad.status_code == 400
        assert "expected" in bad.json()["detail"]
        monkeypatch.setattr(server.predictor, "predict", None)  # a fault of the model
        assert client.post("/predict", json={"text": "A boat"}).status_code == 500
        monkeypatch.undo()
        assert client.post("/predict", json={"text": "A boat"}).status_code == 200
