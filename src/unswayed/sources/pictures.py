"""Pictures and masks as arrays, from all common file formats; an unusable file raises an error with the reason.

A picture is (H, W, 3) uint8 RGB: EXIF orientation applied; grayscale, palette and CMYK converted to RGB; 16 bits
reduced to 8; transparent parts over white; the first frame of an animation.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
import struct
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError

from unswayed.errors import BadPicture, TooLarge
from unswayed.files.storage import fetch_missing
from unswayed.files.whole import MOST_PICTURE
from unswayed.scene import Scene, mask_array

from .source import Entry

SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".dib", ".tif", ".tiff")
    + (".gif", ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".avif", ".heic", ".heif")
)
MOST_PIXELS = 178_956_970
LARGE = 2**25  # pixels; larger pictures are read one at a time, since several would take gigabytes
LONGEST_SIDE = 4096

_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "DIB", "TIFF", "GIF", "PPM", "JPEG2000", "AVIF")
_SIXTEEN_BITS_AS_I = ("PNG", "PPM")
_OTHER_KINDS = (
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"%PDF", "a PDF document"),
    (b"version https://git-lfs", "a Git LFS pointer: run `git lfs pull`"),
    (b"<svg", "an SVG drawing: export it as PNG"),
    (b"<!DOCTYPE", "a web page"),
    (b"<html", "a web page"),
    (b"\x93NUMPY", "a NumPy array"),
)

MOST_SCANS = 100  # of a JPEG file; encoders make about ten, and each costs as much time as the whole picture
_JPEG_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")  # those within the data of a scan left out
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the JPEG markers with the size of the picture
_PLAIN_CHUNKS = frozenset((b"IHDR", b"IDAT", b"IEND", b"pHYs", b"tIME", b"sRGB", b"gAMA", b"cHRM"))

File = str | Path | bytes | IO[bytes]
PictureLike = str | Path | Image.Image | np.ndarray
"""A file, a Pillow image, or an array: (H, W, 3) or (H, W) uint8 for a picture, see `mask_of` for a mask."""


def read_picture(file: File, most: int = MOST_PIXELS) -> np.ndarray:
    """The picture in a file, path or bytes: (H, W, 3) uint8 RGB, upright; TooLarge for more pixels than `most`."""
    data, name = _data(file)
    pixels = _quickly(data, 3, most)
    if pixels is not None:
        return pixels
    with _opened(data, name, most) as picture:
        # The same pixels as Pillow's in less than half the time. A file without the end-of-image marker is truncated,
        # and OpenCV would fill it with gray.
        if picture.format == "JPEG" and picture.mode in ("RGB", "L") and data[-2:] == b"\xff\xd9":
            pixels = _by_opencv(data, 3)
            if pixels is not None:
                return _upright(pixels, picture)
        _refuse_fewer_bits(picture, data)
        return _upright(_rgb(picture), picture)


def _quickly(data: bytes, channels: int, most: int = MOST_PIXELS) -> np.ndarray | None:
    """The pixels of a plain JPEG or PNG file, without Pillow: it would hold Python's lock, so that one thread at a time
    could read. None for every other file, and for one channel also if it has three."""
    if data[:3] == b"\xff\xd8\xff":
        plain = channels == 3 and data[-2:] == b"\xff\xd9" and _is_plain_jpeg(data, most)
    else:
        plain = data[:8] == b"\x89PNG\r\n\x1a\n" and _is_plain_png(data, (0, 2) if channels == 3 else (0,), most)
    return _by_opencv(data, channels) if plain else None


def _by_opencv(data: bytes, channels: int) -> np.ndarray | None:
    """The pixels as they are stored; None if OpenCV cannot read them."""
    import cv2

    flags = cv2.IMREAD_COLOR_RGB if channels == 3 else cv2.IMREAD_GRAYSCALE
    with contextlib.suppress(cv2.error):
        return cv2.imdecode(np.frombuffer(data, np.uint8), flags | cv2.IMREAD_IGNORE_ORIENTATION)
    return None


def _is_plain_jpeg(data: bytes, most: int) -> bool:
    """Whether a JPEG file has one or three channels of 8 bits and no EXIF or XMP, which may turn it."""
    start = 2
    while start + 10 <= len(data) and data[start] == 0xFF:
        marker, length = data[start + 1], int.from_bytes(data[start + 2 : start + 4])
        if marker in _FRAMES:
            bits, high, wide, channels = struct.unpack_from(">BHHB", data, start + 4)
            return bits == 8 and channels in (1, 3) and 0 < high * wide <= most
        if marker == 0xE1:
            return False
        start += 2 + length
    return False


def _is_plain_png(data: bytes, colors: tuple[int, ...], most: int) -> bool:
    """Whether a PNG file is whole, has 8 bits and one of these color types, and nothing that changes its colors."""
    start, view = 8, memoryview(data)
    while start + 12 <= len(data):
        kind, end = data[start + 4 : start + 8], start + 8 + int.from_bytes(data[start : start + 4])
        if kind not in _PLAIN_CHUNKS or data[end : end + 4] != zlib.crc32(view[start + 4 : end]).to_bytes(4):
            return False
        if kind == b"IHDR":
            wide, high, bits, color = struct.unpack_from(">IIBB", data, start + 8)
            if bits != 8 or color not in colors or not 0 < wide * high <= most:
                return False
        if kind == b"IEND":
            return True
        start = end + 4
    return False


def read_mask(file: File) -> np.ndarray:
    """The mask in a file, path or bytes: (H, W) float32 in [0, 1], 1 = object.

    Grayscale by brightness (a mask of zeros and ones counts as black and white); a mask with transparent parts by
    its alpha; the gray border of a trimap is divided. A color photograph is refused.
    """
    return _without_border(_read_shares(file))[0]


def _read_shares(file: File) -> np.ndarray:
    data, name = _data(file)
    levels = _quickly(data, 1)
    if levels is not None:
        return _shares(levels, 255)
    with _opened(data, name) as picture:
        _refuse_photograph(picture, name)
        return _upright(_coverage(picture), picture)


def _without_border(mask: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """A mask, and no note; for a trimap of black, middle gray and white the divided mask, and a note about it."""
    import cv2

    levels = cv2.convertScaleAbs(mask, alpha=255)
    if not cv2.countNonZero(cv2.inRange(levels, 127, 128)):
        return mask, ()
    gray, inside, outside = (levels == 127) | (levels == 128), levels == 255, levels == 0
    if not (inside.any() and outside.any() and (gray | inside | outside).all()):
        return mask, ()
    # The rim of an anti-aliased mask can hold a single gray level, too, but it is at most two pixels wide.
    if not cv2.erode(gray.astype(np.uint8), np.ones((3, 3), np.uint8), borderValue=0).any():
        return mask, ()
    return divided(inside, outside), ("the mask is a trimap, whose gray border was divided along its middle",)


def divided(inside: np.ndarray, outside: np.ndarray) -> np.ndarray:
    """(H, W) float32 of 0 and 1: where it is nearer to `inside` than to `outside`, both (H, W) bool."""
    return (distance_to(inside) < distance_to(outside)).astype(np.float32)


def distance_to(area: np.ndarray) -> np.ndarray:
    """(H, W) float64: how far each pixel is from the nearest one of `area` (H, W) bool; from an empty one, very far."""
    # OpenCV's precise distances are rounded otherwise in one thread than in several, and so decide ties otherwise.
    from scipy import ndimage

    return ndimage.distance_transform_edt(~area) if area.any() else np.full(area.shape, float(sum(area.shape)))


def read_numbers(file: File) -> np.ndarray:
    """The numbers that a PNG file with a palette, or of gray levels, stores for its pixels: (H, W) uint8."""
    data, name = _data(file)
    with _opened(data, name) as picture:
        if picture.format != "PNG" or picture.mode not in ("P", "L"):
            raise BadPicture(f"{name}: it is stored as colors", allowed="a PNG with a palette")
        return np.asarray(picture)


def pixels_of(file: File, name: str = "the picture") -> int:
    """The number of pixels of the picture in a file, path or bytes, whose header alone is read; name: that of bytes."""
    with _opened(*_data(file, name)) as picture:
        return picture.width * picture.height


def picture_of(given: PictureLike) -> np.ndarray:
    """The picture in a file, a Pillow image or an array: (H, W, 3) uint8 RGB, upright."""
    if isinstance(given, Image.Image):
        return _upright(_rgb(given), given)
    if not isinstance(given, np.ndarray):
        return read_picture(given)
    if given.dtype != np.uint8 or given.ndim not in (2, 3) or given.shape[2:] not in ((), (3,)):
        raise BadPicture(f"the picture is {given.shape} {given.dtype}", allowed="(H, W, 3) or (H, W), uint8, RGB")
    if given.size and given.max() <= 1:
        raise BadPicture("the picture is black: its largest value is at most 1", allowed="uint8 from 0 to 255")
    return given if given.ndim == 3 else np.repeat(given[..., None], 3, axis=2)


def mask_of(given: PictureLike) -> np.ndarray:
    """The mask in a file, a Pillow image or an array: (H, W) float32 in [0, 1], 1 = object.

    An array is (H, W): bool, uint8 (0 and 255, or 0 and 1), or floating point in [0, 1].
    """
    if isinstance(given, Image.Image):
        _refuse_photograph(given, "the mask")
        return _upright(_coverage(given), given)
    if not isinstance(given, np.ndarray):
        return read_mask(given)
    return mask_array(given)


def read_cutout(file: File) -> tuple[np.ndarray, np.ndarray]:
    """The picture in a file and its alpha: (H, W, 3) uint8 RGB as stored, (H, W) float32 in [0, 1]."""
    data, name = _data(file)
    with _opened(data, name) as picture:
        _refuse_fewer_bits(picture, data)
        if not picture.has_transparency_data:
            raise BadPicture(f"{name}: the cut-out has no transparent parts", allowed="a picture with an alpha channel")
        pixels = np.asarray(picture.convert("RGBA"))
        colors, alpha = pixels[..., :3], pixels[..., 3].astype(np.float32) / 255
        return _upright(colors, picture), _upright(alpha, picture)


def load_scene(entry: Entry) -> Scene:
    assert entry.mask is not None
    mask, notes = _without_border(_read_shares(entry.mask))
    return shrunk(Scene(entry.id, read_picture(entry.image), mask, entry.label, notes))


def shrunk(scene: Scene, longest: int = LONGEST_SIDE) -> Scene:
    """The scene with no side above `longest` pixels, and a note if it was reduced, so that later steps stay fast."""
    high, wide = scene.mask.shape
    if max(high, wide) <= longest:
        return scene
    factor = longest / max(high, wide)
    size = max(1, round(wide * factor)), max(1, round(high * factor))
    return scene.resized(size, f"reduced from {wide}×{high}")


def _bytes(file: str | Path) -> bytes:
    try:
        status = os.stat(file)
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise BadPicture(f"{file}: this is no file, but a pipe or a device")
        if status.st_size > MOST_PICTURE:
            raise BadPicture(f"{file}: it has {status.st_size:,} bytes", allowed=f"at most {MOST_PICTURE:,}")
        return Path(file).read_bytes()
    except FileNotFoundError:
        if fetch_missing(file):
            return _bytes(file)
        raise BadPicture(f"{file}: the file does not exist") from None
    except IsADirectoryError:
        raise BadPicture(f"{file}: this is a folder, not a picture") from None
    except PermissionError:
        raise BadPicture(f"{file}: no permission to read it") from None
    except (OSError, ValueError) as error:  # ValueError: NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise BadPicture(f"{str(file)[:300]}: cannot be read ({reason})") from None


def _data(file: File, name: str = "the picture") -> tuple[bytes, str]:
    """The bytes of a file and its name."""
    if isinstance(file, str | Path):
        data, name = _bytes(file), str(file)
    else:
        data, name = (file, name) if isinstance(file, bytes) else (file.read(), str(getattr(file, "name", name)))
    if not data:
        raise BadPicture(f"{name}: the file is empty")
    if data[:2] == b"\xff\xd8" and data.count(b"\xff\xda") > MOST_SCANS and _scans(data) > MOST_SCANS:
        raise BadPicture(f"{name}: it would take too long to read", allowed=f"JPEG of at most {MOST_SCANS} scans")
    return data, name


def _scans(data: bytes) -> int:
    """How often a JPEG file passes over its picture, counted as far as one more than MOST_SCANS."""
    count, start = 0, 2
    while (marker := _JPEG_MARKER.search(data, start)) is not None and marker[0] != b"\xff\xd9" and count <= MOST_SCANS:
        count += marker[0] == b"\xff\xda"
        start = marker.end() + int.from_bytes(data[marker.end() : marker.end() + 2])
    return count


@contextlib.contextmanager
def _opened(data: bytes, name: str, most: int = MOST_PIXELS) -> Iterator[Image.Image]:
    """The Pillow image of a file's bytes; every error while it is open becomes a BadPicture with a reason."""
    try:
        with warnings.catch_warnings():
            # Pillow warns at half of our own limit, which is checked below.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            picture = Image.open(io.BytesIO(data), formats=_heic_formats() if _is_heic(data) else _FORMATS)
        if picture.width * picture.height > most:
            raise Image.DecompressionBombError
        if picture.mode in ("I", "F") and picture.format not in _SIXTEEN_BITS_AS_I:
            raise BadPicture(f"{name}: it holds 32-bit numbers without a known white level", allowed="8 or 16 bits")
        yield picture
    except BadPicture:
        raise
    except UnidentifiedImageError:
        raise BadPicture(f"{name}: {_what_it_is(data)}", allowed="JPEG, PNG, WebP, TIFF, …") from None
    except Image.DecompressionBombError:
        allowed = f"at most {MOST_PIXELS // 10**6} megapixels"
        raise TooLarge(f"{name}: the picture is too large", allowed=allowed) from None
    except Exception as error:
        if "truncated" in str(error).lower() or isinstance(error, EOFError | struct.error | IndexError):
            raise BadPicture(f"{name}: the file is cut off (truncated)") from None
        raise BadPicture(f"{name}: the file is damaged ({error or type(error).__name__})") from None


