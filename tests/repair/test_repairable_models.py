"""Which networks can be repaired, and with which settings; the others are refused with what is allowed."""

from __future__ import annotations

import pytest
import torch
from betrayed import TRANSFORM, small_classifier, write_photographs

from unfazed.errors import UserError
from unfazed.labels import LabelSpace
from unfazed.models.classifier import Classifier
from unfazed.models.registry import open_model
from unfazed.models.wrappers import WRAPPERS
from unfazed.repair import RepairSettings, repair

QUICK = RepairSettings(epochs=1, batch_size=8, fill="smooth")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photographs(tmp_path_factory.mktemp("photos"), 4)


def test_bad_input_is_refused_with_what_is_allowed(photos, tmp_path):
    other = Classifier(
        small_classifier().module, TRANSFORM, LabelSpace("own", ("car", "bus", "tram")), "vehicles", device="cpu"
    )
    with pytest.raises(UserError, match="no counterpart") as caught:
        repair(f"folder:{photos}", other, tmp_path, QUICK)
    assert "--new-head" in str(caught.value)
    with pytest.raises(UserError, match="has a mask"):
        repair(f"images:{photos}", small_classifier(), tmp_path, QUICK)


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_a_wrapped_model_is_refused(photos, tmp_path, wrapper):
    with pytest.raises(UserError, match="is a wrapped model"):
        repair(f"folder:{photos}", WRAPPERS[wrapper](small_classifier()), tmp_path, QUICK)


@pytest.mark.parametrize(
    "wrong",
    [
        {"train": "tail"},
        {"epochs": 0},
        {"batch_size": 8, "accumulate": 3},
        {"learning_rate": 0.0},
        {"learning_rate": float("inf")},
        {"layer_decay": -1.0},
        {"layer_decay": 1.5},
        {"weight_decay": float("nan")},
        {"consistency": -1.0},
        {"seed": -1},
    ],
    ids=str,
)
def test_a_setting_out_of_its_range_is_refused(wrong):
    with pytest.raises(UserError, match="allowed: "):
        RepairSettings(**wrong)


def test_the_hybrid_is_a_timm_model_that_can_be_trained():
    import timm

    model = open_model("timm:hybrid_resnet50_vits?weights=none", device="cpu")
    assert model.transform.crop == 224 and "hybrid_resnet50_vits" in timm.list_models("hybrid*")
    small = timm.create_model("hybrid_resnet50_vits", num_classes=3, depth=1)
    small(torch.zeros(2, 3, 224, 224)).sum().backward()
    assert small.patch_embed.grid_size == (14, 14) and small.patch_embed.backbone.conv1.weight.grad is not None
