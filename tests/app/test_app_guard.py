"""What stands before gradio, and what a visitor can never reach: other hosts, other folders, endless requests."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from unfazed.app.guard import MOST_JSON, names_an_address, reaches_outside


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=http://example.org/a.png",
        "/gradio_api/file=HTTPS://example.org/a.png",
        "/gradio_api/file=%68ttp%3A//example.org",
        "/gradio_api/file=file:///etc/passwd",
        "/gradio_api/proxy=http://example.org",
    ],
)
def test_paths_to_other_hosts_are_known(path):
    assert reaches_outside(path)


def test_files_by_web_address_are_known_however_they_are_written():
    assert names_an_address(b'{"data": [1, {"path": "https://example.org/a.png"}]}')
    assert names_an_address(b'{"data": [[{"path": "\\u0068ttp://example.org"}]]}')
    assert not names_an_address(b'{"data": [{"path": "/tmp/a.png"}, "http://a text"]}')
    assert not names_an_address(b"not json")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "//etc/passwd",
        "../../../../../../etc/passwd",
        "..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/proc/self/environ",
        str(Path(__file__)),
        os.path.expanduser("~/.bashrc"),
        "http://127.0.0.1:1/",
    ],
)
def test_no_file_outside_the_pages_own_folder_is_served(address, path):
    for prefix in (
        "gradio_api/file=",
        "file=",
        "gradio_api/file/",
        "file/",
        "static/",
        "assets/",
        "gradio_api/stream/",
    ):
        answer = httpx.get(f"{address}{prefix}{path}")
        assert answer.status_code in (403, 404, 405, 422)
        assert "root:" not in answer.text
        assert "def test_" not in answer.text


def test_a_benchmarks_own_files_are_not_served_by_path_either(address, predictions):
    for path in (predictions / "lite_0.parquet", *predictions.glob("*.json")):
        assert httpx.get(f"{address}gradio_api/file={path}").status_code == 403


@pytest.mark.parametrize("given", ["/etc/passwd", "https://example.org/a.png"])
def test_a_file_that_was_not_uploaded_is_not_read(address, given):
    file = {"path": given, "meta": {"_type": "gradio.FileData"}}
    answer = httpx.post(f"{address}gradio_api/call/open_photograph", json={"data": [file]})
    if answer.status_code == 200:
        event = answer.json()["event_id"]
        told = httpx.get(f"{address}gradio_api/call/open_photograph/{event}", timeout=60).text
        assert "event: error" in told
        assert "root:" not in told
    else:
        assert answer.status_code == 403


def test_an_endless_request_is_refused(address):
    answer = httpx.post(f"{address}gradio_api/queue/join", content=b"x" * (MOST_JSON + 1))
    assert answer.status_code == 413


def test_the_browser_is_told_to_load_nothing_from_elsewhere(address):
    policy = httpx.get(address).headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy
