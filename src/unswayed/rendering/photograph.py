"""Editing one photograph with a chain of edits, with a record from which `replay` makes the same bytes.

The record contains the mask itself, because a mask drawn by hand or by a segmenter may not be reproducible; the
photograph and other pictures it uses are recorded by path and SHA-256. A photograph that came from memory is saved
next to the edited picture.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_type_hints

import numpy as np
from PIL import Image

from unswayed.choices import OneLine
from unswayed.edits import Edit, all_edits, edit_from, in_order, make_edit, parse_edit
from unswayed.edits.composition import Composition, Impossible, Pool
from unswayed.edits.edit import as_json, file_parameters
from unswayed.edits.layers import realize
from unswayed.edits.recipes import Item, expression
from unswayed.errors import UserError
from unswayed.files.records import differences, require_fields, versions
from unswayed.files.storage import is_address
from unswayed.files.whole import (
    MOST_PICTURE,
    Json,
    check_regular,
    check_writable,
    read_json,
    sha256,
    write_bytes,
    write_json,
)
from unswayed.masks.checks import ALL, mask_warnings
from unswayed.masks.segment import Box, segmented
from unswayed.models.opening import refuse_untrusted
from unswayed.scene import Scene, frame
from unswayed.sources import SOURCES, Source, open_source
from unswayed.sources.pictures import PictureLike, mask_of, picture_of, read_mask, read_picture, shrunk
from unswayed.sources.source import slug
from unswayed.specs import split_specs

from .layers import (
    Backgrounds,
    Layers,
    NetworkRenderer,
    Refusal,
    Removal,
    Renderer,
    Rendering,
    mask_levels,
    png,
    written_rate,
)
from .removal import lendable
from .settings import RENDERER_OPTIONS, RENDERERS, SPEED, RenderSettings, guide_of, open_renderer, removal_of


@dataclass(frozen=True)
class Request(RenderSettings):
    """All settings of one edited photograph, except the photograph and its mask.

    chain: the edits in order; pool: the source that random backgrounds and occluders come from; label: the class
    index, for an adversarial background; the other settings are those of `RenderSettings`.
    """

    chain: tuple[Edit, ...]
    pool: str = "sample"
    label: int | None = None

    def to_json(self) -> Json:
        return {
            "chain": [as_json(edit) for edit in self.chain],
            "options": {name: value for name in RENDERER_OPTIONS if (value := getattr(self, name)) is not None},
            **{name: getattr(self, name) for name in _PLAIN},
        }

    def open_pool(self) -> Source:
        """The source that random backgrounds and occluders come from."""
        source = open_source(self.pool)
        source.require_masks(", so its objects cannot be removed from their backgrounds")
        return source

    @property
    def used_guide(self) -> str | None:
        """The classifier that an adversarial background attacks, if there is one."""
        return guide_of(self, self.chain, self.open_pool().labels)

    def open_renderer(self) -> Renderer:
        return open_renderer(replace(self, guide=self.used_guide))

    def passes(self, renderer: Renderer) -> int:
        """How many passes of the renderer's network this takes: those of the largest start of its edits."""
        if not isinstance(renderer, NetworkRenderer):
            return 0
        regenerated = any("network" in edit.needs for edit in self.chain)
        return renderer.passes(max((edit.blends_from for edit in self.chain), default=0.0), regenerated)

    @staticmethod
    def from_json(value: Json) -> Request:
        kinds = get_type_hints(Request)
        plain = {name: kinds[name] for name in _PLAIN}
        require_fields(value, {"chain": list[Json], "options": Json, **plain}, "the request")
        options = {name: kinds[name] for name in RENDERER_OPTIONS if name in value["options"]}
        require_fields(value["options"], options, "the options of the request")
        chain = tuple(map(edit_from, value["chain"]))
        others = {**value["options"], **{name: value.get(name) for name in _PLAIN}}
        return Request(chain, **others)


_PLAIN = ("renderer", "removal", "frame", "size", "seed", "pool", "label")
_RECORD = {
    **dict.fromkeys(("request", "image", "rendered_by", "versions"), Json),
    **dict.fromkeys(("id", "mask_png", "picture_sha256"), str),
    "files": dict[str, str],
    "notes": list[str],
}


