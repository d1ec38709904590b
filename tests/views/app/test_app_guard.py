"""What stands before gradio, and what a visitor can never reach: other hosts, other folders, endless requests."""

from __future__ import annotations

import asyncio
import io
import os
import time
from pathlib import Path

import httpx
import pytest

from unswayed.files.locks import Lock
from unswayed.views.app import AppSettings
from unswayed.views.app.guard import (
    MOST_JSON,
    MOST_SESSIONS,
    MOST_TEXT,
    MOST_UNREAD,
    MOST_UPLOAD,
    Guard,
    Unread,
    names_an_address,
    reaches_outside,
)
from unswayed.views.app.page import LAST, BoundedStream, served, sweep


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


def upload(address, content, **headers):
    kind = "multipart/form-data; boundary=x"
    return httpx.post(f"{address}gradio_api/upload", content=content, headers={"content-type": kind, **headers})


def part(disposition, data):
    return b"--x\r\ncontent-disposition: form-data; " + disposition + b"\r\n\r\n" + data + b"\r\n--x--\r\n"


def test_a_text_field_of_an_upload_is_limited_and_a_file_is_not_affected(address):
    assert upload(address, part(b'name="files"; filename="a.png"', b"x" * 200_000)).status_code == 200
    assert upload(address, part(b'name="text"', b"x" * (MOST_TEXT + 1))).status_code == 413
    assert upload(address, part(b'name="files"; filename="a.png"', b"x" * MOST_UPLOAD)).status_code == 413
    assert upload(address, b"no multipart").status_code == 413
    disguised = part(b'name="text"\r\nX: filename', b"x" * (MOST_TEXT + 1))
    assert upload(address, disguised).status_code == 413


def test_two_content_types_are_refused(address):
    kinds = [("content-type", "application/json"), ("content-type", "multipart/form-data; boundary=x")]
    answer = httpx.post(f"{address}gradio_api/queue/join", content=b"x" * 100, headers=kinds)
    assert answer.status_code == 400


def test_a_multipart_request_to_another_path_has_the_limit_of_json(address):
    kind = {"content-type": "multipart/form-data; boundary=x"}
    answer = httpx.post(f"{address}gradio_api/queue/join", content=b"x" * (MOST_JSON + 1), headers=kind)
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.example"}, {"origin": "http://evil.example"}, {"origin": "null"}, {"host": ""}, {"host": "["}]
    + [{"origin": "http://["}],
)
def test_requests_of_other_pages_and_under_other_names_are_refused(address, headers):
    assert httpx.get(address, headers=headers).status_code == 403
    assert httpx.post(f"{address}gradio_api/queue/join", json={}, headers=headers).status_code == 403


