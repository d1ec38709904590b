"""A filter in front of gradio: nothing is fetched from other hosts, and too large requests are refused."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# A painted mask has some hundred kB; files are uploaded, with a limit of their own.
MOST_JSON = 4 * 2**20
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
    """An ASGI application around another one."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if reaches_outside(scope["path"]):
            await _refuse(send, 403, "This page fetches nothing from other hosts.")
            return
        if scope["method"] == "POST" and _is_json(scope):
            body = await _body(receive)
            if body is None:
                await _refuse(send, 413, "The request is too large.")
                return
            if names_an_address(body):
                await _refuse(send, 403, "This page fetches nothing from other hosts.")
                return
            receive = _again(body, receive)
        await self.app(scope, receive, _with_headers(send))


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


def _is_json(scope: Message) -> bool:
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    return not any(value.startswith(b"multipart/form-data") for value in kinds)


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None where it is larger than a request may be."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
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


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *HEADERS]
        await send(message)

    return sent


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"detail": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
