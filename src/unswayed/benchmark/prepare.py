"""Preparing one source for the renderer: decoding, framing, composing; what cannot be made gets a reason."""

from __future__ import annotations

import functools
import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unswayed.edits.composition import Composition, Impossible, Original, Pool, WithoutObject
from unswayed.edits.geometry import border_contact
from unswayed.edits.layers import realize, visible_others
from unswayed.edits.recipes import Item
from unswayed.errors import BadPicture, UserError, reason_of
from unswayed.files.downloads import place_of
from unswayed.files.whole import Json
from unswayed.labels import imagenet
from unswayed.masks import open_segmenter
from unswayed.masks.checks import is_unusable, mask_warnings
from unswayed.rendering.layers import Backgrounds, Layers, Removal, no_network, png
from unswayed.rendering.removal import lendable
from unswayed.rendering.settings import removal_of
from unswayed.scene import Scene, frame
from unswayed.sources import is_combined

from .plan import Plan, picture_seed
from .quality import FINDER, WITNESS, Evidence, Witness
from .rows import CACHE, FAILED, SKIPPED, SOURCE_EDIT, Row, kept_rows, picture_path

# An object counts as cut off if more than this share of its outline lies on the border.
WHOLE = 0.01


@dataclass
class PreparedPicture:
    """A picture's row and what is still to be done for it: layers to render, or the bytes of a file to copy.

    evidence: what its validity is measured with, if that is measured.
    """

    row: Row
    layers: Layers | None = None
    evidence: Evidence | None = None
    data: bytes | None = None


