"""Without a network the hub's cache is used at once."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import close_session, constants

from unswayed.errors import UserError
from unswayed.files import downloads as hub
from unswayed.masks.segment import open_checkpoint
from unswayed.models import open_model


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A machine without proxies on which the hub's offline mode is not set and the hub is a port that nobody has."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    close_session()  # the client reads the proxies when it is made
    yield monkeypatch
    close_session()


@contextlib.contextmanager
def server(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives every request this answer: its address, and the first lines of the requests."""
    requests: list[bytes] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            requests.append(self.rfile.readline())
            while self.rfile.readline().strip():
                pass
            self.wfile.write(b"HTTP/1.1 " + answer + b"\r\nContent-Length: 0\r\n\r\n" if answer else b"")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}", requests
        listening.shutdown()


def test_an_unreachable_hub_is_not_asked(online: pytest.MonkeyPatch) -> None:
    with hub.quick_hub():
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE
    with pytest.raises(UserError, match="could not be loaded"):
        open_model("timm:hf-hub:nobody/nothing")


def test_a_hub_that_never_answers_is_given_up(online: pytest.MonkeyPatch) -> None:
    online.setattr(hub, "PATIENCE", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        online.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with hub.quick_hub():
            assert constants.HF_HUB_OFFLINE


@pytest.mark.parametrize(("answer", "reached"), [(b"200 OK", True), (b"503 Service Unavailable", False), (b"", False)])
@pytest.mark.parametrize("proxy", [False, True])
def test_a_hub_that_answers_is_asked(online: pytest.MonkeyPatch, answer: bytes, reached: bool, proxy: bool) -> None:
    with server(answer) as (address, requests):
        online.setattr(constants, "ENDPOINT", "http://hub.invalid" if proxy else address)
        if proxy:
            online.setenv("HTTP_PROXY", address)
        with hub.quick_hub():
            assert reached != constants.HF_HUB_OFFLINE
    assert requests[0].startswith(b"HEAD http://hub.invalid" if proxy else b"HEAD / ")


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
    with pytest.raises(UserError, match="nobody/masks cannot be opened"):
        open_checkpoint("nobody/masks")
    assert asked == [("nobody/masks", True)]


@pytest.mark.parametrize("open_folder", [lambda folder: open_model(f"transformers:{folder}"), open_checkpoint])
def test_a_folder_is_opened_without_the_hub(
    online: pytest.MonkeyPatch, asked: list[tuple[str, bool]], tmp_path: Path, open_folder: Callable[[str], object]
) -> None:
    with server(b"200 OK") as (address, requests):
        online.setattr(constants, "ENDPOINT", address)
        with pytest.raises(UserError):
            open_folder(str(tmp_path))
    assert requests == []
    assert asked == [(str(tmp_path), True)]


def test_a_segmenter_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "sam"}')
    with pytest.raises(UserError, match=f"the checkpoint {tmp_path} cannot be opened"):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize("answer", [b"503 Service Unavailable", b""])
def test_a_proxy_is_asked_for_a_tunnel_to_the_hub(online: pytest.MonkeyPatch, answer: bytes) -> None:
    with server(answer) as (address, requests):
        online.setattr(constants, "ENDPOINT", "https://hub.invalid")
        online.setenv("HTTPS_PROXY", address)
        with hub.quick_hub():
            assert constants.HF_HUB_OFFLINE
    assert requests[0].startswith(b"CONNECT hub.invalid:443")


def test_a_proxy_that_is_not_there_means_no_network(online: pytest.MonkeyPatch) -> None:
    online.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    online.setattr(constants, "ENDPOINT", "https://hub.invalid")
    with hub.quick_hub():
        assert constants.HF_HUB_OFFLINE
