"""Ten crops, mirror images, closer looks, adapted batch norm, and the layers that heat maps look at."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision import transforms as library

from unswayed.errors import UserError
from unswayed.models import Classifier, Transform
from unswayed.models.classifier import HeatLayer, find_heat_layer
from unswayed.models.wrappers import FlipAverage, ObjectCrop, bn_adapt, boxes, tencrop


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.stem(x))).mean((2, 3)))


def model(module: nn.Module | None = None) -> Classifier:
    torch.manual_seed(0)
    return Classifier(module or Tiny(), Transform(20, 16), ["a", "b", "c", "d"], "tiny", device="cpu")  # type: ignore[arg-type]


def image(side: int = 40) -> np.ndarray:
    return np.random.default_rng(side).integers(0, 256, (side, side, 3), dtype=np.uint8)


def test_ten_crops_average_logits_or_probabilities():
    plain = model()
    wide = 40 * torch.randn(2, 3, 18, 18, generator=torch.Generator().manual_seed(0))
    by_logits, by_probability = tencrop(plain), tencrop(plain, probability=True)
    views = list(by_logits.module.views(wide))
    with torch.no_grad():
        answers = torch.stack([plain.module(view) for view in views])
        assert torch.allclose(by_logits.module(wide), answers.mean(0), atol=1e-5)
        assert torch.allclose(by_probability.module(wide).softmax(1), answers.softmax(2).mean(0), atol=1e-5)
        assert not torch.allclose(by_logits.module(wide).softmax(1), answers.softmax(2).mean(0), atol=1e-5)
    assert by_probability.with_transform("paper").module.probability


def test_ten_crops_equal_torchvisions() -> None:
    plain = model()
    wrapped = tencrop(plain)
    steps = [library.Resize(20), library.TenCrop(16)]
    views = library.Compose(steps)(Image.fromarray(image()))
    crops = torch.stack([library.functional.to_tensor(view) for view in views])
    expected = plain.logits(plain.transform.normalize(crops)).mean(0)
    assert torch.allclose(wrapped.logits(wrapped.prepare(image())[None])[0], expected, atol=1e-5)


def test_ten_crops_of_a_model_that_crops_nothing_see_a_larger_picture() -> None:
    torch.manual_seed(0)
    plain = Classifier(Tiny(), Transform(16, 16), ["a", "b", "c", "d"], device="cpu")  # type: ignore[arg-type]
    assert tencrop(plain).transform.crop == 18


def test_adapted_statistics_are_those_of_the_pictures() -> None:
    plain = model()
    adapted = bn_adapt(plain)
    batches = [torch.randn(8, 3, 16, 16) * 3 + 1 for _ in range(3)]
    assert adapted.adapt is not None
    adapted.adapt(batches)
    means = torch.stack([plain.module.stem(batch).mean((0, 2, 3)) for batch in batches]).mean(0)
    assert torch.allclose(adapted.module.norm.running_mean, means, atol=1e-5)
    assert torch.equal(plain.module.norm.running_mean, torch.zeros(8))
    assert not adapted.module.norm.training


def test_adapting_and_cropping_may_come_in_any_order() -> None:
    batches = [torch.randn(8, 3, 20, 20) * 3 + 1 for _ in range(3)]
    answers = []
    for wrapped in (tencrop(bn_adapt(model())), bn_adapt(tencrop(model()))):
        assert wrapped.adapt is not None
        wrapped.adapt(batches)
        answers.append(wrapped.logits(batches[0]))
    assert torch.allclose(*answers, atol=1e-5)


def test_a_model_without_batch_norm_cannot_adapt() -> None:
    with pytest.raises(UserError, match="has no batch norm"):
        bn_adapt(model(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4))))


@pytest.mark.parametrize(
    ("name", "side", "layer", "reshape", "prefix"),
    [
        ("test_resnet", 96, "layer4", "none", 0),
        ("test_vit", 160, "blocks.5.norm1", "tokens", 1),
        ("test_efficientnet", 96, "bn2", "none", 0),
        ("swin_s3_tiny_224", 224, "norm", "channels-last", 0),
    ],
)
def test_heat_layers(name: str, side: int, layer: str, reshape: str, prefix: int) -> None:
    import timm

    module = timm.create_model(name, pretrained=False).eval()
    found = find_heat_layer(module, torch.zeros(1, 3, side, side))
    assert (found.name, found.reshape, found.prefix) == (layer, reshape, prefix)
    caught = []
    hook = found.module(module).register_forward_hook(lambda *parts: caught.append(parts[-1]))
    module(torch.zeros(2, 3, side, side))
    hook.remove()
    assert found.as_maps(caught[0]).shape[0] == 2
    assert found.as_maps(caught[0]).shape[2:] == (found.height, found.width)


def test_a_chosen_layer_must_have_places() -> None:
    with pytest.raises(UserError, match="did you mean 'norm'"):
        find_heat_layer(Tiny(), torch.zeros(1, 3, 16, 16), "nrm")
    assert find_heat_layer(Tiny(), torch.zeros(1, 3, 16, 16), "stem").height == 7


def test_tokens_go_to_their_places() -> None:
    from unswayed.models import HeatLayer

    tokens = torch.arange(10.0).view(1, 10, 1)
    maps = HeatLayer("x", "tokens", 3, 3, prefix=1).as_maps(tokens)
    assert maps[0, 0].tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]


def test_gradients_reach_the_pixels() -> None:
    pixels = torch.rand(2, 3, 40, 40, requires_grad=True)
    model().differentiable(pixels).sum().backward()
    assert pixels.grad is not None
    assert pixels.grad.abs().sum() > 0


def test_outputs_and_labels_must_agree() -> None:
    short = Classifier(Tiny(), Transform(20, 16), ["a", "b", "c"], "tiny", device="cpu")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"returns the shape \(1, 4\).*has 3 classes"):
        short.logits(torch.zeros(1, 3, 16, 16))


class Columns(nn.Module):
    """Logits from the mean of the left half and of the right half; its first layer is a known heat map."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.AvgPool2d(8)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        maps = self.features(pixels).mean(1)
        half = maps.shape[-1] // 2
        return torch.stack([maps[..., :half].mean((1, 2)), 3 * maps[..., half:].mean((1, 2))], dim=1)