# The forms of an edit's value: its main parameter, several numbers (a position), or all parameters by name.
EditValue = float | str | Path | Sequence[float] | Mapping[str, float | str]


def chain_of(given: Mapping[str, EditValue | None], more: Sequence[str] = ()) -> tuple[Edit, ...]:
    """Return the edits given by name and value, in the order that they declare, then those written as in a recipe.

    >>> [type(edit).__name__ for edit in chain_of({"position": "0,1", "size": "0.05"}, ["lighting(where=both)=-2"])]
    ['Size', 'Position', 'Lighting']
    """

    def made(name: str, value: EditValue) -> Edit:
        if isinstance(value, Mapping):
            return make_edit(name, **value)
        parts = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        return parse_edit(name, ",".join(map(str, parts)))

    chain = in_order(made(name, value) for name, value in given.items() if value is not None)
    for text in more:
        items = expression(text)
        if len(items) != 1:
            given_text = f"'{text}' contains {len(items)} edits"
            raise UserError(given_text, allowed="one edit, such as lighting(where=both)=-2")
        chain += items[0].chain
    if not chain:
        options = ", ".join(f"--{name}" for name in all_edits())
        raise UserError("no edit is given", allowed=options, run="unswayed edits")
    return chain


@dataclass(frozen=True, eq=False, repr=False)
class EditedPhotograph(OneLine):
    """An edited photograph, which notebooks display.

    image: the edited picture, RGB, `pixels` on a side; mask: of its visible object, mode L, white is the object;
    record: everything it was made from; photograph: the input, if it did not come from a file; placement: where the
    object of the framed photograph is now, a (2, 3) affine map of the unit square, or None in a cropped photograph.
    """

    image: Image.Image
    mask: Image.Image
    record: Json
    photograph: Image.Image | None = None
    placement: np.ndarray | None = None

    @property
    def parameters(self) -> dict[str, dict[str, float | str]]:
        """The parameters of every edit by the edit's name: {"size": {"rate": 0.05, "start": 0.25}}."""
        steps = [dict(step) for step in self.record["request"]["chain"]]
        return {str(step.pop("edit")): step for step in steps}

    @property
    def values(self) -> dict[str, float | str]:
        """The requested and random values by name: a position, an angle, the scene that a background is from."""
        return dict(self.record["values"])

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the photograph, and `warning: …` for what looks wrong about its mask."""
        return tuple(self.record["notes"])

    @property
    def seed(self) -> int:
        return int(self.record["request"]["seed"])

    def save(self, path: str | Path) -> tuple[Path, Path, Path]:
        """Write PATH (a PNG file), its mask and its record for `unswayed edit --replay`, and return their paths; also
        PATH.photograph.png, if the photograph did not come from a file."""
        out = Path(path)
        check_output(out)
        mask, record, photograph = (out.with_suffix(ending) for ending in (".mask.png", ".json", ".photograph.png"))
        for file, picture in {out: self.image, mask: self.mask, photograph: self.photograph}.items():
            if picture is not None:
                write_bytes(file, png(np.asarray(picture)))
        named = {} if self.photograph is None else {"image": _named(photograph)}
        write_json(record, {**self.record, **named})
        return out, mask, record

    def _repr_png_(self) -> bytes:
        return png(np.asarray(self.image))


def exact_mask(mask: np.ndarray) -> np.ndarray:
    """Return a mask in 256 levels, as the record stores it, so that a replay renders from the same mask."""
    return mask_levels(mask).astype(np.float32) / np.float32(255)


def compose(request: Request, scene: Scene, remove: Removal | None = None) -> tuple[Composition, Layers]:
    """Apply the request's edits to the scene and return the input of a renderer; an impossible edit is a UserError.

    remove: the request's removal method, already open.
    """
    kinds = {type(edit).name for edit in request.chain if edit.control is not None}
    if kinds and scene.pixel_rate > ALL:
        raise UserError(
            f"{scene.id}: the mask is all white: the object covers {scene.pixel_rate:.1%} of the picture, and "
            f"{', '.join(sorted(kinds))} needs a background",
            allowed="a mask whose object is white on black",
        )
    source = request.open_pool()

    @functools.cache
    def load(scene_id: str) -> Scene:
        return lendable(frame(source[scene_id], request.frame), request.size)

    pool = Pool(source.ids, load, request.size, source.labels.classes)
    framed = frame(scene, request.frame)
    try:
        composition = Item("edit", request.chain).compose(framed, np.random.default_rng(request.seed), pool)
        backgrounds = Backgrounds(pool, remove or removal_of(request), size=request.size)
        return composition, realize(composition, backgrounds, request.seed)
    except Impossible as impossible:
        raise UserError(f"the edit is not possible for {scene.id}: {impossible}") from None


def render_chain(
    request: Request, scene: Scene, renderer: Renderer, remove: Removal | None = None
) -> tuple[Composition, Layers, Rendering]:
    """Apply the request's edits and render the picture, without a record; UserError if that is not possible."""
    composition, layers = compose(request, scene, remove)
    [answer] = renderer.render([layers])
    if isinstance(answer, Refusal):
        network = answer.reason.startswith("needs a diffusion network")
        raise UserError(answer.reason, run="unswayed edit … --renderer diffusion" if network else None)
    return composition, layers, answer


