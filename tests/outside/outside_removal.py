"""An object removal with a detail after its name."""

from unswayed.registry import declare
from unswayed.rendering.removal import hole_of


@declare(help="fills the hole with one gray", usage="plain:VALUE")
class Plain:
    def __init__(self, detail="128"):
        self.value, self.name = int(detail), f"plain-{detail}"

    def __call__(self, image, mask, seed=0, label=None):
        filled = image.copy()
        filled[hole_of(mask)] = self.value
        return filled