def test_the_flipped_answer_is_the_mean_of_two_passes() -> None:
    pixels = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    network = Columns()
    both = FlipAverage(network)(pixels)
    assert torch.allclose(both, (network(pixels) + network(pixels.flip(-1))) / 2)
    assert torch.allclose(both, both.mean(1, keepdim=True) * torch.tensor([0.5, 1.5])), "each half counts the same"


def test_the_box_of_a_known_heat_map() -> None:
    heat = torch.zeros(3, 8, 8)
    heat[0, 2:6, 1:4] = 1.0  # rows 2 to 6 and columns 1 to 4 of 8
    heat[1, 7, 7] = 1.0
    heat[2] = 1.0
    middle, extent = boxes(heat)
    assert extent.tolist() == pytest.approx([4 / 8 * 1.3, 0.35, 1.0])
    assert middle[0].tolist() == pytest.approx([0.325, 0.5]), "moved so that the square stays inside"
    assert middle[1].tolist() == pytest.approx([1 - 0.175] * 2) and middle[2].tolist() == [0.5, 0.5]


def test_the_closer_look_is_a_crop_around_the_hot_place() -> None:
    pixels = torch.zeros(1, 3, 64, 64)
    pixels[:, :, 16:32, 16:32] = 1.0
    network = Columns()
    given: list[torch.Tensor] = []
    network.register_forward_hook(lambda _, inputs, output: given.append(inputs[0]))
    look = ObjectCrop(network, 64, HeatLayer("features", "none", 8, 8), 2)
    mean = look(pixels)
    assert len(given) == 2 and torch.equal(given[0], pixels)
    assert torch.allclose(mean, (Columns()(given[0]) + Columns()(given[1])) / 2)
    # A square of 16 pixels is 0.25 of the side; the smallest closer look shows 0.35 of it.
    assert given[1].mean().item() == pytest.approx((0.25 / 0.35) ** 2, abs=0.02)
