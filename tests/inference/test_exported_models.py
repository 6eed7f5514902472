"""What `albert convert` writes for other runtimes, beside the answers, and what opens it.

That all of it answers as the model does is held by `tests/test_folders_and_doors.py`.
"""

from __future__ import annotations

import dataclasses
import importlib.machinery
import json
import pathlib
import re
import resource
import shlex
import shutil
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf import inference
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.cli.flags import parse
from albert_tf.inference import convert, exporting
from albert_tf.model.config import AlbertConfig
from tests.answers_without import answer_without
from tests.conftest import ROOT, TINY_SHAPE
from tests.inference.conftest import SIZE, TEXTS
from tests.inference.test_sentence_modules import write_modules
from tests.test_folders_and_doors import predict_with_tflite

pytestmark = pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning")

EXTRAS = {"openvino": "openvino", "onnx": "tf2onnx"}  # format → package that writes it


@pytest.fixture(autouse=True, scope="module")
def _eager():
    """Replaces the folder's fixture, which hides OpenVINO."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def write_as(folder, output, output_format, **options):
    return list(convert.run(convert.Settings(folder, str(output), output_format, **options)))


@pytest.fixture(scope="module")
def exported_of(tmp_path_factory, saved):
    """A function that returns the folder of a kind of model in a format."""
    home = tmp_path_factory.mktemp("exported")

    def export(kind, output_format):
        pytest.importorskip(EXTRAS[output_format], reason=f"needs the extra {output_format}")
        folder = home / output_format / kind
        if not folder.exists():
            folder.parent.mkdir(exist_ok=True)
            write_as(saved(kind), folder, output_format)
        return folder

    return export


@pytest.mark.ci
def test_the_commands_of_the_page_on_deployment_run(saved, tmp_path, monkeypatch):
    pytest.importorskip("openvino", reason="needs the extra openvino")
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    section = page.split("\n## Without TensorFlow\n")[1].split("\n## ")[0]
    commands = [shlex.split(line)[1:] for line in re.findall("^albert .*$", section, re.M)]
    assert [command[0] for command in commands] == ["convert", "predict"]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(saved("classification"), "work/mrpc")
    *_, said = convert.run(parse(convert.Settings, commands[0][1:]))
    assert said == "wrote mrpc_server (openvino)"
    flags = [x.replace("=mrpc_server", f"={tmp_path}/mrpc_server") for x in commands[1]]
    assert json.loads(answer_without(None, flags))["label"] in ("water", "land")


@pytest.fixture
def write(tmp_path, toy_spm_model):
    """A function that writes a folder whose exported model is damaged."""

    def write(name, **record):
        config = TINY_SHAPE | {"vocab_size": 120}
        (tmp_path / "albert_config.json").write_text(json.dumps(config))
        (tmp_path / "spiece.model").write_bytes(pathlib.Path(toy_spm_model).read_bytes())
        (tmp_path / name).write_text("x")
        settings = {"do_lower_case": True, "max_seq_length": 11}
        task = {"name": "classification", "labels": ["a", "b"]}
        RunFolder(str(tmp_path)).write_record(RunRecord(settings=settings, task=task, **record))
        return str(tmp_path)

    return write


def pretend(monkeypatch, package, is_installed):
    """Makes it look as if a package were installed, or not."""
    module = types.ModuleType(package)
    module.__spec__ = importlib.machinery.ModuleSpec(package, None)
    monkeypatch.setitem(sys.modules, package, module if is_installed else None)


def remove(name):
    return lambda folder: (folder / name).unlink()


# What the folder has and is asked for → what is said. ONNX Runtime is installed, and opens nothing.
REFUSED = {
    "no OpenVINO": ("model.xml", {}, r"model\.xml requires .*pip install 'albert-tf2\[openvino\]'"),
    "TensorFlow": (
        *("model.onnx", {"engine": "tensorflow"}),
        r"engine=tensorflow: .*model\.onnx is for other runtimes",
    ),
    "bfloat16": (
        *("model.onnx", {"precision": "bfloat16"}),
        "precision=bfloat16: onnxruntime computes .* float32 only",
    ),
    "another task": (
        *("model.onnx", {"task": "embeddings"}),
        "exported for the task classification, and cannot .* embeddings",
    ),
    "similarity": (
        *("model.onnx", {"similarity": True, "text_b": "a ship"}),
        "for the task classification, and cannot",
    ),
    "a damaged file": ("model.onnx", {}, r"model\.onnx: onnxruntime cannot open it"),
    "no vocabulary": ("model.onnx", {}, "no vocabulary found", remove("spiece.model")),
    "no record": ("model.onnx", {}, r"no run\.json beside it says what", remove("run.json")),
    "another vocabulary": (
        *("model.onnx", {}, "was trained with another vocabulary: 97 entries"),
        lambda folder: (folder / "spiece.model").rename(folder / "kept"),
    ),
    "TFLite": (
        *("albert_model.tflite", {}),
        r"tflite, which takes ids .* to onnx or openvino",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_exported_folder_cannot_answer_is_refused(name, write, tmp_path, monkeypatch):
    pretend(monkeypatch, "openvino", False)
    pretend(monkeypatch, "onnxruntime", True)
    file, options, said, *changes = REFUSED[name]
    record = {}
    if name == "another vocabulary":
        record, changes = {"files": {"vocabulary": FileRecord("97 entries, sha256 1", "x")}}, ()
    folder = write(file, **record)
    for change in changes:
        change(tmp_path)
    with pytest.raises((ValueError, OSError), match=said):
        next(inference.run(inference.Settings(model_dir=folder, text="a boat", **options)))


def test_a_runtime_that_is_not_installed_is_named_with_its_extra(write, monkeypatch):
    pretend(monkeypatch, "onnxruntime", False)
    with pytest.raises(
        ValueError, match=r"onnx requires .*pip install 'albert-tf2\[onnxruntime\]'"
    ):
        albert_tf.load_predictor(write("model.onnx"))


@pytest.mark.ci
@pytest.mark.parametrize("output_format", EXTRAS)
def test_files_and_labels_of_another_model_are_refused(output_format, exported_of, tmp_path):
    folder = shutil.copytree(exported_of("classification", output_format), tmp_path / "model")
    assert {path.name for path in folder.iterdir()} > {"labels.txt", "albert_config.json"}
    record = (folder / "run.json").read_text()
    for labels in (["land", "water"], ["water"], []):
        values = json.loads(record)
        values["task"]["labels"] = labels
        (folder / "run.json").write_text(json.dumps(values))
        with pytest.raises(ValueError, match=rf"^{folder}: the labels in run\.json, .* not those"):
            albert_tf.load_predictor(str(folder))
    (folder / "run.json").write_text(record)
    for name in {"model.xml", "model.bin", "model.onnx"} & {x.name for x in folder.iterdir()}:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(ValueError, match=rf"^{folder}: {name} \(crc32c .* is not the file"):
            albert_tf.load_predictor(str(folder))
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("is_exported", [True, False])
def test_the_log_says_which_precision_is_used(is_exported, write, saved, monkeypatch, caplog):
    session = types.SimpleNamespace(get_inputs=list, get_outputs=list)
    pretend(monkeypatch, "onnxruntime", True)
    runtime = sys.modules["onnxruntime"]
    monkeypatch.setattr(runtime, "SessionOptions", types.SimpleNamespace, raising=False)
    monkeypatch.setattr(runtime, "InferenceSession", lambda *_, **__: session, raising=False)
    folder = write("model.onnx") if is_exported else saved("classification")
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        with caplog.at_level("INFO"):
            predict = albert_tf.load_predictor(folder)
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
    precision = "float32" if is_exported else "bfloat16"
    assert f"computed by {predict.engine} in {precision}" in caplog.text


def test_an_exported_model_is_no_checkpoint(write):
    with pytest.raises(ValueError, match=r"model\.xml is for another runtime, and no weights"):
        albert_tf.from_pretrained(write("model.xml"), "classification")


@pytest.mark.ci
def test_rows_of_full_length_keep_their_length(exported_of):
    folder = str(exported_of("mean of the last layer", "openvino"))
    with pytest.raises(ValueError, match="max_seq_length=20: the exported model takes rows of 90"):
        albert_tf.load_predictor(folder, max_seq_length=20)


@pytest.mark.ci
def test_the_modules_of_sentence_transformers_are_exported(saved, tmp_path):
    pytest.importorskip("openvino", reason="needs the extra openvino")
    folder = shutil.copytree(saved("embeddings"), tmp_path / "model")
    pooling = {"word_embedding_dimension": SIZE, "pooling_mode_max_tokens": True}
    write_modules(folder, ("Transformer", {}), ("Pooling", pooling), ("Normalize", {}))
    (folder / "sentence_bert_config.json").write_text(
        '{"max_seq_length": 9, "do_lower_case": true}'
    )
    write_as(str(folder), tmp_path / "new", "openvino")
    expected = albert_tf.load_predictor(str(folder), engine="tensorflow")(TEXTS)
    embed = albert_tf.load_predictor(str(tmp_path / "new"))
    np.testing.assert_allclose(embed(TEXTS), expected, atol=1e-5)
    assert embed.max_seq_length == 9
    assert embed([]).shape == (0, SIZE)
    assert embed.task.modules.lowercases


@pytest.mark.ci
def test_quantized_weights_are_smaller_with_similar_outputs(toy_tokenizer, tmp_path):
    shape = {"vocab_size": toy_tokenizer.vocab_size, "hidden_size": 44, "intermediate_size": 64}
    config = AlbertConfig(**TINY_SHAPE | shape)  # int8 is for arrays of 1,024 elements and more
    model = albert_tf.AlbertForClassification(config, 3)
    batch = toy_tokenizer(TEXTS[:2], max_length=11, padding="max_length")
    expected, sizes = tf.nn.softmax(model(batch)), []
    albert_tf.save_pretrained(model, str(tmp_path / "model"), toy_tokenizer)
    for name, dtypes, least, most in (
        ("none", set(), 0, 1e-6),
        ("float16", {np.float16}, 1e-9, 0.01),
        ("int8", {np.int8}, 1e-6, 0.01),
    ):
        options = {"quantization": name, "max_seq_length": 11}
        *_, said, _ = write_as(str(tmp_path / "model"), tmp_path / name, "tflite", **options)
        assert said.startswith("largest difference of an output from the model")
        content = (tmp_path / name / "albert_model.tflite").read_bytes()
        found = predict_with_tflite(content, batch)
        assert least <= np.abs(found["probabilities"] - expected).max() < most
        details = tf.lite.Interpreter(model_content=content).get_tensor_details()
        assert {detail["dtype"] for detail in details} & {np.float16, np.int8} == dtypes
        sizes.append(len(content))
    assert sizes[0] > sizes[1] > sizes[2]


@pytest.mark.ci
def test_a_file_that_computes_something_else_is_not_written(saved, tmp_path, monkeypatch):
    def write(*arguments):
        return lambda batch: {"probabilities": np.full((1, 2), 0.25, np.float32)}

    forms = {"tflite": dataclasses.replace(exporting.FORMATS["tflite"], write_model=write)}
    monkeypatch.setattr(exporting, "FORMATS", forms)
    with pytest.raises(ValueError, match=r"differs from the model by .*; nothing was written"):
        write_as(saved("classification"), tmp_path / "new", "tflite")
    assert not list(tmp_path.iterdir())


@pytest.mark.ci
@pytest.mark.parametrize("output_format", ["tflite", "openvino", "onnx", "saved_model"])
def test_a_full_disk_is_said(output_format, saved, tmp_path):
    pytest.importorskip(EXTRAS.get(output_format, "tensorflow"), reason="needs an extra")
    source = saved("embeddings")
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match=r"Free some space|Raise the limit of the size"):
            write_as(source, tmp_path / "new", output_format)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "output_format", "options", "said"),
    [
        ("multiple_choice", "tflite", {}, "a TFLite model has a fixed number of options"),
        ("classification", "onnx", {}, r"onnx needs tf2onnx: pip install 'albert-tf2\[onnx\]'"),
    ],
)
def test_what_cannot_be_written_is_refused(
    kind, output_format, options, said, saved, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ValueError, match=said):
        write_as(saved(kind), tmp_path / "new", output_format, **options)
    assert not (tmp_path / "new").exists()
