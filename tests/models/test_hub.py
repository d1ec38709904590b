"""Without a network the hub's cache is used at once."""

from __future__ import annotations

import socket
import threading

import pytest
from huggingface_hub import constants

from unfazed.errors import UserError
from unfazed.models import hub, open_model


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without proxies on which the hub's offline mode is not set."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    return monkeypatch


def refuse(*_: object) -> None:
    raise OSError("no network")


def test_an_unreachable_hub_is_not_asked(online: pytest.MonkeyPatch) -> None:
    online.setattr(socket, "create_connection", refuse)
    with hub.quick_hub():
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE
    with pytest.raises(UserError, match="could not be loaded"):
        open_model("timm:hf-hub:nobody/nothing")


def test_a_name_that_is_looked_up_for_ever_is_given_up(online: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    online.setattr(hub, "PATIENCE", 0.05)
    online.setattr(socket, "create_connection", lambda *_: stop.wait(60) and refuse())
    with hub.quick_hub():
        assert constants.HF_HUB_OFFLINE
    stop.set()


def test_a_hub_that_can_be_reached_is_asked(online: pytest.MonkeyPatch) -> None:
    online.setattr(socket, "create_connection", lambda *_: socket.socket())
    with hub.quick_hub():
        assert not constants.HF_HUB_OFFLINE
