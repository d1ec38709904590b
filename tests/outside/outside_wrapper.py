"""`MODEL+negated`: the class that the model holds least likely."""

from dataclasses import replace

import torch

from unswayed.registry import declare


class Negated(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, pixels):
        return -self.inner(pixels)


@declare(help="the class that the model holds least likely")
def negated(model):
    return replace(model, module=Negated(model.module))
