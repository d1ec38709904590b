"""A torch dataset of annotated pictures with their factors as targets, to train or probe on factors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch.utils.data import Dataset

from unswayed.errors import UserError
from unswayed.sources.labeled import pictures_below
from unswayed.sources.pictures import read_picture

from .imagenet_x import Annotations, image_keys, load_annotations


class FactorDataset(Dataset[tuple[object, int, torch.Tensor]]):
    """(picture, label in 0…999, factors (16,) float32 of zeros and ones) of every annotated image below a folder.

    The folder may be flat or have class folders; pictures without annotation are excluded. `transform` gets the picture
    as (H, W, 3) uint8; without one the picture is a (3, H, W) uint8 tensor. `annotations` may be given, else they are
    loaded with `options` (which, partition, folder, keep_prototypes).

        loader = DataLoader(FactorDataset("imagenet/val", transform=model.prepare, which="multi"), batch_size=64)
    """

    def __init__(
        self,
        pictures: str | Path,
        transform: Callable[[np.ndarray], object] | None = None,
        annotations: Annotations | None = None,
        **options: Any,
    ) -> None:
        self.folder = Path(pictures)
        if not self.folder.is_dir():
            raise UserError(f"there is no folder {self.folder}", allowed="a folder of ImageNet pictures")
        self.transform = transform
        if annotations is None:
            annotations = load_annotations(**options)
        names = pl.Series("name", pictures_below(self.folder), dtype=pl.String)
        annotated = pl.DataFrame({"key": image_keys(names), "name": names}).join(
            pl.DataFrame({"key": annotations.keys, "row": np.arange(len(annotations))}), on="key", how="inner"
        )
        if annotated.is_empty():
            raise UserError(
                f"none of the {len(names)} pictures below {self.folder} is annotated ({annotations.partition})",
                allowed="pictures named as in ImageNet, such as ILSVRC2012_val_00000293.JPEG",
            )
        twice = annotated.filter(annotated["key"].is_duplicated())
        if not twice.is_empty():
            raise UserError(f"{self.folder} holds the image {twice['key'][0]} more than once")
        self.names: list[str] = annotated["name"].to_list()
        rows = annotated["row"].to_numpy()
        self.labels = annotations.labels[rows].astype(np.int64)
        self.factors = torch.from_numpy(annotations.factors[rows].astype(np.float32))

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[object, int, torch.Tensor]:
        picture = read_picture(self.folder / self.names[index])
        if self.transform is not None:
            shown = self.transform(picture)
        else:
            shown = torch.from_numpy(np.ascontiguousarray(picture)).permute(2, 0, 1)
        return shown, int(self.labels[index]), self.factors[index]
