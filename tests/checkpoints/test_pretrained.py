"""Loading model and tokenizer from a folder: what it may contain, errors and warnings."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.loading import inspect_checkpoint
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.model.optimization import create_optimizer
from albert_tf.model.tokenization import FullTokenizer
from tests.checkpoints.checkpoint_samples import (
    SHARED,
    assert_same,
    random_arrays,
    random_weights,
    read_all,
    values_of,
)

CONFIG = dataclasses.replace(SHARED, num_hidden_layers=2)


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


def assert_has_encoder(model, weights):
    values = values_of(model)
    encoder = {name: x for name, x in weights.items() if name.startswith("bert/")}
    assert_same({name: values[name] for name in encoder}, encoder)


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


def test_a_head_is_that_of_the_checkpoint_or_new_with_a_warning(folder, caplog):
    with caplog.at_level(logging.WARNING, logger="absl"):
        albert_tf.from_pretrained(str(folder), task="classification", num_labels=3)
    (line,) = caplog.messages  # and no table, as nothing is unusual
    assert line.endswith("New, with random weights: output_bias, output_weights")
    head = random_arrays({"output_weights": (3, 12), "output_bias": (3,)})
    save_checkpoint(str(folder / "albert_model.ckpt"), random_weights(CONFIG) | head)
    model, _ = albert_tf.from_pretrained(str(folder), task="classification")
    np.testing.assert_array_equal(values_of(model)["output_weights"], head["output_weights"])


def test_another_vocabulary_than_that_of_the_training_is_refused(folder, tmp_path, caplog):
    write_vocabulary(folder, count=89)
    vocabulary = str(folder / "vocab.txt")
    record = run_record.of_tokenizer(FullTokenizer(vocabulary, do_lower_case=False), vocabulary)
    RunFolder(str(folder)).write_record(record)
    assert not albert_tf.from_pretrained(str(folder))[1].do_lower_case
    assert "belong together" not in caplog.text  # though the model has room for more
    write_vocabulary(tmp_path, count=90)
    with pytest.raises(ValueError, match=r"another vocabulary: 89 e.* 90 entries, sha256 .*vocab"):
        albert_tf.from_pretrained(str(folder), vocab_file=str(tmp_path / "vocab.txt"))


def test_a_larger_vocabulary_is_refused_and_a_smaller_one_causes_a_warning(folder, caplog):
    write_vocabulary(folder, count=98)
    with pytest.raises(ValueError, match=r"98 entries, the model .* vocab_size=97"):
        albert_tf.from_pretrained(str(folder))
    write_vocabulary(folder, count=96)
    with caplog.at_level(logging.WARNING, logger="absl"):
        albert_tf.from_pretrained(str(folder))
    assert "has 96 entries" in caplog.text


def test_the_error_for_missing_files_lists_those_found(folder):
    (folder / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match="no vocabulary found") as error:
        albert_tf.from_pretrained(str(folder))
    for text in ("*.model", "vocab*.txt", "albert_config_tiny.json", "vocab_file="):
        assert text in str(error.value)


def test_one_of_several_files_of_a_kind_can_be_chosen(folder, toy_spm_model):
    shutil.copy(toy_spm_model, folder / "toy.model")
    chosen = str(folder / "albert_config.json")
    files = {"vocab_file": str(folder / "vocab.txt"), "config_file": chosen}
    CONFIG.to_json_file(chosen)
    albert_tf.from_pretrained(str(folder), vocab_file=files["vocab_file"])  # configs are the same
    other = dataclasses.replace(CONFIG, num_hidden_layers=3)
    other.to_json_file(chosen)
    model, _ = albert_tf.from_pretrained(str(folder), **files)
    assert model.config == other


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"task": "classify"}, "task='classify': Did you mean 'classification'"),
        ({"task": "poetry"}, "task='poetry': expected one of 'classification'"),
        ({"task": "classification", "num_labels": 0}, "num_labels=0: expected an integer, 1 or"),
        ({"task": "classification"}, "has no head for the task classification"),
        ({"task": "spans", "num_labels": 3}, "for spans has no labels"),
    ],
)
def test_a_task_that_does_not_fit_is_refused(folder, arguments, said):
    with pytest.raises(ValueError, match=said):
        albert_tf.from_pretrained(str(folder), **arguments)


# Released models, with random weights

RELEASED = {
    "albert_base_en_v1": "Google ALBERT",
    "albert_base_zh_google": "Google ALBERT",
    "albert_large_en_v1": "Google ALBERT",
    "albert_large_zh_brightmart": "albert_zh",
    "albert_small_zh_google": "Google ALBERT",
    "albert_tiny_250k_brightmart": "albert_zh",
    "albert_tiny_brightmart": "albert_zh",
    "albert_tiny_google_lcqmc_finetuned": "Google ALBERT",
    "albert_tiny_zh_google": "Google ALBERT",
}


def released_arrays(folder):
    """Random numbers with the names, shapes and dtypes of a released checkpoint."""
    text = (folder / "variables.txt").read_text()
    rng = np.random.default_rng(5)
    return {
        name: (rng.standard_normal(json.loads(shape), np.float32) * 0.05).astype(dtype)
        for name, shape, dtype in re.findall(r"^(\S+) (\[.*?\]) (\w+) offset", text, re.MULTILINE)
    }


def save_back(model, source, target):
    """Saves a model with the moments and the step of the checkpoint that it was loaded from."""
    stored = read_all(source)
    slots = create_optimizer("adamw", 0.1).slot_variables(model.trainable_variables)
    others = {name: stored[name] for name in (*slots, "global_step") if name in stored}
    save_checkpoint(target, {variable_name(v): v for v in model.variables} | others)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.slow if re.search("base|large", name) else pytest.mark.ci
        )
        for name in RELEASED
    ],
)
def test_released_folders_load_run_and_save_back(shared, name, tmp_path):
    source = shared / "released" / name
    arrays = released_arrays(source)
    (index,) = source.glob("*.index")
    prefix = str(tmp_path / index.stem)
    save_checkpoint(prefix, arrays)
    is_english, is_fine_tuned = "_en_" in name, "finetuned" in name
    vocabulary = shared / "vocab" / ("30k-clean.model" if is_english else "vocab_chinese.txt")
    shutil.copy(vocabulary, tmp_path)
    for path in source.glob("*.json"):
        shutil.copy(path, tmp_path)
    arguments = {}
    if is_fine_tuned:  # it came without a config: it is the tiny model's
        with pytest.raises(FileNotFoundError, match="no config found"):
            albert_tf.from_pretrained(str(tmp_path))
        (config_file,) = (shared / "released" / "albert_tiny_zh_google").glob("*.json")
        arguments = {"config_file": str(config_file)}
    task = None if is_fine_tuned else "pretraining"
    model, tokenizer = albert_tf.from_pretrained(str(tmp_path), task, **arguments)
    assert tokenizer.is_sentencepiece == is_english
    report = inspect_checkpoint(prefix, model)
    assert report.title == f"{RELEASED[name]} (TensorFlow checkpoint)"
    assert report.missing == report.unused == report.notes == []
    save_back(model, prefix, str(tmp_path / "again"))
    assert_same(read_all(str(tmp_path / "again")), arrays)
    positions = {} if is_fine_tuned else {"masked_lm_positions": tf.constant([[1, 2]])}
    outputs = model(tf.constant([[101, 7, 8, 102, 0]]), **positions)
    assert all(np.isfinite(output).all() for output in outputs.values())
