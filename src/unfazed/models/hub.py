"""The Hugging Face Hub: asked only if it can be reached, because its own retries take a minute without a network."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

PATIENCE = 3.0  # seconds


@contextlib.contextmanager
def quick_hub() -> Iterator[None]:
    """A block in which the hub's libraries use only their cache if the hub cannot be reached within PATIENCE."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _reachable(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _reachable(endpoint: str) -> bool:
    """Whether a connection can be opened; taken for granted where a proxy is set, which would have to be asked."""
    if urllib.request.getproxies():
        return True
    place = urlsplit(endpoint)
    found = threading.Event()

    def connect() -> None:
        with contextlib.suppress(OSError, ValueError):
            socket.create_connection((str(place.hostname), place.port or 443), PATIENCE).close()
            found.set()

    # In a thread of its own: looking up a name has no time limit.
    trial = threading.Thread(target=connect, daemon=True)
    trial.start()
    trial.join(PATIENCE)
    return found.is_set()
