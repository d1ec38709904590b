"""The photographs of a fine-tune: read at one size, kept in memory where they fit, divided, and cropped."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor

from unswayed.edits.composition import Impossible
from unswayed.edits.geometry import resized
from unswayed.edits.layers import square_picture
from unswayed.edits.placement import GRID
from unswayed.errors import BadPicture, UserError
from unswayed.files.whole import canonical
from unswayed.jobs import run_tasks
from unswayed.jobs.resources import prefetch
from unswayed.masks.checks import is_unusable
from unswayed.models.transforms import Transform
from unswayed.models.wrappers import corners
from unswayed.rendering.layers import removed_object
from unswayed.rendering.removal import open_removal
from unswayed.scene import Scene, frame
from unswayed.sources import Source
from unswayed.sources.source import Entry

from .settings import Fill

IN_MEMORY = 4 * 2**30  # bytes of photographs that are kept in memory


@dataclass(frozen=True, eq=False)
class Photograph:
    """Where one photograph lies, its target, and how it is loaded; `masked`: whether its object is known."""

    entry: Entry
    target: int
    load: Callable[[Entry], Scene]
    masked: bool


class Picture(NamedTuple):
    """A photograph at the size of the training, its mask (S, S) uint8, and what stands where its object was."""

    image: np.ndarray
    mask: np.ndarray
    behind: np.ndarray | None
    masked: bool


@dataclass(frozen=True, eq=False)
class Batch:
    """(n, 3, S, S) uint8 pictures, masks (n, 1, S, S) uint8, pictures without their objects or None, targets (n,)."""

    images: Tensor
    masks: Tensor
    removed: Tensor | None
    targets: Tensor
    masked: np.ndarray


@dataclass(eq=False)
class Photographs:
    """Photographs by position; `unusable` are those that turned out not to be readable, with the reason.

    side: of the pictures in pixels. fill: what stands where an object was; `read` changes patches to smooth if the
    photographs take too much memory. cache: a folder that keeps the pictures without their objects, which take the
    longest to make.
    """

    rows: tuple[Photograph, ...]
    side: int
    fill: Fill
    cache: Path | None = None
    unusable: dict[str, str] = field(default_factory=dict)
    _kept: tuple[Tensor, Tensor, Tensor | None] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def masked(self) -> np.ndarray:
        return np.array([row.masked for row in self.rows], bool)

    @property
    def targets(self) -> np.ndarray:
        return np.array([row.target for row in self.rows], np.int64)

    @property
    def digest(self) -> str:
        """SHA-256 that changes with the photographs: their ids, targets, sizes and masks."""
        listing = [
            [row.entry.id, row.target, _bytes_of(row.entry.image), _bytes_of(row.entry.mask)] for row in self.rows
        ]
        return hashlib.sha256(canonical([self.side, self.fill, listing]).encode()).hexdigest()

    def read(self, device: str, workers: int | None = None, progress: Callable[[int, int], None] | None = None) -> None:
        """Check every photograph, drop those that cannot be read, and keep all in memory where they fit there.

        Where they do not fit with patches the fill becomes smooth, since patches take too long to be made again in
        every epoch; where they do not fit even so, they are read, and checked, when they are needed.
        """
        pixels = len(self.rows) * self.side**2
        if pixels * 7 > IN_MEMORY:
            self.fill = "smooth"
        if pixels * 4 > IN_MEMORY:
            return
        reader = _Reader(self.side, self.fill, self.cache)
        pictures: dict[int, Picture] = {}
        count = workers or (min(os.cpu_count() or 1, 16) if self.fill == "patches" and len(self.rows) > 200 else 1)
        for index, picture in self._pictures(reader, enumerate(self.rows), count):
            if picture is not None:
                pictures[index] = picture
            if progress:
                progress(len(pictures) + len(self.unusable), len(self.rows))
        if not pictures:
            raise UserError(
                f"none of the {len(self.rows)} photographs can be read: {next(iter(self.unusable.values()))}"
            )
        self.rows = tuple(replace(self.rows[index], masked=pictures[index].masked) for index in sorted(pictures))
        good = [pictures[index] for index in sorted(pictures)]
        images, masks = _stacked(good)
        removed = None
        if self.fill == "patches":
            # A photograph without a mask is never edited and lends nothing, so anything can stand there.
            behind = [picture.image if picture.behind is None else picture.behind for picture in good]
            removed = _planes(behind).contiguous().to(device)
        self._kept = images.contiguous().to(device), masks.to(device), removed

    def _pictures(
        self, reader: _Reader, tasks: Iterable[tuple[int, Photograph]], workers: int
    ) -> Iterator[tuple[int, Picture | None]]:
        """Each task's number and picture, None where it is unusable; one that ends its process costs only itself."""
        for outcome in run_tasks(reader, tasks, workers, apart=True):
            number, row = outcome.task
            if not isinstance(outcome.result, Picture):
                self.unusable[row.entry.id] = outcome.result or outcome.failure or "the process that read it died"
            yield number, outcome.result if isinstance(outcome.result, Picture) else None

    def batches(self, plan: Sequence[np.ndarray], device: str) -> Iterator[Batch]:
        """One batch for each array of positions."""
        if self._kept is None:
            yield from prefetch(self._from_files(plan, device), 2)
            return
        images, masks, removed = self._kept
        for positions in plan:
            at, targets = torch.from_numpy(positions).to(images.device), torch.from_numpy(self.targets[positions])
            behind = None if removed is None else removed[at]
            yield Batch(images[at], masks[at], behind, targets.to(device), self.masked[positions])

    def _from_files(self, plan: Sequence[np.ndarray], device: str) -> Iterator[Batch]:
        """The batches, read by processes that begin with the next ones while these are used."""
        order = [self.rows[index] for positions in plan for index in positions]
        ready: dict[int, Picture | None] = {
            number: None for number, row in enumerate(order) if row.entry.id in self.unusable
        }
        tasks = [task for task in enumerate(order) if task[0] not in ready]
        arriving = self._pictures(_Reader(self.side, self.fill), tasks, min(os.cpu_count() or 1, 16))
        first = 0
        for positions in plan:
            numbers = range(first, first + len(positions))
            while not all(number in ready for number in numbers):
                ready.update([next(arriving)])
            first = numbers.stop
            pictures = {i: picture for n, i in zip(numbers, positions, strict=True) if (picture := ready.pop(n))}
            if not pictures:
                reason = self.unusable[self.rows[positions[0]].entry.id]
                raise UserError(f"none of the {len(positions)} photographs of a batch can be read: {reason}")
            images, masks = _stacked(list(pictures.values()))
            targets = torch.from_numpy(self.targets[list(pictures)])
            masked = np.array([picture.masked for picture in pictures.values()])
            yield Batch(images.to(device), masks.to(device), None, targets.to(device), masked)


