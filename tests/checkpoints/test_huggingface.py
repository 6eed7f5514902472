"""Hugging Face's format, written and read; compared with transformers if it is installed."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from safetensors import safe_open

from albert_tf import ops
from albert_tf.checkpoints import huggingface, tokenizer_json
from albert_tf.checkpoints.huggingface import (
    config_to_hugging_face,
    save_hugging_face,
    to_hugging_face,
)
from albert_tf.checkpoints.loading import load_checkpoint, read_weights
from albert_tf.config import ACTIVATIONS, AlbertConfig
from albert_tf.inference.predictor import load_predictor
from albert_tf.modeling import AlbertForPretraining
from albert_tf.tokenization import FullTokenizer
from tests.checkpoints.checkpoint_samples import (
    ALBERT_ZH,
    GOOGLE,
    INNER,
    SHARED,
    SQUARE,
    random_arrays,
    random_weights,
    shapes_of,
)

ROOMY = dataclasses.replace(SHARED, max_position_embeddings=32)


@pytest.mark.parametrize("config", [INNER, SQUARE, dataclasses.replace(SHARED, hidden_act="relu")])
def test_weights_and_config_round_trip_bit_for_bit(config, tmp_path):
    weights = random_weights(config)
    save_hugging_face(str(tmp_path), weights, config)
    values = json.loads((tmp_path / "config.json").read_text())
    assert AlbertConfig.from_dict(values) == config
    read = read_weights(str(tmp_path), AlbertForPretraining(config))
    assert set(read) == set(weights)
    for name, value in weights.items():
        np.testing.assert_array_equal(read[name], value, name)


def test_the_file_is_what_from_pretrained_expects(tmp_path):
    weights = random_weights(INNER)
    save_hugging_face(str(tmp_path), weights, INNER)
    with safe_open(tmp_path / "model.safetensors", framework="numpy") as opened:
        assert opened.metadata() == {"format": "pt"}
        layer = "albert.encoder.albert_layer_groups.2.albert_layers.1."
        assert opened.get_tensor(layer + "ffn.weight").shape == (20, 12)
        assert opened.get_tensor("albert.embeddings.word_embeddings.weight").shape == (97, 8)
        assert opened.get_tensor("sop_classifier.classifier.weight").shape == (2, 12)
        assert len(opened.keys()) == len(weights)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["architectures"] == ["AlbertForPreTraining"]
    assert (values["model_type"], values["hidden_act"]) == ("albert", "gelu_new")
    assert values["layer_norm_eps"] == 1e-12


def test_equal_sizes_get_an_identity_projection():
    weights = to_hugging_face(random_weights(SQUARE), SQUARE)
    scope = "albert.encoder.embedding_hidden_mapping_in"
    np.testing.assert_array_equal(weights[f"{scope}.weight"], np.eye(12))
    np.testing.assert_array_equal(weights[f"{scope}.bias"], np.zeros(12))


def test_models_not_supported_by_their_albert_are_rejected():
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
        ({"output_weights": (3, 12), "output_bias": (3,)}, "AlbertForSequenceClassification"),
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


@pytest.mark.parametrize("package", ["safetensors.numpy", "tokenizers"])
def test_the_error_without_the_extra_says_what_to_install(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=r"pip install 'albert-tf2\[hf\]'"):
        save_hugging_face(str(tmp_path), random_weights(SHARED), SHARED)
    assert not list(tmp_path.iterdir())


def test_tokenizer_files_are_written(tmp_path, toy_spm_model):
    save_hugging_face(str(tmp_path), random_weights(SHARED), SHARED, spm_model_file=toy_spm_model)
    with open(toy_spm_model, "rb") as stream:
        assert (tmp_path / "spiece.model").read_bytes() == stream.read()
    values = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (values["tokenizer_class"], values["do_lower_case"]) == ("PreTrainedTokenizerFast", True)
    assert (values["mask_token"], values["pad_token"]) == ("[MASK]", "<pad>")
    assert values["model_max_length"] == SHARED.max_position_embeddings
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert content["model"]["type"] == "Unigram"
    vocab_file = tmp_path / "zh.txt"
    vocab_file.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    save_hugging_face(str(tmp_path), random_weights(SHARED), SHARED, str(vocab_file), None, False)
    assert (tmp_path / "vocab.txt").read_bytes() == vocab_file.read_bytes()
    values = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (values["unk_token"], values["do_lower_case"]) == ("[UNK]", False)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert content["model"]["type"] == "WordPiece"


def test_a_model_that_tokenizer_json_cannot_hold_is_left_to_their_class(
    tmp_path, toy_spm_model, monkeypatch, caplog
):
    def refuse(tokenizer):
        raise ValueError("tokenizer.json cannot hold it")

    monkeypatch.setattr(tokenizer_json, "tokenizer_json", refuse)
    save_hugging_face(str(tmp_path), random_weights(SHARED), SHARED, spm_model_file=toy_spm_model)
    assert not (tmp_path / "tokenizer.json").exists()
    values = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert values["tokenizer_class"] == "AlbertTokenizer"
    assert "cannot hold it. transformers needs sentencepiece and protobuf" in caplog.text


RUN_TRANSFORMERS = """
import sys
import numpy as np
import torch
from transformers import AlbertForPreTraining

