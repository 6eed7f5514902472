"""The program: its data, the precision of its exports, and answers without a known threshold."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf import squad
from albert_tf.checkpoints import loading, store
from albert_tf.checkpoints.names import variable_name
from albert_tf.squad.settings import Settings
from albert_tf.squad.task import read_data
from tests.squad.test_task import make_task


def write_questions(path, answers, is_impossible=False):
    qas = {"id": "q1", "question": "who waits", "is_impossible": is_impossible}
    if answers is not None:
        qas["answers"] = answers
    data = {"data": [{"paragraphs": [{"context": "the boat waits", "qas": [qas]}]}]}
    path.write_text(json.dumps(data))
    return str(path)


@pytest.mark.ci
@pytest.mark.parametrize("version_2", [False, True])
def test_a_model_without_a_record_answers_and_is_exported_in_float32(
    tiny_config, toy_spm_model, version_2, tmp_path, caplog
):
    config = dataclasses.replace(tiny_config, num_hidden_layers=1, num_hidden_groups=1)
    tf_keras.utils.set_random_seed(5)
    task = make_task(config, version_2, start_n_top=3, end_n_top=2)
    weights = {variable_name(v): v.numpy() for v in task.build_model().variables}
    store.save_checkpoint(str(tmp_path / "model.ckpt-3"), weights | {"global_step": np.int64(3)})
    config.to_json_file(str(tmp_path / "albert_config.json"))
    squad.run(
        Settings(
            output_dir=str(tmp_path),
            predict_file=write_questions(tmp_path / "questions.json", None),
            do_predict=True,
            export_dir=str(tmp_path / "export"),
            spm_model_file=toy_spm_model,
            max_seq_length=13,
            max_query_length=3,
            doc_stride=3,
            start_n_top=3,
            end_n_top=2,
            num_workers=1,
            precision="bfloat16",
        )
    )
    assert ("using 0" in caplog.text) == version_2
    (answer,) = json.loads((tmp_path / "predictions.json").read_text()).values()
    if version_2:
        (odds,) = json.loads((tmp_path / "null_odds.json").read_text()).values()
        assert bool(answer) == (odds <= 0)
    (path,) = (tmp_path / "export" / "saved_model").iterdir()
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    ((), wanted) = served.structured_input_signature
    rng = np.random.default_rng(5)
    ones = dict.fromkeys(("input_mask", "segment_ids"), np.ones((2, 11), np.int32))
    batch = {"input_ids": rng.integers(5, 97, (2, 11)), "p_mask": np.zeros((2, 11))} | ones
    batch = {name: tf.constant(batch[name], spec.dtype) for name, spec in wanted.items()}
    found = served(**batch)
    model = task.build_model()
    loading.load_weights(model, str(tmp_path / "model.ckpt-3"))
    for name, value in task.served_outputs(model(batch, training=False)).items():
        np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)


def test_dev_and_test_are_the_same_file(tmp_path):
    known = write_questions(tmp_path / "a.json", [{"text": "the boat", "answer_start": 0}])
    settings = Settings(output_dir="out", predict_file=known, do_predict=True)
    data = read_data(settings)
    assert data["dev"] is data["test"]
    assert not data["dev"].is_chinese
    chinese = dataclasses.replace(settings, mixed_segmentation=True)
    assert read_data(chinese)["dev"].is_chinese


def test_the_answers_do_not_replace_the_questions(tmp_path, config_file, toy_spm_model):
    path = write_questions(tmp_path / "predictions.json", None)
    settings = Settings(
        output_dir=str(tmp_path),
        predict_file=path,
        do_predict=True,
        albert_config_file=str(config_file),
        spm_model_file=toy_spm_model,
    )
    with pytest.raises(ValueError, match=r"--output_dir: .*\.json is an input, --predict_file"):
        squad.run(settings)


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
    write_questions(tmp_path / "b.json", None)
    with pytest.raises(ValueError, match=message):
        read_data(Settings(output_dir="out", **values))
