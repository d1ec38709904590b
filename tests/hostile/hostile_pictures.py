"""Pictures that are made to end a run, to take all memory or time, or to write into the terminal; and what reads them.

PYTHONPATH=tests/support python tests/hostile/hostile_pictures.py      builds and evaluates all of them; exit code 1
                                                                       if one of them costs more than a row
"""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

MOST_SECONDS, MOST_MEMORY = 20.0, 3000  # CPU seconds for one picture; MB of all processes of a command together
GOOD = "good"
SHOWN = ("\x1b", "\r", "\u202e", "Traceback")  # what no line of a command may hold


def pixels(wide: int = 96, high: int = 80, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(7).integers(40, 220, (high, wide, channels), np.uint8)


def saved(kind: str, image: Image.Image | None = None, **options: Any) -> bytes:
    file = io.BytesIO()
    (image or Image.fromarray(pixels())).save(file, kind, **options)
    return file.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(wide: int, high: int, data: bytes, *, bits: int = 8, color: int = 0, extra: bytes = b"") -> bytes:
    """A PNG file of these compressed bytes, whatever its header says."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", wide, high, bits, color, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def squeezed(zeros: int) -> bytes:
    packer = zlib.compressobj(9)
    block = bytes(2**24)
    parts = [packer.compress(block) for _ in range(zeros // 2**24)]
    return b"".join(parts) + packer.compress(bytes(zeros % 2**24)) + packer.flush()


def scans(wide: int, high: int, count: int) -> bytes:
    """A progressive JPEG file of gray pixels with so many scans, each of which passes over the whole picture."""
    plain = saved("JPEG", Image.new("L", (wide, high), 90), progressive=True)
    first = plain.index(b"\xff\xda")
    # The second scan with the table before it, which says of every block that nothing is in it.
    begin = plain.index(b"\xff\xc4", first)
    end = plain.index(b"\xff\xc4", plain.index(b"\xff\xda", begin))
    return plain[:begin] + plain[begin:end] * count + b"\xff\xd9"


def tiff(*tags: tuple[int, int, int, int], body: bytes = b"", following: int = 0) -> bytes:
    """A TIFF file with these tags: number, type, count and value or offset."""
    listed = b"".join(struct.pack("<HHII", *tag) for tag in sorted(tags))
    return struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + listed + struct.pack("<I", following) + body


def exif(orientation: bytes) -> bytes:
    """The EXIF block with one tag, the orientation, of these twelve bytes."""
    return b"Exif\0\0" + struct.pack("<2sHIH", b"II", 42, 8, 1) + orientation + bytes(4)


def turned(block: bytes) -> bytes:
    """A JPEG file with that block of EXIF data, which may be damaged."""
    plain = saved("JPEG")
    return plain[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + plain[2:]


def frames(kind: str, count: int) -> bytes:
    several = [Image.fromarray(np.full((48, 64, 3), 5 * n % 256, np.uint8)) for n in range(count)]
    return saved(kind, several[0], save_all=True, append_images=several[1:])


def contents() -> dict[str, tuple[str, Callable[[], bytes]]]:
    """Name -> suffix and the bytes of the file."""
    rgb = Image.fromarray(pixels())
    sides = [(16, 2, 0), (257, 3, 1), (258, 3, 8), (259, 3, 1), (262, 3, 1), (273, 4, 200), (277, 3, 1), (279, 4, 99)]

    def tags(wide: int, high: int, **others: int) -> list[tuple[int, int, int, int]]:
        values = {256: wide, 257: high, **{n: v for n, _, v in sides[2:]}, **{int(k[1:]): v for k, v in others.items()}}
        return [(number, 4, 1, value) for number, value in values.items()]

    grid = squeezed(65 * 64)  # the pixels of 64 × 64
    zeros = squeezed(2**29)
    made: dict[str, tuple[str, Callable[[], bytes]]] = {}
    for kind, suffix in (("JPEG", "jpg"), ("PNG", "png"), ("WEBP", "webp"), ("TIFF", "tif"), ("GIF", "gif")):
        for share in (0.02, 0.5, 0.99):
            made[f"cut-{share}-{suffix}"] = (suffix, lambda k=kind, s=share: (d := saved(k))[: int(len(d) * s)])  # type: ignore[misc]
    for mode in ("1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr", "LAB", "I", "F", "I;16"):
        kind, suffix = ("TIFF", "tif") if mode in ("CMYK", "YCbCr", "LAB", "F", "I") else ("PNG", "png")
        made[f"mode-{mode.replace(';', '-')}"] = (suffix, lambda m=mode, k=kind: saved(k, _in_mode(rgb, m)))  # type: ignore[misc]
    made |= {
        "mode-cmyk-jpeg": ("jpg", lambda: saved("JPEG", rgb.convert("CMYK"))),
        "empty": ("jpg", lambda: b""),
        "one-byte": ("png", lambda: b"\x89"),
        "text": ("jpg", lambda: b"no picture\n" * 10),
        "eps": ("jpg", lambda: saved("EPS", rgb)),
        "ico": ("png", lambda: saved("ICO", rgb)),
        "pdf": ("jpg", lambda: saved("PDF", rgb)),
        "png-called-jpg": ("jpg", lambda: saved("PNG")),
        "gif-called-png": ("png", lambda: saved("GIF")),
        "heic-of-nothing": ("heic", lambda: b"\0\0\0\x18ftypheic" + bytes(500)),
        "avif-cut": ("avif", lambda: saved("AVIF")[:150]),
        "jp2-cut": ("jp2", lambda: saved("JPEG2000")[:150]),
        "jp2-huge": ("jp2", lambda: _patched(saved("JPEG2000"), b"ihdr", 4, struct.pack(">II", 2**31 - 1, 2**31 - 1))),
        "png-zero-wide": ("png", lambda: png(0, 10, squeezed(10))),
        "png-huge-header": ("png", lambda: png(2**31 - 1, 2**31 - 1, squeezed(100))),
        "png-bomb-of-4-gigapixels": ("png", lambda: png(65_000, 65_000, squeezed(2**28), bits=1)),
        "png-too-much-data": ("png", lambda: png(64, 64, squeezed(2**29))),
        "png-large": ("png", lambda: png(13_000, 13_000, squeezed(13_001 * 13_000))),
        "png-long": ("png", lambda: png(1, 1_000_000, squeezed(2_000_000))),
        "png-text-bomb": ("png", lambda: png(64, 64, grid, extra=chunk(b"zTXt", b"a\0\0" + zeros))),
        "png-profile-bomb": ("png", lambda: png(64, 64, grid, extra=chunk(b"iCCP", b"a\0\0" + zeros))),
        "png-wrong-crc": ("png", lambda: _patched(saved("PNG"), b"IDAT", 9, b"\xff\xff")),
        "png-many-chunks": ("png", lambda: png(64, 64, squeezed(65 * 64), extra=chunk(b"tEXt", b"a\0b") * 100_000)),
        "jpeg-huge-header": ("jpg", lambda: _patched(saved("JPEG"), b"\xff\xc0", 5, b"\xff\xdc\xff\xdc")),
        "jpeg-zero-high": ("jpg", lambda: _patched(saved("JPEG"), b"\xff\xc0", 5, b"\0\0\0\x60")),
        "jpeg-twelve-bits": ("jpg", lambda: _patched(saved("JPEG"), b"\xff\xc0", 4, b"\x0c")),
        "jpeg-arithmetic": ("jpg", lambda: _patched(saved("JPEG"), b"\xff\xc0", 1, b"\xc9")),
        "jpeg-of-50000-scans": ("jpg", lambda: scans(8_000, 8_000, 50_000)),
        "jpeg-of-a-million-scans": ("jpg", lambda: scans(64, 64, 1_000_000)),
        "gif-huge-screen": ("gif", lambda: _patched(saved("GIF"), b"GIF", 6, b"\xff\xff\xff\xff")),
        "gif-of-2000-frames": ("gif", lambda: frames("GIF", 2000)),
        "webp-of-500-frames": ("webp", lambda: frames("WEBP", 500)),
        "apng-of-500-frames": ("png", lambda: frames("PNG", 500)),
        "bmp-huge": ("bmp", lambda: _patched(saved("BMP"), b"BM", 18, struct.pack("<ii", 2**30, -(2**30)))),
        "ppm-huge": ("ppm", lambda: b"P6 99999 99999 255\n"),
        "ppm-endless-comment": ("ppm", lambda: b"P6\n#" + b"a" * 20_000_000),
        "ppm-endless-number": ("ppm", lambda: b"P6 " + b"9" * 1_000_000),
        "pgm-plain-huge": ("pgm", lambda: b"P2 13000 13000 255\n" + b"1 " * 1000),
        "tiff-huge": ("tif", lambda: tiff(*tags(2**31, 2**31))),
        "tiff-many-samples": ("tif", lambda: tiff(*tags(64, 64, _277=65_535), body=bytes(5000))),
        "tiff-strip-outside": ("tif", lambda: tiff(*tags(64, 64, _273=2**31, _279=2**31))),
        "tiff-directory-loop": ("tif", lambda: tiff(*tags(8, 8), body=bytes(200), following=8)),
        "tiff-many-strips": ("tif", lambda: tiff((273, 4, 2**28, 200), *[t for t in tags(64, 64) if t[0] != 273])),
        "tiff-large-of-zeros": ("tif", lambda: saved("TIFF", Image.new("L", (9_999,) * 2), compression="tiff_deflate")),
        "exif-orientation-0": ("jpg", lambda: turned(exif(struct.pack("<HHIHH", 0x112, 3, 1, 0, 0)))),
        "exif-orientation-9": ("jpg", lambda: turned(exif(struct.pack("<HHIHH", 0x112, 3, 1, 9, 0)))),
        "exif-orientation-text": ("jpg", lambda: turned(exif(struct.pack("<HHI4s", 0x112, 2, 4, b"six\0")))),
        "exif-orientation-fraction": ("jpg", lambda: turned(exif(struct.pack("<HHII", 0x112, 5, 1, 2**31)))),
        "exif-orientation-many": ("jpg", lambda: turned(exif(struct.pack("<HHII", 0x112, 3, 2**31, 8)))),
        "exif-cut": ("jpg", lambda: turned(b"Exif\0\0II*\0")),
        "exif-loop": ("jpg", lambda: turned(b"Exif\0\0" + tiff((0x8769, 4, 1, 8), following=8))),
        "exif-garbage": ("jpg", lambda: turned(b"Exif\0\0" + bytes(range(256)) * 250)),
        "xmp-orientation": ("jpg", lambda: turned(b"http://ns.adobe.com/xap/1.0/\0" + b"<tiff:Orientation>" * 3000)),
    }  # fmt: skip
    return made


def _in_mode(image: Image.Image, mode: str) -> Image.Image:
    if mode == "LAB":
        return Image.frombytes("LAB", image.size, image.tobytes())
    return image.convert("L").convert(mode) if mode in ("I", "F", "I;16") else image.convert(mode)


def _patched(data: bytes, behind: bytes, offset: int, new: bytes) -> bytes:
    start = data.index(behind) + offset
    return data[:start] + new + data[start + len(new) :]


MODEL = """
from torch import nn
from unswayed.models import Classifier, Transform

def load():
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3))
    labels = ["a\\n::error::class", "a\\x1b[31mclass", "thing"]
    return Classifier(network, Transform(32, 32, mean=(0.5,) * 3, std=(0.25,) * 3), labels=labels)
