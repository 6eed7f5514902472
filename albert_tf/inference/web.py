"""Serves a web page to try a model, and a JSON endpoint: `run_predict.py --web`.

    GET  /                        the web page
    GET  /health                  {"status": "ok", "tasks": ["classification", …], …}
    POST /predict                 JSON inputs → JSON results, for the default task
    POST /predict?task=fill_mask  the same for another task of the model

An input is an object as in the lines of `run_predict.py --input_file=….jsonl`, and its result is
the object that this program prints. For an array of inputs, the response is an array of results.
The task "similarity" accepts `text` and `text_b`, or `text` and an array `texts`, from which it
returns the nearest texts. An error response is `{"error": "…"}`, with status 400 for invalid input,
408 if it does not arrive, 413 if it is too large, 415 if it is not declared as JSON, and 503 while
too many requests are waiting.

A single thread processes the requests one at a time. Other web sites cannot use the model by the
browser of a user: requests under a name other than that of the server are rejected (a foreign name
can be made to resolve to 127.0.0.1), and browsers send JSON to other sites only with permission.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import functools
import importlib.resources
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import uvicorn
from absl import logging
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from albert_tf.finetuning import tables
from albert_tf.finetuning.tables import BadRowError, Row
from albert_tf.inference import program, reading
from albert_tf.inference.model_folder import ModelFolder
from albert_tf.inference.predictors import Result
from albert_tf.inference.settings import SIMILARITY, Settings
from albert_tf.tasks import EMBEDDINGS

_BYTES_PER_CHARACTER = 12  # outside the Basic Multilingual Plane, escaped as \ud83d\ude00
_SECONDS_TO_ARRIVE = 5  # for the body of a request
_SECONDS_TO_FINISH = 10  # for requests in progress when the server is stopped
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ANY_ADDRESS = ("0.0.0.0", "::")
_JSON = "application/json"
_PAGE = "web_page.html"


@dataclasses.dataclass(frozen=True)
class Task:
    """A task that the model supports.

    Attributes:
        parse: converts a row to an input; raises `BadRowError`.
        predict: returns the results of a list of inputs, in order.
    """

    parse: Callable[[Row], Any]
    predict: Callable[[list[Any]], Sequence[Result]]


def serve(settings: Settings) -> None:
    """Serves the page and the JSON endpoint until SIGINT or SIGTERM.

    Raises:
        ValueError, OSError: the model cannot be used, or the address is already in use.
    """
    with _listen(settings.web_host, settings.web_port) as listener:
        model_folder = ModelFolder(settings.model_dir)
        with program.use_devices(settings, model_folder):
            server = make_server(load_tasks(settings, model_folder), settings)
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            logging.info("Serving at http://%s:%d; press Ctrl-C to stop", shown, port)
            _run_until_stopped(server, listener)
            logging.info("Stopped")


def _listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise OSError(
            f"--web_host={host} --web_port={port}: cannot listen on this address: "
            f"{error.strerror}. Pass another --web_port, or 0 to select a free one"
        ) from None


def _run_until_stopped(server: uvicorn.Server, listener: socket.socket) -> None:
    """Runs a server; on SIGINT or SIGTERM, it completes the requests in progress and stops."""
    # When it has stopped, the server raises the signal again for the previous handlers.
    signals = (signal.SIGINT, signal.SIGTERM)
    usual = {number: signal.signal(number, server.handle_exit) for number in signals}
    try:
        server.run(sockets=[listener])
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def load_tasks(settings: Settings, model_folder: ModelFolder) -> dict[str, Task]:
    """Returns the tasks that a model supports, default first, or only the requested one.

    Raises:
        ValueError, OSError: the model cannot be used; the message says why.
    """
    wanted = settings.wanted_task
    names = model_folder.possible_tasks() if wanted is None else (model_folder.find_task(wanted),)
    tasks = {}
    for name in names:
        predictor = program.load(settings, model_folder, name)
        tasks[name] = Task(predictor.parse, predictor.predict)
        if name == EMBEDDINGS:
            search = functools.partial(_compare, predictor, settings.top_k)
            tasks[SIMILARITY] = Task(_parse_comparison, search)
    return {SIMILARITY: tasks.pop(SIMILARITY), **tasks} if settings.similarity else tasks


def _parse_comparison(row: Row) -> tuple[str, str | list[str]]:
    """Returns a text, and the text or texts to compare it with."""
    if not isinstance(row, dict) or "texts" not in row:
        return program.parse_two(row)
    texts = row["texts"]
    if not isinstance(texts, list) or not texts:
        raise BadRowError(f"'texts': expected a list of texts, got {json.dumps(texts)[:50]}")
    return reading.parse_text(row), [tables.check_text(text, "one of 'texts'") for text in texts]


def _compare(embed: Any, top_k: int, inputs: list[tuple[str, str | list[str]]]) -> list[Result]:
    """Returns the similarity of each pair, or the nearest texts if there are several."""
    results: list[Result] = []
    for text, other in inputs:
        if isinstance(other, str):
            results += program.compare(embed, [(0, (text, other))])
        else:
            rows = [(number, (row, "")) for number, row in enumerate(other, 1)]
            results.append({"nearest": program.search(embed, text, [rows], top_k)})
    return results


def make_server(tasks: Mapping[str, Task], settings: Settings) -> uvicorn.Server:
    """Returns the server of the page and the JSON endpoint.

    Args:
        tasks: name → task, default first.
        settings: the name of the model, and the limits of requests.
    """
    pages = _Pages(tasks, settings)
    host = settings.web_host
    names = [*_LOOPBACK, f"[{host}]" if ":" in host else host]
    if host in _ANY_ADDRESS:  # under whatever name other machines know this one
        names = ["*"]
    application = Starlette(
        routes=[
            Route("/", pages.show),
            Route("/health", pages.health),
            Route("/predict", pages.predict, methods=["POST"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=names, www_redirect=False)],
        exception_handlers={HTTPException: _reject, Exception: _fail},
    )
    config = uvicorn.Config(
        application,
        log_config=None,  # uvicorn's warnings go to the log of the program
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_SECONDS_TO_FINISH,
    )
    return uvicorn.Server(config)


class _Pages:
    """The functions that answer requests; see `make_server` for the arguments."""

    def __init__(self, tasks: Mapping[str, Task], settings: Settings) -> None:
        self._tasks = tasks
        self._settings = settings
        self._worker = concurrent.futures.ThreadPoolExecutor(1, "prediction")
        self._waiting = 0

    async def show(self, request: Request) -> Response:
        page = importlib.resources.files(__package__).joinpath(_PAGE).read_text("utf-8")
        return Response(page, media_type="text/html")

    async def health(self, request: Request) -> Response:
        return _json_response(
            {
                "status": "ok",
                "model": os.path.basename(os.path.abspath(self._settings.model_dir)),
                "tasks": list(self._tasks),
                "waiting": self._waiting,
                "max_waiting": self._settings.web_max_waiting,
                "max_characters": self._settings.web_max_characters,
            }
        )

    async def predict(self, request: Request) -> Response:
        name = request.query_params.get("task") or next(iter(self._tasks))
        if name not in self._tasks:
            tasks = ", ".join(self._tasks)
            raise HTTPException(400, f"task={name[:50]!r}: expected one of {tasks}")
        content = _parse_json(await self._read(request))
        if len(json.dumps(content, ensure_ascii=False)) > self._settings.web_max_characters:
            raise self._too_long()
        rows = content if isinstance(content, list) else [content]
        try:
            inputs = _parse_rows(self._tasks[name], rows)
            results = await self._compute(functools.partial(self._tasks[name].predict, inputs))
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        return _json_response(results if isinstance(content, list) else results[0])

    async def _read(self, request: Request) -> bytes:
        """Returns the body of a request; rejects one that is too large, or not declared as JSON."""
        if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != _JSON:
            raise HTTPException(415, f"expected the header Content-Type: {_JSON}")
        limit = self._settings.web_max_characters * _BYTES_PER_CHARACTER
        if int(request.headers.get("Content-Length", limit + 1)) > limit:
            raise self._too_long()
        try:
            return await asyncio.wait_for(request.body(), _SECONDS_TO_ARRIVE)
        except (asyncio.TimeoutError, ClientDisconnect):
            raise HTTPException(408, "the body of the request did not arrive") from None

    def _too_long(self) -> HTTPException:
        most = self._settings.web_max_characters
        return HTTPException(
            413, f"expected at most {most} characters of JSON in a request, of declared length"
        )

    async def _compute(self, predict: Callable[[], Sequence[Result]]) -> Sequence[Result]:
        if self._waiting >= self._settings.web_max_waiting:
            raise HTTPException(
                503,
                f"{self._waiting} requests are already waiting: try again in a few seconds",
                {"Retry-After": "2"},
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, predict)
        finally:
            self._waiting -= 1


def _parse_json(body: bytes) -> object:
    """Returns the JSON value in the body of a request, which is not an empty array."""
    try:
        content = json.loads(body)
    except ValueError as error:
        what = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise HTTPException(
            400, f'expected a JSON object such as {{"text": "…"}}: {what}'
        ) from None
    if content == []:
        raise HTTPException(400, "expected one or more inputs, got an empty array")
    return content


def _parse_rows(task: Task, rows: Sequence[object]) -> list[Any]:
    """Returns the inputs in the rows of a request; raises `BadRowError`, with the number."""
    inputs = []
    for number, value in enumerate(rows, 1):
        try:
            row = tables.json_row(value)
            if isinstance(row, BadRowError):
                raise row
            inputs.append(task.parse(row))
        except BadRowError as error:
            place = f"input {number}: " if len(rows) > 1 else ""
            raise BadRowError(f"{place}{error}") from None
    return inputs


def _json_response(
    content: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    # Unpaired surrogates cannot be encoded as UTF-8, so they become JSON escapes.
    body = json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return Response(body, status, headers, _JSON)


async def _reject(request: Request, error: Exception) -> Response:
    """Returns the response to an invalid request."""
    if not isinstance(error, HTTPException):
        raise error
    return _json_response({"error": error.detail}, error.status_code, error.headers)


async def _fail(request: Request, error: Exception) -> Response:
    """Returns the response to an unexpected error, whose traceback the server logs."""
    return _json_response({"error": "the prediction failed; see the log of the server"}, 500)