def _is_heic(data: bytes) -> bool:
    return data[4:12] in (b"ftypheic", b"ftypheix", b"ftypmif1", b"ftypmsf1", b"ftyphevc")


def _heic_formats() -> tuple[str, ...]:
    """The formats in which Pillow may read a HEIC picture: that of the package pillow-heif where it is installed."""
    try:
        import pillow_heif
    except ImportError:
        return _FORMATS
    pillow_heif.register_heif_opener()
    return ("HEIF", *_FORMATS)


def _what_it_is(data: bytes) -> str:
    start = data[:256].lstrip()
    for magic, kind in _OTHER_KINDS:
        if start.startswith(magic):
            return f"this is not a picture but {kind}"
    if _is_heic(data):
        return "this is a HEIC picture: `pip install 'unswayed[heic]'` to read it, or convert it to JPEG"
    if start.startswith((b"\xff\xd8", b"\x89PNG", b"RIFF", b"II*\0", b"MM\0*", b"GIF8")):
        return "the file is damaged or cut off (truncated)"
    try:
        data[:1024].decode("ascii")
        return "this is not a picture but text"
    except UnicodeDecodeError:
        return "this is not a readable picture"


def _rgb(picture: Image.Image) -> np.ndarray:
    gray = _sixteen_bits(picture)
    if gray is not None:
        _refuse_dark(gray)
        return np.repeat((gray >> 8).astype(np.uint8)[..., None], 3, axis=2)
    if not picture.has_transparency_data:
        return np.asarray(picture.convert("RGB"))
    over = Image.new("RGBA", picture.size, "white")
    over.alpha_composite(picture.convert("RGBA"))
    return np.asarray(over.convert("RGB"))


