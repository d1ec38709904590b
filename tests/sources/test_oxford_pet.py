"""Oxford-IIIT Pet in torchvision's layout: breeds, splits, trimaps as masks."""

import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from scipy import ndimage

from unswayed.errors import BadPicture, UserError
from unswayed.labels import imagenet
from unswayed.sources import open_source
from unswayed.sources.pictures import read_numbers
from unswayed.sources.torchvision_sets import BACKGROUND, BREED_WNIDS, PET, class_name, mask_of_trimap

PETS = Path(__file__).parents[1] / "data" / "oxford-iiit-pet"


def test_breeds_that_imagenet_knows_have_imagenets_labels():
    source = open_source(f"oxford-pet:{PETS}")
    assert source.ids == ("pug_84", "Siamese_138")
    assert source.labels.name == "imagenet-1k"
    assert [imagenet().classes[source.label_of(one)] for one in source.ids] == ["pug", "Siamese cat"]


def test_all_breeds_keep_their_own_names_where_imagenet_has_none():
    source = open_source(f"oxford-pet:{PETS.parent}?breeds=all&split=all")
    assert source.ids == ("pug_84", "shiba_inu_212", "Siamese_138", "beagle_137")
    assert len(source.labels) == 37
    assert [source.labels.classes[source.label_of(one)] for one in source.ids] == [
        "pug",
        "shiba inu",
        "Siamese cat",
        "beagle",
    ]


def test_the_table_of_breeds():
    assert len(BREED_WNIDS) == 37
    known = [wnid for wnid in BREED_WNIDS.values() if wnid]
    assert len(known) == len(set(known)) == 25
    assert class_name("american_pit_bull_terrier") == "American Staffordshire terrier"


def test_torchvision_reads_the_same_pictures_and_classes():
    from torchvision.datasets import OxfordIIITPet

    theirs = OxfordIIITPet(PETS.parent, split="test", target_types="segmentation")
    ours = open_source(f"oxford-pet:{PETS}?breeds=all")
    for scene, (picture, trimap) in zip(ours, theirs, strict=True):
        assert (scene.image == np.asarray(picture)).all()
        trimap = np.asarray(trimap)
        assert (scene.mask[trimap == 1] == 1).all() and (scene.mask[trimap == 2] == 0).all()
        border = scene.mask[trimap == 3].mean()
        assert 0.2 < border < 0.8, "the band is divided, not given to one side"


def test_the_border_is_divided_along_its_middle():
    trimap = np.full((9, 9), 3, np.uint8)
    trimap[:, :2], trimap[:, 7:] = 1, 2
    expected = np.zeros((9, 9))
    expected[:, :4] = 1
    assert (mask_of_trimap(trimap) == expected).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_the_border_is_divided_by_exact_distances_whatever_the_number_of_threads(threads):
    """OpenCV's distances are rounded otherwise in one thread, so that pixels in the middle changed sides."""
    before = cv2.getNumThreads()
    cv2.setNumThreads(threads)
    for path in sorted((PETS / "annotations/trimaps").glob("*.png")):
        trimap = read_numbers(path)
        to_pet, to_background = (ndimage.distance_transform_edt(trimap != value) for value in (PET, BACKGROUND))
        assert (mask_of_trimap(trimap) == (to_pet < to_background)).all(), path.name
    cv2.setNumThreads(before)


@pytest.mark.parametrize("value", [0, 255])
def test_other_values_than_a_trimaps_are_refused(value):
    with pytest.raises(BadPicture, match="1 pet, 2 background, 3 border"):
        mask_of_trimap(np.full((4, 4), value, np.uint8))


def test_a_list_that_is_no_text_or_a_pipe_is_refused(tmp_path):
    (tmp_path / "annotations/trimaps").mkdir(parents=True)
    (tmp_path / "annotations/test.txt").write_bytes(b"pug_84 1 1 1\n\xff\xfe")
    with pytest.raises(UserError, match=r"the list .*test\.txt cannot be read as text"):
        open_source(f"oxford-pet:{tmp_path}")
    os.mkfifo(tmp_path / "annotations/trainval.txt")
    with pytest.raises(UserError, match=r"the list .*trainval\.txt is no file"):
        open_source(f"oxford-pet:{tmp_path}?split=trainval")


def test_a_missing_data_set_names_the_download(tmp_path):
    with pytest.raises(UserError, match=r"oxford-pet:.*\?download=yes"):
        open_source(f"oxford-pet:{tmp_path}")
    with pytest.raises(UserError, match=r"split=all&download=yes"):
        open_source(f"oxford-pet:{tmp_path}?split=all")


def test_a_download_that_fails_says_so(tmp_path, monkeypatch):
    def offline(*_, **__):
        raise OSError("the network is unreachable")

    monkeypatch.setattr("torchvision.datasets.oxford_iiit_pet.download_and_extract_archive", offline)
    with pytest.raises(UserError, match="could not be downloaded into .*: the network is unreachable"):
        open_source(f"oxford-pet:{tmp_path / 'pets'}?download=yes")


def test_a_download_is_opened(tmp_path, monkeypatch):
    import shutil

    def fetched(url, download_root, md5):
        folder = "images" if "images" in url else "annotations"
        shutil.copytree(PETS / folder, Path(download_root) / folder)

    monkeypatch.setattr("torchvision.datasets.oxford_iiit_pet.download_and_extract_archive", fetched)
    assert open_source(f"oxford-pet:{tmp_path / 'pets'}?download=yes").ids == ("pug_84", "Siamese_138")