folder, inputs, outputs = sys.argv[1:]
model, info = AlbertForPreTraining.from_pretrained(folder, output_loading_info=True)
assert not info["missing_keys"] and not info["unexpected_keys"], info
assert not info["mismatched_keys"], info
model.eval()
batch = {name: torch.tensor(value) for name, value in np.load(inputs).items()}
results = {"epsilon": model.predictions.LayerNorm.eps}
for epsilon in (model.predictions.LayerNorm.eps, 1e-12, 1e-5):
    model.predictions.LayerNorm.eps = epsilon
    with torch.no_grad():
        out = model(**batch, output_hidden_states=True)
    results[f"masked_lm_logits_{epsilon:g}"] = out.prediction_logits
    results["sentence_order_logits"] = out.sop_logits
    results["sequence_output"] = out.hidden_states[-1]
np.savez(outputs, **results)
"""
RUN_TOKENIZER = """
import json, sys
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
first, second = sys.argv[2:]
print(json.dumps(dict(tokenizer(first, second))))
"""
RUN_PIPELINES = """
import json, sys
from transformers import pipeline

answers = []
for task, folder, texts in json.loads(sys.argv[1]):
    answers.append(pipeline(task, model=folder, top_k=5)(texts))
print(json.dumps(answers))
"""
SAVE_TRANSFORMERS = """
import sys
import torch
from transformers import AlbertConfig, AlbertForPreTraining

