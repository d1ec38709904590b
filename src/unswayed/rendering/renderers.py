"""Opening the renderer that settings describe; a network is imported only if it is used."""

from __future__ import annotations

from .layers import Renderer
from .paste import Paste
from .settings import RenderSettings


def open_renderer(settings: RenderSettings | None = None, *, batch_size: int | None = None) -> Renderer:
    """The renderer of these settings, its network loaded; batch_size: pictures at once on a GPU, chosen if None."""
    settings = RenderSettings() if settings is None else settings
    if settings.renderer == "paste":
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
