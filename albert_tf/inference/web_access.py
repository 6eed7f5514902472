"""Which requests the web page answers: those that it sends itself, to this machine, with texts.

Without these limits, any site that is open in the same browser could reach the page under a host
name of its own that resolves to 127.0.0.1. And Gradio's server, which is made for fields of files
as well, would store uploads, fetch addresses, hand recordings to ffmpeg and take texts of any size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from albert_tf import files

if TYPE_CHECKING:
    from starlette.middleware import Middleware
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ("127.0.0.1", "localhost")  # what a browser calls this machine, also through a tunnel
MAX_BYTES = 1 << 18  # of a form: a chapter of a book
_API = "/gradio_api/"
_FOLDERS = ("/assets/", "/static/")  # with the scripts, styles and fonts of the page
_FILES = ("/", "/theme.css", "/favicon.ico")
_QUESTIONS = ("startup-events", "queue/data", "app_id")  # `app_id` after a lost connection
_ANSWERS = ("queue/join", "run/predict")  # a form, and an example that is copied into one


def middleware() -> list[Middleware]:
    """Returns what checks each request before Gradio sees it."""
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    return [Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS), Middleware(PageOnly)]


class PageOnly:
    """Answers requests that the page does not send with an error, before Gradio has read them.

    The body of a form is JSON, of at most `MAX_BYTES`, and the values of its fields are texts and
    numbers: objects would be descriptions of files. A site elsewhere cannot send JSON without
    asking first, which Gradio denies.

    Args:
        app: the application that answers all other requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":  # the server starts or ends
            await self._app(scope, receive, send)
            return
        status, problem, body = 404, "not a part of this page", b""
        if _is_read(scope["method"], scope["path"]):
            status = 200
        elif scope["method"] == "POST" and scope["path"] in [_API + name for name in _ANSWERS]:
            status, problem, body = await _read_form(scope, receive)
        if status == 200:
            await self._app(scope, _after(body, receive) if body else receive, send)
            return
        from starlette.responses import JSONResponse

        await JSONResponse({"detail": problem}, status)(scope, receive, send)


def _is_read(method: str, path: str) -> bool:
    """Returns whether a request reads a part of the page."""
    names = [*_FILES, *(_API + name for name in _QUESTIONS)]
    return method in ("GET", "HEAD") and (path in names or path.startswith(_FOLDERS))


async def _read_form(scope: Scope, receive: Receive) -> tuple[int, str, bytes]:
    """Returns the status for a form, what is wrong with it, and its body."""
    kind = dict(scope["headers"]).get(b"content-type", b"")
    if kind.partition(b";")[0].strip().lower() != b"application/json":
        return 415, "expected JSON", b""
    body, is_complete = b"", False
    while not is_complete:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_BYTES:
            return 413, f"expected at most {MAX_BYTES:,} bytes of text", b""
        is_complete = not message.get("more_body", False)  # or the connection is lost
    try:
        values = files.parse_json(body.decode("utf-8"), "the form", {"data": list})
    except ValueError as error:
        return 422, str(error), b""
    if any(isinstance(value, (dict, list)) for value in values["data"]):
        return 422, "expected texts and numbers in the fields", b""
    return 200, "", body


def _after(body: bytes, receive: Receive) -> Receive:
    """Returns what receives a body that was read, and then what follows it."""
    waiting = [body]

    async def receive_again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return receive_again
