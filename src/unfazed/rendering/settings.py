"""`RenderSettings`: how pictures are framed, how objects are removed and how the result is rendered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unfazed.choices import Frame, GuidanceName, Precision, RendererName, SamplerName, check_choice
from unfazed.errors import UserError

NETWORK_ONLY = ("network", "network_facts", "steps", "sampler", "guidance", "guide", "precision")
# What an open renderer has settled already, and what the record of an edit calls its options.
RENDERER_OPTIONS = (*NETWORK_ONLY, "device", "feather")


@dataclass(frozen=True, kw_only=True)
class RenderSettings:
    """What decides how one composed picture is rendered; None leaves a value to the renderer.

    renderer: `diffusion` blends with a network, `paste` needs none and skips what does. network: a name that
    `unfazed weights` lists, a file or a folder (default: the embedded network); network_facts: what `load_network` is
    told about a file that does not say it. steps: over the whole noise schedule, 1 to 1000 (default: 100). guidance:
    `paper`, `released` or `calibrated`, see docs/rendering.md (default: `released` for guided-diffusion's files,
    otherwise `calibrated`). guide: the classifier that adversarial backgrounds work against, or `none`. feather:
    pixels over which `paste` fades the object's rim (default: 1). removal: as `open_removal` takes it. frame: see
    `unfazed.scene.frame`. size: the side of the pictures in pixels. seed: every random draw follows from it.
    """

    renderer: RendererName = "diffusion"
    network: str | None = None
    network_facts: Mapping[str, str | int | float] | None = None
    steps: int | None = None
    sampler: SamplerName | None = None
    guidance: GuidanceName | None = None
    guide: str | None = None
    precision: Precision | None = None
    device: str | None = None
    feather: float | None = None
    removal: str = "patches"
    frame: Frame = "object"
    size: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("renderer", self.renderer, RendererName)
        check_choice("framing", self.frame, Frame)
        check_range("size", self.size, 16, 4096)
        if not 0 <= self.seed < 2**63:
            raise UserError(f"the seed is {self.seed}", allowed="0 to 2⁶³ - 1")
        unused = [name for name in self._unused() if getattr(self, name) is not None]
        if unused:
            raise UserError(
                f"the renderer {self.renderer} has no use for {', '.join(unused)}",
                allowed="feather and device with paste (network and network_facts too where objects are removed by "
                "diffusion); all but feather with diffusion",
            )
        if self.steps is not None:
            check_range("steps", self.steps, 1, 1000)
        if self.sampler is not None:
            check_choice("sampler", self.sampler, SamplerName)
        if self.guidance is not None:
            check_choice("guidance", self.guidance, GuidanceName)
        if self.precision is not None:
            check_choice("precision", self.precision, Precision)

    def _unused(self) -> tuple[str, ...]:
        if self.renderer != "paste":
            return ("feather",)
        return NETWORK_ONLY[2:] if self.shares_network else NETWORK_ONLY

    @property
    def shares_network(self) -> bool:
        """Whether objects are removed with the network of the renderer."""
        from .removal.methods import find_removal

        method, detail = find_removal(self.removal)
        return method.takes_network and not detail


def check_range(name: str, value: int, least: int, most: int) -> None:
    """Refuse a number outside a range."""
    if not least <= value <= most:
        raise UserError(f"{name} is {value}", allowed=f"{least} to {most}")