def edit_photograph(
    request: Request,
    scene: Scene,
    image: Path | None = None,
    renderer: Renderer | None = None,
    remove: Removal | None = None,
) -> EditedPhotograph:
    """Return the edited scene. image: the file it was read from, if any; renderer, remove: open ones to use."""
    mask = exact_mask(scene.mask)
    exact = Scene(scene.id, scene.image, mask, request.label, scene.notes)
    renderer = renderer or request.open_renderer()
    composition, layers, answer = render_chain(request, exact, renderer, remove)
    levels = mask_levels(layers.mask)
    files = [getattr(edit, name) for edit in request.chain for name in file_parameters(edit)]
    record = {
        "request": request.to_json(),
        "id": scene.id,
        "image": None if image is None else _named(image),
        "mask_png": base64.b64encode(png(mask_levels(mask))).decode(),
        "files": {str(path): sha256(path) for path in files if path is not None},
        "rendered_by": {name: value for name, value in renderer.describe().items() if name not in SPEED},
        "values": dict(composition.requested),
        "requested": composition.requested.get("pixel_rate"),
        "pixel_rate": written_rate(levels),
        "measures": dict(answer.measures),
        "notes": list(scene.notes),
        "versions": versions(),
        "picture_sha256": hashlib.sha256(png(answer.image)).hexdigest(),
        "mask_sha256": hashlib.sha256(png(levels)).hexdigest(),
    }
    photograph = Image.fromarray(scene.image) if image is None else None
    placement = None if composition.cropped else composition.placement
    return EditedPhotograph(Image.fromarray(answer.image), Image.fromarray(levels), record, photograph, placement)


def read_scene(image: PictureLike | Scene, mask: PictureLike | Box | None = None) -> Scene:
    """Return the photograph with its mask, with a mask made from a box, or, if None, for an object in the center.

    What looks wrong about the mask is in the scene's notes, as in a build.
    """
    if isinstance(image, Scene):
        scene = image
        if mask is not None:
            raise UserError(f"the scene {image.id} has a mask and another one is given", allowed="one of them")
    else:
        scene_id = slug(Path(image).name) if isinstance(image, str | Path) else "photograph"
        picture = picture_of(image)
        if mask is None or isinstance(mask, tuple):
            scene = segmented(scene_id, picture, None, "grabcut", mask)
        else:
            scene = Scene(scene_id, picture, mask_of(mask))
    notes = dict.fromkeys([*scene.notes, *mask_warnings(scene.mask)])
    return shrunk(replace(scene, notes=tuple(notes)))