"""
NAMES = {
    "newline": "a\n::error::b.png",
    "escape": "a\x1b[2Jb.png",
    "reversed": "a\u202egnp.png",
    "return": "a\rb.png",
    "html": "<img src=x onerror=alert(1)>.png",
    "formula": "=cmd|' /C calc'!A0.png",
    "option": "-o.png",
    "percent": "%s%n%00.png",
    "dots": "...png",
    "quotes": "a'\"`$(touch x)`.png",
    "long": "a" * 240 + ".png",
    "accents": "e\u0301.png",
    "accent": "\u00e9.png",
    "upper": "CASE.png",
    "lower": "case.png",
    "no-utf-8": os.fsdecode(b"a\xff\xfe.png"),
    "space": " .png",
}


def write_pictures(folder: Path, few: bool = False) -> dict[str, Path]:
    """Every hostile picture below `folder`/images with a mask of its own below `folder`/masks, and two good ones.

    few: without those that take more than a second to write or to read.
    """
    written: dict[str, Path] = {}
    for number in range(2):
        written[f"{GOOD}-{number}"] = _put(folder, f"thing/{GOOD}-{number}.png", saved("PNG"))
    for name, (suffix, data) in contents().items():
        if not few or not any(word in name for word in ("large", "bomb", "many-chunks", "million", "long", "too-much")):
            written[name] = _put(folder, f"thing/{name}.{suffix}", data())
    for name, file in NAMES.items():
        written[f"name {name}"] = _put(folder, f"thing/{file}", saved("PNG"))
    written["class with a newline"] = _put(folder, "a\n::error::class/x1.png", saved("PNG"))
    written["class with ESC"] = _put(folder, "a\x1b[31mclass/x2.png", saved("PNG"))
    links = {"device": "/dev/zero", "loop": "link-loop.png", "nowhere": "no/such.png", "memory": "/proc/self/mem"}
    for name, target in {**links, "folder": str(folder / "masks"), "good": str(written[f"{GOOD}-0"])}.items():
        place = _put(folder, f"thing/link-{name}.png", b"")
        place.unlink()
        place.symlink_to(target)
        written[f"link to {name}"] = place
    for name, make in {"pipe": os.mkfifo, "a-folder": os.mkdir}.items():
        place = _put(folder, f"thing/{name}.png", b"")
        place.unlink()
        make(place)
        written[name] = place
    return written


def _put(folder: Path, name: str, data: bytes) -> Path:
    for place, content in (("images", data), ("masks", _mask())):
        path = folder / place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path if place == "images" else path.with_suffix(".png")).write_bytes(content)
    return folder / "images" / name


def _mask() -> bytes:
    mask = np.zeros((80, 96), np.uint8)
    mask[20:60, 25:70] = 255
    return saved("PNG", Image.fromarray(mask))


@dataclass
class Ran:
    """What a command did: exit code, seconds of CPU, the most memory of all its processes together, its output, and how
    many rows of each status there are."""

    code: int
    cpu: float
    memory: float
    output: str
    seconds: float = 0.0
    rows: dict[str, int] = field(default_factory=dict)


def run(arguments: list[str], limit: float = 600.0) -> Ran:
    """Run `unswayed` with these arguments and watch its processes; it is ended after `limit` seconds of time."""
    import psutil

    script = "from unswayed.views.cli import main; main()"
    with tempfile.TemporaryFile() as log:
        begun = time.monotonic()
        process = psutil.Popen(
            [sys.executable, "-c", script, *arguments],
            stdout=log,
            stderr=log,
            env={**os.environ, "COLUMNS": "300", "OMP_NUM_THREADS": "1"},
        )
        peak, cpu = 0.0, {}
        while process.poll() is None:
            total = 0.0
            for one in [process, *process.children(recursive=True)]:
                try:
                    total += one.memory_full_info().pss / 2**20
                    times = one.cpu_times()
                    cpu[one.pid] = times.user + times.system
                except psutil.Error:
                    continue
            peak = max(peak, total)
            if time.monotonic() - begun > limit:
                for one in [*process.children(recursive=True), process]:
                    one.kill()
            time.sleep(0.5)
        log.seek(0)
        text = log.read().decode(errors="surrogateescape")
    return Ran(process.returncode, sum(cpu.values()), peak, text, time.monotonic() - begun)


def attacks(folder: Path, few: bool = False) -> Iterator[tuple[str, Ran, list[str]]]:
    """Build and evaluate all hostile pictures: the name of each command, what it did, and what it must not do."""
    import pyarrow.parquet as parquet

    written = write_pictures(folder / "source", few)
    limit = MOST_SECONDS * len(written)
    bench, predictions = folder / "bench", folder / "predictions"
    building = ["build", f"folder:{folder / 'source'}", "-o", str(bench), "--recipe", "original,size-0.1"]
    ran = run([*building, "--renderer", "paste", "--workers", "1"], limit)
    problems = wrong(ran)
    if not problems:
        rows = parquet.read_table(bench / "manifest.parquet", columns=["source_id", "status"]).to_pylist()
        good = [row["status"] for row in rows if row["source_id"].startswith(f"thing--{GOOD}-")]
        ran.rows = dict(Counter(row["status"] for row in rows))
        problems += [] if good and set(good) == {"ok"} else [f"the good photographs are {good}"]
    yield f"build, {len(written)} pictures", ran, problems
    (folder / "model.py").write_text(MODEL)
    given = ["evaluate", f"images:{folder / 'source' / 'images'}", "-m", f"python:{folder / 'model.py'}:load"]
    ran = run([*given, "-o", str(predictions), "--device", "cpu"], limit)
    problems = wrong(ran)
    cards = [json.loads(path.read_text()) for path in predictions.glob("*.json")]
    if not problems and not any(card.get("rows", 0) >= 2 and card.get("unreadable") for card in cards):
        problems.append("no card with rows and pictures that cannot be read")
    yield f"evaluate, {len(written)} pictures", ran, problems


def wrong(ran: Ran) -> list[str]:
    """What a command did that no picture may cause."""
    lines = ran.output.split("\n")
    found = [f"the output holds {shown!r}: {line!r:.300}" for shown in SHOWN for line in lines if shown in line][:9]
    found += [] if ran.code in (0, 4) else [f"exit code {ran.code}: {ran.output[-300:]}"]
    found += [] if ran.memory < MOST_MEMORY else [f"{ran.memory:.0f} MB"]
    return found


def main() -> None:
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name, ran, problems in attacks(Path(folder)):
            print(
                f"{name}: exit {ran.code}, {ran.cpu:.0f} s of CPU, {ran.memory:.0f} MB, {ran.rows or ''}",
                *problems,
                sep="\n  ",
            )
            failed |= bool(problems)
    sys.exit(failed)


if __name__ == "__main__":
    main()
