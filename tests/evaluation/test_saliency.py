import numpy as np
import pytest
import timm
import torch
from torch import nn

from unswayed.errors import UserError
from unswayed.evaluation.saliency import METHODS, explainer, heat_maps, on_picture, unit_peak
from unswayed.labels import own
from unswayed.models import Classifier, Transform, open_model

PLAIN = Transform(resize=64, crop=64, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


class LooksAtOnePatch(nn.Module):
    """Class 1 is the brightness of one known patch, class 0 nothing: all that a heat map may show is that patch."""

    def __init__(self, rows: slice, columns: slice) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 4, 8, stride=8)
        nn.init.constant_(self.features.weight, 1 / (3 * 64))
        nn.init.zeros_(self.features.bias)
        self.register_buffer("patch", torch.zeros(8, 8))
        self.patch[rows, columns] = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = (self.features(x) * self.patch).sum((1, 2, 3))
        return torch.stack([torch.zeros_like(seen), seen], 1)


def patch_model(transform=PLAIN):
    module = LooksAtOnePatch(slice(1, 3), slice(5, 7))
    return Classifier(module, transform, own(["nothing", "patch"]), device="cpu", layer="features")


@pytest.mark.parametrize("method", ["layercam", "hirescam", "elementwise"])
def test_lights_up_where_the_classifier_looks(method):
    # GradCAM and its kin weigh whole channels by their mean gradient, so a uniform picture gives them no place.
    images = np.random.default_rng(0).integers(100, 255, (3, 64, 64, 3), dtype=np.uint8)
    maps = heat_maps(patch_model(), images, [1, 1, 1], method)
    assert maps.shape == (3, 64, 64)
    assert maps.dtype == np.float32
    for heat in maps:
        row, column = np.unravel_index(heat.argmax(), heat.shape)
        assert 8 <= row < 24
        assert 40 <= column < 56
        assert heat.max() == pytest.approx(1)
        assert heat[8:24, 40:56].sum() / heat.sum() > 0.55
        assert heat[40:, :].max() == 0


def test_gradcam_lights_up_where_its_channel_is_active():
    images = np.zeros((1, 64, 64, 3), np.uint8)
    images[0, 8:24, 40:56] = 255
    heat = heat_maps(patch_model(), images, [1], "gradcam")[0]
    assert heat[8:24, 40:56].sum() / heat.sum() > 0.55
    assert heat[40:, :].max() == 0


def test_a_map_goes_back_to_where_the_crop_was():
    # 128 wide, 96 high, shorter side to 80, crop 64: the patch at rows 8-24, columns 40-56 of the crop lies here
    model = patch_model(Transform(resize=80, crop=64, mean=(0.0,) * 3, std=(1.0,) * 3))
    images = np.full((1, 96, 128, 3), 200, np.uint8)
    heat = heat_maps(model, images, [1])[0]
    assert heat.shape == (96, 128)
    scale = 96 / 80
    top, left = (80 - 64) / 2, (106 - 64) / 2
    expected = (
        slice(int((top + 8) * scale), int((top + 24) * scale)),
        slice(int((left + 40) * scale), int((left + 56) * scale)),
    )
    center = (np.argwhere(heat > 0.9) + 0.5).mean(0)
    assert center == pytest.approx(
        [(expected[0].start + expected[0].stop) / 2, (expected[1].start + expected[1].stop) / 2], abs=1.5
    )
    assert heat[: int(top * scale)].max() == 0
    assert heat[:, : int(left * scale)].max() == 0


def test_on_picture_of_a_crop_larger_than_the_picture():
    heat = np.zeros((64, 64), np.float32)
    heat[30:34, 30:34] = 1
    geometry = Transform(resize=32, crop=64).geometry
    placed = on_picture(heat, geometry, 32, 32)
    assert (np.argwhere(placed > 0.5)).mean(0) == pytest.approx([15.5, 15.5])


