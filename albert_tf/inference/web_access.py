"""Which requests the web page answers: those to this machine, and no uploads.

Without these limits, any site that is open in the same browser could reach the page under a host
name of its own that resolves to 127.0.0.1, and Gradio's server would store files of any size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.middleware import Middleware
    from starlette.types import ASGIApp, Receive, Scope, Send

HOSTS = ("127.0.0.1", "localhost")  # what a browser calls this machine, also through a tunnel
_UPLOAD = "/upload"  # ending of the path of Gradio's uploads


def middleware() -> list[Middleware]:
    """Returns what checks each request before Gradio sees it."""
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    return [Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS), Middleware(RefuseUploads)]


class RefuseUploads:
    """Answers uploads with status 403, as the page has no field for files.

    Args:
        app: the application that answers all other requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] == "http" and scope["path"].rstrip("/").endswith(_UPLOAD):
            from starlette.responses import PlainTextResponse

            refused = PlainTextResponse("this page takes no files", status_code=403)
            await refused(scope, receive, send)
        else:
            await self._app(scope, receive, send)