folder, config = sys.argv[1:]
torch.manual_seed(5)
AlbertForPreTraining(AlbertConfig.from_json_file(config)).save_pretrained(folder)
"""


def run(python, code, *arguments):
    """Runs code in another Python without this one's packages; returns its output."""
    environment = {n: x for n, x in os.environ.items() if n != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", code, *map(str, arguments)],
        env=environment | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def initial_weights(config):
    """Weights as small as after initialization, for which the epsilon matters."""
    weights = random_weights(config)
    return {
        name: np.ones_like(x) + 0.1 * x if name.endswith("/gamma") else 0.02 * x
        for name, x in weights.items()
    }


def logits_with_epsilon(model, sequence_output, positions, epsilon, monkeypatch):
    """Returns our masked-LM logits with another epsilon in the LayerNorm of that head only."""
    with monkeypatch.context() as context:
        context.setattr(ops, "LAYER_NORM_EPSILON", epsilon)
        x = tf.gather(sequence_output, positions, batch_dims=1)  # [B, P, H]
        return model.masked_lm(x, model.encoder.embeddings).numpy()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("config", [INNER, SQUARE, dataclasses.replace(SHARED, hidden_act="relu")])
def test_transformers_computes_the_same(
    config, transformers_python, tiny_batch, tmp_path, monkeypatch
):
    """Some releases of transformers differ in the epsilon of the masked-LM head, 1e-5."""
    save_hugging_face(str(tmp_path), initial_weights(config), config)
    names = {
        "input_ids": "input_ids",
        "input_mask": "attention_mask",
        "segment_ids": "token_type_ids",
    }
    batch = {name: tiny_batch[name] for name in names}
    np.savez(tmp_path / "in.npz", **{names[n]: x.astype(np.int64) for n, x in batch.items()})
    files = (tmp_path, tmp_path / "in.npz", tmp_path / "out.npz")
    run(transformers_python, RUN_TRANSFORMERS, *files)
    theirs = np.load(tmp_path / "out.npz")
    model = AlbertForPretraining(config)
    load_checkpoint(model, str(tmp_path))
    positions = tf.tile(tf.range(11)[None], (5, 1))
    ours = model(batch | {"masked_lm_positions": positions})
    ours |= model.encoder(batch)
    for name in ("sequence_output", "sentence_order_logits"):
        np.testing.assert_allclose(theirs[name], ours[name], rtol=0, atol=1e-5)
    exact = ours["masked_lm_logits"].numpy()
    np.testing.assert_allclose(theirs["masked_lm_logits_1e-12"], exact, rtol=0, atol=1e-5)
    rough = logits_with_epsilon(model, ours["sequence_output"], positions, 1e-5, monkeypatch)
    np.testing.assert_allclose(theirs["masked_lm_logits_1e-05"], rough, rtol=0, atol=1e-5)
    assert abs(rough - exact).max() > 1e-4, "the epsilon must show for this to prove anything"
    assert float(theirs["epsilon"]) in (1e-5, 1e-12)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_models_saved_by_transformers_load(transformers_python, tmp_path):
    config_file = tmp_path / "their_config.json"
    config_file.write_text(json.dumps(huggingface.config_to_hugging_face(INNER, {})))
    run(transformers_python, SAVE_TRANSFORMERS, tmp_path / "saved", config_file)
    values = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert AlbertConfig.from_dict(values) == INNER
    report = load_checkpoint(AlbertForPretraining(INNER), str(tmp_path / "saved"))
    assert report.missing == report.unused == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_their_tokenizer_produces_our_ids_and_segments(
    transformers_python, tmp_path, toy_spm_model
):
    save_hugging_face(str(tmp_path), random_weights(SHARED), SHARED, spm_model_file=toy_spm_model)
    first, second = "The river froze.", "A small Café near the boat"
    tokenizer = FullTokenizer(spm_model_file=toy_spm_model)
    a, b = tokenizer.encode(first), tokenizer.encode(second)
    cls_id, sep_id = tokenizer.cls_id, tokenizer.sep_id
    encoded = json.loads(run(transformers_python, RUN_TOKENIZER, tmp_path, first, second))
    assert encoded["input_ids"] == [cls_id, *a, sep_id, *b, sep_id]
    assert encoded["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_their_pipelines_produce_our_scores_and_names(transformers_python, tmp_path, toy_spm_model):
    pretrained, classifier = tmp_path / "pretrained", tmp_path / "classifier"
    head = random_arrays({"output_weights": (3, 12), "output_bias": (3,)})
    names = ["bad", "fair", "good"]
    task = {"name": "classification", "labels": names}
    weights = random_weights(ROOMY)
    for folder in (pretrained, classifier):
        folder.mkdir()
    save_hugging_face(str(pretrained), weights, ROOMY, spm_model_file=toy_spm_model)
    weights = {n: x for n, x in weights.items() if n.startswith("bert/")} | head
    save_hugging_face(str(classifier), weights, ROOMY, None, toy_spm_model, True, task)

    texts = ["The river froze in 1999, near the boat.", "a café"]
    masked = ["The [MASK] froze.", "A boat near the [MASK].", "[MASK] sea"]
    calls = [
        ("text-classification", str(classifier), texts),
        ("fill-mask", str(pretrained), masked),
    ]
    labels, words = json.loads(run(transformers_python, RUN_PIPELINES, json.dumps(calls)))
    for row, answer in zip(load_predictor(str(classifier))(texts), labels, strict=True):
        scores = {entry["label"]: entry["score"] for entry in answer}
        assert scores == pytest.approx(row["probabilities"], abs=1e-5)
    fill_mask = load_predictor(str(pretrained), "fill_mask", top_k=40)
    for row, answer in zip(fill_mask(masked), words, strict=True):
        ours = {entry["token"]: entry["score"] for entry in row["masks"][0]}
        known = [entry for entry in answer if entry["token_str"] in ours]
        assert known, "they offer special symbols as well"
        for entry in known:
            assert entry["score"] == pytest.approx(ours[entry["token_str"]], abs=1e-5)
