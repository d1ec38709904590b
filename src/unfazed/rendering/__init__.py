"""A batch of layers in, pictures out: `paste` needs no network, `diffusion` blends with one.

    renderer = open_renderer("diffusion", network="compact", steps=20)
    answers = renderer.render(batch)

Heavy imports happen on first use of a name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from unfazed.errors import unknown

if TYPE_CHECKING:
    from unfazed.rendering.networks.loading import load_network
    from unfazed.rendering.networks.network import Network
    from unfazed.rendering.sampling.schedule import Schedule

    from .layers import Renderer

__all__ = ["RENDERERS", "Network", "Schedule", "load_network", "open_renderer"]

_LAZY = {"load_network": "networks.loading", "Network": "networks.network", "Schedule": "sampling.schedule"}


def _paste(**options: Any) -> Renderer:
    from .paste import Paste

    return Paste(**{key: options[key] for key in ("feather",) if key in options})


def _diffusion(**options: Any) -> Renderer:
    from .diffusion import open_diffusion

    options.pop("feather", None)
    return open_diffusion(**options)


RENDERERS: dict[str, Callable[..., Renderer]] = {"paste": _paste, "diffusion": _diffusion}


def open_renderer(name: str = "diffusion", **options: Any) -> Renderer:
    """The named renderer; an option that is None takes its default.

    paste: feather. diffusion: network, steps, sampler, guide, device, batch_size, precision, compile,
    through_network; see rendering.diffusion.
    """
    if name not in RENDERERS:
        raise unknown("renderer", name, RENDERERS)
    return RENDERERS[name](**{key: value for key, value in options.items() if value is not None})


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f"unfazed.rendering.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