def answered(guard, path="/", query=b"", headers=()):
    """The status and the headers of the answer to one request, without a server."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b""}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": query}
    asyncio.run(guard({**scope, "headers": [(b"host", b"10.0.0.1:80"), *headers]}, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"])


async def hello(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})


def test_a_page_for_other_computers_needs_its_token_once_in_the_address_and_then_as_a_cookie():
    guard = Guard(hello, token="secret")
    assert answered(guard)[0] == 401
    assert answered(guard, query=b"token=wrong")[0] == 401
    status, headers = answered(guard, query=b"token=secret")
    assert status == 200
    cookie = headers[b"set-cookie"].partition(b";")[0]
    assert answered(guard, headers=[(b"cookie", cookie)])[0] == 200
    status, headers = answered(guard, path="/gradio_api/startup-events")
    assert status == 200 and b"set-cookie" not in headers  # open, and the token is not told
    assert answered(guard, path="/gradio_api/file=/x/startup-events")[0] == 401
    assert answered(Guard(hello))[0] == 403  # no token: only this computer


NEAR = [b"", b"secre", b"secrets", b"Secret", b"%20secret", b"secret%00", b"secret%0a", b"%ff", b"s%C3%A9cret"]
STARTUP = ("//gradio_api/startup-events", "/gradio_api/startup-events/", "/gradio_api/../gradio_api/startup-events")


def test_nothing_but_the_token_itself_opens_the_page():
    guard = Guard(hello, token="secret")
    for given in NEAR:
        queries = (b"token=" + given, b"token=a&token=" + given, b"Token=secret", b"token[]=secret", b"token", given)
        for query in queries:
            assert answered(guard, query=query)[0] == 401, query
        for cookie in (b"unswayed-token=" + given, b"unswayed-token", b"token=secret", b"x=unswayed-token=secret"):
            assert answered(guard, headers=[(b"cookie", cookie)])[0] == 401, cookie
    for header in (b"authorization", b"x-token", b"unswayed-token"):
        assert answered(guard, headers=[(header, b"secret")])[0] == 401
    for path in STARTUP:
        assert answered(guard, path=path)[0] == 401, path
    for origin in (b"http://10.0.0.1", b"http://10.0.0.1:80.evil", b"null", b"http://evil@10.0.0.1:80", b"http://["):
        assert answered(guard, query=b"token=secret", headers=[(b"origin", origin)])[0] == 403, origin


def test_a_page_for_other_computers_starts_and_opens_with_its_token_only():
    with served(AppSettings(models=["lite:0"], host="0.0.0.0")) as (address, _):
        bare, _, token = address.partition("?token=")
        assert token and httpx.get(bare).status_code == 401
        assert "set-cookie" not in httpx.get(f"{bare}gradio_api/startup-events").headers
        with httpx.Client() as client:
            assert client.get(address).status_code == 200
            assert client.get(f"{bare}gradio_api/info").status_code == 200


def test_a_session_that_never_listens_may_ask_only_so_often():
    unread = Unread()
    assert all(unread.may_ask("deaf") for _ in range(MOST_UNREAD))
    assert not unread.may_ask("deaf")
    assert unread.may_ask("another")
    with unread.listens("deaf"):
        assert all(unread.may_ask("deaf") for _ in range(2 * MOST_UNREAD))
    assert unread.may_ask("deaf")
    for number in range(MOST_SESSIONS):
        unread.may_ask(str(number))
    assert len(unread.asked) == MOST_SESSIONS


def test_requests_that_the_page_never_sends_get_one_answer_with_its_headers(address, capfd):
    for content in (b"1e999", b'{"data": [1], "fn_index": 99999, "session_hash": "a"}'):
        answer = httpx.post(f"{address}gradio_api/queue/join", content=content)
        assert answer.status_code in (400, 422, 500)
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert "Traceback" not in capfd.readouterr().err


def test_questions_without_a_listener_are_refused_by_the_page(address):
    asked = {"data": [None], "fn_index": 100_000, "session_hash": "never listens"}
    codes = [httpx.post(f"{address}gradio_api/queue/join", json=asked).status_code for _ in range(MOST_UNREAD + 1)]
    assert 429 not in codes[:-1]
    assert codes[-1] == 429


def test_messages_of_the_server_are_bounded():
    shown = io.StringIO()
    stream = BoundedStream(shown, 100)
    for _ in range(50):
        stream.write("a message\n")
    assert len(shown.getvalue()) == 100 + len(LAST)
    assert shown.getvalue().count(LAST) == 1


def test_uploads_of_a_killed_page_are_deleted_and_those_of_another_one_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("killed", "serving"):
        (tmp_path / f"unswayed-app-{name}").mkdir()
        (tmp_path / f"unswayed-app-{name}" / "photograph.png").touch()
        (tmp_path / f"unswayed-app-{name}" / ".lock").touch()
    lock = Lock(tmp_path / "unswayed-app-serving" / ".lock")
    assert lock.take()
    # Killed while it deleted its own folder, and one that has just been made and is not locked yet.
    for name, age in (("deleting", 3600), ("starting", 0)):
        (tmp_path / f"unswayed-app-{name}").mkdir()
        os.utime(tmp_path / f"unswayed-app-{name}", (time.time() - age,) * 2)
    sweep()
    lock.release()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["unswayed-app-serving", "unswayed-app-starting"]
