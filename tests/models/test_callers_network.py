"""A network that somebody is training is in the same state after it was wrapped, measured, explained and repaired."""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from betrayed import CLASSES, TRANSFORM, write_photographs
from unswayed.evaluation.saliency import explainer
from unswayed.models import Classifier, fit_head
from unswayed.models.opening import WRAPPERS
from unswayed.models.runtime import evaluating
from unswayed.repair import RepairSettings, repair

SIDE = TRANSFORM.crop


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 2))
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, len(CLASSES))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.features(pixels).mean((2, 3))))


@pytest.fixture
def module() -> Small:
    torch.manual_seed(0)
    network = Small().train()
    # As in a fine-tune: the statistics and the first layer stay as they are.
    network.features[1].eval()
    network.features[0].requires_grad_(False)
    return network


def state_of(module: nn.Module) -> dict[str, object]:
    return {
        "training": {name: part.training for name, part in module.named_modules()},
        "gradients": {name: (weight.requires_grad, weight.grad) for name, weight in module.named_parameters()},
        "values": {name: value.tolist() for name, value in module.state_dict().items()},
    }


def classifier(module: nn.Module) -> Classifier:
    return Classifier(module, TRANSFORM, CLASSES, "own", device="cpu")  # type: ignore[arg-type]


def pixels(count: int = 3) -> torch.Tensor:
    return torch.randn(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))


def heat_maps(model: Classifier) -> None:
    with explainer(model) as explain:
        assert explain(pixels(), [0, 1, 2]).shape == (3, SIDE, SIDE)


def gradients(model: Classifier) -> None:
    picture = torch.rand(1, 3, SIDE, SIDE, requires_grad=True)
    model.differentiable(picture).sum().backward()
    assert picture.grad is not None and picture.grad.abs().sum() > 0


def head(model: Classifier) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (6, SIDE, SIDE, 3), np.uint8)
    assert repr(fit_head(model, pictures, [0, 1, 0, 1, 0, 1], ["a", "b"])).count("\n") == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda model: None,
        lambda model: model(pixels()),
        lambda model: model.weights_hash,
        lambda model: model.heat_layer,
        lambda model: [WRAPPERS.load(name)(model)(pixels()) for name in WRAPPERS],
        gradients,
        heat_maps,
        head,
    ],
    ids=["wrapped", "called", "hashed", "heat layer", "wrappers", "gradients", "heat maps", "head"],
)
def test_every_use_leaves_the_callers_network_as_it_was(module, use):
    before = state_of(module)
    use(classifier(module))
    assert state_of(module) == before


def test_the_answers_are_those_of_the_network_in_evaluation_mode(module):
    model = classifier(module)
    answers = model(pixels())
    assert torch.equal(answers, model.logits(pixels()))
    assert module.training
    module.eval()
    with torch.no_grad():
        expected = module(pixels().contiguous(memory_format=torch.channels_last))
    assert torch.equal(answers, expected)
    assert repr(model) == f"Classifier('own': {len(CLASSES)} classes, crop {SIDE}, cpu)"


def test_a_long_name_does_not_make_a_long_repr(module):
    model = Classifier(module, TRANSFORM, CLASSES, "python:" + "deep/" * 100 + "net.py:build", device="cpu")
    assert len(repr(model)) < 120


def test_an_error_inside_the_block_also_restores_the_network(module):
    before = state_of(module)
    with contextlib.suppress(RuntimeError), evaluating(module):
        assert not module.training and not module.head.weight.requires_grad
        raise RuntimeError
    assert state_of(module) == before


def test_training_goes_on_after_a_measurement(module):
    optimizer = torch.optim.SGD([weight for weight in module.parameters() if weight.requires_grad], 0.1)
    model = classifier(module)
    for _ in range(2):
        loss = nn.functional.cross_entropy(module(pixels()), torch.tensor([0, 1, 2]))
        before = module.head.weight.detach().clone()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert not torch.equal(module.head.weight, before)
        assert model(pixels()).shape == (3, len(CLASSES))


def test_a_repair_leaves_the_callers_network_as_it_was(module, tmp_path):
    photos = write_photographs(tmp_path / "photos", 4)
    before = state_of(module)
    settings = RepairSettings(epochs=1, batch_size=8, fill="smooth", held_out=0.5)
    out, recipe = tmp_path / "out", "original,position"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        repair(f"folder:{photos}", classifier(module), out, settings, recipe=recipe, workers=1)
    assert state_of(module) == before
