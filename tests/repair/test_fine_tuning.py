"""The fine-tune itself: resumed to the last digit, stopped by NaN and by a full disk without losing anything."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file

from betrayed import small_classifier, write_photographs
from small_runs import SETTINGS, small_run
from unswayed.errors import UserError
from unswayed.models.classifier import Classifier
from unswayed.models.opening import open_model
from unswayed.rendering.training import tensors_under
from unswayed.repair import fine_tuning
from unswayed.repair.family import choose_parameters, family_of, make_optimizer
from unswayed.repair.fine_tuning import Progress
from unswayed.repair.photographs import split, training_crops
from unswayed.repair.settings import RepairSettings

HERE = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photographs(tmp_path_factory.mktemp("photos"), 16)


@pytest.fixture(scope="module")
def uninterrupted(photos, tmp_path_factory):
    return small_run(photos, tmp_path_factory.mktemp("whole"))


def test_killed_and_resumed_has_the_same_losses_to_the_last_digit(photos, uninterrupted, tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    script = [sys.executable, str(HERE / "killed_run.py"), str(photos), str(tmp_path), "5"]
    killed = subprocess.run(script, env=environment, capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr.decode()
    seen = []
    resumed = small_run(photos, tmp_path, lambda now: seen.append(now.step))
    assert seen[0] == 5, "it starts again after the last step that was saved"
    assert resumed.history["losses"] == uninterrupted.history["losses"]
    assert resumed.history["epochs"] == uninterrupted.history["epochs"]
    whole = uninterrupted.module.state_dict()
    assert all(torch.equal(one, whole[name]) for name, one in resumed.module.state_dict().items())


def test_the_card_says_that_a_consistency_loss_doubles_the_pictures_of_a_step(photos, uninterrupted, tmp_path):
    plain = small_run(photos, tmp_path, settings=replace(SETTINGS, epochs=1, consistency=0.0))
    assert (plain.history["pictures_per_step"], uninterrupted.history["pictures_per_step"]) == (8, 16)


def test_a_run_stops_early_after_as_many_epochs_without_a_better_loss(photos, tmp_path):
    # At this rate no weight changes, so the network as it was stays the best.
    stopped = small_run(photos, tmp_path, settings=replace(SETTINGS, epochs=9, patience=2, learning_rate=1e-30)).history
    assert stopped["best_epoch"] == 0 and [record["epoch"] for record in stopped["epochs"]] == [0, 1, 2]
    assert 9 * stopped["steps"] == 2 * stopped["steps_planned"] and stopped["steps"] == len(stopped["losses"])


def test_the_averaged_weights_are_what_is_kept(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(fine_tuning, "SAVE_EVERY", 0.0)
    weights = []

    def keep(now: Progress | None = None) -> None:
        """The weights of the step before, which is the last that is saved at this time."""
        (path,) = tmp_path.glob("state-*.safetensors")
        weights.append(load_file(path)["module.head.weight"])

    settings = replace(SETTINGS, epochs=1, learning_rate=0.01, ema=0.9)
    kept = small_run(photos, tmp_path, keep, settings).module.state_dict()["head.weight"]
    keep()
    average = weights[0]
    for step, now in enumerate(weights[1:], start=1):
        decay = min(0.9, step / (step + 10))
        average = decay * average + (1 - decay) * now
    assert len(weights) == 4 and torch.allclose(kept, average, atol=1e-6)
    assert not torch.allclose(kept, weights[-1], atol=1e-3)


def test_a_run_with_other_settings_is_not_mixed_into_the_folder(photos, tmp_path):
    small_run(photos, tmp_path, settings=replace(SETTINGS, epochs=1))
    with pytest.raises(UserError, match="other settings"):
        small_run(photos, tmp_path, settings=replace(SETTINGS, epochs=1, seed=1))


@pytest.mark.parametrize("save_every", [0.0, 60.0])
def test_a_run_that_diverges_stops_with_the_step_and_keeps_the_last_good_state(
    photos, tmp_path, monkeypatch, save_every
):
    monkeypatch.setattr(fine_tuning, "SAVE_EVERY", save_every)
    wild = replace(SETTINGS, learning_rate=1e30)
    with pytest.raises(UserError, match=r"not a finite number at step 2 of 9; .* state, after step 0,") as caught:
        small_run(photos, tmp_path, settings=wild)
    assert str(tmp_path) in str(caught.value)
    (kept,) = tmp_path.glob("state-*.safetensors")
    untouched = small_classifier().module.state_dict()
    assert all(torch.equal(one, untouched[name]) for name, one in tensors_under(load_file(kept), "module.").items())
    assert json.loads((tmp_path / "state.json").read_bytes())["losses"] == []
    calm = small_run(photos, tmp_path, settings=replace(wild, learning_rate=1e-3))
    assert len(calm.history["losses"]) == 9 and np.isfinite(calm.history["losses"]).all()


class InfiniteGradient(torch.autograd.Function):
    @staticmethod
    def forward(context, logits):
        return logits.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient * float("inf")


class Overflowing(torch.nn.Module):
    """A network whose fifth training pass has a finite loss and infinite gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.passes = small_classifier().module, 0

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        self.passes += self.training
        logits: torch.Tensor = self.inner(pixels)
        return InfiniteGradient.apply(logits) if self.training and self.passes == 5 else logits


