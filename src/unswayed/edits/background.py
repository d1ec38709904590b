"""Background: what is behind the object is regenerated, made simpler or more complex, adversarial or replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from unswayed.errors import UserError

from .composition import Composition, Drawn, Guidance, Impossible, Picture, Pool, Removed
from .edit import Control, Edit, Level, Need, blend_start
from .parameters import Choice, Range, Text, check, parameter
from .textures import TEXTURES

GENERATED = {
    "inversion": "control: background noised and denoised without guidance",
    "simple": "background made smoother",
    "complex": "background made busier",
    "adversarial": "background pushed against one classifier, the guide",
}
KINDS = {
    **GENERATED,
    "random": "object on the background of another photograph",
    "picture": "object on the central square of a picture file",
    **{name: f"object on a pattern drawn by code, {name}" for name in TEXTURES},
}
STRENGTHS = {"simple": -20.0, "complex": 20.0, "adversarial": 20.0}


@dataclass(frozen=True)
class Background(Edit):
    """The object unchanged, in front of another background.

    inversion regenerates the photograph's own background (the control); simple and complex make it smoother or more
    complex; adversarial makes it attack a classifier; random uses another scene's background, picture a file; the
    other kinds are patterns drawn by code.
    """

    name: ClassVar[str] = "background"
    axis: ClassVar[str] = "strength"
    axis_label: ClassVar[str] = "guidance strength λ, no unit"
    description: ClassVar[str] = "what lies behind the object"
    control: ClassVar[Control | None] = "inversion"
    order: ClassVar[int] = 10
    factor: ClassVar[str | None] = "background"

    kind: str = parameter("random", Choice(tuple(KINDS), KINDS), "which background")
    strength: float | None = parameter(
        None,
        Range(-200.0, 200.0, step=1.0),
        "λ of the guidance: below 0 simple (-20), above 0 complex (20) or adversarial (20)",
        first=20.0,
        shown=Range(1.0, 200.0, step=1.0),
    )
    picture: str | None = parameter(None, Text("the path of a picture file", file=True), "the file of kind picture")
    band: str = parameter("all", Choice(("all", "high")), "frequencies that simple and complex act on")
    start: float | None = blend_start(None, " (0.5; 0.25 for pictures and patterns)")

    def __post_init__(self) -> None:
        if self.kind == "inversion" and self.strength:
            # A bare number is a strength, whose sign determines the kind.
            object.__setattr__(self, "kind", "simple" if float(self.strength) < 0 else "complex")
        if self.strength is None and self.kind in STRENGTHS:
            object.__setattr__(self, "strength", STRENGTHS[self.kind])
        if self.start is None:
            object.__setattr__(self, "start", 0.5 if self.kind in (*GENERATED, "random") else 0.25)
        check(self)
        if self.kind not in STRENGTHS and self.strength:
            raise UserError(
                f"background {self.kind} takes no strength, but {self.strength:g} is given",
                allowed=", ".join(STRENGTHS),
            )
        if self.kind in STRENGTHS and (self.strength or 0) * STRENGTHS[self.kind] <= 0:
            sign = "below" if STRENGTHS[self.kind] < 0 else "above"
            raise UserError(
                f"background {self.kind} has the strength {self.strength:g}", allowed=f"a strength {sign} 0"
            )
        if (self.kind == "picture") != (self.picture is not None):
            raise UserError(
                f"background {self.kind} with the picture {self.picture}", allowed="kind picture and a file"
            )

    @classmethod
    def parse(cls, text: str, **others: Any) -> Self:
        """Return the edit from a kind, a strength (below 0 simple, above 0 complex, 0 inversion) or a picture file."""
        if text in KINDS:
            return cls(kind=text, **others)
        try:
            strength = float(text)
        except ValueError:
            pass
        else:
            return cls(**{"kind": "inversion", "strength": strength, **others})
        if not Path(text).is_file():
            raise UserError(f"there is no background '{text}'", allowed=cls.usage(), run="unswayed edits")
        return cls(kind="picture", picture=text, **others)

    @classmethod
    def usage(cls) -> str:
        return f"{', '.join(KINDS)}, a strength, or a picture file"

    @classmethod
    def from_controls(cls, values: Mapping[str, Any]) -> Self:
        """Return the edit; the kind sets the sign of the strength, and only some kinds use a strength or a file."""
        given = dict(values)
        kind = str(given.get("kind", "random"))
        if kind in STRENGTHS:
            strength = abs(float(given.get("strength") or STRENGTHS[kind]))
            given["strength"] = strength if STRENGTHS[kind] > 0 else -strength
        else:
            given = {name: value for name, value in given.items() if name not in ("strength", "band")}
        if kind != "picture":
            given.pop("picture", None)
        elif given.get("picture") is None:
            raise UserError(
                "the background 'picture' has no file yet", allowed="a picture file, uploaded below the controls"
            )
        return cls(**given)

    @property
    def random(self) -> bool:
        return self.kind == "random" or self.kind in TEXTURES

    @property
    def borrows(self) -> bool:
        return self.kind == "random"

    @property
    def needs(self) -> tuple[Need, ...]:
        if self.kind == "adversarial":
            return ("network", "guide")
        if self.kind in GENERATED:
            return ("network",)
        return ("removal",) if self.kind == "random" else ()

    @property
    def level(self) -> Level:
        """Return the strength, or the kind if it has none."""
        return float(self.strength or 0.0) if self.kind in ("inversion", "simple", "complex") else self.kind

    def describe(self) -> str:
        strength = f" (λ = {self.strength:+g})".replace("-", "−") if self.kind in STRENGTHS else ""
        return f"{KINDS[self.kind]}{strength}"

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        changed = replace(
            composition,
            start=max(composition.start, self.start or 0.0),
            requested={**composition.requested, "background": self.kind},
        )
        if self.kind in GENERATED:
            if self.kind == "adversarial" and composition.label is None:
                raise Impossible("background adversarial needs the true label, but this scene has none")
            return replace(changed, guidance=self._guidance(), needs_network=_REASONS[self.kind])
        if self.kind == "random":
            other = pool.other(composition.scene_id, rng)
            if other is None:
                raise Impossible("background random needs another scene in the source, but there is none")
            return replace(changed, background=Removed(other), requested={**changed.requested, "from": other})
        if self.kind == "picture":
            return replace(changed, background=Picture(str(self.picture)))
        return replace(changed, background=Drawn(TEXTURES[self.kind], int(rng.integers(2**31))))

    def _guidance(self) -> Guidance | None:
        if self.kind == "inversion":
            return None
        kind = "adversarial" if self.kind == "adversarial" else "complexity"
        return Guidance(kind, float(self.strength or 0.0), self.band)


_REASONS = {
    "inversion": "background inversion regenerates the background with a diffusion network",
    "simple": "background simple guides a diffusion network",
    "complex": "background complex guides a diffusion network",
    "adversarial": "background adversarial guides a diffusion network against a classifier",
}
