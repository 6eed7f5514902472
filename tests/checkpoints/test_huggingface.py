"""Hugging Face's format, written and read. `test_transformers_folders.py` compares the answers."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re

import numpy as np
import pytest

from albert_tf.checkpoints.huggingface import (
    config_to_hugging_face,
    save_hugging_face,
    to_hugging_face,
)
from albert_tf.checkpoints.loading import load_checkpoint, read_weights
from albert_tf.checkpoints.tasks import read_task, write_task
from albert_tf.model.config import ACTIVATIONS, AlbertConfig
from albert_tf.model.modeling import AlbertEncoder, AlbertForPretraining
from albert_tf.model.tokenization import FullTokenizer
from tests.checkpoints.checkpoint_samples import (
    ALBERT_ZH,
    GOOGLE,
    INNER,
    SHARED,
    SQUARE,
    assert_same,
    random_arrays,
    random_weights,
    shapes_of,
)
from tests.huggingface_folders import save_file

safetensors = pytest.importorskip("safetensors", reason="needs the extra hf")
SEQUENCE, TOKENS = "AlbertForSequenceClassification", "AlbertForTokenClassification"
CONFIGS = [INNER, SQUARE, dataclasses.replace(SHARED, hidden_act="relu")]


@pytest.mark.parametrize("config", CONFIGS)
def test_weights_and_config_round_trip_bit_for_bit(config, tmp_path):
    weights = random_weights(config)
    save_hugging_face(str(tmp_path), weights, config)
    assert AlbertConfig.from_json_file(str(tmp_path / "config.json")) == config
    assert_same(read_weights(str(tmp_path), AlbertForPretraining(config)), weights)


def test_the_file_is_what_from_pretrained_expects(tmp_path):
    weights = random_weights(INNER)
    save_hugging_face(str(tmp_path), weights, INNER)
    with safetensors.safe_open(tmp_path / "model.safetensors", framework="numpy") as opened:
        assert opened.metadata() == {"format": "pt"}
        layer = "albert.encoder.albert_layer_groups.2.albert_layers.1."
        assert opened.get_tensor(layer + "ffn.weight").shape == (20, 12)
        assert opened.get_tensor("albert.embeddings.word_embeddings.weight").shape == (97, 8)
        assert opened.get_tensor("sop_classifier.classifier.weight").shape == (2, 12)
        assert len(opened.keys()) == len(weights)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["architectures"] == ["AlbertForPreTraining"]
    assert (values["model_type"], values["hidden_act"]) == ("albert", "gelu_new")
    assert (values["layer_norm_eps"], values["pad_token_id"]) == (1e-12, 0)


def test_equal_sizes_get_an_identity_projection():
    weights = to_hugging_face(random_weights(SQUARE), SQUARE)
    scope = "albert.encoder.embedding_hidden_mapping_in"
    np.testing.assert_array_equal(weights[f"{scope}.weight"], np.eye(12))
    np.testing.assert_array_equal(weights[f"{scope}.bias"], np.zeros(12))


def test_models_that_their_albert_does_not_support_are_refused():
    with pytest.raises(ValueError, match=r"only supports Google's layout\. With --merge"):
        to_hugging_face(random_weights(ALBERT_ZH), ALBERT_ZH)
    config = dataclasses.replace(GOOGLE, num_hidden_layers=4, num_hidden_groups=12)
    with pytest.raises(ValueError, match="4 layers in 12 groups"):
        to_hugging_face(random_weights(config), config)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_is_written_and_read_or_refused(name, tmp_path, monkeypatch):
    config = dataclasses.replace(SHARED, hidden_act=name)
    assert AlbertConfig.from_dict(config_to_hugging_face(config, {})) == config
    monkeypatch.setitem(ACTIVATIONS, name, ())  # one that Hugging Face does not have
    with pytest.raises(ValueError, match=f"ALBERT does not have hidden_act='{name}'"):
        save_hugging_face(str(tmp_path), random_weights(config), config)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("heads", "architecture"),
    [
        ({}, "AlbertModel"),
        ({"cls/predictions/output_bias": (97,)}, "AlbertForMaskedLM"),
        ({"output_weights": (3, 12), "output_bias": (3,)}, SEQUENCE),
        ({"cls/squad/output_weights": (2, 12)}, "AlbertForQuestionAnswering"),
    ],
)
def test_the_heads_determine_the_class(heads, architecture):
    encoder = {n: s for n, s in shapes_of(SHARED).items() if n.startswith("bert/")}
    tensors = random_arrays(encoder | heads)
    values = config_to_hugging_face(SHARED, tensors)
    assert values["architectures"] == [architecture]
    assert len(values.get("id2label", {})) == (3 if "output_weights" in heads else 0)
    written = to_hugging_face(tensors, SHARED)
    assert len(written) == len(tensors)
    if "output_weights" in heads:
        np.testing.assert_array_equal(written["classifier.weight"], tensors["output_weights"])


def test_unsupported_heads_are_reported(caplog):
    tensors = random_arrays(shapes_of(SHARED) | {"start_logits/dense/kernel": (12, 1)})
    assert len(to_hugging_face(tensors, SHARED)) == len(tensors) - 1
    assert "not written: start_logits/dense/kernel" in caplog.text


def test_tokenizer_files_are_written(tmp_path, toy_spm_model):
    vocab_file = tmp_path / "zh.txt"
    vocab_file.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    kept = ("tokenizer_class", "do_lower_case", "pad_token", "unk_token", "model_max_length")
    for arguments, copy, kind, expected in (
        ((None, True, toy_spm_model), "spiece.model", "Unigram", [True, "<pad>", "<unk>"]),
        ((str(vocab_file), False), "vocab.txt", "WordPiece", [False, "[PAD]", "[UNK]"]),
    ):
        tokenizer = FullTokenizer(*arguments, max_length=13)
        save_hugging_face(str(tmp_path), random_weights(SHARED), SHARED, tokenizer)
        with open(arguments[0] or toy_spm_model, "rb") as stream:
            assert (tmp_path / copy).read_bytes() == stream.read()
        values = json.loads((tmp_path / "tokenizer_config.json").read_text())
        assert [values[key] for key in kept] == ["PreTrainedTokenizerFast", *expected, 13]
        content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
        assert content["model"]["type"] == kind


def test_a_model_that_tokenizer_json_cannot_hold_is_left_to_their_class(
    tmp_path, toy_spm_model, caplog
):
    without_dummy_prefix = b"\x1a\x02\x18\x00"  # normalizer_spec { add_dummy_prefix: false }
    model = tmp_path / "other.model"
    model.write_bytes(pathlib.Path(toy_spm_model).read_bytes() + without_dummy_prefix)
    tokenizer = FullTokenizer(spm_model_file=str(model))
    save_hugging_face(str(tmp_path), random_weights(SHARED), SHARED, tokenizer)
    assert not (tmp_path / "tokenizer.json").exists()
    values = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert values["tokenizer_class"] == "AlbertTokenizer"
    assert "requires a SentencePiece model of the type unigram" in caplog.text


# Tasks


def config_of(architecture, *labels, **values):
    """The entries of a `config.json` that describe the task, as transformers 5 writes them."""
    names = {"id2label": {str(n): label for n, label in enumerate(labels)}} if labels else {}
    return {"architectures": [architecture], **names, **values}


def task_of(name, *labels):
    return {"name": name, "labels": list(labels)}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # Two classes without names are not written.
        (config_of(SEQUENCE), task_of("classification", "LABEL_0", "LABEL_1")),
        (
            config_of(SEQUENCE, "joy", "恐惧", problem_type="multi_label_classification"),
            task_of("multi_label_classification", "joy", "恐惧"),
        ),
        (
            config_of(SEQUENCE, "toxic", problem_type="multi_label_classification"),
            task_of("multi_label_classification", "toxic"),
        ),
        (config_of(SEQUENCE, "x", problem_type="regression"), task_of("regression")),
        (config_of(SEQUENCE, "LABEL_0"), task_of("regression")),
        (config_of(SEQUENCE, num_labels=1), task_of("regression")),  # by early versions
        # Sorted as text, "10" would precede "2".
        (config_of(TOKENS, *"OabcdefghijK"), task_of("token_classification", *"OabcdefghijK")),
        (config_of("AlbertForQuestionAnswering"), {"name": "spans"}),
        (config_of("AlbertForMultipleChoice"), {"name": "multiple_choice"}),
        (config_of("AlbertForMaskedLM"), {}),
        (config_of("AlbertModel", "a", "b"), {}),
        (config_of("AlbertModel", "a", "b") | {"architectures": None}, {"labels": ["a", "b"]}),
    ],
)
def test_the_config_tells_task_and_labels(values, expected):
    assert read_task(values) == expected


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"id2label": {"1": "no", "2": "yes"}}, "id2label={'1': 'no', '2': 'yes'}: expected"),
        ({"problem_type": "ranking"}, "problem_type='ranking': expected one of single_label"),
    ],
)
def test_a_task_that_is_not_theirs_is_refused(values, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        read_task(config_of(SEQUENCE) | values)


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (task_of("classification", "no", "可"), "single_label_classification"),
        ({"labels": ["no", "可"]}, "single_label_classification"),
        (task_of("multi_label_classification", "no", "可"), "multi_label_classification"),
        (task_of("regression"), "regression"),
        (task_of("token_classification", "B-LOC", "I-LOC", "O"), None),
        ({"name": "multiple_choice"}, None),
    ],
)
def test_task_and_labels_are_written_and_read_again(task, expected):
    labels = task.get("labels") or []
    values = write_task(len(labels) or 1, task)
    assert values.get("problem_type") == expected
    if labels:
        assert values["label2id"] == {label: number for number, label in enumerate(labels)}
    assert read_task(values) == {"name": "classification"} | task


def test_a_wrong_number_of_labels_is_refused():
    with pytest.raises(ValueError, match="the head has 3 outputs, but the task has 2 labels: 0, 1"):
        write_task(3, task_of("classification", "0", "1"))


def test_a_decoder_that_is_not_tied_is_refused_where_masked_words_are_predicted(tmp_path):
    weights = dict(to_hugging_face(random_weights(SHARED), SHARED))
    words = weights["albert.embeddings.word_embeddings.weight"]
    for decoder, is_tied in ((words, True), (words + np.float32(1e-3), False)):
        arrays = {name: np.ascontiguousarray(array) for name, array in weights.items()}
        arrays["predictions.decoder.weight"] = decoder
        save_file(arrays, tmp_path / "model.safetensors")
        assert load_checkpoint(AlbertEncoder(SHARED), str(tmp_path)).fits
        if is_tied:
            assert load_checkpoint(AlbertForPretraining(SHARED), str(tmp_path)).fits
            continue
        with pytest.raises(ValueError, match=r"a matrix of its own, predictions\.decoder\.weight"):
            load_checkpoint(AlbertForPretraining(SHARED), str(tmp_path))
