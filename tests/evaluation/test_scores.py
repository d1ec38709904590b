"""Energy, GradNorm and the spectrum against plain reference computations."""

import math

import numpy as np
import pytest
import torch

from unswayed.benchmark.quality import background_amplitude
from unswayed.evaluation.measures import energy, gradnorm
from unswayed.models import open_model
from unswayed.sources import open_source


@pytest.fixture(scope="module")
def answered():
    """A real classifier with its features and logits of three photographs."""
    model = open_model("lite:0", device="cpu")
    head, seen = model.module.classifier, []
    handle = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    batch = torch.stack([model.prepare(scene.image) for scene in open_source("sample", limit=3)])
    logits = model.logits(batch)
    handle.remove()
    return head, seen[0].clone(), logits.clone()


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_energy_is_the_log_of_the_summed_exponents(answered, temperature):
    _, _, logits = answered
    expected = [
        temperature * math.log(math.fsum(math.exp(one / temperature) for one in row)) for row in logits.tolist()
    ]
    assert energy(logits.numpy(), temperature) == pytest.approx(expected, rel=1e-5)


def test_gradnorm_is_the_norm_of_the_gradient_by_the_last_layers_weights(answered):
    head, features, logits = answered
    weight = head.weight.detach().clone().double().requires_grad_()
    expected = []
    for one in features.double():
        answer = one @ weight.T + head.bias.double()
        # KL(uniform || softmax) is minus the mean log probability, up to a constant.
        loss = -torch.log_softmax(answer, 0).mean()
        (gradient,) = torch.autograd.grad(loss, weight)
        expected.append(gradient.abs().sum().item())
    assert gradnorm(features.numpy(), logits.numpy()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("shape", [(64, 48), (33, 64), (40, 21), (7, 9), (1, 5), (6, 1)])
def test_the_amplitude_is_the_mean_size_of_the_fourier_transform(shape):
    image = np.random.default_rng(1).integers(0, 256, (*shape, 3), np.uint8)
    spectrum = np.fft.fft2(image - image.mean(axis=(0, 1)), axes=(0, 1))
    assert background_amplitude(image, np.zeros(shape)) == pytest.approx(np.abs(spectrum).mean() / 255, rel=1e-6)


def test_the_amplitude_of_a_background_ignores_the_object_and_its_size():
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (64, 64, 3), np.uint8)
    mask = np.zeros((64, 64))
    mask[16:48, 16:48] = 1
    painted = image.copy()
    painted[16:48, 16:48] = 255
    assert background_amplitude(image, mask) == background_amplitude(painted, mask)
    assert background_amplitude(image, mask) == pytest.approx(background_amplitude(image, np.zeros((64, 64))), rel=0.05)
    assert math.isnan(background_amplitude(image, np.ones((64, 64))))
    assert background_amplitude(np.full_like(image, 7), mask) == pytest.approx(0, abs=1e-9)
