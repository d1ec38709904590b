"""The critic: what looks alike is near, what looks different is far, and training with it asks for likeness."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from small_critic import write_small_critic
from unswayed.errors import UserError
from unswayed.rendering.training.perceptual import load_critic, shifted


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_small_critic(tmp_path_factory.mktemp("critic") / "critic.safetensors")


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
    torch.testing.assert_close(critic._chain(pictures(), "", "conv"), F.relu(normed), rtol=1e-4, atol=1e-5)


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
    (tmp_path / "bad.pt").write_bytes(b"not a network")
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    torch.save([1, 2], tmp_path / "list.pt")
    reasons = {"none.pt": "there is no file", "bad.pt": "not a weights file"}
    reasons |= dict.fromkeys(("other.safetensors", "list.pt"), "does not contain FID's Inception")
    for name, reason in reasons.items():
        with pytest.raises(UserError, match=reason) as error:
            load_critic(tmp_path / name)
        assert "unswayed weights fetch inception" in str(error.value)


def test_a_torchscript_program_is_not_opened(tmp_path):
    class Program(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.loaded = False

        @torch.jit.export
        def __getstate__(self):
            return False, self.training

        @torch.jit.export
        def __setstate__(self, state: tuple[bool, bool]):
            self.loaded = state[0]
            self.training = state[1]
            assert state[0], "the program ran when it was loaded"

        def forward(self, x):
            return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(Program()), tmp_path / "program.pt")
    with pytest.raises(UserError, match="TorchScript") as error:
        load_critic(tmp_path / "program.pt")
    assert "ran when it was loaded" not in str(error.value)
