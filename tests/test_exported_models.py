"""Folders that `albert convert` has written for OpenVINO and ONNX Runtime, as models."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import json
import pathlib
import re
import shlex
import shutil
import subprocess
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
from albert_tf.inference import convert
from albert_tf.model.poolings import POOLINGS
from tests.conftest import ROOT, TINY_SHAPE
from tests.inference.conftest import KINDS, LONG, SIZE, TEXTS, make_model
from tests.inference.test_sentence_modules import write_modules

TAGGED = [[*"The river carries the rain .".split(), "down", "to"] * 20, ["boats"]]
CONTEXTS = ["The boat waits at the landing. " * 12, "Nobody knows whose the boat is."]
# Kind of model → arguments of a call; several windows, pairs, and texts that are too long.
CALLS = {
    "classification": [[*TEXTS, LONG]],
    "mean of the last layer": [TEXTS],
    "multi_label_classification": [TEXTS[:2], TEXTS[2:]],
    "regression": [TEXTS[::-1], TEXTS],
    "token_classification": [[*TAGGED, TEXTS[1]]],
    "multiple_choice": [TEXTS[:2], ["It is _.", "What?"], [["wide", "cold", "old"], ["a", "b"]]],
    "spans": [["What waits?", "Whose is the boat?"], CONTEXTS],
    "answerable_spans": [["What waits?", "Whose is the boat?"], CONTEXTS],
    "embeddings": [[*TEXTS, LONG]],
}
EXTRAS = {"openvino": "openvino", "onnx": "tf2onnx"}  # format → package that writes it


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory, toy_tokenizer):
    """A function that returns the folder of a saved model of a kind."""
    home = tmp_path_factory.mktemp("models")

    def save(kind):
        folder = home / kind
        if not folder.exists():
            model = make_model(kind, toy_tokenizer)
            albert_tf.save_pretrained(model, str(folder), toy_tokenizer, KINDS[kind][2])
        return str(folder)

    return save


@pytest.fixture
def eagerly():
    """Computes models of TensorFlow eagerly: compiling these takes longer."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="module")
def exported_of(tmp_path_factory, folder_of):
    """A function that returns the folder of a kind of model in a format."""
    home = tmp_path_factory.mktemp("exported")

    def export(kind, output_format):
        pytest.importorskip(EXTRAS[output_format], reason=f"needs the extra {output_format}")
        folder = home / output_format / kind
        if not folder.exists():
            folder.parent.mkdir(exist_ok=True)
            settings = convert.Settings(folder_of(kind), str(folder), output_format)
            list(convert.run(settings))
        return folder

    return export


def parts_of(result):
    """Yields the numbers and the texts of a result, in its order."""
    if isinstance(result, dict):
        result = list(result.items())
    if isinstance(result, (list, tuple, np.ndarray)):
        for part in result:
            yield from parts_of(part)
    else:
        yield result if isinstance(result, str) else float(result)


def check_equal(found, expected):
    """Checks that two results have the same texts, and numbers that differ by 1e-5 at most."""
    assert list(parts_of(found)) == [
        part if isinstance(part, str) else pytest.approx(part, abs=1e-5)
        for part in parts_of(expected)
    ]


