"""Loading model and tokenizer from a folder: supported folders, errors and warnings."""

from __future__ import annotations

import dataclasses
import json
import logging as python_logging
import shutil

import numpy as np
import pytest
import tf_keras

import albert_tf
from albert_tf.checkpoints import finding, huggingface, run_record
from albert_tf.checkpoints.names import variable_name
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.config import AlbertConfig
from albert_tf.modeling import AlbertForPretraining
from albert_tf.serving import tf_hub
from albert_tf.tokenization import FullTokenizer
from tests.checkpoints.checkpoint_samples import (
    ALBERT_ZH,
    SHARED,
    random_arrays,
    random_weights,
)
from tests.checkpoints.test_loading import RELEASED_BY_SIZE, released_arrays

CONFIG = dataclasses.replace(SHARED, num_hidden_layers=2)
ZH = dataclasses.replace(ALBERT_ZH, num_hidden_layers=2)
WORDS = "bert/embeddings/word_embeddings"
HEAD = {"output_weights": (3, 12), "output_bias": (3,)}


def write_vocabulary(folder, name="vocab.txt", count=97):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "river", "##s"]
    tokens += [f"[unused{number}]" for number in range(count - len(tokens))]
    (folder / name).write_text("\n".join(tokens) + "\n", encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """A folder like the released ones."""
    folder = tmp_path / "albert"
    folder.mkdir()
    save_checkpoint(str(folder / "albert_model.ckpt"), random_weights(CONFIG))
    CONFIG.to_json_file(str(folder / "albert_config_tiny.json"))
    write_vocabulary(folder)
    return folder


def values_of(model):
    return {variable_name(variable): variable.numpy() for variable in model.variables}


def assert_has_encoder(model, weights):
    values = values_of(model)
    for name in (name for name in weights if name.startswith("bert/")):
        np.testing.assert_array_equal(values[name], weights[name], name)


@pytest.mark.parametrize(
    ("task", "arguments", "kind"),
    [
        (None, {}, "AlbertEncoder"),
        ("pretraining", {}, "AlbertForPretraining"),
        ("classification", {"num_labels": 3}, "AlbertForClassification"),
        ("regression", {}, "AlbertForClassification"),
        ("multiple_choice", {"dropout_prob": 0.2}, "AlbertForMultipleChoice"),
        ("spans", {}, "AlbertForSpans"),
        ("answerable_spans", {"start_n_top": 2}, "AlbertForAnswerableSpans"),
        ("token_classification", {"num_labels": 3}, "AlbertForTokenClassification"),
    ],
)
def test_every_task_has_its_model(folder, task, arguments, kind):
    model, tokenizer = albert_tf.from_pretrained(str(folder), task, **arguments)
    assert type(model).__name__ == kind
    assert_has_encoder(model, random_weights(CONFIG))
    assert tokenizer.decode(tokenizer("The Rivers")["input_ids"][0]) == "the rivers"
    assert tokenizer.max_length == CONFIG.max_position_embeddings


def test_a_new_head_causes_a_warning(folder, caplog):
    with caplog.at_level(python_logging.WARNING, logger="absl"):
        albert_tf.from_pretrained(str(folder), task="classification", num_labels=3)
    (line,) = caplog.messages  # and no table, as nothing is unusual
    assert line.endswith("New heads with random weights: output_bias, output_weights")
    assert "\n" not in line


def test_the_number_of_labels_defaults_to_that_of_the_checkpoint(folder):
    head = random_arrays(HEAD)
    save_checkpoint(str(folder / "albert_model.ckpt"), random_weights(CONFIG) | head)
    model, _ = albert_tf.from_pretrained(str(folder), task="classification")
    np.testing.assert_array_equal(values_of(model)["output_weights"], head["output_weights"])


def write_google(folder, spm_model):
    save_checkpoint(str(folder / "model.ckpt-best"), random_weights(CONFIG))
    CONFIG.to_json_file(str(folder / "albert_config.json"))
    shutil.copy(spm_model, folder / "30k-clean.model")


def write_hugging_face(folder, spm_model):
    huggingface.save_hugging_face(
        str(folder), random_weights(CONFIG), CONFIG, spm_model_file=spm_model
    )


def write_hub_module(folder, spm_model):
    model = AlbertForPretraining(CONFIG)
    for name, variable in {variable_name(v): v for v in model.variables}.items():
        variable.assign(random_weights(CONFIG)[name])
    tf_hub.save_hub_module(str(folder), model, CONFIG, spm_model_file=spm_model)


@pytest.mark.parametrize(
    "write",
    [
        write_google,
        write_hugging_face,
        pytest.param(write_hub_module, marks=pytest.mark.slow),
    ],
)
def test_folders_of_every_family_can_be_loaded(tmp_path, toy_spm_model, write):
    write(tmp_path, toy_spm_model)
    model, tokenizer = albert_tf.from_pretrained(str(tmp_path))
    assert_has_encoder(model, random_weights(CONFIG))
    assert tokenizer.is_sentencepiece
    assert tokenizer.do_lower_case


def test_albert_zh_can_be_loaded(tmp_path):
    values = ZH.to_dict() | {"directionality": "bidi"}
    (tmp_path / "albert_config.json").write_text(json.dumps(values))
    save_checkpoint(str(tmp_path / "albert_model.ckpt"), random_weights(ZH))
    write_vocabulary(tmp_path)
    model, _ = albert_tf.from_pretrained(str(tmp_path))
    assert_has_encoder(model, random_weights(ZH))


def test_the_best_or_else_the_newest_checkpoint_of_a_run_is_loaded(folder):
    (folder / "albert_model.ckpt.index").unlink()
    for name, seed in (("model.ckpt-9", 9), ("model.ckpt-10", 10)):
        save_checkpoint(str(folder / name), random_weights(CONFIG, seed))
    assert_has_encoder(albert_tf.from_pretrained(str(folder))[0], random_weights(CONFIG, 10))
    save_checkpoint(str(folder / "model.ckpt-best"), random_weights(CONFIG))
    assert_has_encoder(albert_tf.from_pretrained(str(folder))[0], random_weights(CONFIG))
    model, _ = albert_tf.from_pretrained(str(folder / "model.ckpt-9"))
    assert_has_encoder(model, random_weights(CONFIG, 9))


def test_the_vocabulary_of_a_run_is_found_by_its_settings(folder, tmp_path):
    (folder / "vocab.txt").rename(tmp_path / "words.txt")
    given = {"vocab_file": "words.txt", "spm_model_file": None, "do_lower_case": False}
    record = RunRecord(start={"directory": str(tmp_path)}, settings=given)
    RunFolder(str(folder)).write_record(record)
    _, tokenizer = albert_tf.from_pretrained(str(folder))
    assert tokenizer.vocab["river"] == 6
    assert not tokenizer.do_lower_case
    (tmp_path / "words.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"words\.txt: missing"):
        albert_tf.from_pretrained(str(folder))


def test_a_vocabulary_other_than_that_of_the_training_is_rejected(folder, tmp_path, caplog):
    def known(path, do_lower_case):
        return run_record.of_tokenizer(FullTokenizer(path, do_lower_case), path)

    write_vocabulary(folder, count=89)
    vocabulary = str(folder / "vocab.txt")
    RunFolder(str(folder)).write_record(known(vocabulary, False))
    _, tokenizer = albert_tf.from_pretrained(str(folder))
    assert not tokenizer.do_lower_case
    assert "belong together" not in caplog.text  # though the model has room for more
    write_vocabulary(tmp_path, count=90)
    with pytest.raises(ValueError, match=r"another vocabulary: 89 e.* 90 entries, sha256 .*vocab"):
        albert_tf.from_pretrained(str(folder), vocab_file=str(tmp_path / "vocab.txt"))


def test_a_damaged_run_file_is_reported(folder):
    (folder / "run.json").write_text('{"settings": 5}')
    with pytest.raises(ValueError, match=r"run\.json: "):
        albert_tf.from_pretrained(str(folder))


def test_do_lower_case_is_read_from_hugging_faces_tokenizer(folder):
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert not albert_tf.from_pretrained(str(folder))[1].do_lower_case
    with pytest.raises(ValueError, match="do_lower_case=True"):
        albert_tf.from_pretrained(str(folder), do_lower_case=True)


@pytest.mark.slow
@pytest.mark.parametrize("do_lower_case", [True, False])
def test_do_lower_case_is_read_from_a_hub_module(folder, tmp_path, do_lower_case):
    model, target = AlbertForPretraining(CONFIG), str(tmp_path / "hub")
    vocabulary = str(folder / "vocab.txt")
    tf_hub.save_hub_module(
        target, model, CONFIG, vocab_file=vocabulary, do_lower_case=do_lower_case
    )
    assert albert_tf.from_pretrained(target)[1].do_lower_case == do_lower_case


def test_the_error_for_missing_files_lists_those_found(folder):
    (folder / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match="no vocabulary found") as error:
        albert_tf.from_pretrained(str(folder))
    for text in ("*.model", "vocab*.txt", "albert_config_tiny.json", "vocab_file=", "load_check"):
        assert text in str(error.value)
    (folder / "albert_config_tiny.json").unlink()
    with pytest.raises(FileNotFoundError, match="no config found") as error:
        albert_tf.from_pretrained(str(folder))
    for text in ("albert_config*.json", "albert_model.ckpt.index", "config_file="):
        assert text in str(error.value)
    with pytest.raises(FileNotFoundError, match="no such checkpoint"):
        albert_tf.from_pretrained(str(folder / "absent"))


def test_several_files_of_a_kind_are_listed_and_one_can_be_chosen(folder, toy_spm_model):
    shutil.copy(toy_spm_model, folder / "toy.model")
    with pytest.raises(ValueError, match=r"several vocabularies.*toy\.model.*vocab\.txt"):
        albert_tf.from_pretrained(str(folder))
    other = dataclasses.replace(CONFIG, num_hidden_layers=3)
    other.to_json_file(str(folder / "albert_config.json"))
    vocabulary = {"vocab_file": str(folder / "vocab.txt")}
    with pytest.raises(ValueError, match="several configs; choose one"):
        albert_tf.from_pretrained(str(folder), **vocabulary)
    chosen = str(folder / "albert_config.json")
    model, _ = albert_tf.from_pretrained(str(folder), config_file=chosen, **vocabulary)
    assert model.config == other
    (folder / "albert_config_tiny.json").write_text((folder / "albert_config.json").read_text())
    assert finding.find_config(str(folder)) == chosen


def test_a_larger_vocabulary_is_rejected_and_a_smaller_one_causes_a_warning(folder, caplog):
    write_vocabulary(folder, count=98)
    with pytest.raises(ValueError, match=r"98 entries, the model .* vocab_size=97"):
        albert_tf.from_pretrained(str(folder))
    write_vocabulary(folder, count=96)
    with caplog.at_level(python_logging.WARNING, logger="absl"):
        albert_tf.from_pretrained(str(folder))
    assert "has 96 entries" in caplog.text


def test_an_incomplete_encoder_is_rejected(folder):
    weights = random_weights(CONFIG)
    del weights["bert/pooler/dense/kernel"]
    save_checkpoint(str(folder / "albert_model.ckpt"), weights)
    with pytest.raises(ValueError, match="does not contain this model's encoder"):
        albert_tf.from_pretrained(str(folder))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"task": "classify"}, "task='classify': expected one of 'classification'"),
        ({"task": "classification"}, "num_labels is required"),
        ({"task": "spans", "num_labels": 3}, "for spans has no labels"),
    ],
)
def test_an_invalid_task_is_rejected(folder, arguments, problem):
    with pytest.raises(ValueError, match=problem):
        albert_tf.from_pretrained(str(folder), **arguments)


