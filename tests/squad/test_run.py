"""Questions beside a model: its answers, their files, and what an export computes in."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf.checkpoints import loading, store
from albert_tf.checkpoints.names import variable_name
from albert_tf.squad import run as squad_runs
from albert_tf.squad.decoding import DecodingSettings
from albert_tf.squad.run import AnsweringRun, AnsweringSettings
from albert_tf.squad.task import QuestionAnswering, prepare
from albert_tf.training.evaluation import Evaluation, read_evaluations
from tests.squad.test_alignment import WordTokenizer
from tests.squad.test_task import SETTINGS, make_data


@pytest.fixture(params=[False, True], ids=["v1", "v2"])
def task(request, tiny_config):
    config = dataclasses.replace(tiny_config, num_hidden_layers=1, num_hidden_groups=1)
    return QuestionAnswering(config, request.param, start_n_top=3, end_n_top=2)


@pytest.fixture
def folder(task, tmp_path):
    """A folder with a checkpoint of step 3."""
    tf_keras.utils.set_random_seed(5)
    tensors = {variable_name(v): v.numpy() for v in task.build_model().variables}
    store.save_checkpoint(str(tmp_path / "model.ckpt-3"), tensors | {"global_step": np.int64(3)})
    return tmp_path


DECODING = DecodingSettings(n_best_size=7)


def make_run(task, folder, decoding=DECODING, made_of="words", data=None, **settings):
    data = data or make_data(task.version_2)
    features = prepare(data, WordTokenizer(), SETTINGS, is_training=False)
    values = AnsweringSettings(str(folder), None, decoding, 3, task.padding(11, 4), **settings)
    return AnsweringRun(task, data, features, values, made_of)


def read(folder, name):
    return json.loads((folder / name).read_text())


def test_answers_have_the_scores_that_are_told(task, folder):
    text = make_run(task, folder).answer()
    (found,) = read_evaluations(str(folder))
    assert text == "".join(f"{key} = {value}\n" for key, value in sorted(found.metrics.items()))
    assert found.step == 3
    assert (folder / "model.ckpt-best.index").exists()
    assert set(read(folder, "predictions.json")) == {
        e.qas_id for e in make_data(task.version_2).examples
    }


def test_a_checkpoint_is_measured_anew_where_something_that_matters_changed(task, folder):
    def name(**change):
        return make_run(task, folder, **change).evaluator.measured_on

    names = [
        name(),
        name(decoding=DecodingSettings(8)),
        name(made_of="pieces"),
        name(threshold=1.5),
        name(official_threshold=True),
        name(data=make_data(task.version_2, checksum="00fe")),
        name(data=make_data(task.version_2, is_chinese=True)),
    ]
    assert len(set(names)) == len(names)
    assert name() == names[0]


def test_without_a_known_threshold_even_odds_decide(task, folder, monkeypatch):
    logged = []
    monkeypatch.setattr(logging, "warning", lambda text, *_: logged.append(text))
    run = make_run(task, folder, data=make_data(task.version_2, has_answers=False))
    assert run.evaluator is None
    assert run.answer() == ""
    predictions = read(folder, "predictions.json")
    assert any("0 is taken" in text for text in logged) == task.version_2
    if task.version_2:
        odds = read(folder, "null_odds.json")
        assert {q for q, text in predictions.items() if not text} == {
            q for q in odds if odds[q] > 0
        }


def test_the_first_question_is_described_like_it_is_answered(task, folder):
    run = make_run(task, folder, threshold=1e9 if task.version_2 else None)
    run.answer()
    assert run.describe_first().splitlines()[0] == read(folder, "predictions.json")["q1"]


def test_exports_compute_in_float32_and_the_session_goes_on_as_before(task, folder):
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        squad_runs.export_best(task, str(folder), None, str(folder / "export"), 11)
        assert tf_keras.mixed_precision.global_policy().name == "mixed_bfloat16"
    finally:
        tf_keras.mixed_precision.set_global_policy(before)
    (path,) = (folder / "export" / "saved_model").iterdir()
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    features = prepare(make_data(), WordTokenizer(), SETTINGS, is_training=False)
    batch = features.batch(np.arange(2), 11)
    ((), wanted) = served.structured_input_signature
    found = served(**{name: tf.constant(batch[name]) for name in wanted})
    model = task.build_model()
    loading.load_weights(model, str(folder / "model.ckpt-3"))
    theirs = task.served_outputs(model(batch, training=False))
    for name, value in theirs.items():
        np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)


def test_results_of_squad_have_the_form_of_its_programs(tmp_path):
    evaluations = [
        Evaluation(0, {"f1": 1.0 / 3, "exact_match": 0.0}, "a", "dev"),
        Evaluation(4, {"f1": 0.25, "exact_match": 0.5}, "b", "dev"),
        Evaluation(6, {"f1": 2.0, "exact_match": 1.0}, "c", "dev"),
    ]
    text = squad_runs.write_squad_results(str(tmp_path), evaluations, "f1")
    assert (tmp_path / "eval_results.txt").read_text() == text
    data, index = ".data-00000-of-00001", ".index"
    saved = "".join(
        f"saved {tmp_path}/model.ckpt-%s{suffix} to {tmp_path}/model.ckpt-best{suffix}\n"
        for suffix in (data, index)
    )
    line = "=" * 50 + "\n"
    third = 1 / 3
    assert text == (
        f"exact_match = 0.0\nf1 = {third}\nglobal_step = 0\n"
        f"{saved % (0, 0)}best f1 = {third}\n{line}"
        f"exact_match = 0.5\nf1 = 0.25\nglobal_step = 4\nbest f1 = {third}\n{line}"
        f"exact_match = 1.0\nf1 = 2.0\nglobal_step = 6\n{saved % (6, 6)}best f1 = 2.0\n{line}"
        "exact_match = 1.0\nf1 = 2.0\nbest perf happened at step: 6"
    )
