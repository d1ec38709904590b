"""People rate the pictures of a benchmark: one rater's session, its page, and a summary of what all raters said.

The page is plain HTTP on this computer: no outside address, and no other page may send answers.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from socket import socket
from typing import Any

import numpy as np

from unswayed.analyses.alignment import agreement
from unswayed.benchmark import Benchmark
from unswayed.benchmark.rows import ANSWERS, OK, ORIGINAL_EDIT, SOURCE_EDIT, Answer, Review, add_review, read_reviews
from unswayed.errors import UserError, check_known
from unswayed.evaluation.facts import Facts
from unswayed.files.storage import fetch_missing
from unswayed.files.whole import Json, parse_json, read_file


@dataclass(frozen=True)
class Item:
    """One picture to be rated, with the picture of the photograph beside it; paths are files."""

    sample_id: str
    source_id: str
    edit: str
    run: int
    label: str
    original: Path
    edited: Path


@dataclass(frozen=True)
class Session:
    """What one rater is shown. blind: neither the edit's name nor the class is shown."""

    root: Path
    rater: str
    items: tuple[Item, ...]
    blind: bool = False

    def state(self) -> dict[str, object]:
        """What the page shows, as JSON; nothing in it tells a blind rater what was done to a picture."""
        answered = {review.sample_id: review.answer for review in read_reviews(self.root) if review.rater == self.rater}
        items, words = [], Facts().words({item.edit for item in self.items})
        for item in self.items:
            told = {"edit": None, "label": None} if self.blind else {"edit": words[item.edit], "label": item.label}
            items.append({"answer": answered.get(item.sample_id), **told})
        return {"rater": self.rater, "blind": self.blind, "items": items}

    def answer(self, number: int, answer: Answer, seconds: float | None = None) -> None:
        """Keep the rater's answer to the item of this number."""
        item = self.items[number]
        picture = (item.sample_id, item.source_id, item.edit, item.run)
        add_review(self.root, Review(*picture, self.rater, answer, self.blind, seconds))


def open_session(
    benchmark: str | Path,
    rater: str,
    *,
    blind: bool = False,
    shuffle: bool = False,
    edits: Sequence[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> Session:
    """The session of one rater over the edited pictures of a benchmark.

    shuffle: another order for each rater, the same whenever this rater comes back; limit: the first so many pictures,
    taken before shuffling for one rater so that all raters see the same ones, spread over the edits.
    """
    if not rater.strip():
        raise UserError("the rater has no name", allowed="--rater NAME")
    opened = Benchmark(benchmark)
    rows = [row for row in opened.manifest.to_pylist() if row["status"] == OK and row["path"]]
    check_known("edit", edits or (), opened.edits)
    originals = {row["source_id"]: row["path"] for row in rows if row["edit"] == ORIGINAL_EDIT}
    items = []
    for row in rows:
        source_id, edit = row["source_id"], row["edit"]
        if edit in (ORIGINAL_EDIT, SOURCE_EDIT) or source_id not in originals or (edits and edit not in edits):
            continue
        label = "" if row["label"] is None else opened.labels.classes[row["label"]]
        original, edited = opened.root / originals[source_id], opened.root / row["path"]
        items.append(Item(row["sample_id"], source_id, edit, int(row["run"]), label, original, edited))
    if not items:
        raise UserError(f"{opened.root} has no edited pictures to rate", run=f"unswayed status {opened.root}")
    if limit is not None:
        chosen = sorted(np.random.default_rng(seed).permutation(len(items))[:limit].tolist())
        items = [items[number] for number in chosen]
    if shuffle:
        own = int.from_bytes(hashlib.blake2b(f"{seed}/{rater}".encode(), digest_size=8).digest(), "big")
        items = [items[number] for number in np.random.default_rng(own).permutation(len(items))]
    return Session(opened.root, rater.strip(), tuple(items), blind)


def summarize(benchmark: str | Path) -> Json:
    """The raters with their numbers of answers, the answers by edit, and the agreement, None with one rater."""
    root = Benchmark(benchmark).root
    reviews = read_reviews(root)
    if not reviews:
        raise UserError(f"nobody has reviewed {root}", run=f"unswayed review {root} --rater NAME")
    answers: dict[str, dict[str, str]] = defaultdict(dict)
    by_edit: dict[str, Counter[str]] = defaultdict(Counter)
    for review in reviews:
        answers[review.rater][review.sample_id] = review.answer
        by_edit[review.edit][review.answer] += 1
    edits = {
        edit: {**{answer: counts[answer] / counts.total() for answer in ANSWERS}, "n": counts.total()}
        for edit, counts in sorted(by_edit.items())
    }
    agreed = agreement(answers)
    measured = {} if agreed is None else asdict(agreed)
    undefined = {name: None for name, value in measured.items() if isinstance(value, float) and math.isnan(value)}
    return {
        "raters": {rater: len(given) for rater, given in sorted(answers.items())},
        "edits": edits,
        "agreement": {**measured, **undefined} or None,
    }


def summary_text(summary: Json) -> str:
    """The summary as lines for a terminal."""
    lines = ["raters: " + ", ".join(f"{rater} ({count} answers)" for rater, count in summary["raters"].items())]
    for edit, shares in summary["edits"].items():
        parts = ", ".join(f"{shares[answer]:.0%} {answer}" for answer in ANSWERS)
        lines.append(f"{edit}: {parts} (n = {shares['n']} answers; human accuracy {1 - shares['unrecognizable']:.0%})")
    agreed = summary["agreement"]
    if agreed is None:
        lines.append("agreement: needs a second rater")
    else:
        kappa = "undefined" if agreed["kappa"] is None else f"{agreed['kappa']:.3f}"
        counts = f"{agreed['raters']} raters, {agreed['n']} pictures in common"
        lines.append(f"agreement: {agreed['method']}'s kappa {kappa}, {counts}")
    return "\n".join(lines) + "\n"


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

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
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
        """Print nothing: the terminal is for the output of the command."""

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