@pytest.mark.parametrize("text", ["[]", "{", '{"vocab_size": 97, "hidden_sise": 12}'])
def test_an_invalid_config_is_reported(folder, text):
    (folder / "albert_config_tiny.json").write_text(text)
    with pytest.raises(ValueError, match=r"albert_config_tiny\.json: "):
        albert_tf.from_pretrained(str(folder))


@pytest.mark.parametrize("name", RELEASED_BY_SIZE)
def test_released_folders_can_be_loaded(shared, name, tmp_path):
    source = shared / "released" / name
    arrays = released_arrays(source)
    (index,) = source.glob("*.index")
    save_checkpoint(str(tmp_path / index.stem), arrays)
    for path in source.glob("*.json"):
        shutil.copy(path, tmp_path)
    is_english = "_en_" in name
    vocabulary = shared / "vocab" / ("30k-clean.model" if is_english else "vocab_chinese.txt")
    shutil.copy(vocabulary, tmp_path)
    arguments = {}
    if "finetuned" in name:  # it came without a config: it is the tiny model's
        with pytest.raises(FileNotFoundError, match="no config found"):
            albert_tf.from_pretrained(str(tmp_path))
        (config_file,) = (shared / "released" / "albert_tiny_zh_google").glob("*.json")
        arguments = {"config_file": str(config_file)}
    model, tokenizer = albert_tf.from_pretrained(str(tmp_path), **arguments)
    assert_has_encoder(model, {n: x for n, x in arrays.items() if "adam_" not in n})
    assert tokenizer.is_sentencepiece == is_english
    assert isinstance(model.config, AlbertConfig)


@pytest.mark.slow  # test_keras.py trains one by default, and test_readme.py runs these lines
def test_six_lines_fine_tune_a_model_with_keras(folder):
    pairs = [("the river", "rivers"), ("the", "the"), ("river", "the"), ("the the", "river")] * 4
    labels = np.array([1, 0, 1, 0] * 4)

    model, tokenizer = albert_tf.from_pretrained(str(folder), "classification", num_labels=2)
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf_keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    history = model.fit(tokenizer(pairs), labels, batch_size=8, epochs=12, verbose=0).history

    assert history["loss"][-1] < 0.8 * history["loss"][0]
    measured = model.evaluate(tokenizer(pairs), labels, verbose=0, return_dict=True)
    logits = model.predict(tokenizer(pairs), verbose=0)
    assert logits.shape == (16, 2)
    assert measured["accuracy"] == np.mean(logits.argmax(axis=-1) == labels) == 1
