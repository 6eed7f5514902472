"""Fine-tuning from Python, without a command line."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tf_keras

from albert_tf import classification
from albert_tf.checkpoints import store
from albert_tf.checkpoints.names import variable_name
from albert_tf.config import AlbertConfig
from albert_tf.modeling import AlbertForPretraining
from tests.script_runner import tensors

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] 河 船 雨 宽 谁 的 是 不".split()


@pytest.fixture(scope="module", name="model_folder")
def make_model(tmp_path_factory, config_file):
    """Returns the folder of a pre-trained model, as published: config, weights, vocabulary."""
    folder = tmp_path_factory.mktemp("albert_tiny_zh")
    config = AlbertConfig.from_json_file(str(config_file))
    config.to_json_file(str(folder / "albert_config.json"))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    tf_keras.utils.set_random_seed(5)
    weights = AlbertForPretraining(config).variables
    store.save_checkpoint(str(folder / "model.ckpt"), {variable_name(v): v for v in weights})
    return folder


@pytest.fixture(scope="module", name="data_dir")
def write_lcqmc(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lcqmc")
    lines = [f"{a}宽\t{b}宽\t{int(a == b)}\n" for a in "河船雨" for b in "河船雨谁"]
    for split in ("train", "dev"):
        (folder / f"{split}.txt").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(name="settings")
def make_settings(model_folder, data_dir, tmp_path):
    """Returns the settings of three steps of training."""
    return classification.Settings(
        task_name="lcqmc",
        data_dir=str(data_dir),
        init_checkpoint=str(model_folder),
        output_dir=str(tmp_path),
        max_seq_length=17,
        train_batch_size=5,
        train_step=3,
    )


@pytest.mark.ci
def test_a_classifier_is_trained_from_python(settings, model_folder, tmp_path):
    settings = dataclasses.replace(settings, precision="bfloat16")
    result = classification.run(settings)
    assert set(result.metrics) == {"eval_accuracy", "f1", "eval_loss", "loss"}
    assert result.output_dir == str(tmp_path)
    assert str(result).startswith(f"best checkpoint of {tmp_path}\neval_accuracy = ")
    assert tensors(tmp_path / "model.ckpt-best")["global_step"] == result.step
    name = "bert/embeddings/word_embeddings"
    first, expected = (
        tensors(folder / checkpoint)[name]
        for folder, checkpoint in ((tmp_path, "model.ckpt-0"), (model_folder, "model.ckpt"))
    )
    np.testing.assert_array_equal(first, expected)
    assert tf_keras.mixed_precision.global_policy().name == "float32"


@pytest.mark.ci
def test_a_frozen_encoder_keeps_its_weights(settings, tmp_path):
    settings = dataclasses.replace(settings, learning_rate=0.1, warmup_step=0, freeze_encoder=True)
    result = classification.run(settings)
    assert result.step == 3
    first, last = (tensors(tmp_path / f"model.ckpt-{step}") for step in (0, 3))
    changed = {name for name in first if np.any(first[name] != last[name])} - {"global_step"}
    heads = {"output_weights", "output_bias"}
    assert heads <= changed
    # The encoder has no moments either.
    assert {name.split("/adam_")[0].split("/lamb_")[0] for name in changed} == heads
    with pytest.raises(ValueError, match="freeze_encoder"):
        classification.run(dataclasses.replace(settings, freeze_encoder=False, train_step=4))
