"""One photograph under a chain of edits, with a record beside it that replays to the same bytes.

The record holds the mask itself, because a mask drawn by hand or found by a segmenter is not to be had again; the
photograph and the pictures that it borrows are named by path and SHA-256.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from unfazed.choices import stored_frame
from unfazed.edits import make_edit, parse_edit
from unfazed.edits.composition import Composition, Edit, Impossible, Pool
from unfazed.edits.expressions import expression
from unfazed.edits.items import ORIGINAL, Item, Recipe
from unfazed.edits.parameters import as_json
from unfazed.errors import UserError
from unfazed.files import check_writable, read_json, sha256, write_json
from unfazed.rendering.backgrounds import Backgrounds
from unfazed.rendering.layers import Layers, Refused, Renderer
from unfazed.rendering.realize import realise
from unfazed.rendering.removal.methods import lendable
from unfazed.rendering.settings import RENDERER_OPTIONS, RenderSettings
from unfazed.scene import Scene, frame
from unfazed.sources import open_source
from unfazed.sources.pictures import read_mask, read_picture, shrunk
from unfazed.versions import versions

from .card import differences
from .commit_files import settle, write_beside
from .encoding import mask_levels, png, written_rate
from .plan import Plan
from .settings import BuildSettings


@dataclass(frozen=True)
class Request(RenderSettings):
    """All that decides about one edited photograph, but for the photograph and its mask.

    chain: the edits in order; pool: the source that random backgrounds and occluders come from; label: the class
    index, for an adversarial background; `RenderSettings` says the rest.
    """

    chain: tuple[Edit, ...]
    pool: str = "sample"
    label: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "chain": [as_json(edit) for edit in self.chain],
            "options": {name: value for name in RENDERER_OPTIONS if (value := getattr(self, name)) is not None},
            **{name: getattr(self, name) for name in _PLAIN},
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Request:
        chain = []
        for step in value["chain"]:
            given = dict(step)
            chain.append(make_edit(str(given.pop("edit", "")), **given))
        others = {**value["options"], **{name: value[name] for name in _PLAIN}}
        return Request(tuple(chain), **{**others, "frame": stored_frame(value["frame"])})


_PLAIN = ("renderer", "removal", "frame", "size", "seed", "pool", "label")


# The order in which edits given by name are chained: size, direction, position as in the paper; what hides or
# recolours the object comes once it is in its place.
ORDER = ("background", "size", "direction", "position", "occlusion", "lighting", "blur", "colour")


def chain_of(given: Mapping[str, str | None], more: Sequence[str] = ()) -> tuple[Edit, ...]:
    """The chain of edits given by name and value, then those written as in a recipe.

    >>> [type(edit).__name__ for edit in chain_of({"position": "0,1", "size": "0.05"}, ["lighting(where=both)=-2"])]
    ['Size', 'Position', 'Lighting']
    """
    chain: list[Edit] = [parse_edit(name, str(given[name])) for name in ORDER if given.get(name) is not None]
    for text in more:
        items = expression(text)
        if len(items) != 1:
            raise UserError(f"'{text}' is {len(items)} edits", allowed="one, such as lighting(where=both)=-2")
        chain += items[0].chain
    if not chain:
        raise UserError("no edit is given", allowed=", ".join(f"--{name}" for name in ORDER), run="unfazed edits")
    return tuple(chain)


@dataclass(frozen=True)
class Edited:
    """The edited picture (S, S, 3) uint8, the mask of its visible object (S, S) uint8, and the record."""

    image: np.ndarray
    mask: np.ndarray
    record: dict[str, Any]


def exact_mask(mask: np.ndarray) -> np.ndarray:
    """A mask in 256 levels, as the record keeps it: what is rendered from it now is what a replay renders."""
    return mask_levels(mask).astype(np.float32) / np.float32(255)


def compose(request: Request, scene: Scene) -> tuple[Composition, Layers]:
    """The scene under the request's chain, ready for any renderer; an impossible edit is a UserError."""
    plan = request_plan(request)
    others: dict[str, Scene] = {}

    def load(scene_id: str) -> Scene:
        if scene_id not in others:
            others[scene_id] = lendable(frame(plan.source[scene_id], request.frame), request.size)
        return others[scene_id]

    pool = Pool(plan.source.ids, load, request.size)
    framed = frame(scene, request.frame)
    try:
        composition = Item("edit", request.chain).compose(framed, np.random.default_rng(request.seed), pool)
        backgrounds = Backgrounds(pool, plan.open_removal(), size=request.size)
        return composition, realise(composition, backgrounds, request.seed)
    except Impossible as impossible:
        raise UserError(f"this cannot be made of {scene.id}: {impossible}") from None


def request_plan(request: Request) -> Plan:
    """The request as a plan of one picture, which checks its values and opens what it names."""
    return Plan(
        root=Path(),
        source=open_source(request.pool),
        recipe=Recipe("edit", (ORIGINAL, Item("edit", request.chain))),
        settings=BuildSettings(**{field.name: getattr(request, field.name) for field in fields(RenderSettings)}),
    )


