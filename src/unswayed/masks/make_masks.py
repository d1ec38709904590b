"""A mask file for every photograph of a folder: `unswayed masks FOLDER -o MASKS`."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from unswayed.choices import takes
from unswayed.errors import BadPicture, UserError
from unswayed.files.whole import write_bytes
from unswayed.jobs import engine_of, run_tasks
from unswayed.jobs.monitor import Monitor, View
from unswayed.sources.folder import object_name
from unswayed.sources.labeled import pictures_below
from unswayed.sources.pictures import read_picture

from . import MaskSettings
from .confidence import (
    MEASURES,
    confidence_rows,
    has_notes,
    mask_path,
    merge_confidences,
    note_confidence,
    write_sheet,
)
from .sam2 import chosen_by_class
from .segment import Box, Choice, default_segmenter, open_segmenter, trusted_mask

_opened = functools.cache(open_segmenter)  # once in each process


@dataclass(frozen=True)
class MaskResult:
    """The result for one photograph. status: made, kept (the mask already existed) or failed; reason: why.

    confidence: how far the mask can be trusted, in [0, 1], with its three parts; None for a mask that a person made.
    """

    picture: str
    mask: str
    status: str
    reason: str | None = None
    confidence: float | None = None
    agreement: float | None = None
    edge: float | None = None
    size: float | None = None


@takes(MaskSettings)
def make_masks(
    pictures: Path, masks: Path, settings: MaskSettings, *, show: Callable[[View], None] | None = None
) -> Iterator[MaskResult]:
    """One result per photograph, as it is done; existing masks are kept, so a stopped run resumes.

    pictures: a folder, searched recursively, or one picture; masks: the output folder, with one NAME.png for each.
    The confidences of all masks are in `confidence.csv` there when the last result has been taken. The fields of
    settings are also keywords. With a model there is one process for each GPU, if there are any. Also a single process
    is not this one, so that a photograph that ends it fails alone.
    """
    segmenter = default_segmenter()[0] if settings.segmenter == "auto" else settings.segmenter
    choice = functools.partial(chosen_by_class, settings=settings) if settings.model else None
    root, names = _names(pictures, masks)
    names, engine = settings.part(names), engine_of(settings)
    work = functools.partial(
        _make_mask, root=root, masks=masks, segmenter=segmenter, box=settings.box, choice_for=choice
    )
    known = merge_confidences(masks) if has_notes(masks) else confidence_rows(masks)
    first: dict[Path, str] = {}
    ready: dict[str, MaskResult] = {}
    for name in names:
        path = mask_path(masks, name)
        if first.setdefault(path, name) != name:
            reason = f"{first[path]} differs only in the suffix, so both masks would be the same file"
            ready[name] = MaskResult(name, str(path), "failed", reason)
        elif path.is_file():
            ready[name] = MaskResult(name, str(path), "kept", None, *map(known.get(name, {}).get, MEASURES))
    with Monitor(masks, "masks", "photographs", show) as monitor:
        workers = settings.workers or max(1, min(engine.cores(settings), (len(names) - len(ready)) // 16))
        devices = [] if choice is None else engine.places(settings)
        if devices and not devices[0].startswith("cuda") and settings.device is None:
            devices = devices[:1] * workers
        todo, failed = [name for name in names if name not in ready], 0
        outcomes = run_tasks(work, todo, workers, settings, devices=devices, apart=True, watch=monitor.watch)
        for done, name in enumerate(names, 1):
            made = ready.get(name)
            if made is None:
                outcome = next(outcomes)
                path, reason = mask_path(masks, outcome.task), f"{outcome.task}: {outcome.failure}"
                # Without a result where its process died.
                made = outcome.result or MaskResult(outcome.task, str(path), "failed", reason)
            failed += made.status == "failed"
            monitor.count(done, len(names), failed)
            yield made
        merge_confidences(masks)


def _make_mask(
    name: str,
    device: str | None = None,
    *,
    root: Path,
    masks: Path,
    segmenter: str,
    box: Box | None,
    choice_for: Callable[..., Choice | None] | None,
) -> MaskResult:
    path, opened = mask_path(masks, name), _opened(segmenter)
    try:
        image = read_picture(root / name)
        choice = choice_for(name, device=device) if choice_for else None
        mask, confidence = trusted_mask(image, opened, f"{name}: {segmenter}", box, choice)
    except BadPicture as error:
        return MaskResult(name, str(path), "failed", str(error))
    note_confidence(masks, name, confidence)
    write_bytes(path, mask_png(mask))
    return MaskResult(name, str(path), "made", None, *confidence)


def mask_png(mask: np.ndarray) -> bytes:
    """A mask (H, W) in [0, 1] as the bytes of an 8-bit grayscale PNG."""
    file = io.BytesIO()
    Image.fromarray(np.rint(np.clip(mask, 0, 1) * 255).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def _names(pictures: Path, masks: Path) -> tuple[Path, list[str]]:
    if pictures.is_file():
        root, names = pictures.parent, [pictures.name]
    elif pictures.is_dir():
        # Masks that lie beside their photographs get no masks of their own.
        root, names = pictures, [name for name in pictures_below(pictures) if object_name(name) is None]
    else:
        raise UserError(f"{pictures} does not exist", allowed="a folder of photographs, or one photograph")
    if masks.resolve() == root.resolve():
        raise UserError(
            f"the masks would be written among the pictures in {root}", run="unswayed masks FOLDER -o FOLDER/masks"
        )
    if masks.resolve().is_relative_to(root.resolve()):
        inner = masks.resolve().relative_to(root.resolve()).as_posix() + "/"
        names = [name for name in names if not name.startswith(inner)]
    if not names:
        raise UserError(f"{pictures} holds no pictures")
    return root, names


@takes(MaskSettings)
def masks(
    pictures: str | Path, output: str | Path, settings: MaskSettings, *, show: Callable[[View], None] | None = None
) -> list[MaskResult]:
    """Make a mask for every photograph of a folder, or of one photograph; return what was made, by photograph.

    Masks that are already in `output` are kept. A photograph that cannot be used has the status `failed` and a reason.
    The fields of settings are also keywords: `masks("photos", "photos/masks", segmenter="grabcut")`.
    """
    made = list(make_masks(Path(pictures), Path(output), settings, show=show))
    if settings.sheet and any(mask.confidence is not None for mask in made):
        write_sheet(Path(pictures), Path(output))
    return sorted(made, key=lambda mask: mask.picture)
