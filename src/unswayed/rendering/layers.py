"""What a renderer takes and answers, and the renderer without a network: the object over its background."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import cv2
import numpy as np

from unswayed.edits.composition import Composition, Original, PictureReference, Pool, Removal, WithoutObject
from unswayed.edits.geometry import resized
from unswayed.edits.layers import Layers, composite, drawn_picture
from unswayed.files.whole import Json, write_bytes

# What the embedded network makes of the sample, so that nobody waits for it; `make fills` writes these files.
EMBEDDED = Path(str(resources.files("unswayed.data").joinpath("fills")))
Key = TypeVar("Key")


@dataclass(frozen=True, eq=False)
class Rendering:
    """A picture (S, S, 3) uint8, and the renderer's measures of it for the manifest.

    alpha: (S, S) float32, what the object was blended with, where that is not the alpha of its layers; generated:
    whether a network made the background, so that it need not be the one of the layers.
    """

    image: np.ndarray
    measures: Json = field(default_factory=dict)
    alpha: np.ndarray | None = None
    generated: bool = False


@dataclass(frozen=True)
class Refusal:
    """A picture that this renderer does not make (skipped) or could not make (failed), with the reason."""

    reason: str
    status: str = "skipped"


class Renderer(Protocol):
    """Renders a batch of mixed scenes, edits and strengths; returns one answer per picture, in order."""

    def render(self, batch: Sequence[Layers]) -> list[Rendering | Refusal]: ...

    def describe(self) -> Json:
        """The entry in benchmark.json: name, settings, hash of the weights, device type."""
        ...


@runtime_checkable
class NetworkRenderer(Renderer, Protocol):
    """A renderer that says how many passes of its network a picture takes, and when one is done.

    stream: the answers to the pictures that `take` returns with their keys, until it returns None and none is left.
    """

    def passes(self, start: float, regenerated: bool = False) -> int: ...

    def stream(
        self, take: Callable[[], tuple[Key, Layers] | None], on_passes: Callable[[int], None] | None = None
    ) -> Iterator[tuple[Key, Rendering | Refusal]]: ...

    def render(
        self, batch: Sequence[Layers], on_passes: Callable[[int], None] | None = None
    ) -> list[Rendering | Refusal]:
        """One answer per picture; on_passes: called after every pass with the number of pictures in it."""
        # The longest first, so that few slots are empty at the end.
        order = sorted(range(len(batch)), key=lambda i: -self.passes(*batch[i].passes_by))
        waiting = ((i, batch[i]) for i in order)
        answers = dict(self.stream(lambda: next(waiting, None), on_passes))
        return [answers[i] for i in range(len(batch))]


@dataclass(frozen=True)
class CountedRenderer:
    """A renderer with a network that calls `on_passes` after every pass, with the number of pictures in it."""

    renderer: NetworkRenderer
    on_passes: Callable[[int], None]

    def render(self, batch: Sequence[Layers]) -> list[Rendering | Refusal]:
        return self.renderer.render(batch, self.on_passes)

    def passes(self, start: float, regenerated: bool = False) -> int:
        return self.renderer.passes(start, regenerated)

    def describe(self) -> Json:
        return self.renderer.describe()


@dataclass(frozen=True)
class Paste:
    """Alpha compositing; `feather` is the width in pixels over which the object's rim fades, inwards.

    An edit that needs a network is refused with a reason, never imitated.
    """

    feather: float = 1.0

    def render(self, batch: Sequence[Layers]) -> list[Rendering | Refusal]:
        answers: list[Rendering | Refusal] = []
        for layers in batch:
            if layers.needs_network is not None:
                answers.append(no_network(layers.needs_network))
            else:
                alpha = feathered(layers.alpha, self.feather)
                answers.append(Rendering(composite(layers.object, alpha, layers.background), alpha=alpha))
        return answers

    def describe(self) -> Json:
        return {"renderer": "paste", "feather": self.feather, "device": "cpu"}


def forecast(renderer: Renderer, passes: int) -> str | None:
    """How long so many passes of a network will take where there is no GPU; None if the renderer cannot tell.

    A renderer can tell if it has a method `seconds`, from a number of passes to seconds.
    """
    seconds: Callable[[int], float] | None = getattr(renderer, "seconds", None)
    if seconds is None or not passes or renderer.describe().get("device") != "cpu":
        return None
    minutes, rest = divmod(round(seconds(passes)), 60)
    hours, minutes = divmod(minutes, 60)
    words = f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"there is no GPU: {passes} steps of the pipeline will take about {words}"


def no_network(needed: str) -> Refusal:
    """The answer for a picture that cannot be pasted; needed: why, perhaps with the renderer that can draw it."""
    return Refusal(needed if "--renderer" in needed else f"needs a diffusion network: {needed}")


def feathered(alpha: np.ndarray, feather: float) -> np.ndarray:
    """`alpha` (S, S) faded inwards over about `feather` pixels; never above the input, so no old rim shows."""
    return alpha if feather <= 0 else np.minimum(alpha, cv2.GaussianBlur(alpha, (0, 0), feather / 2))


def png(picture: np.ndarray) -> bytes:
    """Return a picture (H, W, 3) uint8 RGB or a mask (H, W) uint8 as PNG; the same pixels give the same bytes."""
    # Run lengths of filtered pixels: half the time of level 1 with every filter tried, and files that are 6 % larger;
    # masks are smaller without a filter.
    swapped, kind = picture, cv2.IMWRITE_PNG_FILTER_NONE
    if picture.ndim == 3:
        swapped, kind = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), cv2.IMWRITE_PNG_FILTER_AVG
    strategy = [cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE, cv2.IMWRITE_PNG_FILTER, kind]
    done, encoded = cv2.imencode(".png", swapped, [cv2.IMWRITE_PNG_COMPRESSION, 1, *strategy])
    assert done
    return encoded.tobytes()


def mask_levels(mask: np.ndarray) -> np.ndarray:
    """Return a mask in [0, 1] as it is written: (S, S) uint8."""
    return np.rint(np.clip(mask, 0, 1) * 255).astype(np.uint8)


def written_rate(levels: np.ndarray) -> float:
    """Return the pixel rate of a mask as written: the share above one half."""
    return float((levels > 127).mean())


class Backgrounds:
    """Resolves references to (size, size, 3) uint8.

    pool: provides other scenes; remove: see rendering/removal; cache: a folder that keeps removals as PNG, so that
    the workers of one build share them; held: the number of pictures kept in memory.
    """

    def __init__(
        self, pool: Pool, remove: Removal, size: int = 256, cache: str | Path | None = None, held: int = 32
    ) -> None:
        self.pool, self.remove, self.size, self.held = pool, remove, size, held
        self.cache = Path(cache) if cache is not None else None
        self._pictures: OrderedDict[PictureReference, np.ndarray] = OrderedDict()

    def resolve(self, reference: PictureReference, composition: Composition) -> np.ndarray:
        """The picture that a reference of this composition means; callers must not write to it."""
        if isinstance(reference, Original):
            return resized(composition.image, self.size)
        if reference not in self._pictures:
            if isinstance(reference, WithoutObject):
                self._pictures[reference] = self._removed(reference, composition)
            else:
                self._pictures[reference] = drawn_picture(reference, self.size)
            if len(self._pictures) > self.held:
                self._pictures.popitem(last=False)
        self._pictures.move_to_end(reference)
        return self._pictures[reference]

    def _removed(self, reference: WithoutObject, composition: Composition) -> np.ndarray:
        own = reference.scene_id == composition.scene_id
        scene = composition if own else self.pool.load(reference.scene_id)
        image, mask = resized(scene.image, self.size), resized(scene.mask, self.size)
        # The scene's own seed, so that a removal does not depend on the edit or worker that requests it first.
        name = getattr(self.remove, "name", type(self.remove).__name__)
        drawn_by = f"{reference.scene_id}#{reference.fill}" if reference.fill else reference.scene_id
        return removed_object(image, mask, drawn_by, scene.label, self.remove, self.cache, str(name))


def removed_object(
    image: np.ndarray,
    mask: np.ndarray,
    drawn_by: str,
    label: int | None,
    remove: Removal,
    cache: Path | None,
    name: str = "",
) -> np.ndarray:
    """The image without its object; kept as PNG in the folder `cache`, if it is given, and for the sample in EMBEDDED.

    drawn_by: the scene, and which of its fills, from which the seed follows. name: of the removal method, so that
    several may share a cache.
    """
    of_fill = drawn_by.partition("#")[2].encode()
    content = hashlib.blake2b(image.tobytes() + mask.tobytes() + name.encode() + of_fill, digest_size=16).hexdigest()
    path = None if cache is None else cache / f"{content}.png"
    for kept_in in filter(None, (path, EMBEDDED / f"{content}.png")):
        if kept_in.is_file() and (kept := _kept(kept_in, image)) is not None:
            return kept
    seed = int.from_bytes(hashlib.blake2b(drawn_by.encode(), digest_size=8).digest(), "little") >> 1
    removed = remove(image, mask, seed, label)
    if path is not None:
        write_bytes(path, cv2.imencode(".png", removed[..., ::-1])[1].tobytes())
    return removed


def _kept(path: Path, image: np.ndarray) -> np.ndarray | None:
    """The picture in a file, with the image where the file is transparent; None if it is no picture of this size."""
    kept = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    if kept is None or kept.ndim != 3 or kept.shape[:2] != image.shape[:2]:
        return None
    colors = kept[..., 2::-1]
    return np.ascontiguousarray(colors if kept.shape[2] == 3 else np.where(kept[..., 3:] > 0, colors, image))
