"""Which networks can be repaired, and with which settings; the others are refused with what is allowed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import save_file

from betrayed import CLASSES, TRANSFORM, small_classifier, write_photographs
from command_line import refused
from unswayed.errors import UserError
from unswayed.labels import LabelSpace
from unswayed.models.classifier import Classifier
from unswayed.models.opening import WRAPPERS, open_model
from unswayed.models.repaired import architecture_of, check_architecture
from unswayed.repair import RepairSettings, repair

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


def test_a_network_without_a_head_is_refused_before_anything_is_read(photos, tmp_path):
    """With few photographs only the head is trained by default."""
    layers = torch.nn.Conv2d(3, len(CLASSES), 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    pooled = replace(small_classifier(), module=torch.nn.Sequential(*layers))
    with refused(given="does not end in a linear layer.* only the head would be trained", run="--train all"):
        repair(f"folder:{photos}", pooled, tmp_path / "out", QUICK)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_a_wrapped_model_is_refused(photos, tmp_path, wrapper):
    with pytest.raises(UserError, match="is a wrapped model"):
        repair(f"folder:{photos}", WRAPPERS.load(wrapper)(small_classifier()), tmp_path, QUICK)


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


def test_the_hybrid_is_a_timm_model():
    model = open_model("timm:hybrid_resnet50_vits?weights=none", device="cpu")
    assert model.transform.crop == 224 and "hybrid_resnet50_vits" in timm.list_models("hybrid*")
    assert model.module.patch_embed.grid_size == (14, 14)


def test_the_hybrid_takes_the_resnet_of_the_papers_appendix_and_no_other():
    spec = "timm:hybrid_resnet50_vits?weights=none&depth=1&backbone="
    model = open_model(f"{spec}resnet50d", device="cpu")
    assert isinstance(model.module.patch_embed.backbone.conv1, torch.nn.Sequential), "the deep stem of ResNet-50-D"
    assert architecture_of(model)["settings"]["backbone"] == "resnet50d"
    with pytest.raises(UserError, match="resnet50d"):
        open_model(f"{spec}resnet18", device="cpu")


def test_the_hybrid_is_trained_from_random_weights_and_opened_again(photos, tmp_path):
    size = "depth=1&img_size=64&crop=64&resize=64"
    base = open_model(f"timm:hybrid_resnet50_vits?weights=none&{size}", device="cpu")
    settings = replace(QUICK, ema=0.0)
    repair(f"folder:{photos}", base, tmp_path, settings, new_head=True, recipe="original,direction", workers=1)
    model = open_model(f"repaired:{tmp_path}", device="cpu")
    assert model.labels.classes == CLASSES and len(model.module.blocks) == 1
    history = json.loads((tmp_path / "card.json").read_bytes())["training"]["history"]
    assert history["layer_decay"] is None and history["family"] == "random weights"
    trained, before = (one.module.patch_embed.backbone for one in (model, base))
    assert (trained.bn1.running_mean != 0).any(), "the statistics of random weights are not kept"
    assert (trained.conv1.weight - before.conv1.weight).abs().max() > 5e-4, "the first layer learns as well"


def test_the_weights_of_a_backbone_are_not_fetched_again_by_a_card():
    model = open_model("timm:hybrid_resnet50_vits?weights=none&depth=1&img_size=64&crop=64", device="cpu")
    settings = {**model.origin["settings"], "backbone_pretrained": True}
    card = architecture_of(replace(model, origin={**model.origin, "settings": settings}))
    assert card["settings"] == model.origin["settings"]
    with pytest.raises(UserError, match="backbone_pretrained"):
        check_architecture({**card, "settings": settings}, "card.json")


@pytest.mark.parametrize("given", [True, False], ids=["cache_dir", "default cache"])
def test_a_backbone_starts_from_the_weights_in_the_cache_of_the_hub(tmp_path, monkeypatch, given):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / ("none" if given else "hub")))
    published = timm.create_model("resnet50").state_dict()
    name = timm.get_pretrained_cfg("resnet50").hf_hub_id
    repository = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    weights = repository / "snapshots" / ("0" * 40) / "model.safetensors"
    weights.parent.mkdir(parents=True)
    save_file(published, weights)
    where = f"&cache_dir={tmp_path / 'hub'}" if given else ""
    size = "depth=1&img_size=64&crop=64&resize=64"
    spec = f"timm:hybrid_resnet50_vits?weights=none&backbone_pretrained=True&{size}{where}"
    model = open_model(spec, device="cpu")
    started = model.module.patch_embed.backbone.state_dict()
    assert started and all(torch.equal(one, published[name]) for name, one in started.items())
    # The repaired model is opened again without the cache.
    assert architecture_of(model)["settings"] == {"depth": 1, "img_size": 64}


def test_weights_of_a_backbone_that_cannot_be_fetched_are_a_clear_error(monkeypatch):
    def offline(*arguments, **options):
        raise FileNotFoundError("there is no connection")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(UserError, match="could not be loaded: there is no connection"):
        open_model("timm:hybrid_resnet50_vits?weights=none&backbone_pretrained=True", device="cpu")
