"""A source as a torch dataset of pictures, masks and labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Dataset
from torchvision import tv_tensors

from unswayed.edits.geometry import resized
from unswayed.scene import frame
from unswayed.sources import Source, open_source


class Scenes(Dataset[Any]):
    """Samples (`tv_tensors.Image` (3, size, size) uint8, `tv_tensors.Mask` (size, size) in [0, 1], label).

    source: a Source, or what `open_source` opens, such as `folder:photos`. Each photograph is framed as a benchmark
    frames it: the largest square that holds the whole object. transform: is called with the three and returns the
    sample.

    >>> image, mask, label = Scenes("sample", size=64)[0]
    >>> image.shape, mask.shape, label
    (torch.Size([3, 64, 64]), torch.Size([64, 64]), 347)
    """

    def __init__(self, source: str | Source, size: int = 256, transform: Callable[..., Any] | None = None) -> None:
        self.source = open_source(source) if isinstance(source, str) else source
        self.size, self.transform = size, transform

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, position: int) -> Any:
        scene = frame(self.source[position])
        image = torch.from_numpy(resized(scene.image, self.size)).permute(2, 0, 1).contiguous()
        sample = tv_tensors.Image(image), tv_tensors.Mask(torch.from_numpy(resized(scene.mask, self.size))), scene.label
        return sample if self.transform is None else self.transform(*sample)
