"""A filter in front of gradio: who may ask, how large a request may be, and that nothing comes from other hosts.

A web page in the same browser can send requests to a server on this computer. So the Host header must name this server,
which stops names that are made to point here, and the Origin header, if there is one, must be this server's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from urllib.parse import unquote, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_UNREAD = 50
MOST_SESSIONS = 2000  # gradio keeps the answers of as many


class Unread:
    """Counts how often each session has asked since it last listened."""

    def __init__(self) -> None:
        self.asked: OrderedDict[str, int] = OrderedDict()
        self.listening: Counter[str] = Counter()

    def may_ask(self, session: str) -> bool:
        """Count a question; whether the session listens, or has few answers that it has not read."""
        if self.listening[session]:
            return True
        self.asked[session] = self.asked.pop(session, 0) + 1
        while len(self.asked) > MOST_SESSIONS:
            self.asked.popitem(last=False)
        return self.asked[session] <= MOST_UNREAD

    @contextlib.contextmanager
    def listens(self, session: str) -> Iterator[None]:
        """A block during which the session listens."""
        self.asked.pop(session, None)
        self.listening[session] += 1
        try:
            yield
        finally:
            self.listening[session] -= 1
            self.listening += Counter()  # drops sessions that no longer listen


# A painted mask has some hundred kB; files are uploaded, with a limit of their own.
MOST_JSON = 4 * 2**20
MOST_UPLOAD = 51 * 2**20
MOST_TEXT = 64 * 2**10  # bytes of all text fields of an upload, which gradio keeps in memory
PATIENCE = 30.0  # seconds for the next part of a request
LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
COOKIE = "unswayed-token"
# gradio asks itself for this when it starts, without the token.
_STARTUP = "/gradio_api/startup-events"
# gradio compiles its templates with `new Function` and styles inline; nothing comes from another host.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "frame-ancestors 'none'; base-uri 'self'; form-action 'self'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class RequestRefused(Exception):
    """A request that is not answered, with the HTTP status and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Guard:
    """An ASGI application around another one.

    token: what a visitor must know, None for a page that only this computer can reach. It is given once in the
    address, as `?token=…`, and then kept by the browser as a cookie.
    """

    def __init__(self, app: ASGIApp, token: str | None = None) -> None:
        self.app, self.token = app, token
        self.unread = Unread()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":  # the page opens no web socket
            return
        request, begun, own = Request(scope), False, list(HEADERS)

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        try:
            self._check_origin(request)
            if self._has_token(request):  # nobody else is told the token
                own.append((b"set-cookie", f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/".encode()))
            elif self.token is not None and scope["path"] != _STARTUP:
                # gradio asks for its own page when it starts, and takes 401 for a page that asks for a password.
                raise RequestRefused(401, "Open the page with the token in its address, as the command printed it.")
            await self._checked(request, receive, sent)
        except ClientDisconnect:
            return
        except Exception as error:
            if begun:
                raise
            if not isinstance(error, RequestRefused):
                # gradio raises for requests that its own page never sends; one line of each is enough.
                print(f"{scope['method']} {scope['path'][:200]!r}: {error!r:.200}", file=sys.stderr)
                error = RequestRefused(500, "The request cannot be answered.")
            await JSONResponse({"detail": str(error)}, error.status)(scope, receive, sent)

    async def _checked(self, request: Request, receive: Receive, send: Send) -> None:
        """Hand over a request of a known visitor, unless it is too large or reaches outside."""
        scope, path = request.scope, request.scope["path"]
        kinds, lengths = (request.headers.getlist(name) for name in ("content-type", "content-length"))
        if len(kinds) > 1 or len(lengths) > 1:
            raise RequestRefused(400, "A request has one Content-Type and one Content-Length.")
        upload = path.endswith("/upload") and bool(kinds) and kinds[0].startswith("multipart/form-data")
        length = (lengths or ["0"])[0]
        announced = int(length) if length.isdecimal() and len(length) < 16 else MOST_UPLOAD + 1
        if announced > (MOST_UPLOAD if upload else MOST_JSON):
            raise RequestRefused(413, "The request is too large.")
        if reaches_outside(path):
            raise RequestRefused(403, "This page fetches nothing from other hosts.")
        if upload:
            receive = _bounded(receive, MOST_UPLOAD, _text_counter(kinds[0]))
        elif request.method not in ("GET", "HEAD"):
            body = await Request(scope, _bounded(receive, MOST_JSON)).body()
            if names_an_address(body):
                raise RequestRefused(403, "This page fetches nothing from other hosts.")
            if path.endswith("/queue/join") and not self.unread.may_ask(_session(body)):
                raise RequestRefused(429, "Read the answers before you ask again.")
            receive = _again(body, receive)
        listens = path.endswith("/queue/data")
        session = request.query_params.get("session_hash", "")
        with self.unread.listens(session) if listens else contextlib.nullcontext():
            await self.app(scope, receive, send)

    def _check_origin(self, request: Request) -> None:
        """Refuse a visitor from another computer, where there is no token, and a request of another page."""
        host = request.headers.get("host", "")
        try:
            name = urlsplit(f"//{host}").hostname or ""
            origins = [urlsplit(origin).netloc for origin in request.headers.getlist("origin")]
        except ValueError:
            raise RequestRefused(403, "The Host or Origin header is not an address.") from None
        if self.token is None and name not in LOOPBACK:
            raise RequestRefused(403, "This page is served to this computer only.")
        if any(origin != host for origin in origins) or len(origins) > 1:
            raise RequestRefused(403, "The request comes from another page.")

    def _has_token(self, request: Request) -> bool:
        """Whether the request brings the page's token, in its address or as a cookie."""
        given = [*request.query_params.getlist("token"), request.cookies.get(COOKIE, "")]
        expected = (self.token or "").encode()
        return self.token is not None and any(hmac.compare_digest(token.encode(), expected) for token in given)


def _bounded(receive: Receive, most: int, look: Callable[[bytes], object] = len) -> Receive:
    """A receiver that ends a request which is too large or too slow; look: sees each part and may refuse it."""
    size = 0

    async def bounded() -> Message:
        nonlocal size
        try:
            message = await asyncio.wait_for(receive(), PATIENCE)
            size += len(message.get("body", b""))
            look(message.get("body", b""))
        except (TimeoutError, ValueError):  # or no multipart at all
            size = most + 1
        if size > most:
            raise RequestRefused(413, "The request is too large or too slow.")
        return message

    return bounded


def _text_counter(kind: str) -> Callable[[bytes], object]:
    """A function that takes the parts of an upload and raises ValueError for too much text beside its files."""
    from python_multipart.multipart import MultipartParser, parse_options_header

    text, is_file = 0, False
    name, value = bytearray(), bytearray()  # of a header of a part, which may arrive in pieces

    def begins() -> None:
        nonlocal is_file
        is_file = False

    def header_ends() -> None:
        nonlocal is_file
        if name.lower() == b"content-disposition":
            is_file = b"filename" in parse_options_header(bytes(value))[1]
        name.clear()
        value.clear()

    def content(_: bytes, start: int, end: int) -> None:
        nonlocal text
        text += 0 if is_file else end - start
        if text > MOST_TEXT:
            raise ValueError

    return MultipartParser(
        parse_options_header(kind)[1].get(b"boundary", b""),
        {
            "on_part_begin": begins,
            "on_header_field": lambda data, start, end: name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: value.extend(data[start:end]),
            "on_header_end": header_ends,
            "on_part_data": content,
        },
    ).write


def reaches_outside(path: str) -> bool:
    """Return whether a path makes the server fetch from another host, as gradio's `file=http…` and `proxy=…` do.

    >>> reaches_outside("/gradio_api/file=https://example.org/a.png"), reaches_outside("/gradio_api/file=/tmp/a.png")
    (True, False)
    """
    plain = unquote(unquote(path)).lower()
    return "proxy=" in plain or any(f"file={scheme}:" in plain for scheme in ("http", "https", "ftp", "file"))


def names_an_address(body: bytes) -> bool:
    """Whether a JSON request hands over a file by a web address, which gradio would fetch.

    >>> names_an_address(b'{"data": [{"path": "https://example.org/a.png"}]}')
    True
    """
    addresses = []

    def look(value: dict[str, object]) -> None:
        if str(value.get("path")).strip().lower().startswith(("http:", "https:")):
            addresses.append(value)

    with contextlib.suppress(ValueError, RecursionError):
        json.loads(body, object_hook=look)
    return bool(addresses)


def _session(body: bytes) -> str:
    """The session that a question comes from; an empty text if it names none."""
    with contextlib.suppress(ValueError, RecursionError):
        given = json.loads(body)
        return str(given.get("session_hash"))[:100] if isinstance(given, dict) else ""
    return ""


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that gives the body once, then continues with the original one."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def once() -> Message:
        return waiting.pop() if waiting else await receive()

    return once
