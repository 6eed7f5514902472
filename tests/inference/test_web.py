"""Tests the web page and its JSON endpoint over real sockets and in a browser."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import pytest

import albert_tf
from albert_tf import inference
from albert_tf.inference.model_folder import ModelFolder
from tests.conftest import ROOT
from tests.inference.conftest import CONTEXTS, TEXTS, write_folder

uvicorn = pytest.importorskip("uvicorn", reason="needs the extra web")
pytest.importorskip("starlette", reason="needs the extra web")

from albert_tf.inference import reading, web  # noqa: E402 - they need the packages above

MAX_CHARACTERS, MAX_WAITING = 120, 2
SCRIPT = "<script>document.title='run'</script>"


def settings_of(folder="model", **given):
    limits = {"web_max_characters": MAX_CHARACTERS, "web_max_waiting": MAX_WAITING}
    return inference.Settings(model_dir=str(folder), web=True, **limits | given)


@contextlib.contextmanager
def served(tasks, settings):
    """Serves tasks from a thread of this process, and yields the port."""
    server = web.make_server(tasks, settings)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def ask(port, path="/predict", body=None, method=None, **headers):
    """Returns the status, JSON and headers of a response; serializes bodies that are not bytes."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        headers = {"Content-Type": "application/json"} | headers
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read()), response.headers


class Counter:
    """A task that counts words and can be blocked."""

    def __init__(self):
        self.may_continue = threading.Event()
        self.may_continue.set()
        self.has_begun = threading.Event()
        self.threads = set()

    def __call__(self, inputs):
        self.has_begun.set()
        self.threads.add(threading.current_thread().name)
        assert self.may_continue.wait(timeout=60)
        if "fail" in inputs:
            raise RuntimeError("for the test")
        if "refuse" in inputs:
            raise ValueError("not this text")
        return [{"text": text, "words": len(text.split())} for text in inputs]


@pytest.fixture(scope="module")
def counter():
    return Counter()


@pytest.fixture(scope="module")
def port(counter):
    tasks = {
        "count": web.Task(reading.parse_text, counter),
        "shout": web.Task(reading.parse_text, lambda texts: [text.upper() for text in texts]),
    }
    with served(tasks, settings_of("folder/model")) as port:
        yield port


def test_one_or_many_inputs_get_their_results(port):
    one, many = {"text": "two words"}, {"text": "two words", "words": 2}
    assert ask(port, body=one)[:2] == (200, many)
    assert ask(port, body=[one, {"text_a": "one"}])[1] == [many, {"text": "one", "words": 1}]
    assert ask(port, body="北京 🙂")[1] == {"text": "北京 🙂", "words": 2}
    assert ask(port, "/predict?task=shout", "two")[1] == "TWO"


def test_health_reports_tasks_and_limits(port):
    status, health, _ = ask(port, "/health")
    assert status == 200
    assert health["status"] == "ok"
    assert health["model"] == "model"
    assert health["tasks"] == ["count", "shout"]
    assert health["max_characters"] == MAX_CHARACTERS


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b'{"text": ', 400, r'expected a JSON object such as \{"text": "…"\}.*line 1 column'),
        (b"", 400, "a JSON object such as"),
        (b"text=good", 400, "a JSON object such as"),
        (b'{"text": "\xff"}', 400, "not UTF-8"),
        (b"[" * 1_400, 400, "a JSON object such as"),
        ([], 400, "expected one or more inputs, got an empty array"),
        (7, 400, "expected a JSON object or string"),
        ({"txt": "good"}, 400, "or 'text', found 'txt'"),
        ([{"text": "good"}, {"text": 7}], 400, "input 2: 'text' is 7"),
        ({"text": "\ud83d"}, 400, "surrogate"),
        ({"text": "refuse"}, 400, "not this text"),
        ({"text": "x" * MAX_CHARACTERS}, 413, "at most 120 characters of JSON"),
        ([{"text": "x" * 60}, {"text": "y" * 41}], 413, "at most 120 characters of JSON"),
        (b"x" * 200_000, 413, "at most 120 characters of JSON"),
        ({"text": "fail"}, 500, "see the log of the server"),
    ],
)
def test_bad_requests_say_what_was_expected(port, body, status, message):
    found, content, _ = ask(port, body=body)
    assert re.search(message, content["error"])
    assert found == status
    longest = {"text": "😀" * (MAX_CHARACTERS - len('{"text": ""}'))}
    assert ask(port, body=longest)[0] == 200  # and the server still works