@dataclass(frozen=True)
class _Reader:
    """Reads one photograph; a reason instead where it cannot be read."""

    side: int
    fill: Fill
    cache: Path | None = None

    def __call__(self, task: tuple[int, Photograph]) -> Picture | str:
        row = task[1]
        unknown_object = np.zeros((self.side, self.side), np.uint8)
        try:
            if not row.masked:
                return Picture(square_picture(row.entry.image, self.side), unknown_object, None, False)
            scene = row.load(row.entry)
            if is_unusable(scene.mask):
                # What is called the object is not, so the photograph is neither edited nor lends its background.
                return Picture(square_picture(row.entry.image, self.side), unknown_object, None, False)
            scene = frame(scene)
        except BadPicture as error:
            return str(error)
        image, mask = resized(scene.image, self.side), resized(scene.mask, self.side)
        behind = None
        if self.fill == "patches":
            try:
                behind = removed_object(image, mask, row.entry.id, None, open_removal(), self.cache)
            except Impossible:
                # Next to nothing is left around the object: it can neither be moved nor lend its background.
                return Picture(image, unknown_object, None, False)
        return Picture(image, np.round(mask * 255).astype(np.uint8), behind, True)


def _stacked(pictures: Sequence[Picture]) -> tuple[Tensor, Tensor]:
    """Images (n, 3, S, S) and masks (n, 1, S, S), uint8."""
    masks = torch.from_numpy(np.stack([picture.mask for picture in pictures]))[:, None]
    return _planes([picture.image for picture in pictures]), masks