class Preparation:
    """The function that workers call with a source's id: its pictures, never an error for a bad source.

    removal: the plan's removal method, if it is already loaded; seconds: those of each stage of the last source.
    """

    def __init__(self, plan: Plan, removal: Removal | None = None) -> None:
        self.plan, self._removal = plan, removal
        self.seconds = defaultdict[str, float](float)
        self._framed: OrderedDict[str, Scene] = OrderedDict()
        self._unusable: set[str] = set()

    def __call__(self, source_id: str) -> list[PreparedPicture]:
        self.seconds = defaultdict(float)
        settings = self.plan.settings
        try:
            with self.timed("decode"):
                scene, framed = self._read(source_id)
                notes = [*scene.notes, *mask_warnings(scene.mask, scene.image)]
        except Exception as error:
            return list(map(PreparedPicture, self.plan.unmade(source_id, FAILED, row_reason(error))))
        # Framing by the object cuts nothing off, so only the photograph's own border matters there.
        contact = border_contact(framed.mask if settings.frame == "center" else scene.mask)
        if settings.whole_objects and contact > WHOLE:
            reason = f"the photograph's border cuts off the object ({contact:.0%} of its outline)"
            return list(map(PreparedPicture, self.plan.unmade(source_id, SKIPPED, reason)))
        kept, shared = kept_rows(self.plan.root, source_id), self._shared(scene, framed)
        about: Json = {"border_contact": contact, "notes": notes}
        pictures = [self._as_found(scene, replace(self.plan.source_row(source_id), **about))]
        for item, row in self.plan.pictures(source_id):
            if row.key in kept:
                pictures.append(PreparedPicture(kept[row.key]))
            else:
                pictures.append(self._compose(framed, item, replace(row, **about), shared))
        self.seconds["compose"] -= self.seconds.pop("pool", 0.0)
        return pictures

    def again(self, picture: PreparedPicture, attempt: int) -> bool:
        """Prepare a picture with the seed of another attempt.

        False where nothing in the picture is drawn, so that it would be the same, or where it cannot be made.
        """
        row = picture.row
        if not self.plan.draws[row.edit]:
            return False
        of_source = self.plan.pictures(row.source_id)
        item, fresh = next((item, other) for item, other in of_source if (other.edit, other.run) == (row.edit, row.run))
        seed = picture_seed(self.plan.settings.seed, row.source_id, row.edit, row.parameters, row.run, attempt)
        # The border contact and the notes of a row do not depend on the draws.
        fresh = replace(fresh, seed=seed, border_contact=row.border_contact, notes=row.notes)
        scene, framed = self._read(row.source_id)
        made = self._compose(framed, item, fresh, self._shared(scene, framed))
        if made.layers is None or made.evidence is None:
            return False
        picture.row, picture.layers, picture.evidence = made.row, made.layers, made.evidence
        return True

    def _shared(self, scene: Scene, framed: Scene) -> Evidence | None:
        """What the validity of all pictures of a source is measured with; None where it is not measured."""
        if self.plan.settings.quality == "off":
            return None
        with self.timed("judge"):
            return self.witness.of_source(scene, framed)

    def _compose(self, framed: Scene, item: Item, row: Row, shared: Evidence | None) -> PreparedPicture:
        try:
            with self.timed("compose"):
                composition = item.compose(framed, np.random.default_rng(row.seed), self.pool)
                if composition.background == WithoutObject(framed.id) and (fill := row.run % self.plan.fills_of(item)):
                    composition = replace(composition, background=WithoutObject(framed.id, fill))
                needed = None if self.plan.network else composition.needs_network
                layers = None if needed else realize(composition, self.backgrounds, row.seed)
                objects = None if layers is None else self._objects(framed, composition, layers)
        except Impossible as impossible:
            return PreparedPicture(replace(row, status=SKIPPED, reason=str(impossible)))
        except Exception as error:
            return PreparedPicture(replace(row, status=FAILED, reason=row_reason(error)))
        rate = composition.requested.get("pixel_rate")
        row = replace(
            row,
            requested=None if rate is None else float(rate),
            values=dict(composition.requested),
            guide=self.plan.guide if "guide" in item.needs else None,
            objects=objects,
        )
        if needed is not None:
            return PreparedPicture(replace(row, status=SKIPPED, reason=no_network(needed).reason))
        with self.timed("judge"):
            evidence = None if shared is None else self.witness.of_picture(shared, composition)
        return PreparedPicture(row, layers, evidence)

    def _objects(self, framed: Scene, composition: Composition, layers: Layers) -> str | None:
        """The other objects in a picture: those of the scene that its background shows, if it shows one."""
        shown: Scene | None = framed
        if isinstance(composition.background, WithoutObject) and composition.background.scene_id != framed.id:
            shown = self.pool.load(composition.background.scene_id)
        elif not isinstance(composition.background, Original | WithoutObject):
            shown = None
        from unswayed.sources.coco import objects_text

        return objects_text(visible_others(shown, composition, layers, self.backgrounds))

    def _as_found(self, scene: Scene, row: Row) -> PreparedPicture:
        """The source file as it is, or a PNG if no single file shows the scene."""
        try:
            path = Path(self.plan.source.entry(scene.id).image)
            if is_combined(self.plan.source) or not path.is_file():
                data, suffix = png(scene.image), ".png"
            else:
                data, suffix = path.read_bytes(), path.suffix.lower()
        except Exception as error:
            return PreparedPicture(replace(row, status=FAILED, reason=row_reason(error), border_contact=None, notes=[]))
        row = replace(
            row,
            path=picture_path(SOURCE_EDIT, scene.id, suffix=suffix),
            pixel_rate=scene.pixel_rate,
            values={} if scene.mask_origin is None else scene.mask_origin.to_values(),
        )
        return PreparedPicture(row, data=data)

    @functools.cached_property
    def pool(self) -> Pool:
        source = self.plan.source
        return Pool(source.ids, self._load, self.plan.settings.size, source.labels.classes)

    @functools.cached_property
    def backgrounds(self) -> Backgrounds:
        removal = self._removal or removal_of(self.plan.settings)
        # One removal serves several scenes if an edit uses other scenes' backgrounds.
        borrows = any(edit.borrows for item in self.plan.recipe.items for edit in item.chain)
        cache = self.plan.root / CACHE / "removed" if borrows else None
        return Backgrounds(self.pool, removal, size=self.plan.settings.size, cache=cache)

    @functools.cached_property
    def witness(self) -> Witness:
        if self.plan.settings.quality != "strict":
            return Witness(self.backgrounds)
        from unswayed.masks.sam2 import has_runtime
        from unswayed.models import open_model

        knows = self.plan.source.labels == imagenet()
        sees = has_runtime() and place_of(FINDER).is_file()
        return Witness(
            self.backgrounds,
            functools.partial(open_model, WITNESS, device=self.plan.settings.device) if knows else None,
            functools.partial(open_segmenter, FINDER) if sees else None,
        )

    def _load(self, scene_id: str) -> Scene:
        """A framed scene whose background can be used."""
        if scene_id not in self._framed:
            with self.timed("decode"), self.timed("pool"):
                self._read(scene_id)
        if scene_id in self._unusable:
            raise BadPicture(f"{scene_id}: its mask is all white or inverted")
        return lendable(self._framed[scene_id], self.plan.settings.size)

    def _read(self, scene_id: str) -> tuple[Scene, Scene]:
        """A scene, and the same framed; a few of these are cached because they are soon needed again."""
        scene = self.plan.source[scene_id]
        framed = self._framed[scene_id] = frame(scene, self.plan.settings.frame)
        if is_unusable(scene.mask):
            self._unusable.add(scene_id)
        while len(self._framed) > 4:
            self._framed.popitem(last=False)
        return scene, framed

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """A block whose seconds count for a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += time.perf_counter() - started


def row_reason(error: Exception) -> str:
    """Return an error as the reason in a row of the manifest, in one line."""
    if isinstance(error, UserError):
        return f"{error.given} (allowed: {error.allowed})" if error.allowed else error.given
    return reason_of(error)