def test_a_step_with_an_infinite_gradient_is_not_taken(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(fine_tuning, "SAVE_EVERY", 0.0)
    model = replace(small_classifier(), module=Overflowing())
    # Two passes in each step: the third step is the first that cannot be taken.
    with pytest.raises(UserError, match="the gradient of the repaired run .* at step 3 of 9; .* after step 1,"):
        small_run(photos, tmp_path, model=model)
    (kept,) = tmp_path.glob("state-*.safetensors")
    assert all(one.isfinite().all() for one in load_file(kept).values())
    assert len(json.loads((tmp_path / "state.json").read_bytes())["losses"]) == 1


def test_a_full_disk_is_said_and_what_was_saved_before_is_kept(photos, uninterrupted, tmp_path, monkeypatch):
    monkeypatch.setattr(fine_tuning, "SAVE_EVERY", 0.0)
    real, calls = os.fsync, []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(UserError, match="the disk is full"):
            small_run(photos, tmp_path)
    assert small_run(photos, tmp_path).history["losses"] == uninterrupted.history["losses"]


def test_every_part_of_a_network_can_be_trained_alone():
    model = open_model("lite:0", device="cpu")
    module = model.module
    head = choose_parameters(model, module, RepairSettings(train="head"))
    last = choose_parameters(model, module, RepairSettings(train="last"))
    all_ = choose_parameters(model, module, RepairSettings(train="all"))
    assert head == ["classifier.weight", "classifier.bias"]
    assert set(head) < set(last) < set(all_) and not any(name.startswith("conv_stem") for name in last)
    assert choose_parameters(small_classifier(), small_classifier().module, RepairSettings(train="head"))


def timm_model(name: str, spec: str = "own") -> Classifier:
    module = timm.create_model(name, num_classes=3)
    return Classifier(module, small_classifier().transform, ["a", "b", "c"], spec, device="cpu")  # type: ignore[arg-type]


def decided_for(model: Classifier, photographs: int = 100) -> tuple[set[float], dict[str, Any]]:
    module = model.module.requires_grad_(True)
    optimizer, decided = make_optimizer(family_of(model), module, RepairSettings(), photographs)
    return {group["rate"] for group in optimizer.param_groups}, decided


def test_families_differ_in_rate_and_layer_decay():
    convolutional, transformer = timm_model("resnet18"), timm_model("vit_tiny_patch16_224")
    assert family_of(convolutional).name == "convolutional" and family_of(transformer).name == "transformer"
    rates, decided = decided_for(transformer)
    assert decided["layer_decay"] == 0.75 and len(rates) > 5 and decided["freeze_norm"]
    assert not decided_for(convolutional, 50_000)[1]["freeze_norm"]


@pytest.mark.parametrize("spec", ["timm:vit_tiny_patch16_224?weights=none", "mine=timm:x?drop_rate=0&weights=none"])
def test_random_weights_are_all_trained_at_one_higher_rate_with_their_own_statistics(spec):
    trained = decided_for(timm_model("vit_tiny_patch16_224"))[1]
    rates, decided = decided_for(timm_model("vit_tiny_patch16_224", spec))
    assert decided["family"] == "random weights" and decided["layer_decay"] is None and not decided["freeze_norm"]
    assert rates == {decided["learning_rate"]} and decided["learning_rate"] > trained["learning_rate"]


def test_a_split_keeps_the_share_of_every_class_and_leaves_each_something_to_train_on():
    labels = np.repeat([0, 1, 2], [50, 20, 1])
    test, validation, rest = split(labels, (0.2, 0.1), 0)
    assert np.bincount(labels[test], minlength=3).tolist() == [10, 4, 0]
    assert np.bincount(labels[validation], minlength=3).tolist() == [5, 2, 0]
    assert sorted([*test, *validation, *rest]) == list(range(71)) and 70 in rest


def test_training_crops_keep_a_small_object_inside():
    transform = small_classifier().transform
    images = torch.zeros(32, 3, 64, 64, dtype=torch.uint8)
    masks = torch.zeros(32, 1, 64, 64, dtype=torch.uint8)
    images[:, 0, 2:8, 54:62] = 255
    masks[:, 0, 2:8, 54:62] = 255
    crops = training_crops(images, masks, transform, 0.3, torch.Generator().manual_seed(0))
    shares = (crops[:, 0] > 0.5).float().sum(dim=(1, 2))
    assert (shares >= 48 * 0.8).all(), "the whole object, enlarged or as it was"
