"""Co-occurrence measures against scikit-image where nothing is masked, and by hand where something is."""

import numpy as np
import pytest
from skimage.feature import graycomatrix, graycoprops

from unswayed.benchmark.quality import background_measures, cooccurrence, glcm_measures
from unswayed.errors import UserError


def gray(values):
    return np.repeat(np.asarray(values, np.uint8)[..., None], 3, axis=2)


def test_without_a_mask_it_is_scikit_image():
    image = np.random.default_rng(0).integers(0, 256, (40, 33, 3), dtype=np.uint8)
    levels = np.rint(image @ np.array([0.299, 0.587, 0.114])).astype(np.uint8) // 8
    angles = [0, np.pi / 4, np.pi / 2, 3 * np.pi / 4]
    table = graycomatrix(levels, [1], angles, levels=32, symmetric=True, normed=True)
    found = glcm_measures(image, np.zeros((40, 33)))
    for name in ("contrast", "dissimilarity", "homogeneity", "energy"):
        assert found[name] == pytest.approx(graycoprops(table, name).mean(), rel=1e-9)


def test_only_pairs_wholly_in_the_background_count():
    image = gray([[0, 255, 0], [0, 0, 0], [0, 0, 0]])
    mask = np.zeros((3, 3))
    mask[0, 1] = 0.01
    assert glcm_measures(image, mask)["contrast"] == 0
    assert glcm_measures(image, np.zeros((3, 3)))["contrast"] > 0


def test_the_object_may_change_without_a_trace():
    rng = np.random.default_rng(1)
    image, mask = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8), np.zeros((32, 32))
    mask[8:20, 10:25] = 1
    other = image.copy()
    other[8:20, 10:25] = 0
    assert glcm_measures(image, mask) == glcm_measures(other, mask)


def test_tables_are_symmetric_shares():
    image = np.random.default_rng(2).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    tables = cooccurrence(image, np.ones((16, 16), bool))
    assert np.allclose(tables.sum(axis=(1, 2)), 1)
    assert np.allclose(tables, tables.transpose(0, 2, 1))


def test_more_texture_is_more_contrast():
    rng = np.random.default_rng(3)
    noise = rng.normal(0, 1, (64, 64))
    seen = [glcm_measures(gray(np.clip(128 + s * noise, 0, 255)), np.zeros((64, 64)))["contrast"] for s in (5, 15, 40)]
    assert seen == sorted(seen)


def test_no_background_is_nan_and_a_wrong_mask_refused():
    image = gray(np.zeros((4, 4)))
    assert np.isnan(glcm_measures(image, np.ones((4, 4)))["contrast"])
    with pytest.raises(UserError, match="mask"):
        glcm_measures(image, np.ones((3, 4)))


def test_a_rough_background_has_larger_measures_and_no_background_none():
    rng = np.random.default_rng(0)
    mask = np.zeros((64, 64), np.float32)
    mask[20:40, 20:40] = 1
    smooth, rough = np.full((64, 64, 3), 120, np.uint8), rng.integers(0, 256, (64, 64, 3), np.uint8)
    low, high = background_measures(smooth, mask), background_measures(rough, mask)
    assert set(low) == set(high) == {"background_contrast", "background_dissimilarity", "background_amplitude"}
    assert all(high[name] > low[name] for name in low)
    assert background_measures(rough, np.ones((64, 64), np.float32)) == {}
