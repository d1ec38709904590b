"""The photographs of a fine-tune, framed and at one size: in memory where they fit, else read as they are needed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unswayed.edits.composition import Impossible
from unswayed.edits.geometry import resized
from unswayed.errors import BadPicture, UserError
from unswayed.files.whole import canonical
from unswayed.jobs import run_tasks
from unswayed.rendering.backgrounds import removed_object, square_picture
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

    fill: what stands where an object was; `read` changes patches to smooth if the photographs take too much memory.
    cache: a folder that keeps the pictures without their objects, which take the longest to make.
    """

    rows: tuple[Photograph, ...]
    size: int
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
        return hashlib.sha256(canonical([self.size, self.fill, listing]).encode()).hexdigest()

    def read(self, device: str, workers: int | None = None, progress: Callable[[int, int], None] | None = None) -> None:
        """Check every photograph, drop those that cannot be read, and keep all in memory where they fit there.

        Where they do not fit with patches the fill becomes smooth, since patches take too long to be made again in
        every epoch; where they do not fit even so, they are read, and checked, when they are needed.
        """
        pixels = len(self.rows) * self.size**2
        if pixels * 7 > IN_MEMORY:
            self.fill = "smooth"
        if pixels * 4 > IN_MEMORY:
            return
        reader = _Reader(self.size, self.fill, self.cache)
        found: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray | None, bool]] = {}
        count = workers or (min(os.cpu_count() or 1, 16) if self.fill == "patches" and len(self.rows) > 200 else 1)
        for outcome in run_tasks(reader, [(place, row) for place, row in enumerate(self.rows)], count):
            if outcome.result is None:
                self.unusable[outcome.task[1].entry.id] = outcome.failure or "the process that read it died"
            elif isinstance(outcome.result, str):
                self.unusable[outcome.task[1].entry.id] = outcome.result
            else:
                found[outcome.task[0]] = outcome.result
            if progress:
                progress(len(found) + len(self.unusable), len(self.rows))
        order = sorted(found)
        if not order:
            raise UserError(
                f"none of the {len(self.rows)} photographs can be read: {next(iter(self.unusable.values()))}"
            )
        self.rows = tuple(replace(self.rows[place], masked=found[place][3]) for place in order)
        images = torch.from_numpy(np.stack([found[place][0] for place in order])).permute(0, 3, 1, 2).contiguous()
        masks = torch.from_numpy(np.stack([found[place][1] for place in order]))[:, None]
        removed = None
        if self.fill == "patches":
            # A photograph without a mask is never edited and lends nothing, so anything can stand there.
            fills = (found[place] for place in order)
            behind = [image if fill is None else fill for image, _, fill, _ in fills]
            removed = torch.from_numpy(np.stack(behind)).permute(0, 3, 1, 2).contiguous().to(device)
        self._kept = images.to(device), masks.to(device), removed

    def batches(self, plan: Sequence[np.ndarray], device: str) -> Iterator[Batch]:
        """One batch for each array of positions."""
        if self._kept is not None:
            for places in plan:
                yield self._from_memory(places, device)
            return
        from unswayed.jobs.resources import prefetch

        with ThreadPoolExecutor(min(os.cpu_count() or 1, 16)) as pool:
            yield from prefetch((self._from_files(places, device, pool) for places in plan), 2)

    def _from_memory(self, places: np.ndarray, device: str) -> Batch:
        assert self._kept is not None
        images, masks, removed = self._kept
        at = torch.from_numpy(places).to(images.device)
        targets = torch.from_numpy(self.targets[places]).to(device)
        return Batch(images[at], masks[at], None if removed is None else removed[at], targets, self.masked[places])

    def _from_files(self, places: np.ndarray, device: str, pool: ThreadPoolExecutor) -> Batch:
        reader = _Reader(self.size, self.fill)
        found = list(pool.map(reader, [(int(place), self.rows[place]) for place in places]))
        good = [place for place, one in zip(places, found, strict=True) if not isinstance(one, str)]
        usable = [one for one in found if not isinstance(one, str)]
        for place, one in zip(places, found, strict=True):
            if isinstance(one, str):
                self.unusable[self.rows[place].entry.id] = one
        if not usable:
            raise UserError(f"none of the {len(places)} photographs of a batch can be read: {found[0]}")
        images = torch.from_numpy(np.stack([one[0] for one in usable])).permute(0, 3, 1, 2)
        masks = torch.from_numpy(np.stack([one[1] for one in usable]))[:, None]
        targets = torch.from_numpy(self.targets[good])
        masked = np.array([one[3] for one in usable])
        return Batch(images.to(device), masks.to(device), None, targets.to(device), masked)


@dataclass(frozen=True)
class _Reader:
    """Reads one photograph; a reason instead where it cannot be read."""

    size: int
    fill: Fill
    cache: Path | None = None

    def __call__(self, task: tuple[int, Photograph]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, bool] | str:
        row = task[1]
        try:
            if not row.masked:
                return square_picture(row.entry.image, self.size), np.zeros((self.size,) * 2, np.uint8), None, False
            scene = frame(row.load(row.entry))
        except BadPicture as error:
            return str(error)
        image, mask = resized(scene.image, self.size), resized(scene.mask, self.size)
        behind = None
        if self.fill == "patches":
            try:
                behind = removed_object(image, mask, row.entry.id, None, open_removal(), self.cache)
            except Impossible:
                # Next to nothing is left around the object: it can neither be moved nor lend its background.
                return image, np.zeros((self.size,) * 2, np.uint8), None, False
        return image, np.round(mask * 255).astype(np.uint8), behind, True


def _bytes_of(path: str | None) -> int | None:
    return Path(path).stat().st_size if path is not None and Path(path).is_file() else None


def listed(source: Source, targets: Callable[[int], int | None]) -> tuple[Photograph, ...]:
    """The labeled photographs of a source; `targets` turns its labels into the network's, None to leave one out.

    A photograph without a mask is used plainly; one that cannot be used at all is found when it is read.
    """
    rows = []
    for entry in source.entries:
        target = None if entry.label is None else targets(entry.label)
        if target is not None:
            masked = source.has_masks and entry.problem is None
            rows.append(Photograph(entry, target, source.load, masked))
    return tuple(rows)


def split(labels: np.ndarray, shares: Sequence[float], seed: int) -> list[np.ndarray]:
    """Positions in as many parts as `shares`, and the rest: of every class about the same share, drawn by `seed`.

    A class keeps at least one photograph in the rest.
    """
    parts: list[list[int]] = [[] for _ in range(len(shares) + 1)]
    for label in np.unique(labels):
        places = np.flatnonzero(labels == label)
        places = places[np.random.default_rng([seed, int(label)]).permutation(len(places))]
        taken = 0
        for part, share in zip(parts, shares, strict=False):
            count = min(round(share * len(places)), len(places) - 1 - taken)
            part.extend(places[taken : taken + max(count, 0)].tolist())
            taken += max(count, 0)
        parts[-1].extend(places[taken:].tolist())
    return [np.array(sorted(part), np.int64) for part in parts]
