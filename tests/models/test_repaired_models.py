"""`repaired:FOLDER` opens the network that was saved: the same logits, and no other network by a damaged card."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from unswayed.errors import UserError
from unswayed.labels import LabelSpace
from unswayed.models.classifier import Classifier
from unswayed.models.opening import open_model
from unswayed.models.repaired import for_classes, save_repaired

NO_PHOTOGRAPHS = np.zeros(0, np.uint64)
OWN = LabelSpace("own", ("cat", "dog", "cow"))


def saved(model, folder, base=None):
    save_repaired(folder, model, base or model, {"arm": "repaired"}, NO_PHOTOGRAPHS)
    return open_model(f"repaired:{folder}", device="cpu")


def logits(model):
    side = model.transform.crop
    return model.logits(torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize(
    "options", ["test_resnet?global_pool=max", "test_vit?img_size=96", "test_vit?global_pool=avg&drop_rate=0.1"]
)
def test_a_network_of_timm_keeps_its_options_also_when_it_is_repaired_twice(options, tmp_path):
    base = open_model(f"timm:{options}&weights=none&crop=96&resize=96", device="cpu")
    model = for_classes(base, OWN, 0)
    once = saved(model, tmp_path / "once", base)
    twice = saved(once, tmp_path / "twice")
    assert torch.equal(logits(once), logits(model)) and torch.equal(logits(twice), logits(model))


def test_a_network_of_torchvision_keeps_what_its_weights_need(tmp_path):
    from torchvision.models import googlenet

    torch.manual_seed(0)
    torch.save(googlenet(weights=None, init_weights=False).state_dict(), tmp_path / "weights.pt")
    base = open_model(f"torchvision:googlenet/IMAGENET1K_V1?checkpoint={tmp_path / 'weights.pt'}", device="cpu")
    assert base.module.transform_input and isinstance(base.module.train()(torch.zeros(2, 3, 64, 64)), torch.Tensor)
    model = for_classes(base, OWN, 0)
    assert torch.equal(logits(saved(model, tmp_path / "out", base)), logits(model))


def test_a_network_of_torchvision_that_computes_its_widths_is_opened_again(tmp_path):
    from torchvision.models import regnet_x_400mf

    origin = {"library": "torchvision 0", "architecture": "regnet_x_400mf"}
    network = regnet_x_400mf(num_classes=3)
    model = Classifier(network, {"resize": 64, "crop": 64}, OWN, "mine", device="cpu", origin=origin)
    assert torch.equal(logits(saved(model, tmp_path)), logits(model))


def test_a_transformer_of_torchvision_keeps_its_picture_size(tmp_path, monkeypatch):
    from torchvision.models import VisionTransformer, _api

    def small(weights=None, image_size=224, **settings):
        return VisionTransformer(image_size, 32, 1, 2, 16, 16, **settings)

    small.__module__ = "torchvision.models.vision_transformer"  # a classifier, by the library's own rule
    monkeypatch.setitem(_api.BUILTIN_MODELS, "vit_small", small)
    origin = {"library": "torchvision 0", "architecture": "vit_small", "settings": {"image_size": 96}}
    transform = {"resize": 96, "crop": 96}
    model = Classifier(small(image_size=96, num_classes=3), transform, OWN, "mine", device="cpu", origin=origin)
    assert torch.equal(logits(saved(model, tmp_path)), logits(model))


def test_a_network_that_a_name_does_not_describe_is_not_replaced_by_the_one_of_that_name(tmp_path):
    import timm

    network = timm.create_model("test_resnet", num_classes=3, global_pool="max")
    with pytest.raises(UserError, match="cannot be opened by name"):
        saved(Classifier(network, {"resize": 96, "crop": 96}, OWN, "mine", device="cpu"), tmp_path)


def test_where_the_first_weights_came_from_is_no_setting_of_a_repaired_network(tmp_path):
    small = "timm:hybrid_resnet50_vits?weights=none&depth=1&backbone_pretrained=False"
    again = saved(for_classes(open_model(small, device="cpu"), OWN, 0), tmp_path)
    assert again.origin["settings"] == {"depth": 1}


def test_the_base_in_a_card_is_the_model_behind_an_alias(tmp_path):
    base = open_model("mine=timm:test_resnet?weights=none", device="cpu")
    saved(base, tmp_path)
    assert json.loads((tmp_path / "card.json").read_bytes())["base"] == "timm:test_resnet?weights=none"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"checkpoint_path": "/etc/passwd"}}, "checkpoint_path"),
        ({"settings": {"pretrained": True}}, "pretrained"),
        ({"settings": {"backbone_pretrained": True}}, "backbone_pretrained"),
        ({"settings": {"pretrained_cfg": "a1_in1k"}}, "pretrained_cfg"),
        ({"settings": {"device": "cpu"}}, "device"),
        ({"settings": {"num_classes": 7}}, "num_classes"),
        ({"settings": {"block_args": {"a": 1}}}, "block_args"),
        ({"settings": {"global_pool": "a" * 101}}, "global_pool"),
        ({"settings": {"stem_width": 10**9}}, "stem_width"),
        ({"settings": {"stem_width": 4096}}, "does not fit"),
        ({"settings": {"made_up": 1}}, "does not fit"),
        ({"settings": [1]}, "settings"),
        ({"library": "torchvision", "name": "resnet18", "settings": {"progress": True}}, "progress"),
        ({"name": "test_vit", "settings": {"num_heads": 0}}, "does not fit"),
        ({"settings": {"pruned": True}}, "does not fit"),
        ({"name": "hf-hub:some/model"}, "name in timm or torchvision"),
        ({"name": "HF_HUB:some/model"}, "name in timm or torchvision"),
        ({"name": "local-dir:/tmp"}, "name in timm or torchvision"),
        ({"library": "transformers", "name": "google/vit-base-patch16-224"}, "name in timm or torchvision"),
        ({"name": "made_up"}, "does not fit"),
        ({"name": None}, "name"),
    ],
)
def test_a_card_with_other_settings_than_those_of_a_network_is_refused(change, message, tmp_path):
    saved(open_model("timm:test_resnet?global_pool=max&weights=none", device="cpu"), tmp_path)
    card = json.loads((tmp_path / "card.json").read_bytes())
    card["architecture"] |= change
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(UserError, match=message):
        open_model(f"repaired:{tmp_path}", device="cpu")