def _refuse_fewer_bits(picture: Image.Image, data: bytes) -> None:
    """Refuse a file of 16-bit colors, of which Pillow keeps the upper eight bits, if only lower ones are used."""
    depths = {"PNG": data[24:25], "TIFF": getattr(picture, "tag_v2", {}).get(258, ())}.get(picture.format or "", ())
    if _sixteen_bits(picture) is None and 16 in depths:
        import cv2

        levels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
        if levels is not None and levels.dtype == np.uint16:
            _refuse_dark(levels[..., :3])


def _refuse_dark(levels: np.ndarray) -> None:
    most = int(levels.max(initial=0))
    if 0 < most < 2**14:  # the lowest quarter alone: the picture would be nearly black
        raise BadPicture(
            f"the 16-bit picture is nearly black: its largest level is {most}, as of {most.bit_length()}-bit data",
            allowed="levels up to 65535: multiply them",
        )


def _coverage(picture: Image.Image) -> np.ndarray:
    gray = _sixteen_bits(picture)
    if gray is not None:
        return _shares(gray, 65535)
    if picture.has_transparency_data:
        alpha = np.asarray(picture.convert("RGBA"))[..., 3]
        if alpha.min(initial=255) < 255:
            return _shares(alpha, 255)
    return _shares(np.asarray(picture.convert("L")), 255)