def replay(
    record_path: Path, image: Path | None = None, renderer: Renderer | None = None, trust: bool = False
) -> EditedPhotograph:
    """Make the picture of a record again; raises UserError if something that it was made from has changed.

    image: the photograph, if it is no longer at the path of the record; trust: follow the record also where it names
    a guide that can run code, or a download.
    """
    record, request, kept = read_record(record_path)
    photograph = image or Path(record["image"]["path"])
    if not trust:
        _refuse_untrusted(request)
    for path, wanted in {str(photograph): record["image"]["sha256"], **record["files"]}.items():
        if not os.path.isfile(path):
            run = f"unswayed edit IMAGE --replay {record_path} -o OUT.png"
            raise UserError(f"{path[:300]} does not exist", run=run)
        check_regular(path, MOST_PICTURE)
        if os.path.getsize(path) == 0:  # also files of the kernel, some of which never end
            raise UserError(f"{path}, which {record_path} names, is empty", allowed="a picture file")
        if sha256(path) != wanted:
            raise UserError(f"{path} is not the file that {record_path} was made from (its SHA-256 differs)")
    picture = read_picture(photograph)
    whole = shrunk(Scene(record["id"], picture, np.ones(picture.shape[:2], np.float32)))
    try:
        mask = read_mask(kept)
    except UserError as error:
        given = f"{record_path}: the field 'mask_png' cannot be used: {error.given}"
        run = "unswayed edit IMAGE -o OUT.png, for a new record"
        raise UserError(given, allowed="a PNG file in base64", run=run) from None
    scene = Scene(record["id"], whole.image, mask, request.label, tuple(record["notes"]))
    again = edit_photograph(request, scene, photograph, renderer)
    if again.record["picture_sha256"] != record["picture_sha256"]:
        changed = differences(record["rendered_by"], again.record["rendered_by"])
        changed += differences(record["versions"], again.record["versions"], "versions")
        because = "; ".join(changed) or "nothing that the record contains"
        raise UserError(f"the replay of {record_path} is a different picture; what differs: {because}")
    return again


def read_record(record_path: Path) -> tuple[Json, Request, bytes]:
    """The record of an edit in a file, the request in it, and its mask as a PNG."""
    record = read_json(record_path)
    try:
        require_fields(record, _RECORD, "the record")
        require_fields(record["image"], {"path": str, "sha256": str}, "the image")
        request = Request.from_json(record["request"])
        kept = base64.b64decode(record["mask_png"])
    except (TypeError, ValueError) as error:
        raise UserError(f"{record_path} is not a record of an edit: {error!r}") from None
    except UserError as error:
        given = f"{record_path} is not a record of an edit: {error.given}"
        raise UserError(given, allowed=error.allowed, run=error.run) from None
    return record, request, kept


def _refuse_untrusted(request: Request) -> None:
    """Raise UserError if the record's guide could run code or its pool could use the network."""
    if request.guide is not None and ":" in request.guide:
        for name in split_specs(request.guide):
            refuse_untrusted(name)
    name, _, part = RENDERERS.find(request.renderer)
    if not RENDERERS.is_own(name) and (part.runs_code or part.uses_network):
        raise UserError(
            f"the record names the renderer '{request.renderer[:200]}', which could run code or use the network",
            allowed=", ".join(filter(RENDERERS.is_own, RENDERERS)),
            run="the same command with --trust, if you trust the record",
        )
    kind, _, name = request.pool.partition(":")
    reaches_out = is_address(name) or any(f"{option}=" in name for option in ("download", "segment"))
    if not SOURCES.is_own(kind) or reaches_out:
        raise UserError(
            f"the record names the source '{request.pool[:200]}', which could run code or use the network",
            allowed=f"{', '.join(filter(SOURCES.is_own, SOURCES))}, of this computer and with masks",
            run="the same command with --trust, if you trust the record",
        )


def check_output(out: Path) -> None:
    """Refuse an OUT.png that could not be written, before the work starts."""
    if out.suffix.lower() != ".png":
        raise UserError(f"the output is {out}", allowed="a file that ends in .png, which is lossless")
    check_writable(out)


def _named(image: Path) -> dict[str, str]:
    return {"path": str(image.resolve()), "sha256": sha256(image)}
