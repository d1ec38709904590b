"""Without a network the hub's cache is used at once."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants

from unswayed.errors import UserError
from unswayed.files import downloads as hub
from unswayed.masks.segment import open_checkpoint
from unswayed.models import open_model


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


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The names that transformers was asked for, and whether the hub was offline then; it has none of them."""
    transformers = pytest.importorskip("transformers")
    names: list[tuple[str, bool]] = []

    def ask(name: str, **_: object) -> None:
        names.append((name, constants.HF_HUB_OFFLINE))
        raise OSError("not in the cache")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", ask)
    return names


def test_a_segmenter_of_an_unreachable_hub_is_not_asked_for(
    online: pytest.MonkeyPatch, asked: list[tuple[str, bool]]
) -> None:
    online.setattr(socket, "create_connection", refuse)
    with pytest.raises(UserError, match="nobody/masks cannot be opened"):
        open_checkpoint("nobody/masks")
    assert asked == [("nobody/masks", True)]


@pytest.mark.parametrize("open_folder", [lambda one: open_model(f"transformers:{one}"), open_checkpoint])
def test_a_folder_is_opened_without_the_hub(
    online: pytest.MonkeyPatch, asked: list[tuple[str, bool]], tmp_path: Path, open_folder: Callable[[str], object]
) -> None:
    online.setattr(socket, "create_connection", lambda *_: socket.socket())
    with pytest.raises(UserError):
        open_folder(str(tmp_path))
    assert asked == [(str(tmp_path), True)]


def test_a_segmenter_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "sam"}')
    with pytest.raises(UserError, match=f"the checkpoint {tmp_path} cannot be opened"):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize(("answer", "reached"), [(b"200 OK", True), (b"503 Service Unavailable", False), (b"", False)])
def test_a_proxy_is_asked_for_the_hub(online: pytest.MonkeyPatch, answer: bytes, reached: bool) -> None:
    requests = []

    class Proxy(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            requests.append(self.rfile.readline())
            while self.rfile.readline().strip():
                pass
            self.wfile.write(b"HTTP/1.1 " + answer + b"\r\n\r\n" if answer else b"")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        proxy = f"http://127.0.0.1:{server.server_address[1]}"
        online.setattr("urllib.request.getproxies", lambda: {"https": proxy})
        online.setattr("urllib.request.proxy_bypass", lambda host: False)
        with hub.quick_hub():
            assert reached != constants.HF_HUB_OFFLINE
        server.shutdown()
    assert requests[0].startswith(b"CONNECT ")


def test_a_proxy_that_is_not_there_means_no_network(online: pytest.MonkeyPatch) -> None:
    online.setattr("urllib.request.getproxies", lambda: {"https": "http://127.0.0.1:1", "no": "localhost"})
    with hub.quick_hub():
        assert constants.HF_HUB_OFFLINE