def test_unknown_paths_methods_and_tasks_are_rejected(port):
    assert ask(port, "/else")[:2] == (404, {"error": "Not Found"})
    assert ask(port, "/predict")[0] == 405
    status, content, _ = ask(port, "/predict?task=spans", {"text": "good"})
    assert status == 400
    assert content["error"] == "task='spans': expected one of count, shout"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_other_sites_cannot_send_inputs(port, kind):
    status, content, _ = ask(port, body={"text": "one"}, **{"Content-Type": kind})
    assert (status, content) == (
        415,
        {"error": "expected the header Content-Type: application/json"},
    )
    kind = "Application/JSON; charset=utf-8"
    assert ask(port, body={"text": "one"}, **{"Content-Type": kind})[0] == 200


@pytest.mark.parametrize(
    ("web_host", "host", "status"),
    [
        ("127.0.0.1", "localhost:8000", 200),
        ("::1", "[::1]:8000", 200),
        ("127.0.0.1", "rebound.example:8000", 400),
        ("demo.example", "Demo.Example:8000", 200),
        ("demo.example", "rebound.example", 400),
        ("0.0.0.0", "192.0.2.7:8000", 200),
    ],
)
def test_only_names_of_the_server_are_accepted(web_host, host, status):
    with served({"count": None}, settings_of(web_host=web_host)) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/health", headers={"Host": host})
            assert connection.getresponse().status == status


def test_a_full_queue_rejects_requests_and_recovers(port, counter):
    counter.may_continue.clear()
    counter.has_begun.clear()
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(ask(port, body={"text": "one"})[0]))
        for _ in range(MAX_WAITING)
    ]
    for thread in threads:
        thread.start()
    assert counter.has_begun.wait(timeout=60)
    deadline = time.monotonic() + 60
    while ask(port, "/health")[1]["waiting"] < MAX_WAITING:  # still responds
        assert time.monotonic() < deadline
    status, content, headers = ask(port, body={"text": "one"})
    assert status == 503
    assert content["error"] == "2 requests are already waiting: try again in a few seconds"
    assert headers["Retry-After"]
    counter.may_continue.set()
    for thread in threads:
        thread.join()
    assert answers == [200, 200]
    assert ask(port, body={"text": "one"})[0] == 200
    assert len(counter.threads) == 1


