"""What docs/serving.md says to send to TensorFlow Serving, sent through the signatures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
from concurrent import futures
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf import classification
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.classification.task import Classifier
from albert_tf.classification.tasks import TASKS
from albert_tf.serving import saved_model
from albert_tf.serving.pretrained_model import make_export
from albert_tf.tokenization import FullTokenizer
from tests.conftest import ROOT
from tests.serving.serving_rest import respond

PAGE = (
    (ROOT / "docs" / "serving.md").read_text(encoding="utf-8").split("\n## TensorFlow Serving\n")[1]
)
WORD_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "he", "is", "old", "boat", "a", "京"]
LENGTH = 13
KINDS = ("classification", "embeddings")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


# Name of a task on the page → its JSON objects: requests, each with its response behind it.
REQUESTS = {
    name: list(map(json.loads, blocks(text, "json")))
    for name, text in re.findall(r"^#### Requests for (.+?)\n(.*?)(?=^###|\Z)", PAGE, re.M | re.S)
}


def export_classifier(folder, config, tokenizer):
    """Returns the folder of the SavedModel."""
    settings = classification.Settings(task_name="mrpc", data_dir="none", output_dir="none")
    task = Classifier(TASKS["mrpc"], settings, config, tokenizer)
    model = task.build_model()
    exported = task.make_export(model, LENGTH, RunFolder(""))
    return Path(saved_model.export(str(folder), model.variables, exported, {}))


def export_pretrained(folder, config, tokenizer):
    """Returns the folder of the SavedModel."""
    model = albert_tf.AlbertForPretraining(config)
    exported = make_export(model.encoder, tokenizer, LENGTH)
    return Path(saved_model.export(str(folder), model.variables, exported, {}))


@pytest.fixture(scope="module", params=KINDS)
def exported(request, tmp_path_factory, tiny_config, toy_tokenizer):
    """The name of a task, and the folder of a SavedModel of it."""
    folder = tmp_path_factory.mktemp("export")
    export = export_pretrained if request.param == "embeddings" else export_classifier
    return request.param, export(folder, tiny_config, toy_tokenizer)


def test_the_page_has_requests_for_these_tasks_alone():
    assert REQUESTS.keys() == {*KINDS}
    for objects in REQUESTS.values():
        rows, _, columns, _ = objects
        assert "instances" in rows
        assert "inputs" in columns


def assert_same_form(found, shown, place="response"):
    """Names, sizes and types of a response are as the page shows; numbers may differ."""
    if isinstance(shown, dict):
        assert shown.keys() <= found.keys(), place
        for key, value in shown.items():
            assert_same_form(found[key], value, f"{place}.{key}")
    elif shown == []:  # stands for the numbers of an embedding
        assert {type(number) for number in found} == {float}, place
    elif isinstance(shown, list):
        assert len(found) == len(shown), place
        for number, value in enumerate(shown):
            assert_same_form(found[number], value, f"{place}[{number}]")
    else:
        assert type(found) is type(shown), place


@pytest.mark.slow
def test_requests_of_the_page_get_responses_of_the_form_that_it_shows(exported):
    name, path = exported
    signatures = tf.saved_model.load(str(path)).signatures
    objects = REQUESTS[name]
    for request, shown in zip(objects[::2], objects[1::2], strict=True):
        found = respond(signatures, json.dumps(request))
        assert_same_form(found, shown)
        if "outputs" in shown:
            assert found["outputs"].keys() == shown["outputs"].keys()


@pytest.mark.slow
def test_rows_columns_and_bytes_give_the_same_numbers(exported):
    name, path = exported
    signatures = tf.saved_model.load(str(path)).signatures
    by_rows, by_columns = (
        respond(signatures, json.dumps(REQUESTS[name][place])) for place in (0, 2)
    )
    key = "mean" if name == "embeddings" else "probabilities"
    first_row = by_rows["predictions"][0][key]
    np.testing.assert_allclose(by_columns["outputs"][key][0], first_row, atol=1e-6)
    if name == "classification":  # whose second row is base64 in rows, and text in columns
        second_row = by_rows["predictions"][1]["probabilities"]
        np.testing.assert_allclose(by_columns["outputs"]["probabilities"][1], second_row, atol=1e-6)


FOREIGN_OPERATIONS = """
import sys
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry
import tensorflow
with open(sys.argv[1], "rb") as stream:
    graph = saved_model_pb2.SavedModel.FromString(stream.read()).meta_graphs[0].graph_def
nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
print(*sorted({node.op for node in nodes if op_def_registry.get(node.op) is None}))
"""


def foreign_operations(path):
    """The operations of a SavedModel that TensorFlow alone does not have."""
    command = [sys.executable, "-c", FOREIGN_OPERATIONS, str(path / "saved_model.pb")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def listed_operations(vocabulary):
    (row,) = re.findall(rf"^\| {vocabulary} \| (.*) \|$", PAGE, re.MULTILINE)
    return re.findall(r"`(\w+)`", row)


@pytest.mark.slow
def test_the_page_names_the_operations_that_tensorflow_lacks(exported):
    assert foreign_operations(exported[1]) == listed_operations("SentencePiece")


@pytest.mark.slow
def test_the_page_names_the_operations_for_word_pieces(tmp_path, tiny_config):
    (tmp_path / "vocab.txt").write_text("\n".join(WORD_PIECES) + "\n", encoding="utf-8")
    tokenizer = FullTokenizer(vocab_file=str(tmp_path / "vocab.txt"))
    path = export_classifier(tmp_path / "export", tiny_config, tokenizer)
    assert foreign_operations(path) == listed_operations("WordPiece")


@pytest.mark.slow
@pytest.mark.parametrize("exported", ["classification"], indirect=True)
def test_the_request_by_grpc_gets_the_outputs_of_the_signature(exported):
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("tensorflow_serving", reason="needs tensorflow-serving-api")
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    signatures = tf.saved_model.load(str(exported[1])).signatures

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):  # noqa: N802 - its name in gRPC
            inputs = {
                name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()
            }
            response = predict_pb2.PredictResponse()
            outputs = signatures[request.model_spec.signature_name](**inputs)
            for name, value in outputs.items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
            return response

    server = grpc.server(futures.ThreadPoolExecutor(1))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        (code,) = blocks(PAGE, "python")
        page = types.ModuleType("page")
        definitions, call = code.split("\npairs = ")
        exec(definitions, vars(page))
        exec(f"pairs = {call}".replace("localhost:8500", f"127.0.0.1:{port}"), vars(page))
    finally:
        server.stop(None)
    expected = signatures["texts"](**{name: tf.constant(v) for name, v in page.pairs.items()})
    assert page.outputs.keys() == expected.keys()
    np.testing.assert_allclose(page.outputs["probabilities"], expected["probabilities"], atol=1e-6)


def test_the_config_of_several_models_is_one():
    pytest.importorskip("tensorflow_serving", reason="needs tensorflow-serving-api")
    from google.protobuf import text_format
    from tensorflow_serving.config import model_server_config_pb2

    (config,) = blocks(PAGE, "protobuf")
    found = text_format.Parse(config, model_server_config_pb2.ModelServerConfig())
    assert [one.name for one in found.model_config_list.config] == ["mrpc", "ner"]
