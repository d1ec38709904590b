"""A renderer without a network, with a detail after its name: the background becomes one gray."""

import numpy as np

from unswayed.edits.layers import composite
from unswayed.registry import declare
from unswayed.rendering.layers import Rendering


class Gray:
    def __init__(self, level):
        self.level = level

    def render(self, batch):
        return [
            Rendering(composite(layers.object, layers.alpha, np.full_like(layers.background, self.level)))
            for layers in batch
        ]

    def describe(self):
        return {"renderer": f"gray:{self.level}", "device": "cpu"}


@declare(help="puts the object on one gray", usage="gray:LEVEL", facts={"network": False, "options": ()})
def open_gray(detail, settings, batch_size=None, planned=None):
    return Gray(int(detail or 128))