def _planes(images: Sequence[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)


def _bytes_of(path: str | None) -> int | None:
    return Path(path).stat().st_size if path is not None and Path(path).is_file() else None


def listed(source: Source, first: int = 0) -> tuple[Photograph, ...]:
    """The labeled photographs of a source, their targets counted from `first`.

    A photograph without a mask is used plainly; one that cannot be used at all is found when it is read.
    """
    return tuple(
        Photograph(entry, first + entry.label, source.load, source.has_masks and entry.problem is None)
        for entry in source.entries
        if entry.label is not None
    )


def split(labels: np.ndarray, shares: Sequence[float], seed: int) -> list[np.ndarray]:
    """Positions in as many parts as `shares`, and the rest: of every class about the same share, drawn by `seed`.

    A class keeps at least one photograph in the rest.
    """
    parts: list[list[int]] = [[] for _ in range(len(shares) + 1)]
    for label in np.unique(labels):
        positions = np.flatnonzero(labels == label)
        positions = positions[np.random.default_rng([seed, int(label)]).permutation(len(positions))]
        taken = 0
        for part, share in zip(parts, shares, strict=False):
            count = min(round(share * len(positions)), len(positions) - 1 - taken)
            part.extend(positions[taken : taken + max(count, 0)].tolist())
            taken += max(count, 0)
        parts[-1].extend(positions[taken:].tolist())
    return [np.array(sorted(part), np.int64) for part in parts]


def training_crops(
    images: Tensor, masks: Tensor, transform: Transform, least: float, generator: torch.Generator
) -> Tensor:
    """Random crops (n, 3, crop, crop) in [0, 1], half of them mirrored; where it fits, the whole object is inside.

    images: (n, 3, S, S) uint8; masks: (n, 1, S, S) uint8, all 0 where nothing is known; least: the least share of the
    area that a crop shows.
    """
    count, device = len(images), images.device
    share, stretch, across, down, mirror = torch.rand(5, count, generator=generator).to(device)
    area, ratio = least + share * (1 - least), torch.exp((stretch - 0.5) * 0.575)  # 3/4 to 4/3
    extent = torch.stack([(area * ratio).sqrt(), (area / ratio).sqrt()], dim=1).clamp(max=1)
    low = torch.stack([across, down], dim=1) * (1 - extent)
    first, last = _boxes(masks)
    kept = torch.maximum(torch.minimum(low, first), last - extent)
    low = torch.where(last - first <= extent, kept, low)
    # From the crop's square [-1, 1]² to the picture's.
    flip = torch.where(mirror < 0.5, -1.0, 1.0)
    middle, zero = (low + extent / 2) * 2 - 1, torch.zeros_like(flip)
    rows = [extent[:, 0] * flip, zero, middle[:, 0], zero, extent[:, 1], middle[:, 1]]
    theta = torch.stack(rows, dim=1).view(-1, 2, 3)
    grid = nnf.affine_grid(theta, [count, 3, transform.crop, transform.crop], align_corners=False)
    pixels = images.float().div_(255)
    return nnf.grid_sample(pixels, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def _boxes(masks: Tensor) -> tuple[Tensor, Tensor]:
    """Corners of the boxes around objects, two (n, 2) in [0, 1]; the whole picture where there is none."""
    inside = nnf.adaptive_max_pool2d(masks.float(), GRID)[:, 0] > 127
    low, high = corners(inside)
    some = inside.flatten(1).any(1)[:, None]
    return torch.where(some, low, torch.zeros_like(low)), torch.where(some, high, torch.ones_like(high))
