"""The perceptual distance of two pictures: distances between features of Inception v3.

A denoiser trained only on squared error predicts the mean of an uncertain texture, which is blurred. A distance between
the features of a classifier (Zhang et al. 2018) keeps textures sharp. The weights are FID's, as TorchScript; only the
first third of the network is used.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unswayed.errors import UserError
from unswayed.files.downloads import KNOWN
from unswayed.files.tensor_files import read_tensor_file
from unswayed.files.whole import sha256

GET = "unswayed weights fetch inception"
PREFIX = "net.layers."
_EPSILON = 1e-3  # of the batch norms
_SHIFT = 8

# Stride and padding of every convolution that is used, by block.
_STEM = {"conv": (2, 0), "conv_1": (1, 0), "conv_2": (1, 1), "conv_3": (1, 0), "conv_4": (1, 0)}
_TOWERS = {
    "conv": (1, 0), "tower.conv": (1, 0), "tower.conv_1": (1, 2), "tower_1.conv": (1, 0), "tower_1.conv_1": (1, 1),
    "tower_1.conv_2": (1, 1), "tower_2.conv": (1, 0),
}  # fmt: skip
_REDUCTION = {"conv": (2, 0), "tower.conv": (1, 0), "tower.conv_1": (1, 1), "tower.conv_2": (2, 0)}


class Critic(nn.Module):
    """Two batches (N, 3, H, W) in [−1, 1] -> (N,): their mean feature distance at four depths of the network."""

    def __init__(self, tensors: dict[str, Tensor], digest: str = "") -> None:
        super().__init__()
        self.digest = digest
        self.steps: dict[str, tuple[int, int]] = dict(_STEM)
        for block in ("mixed", "mixed_1", "mixed_2"):
            self.steps |= {f"{block}.{name}": step for name, step in _TOWERS.items()}
        self.steps |= {f"mixed_3.{name}": step for name, step in _REDUCTION.items()}
        for name in self.steps:
            # The batch norm has no scale, so (w·x − mean) / deviation + beta is one convolution.
            scale = torch.rsqrt(tensors[f"{name}.var"].float() + _EPSILON)
            weight = tensors[f"{name}.weight"].float() * scale.view(-1, 1, 1, 1)
            self.register_buffer(f"{name}.weight".replace(".", "/"), weight.contiguous())
            bias = tensors[f"{name}.beta"].float() - tensors[f"{name}.mean"].float() * scale
            self.register_buffer(f"{name}.bias".replace(".", "/"), bias)

    def forward(self, pictures: Tensor, others: Tensor) -> Tensor:
        pairs = zip(self.features(pictures), self.features(others), strict=True)
        distances = [(_unit(a) - _unit(b)).square().sum(dim=1).mean(dim=(1, 2)) for a, b in pairs]
        return torch.stack(distances).mean(dim=0)

    def features(self, pictures: Tensor) -> list[Tensor]:
        """The features at four depths, each (N, channels, h, w)."""
        low = self._chain(pictures, "", "conv", "conv_1", "conv_2")
        middle = self._chain(F.max_pool2d(low, 3, 2), "", "conv_3", "conv_4")
        high = F.max_pool2d(middle, 3, 2)
        for block in ("mixed.", "mixed_1.", "mixed_2."):
            towers = [
                self._chain(high, block, "conv"),
                self._chain(high, f"{block}tower.", "conv", "conv_1"),
                self._chain(high, f"{block}tower_1.", "conv", "conv_1", "conv_2"),
                self._chain(F.avg_pool2d(high, 3, 1, 1, count_include_pad=False), f"{block}tower_2.", "conv"),
            ]
            high = torch.cat(towers, dim=1)
        reduced = [
            self._chain(high, "mixed_3.", "conv"),
            self._chain(high, "mixed_3.tower.", "conv", "conv_1", "conv_2"),
            F.max_pool2d(high, 3, 2),
        ]
        return [low, middle, high, torch.cat(reduced, dim=1)]

    def _chain(self, x: Tensor, tower: str, *names: str) -> Tensor:
        """x through these convolutions of a tower, one after the other."""
        for name in names:
            stride, padding = self.steps[f"{tower}{name}"]
            weight, bias = (getattr(self, f"{tower}{name}.{part}".replace(".", "/")) for part in ("weight", "bias"))
            x = F.relu(F.conv2d(x, weight, bias, stride, padding))
        return x


def shifted(pictures: Tensor, by: Tensor) -> Tensor:
    """A crop of the pictures, 8 rows and columns smaller, at the offset `by`: (2,) integers from 0 to 8.

    The network's strides skip pixels; a new offset in every step prevents a visible grid.
    """
    along = torch.arange(pictures.shape[-1] - _SHIFT, device=pictures.device)
    return pictures.index_select(2, along + by[0]).index_select(3, along + by[1])


def load_critic(path: str | Path) -> Critic:
    """The critic of the file that `unswayed weights fetch inception` gets, or of a file with its tensors."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"there is no file {path}", run=GET)
    tensors = known_inception(path) or read_tensor_file(path, run=GET)
    try:
        return Critic({name.removeprefix(PREFIX): value for name, value in tensors.items()}, sha256(path)).eval()
    except (RuntimeError, KeyError, ValueError, AttributeError, TypeError) as error:
        raise UserError(f"{path} does not contain FID's Inception network: {error}", run=GET) from None


def known_inception(path: Path) -> dict[str, Tensor] | None:
    """The tensors of FID's Inception if the file is the known one, by its SHA-256; None for any other file.

    It is TorchScript, which is a program, so that no other file of this kind is opened here.
    """
    if sha256(path) != KNOWN["inception"].sha256:
        return None
    with warnings.catch_warnings():
        # TorchScript is deprecated for new files; this one will not change.
        warnings.simplefilter("ignore", FutureWarning)
        return dict(torch.jit.load(str(path), map_location="cpu").state_dict())


def _unit(features: Tensor) -> Tensor:
    wide = features.float()
    return wide * torch.rsqrt(wide.square().sum(dim=1, keepdim=True) + 1e-6)
