"""The checkpoint layouts of the training codes whose models the paper evaluates: they load, or are refused by name."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unswayed.errors import UserError
from unswayed.models import open_model
from unswayed.models.transforms import IMAGENET_MEAN
from unswayed.models.weights import weights_hash

State = dict[str, torch.Tensor]


def create(architecture: str, **options: Any) -> torch.nn.Module:
    import timm

    torch.manual_seed(3)
    return timm.create_model(architecture, pretrained=False, **options).eval()


def prefixed(state: State, prefix: str) -> State:
    return {prefix + name: tensor for name, tensor in state.items()}


def shuffled(state: State) -> State:
    """Other weights of the same shapes: those of the last epoch, where the averaged ones are wanted."""
    return {name: torch.randn_like(one) if one.is_floating_point() else one for name, one in state.items()}


def robustness(state: State) -> Any:
    """The robustness library: the model twice, and its normalization."""
    inner = {**prefixed(state, "module.model."), **prefixed(state, "module.attacker.model.")}
    return {"model": {**inner, "module.normalizer.new_mean": torch.zeros(3, 1, 1)}, "epoch": 90}


def facebook_convnext(state: State) -> Any:
    """The names of ConvNeXt's own repository."""
    renamed = {}
    for name, one in state.items():
        name = re.sub(r"stages\.(\d+)\.blocks\.(\d+)", r"stages.\1.\2", name)
        name = re.sub(r"stages\.(\d+)\.downsample\.", r"downsample_layers.\1.", name)
        for ours, theirs in (
            ("stem.", "downsample_layers.0."), ("conv_dw", "dwconv"), ("mlp.fc", "pwconv"), ("head.fc.", "head."),
            ("head.norm.", "norm."),
        ):  # fmt: skip
            name = name.replace(ours, theirs)
        renamed[name] = one
    return {"model": renamed}


LAYOUTS: dict[str, tuple[str, str, Any]] = {
    "plain": ("test_resnet", "", lambda state: state),
    "DataParallel": ("test_resnet", "", lambda state: {"state_dict": prefixed(state, "module."), "epoch": 90}),
    "pth.tar with arguments and numbers of numpy": (
        "test_resnet",
        "",
        lambda state: {
            "arch": "resnet50", "state_dict": prefixed(state, "module."), "best_acc1": np.float64(76.1),
            "args": argparse.Namespace(lr=0.1, arch="resnet50"), "optimizer": {"param_groups": [{"lr": 0.1}]},
        },
    ),
    "timm with averaged weights": (
        "test_resnet", "", lambda state: {"state_dict": shuffled(state), "state_dict_ema": state, "arch": "test"},
    ),
    "DeiT with averaged weights": ("test_vit", "", lambda state: {"model": shuffled(state), "model_ema": state}),
    "MAE, average-pooled": ("test_vit", "?global_pool=avg", lambda state: {"model": state, "epoch": 99}),
    "MoCo-v3, fine-tuned": ("test_vit", "", lambda state: {"state_dict": prefixed(state, "module.")}),
    "robustness": ("test_resnet", "", robustness),
    "lightning": (
        "test_resnet",
        "",
        lambda state: {
            "state_dict": {**prefixed(state, "model."), "criterion.weight": torch.ones(3)},
            "pytorch-lightning_version": "2.0.0", "hyper_parameters": {"lr": 0.1},
        },
    ),
    "torch.compile": ("test_resnet", "", lambda state: prefixed(state, "_orig_mod.")),
    "ConvNeXt's own names": ("convnext_atto", "", facebook_convnext),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_published_layout_loads(tmp_path: Path, layout: str) -> None:
    architecture, options, wrap = LAYOUTS[layout]
    module = create(architecture, **({"global_pool": "avg"} if options else {}))
    torch.save(wrap(module.state_dict()), tmp_path / "model_best.pth.tar")
    mark = "&" if options else "?"
    model = open_model(f"timm:{architecture}{options}{mark}checkpoint={tmp_path}/model_best.pth.tar", device="cpu")
    assert weights_hash(model.module) == weights_hash(module)
    side = model.transform.crop
    picture = torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(model.logits(picture), module(picture), atol=1e-4)


REFUSED = {
    "an average-pooled ViT without the option": (
        "test_vit", lambda: {"model": create("test_vit", global_pool="avg").state_dict()}, r"\?global_pool=avg",
    ),
    "MAE before fine-tuning, without a head": (
        "test_vit",
        lambda: {"model": {k: v for k, v in create("test_vit").state_dict().items() if not k.startswith("head")}},
        r"lacks 2 of the .* tensors .*'head.bias'",
    ),
    "MoCo-v3 before fine-tuning": (
        "test_vit",
        lambda: {
            "state_dict": prefixed(
                {k: v for k, v in create("test_vit").state_dict().items() if not k.startswith("head")},
                "module.base_encoder.",
            )
        },
        "lacks .* tensors",
    ),
    "another architecture": ("test_vit", lambda: create("test_resnet").state_dict(), "lacks .* tensors"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, case: str) -> None:
    architecture, content, words = REFUSED[case]
    torch.save(content(), tmp_path / "weights.pth")
    with pytest.raises(UserError, match=words) as found:
        open_model(f"timm:{architecture}?checkpoint={tmp_path}/weights.pth", device="cpu")
    assert "weights.pth" in str(found.value)


def test_any_keyword_of_timm_is_an_option() -> None:
    model = open_model("timm:test_vit?weights=none&global_pool=avg&drop_path_rate=0&num_classes=7", device="cpu")
    assert (model.module.global_pool, len(model.labels)) == ("avg", 7)
    assert model.module.get_submodule("fc_norm").weight.shape[0] > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("global_pol=avg", r"did you mean 'global_pool'"),
        ("window_size=7", r"there is no option of timm:test_vit 'window_size'"),
        ("global_pool=banana", r"timm:test_vit does not take \?global_pool=banana"),
    ],
)
def test_an_option_that_the_architecture_does_not_take_is_refused(options: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        open_model(f"timm:test_vit?weights=none&{options}", device="cpu")


def test_the_assumed_preprocessing_of_a_bare_architecture_is_stated(tmp_path: Path) -> None:
    """A plain ViT has mean 0.5 in timm, the weights of MAE have ImageNet's: the tag decides."""
    import timm

    architecture = "vit_base_patch16_224"
    assert timm.get_pretrained_cfg(architecture).mean == (0.5, 0.5, 0.5)
    assert timm.get_pretrained_cfg(f"{architecture}.mae").mean == IMAGENET_MEAN
    torch.save(create("test_vit").state_dict(), tmp_path / "mine.pth")
    torch.save(create("resnet18").state_dict(), tmp_path / "resnet.pth")
    bare = open_model(f"timm:test_vit?checkpoint={tmp_path}/mine.pth", device="cpu").origin["assumed"]
    assert "does not state its preprocessing: assumed is that of timm's test_vit.r160_in1k, mean (0.5" in bare
    for stated in (f".r160_in1k?checkpoint={tmp_path}/mine.pth", f"?checkpoint={tmp_path}/mine.pth&mean=0.5&std=0.5"):
        assert "assumed" not in open_model(f"timm:test_vit{stated}", device="cpu").origin
    other = open_model(f"torchvision:resnet18?checkpoint={tmp_path}/resnet.pth", device="cpu").origin["assumed"]
    assert "assumed is torchvision's usual one, mean (0.485" in other
