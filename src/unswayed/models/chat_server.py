"""A chat server that takes pictures, by OpenAI's protocol: asking, waiting, retrying, a budget, and stored answers.

Every answer is stored in the cache folder before it is used, so that a run that is stopped or repeated pays for no
answer twice. The key is read from the environment at each request; it is sent to the server and nowhere else, and
removed from whatever the server sends back.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import http.client
import json
import os
import re
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2

from unswayed.errors import UserError, printable
from unswayed.files.records import checked
from unswayed.files.storage import cache_folder
from unswayed.files.whole import hash_values, parse_json, read_json, write_json

from .questions import Reply, Shown

KEY = "UNSWAYED_API_KEY"
ATTEMPTS = 6  # for one question
LONGEST_WAIT = 600  # seconds that a server may ask for before the run stops, to be resumed later
MOST_REPLY = 8 * 2**20  # bytes
LONGEST_TEXT = 2000  # characters of an answer
NOT_STORED = ("timeout", "failed", "malformed")  # outcomes that are asked for again
MANY = 8  # pictures without a single answer after which the server counts as gone
PICTURE_TOKENS = 300  # of a small picture, for the estimate: servers count from about 60 to 800
_AGAIN = {408, 409, 425, 429, 500, 502, 503, 504, 529}
_NAMES = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass
class Budget:
    """What a run may ask of all its servers, and what it has asked; for all threads. None: no limit.

    concurrency: questions at a time; per_minute: requests to one server; timeout: seconds until an answer.
    """

    most_requests: int | None = None
    most_tokens: int | None = None
    concurrency: int = 4
    per_minute: float | None = None
    timeout: float = 60.0
    requests: int = 0
    tokens: int = 0
    _reserved: int = 0
    _lock: Any = field(default_factory=threading.Lock)

    def reserve(self, tokens: int) -> None:
        """Take one request and about so many tokens from the budget; refused if it does not have them."""
        with self._lock:
            for name, used, more in (("requests", self.requests, 1), ("tokens", self.tokens + self._reserved, tokens)):
                most = getattr(self, f"most_{name}")
                if most is not None and used + more > most:
                    raise UserError(
                        f"the budget of {most:,} {name} is spent: {self.requests:,} requests with {self.tokens:,} "
                        "tokens; the answers so far are kept",
                        run="the same command with a larger --budget, which goes on where this one stopped",
                    )
            self.requests, self._reserved = self.requests + 1, self._reserved + tokens

    def settle(self, reserved: int, used: int, paid: bool) -> None:
        """Count what a request really took; one that the server turned away costs nothing."""
        with self._lock:
            self._reserved, self.tokens = self._reserved - reserved, self.tokens + used
            self.requests -= not paid


def read_budget(text: str | None) -> dict[str, int]:
    """
    >>> read_budget("requests=500,tokens=200000"), read_budget("500")
    ({'most_requests': 500, 'most_tokens': 200000}, {'most_requests': 500})
    """
    limits = {}
    for part in text.replace(" ", "").split(",") if text else ():
        parsed = re.fullmatch(r"(?:(requests|tokens)=)?([0-9_]{1,15})", part)
        if parsed is None:
            raise UserError(f"the budget is '{text}'", allowed="requests=500, tokens=200000, or both with a comma")
        limits[f"most_{parsed[1] or 'requests'}"] = int(parsed[2])
    return limits


class _Unusable(UserError):
    """A reply that cannot be read."""


@dataclass(eq=False)
class ChatServer:
    """A model of a server. url: up to and without `/chat/completions`. settings: further fields of every request;
    key: the environment variable with the key."""

    url: str
    model: str
    settings: Mapping[str, Any]
    key: str = KEY
    budget: Budget = field(default_factory=Budget)
    dropped: set[str] = field(default_factory=set)  # settings that the server does not take
    stopped: threading.Event = field(default_factory=threading.Event)
    answered: bool = False  # ever
    _next: float = 0.0  # when the next request may be sent
    _lock: Any = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise UserError(f"'{self.url}' is no address of a server", allowed="https://HOST/v1 or http://HOST:PORT/v1")
        if parts.username is not None:
            raise UserError(
                "the address of the server contains a user name or password",
                allowed=f"the address alone; a key is read from the environment variable {KEY}",
            )
        self.url = self.url.rstrip("/").removesuffix("/chat/completions")
        # Whatever stands there instead may be the key itself, so the message does not repeat it.
        if self.key != KEY and not (_NAMES.fullmatch(self.key) and self.key in os.environ):
            raise UserError("the option key names no environment variable", allowed=f"key=NAME; {KEY} without it")

    def replies(self, asked: Sequence[tuple[Shown, str]]) -> list[Reply]:
        """The replies to prompts about pictures, in their order; several are asked at once, and none of them twice."""
        pool = ThreadPoolExecutor(self.budget.concurrency, thread_name_prefix="ask")
        try:
            paths = [self.stored(shown, prompt) for shown, prompt in asked]
            once = dict(zip(paths, asked, strict=True))
            futures = {path: pool.submit(self.ask, path, *question) for path, question in once.items()}
            replies = [futures[path].result() for path in paths]
        except BaseException:
            self.stopped.set()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            self.stopped.clear()
        silent = [reply for reply in replies if reply.outcome in NOT_STORED]
        if len(silent) == len(replies) and (not self.answered or len(replies) >= MANY):
            raise UserError(
                f"{self.url} answered none of {len(replies)} questions in a row, first: {silent[0].outcome} "
                f"{silent[0].text}",
                run="the same command, once the server answers; the answers so far are kept",
            )
        self.answered = True
        return replies

    def stored(self, shown: Shown, prompt: str) -> Path:
        """The file of the stored answer to a question."""
        asked = [self.url, self.model, dict(self.settings), shown.picture, prompt, shown.repeat]
        name = hash_values([asked])[0]
        return cache_folder() / "answers" / name[:2] / f"{name}.json"

    def ask(self, path: Path, shown: Shown, prompt: str) -> Reply:
        """The reply to one question; from its file if it has been asked before."""
        if path.is_file():
            with contextlib.suppress(UserError):  # a damaged file is asked for again
                known = checked(Reply, read_json(path), str(path))
                self.dropped |= set(known.without)
                return known
        # Pixels alone, without the name or the notes of the file that they came from.
        png = cv2.imencode(".png", cv2.cvtColor(shown.pixels, cv2.COLOR_RGB2BGR))[1].tobytes()
        for attempt in range(ATTEMPTS):
            reply, seconds = self._attempt(png, prompt, attempt)
            if seconds is None or attempt == ATTEMPTS - 1:
                break
            self._pause(seconds)
        if reply.outcome == "unreachable":
            raise UserError(f"{self.url} cannot be reached: {reply.text}", run="the same command, which goes on")
        if reply.outcome not in NOT_STORED:
            without = sorted(self.dropped)
            write_json(path, {**vars(reply), "without": without, "model": self.model, "url": self.url})
        return reply

    def estimate(self, prompt: str) -> int:
        """About how many tokens one question and its reply take."""
        return PICTURE_TOKENS + len(prompt) // 4 + 8

    def _attempt(self, png: bytes, prompt: str, attempt: int) -> tuple[Reply, float | None]:
        """The reply to one request, and after how many seconds it is worth repeating; None if it is not."""
        expected, used, paid, seconds = self.estimate(prompt), 0, True, 2.0**attempt / 2
        self.budget.reserve(expected)
        try:
            self._wait()
            status, headers, body = self._post(png, prompt)
            if paid := status == 200:
                used = expected
                reply = read_reply(body)
                used = expected if reply.used is None else reply.used
                return reply, None
            return Reply("failed", f"HTTP {status}: {_error(body)[0]}"), self._refused(status, headers, body, seconds)
        except _Unusable as error:
            return Reply("malformed", str(error)), seconds
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                used = expected  # it may have been answered, and paid
                return Reply("timeout"), seconds if attempt == 0 else None
            paid = False
            return Reply("unreachable", self._hidden(str(reason))), seconds
        finally:
            self.budget.settle(expected, used, paid)

    def _post(self, png: bytes, prompt: str) -> tuple[int, Mapping[str, str], str]:
        """The status, the headers and the text of the server's reply to one request."""
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(png).decode()}"}}
        content = [image, {"type": "text", "text": prompt}]
        optional = {name: value for name, value in self.settings.items() if name not in self.dropped}
        if "max_tokens" in self.dropped:
            optional["max_completion_tokens"] = self.settings["max_tokens"]
        body = {"model": self.model, "messages": [{"role": "user", "content": content}], **optional}
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key := self._key():
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(f"{self.url}/chat/completions", json.dumps(body).encode(), headers)
        deadline, text = time.monotonic() + self.budget.timeout, b""
        with _OPENER.open(request, timeout=self.budget.timeout) as response:
            while block := response.read1(1 << 16):
                text += block
                if time.monotonic() > deadline:
                    raise TimeoutError
                if len(text) > MOST_REPLY:
                    raise _Unusable(f"more than {MOST_REPLY:,} bytes")
            return response.status, response.headers, self._hidden(text.decode("utf-8", "replace"))

    def _refused(self, status: int, headers: Mapping[str, str], body: str, usual: float) -> float | None:
        """Seconds until a request that the server turned away is repeated, None if repeating it changes nothing.

        Raises UserError for what no repetition mends: a wrong key, model or address, a quota that is used up.
        """
        message, error = _error(body)
        if status in (400, 422):
            quoted = set(re.findall(r"[\"'`](\w+)[\"'`]", message)) | {str(error.get("param"))}
            named = quoted & self.settings.keys()
            # `top_logprobs` has no meaning without `logprobs`.
            self.dropped |= named | ({"top_logprobs"} & self.settings.keys() if "logprobs" in named else set())
            return 0.0 if named else None
        if status in (401, 402, 403, 404) or error.get("code") == "insufficient_quota" or 300 <= status < 400:
            known = f"the key in {self.key}" if self._key() else f"no key: {self.key} is not set"
            raise UserError(
                f"{self.url} turns requests for the model '{self.model}' away, with {known}: HTTP {status}: {message}",
                allowed="the address, model and key of a server that answers; the answers so far are kept",
            )
        if status not in _AGAIN:
            return None
        seconds = _retry_after(headers.get("Retry-After"))
        if seconds is None:
            return usual
        if seconds > LONGEST_WAIT:
            raise UserError(
                f"{self.url} asks to wait for {seconds:,.0f} seconds; the answers so far are kept",
                run="the same command later",
            )
        with self._lock:  # no thread sends a request before
            self._next = max(self._next, time.monotonic() + seconds)
        return seconds

    def _wait(self) -> None:
        """Until the next request may be sent, by any thread."""
        with self._lock:
            start = max(time.monotonic(), self._next)
            self._next = start + (60 / self.budget.per_minute if self.budget.per_minute else 0)
        self._pause(start - time.monotonic())

    def _pause(self, seconds: float) -> None:
        if self.stopped.wait(max(0.0, seconds)):
            raise UserError("the run was stopped")

    def _key(self) -> str:
        key = os.environ.get(self.key, "").strip()
        if not key.isascii() or not key.isprintable() or " " in key:
            raise UserError(f"the environment variable {self.key} holds no key", allowed="one line of printable ASCII")
        return key

    def _hidden(self, text: str) -> str:
        """A text from the server without the key."""
        key = self._key()
        return text.replace(key, "…") if key else text


