"""Background: what is behind the object is regenerated, made simpler or more complex, adversarial or replaced; and the
object redrawn from words.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from unswayed.errors import UserError

from .composition import Composition, Drawing, Guidance, Impossible, Picture, Pool, WithoutObject, Words
from .edit import Choice, Edit, Level, Need, Range, Text, blend_start, check, parameter


def leopard(size: int, rng: np.random.Generator) -> np.ndarray:
    """Return dark broken rings with brown centers on a light brown ground, like a leopard's coat."""
    import cv2

    picture = np.empty((size, size, 3), np.uint8)
    picture[:] = (214, 164, 92)
    grain = cv2.resize(rng.normal(0, 7, (size // 4, size // 4)).astype(np.float32), (size, size))
    picture = np.clip(picture + grain[..., None], 0, 255).astype(np.uint8)
    step = size / 9
    for row in range(-1, 11):
        for column in range(-1, 11):
            x = (column + 0.5 * (row % 2) + rng.uniform(-0.18, 0.18)) * step
            y = (row * 0.9 + rng.uniform(-0.18, 0.18)) * step
            radius = step * rng.uniform(0.24, 0.36)
            turn = rng.uniform(0, 360)
            brown, dark = (168, 108, 48), (44, 30, 20)
            _ellipse(picture, (x, y), (radius * 0.8, radius * 0.65), turn, brown)
            blots = int(rng.integers(3, 5))
            for blot in range(blots):
                at = turn + 360 * blot / blots + rng.uniform(-12, 12)
                middle = x + radius * np.cos(np.radians(at)), y + radius * np.sin(np.radians(at))
                reach = radius * rng.uniform(0.5, 0.72)
                _ellipse(picture, middle, (reach * 0.5, reach), at, dark)
    return picture


def _ellipse(
    picture: np.ndarray, middle: tuple[float, ...], axes: tuple[float, ...], turn: float, color: tuple[int, ...]
) -> None:
    import cv2

    # The last argument says that coordinates are in sixteenths of a pixel.
    at, reach = ([int(value * 16) for value in pair] for pair in (middle, axes))
    cv2.ellipse(picture, at, reach, turn, 0, 360, color, -1, cv2.LINE_AA, 4)


def checker(size: int, rng: np.random.Generator) -> np.ndarray:
    """Return a checkerboard of eight by eight fields in two tones of one hue."""
    field = np.add.outer(np.arange(size) * 8 // size, np.arange(size) * 8 // size) % 2
    dark, light = _two_tones(rng)
    return np.where(field[..., None] == 0, light, dark).astype(np.uint8)


def stripes(size: int, rng: np.random.Generator) -> np.ndarray:
    """Return ten straight stripes at a random angle in two tones of one hue."""
    tilt = rng.uniform(0, np.pi)
    y, x = np.mgrid[:size, :size] / size
    wave = np.sin(2 * np.pi * 10 * (x * np.cos(tilt) + y * np.sin(tilt)))
    share = np.clip(wave * size / 25 + 0.5, 0, 1)[..., None]
    dark, light = _two_tones(rng)
    return np.round(dark * share + light * (1 - share)).astype(np.uint8)


def eight_diagrams(size: int, rng: np.random.Generator) -> np.ndarray:
    """Return the eight trigrams in a ring around the yin-yang symbol, dark on light."""
    import cv2

    side = size * 4
    dark, light = _two_tones(rng)
    picture = np.empty((side, side, 3), np.uint8)
    picture[:] = light
    turn = rng.uniform(0, 45)
    middle = side / 2
    for eighth, trigram in enumerate((7, 6, 2, 4, 0, 1, 5, 3)):
        angle = np.radians(eighth * 45 + turn)
        outward = np.array([np.sin(angle), -np.cos(angle)])
        along = np.array([np.cos(angle), np.sin(angle)])
        for line in range(3):
            at = np.array([middle, middle]) + outward * side * (0.30 + 0.065 * line)
            whole = trigram >> line & 1
            for low, high in [(-1.0, 1.0)] if whole else [(-1.0, -0.18), (0.18, 1.0)]:
                reach, thick = side * 0.105, side * 0.021
                rectangle = (low, -1.0), (high, -1.0), (high, 1.0), (low, 1.0)
                corners = [at + along * reach * s + outward * thick * t for s, t in rectangle]
                cv2.fillPoly(picture, [np.round(corners).astype(np.int32)], dark.tolist(), cv2.LINE_AA)
    y, x = (np.mgrid[:side, :side] + 0.5 - middle) / (side * 0.22)
    angle = np.radians(turn)
    x, y = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    upper, lower = np.hypot(x, y + 0.5), np.hypot(x, y - 0.5)
    shade = ((x > 0) | (upper < 0.5)) & (lower >= 0.5)
    shade = (shade & (upper >= 0.14)) | (lower < 0.14)
    picture[(np.hypot(x, y) <= 1.04)] = dark
    picture[(np.hypot(x, y) <= 1) & ~shade] = light
    return cv2.resize(picture, (size, size), interpolation=cv2.INTER_AREA)


def _two_tones(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return a dark and a light color of one random hue."""
    import cv2

    hue = rng.uniform(0, 360)
    tones = np.array([[[hue, 0.45, 0.22], [hue, 0.14, 0.92]]], np.float32)
    dark, light = np.round(cv2.cvtColor(tones, cv2.COLOR_HSV2RGB)[0] * 255)
    return dark, light


TEXTURES: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "leopard": leopard,
    "checker": checker,
    "stripes": stripes,
    "eight-diagrams": eight_diagrams,
}
# kind -> (meaning, what it does with a diffusion network)
GENERATED = {
    "inversion": (
        "control: background noised and denoised without guidance",
        "regenerates the background with a diffusion network",
    ),
    "simple": ("background made smoother", "guides a diffusion network"),
    "complex": ("background made busier", "guides a diffusion network"),
    "adversarial": (
        "background pushed against a classifier, the guide, or several",
        "guides a diffusion network against a classifier",
    ),
}
KINDS = {
    **{kind: meaning for kind, (meaning, _) in GENERATED.items()},
    "words": "background drawn from a description in words",
    "random": "object on the background of another photograph",
    "picture": "object on the central square of a picture file",
    **{name: f"object on a pattern drawn by code, {name}" for name in TEXTURES},
}
NEEDS_WORDS = "words are drawn by a pipeline that reads them (--renderer diffusers:NAME_OR_FOLDER)"
DESCRIBED = "a description in words, in which {class} stands for the photograph's class"
STRENGTHS = {"simple": -20.0, "complex": 20.0, "adversarial": 20.0}


@dataclass(frozen=True)
class Background(Edit):
    """The object unchanged, in front of another background; `KINDS` says which there are."""

    name = "background"
    axis = "strength"
    axis_label = "guidance strength λ, no unit"
    description = "what lies behind the object"
    control = "inversion"
    order = 10
    factor = "background"

    kind: str = parameter("random", Choice(tuple(KINDS), KINDS), "which background")
    strength: float | None = parameter(
        None,
        Range(-200.0, 200.0, step=1.0),
        "λ of the guidance: below 0 simple (-20), above 0 complex (20) or adversarial (20)",
        first=20.0,
        shown=Range(1.0, 200.0, step=1.0),
    )
    picture: str | None = parameter(None, Text("the path of a picture file", file=True), "the file of kind picture")
    prompt: str | None = parameter(None, Text(DESCRIBED, words=True), "the description of kind words")
    negative: str | None = parameter(None, Text("a description in words", words=True), "what kind words must not show")
    band: str = parameter("all", Choice(("all", "high")), "frequencies that simple and complex act on")
    start: float | None = blend_start(None, " (0.5; 0.25 for pictures and patterns, 1 for words)")

    def __post_init__(self) -> None:
        if self.kind == "inversion" and self.strength:
            # A bare number is a strength, whose sign determines the kind.
            object.__setattr__(self, "kind", "simple" if float(self.strength) < 0 else "complex")
        if self.strength is None and self.kind in STRENGTHS:
            object.__setattr__(self, "strength", STRENGTHS[self.kind])
        if self.start is None:
            start = 1.0 if self.kind == "words" else 0.5 if self.kind in (*GENERATED, "random") else 0.25
            object.__setattr__(self, "start", start)
        check(self)
        given = f"background {self.kind}"
        if self.kind not in STRENGTHS and self.strength:
            given = f"{given} takes no strength, but {self.strength:g} is given"
            raise UserError(given, allowed=", ".join(STRENGTHS))
        if self.kind in STRENGTHS and (self.strength or 0) * STRENGTHS[self.kind] <= 0:
            sign = "below" if STRENGTHS[self.kind] < 0 else "above"
            raise UserError(f"{given} has the strength {self.strength:g}", allowed=f"a strength {sign} 0")
        if (self.kind == "picture") != (self.picture is not None):
            raise UserError(f"{given} with the picture {self.picture}", allowed="kind picture and a file")
        if (self.kind == "words") != bool((self.prompt or "").strip()) or (self.negative and self.kind != "words"):
            raise UserError(f"{given} with the prompt {self.prompt!r}", allowed="kind words and a description")

    @classmethod
    def parse(cls, text: str, **others: Any) -> Self:
        """Return the edit from a kind, a strength (below 0 simple, above 0 complex, 0 inversion), a picture file, or a
        description of at least two words."""
        if text in KINDS:
            return cls(kind=text, **others)
        with contextlib.suppress(ValueError):
            return cls(**{"kind": "inversion", "strength": float(text), **others})
        if not Path(text).is_file() and " " in text and not Path(text).suffix[1:].isalnum():
            return cls(kind="words", prompt=text, **others)
        if not Path(text).is_file():
            raise UserError(f"there is no background '{text}'", allowed=cls.usage(), run="unswayed edits")
        return cls(kind="picture", picture=text, **others)

    @classmethod
    def usage(cls) -> str:
        return f"{', '.join(KINDS)}, a strength, a picture file, or a description of at least two words"

    @classmethod
    def from_controls(cls, values: Mapping[str, Any]) -> Self:
        """Return the edit; the kind sets the sign of the strength, and only some kinds use a strength or a file."""
        kind = str(values.get("kind", "random"))
        guided, words = tuple(STRENGTHS), ("words",)
        used = {"strength": guided, "band": guided, "prompt": words, "negative": words, "picture": ("picture",)}
        given = {name: value for name, value in values.items() if kind in used.get(name, (kind,))}
        if kind in STRENGTHS:
            given["strength"] = math.copysign(float(given.get("strength") or STRENGTHS[kind]), STRENGTHS[kind])
        if kind == "words" and not (given.get("prompt") or "").strip():
            raise UserError("the background 'words' has no description yet", allowed=DESCRIBED)
        if not (given.get("negative") or "").strip():
            given.pop("negative", None)
        if kind == "picture" and given.get("picture") is None:
            allowed = "a picture file, uploaded below the controls"
            raise UserError("the background 'picture' has no file yet", allowed=allowed)
        return cls(**given)

    @property
    def random(self) -> bool:
        return self.kind == "random" or self.kind in TEXTURES

    @property
    def borrows(self) -> bool:
        return self.kind == "random"

    @property
    def needs(self) -> tuple[Need, ...]:
        more: dict[str, tuple[Need, ...]]
        more = {"adversarial": ("network", "guide"), "words": ("network", "words"), "random": ("removal",)}
        return more.get(self.kind, ("network",) if self.kind in GENERATED else ())

    @property
    def level(self) -> Level:
        """Return the strength, or the words or the kind if it has none."""
        if self.kind in ("inversion", "simple", "complex"):
            return float(self.strength or 0.0)
        return self.prompt or self.kind

    def describe(self) -> str:
        if self.prompt is not None:
            return f"{KINDS[self.kind]}: “{self.prompt}”"
        strength = f" (λ = {self.strength:+g})".replace("-", "−") if self.kind in STRENGTHS else ""
        return f"{KINDS[self.kind]}{strength}"

    def words(self, chained: bool = False) -> str:
        if self.prompt is not None:
            return f"background “{self.prompt}”"
        return "background redrawn" if self.kind == "inversion" else f"{self.kind} background"

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        changed = replace(
            composition,
            start=max(composition.start, self.start or 0.0),
            requested={**composition.requested, "background": self.kind},
        )
        if self.prompt is not None:
            told = changed.told(Words(self.prompt, self.negative))
            requested = {**changed.requested, "words": told.words.prompt if told.words else self.prompt}
            return replace(told, needs_network=NEEDS_WORDS, requested=requested)
        if self.kind in GENERATED:
            if self.kind == "adversarial" and composition.label is None:
                raise Impossible("background adversarial needs the true label, but this scene has none")
            kind = "adversarial" if self.kind == "adversarial" else "complexity"
            guidance = None if self.kind == "inversion" else Guidance(kind, float(self.strength or 0.0), self.band)
            reason = f"background {self.kind} {GENERATED[self.kind][1]}"
            return replace(changed, guidance=guidance, needs_network=reason)
        if self.kind == "random":
            other = pool.other(composition.scene_id, rng)
            if other is None:
                raise Impossible("background random needs another scene in the source, but there is none")
            return replace(changed, background=WithoutObject(other), requested={**changed.requested, "from": other})
        if self.kind == "picture":
            return replace(changed, background=Picture(str(self.picture)))
        return replace(changed, background=Drawing(TEXTURES[self.kind], int(rng.integers(2**31))))


@dataclass(frozen=True)
class ObjectWords(Edit):
    """The object redrawn in its place, such as "a {class} made of wood"; the background stays as it is.

    What was a dog may be one no longer: a wrong answer of a model is not always its mistake. No named recipe has it.
    Without words the object is redrawn from a prompt that describes the photograph as it is, which is the control.
    """

    name = "object-words"
    axis = "prompt"
    axis_label = "the object in words"
    description = "material, color or age of the object, redrawn from words; the label may change"
    control = "object-inversion"
    order = 90

    prompt: str | None = parameter(None, Text(DESCRIBED, words=True), "what the object is redrawn as")
    negative: str | None = parameter(
        None, Text("a description in words", words=True), "what the object must not look like"
    )
    start: float | None = blend_start(1.0)

    @property
    def needs(self) -> tuple[Need, ...]:
        return ("network", "words")

    @property
    def level(self) -> str:
        return self.prompt or "as it is"

    def describe(self) -> str:
        return f"object redrawn from words: “{self.level}”; its label may change"

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        told = composition.told(Words(self.prompt or "", self.negative or None, where="object"))
        requested = {
            **composition.requested,
            "object_words": told.words and told.words.prompt,
            "label_may_change": True,
        }
        return replace(told, start=1.0, needs_network=NEEDS_WORDS, requested=requested)