def answer_without(folder, arguments):
    """What a process prints that cannot import what the server image lacks; see answers_without."""
    lacking = without_tensorflow_and_unlisted()
    done = subprocess.run(
        [sys.executable, "-m", "tests.answers_without", *lacking],
        cwd=ROOT,
        input=json.dumps([folder, arguments]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_tensorflow_and_unlisted():
    """The modules of TensorFlow, and of dependencies that docker/server.txt does not list."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    dependencies = project.split("\ndependencies = [")[1].split("\n]")[0]
    required = set(re.findall(r'^    "(.+?)",', dependencies, re.MULTILINE))
    listed = (ROOT / "docker" / "server.txt").read_text(encoding="utf-8").splitlines()
    needed = {line for line in listed if not line.startswith("#")}
    assert needed < required
    others = {re.split("[<>=]", line)[0] for line in required - needed}
    owners = importlib.metadata.packages_distributions()
    modules = [name for name, found in owners.items() if others & {x.lower() for x in found}]
    assert len(modules) >= len(others) > 3
    return ["tensorflow", "tf_keras", "keras", "tensorflow_text", *sorted(modules)]


@pytest.mark.ci
@pytest.mark.parametrize("output_format", EXTRAS)
@pytest.mark.parametrize("kind", CALLS)
def test_an_exported_model_answers_without_tensorflow_as_the_model_does(
    kind, output_format, exported_of, folder_of, eagerly
):
    printed = answer_without(str(exported_of(kind, output_format)), CALLS[kind])
    model = albert_tf.load_predictor(folder_of(kind), engine="tensorflow")
    check_equal(json.loads(printed), model(*CALLS[kind]))


@pytest.mark.ci
def test_the_program_answers_the_rows_of_a_file(exported_of, tmp_path):
    folder = str(exported_of("classification", "openvino"))
    rows = tmp_path / "rows.tsv"
    rows.write_text("id\ttext\ttext_b\n7\tThe river\tA boat\n8\tThe town\tThe sea\n", "utf-8")
    found = list(inference.run(inference.Settings(model_dir=folder, input_file=str(rows))))
    predict = albert_tf.load_predictor(folder)
    assert predict.engine == "openvino"
    assert [(row["line"], row["id"]) for row in found] == [(2, "7"), (3, "8")]
    results = predict([("The river", "A boat"), ("The town", "The sea")])
    assert [row["probabilities"] for row in found] == [row["probabilities"] for row in results]


@pytest.mark.ci
def test_the_commands_of_the_page_on_deployment_run(folder_of, tmp_path, monkeypatch):
    pytest.importorskip("openvino", reason="needs the extra openvino")
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    section = page.split("\n## Without TensorFlow\n")[1].split("\n## ")[0]
    commands = [shlex.split(line)[1:] for line in re.findall(r"^    (albert .*)$", section, re.M)]
    assert [command[0] for command in commands] == ["convert", "predict"]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder_of("classification"), "work/mrpc")
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


@pytest.mark.parametrize(
    ("name", "package"), [("model.xml", "openvino"), ("model.onnx", "onnxruntime")]
)
def test_a_runtime_that_is_not_installed_is_named_with_its_extra(name, package, write, monkeypatch):
    pretend(monkeypatch, package, False)
    settings = inference.Settings(model_dir=write(name), text="a boat")
    with pytest.raises(
        ValueError, match=rf"{name} requires .*pip install 'albert-tf2\[{package}\]'"
    ):
        next(inference.run(settings))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"engine": "tensorflow"}, r"engine=tensorflow: .*model\.onnx is for other runtimes"),
        ({"precision": "bfloat16"}, "precision=bfloat16: onnxruntime computes .* float32 only"),
        ({"task": "embeddings"}, "exported for the task classification, and cannot .* embeddings"),
        ({"similarity": True, "text_b": "a ship"}, "for the task classification, and cannot"),
        ({}, r"model\.onnx: onnxruntime cannot open it"),
    ],
)
def test_what_an_exported_model_cannot_do_is_refused(options, said, write, monkeypatch):
    pretend(monkeypatch, "onnxruntime", True)  # an empty module, which opens nothing
    settings = inference.Settings(model_dir=write("model.onnx"), text="a boat", **options)
    with pytest.raises(ValueError, match=said):
        next(inference.run(settings))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "spiece.model").unlink(), "no vocabulary found"),
        (lambda folder: (folder / "run.json").unlink(), r"no run\.json beside it says what"),
    ],
)
def test_a_folder_without_one_of_its_files_is_refused(change, said, write, tmp_path, monkeypatch):
    pretend(monkeypatch, "onnxruntime", True)
    folder = write("model.onnx")
    change(tmp_path)
    with pytest.raises((ValueError, OSError), match=said):
        albert_tf.load_predictor(folder)


@pytest.mark.ci
@pytest.mark.parametrize("output_format", EXTRAS)
def test_files_and_labels_of_another_model_are_refused(output_format, exported_of, tmp_path):
    folder = shutil.copytree(exported_of("classification", output_format), tmp_path / "model")
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
def test_the_log_says_which_precision_is_used(is_exported, write, folder_of, monkeypatch, caplog):
    session = types.SimpleNamespace(get_inputs=list, get_outputs=list)
    pretend(monkeypatch, "onnxruntime", True)
    runtime = sys.modules["onnxruntime"]
    monkeypatch.setattr(runtime, "SessionOptions", types.SimpleNamespace, raising=False)
    monkeypatch.setattr(runtime, "InferenceSession", lambda *_, **__: session, raising=False)
    folder = write("model.onnx") if is_exported else folder_of("classification")
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        with caplog.at_level("INFO"):
            predict = albert_tf.load_predictor(folder)
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
    precision = "float32" if is_exported else "bfloat16"
    assert f"computed by {predict.engine} in {precision}" in caplog.text


def test_another_vocabulary_is_refused(write, monkeypatch):
    pretend(monkeypatch, "onnxruntime", True)
    folder = write("model.onnx", files={"vocabulary": FileRecord("97 entries, sha256 1", "x")})
    with pytest.raises(ValueError, match="was trained with another vocabulary: 97 entries"):
        next(inference.run(inference.Settings(model_dir=folder, text="a boat")))


def test_the_folder_of_a_tflite_model_says_what_to_use_instead(write):
    with pytest.raises(FileNotFoundError, match=r"tflite, which takes ids .* to onnx or openvino"):
        albert_tf.load_predictor(write("albert_model.tflite"))


def test_an_exported_model_is_no_checkpoint(write):
    with pytest.raises(ValueError, match=r"model\.xml is for another runtime, and no weights"):
        albert_tf.from_pretrained(write("model.xml"), "classification")


@pytest.mark.ci
def test_openvino_computes_rows_of_full_length_where_padding_counts(folder_of, eagerly):
    pytest.importorskip("openvino", reason="needs the extra openvino")
    expected, found = (
        albert_tf.load_predictor(folder_of("mean of the last layer"), engine=engine)(TEXTS)
        for engine in ("tensorflow", "openvino")
    )
    check_equal(found, expected)


@pytest.mark.ci
def test_rows_of_full_length_keep_their_length(exported_of):
    folder = str(exported_of("mean of the last layer", "openvino"))
    with pytest.raises(ValueError, match="max_seq_length=20: the exported model takes rows of 90"):
        albert_tf.load_predictor(folder, max_seq_length=20)


@pytest.mark.ci
def test_all_poolings_are_exported(exported_of, folder_of, eagerly):
    for pooling in POOLINGS:
        expected, found = (
            albert_tf.load_predictor(folder, pooling=pooling, **engine)(TEXTS)
            for folder, engine in (
                (folder_of("embeddings"), {"engine": "tensorflow"}),
                (str(exported_of("embeddings", "openvino")), {}),
            )
        )
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.ci
def test_the_modules_of_sentence_transformers_are_exported(folder_of, tmp_path, eagerly):
    pytest.importorskip("openvino", reason="needs the extra openvino")
    folder = shutil.copytree(folder_of("embeddings"), tmp_path / "model")
    pooling = {"word_embedding_dimension": SIZE, "pooling_mode_max_tokens": True}
    write_modules(folder, ("Transformer", {}), ("Pooling", pooling), ("Normalize", {}))
    (folder / "sentence_bert_config.json").write_text(
        '{"max_seq_length": 9, "do_lower_case": true}'
    )
    list(convert.run(convert.Settings(str(folder), str(tmp_path / "new"), "openvino")))
    expected = albert_tf.load_predictor(str(folder), engine="tensorflow")(TEXTS)
    embed = albert_tf.load_predictor(str(tmp_path / "new"))
    np.testing.assert_allclose(embed(TEXTS), expected, atol=1e-5)
    assert embed.max_seq_length == 9
    assert embed([]).shape == (0, SIZE)
    assert embed.task.modules.lowercases
