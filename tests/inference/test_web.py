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
from albert_tf.inference.web import readable_rows
from albert_tf.model.tokenization import FullTokenizer
from tests.conftest import ROOT
from tests.inference.conftest import TEXTS

gr = pytest.importorskip("gradio", reason="needs the extra web")

from albert_tf.inference import web, web_access  # noqa: E402 - they need the package above

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
    ],
)
def test_a_form_shows_a_bar_for_each_name(saved, kind, values, names):
    form = form_of(saved(kind))
    shown, table, _ = form.answer(*values)
    assert set(shown) == names
    assert table == []  # the bars say all
    labels = {"classification": "classification: 'water', 'land'"}
    assert form.best.label == labels.get(kind, kind)
    best = form.best.postprocess(shown).model_dump()["label"]
    assert shown[best] == max(shown.values())


def test_a_form_shows_a_table_where_there_are_more_names_than_bars(saved):
    form = form_of(saved("multiple_choice"))
    options = [f"option {number}" for number in range(6)]
    shown, table, _ = form.answer("The river", "It is _.", "\n".join(options))
    assert dict(table) == pytest.approx(shown, abs=1e-4)
    assert [number for _, number in table] == sorted(dict(table).values(), reverse=True)
    assert web._updates((shown, table, None))[1].visible
    assert not web._updates((shown, [], None))[1].visible


def test_a_form_names_the_nearest_text_and_lists_the_others(saved):
    form = form_of(saved("embeddings"))
    shown, table, result = form.answer(TEXTS[1], f"{TEXTS[3]}\n{TEXTS[1]}")
    assert shown == f"{TEXTS[1]} (1.00)"
    other = result["nearest"][1]
    assert table == [[TEXTS[3], pytest.approx(other["similarity"], abs=1e-4)]]
    assert form.answer(TEXTS[1], "")[:2] == (None, [])


def test_a_form_numbers_the_words_of_several_masks(saved):
    form = form_of(saved("fill_mask"), "fill_mask")
    one, _, _ = form.answer("The [MASK] carries the rain.")
    several, _, _ = form.answer("The [MASK] carries the [MASK].")
    assert [name[:3] for name in several] == ["1. ", "1. ", "2. ", "2. "]
    assert len(one) == 2
    assert not any(name.startswith("1. ") for name in one)


@pytest.mark.parametrize(
    ("kind", "first"), [("spans", ["What waits?"]), ("token_classification", [])]
)
def test_a_form_marks_spans_in_their_text(saved, kind, first):
    form, text = form_of(saved(kind)), "\U0001f642 The boat waits."
    shown, table, result = form.answer(*first, text)
    parts = form.best.postprocess(shown).model_dump()
    found = [part["token"] for part in parts if part["class_or_confidence"]]
    spans = result["spans"] if "spans" in result else [{"text": result["answer"]}]
    assert found == [span["text"] for span in spans]
    assert "".join(part["token"] for part in parts) == text
    others = [x["answer"] for x in result.get("answers", []) if x["answer"] != found[0]]
    assert [answer for answer, _ in table] == others


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
    assert [field.label for field in form.fields] == labels
    values = [field.value for field in form.fields]
    first = kept[0] if kept else {"text": "What a lovely day!", "text_b": ""}
    assert [value.splitlines() for value in values] == [
        value if isinstance(value, list) else value.splitlines() for value in first.values()
    ]
    (result,) = (x for x in form.blocks.blocks.values() if isinstance(x, gr.JSON))
    assert result.value == form.answer(*values)[2]


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
        form_of(saved("fill_mask"), "fill_mask").answer("It rains.")


