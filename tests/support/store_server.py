"""Servers of the protocols of S3, Google and Azure on this machine, behind a proxy that sees every request."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import fsspec
import pytest

from command_line import PROGRAM

SECRET = "VkVSWVNFQ1JFVA=="
ACCOUNT = "account"
# An error as each service answers it: the text of its body may hold a secret.
_XML = "<?xml version='1.0' encoding='utf-8'?><Error><Code>{code}</Code><Message>{secret}</Message></Error>"
_JSON = '{{"error": {{"code": {status}, "message": "{secret}"}}}}'
_CODES = {"s3": "AccessDenied", "gs": "forbidden", "az": "AuthorizationPermissionMismatch"}


class Store:
    """A storage service that the environment leads to: the names of the objects written, less locks and heartbeats,
    what to do before each is stored, which requests are refused with which status, and which are answered wrongly:
    with an error of the service, not at all, with half of the content, or with half as if that were all of it."""

    def __init__(self, scheme: str, port: int) -> None:
        self.scheme = scheme
        self.port = port
        self.written: list[str] = []
        self.before: Callable[[], object] | None = None
        self.refusal: int | None = None
        self.refused = "write"
        self.fault: Callable[[str, str], str | None] = lambda method, path: None
        self.writing = threading.Lock()

    def address(self, name: str) -> str:
        return f"{self.scheme}://{name}"

    def files(self) -> Any:
        return fsspec.filesystem(self.scheme, use_listings_cache=False)

    def forget(self) -> None:
        """Let the next request read the environment again."""
        fsspec.get_filesystem_class(self.scheme).clear_instance_cache()

    def contents(self, name: str) -> dict[str, bytes]:
        files = self.files()
        return {one.removeprefix(f"{name}/"): files.cat_file(one) for one in files.find(name)}

    def environment(self, url: str) -> dict[str, str]:
        """The variables that lead to a server of this kind."""
        if self.scheme == "s3":
            return {
                "AWS_ENDPOINT_URL": url,
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
            }
        if self.scheme == "gs":
            return {"STORAGE_EMULATOR_HOST": url}
        return {
            "AZURE_STORAGE_CONNECTION_STRING": f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};"
            f"AccountKey={SECRET};BlobEndpoint={url}/{ACCOUNT};"
        }

    def kill(self, command: list[str], cache: Path, when: Callable[[list[str]], bool]) -> None:
        """Run a command in processes of its own and kill them at once when the objects written fulfill `when`."""
        self.written.clear()
        program = [*PROGRAM, *command]
        environment = {**os.environ, "UNSWAYED_CACHE": str(cache)}
        with subprocess.Popen(program, env=environment, stdout=subprocess.DEVNULL, start_new_session=True) as process:
            self.before = lambda: when(self.written) and os.killpg(process.pid, signal.SIGKILL)
        self.before = None
        assert process.returncode == -signal.SIGKILL
        self.written.clear()

    def object_of(self, method: str, path: str, body: bytes) -> str | None:
        """The bucket and name of the object that a request writes; None for any other request."""
        parts = urlsplit(path)
        query = parse_qs(parts.query, keep_blank_values=True)
        if self.scheme == "gs":
            if method != "POST" or query.get("uploadType") != ["multipart"]:
                return None
            described = body.split(b"\n\n")[1].split(b"\n")[0]
            return f"{parts.path.split('/')[-2]}/{json.loads(described)['name']}"
        name = unquote(parts.path).removeprefix(f"/{ACCOUNT}" if self.scheme == "az" else "").strip("/")
        return name if method == "PUT" and "/" in name and "comp" not in query else None

    def answer(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> tuple[int, Any, bytes]:
        """The status, the headers and the body that a request gets."""
        name = self.object_of(method, path, body)
        if self.refusal is not None and (name is not None or self.refused == "all"):
            text = (_JSON if self.scheme == "gs" else _XML).format(
                status=self.refusal, secret=SECRET, code=_CODES[self.scheme]
            )
            return self.refusal, [("x-ms-error-code", _CODES[self.scheme])], text.encode()
        if name is None:
            return self.forwarded(method, path, headers, body)
        with self.writing:  # one at a time, so that nothing is written during `before`
            if not name.rpartition("/")[2].startswith(".") and not name.endswith(".lock"):
                self.written.append(self.address(name))
                if self.before is not None:
                    self.before()
            if "ifGenerationMatch=0" in path:  # the emulator ignores this condition, which Google documents
                bucket, _, key = name.partition("/")
                if self.forwarded("GET", f"/storage/v1/b/{bucket}/o/{quote(key, safe='')}", [], b"")[0] == 200:
                    return 412, [], b"{}"
            return self.forwarded(method, path, headers, body)

    def forwarded(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> tuple[int, Any, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=bool(headers), skip_accept_encoding=True)
            for name, value in headers:
                if name.lower() not in ("connection", "content-length", "expect", "transfer-encoding"):
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()


@contextlib.contextmanager
def serving(scheme: str, folder: Path) -> Iterator[Store]:
    """A running service without buckets, which the environment leads to; skips the test where it is not installed."""
    with pytest.MonkeyPatch.context() as patch, EMULATORS[scheme](folder) as port:
        store = Store(scheme, port)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_request(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                fault = store.fault(self.command, self.path)
                if fault == "nothing" or len(body) < length:  # a client that was killed has not sent all
                    self.close_connection = True
                    return
                status, headers, data = store.answer(self.command, self.path, self.headers.items(), body)
                if fault == "error":
                    status, headers, data = 503, [], _XML.format(code="SlowDown", secret=SECRET).encode()
                self.send_response_only(status)
                left_out = ["connection", "content-length", "transfer-encoding"]
                left_out += ["x-amz-checksum", "x-goog-hash", "content-md5"] if fault == "half as all" else []
                for name, value in headers:
                    if not name.lower().startswith(tuple(left_out)):
                        self.send_header(name, value)
                length = dict(headers).get("Content-Length", "0") if self.command == "HEAD" else str(len(data))
                half = data[: len(data) // 2]
                self.send_header("Content-Length", str(len(half)) if fault == "half as all" else length)
                self.end_headers()
                self.wfile.write(half if fault in ("half", "half as all") else data)
                self.close_connection = fault == "half"

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
            proxy.handle_error = lambda *given: None  # a client that was killed
            threading.Thread(target=proxy.serve_forever, daemon=True).start()
            for name, value in store.environment(f"http://127.0.0.1:{proxy.server_port}").items():
                patch.setenv(name, value)
            store.forget()
            yield store
            store.forget()
            proxy.shutdown()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[int]:
    pytest.importorskip("s3fs", reason="needs the extra s3: make setup-integrations")
    moto = pytest.importorskip("moto.server", reason="needs moto[server]: make setup-integrations")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    yield running.get_host_and_port()[1]
    running.stop()


@contextlib.contextmanager
def google(folder: Path) -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch:
        # Otherwise gcsfs asks Google itself for the kind of the bucket.
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        pytest.importorskip("gcsfs", reason="needs the extra gs: pip install 'unswayed[gs]'")
        emulator = pytest.importorskip("gcp_storage_emulator.server", reason="needs pip install gcp-storage-emulator")
        port = free_port()
        with emulator.create_server("127.0.0.1", port, in_memory=True):
            yield port


@contextlib.contextmanager
def azure(folder: Path) -> Iterator[int]:
    pytest.importorskip("adlfs", reason="needs the extra az: pip install 'unswayed[az]'")
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("needs azurite-blob on the PATH: npm install azurite")
    port = free_port()
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    command = [program, *options, "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    accounts = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{SECRET}"}
    with subprocess.Popen(command, cwd=folder, env=accounts, stdout=subprocess.DEVNULL) as process:
        while not answers(port):
            assert process.poll() is None
            time.sleep(0.1)
        yield port
        process.terminate()


EMULATORS = {"s3": s3, "gs": google, "az": azure}
