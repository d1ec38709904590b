"""`unswayed weights` and a pipeline of the Hub: its size, license and gating are said before anything is downloaded."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from command_line import refusal, run_cli_process

FILES = {
    "model_index.json": 600,
    "README.md": 200,
    "unet/diffusion_pytorch_model.safetensors": 5_135_149_760,
    "unet/diffusion_pytorch_model.fp16.safetensors": 2_567_574_880,  # the same weights, rounded
    "text_encoder/model.fp16-00001-of-00002.safetensors": 123_072_176,
    "unet/config.json": 1800,
    "text_encoder/model.safetensors": 246_144_352,
    "sd_xl_base.safetensors": 6_938_078_334,  # all weights once more, in one file
    "unet/diffusion_pytorch_model.bin": 5_135_149_760,  # a pickle
}


class Hub(BaseHTTPRequestHandler):
    """Answers like the Hub's API for one gated pipeline; nothing can be downloaded."""

    asked: list[str] = []

    def do_GET(self) -> None:
        Hub.asked.append(self.path)
        known = self.path.startswith("/api/models/somebody/editor")
        record = {
            "id": "somebody/editor",
            "sha": "0" * 40,
            "gated": "manual",
            "cardData": {"license": "other", "license_name": "for-tests"},
            "siblings": [{"rfilename": name, "size": size} for name, size in FILES.items()],
        }
        body = json.dumps(record if known else {"error": "not found"}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_sizes_license_and_gating_come_before_a_download(hub: str, tmp_path: Path) -> None:
    here = {"HF_ENDPOINT": hub, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    said = run_cli_process("weights", "list", "diffusers:somebody/editor", env=here, code=0).stdout
    assert said.strip() == "somebody/editor: 5.38 GB, license for-tests, gated: its publisher asks for an agreement"
    assert not any("resolve" in path for path in Hub.asked)
    fetched = run_cli_process("weights", "fetch", "diffusers:somebody/editor", env=here)
    assert "5.38 GB, license for-tests" in fetched.stderr  # before the download fails, as this hub has no files
    assert fetched.returncode == 2 and "could not be downloaded" in fetched.stderr
    refusal(run_cli_process("weights", "list", "diffusers:nobody/nothing", env=here), given="nobody/nothing")
    refusal(run_cli_process("weights", "list", f"diffusers:{tmp_path}", env=here), given="is a folder")
