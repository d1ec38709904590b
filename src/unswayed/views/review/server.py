"""The page of a review session on this computer: plain HTTP, no outside address, no other page may send answers."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

from unswayed.benchmark.rows import ANSWERS
from unswayed.errors import UserError
from unswayed.files.storage import fetch_missing
from unswayed.files.whole import parse_json, read_file

from . import Session

HOST = "127.0.0.1"
MOST = 4096  # bytes of an answer
MOST_PICTURE = 2**28  # bytes of a picture's file
PATIENCE = 30.0  # seconds for the next bytes of a request
PAGES = {
    "/": ("review.html", "text/html; charset=utf-8"),
    "/review.css": ("review.css", "text/css; charset=utf-8"),
    "/review.js": ("review.js", "text/javascript; charset=utf-8"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Refusal(Exception):
    """A request that is not served, with its HTTP status and the reason."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ReviewServer(ThreadingHTTPServer):
    """Serves one session; `address` is where."""

    daemon_threads = True

    def __init__(self, session: Session, port: int = 0) -> None:
        self.session = session
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise UserError(
                f"port {port} cannot be used: {error.strerror}", allowed="another --port, or none"
            ) from None
        self.port = int(self.server_address[1])
        self.address = f"http://{HOST}:{self.port}/"
        self.hosts = {f"{name}:{self.port}" for name in (HOST, "localhost")}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing about a client that has gone away."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer

    def setup(self) -> None:
        self.request.settimeout(PATIENCE)
        super().setup()

    def do_GET(self) -> None:
        self._serve(self._page)

    def do_POST(self) -> None:
        self._serve(self._answer)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal belongs to the command."""

    def _serve(self, respond: Callable[[], tuple[str, bytes]]) -> None:
        """Send what `respond` returns, the content type and the content, or why the request is refused."""
        status = HTTPStatus.OK
        try:
            # Another site's page may resolve its own name to this computer; it cannot change these two headers.
            if self.headers.get("Host") not in self.server.hosts:
                raise Refusal(HTTPStatus.FORBIDDEN, "This page is only served under its own address.")
            origin = self.headers.get("Origin")
            if origin is not None and origin.removeprefix("http://") not in self.server.hosts:
                raise Refusal(HTTPStatus.FORBIDDEN, "Only this page itself may send answers.")
            kind, body = respond()
        except (Refusal, UserError) as error:
            status = error.status if isinstance(error, Refusal) else HTTPStatus.CONFLICT
            kind, body = _json({"error": str(error)})
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _page(self) -> tuple[str, bytes]:
        """A file of the page, its state, or a picture: `/picture/NUMBER/original` or `…/edited`.

        Pictures have numbers, so that an address tells a blind rater nothing.
        """
        if self.path in PAGES:
            name, kind = PAGES[self.path]
            return kind, resources.files(__package__).joinpath(name).read_bytes()
        if self.path == "/state":
            return _json(self.server.session.state())
        parts = self.path.strip("/").split("/")
        if len(parts) != 3 or parts[0] != "picture" or parts[2] not in ("original", "edited"):
            raise Refusal(HTTPStatus.NOT_FOUND, "There is no such page.")
        item = self.server.session.items[self._number(parts[1])]
        path = item.original if parts[2] == "original" else item.edited
        kinds = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}
        fetch_missing(path)
        try:
            return kinds.get(path.suffix.lower(), "application/octet-stream"), read_file(path, MOST_PICTURE)
        except UserError:
            raise Refusal(HTTPStatus.NOT_FOUND, "The picture is missing; run `unswayed verify`.") from None

    def _answer(self) -> tuple[str, bytes]:
        if self.path != "/answer":
            raise Refusal(HTTPStatus.NOT_FOUND, "There is no such page.")
        if (self.headers.get("Content-Type") or "").split(";")[0] != "application/json":
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "An answer is JSON.")
        try:
            length = int(self.headers.get("Content-Length") or 0)
            answered: Any = parse_json(self.rfile.read(length), "the answer") if 0 < length <= MOST else None
            number, answer, seconds = answered["item"], answered["answer"], float(answered.get("seconds") or 0.0)
        except (UserError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
            raise Refusal(HTTPStatus.BAD_REQUEST, "An answer has an item and an answer.") from None
        if answer not in ANSWERS or not math.isfinite(seconds):
            raise Refusal(HTTPStatus.BAD_REQUEST, f"An answer is one of {', '.join(ANSWERS)}, after some seconds.")
        self.server.session.answer(self._number(number), answer, round(seconds, 2))
        return _json({"saved": True})

    def _number(self, given: object) -> int:
        text = str(given)
        # A number of thousands of digits is not even converted.
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < len(self.server.session.items)):
            raise Refusal(HTTPStatus.NOT_FOUND, "There is no such picture.")
        return int(text)


def _json(value: object) -> tuple[str, bytes]:
    return "application/json", json.dumps(value, ensure_ascii=False).encode()


@contextmanager
def served(session: Session, port: int = 0) -> Iterator[ReviewServer]:
    """The session's page, served by a thread until the block ends; port 0 takes any free one."""
    server = ReviewServer(session, port)
    thread = threading.Thread(target=server.serve_forever, name="review", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
