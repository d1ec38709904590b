"""`hue:SEED`: random weights on the mean color of a picture."""

import torch

from unswayed.labels import imagenet
from unswayed.models import Classifier, Transform
from unswayed.registry import declare


@declare(help="random weights on the mean color", usage="hue:SEED")
def open_hue(spec, labels=None, **where):
    spec.check_options()
    linear = torch.nn.Linear(3, 1000)
    torch.nn.init.normal_(linear.weight, generator=torch.Generator().manual_seed(int(spec.name)))
    torch.nn.init.zeros_(linear.bias)
    module = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), linear)
    transform = Transform(resize=256, crop=224, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    return Classifier(module, transform, imagenet(), name=str(spec), **where)
