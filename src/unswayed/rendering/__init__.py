"""A batch of layers in, pictures out: `paste` needs no network, `diffusion` blends with one.

    renderer = open_renderer(RenderSettings(network="compact", steps=20))
    answers = renderer.render(batch)

Heavy imports happen on first use of a name.
"""

import lazy_loader

# The names are listed in __init__.pyi, which type checkers read; each loads its module on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