def _refuse_photograph(picture: Image.Image, name: str) -> None:
    """Refuse a color photograph where a mask is wanted: many colors, in many shades between black and white."""
    if picture.mode in ("1", "L", "LA") or picture.mode.startswith(("I", "F")) or picture.has_transparency_data:
        return
    small = picture.convert("RGB")
    small.thumbnail((128, 128), Image.Resampling.NEAREST)
    pixels = np.asarray(small).astype(np.int16)
    levels = pixels.mean(axis=2)
    colored = np.ptp(pixels, axis=2) > 24
    shades = (levels > 25) & (levels < 230)
    if colored.mean() > 0.1 and shades.mean() > 0.3 and len(np.unique(pixels.reshape(-1, 3), axis=0)) > 256:
        raise BadPicture(f"{name}: this is a color photograph, not a mask", allowed="black and white: white = object")


def _shares(levels: np.ndarray, white: int) -> np.ndarray:
    """Levels as shares of white, which is 1 if a mask holds only zeros and ones."""
    return levels.astype(np.float32) / np.float32(1 if levels.max(initial=0) == 1 else white)


def _sixteen_bits(picture: Image.Image) -> np.ndarray | None:
    """The picture's levels as (H, W) uint16 if it is a 16-bit grayscale file, else None."""
    if picture.mode.startswith("I;16"):
        return np.asarray(picture).astype(np.uint16)
    if picture.mode == "I" and picture.format in _SIXTEEN_BITS_AS_I:
        return np.clip(np.asarray(picture), 0, 65535).astype(np.uint16)
    return None


def _upright(pixels: np.ndarray, picture: Image.Image) -> np.ndarray:
    """The pixels rotated and mirrored by the file's EXIF orientation."""
    try:
        orientation = picture.getexif().get(0x0112, 1)
    except Exception:
        orientation = 1  # broken EXIF must not make the picture unusable
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)
