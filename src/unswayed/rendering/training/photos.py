"""Photographs: those to train on, from folders and tars, at several scales; and a sheet of reconstructed ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unswayed.errors import BadPicture, UserError
from unswayed.files.archives import open_archive
from unswayed.files.whole import MOST_PICTURE, read_file, write_bytes
from unswayed.sources.labeled import files_below
from unswayed.sources.pictures import read_picture

from ..diffusion import open_diffusion
from ..layers import Layers, Rendering

SIDE = 256
SCALES = (256, 288, 324, 364)
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
# Shares of the pictures with a hole, and with nothing but an object known; of the holes, boxes and strokes.
FILLED, AROUND = 0.4, 0.2
BOXES, STROKES = 0.13, 0.22
# Two photographs are the same when at most this many of 64 perceptual bits differ.
SAME = 8


def read_photos(paths: list[str | Path]) -> Iterator[tuple[str, bytes]]:
    """(name, file contents) of every picture in folders (recursively), tars and folders of tars, sorted by name."""
    for path in sorted(Path(p) for p in paths):
        if path.is_file() and path.suffix == ".tar":
            with open_archive(path) as archive:
                for member in sorted(archive.members, key=lambda member: member.name):
                    if member.name.lower().endswith(SUFFIXES):
                        yield member.name, archive.read(member)
        elif path.is_dir():
            tars = sorted(path.glob("*.tar"))
            if tars:
                yield from read_photos(list(tars))
            for name in sorted(map(Path, files_below(path, SUFFIXES))):
                yield str(name), read_file(path / name, MOST_PICTURE)
        else:
            raise UserError(f"{path} is neither a folder nor a tar of photographs", allowed=", ".join(SUFFIXES))


def perceptual_hash(image: np.ndarray) -> np.ndarray:
    """(64,) bool: signs of the lowest cosine frequencies of the 32×32 gray picture against their median."""
    gray = cv2.resize(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), (32, 32), interpolation=cv2.INTER_AREA)
    low = cv2.dct(gray.astype(np.float32))[:8, :8].ravel()
    return low > np.median(low[1:])


def sample_hashes() -> dict[str, np.ndarray]:
    """Perceptual hashes of the embedded sample photographs and of their mirror images."""
    hashes = {}
    for file in _sample_files(".jpg"):
        image = read_picture(file.read_bytes())
        hashes[file.name] = perceptual_hash(image)
        hashes[f"{file.name} (mirrored)"] = perceptual_hash(image[:, ::-1].copy())
    return hashes


def _sample_files(suffix: str) -> list[Traversable]:
    folder = resources.files("unswayed.data").joinpath("sample")
    return sorted((file for file in folder.iterdir() if file.name.endswith(suffix)), key=lambda file: file.name)


@dataclass(frozen=True)
class Photos:
    """Every photograph at every scale, flat: pixels (P, 4) uint8; start, width, height (K,) of each picture.

    The fourth channel is 255 where the photograph's mask has an object, and 0 everywhere if there is no mask.
    """

    pixels: Tensor
    starts: Tensor
    widths: Tensor
    heights: Tensor
    # pictures of photograph i: first[i] … first[i] + count[i] - 1
    first: Tensor
    count: Tensor
    names: tuple[str, ...]
    digest: str
    # (K, 1, 128, 128) float32: shapes of objects, each filling its square
    silhouettes: Tensor

    def known(self, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(number, 1, 256, 256) float32, 1 where pixels are given to the network; (number,) bool, which have a hole.

        Of the others most have nothing known; in some only an object is, as where a background is drawn around it.
        """
        device = self.pixels.device
        use = torch.rand(number, generator=generator, device=device)
        shape = holes(number, self.silhouettes, generator)
        filling = use < FILLED
        around = (use >= FILLED) & (use < FILLED + AROUND)
        columns = [flag.view(-1, 1, 1, 1).float() for flag in (filling, around)]
        return columns[0] * (1 - shape) + columns[1] * shape, filling

    def crops(self, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(number, 3, 256, 256) float32 in [-1, 1], channels last: random photograph, scale, position, flip, tone;
        and (number, 1, 256, 256) float32, 1 where an object or its rim is.
        """
        device = self.pixels.device

        def draw(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator, device=device)

        photo = (draw(number) * len(self.names)).long()
        picture = self.first[photo] + (draw(number) * self.count[photo]).long()
        x = (draw(number) * (self.widths[picture] - SIDE + 1)).long()
        y = (draw(number) * (self.heights[picture] - SIDE + 1)).long()
        along = torch.arange(SIDE, device=device)
        columns = torch.where(draw(number, 1) < 0.5, along, SIDE - 1 - along) + x[:, None]
        rows = (along + y[:, None]) * self.widths[picture][:, None] + self.starts[picture][:, None]
        crops = self.pixels[rows[:, :, None] + columns[:, None, :]]
        toned = _tones(crops[..., :3], draw(number, 1, 1, 1), draw(number, 1, 1, 1), draw(number, 1, 1, 1))
        objects = F.max_pool2d((crops[..., 3] > 127).float()[:, None], 9, 1, 4)
        return toned.permute(0, 3, 1, 2), objects


def _tones(crops: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor) -> Tensor:
    """Mild changes of exposure, contrast and color: uint8 -> float32 in [-1, 1]."""
    x = crops.float() / 127.5 - 1
    gray = x.mean(dim=3, keepdim=True)
    x = gray + (x - gray) * (0.8 + 0.4 * saturation)
    x = x * (0.9 + 0.2 * contrast) + 0.1 * (2 * brightness - 1)
    return x.clamp(-1, 1)


def holes(number: int, silhouettes: Tensor, generator: torch.Generator) -> Tensor:
    """(number, 1, 256, 256) float32, 1 inside: silhouettes, boxes and strokes, of 2 to 50 % of the picture."""
    device = silhouettes.device

    def draw(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(number, generator=generator, device=device)

    area, stretch, turn = torch.exp(draw(np.log(0.02), np.log(0.5))), torch.exp(draw(-0.4, 0.4)), draw(-0.6, 0.6)
    chosen = silhouettes[(draw(0, 1) * len(silhouettes)).long()]
    kind = draw(0, 1)
    chosen = torch.where((kind < BOXES).view(-1, 1, 1, 1), torch.ones_like(chosen), chosen)
    turn = torch.where(kind < BOXES, torch.zeros_like(turn), turn)
    # Half the side of the square around the shape, in units of half the picture's side.
    reach = (area / chosen.mean(dim=(1, 2, 3)).clamp_min(0.1)).sqrt()
    mirrored = torch.where(draw(0, 1) < 0.5, -1.0, 1.0)
    across, down = reach * stretch * mirrored, reach / stretch
    x, y = draw(-0.9, 0.9), draw(-0.9, 0.9)
    cos, sin = turn.cos(), turn.sin()
    turned = torch.stack([cos / across, sin / across, -(cos * x + sin * y) / across,
                          -sin / down, cos / down, (sin * x - cos * y) / down], dim=1).view(-1, 2, 3)  # fmt: skip
    grid = F.affine_grid(turned, [number, 1, SIDE, SIDE], align_corners=False)
    shapes = (F.grid_sample(chosen, grid, align_corners=False) > 0.5).float()
    strokes = _strokes(number, area, generator)
    shapes = torch.where((kind > 1 - STROKES).view(-1, 1, 1, 1), strokes, shapes)
    grown = draw(0, 3).long().view(-1, 1, 1, 1)
    wide, wider = F.max_pool2d(shapes, 9, 1, 4), F.max_pool2d(shapes, 17, 1, 8)
    return torch.where(grown == 0, shapes, torch.where(grown == 1, wide, wider))


def _strokes(number: int, area: Tensor, generator: torch.Generator) -> Tensor:
    """(number, 1, 256, 256): broken lines of three segments, as thick as the area asks for."""
    device = area.device
    ends = torch.rand(number, 4, 2, generator=generator, device=device)
    along = (torch.arange(SIDE // 4, device=device) + 0.5) * 4 / SIDE
    points = torch.stack(torch.meshgrid(along, along, indexing="ij"), dim=-1).view(1, 1, -1, 2)
    first, step = ends[:, :-1, None], (ends[:, 1:] - ends[:, :-1])[:, :, None]
    share = ((points - first) * step).sum(-1, keepdim=True) / step.square().sum(-1, keepdim=True).clamp_min(1e-6)
    distance = (points - first - share.clamp(0, 1) * step).square().sum(-1).sqrt().amin(dim=1)
    length = step.square().sum(-1).sqrt().sum(dim=(1, 2)).clamp_min(0.1)
    field = (area / length / 2).view(-1, 1) - distance
    field = field.view(number, 1, SIDE // 4, SIDE // 4)
    return (F.interpolate(field, size=(SIDE, SIDE), mode="bilinear") > 0).float()


def silhouette(mask: np.ndarray) -> np.ndarray | None:
    """(128, 128) float32: the object of a mask (H, W) uint8, from 128 up, filling its square; None if it is tiny."""
    rows, columns = (np.flatnonzero((mask >= 128).any(axis=axis)) for axis in (1, 0))
    if len(rows) < 16 or len(columns) < 16:
        return None
    cut = (mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] >= 128).astype(np.float32)
    return cv2.resize(cut, (128, 128), interpolation=cv2.INTER_AREA)


def load_photos(paths: list[str | Path], held_out: int, device: str | torch.device) -> tuple[Photos, Tensor]:
    """Photographs to train on, and (held_out, 3, 256, 256) float32 center crops of the held-out ones.

    The held-out photographs are those with the smallest file hashes, so the choice depends only on the files. A file
    NAME.png beside NAME.jpg is the mask of its object: its shape is one of the holes, with those of the sample's masks,
    and no hole is to be filled with that object.
    """
    pictures_of = dict(read_photos(paths))
    photographs = {name.rpartition(".")[0] for name in pictures_of if not name.lower().endswith(".png")}
    masks = {
        name[:-4]: pictures_of.pop(name)
        for name in list(pictures_of)
        if name.lower().endswith(".png") and name[:-4] in photographs
    }
    files_of_shapes = [*(file.read_bytes() for file in _sample_files(".png")), *masks.values()]
    decoded = (cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE) for data in files_of_shapes)
    shapes = [shape for mask in decoded if mask is not None and (shape := silhouette(mask)) is not None]
    if len(pictures_of) <= held_out:
        given = f"found {len(pictures_of)} photographs, but {held_out} are to be held out"
        raise UserError(given, allowed="more photographs")
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in pictures_of.items()}
    out = set(sorted(digests, key=digests.__getitem__)[:held_out])
    kept, sample = [name for name in digests if name not in out], sample_hashes()

    def pyramid(name: str) -> list[np.ndarray]:
        return _pyramid(name, pictures_of[name], masks.get(name.rpartition(".")[0]), sample)

    with ThreadPoolExecutor() as pool:
        pyramids = dict(zip(digests, pool.map(pyramid, digests), strict=True))
    whole = [pyramids[name][0][..., :3] for name in digests if name in out]
    crops = [p[(len(p) - SIDE) // 2 :, (p.shape[1] - SIDE) // 2 :][:SIDE, :SIDE] for p in whole]
    pictures = [picture for name in kept for picture in pyramids[name]]
    sizes = torch.tensor([p.shape[:2] for p in pictures])
    areas = sizes.prod(dim=1)
    count = torch.tensor([len(pyramids[name]) for name in kept])
    listing = "\n".join(sorted(f"{digests[name]}  {Path(name).name}" for name in kept))
    photos = Photos(
        pixels=torch.from_numpy(np.concatenate([p.reshape(-1, 4) for p in pictures])).to(device),
        starts=(areas.cumsum(0) - areas).to(device),
        widths=sizes[:, 1].to(device),
        heights=sizes[:, 0].to(device),
        first=(count.cumsum(0) - count).to(device),
        count=count.to(device),
        names=tuple(kept),
        digest=hashlib.sha256(listing.encode()).hexdigest(),
        silhouettes=torch.from_numpy(np.stack(shapes))[:, None].to(device),
    )
    held = torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2) if crops else torch.empty(0, 3, SIDE, SIDE)
    return photos, (held.float() / 127.5 - 1).to(device)


def _pyramid(name: str, data: bytes, mask: bytes | None, sample: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The photograph and its mask, (H, W, 4), with its short side at each scale up to its own; refused if it is a
    sample photograph.
    """
    try:
        image = read_picture(data)
    except BadPicture as error:
        given = f"{name} cannot be read as a photograph ({error.given})"
        raise UserError(given, run=f"remove {name} and start again") from None
    code = perceptual_hash(image)
    for other, its in sample.items():
        if int((code != its).sum()) <= SAME:
            raise UserError(
                f"{name} looks like the sample photograph {other}: a network trained on it cannot be evaluated on it",
                run=f"remove {name} and start again",
            )
    decoded = None if mask is None else cv2.imdecode(np.frombuffer(mask, np.uint8), cv2.IMREAD_GRAYSCALE)
    objects: np.ndarray = np.zeros(image.shape[:2], np.uint8)
    if decoded is not None:
        objects = cv2.resize(decoded, image.shape[1::-1], interpolation=cv2.INTER_NEAREST)
    image = np.dstack([image, np.where(objects >= 128, 255, 0).astype(np.uint8)])
    short = min(image.shape[:2])
    pictures: list[np.ndarray] = []
    for scale in SCALES:
        if scale <= short or not pictures:
            factor = scale / short
            size = (max(SIDE, round(image.shape[1] * factor)), max(SIDE, round(image.shape[0] * factor)))
            method = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
            pictures.append(cv2.resize(image, size, interpolation=method) if factor != 1 else image)
    return pictures


ROWS = ((0.25, 100), (0.5, 100), (0.25, 20), (0.5, 20))


def write_sheet(folder: Path, held: Tensor, columns: int = 8) -> Path:
    """`sheet.png`: held-out photographs, and their reconstructions from a quarter and half of the noise schedule."""
    shown = ((held[:columns].permute(0, 2, 3, 1).cpu() + 1) * 127.5).round().to(torch.uint8).numpy()
    rows, nothing, why = [shown], np.zeros((SIDE, SIDE), np.float32), "the whole picture is drawn anew"
    for start, steps in ROWS:
        batch = [Layers(p, nothing, p, start, None, None, seed, needs_network=why) for seed, p in enumerate(shown)]
        answers = open_diffusion(str(folder), steps).render(batch)
        rows.append(np.stack([answer.image for answer in answers if isinstance(answer, Rendering)]))
    sheet = np.concatenate([np.concatenate(list(row), axis=1) for row in rows])
    path = folder / "sheet.png"
    write_bytes(path, cv2.imencode(".png", cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR))[1].tobytes())
    return path
