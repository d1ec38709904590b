"""The app under hostile requests while others use it: is everybody served, and do memory and log stay bounded?

python tests/views/app/hostile_client.py --minutes 10    prints the result; exit code 1 where something is not bounded
"""

from __future__ import annotations

import argparse
import io
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
from PIL import Image

HONEST, HOSTILE = 20, 4
MOST_LOG = 5 * 2**20


def honest(address: str, end: float, counts: Counter[str]) -> None:
    """Open the page, ask for its description and upload a photograph, every few seconds."""
    file = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(file, "PNG")
    with httpx.Client(timeout=60) as client:
        while time.monotonic() < end:
            try:
                answers = [
                    client.get(address),
                    client.get(f"{address}gradio_api/info"),
                    client.post(
                        f"{address}gradio_api/upload", files={"files": ("a.png", file.getvalue(), "image/png")}
                    ),
                ]
                counts["served" if all(one.status_code == 200 for one in answers) else "not served"] += 1
            except httpx.HTTPError:
                counts["not served"] += 1
            time.sleep(2)


def hostile(address: str, end: float, counts: Counter[str], seed: int) -> None:
    """Requests that are too large, malformed, deep, slow, or for files and hosts that are not the page's."""
    draw, join = random.Random(seed), f"{address}gradio_api/queue/join"
    form = {"content-type": "multipart/form-data; boundary=x"}
    text = b'--x\r\ncontent-disposition: form-data; name="t"\r\n\r\n'

    def endless(first: bytes):
        yield first
        for _ in range(2000):
            yield b"a" * 65536

    def slow() -> None:
        place = httpx.URL(address)
        with socket.create_connection((place.host, place.port or 80), 10) as connection:
            connection.sendall(b"POST /gradio_api/upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nab")
            time.sleep(1)

    attacks = [
        lambda c: c.post(join, content=b"x" * (5 << 20)),
        lambda c: c.post(join, content=endless(b"[")),
        lambda c: c.post(f"{address}gradio_api/upload", content=endless(text), headers=form),
        lambda c: c.post(join, content=b"{}", headers=[("content-type", "application/json"), *form.items()]),
        lambda c: c.post(join, content=b"[" * 200_000, headers={"content-type": "application/json"}),
        lambda c: c.post(join, json={"data": [None] * 50, "fn_index": draw.randrange(-5, 60), "session_hash": "x"}),
        lambda c: c.post(f"{address}gradio_api/call/open_photograph", json={"data": [{"path": "/etc/passwd"}]}),
        lambda c: c.get(f"{address}gradio_api/file=/etc/passwd"),
        lambda c: c.get(address, headers={"host": "evil.example"}),
        lambda c: c.get(f"{address}{''.join(chr(draw.randrange(33, 126)) for _ in range(60))}"),
        lambda c: c.request("TRACE", address),
        lambda c: slow(),
    ]
    with httpx.Client(timeout=20) as client:
        while time.monotonic() < end:
            try:
                draw.choice(attacks)(client)
            except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError):
                counts["broken off"] += 1
            counts["attacks"] += 1


def memory(process: int) -> int:
    """The resident memory of a process in bytes."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) * 1024 if found else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-c", "from unswayed.views.cli import main; main()", "app", "-m", "lite:0"]
        with open(log, "wb") as file:
            app = subprocess.Popen(command, stdout=file, stderr=file)
        address = None
        while address is None and app.poll() is None:
            time.sleep(0.5)
            found = re.search(r"(http://\S+)", log.read_text())
            address = found and found[1]
        assert address, log.read_text()
        counts: Counter[str] = Counter()
        end = time.monotonic() + 60 * given.minutes
        threads = [threading.Thread(target=honest, args=(address, end, counts)) for _ in range(HONEST)]
        threads += [threading.Thread(target=hostile, args=(address, end, counts, seed)) for seed in range(HOSTILE)]
        for thread in threads:
            thread.start()
        sizes = []
        while any(thread.is_alive() for thread in threads):
            sizes.append(memory(app.pid))
            time.sleep(1)
        alive = app.poll() is None
        os.kill(app.pid, signal.SIGTERM)
        app.wait(30)
        quarter = max(1, len(sizes) // 4)
        early, late = max(sizes[quarter : 2 * quarter] or sizes), max(sizes[-quarter:])
        print(f"{given.minutes:g} minutes: {dict(counts)}; the app was {'alive' if alive else 'dead'} at the end")
        print(f"log: {log.stat().st_size:,} bytes; memory: {early >> 20} MB early, {late >> 20} MB late")
        tenth = max(1, len(sizes) // 10)
        print(
            "largest memory by tenths, in MB:", *(max(sizes[n : n + tenth]) >> 20 for n in range(0, len(sizes), tenth))
        )
        sys.exit(not alive or counts["not served"] > 0 or log.stat().st_size > MOST_LOG or late > 1.25 * early)


if __name__ == "__main__":
    main()