@pytest.mark.parametrize("name", ["lite:0", "vit"])
@pytest.mark.parametrize("method", ["layercam", "gradcam"])
def test_real_architectures_give_maps_in_batches_and_lose_their_hooks(name, method):
    if name == "vit":
        torch.manual_seed(0)
        module = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10)
        model = Classifier(module, Transform(resize=224, crop=224), own([f"c{i}" for i in range(10)]), device="cpu")
        assert model.heat_layer.reshape == "tokens"
    else:
        model = open_model(name, device="cpu")
    images = np.random.default_rng(1).integers(0, 255, (3, 100, 120, 3), dtype=np.uint8)
    together = heat_maps(model, images, [1, 2, 3], method, batch_size=3)
    apart = heat_maps(model, images, [1, 2, 3], method, batch_size=1)
    assert together.shape == (3, 100, 120)
    assert together.min() >= 0
    assert together.max() <= 1
    assert together == pytest.approx(apart, abs=1e-3)
    assert not np.allclose(together[0], together[1])
    assert not any(layer._forward_hooks for layer in model.module.modules())


def test_a_vision_transformer_lights_up_at_the_one_token_that_reaches_the_answer():
    torch.manual_seed(0)
    module = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10)
    token = 1 + 5 * 14 + 9  # row 5, column 9 of the 14×14 grid, after the class token
    module.blocks[11].attn.forward = lambda x, **_: x[:, token : token + 1].expand_as(x)
    model = Classifier(module, Transform(resize=224, crop=224), own([f"c{i}" for i in range(10)]), device="cpu")
    images = np.random.default_rng(0).integers(0, 255, (10, 224, 224, 3), dtype=np.uint8)
    maps = heat_maps(model, images, range(10), "layercam")
    # Evidence against a class leaves its map empty; with random weights that is about half of the classes.
    lit = maps[maps.max(axis=(1, 2)) > 0]
    assert len(lit) >= 2
    for heat in lit:
        row, column = np.unravel_index(heat.argmax(), heat.shape)
        assert (row // 16, column // 16) == (5, 9)
        assert heat[: 4 * 16 - 8].max() == 0
        assert heat[:, : 8 * 16 - 8].max() == 0


def test_predicted_class_is_asked_about_when_no_target_is_given():
    model = open_model("lite:0", device="cpu")
    image = np.random.default_rng(3).integers(0, 255, (1, 224, 224, 3), dtype=np.uint8)
    predicted = int(model.logits(model.prepare(image[0])[None]).argmax())
    assert heat_maps(model, image) == pytest.approx(heat_maps(model, image, [predicted]))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_on_a_small_network(method):
    images = np.random.default_rng(0).integers(0, 255, (2, 64, 64, 3), dtype=np.uint8)
    maps = heat_maps(patch_model(), images, [1, 1], method)
    assert maps.shape == (2, 64, 64)
    assert np.isfinite(maps).all()
    assert maps.max() <= 1


def test_mistakes_are_named():
    image = np.zeros((64, 64, 3), np.uint8)
    with pytest.raises(UserError, match="did you mean 'layercam'"):
        heat_maps(patch_model(), [image], None, "layer-cam")
    with pytest.raises(UserError, match="different shapes"):
        heat_maps(patch_model(), [image, image[:32]])
    with pytest.raises(UserError, match="2 targets for 1"):
        heat_maps(patch_model(), [image], [0, 1])


def test_hooks_go_even_when_the_block_fails_with_an_index_error():
    model = patch_model()
    with pytest.raises(IndexError), explainer(model) as explain:
        explain(torch.zeros(1, 3, 64, 64), [99])
    assert not any(layer._forward_hooks for layer in model.module.modules())


def test_a_map_without_evidence_stays_zero():
    maps = unit_peak(np.stack([np.zeros((4, 4)), np.full((4, 4), np.nan), np.eye(4) * 5 - 1]))
    assert maps[0].max() == 0
    assert maps[1].max() == 0
    assert maps[2].tolist() == np.eye(4).tolist()
