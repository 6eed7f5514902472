"""Files that change while a model is open: it keeps its answers, and the process goes on."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.export.onnx_openvino import ConversionError
from albert_tf.inference import convert, predictor, tensorflow_engine
from albert_tf.model.config import AlbertConfig
from tests.checkpoints.checkpoint_samples import values_of
from tests.conftest import TINY_SHAPE
from tests.inference.conftest import KINDS, TEXTS

# Format of the folder and engine → package that is needed.
RUNTIMES = {
    ("tensorflow", "tensorflow"): "tensorflow",
    ("huggingface", "tensorflow"): "tokenizers",
    ("tensorflow", "openvino"): "openvino",
    ("openvino", "auto"): "openvino",
    ("onnx", "auto"): "tf2onnx",
    ("onnx", "openvino"): "tf2onnx",
}
WEIGHTS = ("model.ckpt-best.index", "model.ckpt-best.data-00000-of-00001", "model.safetensors")
WEIGHTS += ("model.xml", "model.bin", "model.onnx")


@pytest.fixture(autouse=True, scope="module")
def _eager():
    """Replaces the folder's fixture, which hides OpenVINO."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="module")
def folders_of(tmp_path_factory, toy_tokenizer):
    """A function that returns the folders of two models of the same shape, in a format."""
    home = tmp_path_factory.mktemp("models")
    # Arrays of 262 kB, at multiples of 64 bytes: others would not be mapped.
    shape = TINY_SHAPE | {"hidden_size": 16, "embedding_size": 16, "intermediate_size": 4096}
    shape |= {"vocab_size": toy_tokenizer.vocab_size}

    def write(output_format):
        folders = [home / f"{output_format}_{seed}" for seed in range(2)]
        for seed, folder in enumerate(folders):
            if folder.exists():
                continue
            if output_format != "tensorflow":
                source = str(write("tensorflow")[seed])
                list(convert.run(convert.Settings(source, str(folder), output_format)))
                continue
            model = albert_tf.AlbertForClassification(AlbertConfig(**shape), 2)
            model(toy_tokenizer(["a boat"]))
            random = np.random.default_rng(seed)
            for variable in model.variables:
                noise = 0.3 * random.standard_normal(variable.shape)
                variable.assign(noise + float("gamma" in variable.name))
            albert_tf.save_pretrained(model, str(folder), toy_tokenizer, labels=["water", "land"])
        return folders

    return write


def truncate(path, _):
    os.truncate(path, 0)


def copy_over(path, other):
    with open(path, "r+b") as stream:  # as cp and scp do
        stream.truncate()
        stream.write(other.read_bytes())


@pytest.fixture
def opened(request, folders_of, tmp_path):
    """Opens predictors of a folder, and changes its weights for a while."""
    output_format, engine = request.param
    pytest.importorskip(RUNTIMES[request.param], reason="needs the package of the format")
    ours, theirs = folders_of(output_format)
    folder = shutil.copytree(ours, tmp_path / "model")

    def load(source=folder, engine=engine):
        return albert_tf.load_predictor(str(source), engine=engine, batch_size=2)

    @contextlib.contextmanager
    def changed(change):
        paths = [folder / name for name in WEIGHTS if (folder / name).exists()]
        contents = [path.read_bytes() for path in paths]
        for path in paths:
            change(path, theirs / path.name)
        yield
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)

    def answers(predict, texts=TEXTS):
        return [list(result["probabilities"].values()) for result in predict(texts)]

    assert np.abs(np.subtract(answers(load()), answers(load(theirs)))).max() > 0.01
    return load, changed, answers


@pytest.mark.ci
@pytest.mark.parametrize("change", [truncate, copy_over])
@pytest.mark.parametrize("opened", RUNTIMES, indirect=True, ids="-".join)
def test_an_open_model_keeps_its_answers(opened, change):
    load, changed, answers = opened
    first, second = load(), load()
    expected = answers(second)
    with changed(change):
        found = [answers(first), answers(second)]  # before and after its first answer
    alone = [answers(second, [text])[0] for text in TEXTS]
    with contextlib.ExitStack() as stack:  # between two batches
        found.append(answers(first, TEXTS[:2]))
        stack.enter_context(changed(change))
        found[-1] += answers(first, TEXTS[2:])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # while another thread predicts
        texts = TEXTS * 5
        future = pool.submit(answers, first, texts)
        with changed(change):
            others = future.result()
    for one in (*found, alone, *np.reshape(others, (5, *np.shape(expected)))):
        np.testing.assert_allclose(one, expected, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_an_open_model_needs_nothing_of_its_folder(kind, saved, tmp_path):
    arguments = {
        "token_classification": [[["a", "boat"]]],
        "multiple_choice": [["It is _."], ["What?"], [["wide", "cold"]]],
        "spans": ["What waits?", "The boat waits."],
        "answerable_spans": ["What waits?", "The boat waits."],
        "fill_mask": ["the [MASK] of the boat"],
    }.get(kind, [TEXTS])
    predict, other = (
        albert_tf.load_predictor(str(folder), engine="tensorflow")
        for folder in (shutil.copytree(saved(kind), tmp_path / "model"), saved(kind))
    )
    shutil.rmtree(tmp_path / "model")
    np.testing.assert_equal(predict(*arguments), other(*arguments))


@pytest.mark.ci
@pytest.mark.parametrize("change", [truncate, copy_over])
@pytest.mark.parametrize("opened", [("tensorflow", "openvino")], indirect=True)
def test_a_model_that_openvino_cannot_run_is_not_read_again(opened, change, monkeypatch):
    def refuse(*_):
        raise ConversionError("cannot run it")

    load, changed, answers = opened
    expected = answers(load())
    monkeypatch.setattr(tensorflow_engine, "compile_with_openvino", refuse)
    monkeypatch.setattr(predictor, "MANY_ROWS", 1)
    predict = load(engine="auto")  # which takes TensorFlow in place of what cannot run
    with changed(change):
        np.testing.assert_allclose(answers(predict), expected, atol=1e-5)
    assert predict.engine == "tensorflow"


@pytest.mark.parametrize("change", [truncate, copy_over])
@pytest.mark.parametrize("output_format", ["tensorflow", "huggingface"])
def test_a_model_to_train_keeps_its_weights(folders_of, tmp_path, output_format, change):
    ours, theirs = folders_of(output_format)
    folder = shutil.copytree(ours, tmp_path / "model")
    model, _ = albert_tf.from_pretrained(str(folder))
    expected = {name: value.copy() for name, value in values_of(model).items()}
    for name in filter(os.path.exists, (folder / name for name in WEIGHTS)):
        change(name, theirs / name.name)
    for name, value in values_of(model).items():
        np.testing.assert_array_equal(value, expected[name], name)
