"""A batch of layers in, pictures out: `paste` needs no network, `diffusion` blends with one.

    renderer = open_renderer(RenderSettings(network="compact", steps=20))
    answers = renderer.render(batch)

Heavy imports happen on first use of a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .settings import RenderSettings

if TYPE_CHECKING:
    from unfazed.rendering.networks.loading import load_network
    from unfazed.rendering.networks.network import Network
    from unfazed.rendering.sampling.schedule import Schedule

    from .layers import Renderer

__all__ = ["Network", "RenderSettings", "Schedule", "load_network", "open_renderer"]

_LAZY = {"load_network": "networks.loading", "Network": "networks.network", "Schedule": "sampling.schedule"}


def open_renderer(settings: RenderSettings | None = None, *, batch_size: int | None = None) -> Renderer:
    """The renderer of these settings, its network loaded; batch_size: pictures at once on a GPU, chosen if None."""
    settings = RenderSettings() if settings is None else settings
    if settings.renderer == "paste":
        from .paste import Paste

        return Paste() if settings.feather is None else Paste(settings.feather)
    from .diffusion import open_diffusion

    return open_diffusion(
        settings.network or "compact",
        settings.steps,
        settings.sampler,
        None if settings.guide == "none" else settings.guide,
        settings.device,
        batch_size,
        settings.precision,
        guidance=settings.guidance,
        size=settings.size,
        network_facts=settings.network_facts,
    )


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f"unfazed.rendering.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
