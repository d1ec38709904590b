"""Pictures with factors as targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from factor_worlds import write_annotations
from unswayed.errors import UserError
from unswayed.sources.factor_dataset import FactorDataset
from unswayed.sources.imagenet_x import load_annotations


@pytest.fixture
def annotations(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path / "cache"))
    return load_annotations("multi", folder=write_annotations(tmp_path / "annotations", images=12))


@pytest.fixture
def pictures(tmp_path, annotations):
    folder = tmp_path / "val"
    for number, key in enumerate([*annotations.keys, "holiday"]):
        path = folder / f"n{number % 2:08d}" / f"{key}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 10), (number * 10, 0, 0)).save(path)
    return folder


def test_annotated_pictures_come_with_label_and_factors(annotations, pictures):
    dataset = FactorDataset(pictures, annotations=annotations)
    assert len(dataset) == len(annotations) == 9
    by_key = {name.split("/")[-1].removesuffix(".JPEG"): i for i, name in enumerate(dataset.names)}
    for row, key in enumerate(annotations.keys):
        picture, label, factors = dataset[by_key[key]]
        assert (picture.shape, picture.dtype) == ((3, 10, 20), torch.uint8)
        assert abs(int(picture[0].float().mean()) - row * 10) < 4
        assert label == annotations.labels[row]
        assert np.array_equal(factors.numpy().astype(bool), annotations.factors[row])


def test_it_loads_in_batches_through_a_transform(annotations, pictures):
    dataset = FactorDataset(pictures, transform=lambda image: torch.tensor(image.mean()), annotations=annotations)
    brightness, labels, factors = next(iter(DataLoader(dataset, batch_size=4)))
    assert (brightness.shape, labels.dtype, factors.shape) == ((4,), torch.int64, (4, 16))


def test_folders_that_cannot_be_meant_are_refused(annotations, pictures, tmp_path):
    with pytest.raises(UserError, match="no folder"):
        FactorDataset(tmp_path / "nowhere", annotations=annotations)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="none of the 0 pictures"):
        FactorDataset(tmp_path / "empty", annotations=annotations)
    twin = next(pictures.rglob("ILSVRC*"))
    (pictures / "copy").mkdir()
    (pictures / "copy" / twin.name).write_bytes(twin.read_bytes())
    with pytest.raises(UserError, match="more than once"):
        FactorDataset(pictures, annotations=annotations)