def test_a_stopped_server_completes_predictions_but_not_bodies(counter, caplog, monkeypatch):
    monkeypatch.setattr(web, "_SECONDS_TO_ARRIVE", 1)
    counter.may_continue.clear()
    counter.has_begun.clear()
    answers = []
    with contextlib.ExitStack() as clients:
        with served({"count": web.Task(reading.parse_text, counter)}, settings_of()) as port:
            one = threading.Thread(target=lambda: answers.append(ask(port, body={"text": "one"})))
            one.start()
            assert counter.has_begun.wait(timeout=60)
            slow = clients.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            head = ["POST /predict HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
            head += ["Content-Length: 9", "Expect: 100-continue", "", ""]
            slow.sendall("\r\n".join(head).encode())
            assert slow.recv(1000).startswith(b"HTTP/1.1 100")  # its body is expected
            threading.Timer(0.5, counter.may_continue.set).start()
            begun = time.monotonic()
        assert time.monotonic() - begun < 5
        one.join()
        assert answers[0][:2] == (200, {"text": "one", "words": 1})
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")
    assert "Traceback" not in caplog.text


def test_the_page_loads_nothing_and_runs_only_its_own_script(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        page = connection.getresponse().read().decode()
    (script,) = re.findall("<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall('Content-Security-Policy" content="(.*?)">', page, re.DOTALL)
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not re.search(r"https?://|src=|@import|url\(", page)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", page)


@pytest.fixture(scope="module")
def choices_dir(tmp_path_factory, config_file, toy_spm_model):
    heads = {"output_weights": (1, 12), "output_bias": (1,)}
    folder = tmp_path_factory.mktemp("choices")
    (folder / "run.json").write_text(json.dumps({"flags": {"max_qa_length": 29}}))
    return write_folder(folder, config_file, toy_spm_model, heads)


@pytest.fixture(scope="module")
def tags_dir(tmp_path_factory, config_file, toy_spm_model):
    heads = {"output_weights": (3, 12), "output_bias": (3,)}
    folder = tmp_path_factory.mktemp("tags")
    task = {"token_labels": ["B-<b>LOC", "I-<b>LOC", "B-<b>PER"], "tag_scheme": "iob2"}
    (folder / "run.json").write_text(json.dumps({"task": task}))
    return write_folder(folder, config_file, toy_spm_model, heads)


@pytest.fixture(scope="module")
def spans_dir(tmp_path_factory, config_file, toy_spm_model):
    heads = {"cls/squad/output_weights": (2, 12), "cls/squad/output_bias": (2,)}
    folder = tmp_path_factory.mktemp("spans")
    (folder / "run.json").write_text(
        json.dumps({"flags": {"max_query_length": 9, "doc_stride": 31, "max_answer_length": 5}})
    )
    return write_folder(folder, config_file, toy_spm_model, heads)


def tasks_of(folder, **given):
    settings = settings_of(folder, precision="float32", **given)
    return web.load_tasks(settings, ModelFolder(str(folder)))


def test_a_folder_has_a_task_for_each_head(pretrained_dir, classifier_dir):
    assert list(tasks_of(pretrained_dir)) == ["embeddings", "similarity", "fill_mask"]
    assert list(tasks_of(classifier_dir)) == ["classification", "embeddings", "similarity"]
    assert list(tasks_of(pretrained_dir, mask=True)) == ["fill_mask"]
    assert next(iter(tasks_of(pretrained_dir, similarity=True))) == "similarity"


def test_results_match_the_predictor(classifier_dir):
    expected = albert_tf.load_predictor(str(classifier_dir))(TEXTS)
    rows = [{"text": text} for text in TEXTS]
    settings = settings_of(classifier_dir, web_max_characters=1000)
    with served(tasks_of(classifier_dir), settings) as port:
        found = ask(port, body=rows)[1]
    assert [row["label"] for row in found] == [row["label"] for row in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours["probabilities"] == pytest.approx(theirs["probabilities"], abs=1e-6)


def test_pairs_are_compared_and_nearest_texts_found(pretrained_dir):
    compare = tasks_of(pretrained_dir, similarity=True, top_k=2)["similarity"]
    inputs = [
        compare.parse({"text": TEXTS[1], "texts": TEXTS}),
        compare.parse({"text": "The river", "text_b": "the  RIVER"}),
    ]
    search, pair = compare.predict(inputs)
    assert len(search["nearest"]) == 2
    assert search["nearest"][0] == {"line": 2, "similarity": pytest.approx(1), "text": TEXTS[1]}
    assert pair == {"similarity": pytest.approx(1)}
    for row, message in [
        ({"text": "a"}, "expected two texts"),
        ({"text": "a", "texts": []}, "expected a list of texts"),
        ({"text": "a", "texts": [7]}, "one of 'texts' is 7"),
    ]:
        with pytest.raises(ValueError, match=message):
            compare.parse(row)


def start_program(*arguments):
    """Starts run_predict.py --web; yields the process and its port once it is listening."""
    process = subprocess.Popen(
        [sys.executable, "run_predict.py", "--web", *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        found = re.search(r"Serving at http://127\.0\.0\.1:(\d+);", line)
        if found:
            return process, int(found[1])
    raise AssertionError(f"it ended with status {process.wait()}")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_program_serves_until_a_signal(classifier_dir, number):
    process, port = start_program(f"--model_dir={classifier_dir}", "--web_port=0")
    try:
        status, found, _ = ask(port, body={"text": TEXTS[0]})
        assert status == 200
        assert found["label"] in ("n", "y")
        with pytest.raises(OSError, match=f"--web_port={port}: cannot listen on this .*in use"):
            inference.serve(settings_of(classifier_dir, web_port=port))
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
        rest = process.stderr.read()
        assert "Stopped" in rest
        assert "Traceback" not in rest
    finally:
        process.kill()
        process.communicate()


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CHROMIUM_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --virtual-time-budget=30000"
).split()


def page_after(port, **query):
    """Returns the document of the page after it has submitted the input in the link."""
    url = f"http://127.0.0.1:{port}/?{urllib.parse.urlencode(query)}"
    with tempfile.TemporaryDirectory() as profile:
        command = [CHROMIUM, *CHROMIUM_FLAGS, f"--user-data-dir={profile}", "--dump-dom", url]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


CONTEXT = f"🙂 {SCRIPT} {CONTEXTS[0]}"
# Task, parameters of the link, and texts that the page must show.
LINKS = [
    ("classification", {"text": SCRIPT}, ["classification", "n", "y"]),
    ("spans", {"question": "What waits?", "context": CONTEXT}, ["spans", SCRIPT]),
    ("multiple_choice", {"passage": "The river", "options": f"old\n{SCRIPT}"}, ["old", SCRIPT]),
    ("token_classification", {"text": f"{SCRIPT} 🙂 boat"}, ["token class", "boat", "<b>"]),
    ("fill_mask", {"text": f"{SCRIPT} [MASK] a [MASK]"}, ["fill mask", SCRIPT]),
    ("similarity", {"text": "A", "texts": f"A\n{SCRIPT}"}, ["similarity", "1.0000", SCRIPT]),
]


@pytest.fixture(scope="module")
def pages(classifier_dir, spans_dir, choices_dir, tags_dir, pretrained_dir):
    """The port of a server with every task."""
    folders = (classifier_dir, spans_dir, choices_dir, tags_dir, pretrained_dir)
    tasks = {}
    for folder in folders:
        tasks = tasks_of(folder) | tasks
    with served(tasks, settings_of(web_max_characters=300)) as port:
        yield port


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize(("task", "given", "shown"), LINKS, ids=[link[0] for link in LINKS])
def test_the_page_shows_each_task_as_text(pages, task, given, shown):
    page = page_after(pages, task=task, **given)
    assert "<title>model</title>" in page  # the text was not run as a script
    (section,) = re.findall(f'<section id="{task}">(.*?)</section>', page, re.DOTALL)
    assert 'class="error"' not in section
    assert "<meter" in section
    assert "<script" not in section
    for text in shown:
        assert html.escape(text, quote=False) in section


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_marks_the_answer_in_its_context(pages):
    given = {"question": "What waits?", "context": CONTEXT}
    answer = ask(pages, "/predict?task=spans", given)[1]
    before, after = CONTEXT[: answer["begin"]], CONTEXT[answer["end"] :]
    assert answer["answer"]
    assert before.startswith("🙂")  # which JavaScript counts as two characters
    page = html.unescape(page_after(pages, task="spans", **given))
    assert f'<p class="text">{before}<mark>{answer["answer"]}</mark>{after}</p>' in page


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_shows_errors(pages):
    page = page_after(pages, task="fill_mask", text="<b>no mask")
    assert '<p class="error">no [MASK] in the text' in page
    page = page_after(pages, task="classification", text="x" * 300)
    assert '<p class="error">expected at most 300 characters' in page
