"""Object removal: a picture and the mask of its object in, the same picture without the object out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

import numpy as np

from unswayed.errors import UserError, unknown
from unswayed.rendering.backgrounds import Removal

from .hole import hole_of
from .patches import fill_hole

ENTRY_POINTS = "unswayed.removals"
# The name that older benchmarks, records and commands use -> the name now.
_FORMER_NAMES = {"opencv": "patches"}


@dataclass(frozen=True)
class RemovalMethod:
    """A way to remove objects, as it declares itself.

    open: makes the removal; its arguments are the detail, where the spec has one (`name:detail`), `device=` where
    `takes_device` is set and `network=` (a name or a loaded network, or None) where `takes_network` is set;
    detail: what may follow the name, such as `FILE`; None where nothing may.
    """

    name: str
    description: str
    open: Callable[..., Removal]
    detail: str | None = None
    takes_device: bool = False
    takes_network: bool = False

    @property
    def usage(self) -> str:
        return self.name if self.detail is None else f"{self.name}:{self.detail}"


def all_removals() -> dict[str, RemovalMethod]:
    """The removal methods of this package and of other installed packages, by name.

    A package adds its own in its pyproject.toml: [project.entry-points."unswayed.removals"] plain = "my_removal:PLAIN".
    """
    found = dict(REMOVALS)
    for point in entry_points(group=ENTRY_POINTS):
        method = point.load()
        if not (isinstance(method, RemovalMethod) and method.name == point.name):
            raise UserError(
                f"the entry point {point.name} = {point.value} is not a removal method",
                allowed=f"a RemovalMethod whose name is '{point.name}'",
            )
        found.setdefault(point.name, method)
    return found


def current_removal(spec: str) -> str:
    """The spec with the name that the method has now.

    >>> current_removal("opencv"), current_removal("onnx:lama.onnx")
    ('patches', 'onnx:lama.onnx')
    """
    name, colon, detail = spec.partition(":")
    return _FORMER_NAMES.get(name, name) + colon + detail


def find_removal(spec: str) -> tuple[RemovalMethod, str]:
    """The method that a spec names, and the detail after its colon; raises UserError with what is allowed."""
    name, _, detail = current_removal(spec).partition(":")
    methods = REMOVALS if name in REMOVALS else all_removals()
    if name not in methods:
        raise unknown("object removal", name, methods, run="unswayed edits")
    if detail and methods[name].detail is None:
        raise UserError(
            f"the object removal is '{spec}'", allowed=", ".join(method.usage for method in all_removals().values())
        )
    return methods[name], detail


def open_removal(spec: str = "patches", device: str | None = None, network: Any = None) -> Removal:
    """A callable (image (S, S, 3) uint8, mask (S, S) float, seed, label) -> (S, S, 3) uint8, with a `name`.

    device, network: for the methods that take them; the others have no use for them.
    """
    method, detail = find_removal(spec)
    options = {"device": device} if method.takes_device else {}
    if method.takes_network and not detail:
        options["network"] = network
    return method.open(*([detail] if detail else []), **options)


class PatchRemoval:
    """Removal without a network: a generous hole, filled from patches of the rest of the picture."""

    name = "patches-1"

    def __call__(self, image: np.ndarray, mask: np.ndarray, seed: int = 0, label: int | None = None) -> np.ndarray:
        return fill_hole(image, hole_of(mask), seed)


def _diffusion(network: Any = None, device: str | None = None) -> Removal:
    from .diffusion import DiffusionRemoval

    return DiffusionRemoval("compact" if network is None else network, device)


def _onnx(path: str = "") -> Removal:
    from .onnx import OnnxRemoval

    return OnnxRemoval(path)


REMOVALS: dict[str, RemovalMethod] = {
    method.name: method
    for method in (
        RemovalMethod("patches", "fills the hole from similar patches of the same picture", PatchRemoval),
        RemovalMethod(
            "diffusion", "draws the hole with a diffusion network (RePaint)", _diffusion, "NETWORK", True, True
        ),
        RemovalMethod("onnx", "fills the hole with an exported in-painting network", _onnx, "FILE"),
    )
}
