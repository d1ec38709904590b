"""`RenderSettings`: how pictures are framed, how objects are removed and how the result is rendered."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unswayed.choices import DEVICE, Frame, GuidanceName, Option, Precision, SamplerName, check_settings, option
from unswayed.errors import UserError
from unswayed.labels import LabelSpace, imagenet
from unswayed.registry import Part, Registry

from .removal import Removal, open_removal

if TYPE_CHECKING:
    from unswayed.edits import Edit

    from .layers import Renderer

# What some renderers use and others have no use for.
OPTIONS = ("network", "network_facts", "steps", "sampler", "guidance", "guide", "precision", "feather")
DEFAULT_GUIDE = "lite:1,lite:2"
# What an open renderer has settled already, and what the record of an edit calls its options.
RENDERER_OPTIONS = (*OPTIONS, "device")
# What a renderer describes that changes no picture.
SPEED = ("batch_size", "offload")
# A part is called with the detail of a spec `name:detail`, or "", and the keywords settings, batch_size and planned of
# `open_renderer`, and returns the renderer. facts: `network`, whether it has one; `options`, which of OPTIONS it uses.
RENDERERS = Registry[Callable[..., "Renderer"]](
    "renderer",
    {
        "diffusion": Part(
            f"{__name__}:_open_diffusion",
            "blends with the embedded diffusion network, or that of --network",
            facts={"network": True, "options": OPTIONS[:-1]},
        ),
        "paste": Part(
            f"{__name__}:_open_paste",
            "uses no diffusion network and does not make the edits that need one",
            facts={"network": False, "options": ("feather",)},
        ),
        "diffusers": Part(
            f"{__package__}.editors.renderer:open_editor",
            "draws what words say with an in-painting or instruction pipeline of diffusers",
            usage="diffusers:NAME_OR_FOLDER",
            needs=("diffusers", "transformers"),
            extra="editors",
            facts={"network": True, "options": ("steps", "precision")},
        ),
    },
)
RENDERER = Option(
    lambda: "; ".join(
        f"`{usage}` {part.help}" for usage, part in zip(RENDERERS.usages(), map(RENDERERS.part, RENDERERS), strict=True)
    ),
    metavar="NAME",
    values=RENDERERS.usages,
)


def parse_facts(texts: Sequence[str]) -> dict[str, str | int | float] | None:
    """The settings of a network from texts NAME=VALUE, numbers as numbers; None for an empty list.

    >>> parse_facts(["num_head_channels=32", "beta_schedule=cosine"])
    {'num_head_channels': 32, 'beta_schedule': 'cosine'}
    """
    facts: dict[str, str | int | float] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value) or name in facts:
            raise UserError(f"--network-fact is '{text}'", allowed="NAME=VALUE, each name once")
        facts[name] = value
        for number in (float, int):
            with contextlib.suppress(ValueError):
                facts[name] = number(value)
    return facts or None


@dataclass(frozen=True, kw_only=True)
class RenderSettings:
    """What decides how one composed picture is rendered; None leaves a value to the renderer.

    network_facts: what `load_network` is told about a file that does not say it. steps: 1 to 1000. guide: `none`
    for no guide. removal: as `open_removal` takes it. frame: see `unswayed.scene.frame`. seed: every random draw
    follows from it.
    """

    renderer: str = option("diffusion", RENDERER)
    network: str | None = option(None, "The diffusion network [default: the embedded one].", metavar="NAME|FILE")
    network_facts: Mapping[str, str | int | float] | None = option(
        None,
        "A setting that the network's file does not contain, such as `num_head_channels=32`; may be repeated.",
        metavar="NAME=VALUE",
        flags=("--network-fact",),
        read=parse_facts,
    )
    steps: int | None = option(
        None,
        "Steps over the whole noise schedule [default: 32 with `dpm`, otherwise the paper's 100].",
        least=1,
        most=1000,
    )
    sampler: SamplerName | None = option(None, "The diffusion sampler [default: auto].")
    guidance: GuidanceName | None = option(
        None,
        "How backgrounds are guided: as in the `paper`, as in its `released` code, or `calibrated` [default: "
        "`released` for guided-diffusion's files, otherwise `calibrated`].",
    )
    guide: str | None = option(
        None,
        f"What adversarial backgrounds attack, one or several [default: `{DEFAULT_GUIDE}` for ImageNet's classes].",
        metavar="MODEL",
    )
    precision: Precision | None = option(
        None, "Of the network [default: bf16 if the machine supports it, otherwise fp32]."
    )
    device: str | None = option(None, DEVICE)
    feather: float | None = option(None, "Width in pixels over which `paste` blends the object's edge [default: 1].")
    removal: str = option(
        "auto",
        "How objects are removed: a method that `unswayed edits` lists, or `auto`: `patches` with `paste`, "
        "otherwise `diffusion`.",
    )
    frame: Frame = option("object", "How photographs are cropped or squeezed to a square.")
    size: int = option(256, "Width and height of the pictures.", flags=("--pixels",), least=16, most=4096)
    seed: int = option(0, "Random seed.", least=0)

    def __post_init__(self) -> None:
        uses = self.uses  # an unknown renderer is refused first
        if self.removal == "auto":
            object.__setattr__(self, "removal", "diffusion" if self.has_network else "patches")
        if unused := [name for name in OPTIONS if name not in uses and getattr(self, name) is not None]:
            raise UserError(
                f"the renderer {self.renderer} has no use for {', '.join(unused)}",
                allowed=", ".join((*uses, "device")),
            )
        check_settings(self)
        if self.seed >= 2**63:
            raise UserError(f"the setting seed is {self.seed}", allowed="0 to 2⁶³ - 1")

    @property
    def has_network(self) -> bool:
        return bool(RENDERERS.find(self.renderer)[2].facts.get("network", True))

    @property
    def uses(self) -> tuple[str, ...]:
        """Which of OPTIONS the renderer uses."""
        return tuple(RENDERERS.find(self.renderer)[2].facts.get("options", OPTIONS))


def guide_of(settings: RenderSettings, edits: Iterable[Edit], labels: LabelSpace) -> str | None:
    """The classifier that adversarial backgrounds attack; ImageNet's classes have a default."""
    if "guide" not in settings.uses or settings.guide == "none":
        return None
    if settings.guide is None and any("guide" in edit.needs for edit in edits) and labels == imagenet():
        return DEFAULT_GUIDE
    return settings.guide


def removal_of(settings: RenderSettings) -> Removal:
    return open_removal(settings.removal, settings.device)


def open_renderer(
    settings: RenderSettings | None = None, *, batch_size: int | None = None, planned: int | None = None
) -> Renderer:
    """The renderer of these settings, its network loaded; batch_size: pictures at once on a GPU, chosen if None.

    planned: how many pictures are to be made, if that is known.
    """
    settings = RenderSettings() if settings is None else settings
    name, detail, _ = RENDERERS.find(settings.renderer)
    return RENDERERS.load(name)(detail, settings=settings, batch_size=batch_size, planned=planned)


def _open_paste(detail: str, settings: RenderSettings, **_: object) -> Renderer:
    from .layers import Paste

    return Paste() if settings.feather is None else Paste(settings.feather)


def _open_diffusion(detail: str, settings: RenderSettings, batch_size: int | None, planned: int | None) -> Renderer:
    from .diffusion import open_diffusion

    names = ("network_facts", "steps", "sampler", "guidance", "precision", "device", "size")
    options = {name: getattr(settings, name) for name in names}
    guide = None if settings.guide == "none" else settings.guide
    return open_diffusion(settings.network or "compact", guide=guide, batch_size=batch_size, planned=planned, **options)