# Every status is a reply, and no redirection is followed, which would send the key and the picture to an address that
# the user did not give.
_OPENER = urllib.request.OpenerDirector()
for _handler in (urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    _OPENER.add_handler(_handler())


def _error(body: str) -> tuple[str, dict[str, object]]:
    """The message of an error by OpenAI's protocol, or the beginning of any other text, and the error itself."""
    error = {}
    with contextlib.suppress(UserError, AttributeError):
        error = parse_json(body, "the reply").get("error")
        error = error if isinstance(error, dict) else {}
    return printable(str(error.get("message") or body))[:300], error


def _retry_after(value: str | None) -> float | None:
    """The seconds of a header `Retry-After`, which is a number or a date."""
    if value is None:
        return None
    with contextlib.suppress(ValueError, OverflowError):
        return max(0.0, float(value))
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return None


def read_reply(body: str) -> Reply:
    """A reply by OpenAI's protocol; raises _Unusable if it is none."""
    try:
        value = parse_json(body, "the reply")
        choice = value["choices"][0]
        message, reason = choice["message"], choice.get("finish_reason")
        text, refusal = message.get("content"), message.get("refusal")
        if isinstance(text, list):  # some servers send the parts of a text
            text = "".join(str(part.get("text", "")) for part in text)
        if not isinstance(text, str) and not refusal:
            raise _Unusable(f"no text in {printable(body)[:200]}")
        used = (value.get("usage") or {}).get("total_tokens")
        tokens, first = _tokens((choice.get("logprobs") or {}).get("content") or [])
    except (UserError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise _Unusable(f"{printable(body)[:200]} ({type(error).__name__})") from None
    outcome = {"content_filter": "refused", "length": "truncated"}.get(str(reason), "answered")
    counted = used if isinstance(used, int) and 0 <= used < 2**31 else None
    return Reply("refused" if refusal else outcome, str(text or refusal or "")[:LONGEST_TEXT], tokens, first, counted)


def _tokens(content: Any) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """Each token with its log-probability, and the alternatives at the first one; empty where they are not stated."""
    try:
        tokens = [(str(entry["token"]), float(entry["logprob"])) for entry in content]
        first = [(str(entry["token"]), float(entry["logprob"])) for entry in content[0].get("top_logprobs") or []]
    except (LookupError, TypeError, AttributeError, ValueError):
        return [], []
    return tokens, first
