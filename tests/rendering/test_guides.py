"""What may guide an adversarial edit, and what is refused when it is opened."""

from pathlib import Path

import numpy as np
import pytest
import torch

from adm_reference import classifier_state, written
from command_line import refused
from unswayed.edits.composition import Guidance
from unswayed.errors import UserError
from unswayed.evaluation.inputs import guides_of
from unswayed.rendering import load_network
from unswayed.rendering.diffusion import open_diffusion
from unswayed.rendering.layers import Layers, Refusal, Rendering
from unswayed.rendering.sampling.guidance import adversarial, open_guide

WEIGHTS = Path(__file__).parent.parent / "data" / "adm_mini_weights.safetensors"


def opened(guide):
    return open_diffusion(
        load_network(WEIGHTS, image_size=32),
        steps=10,
        guide=guide,
        device="cpu",
        precision="fp32",
        guidance="calibrated",
    )


def edited(guide, label=3):
    picture = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    alpha = np.zeros((32, 32), np.float32)
    alpha[8:20, 8:20] = 1
    return opened(guide).render([Layers(picture, alpha, picture, 0.5, Guidance("adversarial", 20.0), label, 0)])[0]


def linear(pictures):
    return pictures.flatten(1)[:, :10]


def test_the_noisy_classifier_guides_by_its_file(tmp_path):
    path = str(written(tmp_path, classifier_state(), num_head_channels=32))
    answer = edited(path)
    assert isinstance(answer, Rendering)
    assert answer.measures["guide"] == "net_weights"
    assert not np.array_equal(answer.image, edited(linear).image)


def test_a_noisy_classifier_of_another_size_is_refused(tmp_path):
    path = written(tmp_path, classifier_state(places=64), num_head_channels=32)
    with pytest.raises(UserError, match="net_weights.safetensors takes 64×64 pictures, the network makes 32×32"):
        opened(str(path))


def test_nan_in_a_guides_weights_is_refused_and_named(tmp_path):
    state = classifier_state()
    state["out.2.c_proj.bias"][0] = float("nan")
    path = written(tmp_path, state, num_head_channels=32)
    with pytest.raises(UserError, match="net_weights.safetensors hold NaN or infinity in 1 tensors"):
        opened(str(path))


@pytest.mark.parametrize(
    ("guide", "words"),
    [
        (lambda pictures: pictures, r"returns a tensor of shape \(1, 3, 32, 32\) for a picture \(1, 3, 32, 32\)"),
        (lambda pictures: pictures.sum(), r"a tensor of shape \(\)"),
        (lambda pictures: [1.0], "returns a list"),
        (lambda pictures: linear(pictures).detach(), "returns logits without a gradient"),
        (lambda pictures: linear(pictures) * float("nan"), "returns NaN or infinity for a gray picture"),
    ],
)
def test_a_function_that_cannot_guide_is_refused_when_it_is_opened(guide, words):
    with pytest.raises(UserError, match=words):
        opened(guide)


def test_a_label_that_a_function_does_not_answer_is_refused_for_its_picture():
    assert isinstance(edited(linear, 9), Rendering)
    answer = edited(linear, 10)
    assert isinstance(answer, Refusal)
    assert "needs a label that linear knows, not 10" in answer.reason


def test_nan_on_the_way_names_the_guide_as_well():
    def late(pictures):
        return linear(pictures) * torch.where(pictures.std() > 0.01, float("nan"), 1.0)

    answer = edited(late)
    assert isinstance(answer, Refusal)
    assert answer.status == "failed"
    assert "the network, or the guide late, returned NaN" in answer.reason


def test_a_guide_that_does_not_fit_in_memory_is_an_error_of_its_own():
    def large(pictures):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with refused("free -h", given="the guide does not fit on cpu"):
        opened(large)


def test_several_guides_answer_together_and_each_is_known_by_its_weights():
    both, alone = open_guide("lite:0,lite:2"), [open_guide(name) for name in ("lite:0", "lite:2")]
    pictures = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    expected = sum(guide.logits(pictures).log_softmax(1) for guide in alone) / 2
    assert torch.allclose(both.logits(pictures), expected, atol=1e-5)
    assert guides_of({"renderer": {"guide": both.describe()}}) >= {
        *(guide.weights_hash for guide in alone), "lite:0", "lite:2"
    }  # fmt: skip
    # One step along the push costs both guides, where a push against one costs mostly that one.
    label = torch.tensor([3, 3])
    x0 = pictures * 2 - 1
    step = adversarial(both.logits, label, 60.0)(x0)
    for guide in alone:
        before, after = (
            torch.nn.functional.cross_entropy(guide.logits(x.clamp(-1, 1) / 2 + 0.5), label) for x in (x0, x0 + step)
        )
        assert after > before


def test_guides_of_other_classes_cannot_guide_together(tmp_path):
    (tmp_path / "m.py").write_text(
        "import torch\nfrom unswayed.models import Classifier, Transform\n"
        "def load():\n    net = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), "
        "torch.nn.Linear(3, 2))\n    return Classifier(net, Transform(16, 16), labels=['a', 'b'])\n"
    )
    with refused("", given="have different numbers of classes: lite:0 1000"):
        open_guide(f"lite:0,python:{tmp_path}/m.py:load")
