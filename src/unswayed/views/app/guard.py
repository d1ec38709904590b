"""A filter in front of gradio: who may ask, how large a request may be, and that nothing comes from other hosts.

A web page in the same browser can send requests to a server on this computer. So the Host header must name this server,
which stops names that are made to point here, and the Origin header, if there is one, must be this server's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import io
import json
import sys
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any, TextIO
from urllib.parse import parse_qs, unquote, urlsplit

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


MOST = 2 * 2**20  # characters
LAST = "\nFurther messages of the server are not shown.\n"


class Bounded(io.TextIOBase):
    """A text stream that passes on at most `most` characters to another one."""

    def __init__(self, stream: TextIO, most: int = MOST) -> None:
        self.stream, self.left = stream, most

    def write(self, text: str) -> int:
        if self.left > 0:
            self.stream.write(text[: self.left] + (LAST if len(text) >= self.left else ""))
        self.left -= len(text)
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return self.stream.isatty()


@contextlib.contextmanager
def bounded_messages() -> Iterator[None]:
    """A block in which at most MOST characters are written to standard output and to standard error each."""
    with contextlib.redirect_stdout(Bounded(sys.stdout)), contextlib.redirect_stderr(Bounded(sys.stderr)):
        yield


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

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


class Guard:
    """An ASGI application around another one.

    token: what a visitor must know, None for a page that only this computer can reach. It is given once in the
    address, as `?token=…`, and then kept by the browser as a cookie.
    """

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]], token: str | None = None) -> None:
        self.app, self.token = app, token
        self.unread = Unread()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # the page opens no web socket
            return
        headers = _headers(scope)
        refusal = self._stranger(headers)
        if refusal is not None:
            await _refuse(send, 403, refusal)
            return
        known = self._has_token(scope, headers)
        if self.token is not None and not known and scope["path"] != _STARTUP:
            # gradio asks for its own page when it starts, and takes 401 for a page that asks for a password.
            await _refuse(send, 401, "Open the page with the token in its address, as the command printed it.")
            return
        started = _Started(self._with_headers(send, known))
        try:
            await self._checked(scope, headers, receive, started)
        except Exception as error:
            # gradio raises for requests that its own page never sends; one line of each is enough.
            if started.begun:
                raise
            print(f"{scope['method']} {scope['path'][:200]!r}: {error!r:.200}", file=sys.stderr)
            await _refuse(started, 500, "The request cannot be answered.")

    async def _checked(self, scope: Message, headers: dict[str, list[str]], receive: Receive, send: Send) -> None:
        """Hand over a request of a known visitor, unless it is too large or reaches outside."""
        kinds = headers.get("content-type", [])
        if len(kinds) > 1 or len(headers.get("content-length", [])) > 1:
            await _refuse(send, 400, "A request has one Content-Type and one Content-Length.")
            return
        upload = scope["path"].endswith("/upload") and bool(kinds) and kinds[0].startswith("multipart/form-data")
        if _announced(headers) > (MOST_UPLOAD if upload else MOST_JSON):
            await _refuse(send, 413, "The request is too large.")
            return
        if reaches_outside(scope["path"]):
            await _refuse(send, 403, "This page fetches nothing from other hosts.")
            return
        if upload:
            try:
                await self.app(scope, _bounded(receive, kinds[0]), send)
            except (_TooLarge, TimeoutError):
                await _refuse(send, 413, "The upload is too large or too slow.")
            return
        if scope["method"] not in ("GET", "HEAD"):
            body = await _body(receive)
            if body is None:
                await _refuse(send, 413, "The request is too large.")
                return
            if names_an_address(body):
                await _refuse(send, 403, "This page fetches nothing from other hosts.")
                return
            if scope["path"].endswith("/queue/join") and not self.unread.may_ask(_session(body)):
                await _refuse(send, 429, "Read the answers before you ask again.")
                return
            receive = _again(body, receive)
        if scope["path"].endswith("/queue/data"):
            asked = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("session_hash", [""])[0]
            with self.unread.listens(asked):
                await self.app(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _stranger(self, headers: dict[str, list[str]]) -> str | None:
        """Why this visitor is refused; None if not."""
        host = (headers.get("host") or [""])[0]
        origins = headers.get("origin", [])
        try:
            name = urlsplit(f"//{host}").hostname or ""
            places = [urlsplit(origin).netloc for origin in origins]
        except ValueError:
            return "The Host or Origin header is not an address."
        if self.token is None and name not in LOOPBACK:
            return "This page is served to this computer only."
        if any(place != host for place in places) or len(places) > 1:
            return "The request comes from another page."
        return None

    def _has_token(self, scope: Message, headers: dict[str, list[str]]) -> bool:
        """Whether the request brings the page's token, in its address or as a cookie."""
        if self.token is None:
            return False
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [])
        given += [value for cookie in headers.get("cookie", []) for value in _cookies(cookie, COOKIE)]
        return any(hmac.compare_digest(token.encode(), self.token.encode()) for token in given)

    def _with_headers(self, send: Send, known: bool) -> Send:
        own = list(HEADERS)
        if known:  # nobody else is told the token
            own.append((b"set-cookie", f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/".encode()))

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        return sent


class _Started:
    """A `send` that remembers whether an answer has begun."""

    def __init__(self, send: Send) -> None:
        self.send, self.begun = send, False

    async def __call__(self, message: Message) -> None:
        self.begun = True
        await self.send(message)


class _TooLarge(Exception):
    """An upload has more bytes than are allowed."""


def _headers(scope: Message) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _announced(headers: dict[str, list[str]]) -> int:
    length = (headers.get("content-length") or ["0"])[0]
    return int(length) if length.isdecimal() and len(length) < 16 else MOST_UPLOAD + 1


def _cookies(header: str, name: str) -> list[str]:
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return [value for key, _, value in pairs if key == name]


def _bounded(receive: Receive, kind: str) -> Receive:
    """A receiver that ends an upload which is too large or too slow, or has too much text beside its files."""
    from python_multipart.multipart import MultipartParser, parse_options_header

    size, text, is_file = 0, 0, False
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

    boundary = parse_options_header(kind)[1].get(b"boundary", b"")
    calls: Any = {
        "on_part_begin": begins,
        "on_header_field": lambda data, start, end: name.extend(data[start:end]),
        "on_header_value": lambda data, start, end: value.extend(data[start:end]),
        "on_header_end": header_ends,
        "on_part_data": content,
    }
    parser = MultipartParser(boundary, calls)

    async def bounded() -> Message:
        nonlocal size
        message = await asyncio.wait_for(receive(), PATIENCE)
        body = message.get("body", b"")
        size += len(body)
        try:
            parser.write(body)
        except ValueError:
            raise _TooLarge from None  # no multipart at all
        if size > MOST_UPLOAD or text > MOST_TEXT:
            raise _TooLarge
        return message

    return bounded


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
    try:
        waiting = [json.loads(body)]
    except (ValueError, RecursionError):
        return False
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            path = value.get("path")
            if isinstance(path, str) and path.strip().lower().startswith(("http:", "https:")):
                return True
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return False


def _session(body: bytes) -> str:
    """The session that a question comes from; an empty text if it names none."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    return str(given.get("session_hash"))[:100] if isinstance(given, dict) else ""


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None where it is larger than a request may be."""
    parts, size, more = [], 0, True
    while more:
        try:
            message = await asyncio.wait_for(receive(), PATIENCE)
        except TimeoutError:
            return None
        if message["type"] != "http.request":
            break
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_JSON:
            return None
        more = message.get("more_body", False)
    return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that gives the body once, then continues with the original one."""
    given = False

    async def once() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"detail": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