def edit_photograph(request: Request, scene: Scene, image: Path, renderer: Renderer | None = None) -> Edited:
    """The scene, read from the file `image`, under the request; `renderer` spares opening the one it names."""
    mask = exact_mask(scene.mask)
    exact = Scene(scene.id, scene.image, mask, request.label, scene.notes)
    composition, layers = compose(request, exact)
    renderer = renderer or request_plan(request).open_renderer()
    [answer] = renderer.render([layers])
    if isinstance(answer, Refused):
        raise UserError(
            answer.reason, run="unfazed edit … --renderer diffusion" if request.renderer == "paste" else None
        )
    levels = mask_levels(layers.mask)
    rate = composition.requested.get("pixel_rate")
    record = {
        "request": request.to_json(),
        "id": scene.id,
        "image": {"path": str(image.resolve()), "sha256": sha256(image)},
        "mask_png": base64.b64encode(png(mask_levels(mask))).decode(),
        "files": {path: sha256(path) for path in _borrowed(request.chain)},
        "rendered_by": {name: value for name, value in renderer.describe().items() if name != "batch_size"},
        "values": dict(composition.requested),
        "requested": rate,
        "pixel_rate": written_rate(levels),
        "measures": dict(answer.measures),
        "notes": list(scene.notes),
        "versions": versions(),
        "picture_sha256": hashlib.sha256(png(answer.image)).hexdigest(),
        "mask_sha256": hashlib.sha256(png(levels)).hexdigest(),
    }
    return Edited(answer.image, levels, record)


def read_scene(image: Path, mask: Path | None = None, box: tuple[int, int, int, int] | None = None) -> Scene:
    """The photograph in a file with the mask of a file, or one made from a box or the centre prior."""
    if mask is not None and box is not None:
        raise UserError(f"both the mask {mask} and a box are given", allowed="one of them")
    from unfazed.sources.segment import segmented
    from unfazed.sources.slugs import slug

    picture = read_picture(image)
    if mask is not None:
        return shrunk(Scene(slug(image.name), picture, read_mask(mask)))
    return shrunk(segmented(slug(image.name), picture, None, "grabcut", box))


def replay(record_path: Path, image: Path | None = None, renderer: Renderer | None = None) -> Edited:
    """The picture of a record, made again; raises UserError where something that it was made from has changed.

    image: the photograph, where it no longer lies at the path of the record.
    """
    record = read_json(record_path)
    try:
        request = Request.from_json(record["request"])
        expected, kept = record["image"]["sha256"], base64.b64decode(record["mask_png"])
        photograph = image or Path(record["image"]["path"])
        borrowed, scene_id, notes = dict(record["files"]), str(record["id"]), tuple(record["notes"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{record_path} is no record of an edit: {error!r}") from None
    for path, wanted in {str(photograph): expected, **borrowed}.items():
        if not Path(path).is_file():
            raise UserError(f"{path} is not there", run=f"unfazed edit IMAGE --replay {record_path} -o OUT.png")
        if sha256(path) != wanted:
            raise UserError(f"{path} is not the file that {record_path} was made from (its SHA-256 differs)")
    picture = read_picture(photograph)
    whole = shrunk(Scene(scene_id, picture, np.ones(picture.shape[:2], np.float32)))
    scene = Scene(scene_id, whole.image, read_mask(kept), request.label, notes)
    again = edit_photograph(request, scene, photograph, renderer)
    if again.record["picture_sha256"] != record["picture_sha256"]:
        changed = differences(record["rendered_by"], again.record["rendered_by"])
        changed += differences(record["versions"], again.record["versions"], "versions")
        because = "; ".join(changed) or "nothing that the record knows of"
        raise UserError(f"the replay of {record_path} is another picture; there and now differ: {because}")
    return again


def check_output(out: Path) -> None:
    """Refuse, before the work is done, an OUT.png that could not be written."""
    if out.suffix.lower() != ".png":
        raise UserError(f"the output is {out}", allowed="a file that ends in .png: nothing is lost in it")
    check_writable(out)
    if out.is_dir():
        raise UserError(f"the output {out} is a folder", allowed="a file")


def write_edited(edited: Edited, out: Path) -> tuple[Path, Path, Path]:
    """OUT.png, OUT.mask.png and OUT.json, the record."""
    check_output(out)
    mask, record = out.with_suffix(".mask.png"), out.with_suffix(".json")
    settle([write_beside(out, png(edited.image)), write_beside(mask, png(edited.mask))])
    write_json(record, edited.record)
    return out, mask, record


def _borrowed(chain: Sequence[Edit]) -> list[str]:
    """The picture files that a chain uses as backgrounds."""
    return [str(step["picture"]) for step in map(as_json, chain) if step.get("picture")]
