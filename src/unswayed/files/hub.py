"""The Hugging Face Hub: asked only if it can be reached, because its own retries take a minute without a network."""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import socket
import threading
import urllib.request
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

PATIENCE = 3.0  # seconds


@contextlib.contextmanager
def quick_hub(folder: str | None = None) -> Iterator[None]:
    """A block in which the hub's libraries use only their cache if the hub cannot be reached within PATIENCE.

    folder: a name that is never looked up on the hub if it is a folder here, nor are the names in its files.
    """
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    is_here = folder is not None and os.path.isdir(folder)
    constants.HF_HUB_OFFLINE = before or is_here or not _reachable(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _reachable(endpoint: str) -> bool:
    """Whether a connection to the hub can be opened, through the proxy if one is set."""
    found = threading.Event()

    def connect() -> None:
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            _connect(endpoint)
            found.set()

    # In a thread of its own: looking up a name has no time limit.
    trial = threading.Thread(target=connect, daemon=True)
    trial.start()
    trial.join(PATIENCE)
    return found.is_set()


def _connect(endpoint: str) -> None:
    """Open a connection and close it; an exception if that is not possible."""
    place = urlsplit(endpoint)
    host, port = str(place.hostname), place.port or (80 if place.scheme == "http" else 443)
    proxies = urllib.request.getproxies()
    given = proxies.get(place.scheme) or proxies.get("all")
    if given is None or urllib.request.proxy_bypass(host):
        socket.create_connection((host, port), PATIENCE).close()
        return
    proxy = urlsplit(given if "://" in given else f"http://{given}")
    if (proxy.scheme, place.scheme) != ("http", "https"):
        # Of another kind of proxy it is only known whether it is there.
        socket.create_connection((str(proxy.hostname), proxy.port or 1080), PATIENCE).close()
        return
    user = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}"
    login = {"Proxy-Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"} if proxy.username else {}
    connection = http.client.HTTPConnection(str(proxy.hostname), proxy.port or 80, timeout=PATIENCE)
    connection.set_tunnel(host, port, login)
    connection.connect()
    connection.close()
