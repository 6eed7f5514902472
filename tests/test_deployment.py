"""`albert convert` for other runtimes: their files answer as the predictor of the folder does."""

from __future__ import annotations

import dataclasses
import os
import resource
import sys

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.inference import exporting
from albert_tf.inference.convert import Settings, run
from albert_tf.model.config import AlbertConfig
from tests.conftest import TINY_SHAPE
from tests.inference.conftest import KINDS, TEXTS, make_model

pytestmark = pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning")

LENGTH = 24
NEEDED = {"openvino": "openvino", "onnx": "tf2onnx"}  # format → package
PREDICTED = {"classification": "probabilities", "embeddings": "mean"}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory, toy_tokenizer):
    """Returns the folder of a saved model of a kind."""
    home = tmp_path_factory.mktemp("models")

    def save(kind):
        folder = str(home / kind)
        if not os.path.exists(folder):
            model = make_model(kind, toy_tokenizer)
            albert_tf.save_pretrained(model, folder, toy_tokenizer, KINDS[kind][2])
        return folder

    return save


def convert(folder, output, output_format, **options):
    return list(run(Settings(folder, str(output), output_format, **options)))


def run_tflite(folder, batch):
    runner = tf.lite.Interpreter(f"{folder}/albert_model.tflite").get_signature_runner()
    rows = [runner(**{name: x[row : row + 1] for name, x in batch.items()}) for row in range(2)]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def run_openvino(folder, batch):
    openvino = pytest.importorskip("openvino", reason="needs the extra openvino")
    compiled = openvino.Core().compile_model(
        f"{folder}/model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    results = compiled({port.any_name: batch[port.any_name] for port in compiled.inputs})
    return {port.any_name: results[port] for port in compiled.outputs}


def run_onnx(folder, batch):
    import onnxruntime

    session = onnxruntime.InferenceSession(f"{folder}/model.onnx")
    names = [node.name for node in session.get_outputs()]
    values = session.run(names, {node.name: batch[node.name] for node in session.get_inputs()})
    return dict(zip(names, values, strict=True))


def run_saved_model(folder, batch):
    served = tf.saved_model.load(folder)
    name = "tensors" if "tensors" in served.signatures else "serving_default"
    return served.signatures[name](**{name: tf.constant(x) for name, x in batch.items()})


RUN = {
    "tflite": run_tflite,
    "openvino": run_openvino,
    "onnx": run_onnx,
    "saved_model": run_saved_model,
}


@pytest.mark.ci
@pytest.mark.parametrize("output_format", RUN)
@pytest.mark.parametrize("kind", PREDICTED)
def test_a_file_answers_as_the_predictor(kind, output_format, folder_of, toy_tokenizer, tmp_path):
    if output_format == "onnx":
        pytest.importorskip("tf2onnx", reason="needs the extra onnx")
    folder, output = folder_of(kind), tmp_path / "new"
    said = convert(folder, output, output_format, max_seq_length=LENGTH)
    assert said[-1] == f"wrote {output} ({output_format})"
    texts = TEXTS[:2]
    batch = toy_tokenizer(texts, max_length=LENGTH, padding="max_length")
    found = np.asarray(RUN[output_format](str(output), batch)[PREDICTED[kind]])
    predict = albert_tf.load_predictor(folder, max_seq_length=LENGTH, engine="tensorflow")
    expected = predict(texts)
    if kind == "classification":
        expected = [list(result["probabilities"].values()) for result in expected]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["token_classification", "multiple_choice", "answerable_spans"])
def test_all_tasks_are_written_with_what_is_needed_to_use_them(kind, folder_of, tmp_path):
    pytest.importorskip("openvino", reason="needs the extra openvino")
    convert(folder_of(kind), tmp_path / "new", "openvino")
    written = {path.name for path in (tmp_path / "new").iterdir()}
    assert written >= {"model.xml", "model.bin", "albert_config.json", "run.json", "spiece.model"}
    assert ("labels.txt" in written) == (kind == "token_classification")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("quantization", "stored"), [("none", None), ("float16", np.float16), ("int8", np.int8)]
)
def test_weights_are_stored_as_asked_and_their_difference_is_said(
    toy_tokenizer, tmp_path, quantization, stored
):
    shape = TINY_SHAPE | {"vocab_size": toy_tokenizer.vocab_size}
    config = AlbertConfig(
        **shape | {"hidden_size": 40, "intermediate_size": 64}
    )  # int8 needs 1,024
    model = albert_tf.AlbertForClassification(config, num_labels=2)
    model(toy_tokenizer(["a boat"], max_length=9))
    folder, output = str(tmp_path / "model"), tmp_path / "new"
    albert_tf.save_pretrained(model, folder, toy_tokenizer)
    *_, said, _ = convert(folder, output, "tflite", quantization=quantization)
    assert said.startswith("largest difference of an output from the model")
    details = tf.lite.Interpreter(f"{output}/albert_model.tflite").get_tensor_details()
    found = {detail["dtype"] for detail in details} & {np.float16, np.int8}
    assert found == ({stored} if stored else set())


@pytest.mark.ci
def test_a_file_that_computes_something_else_is_not_written(folder_of, tmp_path, monkeypatch):
    def write(*arguments):
        return lambda batch: {"probabilities": np.full((1, 2), 0.25, np.float32)}

    forms = {"tflite": dataclasses.replace(exporting.FORMATS["tflite"], write_model=write)}
    monkeypatch.setattr(exporting, "FORMATS", forms)
    with pytest.raises(ValueError, match=r"differs from the model by .*; nothing was written"):
        convert(folder_of("classification"), tmp_path / "new", "tflite")
    assert not list(tmp_path.iterdir())


@pytest.mark.ci
@pytest.mark.parametrize("output_format", ["tflite", "openvino", "onnx", "saved_model"])
def test_a_full_disk_is_said(output_format, folder_of, tmp_path):
    pytest.importorskip(NEEDED.get(output_format, "tensorflow"), reason="needs an extra")
    source = folder_of("embeddings")
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match=r"Free some space|Raise the limit of the size"):
            convert(source, tmp_path / "new", output_format)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
    assert not list(tmp_path.iterdir())


def test_a_format_whose_package_is_missing_is_refused_before_the_model_is_opened(
    monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ValueError, match=r"onnx needs tf2onnx: pip install 'albert-tf2\[onnx\]'"):
        convert(tmp_path / "none", tmp_path / "new", "onnx")


@pytest.mark.parametrize(
    ("kind", "output_format", "options", "said"),
    [
        ("multiple_choice", "tflite", {}, "a TFLite model has a fixed number of options"),
        ("classification", "onnx", {"quantization": "int8"}, "requires --output_format=tflite"),
    ],
)
def test_what_cannot_be_written_is_refused(kind, output_format, options, said, folder_of, tmp_path):
    with pytest.raises(ValueError, match=said):
        convert(folder_of(kind), tmp_path / "new", output_format, **options)
    assert not (tmp_path / "new").exists()
