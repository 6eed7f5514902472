"""The program: answers of a model, their files, and the precision of exports."""

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
from albert_tf.finetuning.run import FineTuningRun
from albert_tf.finetuning.task import Split
from albert_tf.squad import program
from albert_tf.squad.settings import Settings
from albert_tf.training import session
from tests.squad.test_task import make_data, make_task


@pytest.fixture(scope="module", name="config")
def make_config(tiny_config):
    return dataclasses.replace(tiny_config, num_hidden_layers=1, num_hidden_groups=1)


@pytest.fixture(name="version_2", params=[False, True], ids=["v1", "v2"])
def versions(request):
    return request.param


@pytest.fixture(name="folder")
def make_folder(config, version_2, tmp_path):
    """Returns a folder with a checkpoint of step 3, its config and a vocabulary."""
    tf_keras.utils.set_random_seed(5)
    model = make_task(config, version_2, start_n_top=3, end_n_top=2).build_model()
    tensors = {variable_name(v): v.numpy() for v in model.variables}
    store.save_checkpoint(str(tmp_path / "model.ckpt-3"), tensors | {"global_step": np.int64(3)})
    config.to_json_file(str(tmp_path / "albert_config.json"))
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    return tmp_path


def make_run(config, folder, version_2, names=("dev", "test"), data=None, **settings):
    data = data or make_data(version_2)
    task = make_task(
        config,
        version_2,
        dict.fromkeys(names, data),
        output_dir=str(folder),
        albert_config_file=str(folder / "albert_config.json"),
        vocab_file=str(folder / "vocab.txt"),
        predict_batch_size=3,
        pad_to_multiple=4,
        num_workers=1,
        start_n_top=3,
        end_n_top=2,
        **settings,
    )
    features = task.make_features(data, "test")
    splits = {name: Split(name, data, features) for name in names}
    strategy = tf.distribute.get_strategy()
    opened = session.Session(task.settings, task.config, strategy, "float32")
    return FineTuningRun(task.settings, task, splits, opened)


def read(folder, name):
    return json.loads((folder / name).read_text())


def test_without_a_known_threshold_zero_is_used(config, folder, version_2, monkeypatch):
    logged = []
    monkeypatch.setattr(logging, "warning", lambda text, *_: logged.append(text))
    data = make_data(version_2, has_answers=False)
    _, text = make_run(config, folder, version_2, ("test",), data).do_all()
    assert text == ""
    predictions = read(folder, "predictions.json")
    assert any("using 0" in text for text in logged) == version_2
    if version_2:
        odds = read(folder, "null_odds.json")
        assert {q for q, text in predictions.items() if not text} == {
            q for q in odds if odds[q] > 0
        }


@pytest.mark.ci
def test_exports_compute_in_float32_and_leave_the_session_unchanged(config, folder, version_2):
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        # Its tokenizer is none.
        run = make_run(config, folder, version_2, ("test",))
        run.export(str(folder / "export"))
        assert tf_keras.mixed_precision.global_policy().name == "mixed_bfloat16"
    finally:
        tf_keras.mixed_precision.set_global_policy(before)
    (path,) = (folder / "export" / "saved_model").iterdir()
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    batch = run.splits["test"].features.batch(np.arange(2), 11)
    ((), wanted) = served.structured_input_signature
    found = served(**{name: tf.constant(batch[name]) for name in wanted})
    model = run.task.build_model()
    loading.load_weights(model, str(folder / "model.ckpt-3"))
    theirs = run.task.served_outputs(model(batch, training=False))
    for name, value in theirs.items():
        np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)


def write_questions(path, answers):
    qas = [{"id": "q1", "question": "who waits", "answers": answers}]
    if not answers:
        del qas[0]["answers"]
    data = {"data": [{"paragraphs": [{"context": "the boat waits", "qas": qas}]}]}
    path.write_text(json.dumps(data))
    return str(path)


def test_dev_and_test_are_the_same_file(tmp_path):
    known = write_questions(tmp_path / "a.json", [{"text": "the boat", "answer_start": 0}])
    settings = Settings(output_dir="out", predict_file=known, do_predict=True)
    data = program.read_data(settings)
    assert data["dev"] is data["test"]
    assert not data["dev"].is_chinese
    chinese = dataclasses.replace(settings, mixed_segmentation=True)
    assert program.read_data(chinese)["dev"].is_chinese


def test_the_answers_do_not_replace_the_questions(tmp_path):
    path = write_questions(tmp_path / "predictions.json", [])
    settings = Settings(output_dir=str(tmp_path), predict_file=path, do_predict=True)
    with pytest.raises(ValueError, match=r"--output_dir: .*\.json is an input, --predict_file"):
        program.run(settings)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"do_train": True}, "--do_train requires --train_file, a file of questions"),
        ({"do_predict": True}, "--do_predict requires --predict_file, a file of questions"),
        ({"do_eval": True}, "--do_eval requires --predict_file, a file of questions"),
        ({"do_eval": True, "predict_file": "b.json"}, r"b\.json has no answers to evaluate on"),
    ],
)
def test_missing_file_flags_are_reported(tmp_path, monkeypatch, values, message):
    monkeypatch.chdir(tmp_path)
    write_questions(tmp_path / "b.json", [])
    with pytest.raises(ValueError, match=message):
        program.read_data(Settings(output_dir="out", **values))
