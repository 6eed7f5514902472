"""The web page: what the form of each task shows above its JSON."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

import albert_tf
from albert_tf import inference
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.inference.model_task import find_task
from albert_tf.inference.web_examples import readable_rows
from albert_tf.model.tokenization import FullTokenizer
from tests.conftest import ROOT
from tests.inference.conftest import TEXTS

gr = pytest.importorskip("gradio", reason="needs the extra web")

from albert_tf.inference import web  # noqa: E402 - it needs the package above

pytestmark = pytest.mark.ci


def in_loop(make, *arguments):
    """Calls a function that makes parts of a page, in the event loop that Gradio looks for."""

    async def call():
        return make(*arguments)

    return asyncio.run(call())


def form_of(folder, task=None):
    settings = inference.Settings(model_dir=folder, web=True, precision="float32", top_k=2)
    source = ModelSource.open(folder)
    return in_loop(web.make_form, settings, source, find_task(source, task))


@pytest.mark.parametrize(
    ("kind", "values", "names"),
    [
        ("classification", [TEXTS[0], ""], {"water", "land"}),
        ("multiple_choice", ["The river", "It is _.", "old\nnew"], {"old", "new"}),
        ("embeddings", [TEXTS[1], f"{TEXTS[3]}\n{TEXTS[1]}"], {TEXTS[1], TEXTS[3]}),
    ],
)
def test_a_form_shows_a_number_for_each_name(saved, kind, values, names):
    form = form_of(saved(kind))
    shown, table, _ = form.fn(*values)
    assert set(shown) == names
    assert dict(table) == pytest.approx(shown, abs=1e-4)
    assert [number for _, number in table] == sorted(dict(table).values(), reverse=True)
    labels = {"classification": "classification: 'water', 'land'"}
    assert form.output_components[0].label == labels.get(kind, kind)
    best = form.output_components[0].postprocess(shown).model_dump()["label"]
    assert shown[best] == max(shown.values())


@pytest.mark.parametrize(
    ("kind", "first"), [("spans", ["What waits?"]), ("token_classification", [])]
)
def test_a_form_marks_spans_in_their_text(saved, kind, first):
    form, text = form_of(saved(kind)), "\U0001f642 The boat waits."
    shown, table, result = form.fn(*first, text)
    parts = form.output_components[0].postprocess(shown).model_dump()
    found = [part["token"] for part in parts if part["class_or_confidence"]]
    spans = result["spans"] if "spans" in result else [{"text": result["answer"]}]
    assert found == [span["text"] for span in spans]
    assert "".join(part["token"] for part in parts) == text
    assert len(table) == len(result["answers" if first else "tokens"])


EXAMPLES = {
    "no pairs": [{"text": "The river"}, {"text": "The boat"}],
    "pairs": [{"text": "The river", "text_b": "The boat"}, {"text": "The boat"}],
    "options": [{"question": "It is _.", "options": ["old", "new", "wet"]}],
}


@pytest.mark.parametrize(
    ("kind", "kept", "labels"),
    [
        ("classification", [], ["text", "text_b"]),
        ("classification", EXAMPLES["no pairs"], ["text"]),
        ("classification", EXAMPLES["pairs"], ["text", "text_b"]),
        ("multiple_choice", EXAMPLES["options"], ["question", "options, one per line"]),
    ],
)
def test_a_form_has_the_fields_of_the_data_and_opens_with_an_answer(
    saved, tmp_path, kind, kept, labels
):
    folder = shutil.copytree(saved(kind), tmp_path / "run")
    RunFolder(str(folder)).keep_examples(kept)
    form = form_of(str(folder))
    assert [field.label for field in form.input_components] == labels
    values = [field.value for field in form.input_components]
    first = kept[0] if kept else {"text": "What a lovely day!", "text_b": ""}
    assert [value.splitlines() for value in values] == [
        value if isinstance(value, list) else value.splitlines() for value in first.values()
    ]
    assert form.output_components[2].value == form.fn(*values)[2]


def test_examples_are_in_a_language_that_the_vocabulary_has(tmp_path, toy_tokenizer):
    english, chinese = {"text": "The river", "text_b": ""}, {"text": "你好", "text_b": "河"}
    assert readable_rows([chinese, english], toy_tokenizer) == [english]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"你好河", "the", "river"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    tokenizer = FullTokenizer(str(tmp_path / "vocab.txt"))
    assert readable_rows([english, chinese], tokenizer) == [chinese, english]
    assert readable_rows([{"text": "été"}], tokenizer) == [{"text": "été"}]  # rather than none


def test_an_invalid_input_is_shown_as_an_error(saved):
    with pytest.raises(gr.Error, match=r"no \[MASK\] in the text"):
        form_of(saved("fill_mask"), "fill_mask").fn("It rains.")


def test_a_page_has_a_form_for_each_task(saved):
    def tabs(**given):
        settings = inference.Settings(web=True, **given)
        page = in_loop(web.make_page, settings, ModelSource.open(settings.model_dir))
        assert not page.analytics_enabled
        assert page.title == f"{os.path.basename(settings.model_dir)}: {titles.pop()}"
        return [block.label for block in page.blocks.values() if isinstance(block, gr.Tab)]

    titles = ["classification", "embeddings"]
    assert tabs(model_dir=saved("fill_mask")) == ["embeddings", "fill_mask"]
    assert tabs(model_dir=saved("classification")) == ["classification", "embeddings"]


def request(port, method, path, body=None, host=None, content_type="application/json"):
    """The status and the text of a response of the server on a port."""
    headers = {"Host": host or f"127.0.0.1:{port}", "Content-Type": content_type}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as server:
        server.request(method, path, body, headers)
        response = server.getresponse()
        return response.status, response.read().decode()


def ask(port, text):
    """The JSON that the form of a classifier shows for a text."""
    path = "/gradio_api/call/answer"
    _, body = request(port, "POST", path, json.dumps({"data": [text, ""]}))
    _, events = request(port, "GET", f"{path}/{json.loads(body)['event_id']}")
    (data,) = re.findall(r"event: complete\ndata: (.*)", events)
    return json.loads(data)[-1]


@pytest.fixture
def served(saved):
    """The port of `albert predict --web` for a classifier."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "albert_tf", "predict", "--web", f"--web_port={port}"]
    command += [f"--model_dir={saved('classification')}", "--task=classification"]
    with subprocess.Popen([*command, "--precision=float32"], cwd=ROOT) as program:
        for _ in range(600):
            with contextlib.suppress(OSError):
                request(port, "GET", "/")
                break
            time.sleep(0.1)
        yield port
        program.send_signal(signal.SIGINT)


def test_a_page_answers_this_machine_alone_and_takes_no_files(saved, served):
    """200 questions at the same time get an answer each; no other host name, and no uploads."""
    hosts = ("127.0.0.1", "localhost", "example.com", "127.0.0.1.example.com")
    found = [request(served, "GET", "/", host=f"{host}:{served}")[0] for host in hosts]
    assert found == [200, 200, 400, 400]
    form = '--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\na\r\n--x--\r\n'
    kind = "multipart/form-data; boundary=x"
    for path in ("/gradio_api/upload", "/gradio_api/upload/"):
        assert request(served, "POST", path, form, content_type=kind)[0] == 403
    asked = [TEXTS[number % len(TEXTS)] for number in range(200)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(functools.partial(ask, served), asked))
    classify = albert_tf.load_predictor(saved("classification"))
    expected = {text: classify(text)["probabilities"] for text in TEXTS}
    for text, answer in zip(asked, answers, strict=True):
        assert answer["probabilities"] == pytest.approx(expected[text], abs=1e-4)