def test_a_page_has_a_form_for_each_task(saved):
    def tabs(**given):
        settings = inference.Settings(web=True, **given)
        page = in_loop(web.make_page, settings, ModelSource.open(settings.model_dir))
        assert not page.analytics_enabled
        assert page.title == f"{os.path.basename(settings.model_dir)}: {titles.pop()}"
        assert [x.open for x in page.blocks.values() if isinstance(x, gr.Accordion)] == [False] * 2
        tables = [x.visible for x in page.blocks.values() if isinstance(x, gr.Dataframe)]
        names = [block.label for block in page.blocks.values() if isinstance(block, gr.Tab)]
        # The bars say all of two labels and two words; the example of embeddings has two texts.
        return dict(zip(names, tables, strict=True))

    titles = ["classification of water, land", "embeddings"]
    found = tabs(model_dir=saved("fill_mask"))
    assert list(found.items()) == [("embeddings", True), ("fill_mask", False)]
    found = tabs(model_dir=saved("classification"))
    assert list(found.items()) == [("classification", False), ("embeddings", True)]


# Which requests are answered

PATHS = ["/", "/theme.css", "/assets/index.js", "/static/a.woff2", "/gradio_api/queue/data"]
FORMS = ["/gradio_api/queue/join", "/gradio_api/run/predict"]
# What Gradio's server has for other pages, in its version 6.31.
OTHERS = [
    "upload",
    "process_recording",
    "component_server",
    "stream/1",
    "call/answer",
    "api/predict",
]
OTHERS += ["run/answer", "call/v2/answer", "cancel", "reset", "vibe-edit", "run-history/connect"]
READ_OTHERS = [
    "file=/etc/passwd",
    "file/a",
    "proxy=http://a.b/c",
    "upload_progress",
    "info",
    "runs",
]
READ_OTHERS += [
    "call/answer/1",
    "heartbeat/1",
    "openapi.json",
    "user",
    "token",
    "custom_component/1",
]
FORM = b'{"data": ["The river", null, 1], "fn_index": 0}'


def answer_of(method, path, *parts, kind="application/json"):
    """The status for a request with a body in parts, the body that Gradio gets, and parts read."""
    waiting = [
        {"type": "http.request", "body": part, "more_body": number < len(parts)}
        for number, part in enumerate(parts or [b""], 1)
    ]
    found = {"body": None}

    async def receive():
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message):
        found.setdefault("status", message.get("status"))

    async def gradio(scope, receive, send):
        found["body"] = (await receive()).get("body")
        assert (await receive())["type"] == "http.disconnect"
        await send({"type": "http.response.start", "status": 200, "headers": []})

    headers = [(b"content-type", kind.encode())]
    scope = {"type": "http", "method": method, "path": path, "headers": headers}
    asyncio.run(web_access.PageOnly(gradio)(scope, receive, send))
    return found["status"], found["body"], (len(parts) or 1) - len(waiting)


@pytest.mark.parametrize(
    ("method", "paths", "status"),
    [
        ("GET", PATHS, 200),
        ("HEAD", PATHS, 200),
        ("POST", FORMS, 200),
        ("POST", [*PATHS, "/upload", "/login", "/gradio_api/queue/join/"], 404),
        ("POST", [f"/gradio_api/{name}" for name in OTHERS], 404),
        ("GET", [f"/gradio_api/{name}" for name in READ_OTHERS], 404),
        ("GET", ["/config", "/monitoring", "/logout", "/manifest.json", *FORMS], 404),
        ("PUT", [*PATHS, *FORMS], 404),
    ],
)
def test_only_what_the_page_asks_for_is_answered(method, paths, status):
    found = {path: answer_of(method, path, FORM)[0] for path in paths}
    assert found == dict.fromkeys(paths, status)


BIG = b"x" * (web_access.MAX_BYTES // 4)


@pytest.mark.parametrize(
    ("parts", "kind", "status", "read"),
    [
        ([FORM], "application/json", 200, 1),
        ([FORM[:9], FORM[9:]], "application/json; charset=utf-8", 200, 2),
        ([b'{"data": ["', BIG, BIG, BIG, b'"]}'], "application/json", 200, 5),
        ([b'{"data": ["', *[BIG] * 9, b'"]}'], "application/json", 413, 5),
        ([FORM], "multipart/form-data; boundary=x", 415, 0),
        ([FORM], "text/plain", 415, 0),
        ([FORM], "", 415, 0),
        ([b'{"data": ['], "application/json", 422, 1),
        ([b'{"data": [[1]]}'], "application/json", 422, 1),
        ([b'{"data": {"0": "a"}}'], "application/json", 422, 1),
        (
            [b'{"data": [{"path": "http://a.b/c", "meta": {"_type": "gradio.FileData"}}]}'],
            *("application/json", 422, 1),
        ),
    ],
)
def test_a_form_is_json_with_texts_and_is_not_read_further_than_its_limit(
    parts, kind, status, read
):
    body = b"".join(parts) if status == 200 else None
    assert answer_of("POST", FORMS[0], *parts, kind=kind) == (status, body, read)


def request(port, method, path, body=None, host=None, content_type="application/json"):
    """The status and the text of a response of the server on a port."""
    headers = {"Host": host or f"127.0.0.1:{port}", "Content-Type": content_type}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as server:
        server.request(method, path, body, headers)
        response = server.getresponse()
        return response.status, response.read().decode()


def ask(port, number, text):
    """The JSON that the form of a classifier shows for a text, as the page asks for it."""
    session = f"session{number}"
    # Function 0 clears the fields.
    form = {"data": [text, ""], "fn_index": 1, "session_hash": session}
    assert request(port, "POST", "/gradio_api/queue/join", json.dumps(form))[0] == 200
    _, events = request(port, "GET", f"/gradio_api/queue/data?session_hash={session}")
    found = [json.loads(event) for event in re.findall(r"data: (.*)", events)]
    (data,) = [event["output"]["data"] for event in found if event["msg"] == "process_completed"]
    return data[-1]


@pytest.fixture
def temporary(tmp_path):
    """The folder of the server's temporary files."""
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


@pytest.fixture
def served(saved, temporary):
    """The port of `albert predict --web` for a classifier."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "albert_tf", "predict", "--web", f"--web_port={port}"]
    command += [f"--model_dir={saved('classification')}", "--task=classification"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command.append("--precision=float32")
    with subprocess.Popen(command, cwd=ROOT, env=environment) as program:
        for _ in range(1800):
            with contextlib.suppress(OSError):
                request(port, "GET", "/")
                break
            time.sleep(0.1)
        yield port
        program.send_signal(signal.SIGINT)


def test_a_page_answers_this_machine_alone_and_takes_no_files(saved, served, temporary):
    """200 questions at the same time get an answer each; no other host name, and no files."""
    hosts = ("127.0.0.1", "localhost", "example.com", "127.0.0.1.example.com")
    found = [request(served, "GET", "/", host=f"{host}:{served}")[0] for host in hosts]
    assert found == [200, 200, 400, 400]
    part = '--x\r\nContent-Disposition: form-data; name="{}"; filename="a"\r\n\r\na\r\n--x--\r\n'
    kind = "multipart/form-data; boundary=x"
    for name in ("upload", "process_recording"):
        for field in ("files", "video"):
            path, form = f"/gradio_api/{name}", part.format(field)
            assert request(served, "POST", path, form, content_type=kind)[0] == 404
    scripts = re.findall(r'(?:src|href)="(?:\./|/)?(assets/[^"]+)"', request(served, "GET", "/")[1])
    assert scripts
    for path in scripts:
        assert request(served, "GET", f"/{path}")[0] == 200
    asked = [TEXTS[number % len(TEXTS)] for number in range(200)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(functools.partial(ask, served), range(200), asked))
    classify = albert_tf.load_predictor(saved("classification"))
    expected = {text: classify(text)["probabilities"] for text in TEXTS}
    for text, answer in zip(asked, answers, strict=True):
        assert answer["probabilities"] == pytest.approx(expected[text], abs=1e-4)
    assert not [path for path in temporary.rglob("*") if path.is_file()]
