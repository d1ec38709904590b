"""Layer-wise decay of the learning rate: on for transformers of every library, off for convolutional networks."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
import torchvision
import transformers
from torch import nn

from betrayed import CLASSES, SIDE, TRANSFORM, small_classifier, write_photographs
from small_runs import small_run
from unswayed.errors import UserError
from unswayed.models.classifier import Classifier
from unswayed.models.heads import Head
from unswayed.models.opening import open_model
from unswayed.models.zero_shot import TowerWithHead
from unswayed.repair.family import check_trainable, choose_parameters, depths_of, family_of, make_optimizer
from unswayed.repair.settings import RepairSettings

VIT: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 64}
SWIN: dict[str, Any] = {"embed_dim": 16, "depths": [2, 1, 2], "num_heads": [1, 2, 4], "window_size": 4}


def torchvision_vit() -> nn.Module:
    return torchvision.models.VisionTransformer(SIDE, 16, 4, 2, 32, 64, num_classes=3)


def torchvision_swin() -> nn.Module:
    return torchvision.models.SwinTransformer([4, 4], 16, [2, 1, 2], [1, 2, 4], [4, 4], num_classes=3)


def of_transformers(kind: str, **settings: Any) -> nn.Module:
    config = getattr(transformers, f"{kind}Config")(num_labels=3, image_size=SIDE, **settings)
    network: nn.Module = getattr(transformers, f"{kind}ForImageClassification")(config)
    return network


def classifier(network: nn.Module) -> Classifier:
    return Classifier(network, TRANSFORM, list(CLASSES), "own", device="cpu")  # type: ignore[arg-type]


def shares(model: Classifier, settings: RepairSettings = RepairSettings()) -> tuple[dict[str, float], dict[str, Any]]:
    """The learning rate of each trained parameter as a share of the full rate, and what the card says."""
    module = model.module
    choose_parameters(model, module, settings)
    optimizer, decided = make_optimizer(family_of(model), module, settings, 100)
    rates = {id(one): group["rate"] for group in optimizer.param_groups for one in group["params"]}
    full = decided["learning_rate"]
    return {name: rates[id(one)] / full for name, one in module.named_parameters() if id(one) in rates}, decided


@pytest.mark.parametrize(
    ("build", "block", "first", "behind"),
    [
        (torchvision_vit, "EncoderBlock", ("class_token", "conv_proj.", "encoder.pos_"), "encoder.ln."),
        (torchvision_swin, "SwinTransformerBlock", "features.0.", "norm."),
        (lambda: of_transformers("ViT", **VIT), "ViTLayer", "vit.embeddings.", "vit.layernorm."),
        (lambda: of_transformers("DeiT", **VIT), "DeiTLayer", "deit.embeddings.", "deit.layernorm."),
        (lambda: of_transformers("Dinov2", **VIT), "Dinov2Layer", "dinov2.embeddings.", "dinov2.layernorm."),
        (lambda: of_transformers("Swin", **SWIN), "SwinLayer", "swin.embeddings.", "swin.layernorm."),
    ],
    ids=["torchvision ViT", "torchvision Swin", "ViT", "DeiT", "DINOv2", "Swin"],
)
def test_the_rate_of_a_transformer_falls_from_the_head_to_the_first_layers(build, block, first, behind):
    network = build()
    rates, decided = shares(classifier(network))
    assert (decided["family"], decided["layer_decay"]) == ("transformer", 0.75)
    blocks = [name for name, part in network.named_modules() if type(part).__name__ == block]
    assert len(blocks) == (5 if "Swin" in block else 4)
    starts = [first, *(f"{name}." for name in blocks), (behind, "head", "classifier.")]
    for depth, start in enumerate(starts):
        inside = [rate for name, rate in rates.items() if name.startswith(start)]
        assert inside and inside == pytest.approx([0.75 ** (len(blocks) + 1 - depth)] * len(inside)), start


def test_every_part_of_a_stage_counts_to_a_block():
    depths = depths_of(torchvision_swin())
    assert depths is not None and depths["features.2.reduction.weight"] == depths["features.1.1.norm1.weight"] == 2


def test_a_transformer_inside_another_network_keeps_the_order_that_timm_states():
    network = timm.create_model("test_vit", num_classes=3)
    alone, inside = (
        depths_of(network),
        depths_of(
            transformers.TimmWrapperForImageClassification(
                transformers.TimmWrapperConfig(architecture="test_vit", num_labels=3)
            )
        ),
    )
    assert alone is not None and inside == {f"timm_model.{name}": depth for name, depth in alone.items()}
    base = classifier(network)
    head = Head(base, base.labels, torch.zeros(3, network.num_features), torch.zeros(3), {}).classifier()
    rates, _ = shares(head)
    assert rates["1.weight"] == 1 and rates["0.norm.weight"] == 0.75


def test_a_projection_behind_the_blocks_is_trained_at_the_full_rate():
    open_clip = pytest.importorskip("open_clip")
    tower = open_clip.transformer.VisionTransformer(SIDE, 16, 32, 4, 2, 2.0, output_dim=8)
    rates, decided = shares(classifier(TowerWithHead(tower, torch.randn(3, 8), None)))
    assert decided["layer_decay"] == 0.75 and rates["tower.proj"] == rates["head.weight"] == 1
    assert rates["tower.class_embedding"] == pytest.approx(0.75**5)


@pytest.mark.parametrize("name", ["cait_xxs24_224", "convit_tiny", "twins_svt_small", "levit_128s", "pit_ti_224"])
def test_transformers_of_timm_are_known_by_any_name_of_their_attention(name):
    rates, decided = shares(classifier(timm.create_model(name, num_classes=3)))
    assert decided["family"] == "transformer" and len(set(rates.values())) > 5


@pytest.mark.parametrize("name", ["skresnet18", "resnest14d", "botnet26t_256", "resnet50_clip"])
def test_attention_within_a_convolutional_network_does_not_make_it_a_transformer(name):
    assert family_of(classifier(timm.create_model(name, num_classes=3))).name == "convolutional"


def test_a_convolutional_network_has_a_decay_only_if_asked_for():
    model = classifier(torchvision.models.resnet18(num_classes=3))
    rates, decided = shares(model)
    assert decided["family"] == "convolutional" and decided["layer_decay"] is None and set(rates.values()) == {1}
    rates, decided = shares(model, RepairSettings(layer_decay=0.5))
    assert rates["conv1.weight"] == 0.5**9 and rates["layer4.1.conv1.weight"] == 0.5 and rates["fc.weight"] == 1


def test_a_layer_decay_is_refused_where_there_is_no_chain_of_blocks():
    with pytest.raises(UserError, match="no chain of repeated blocks") as caught:
        check_trainable(small_classifier(), RepairSettings(layer_decay=0.8))
    assert "no --layer-decay" in str(caught.value)


@pytest.mark.parametrize("name", ["vgg11", "googlenet", "inception_v3"])
def test_layers_alone_and_branches_side_by_side_are_no_chain_of_blocks(name):
    options = {} if name == "vgg11" else {"aux_logits": False, "init_weights": False}
    with torch.device("meta"):
        assert depths_of(torchvision.models.get_model(name, weights=None, **options)) is None


def test_the_last_third_of_the_blocks_is_trained_whole():
    model = classifier(torchvision.models.VisionTransformer(SIDE, 16, 6, 2, 32, 64, num_classes=3))
    last = choose_parameters(model, model.module, RepairSettings(train="last"))
    trained = ("encoder.layers.encoder_layer_4.", "encoder.layers.encoder_layer_5.", "encoder.ln.", "heads.")
    assert last == [name for name, _ in model.module.named_parameters() if name.startswith(trained)]


def test_a_torchvision_model_opened_by_its_name_has_the_defaults_of_its_family(tmp_path):
    torch.save(torchvision.models.swin_t().state_dict(), tmp_path / "swin.pth")
    model = open_model(f"torchvision:swin_t?checkpoint={tmp_path / 'swin.pth'}", device="cpu")
    rates, decided = shares(model)
    assert decided["family"] == "transformer" and decided["learning_rate"] == 2e-4 and decided["layer_decay"] == 0.75
    assert rates["features.0.0.weight"] == pytest.approx(0.75**13) and rates["head.weight"] == 1


def test_a_transformers_folder_is_trained_with_the_decay(tmp_path):
    torch.manual_seed(0)
    of_transformers("ViT", **{**VIT, "patch_size": 16}).save_pretrained(tmp_path / "vit")
    transformers.ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(tmp_path / "vit")
    base = open_model(f"transformers:{tmp_path / 'vit'}", device="cpu")
    settings = RepairSettings(train="all", epochs=1, batch_size=8, fill="smooth", ema=0.0)
    tuned = small_run(write_photographs(tmp_path / "photos", 6), tmp_path / "state", settings=settings, model=base)
    assert (tuned.history["family"], tuned.history["layer_decay"]) == ("transformer", 0.75)
    before, after = base.module.state_dict(), tuned.module.state_dict()
    names = [name for name in before if name.endswith(("fc1.weight", "intermediate.dense.weight"))]
    steps = [float((after[name] - before[name]).abs().max()) for name in names]
    assert len(steps) == 4 and steps == pytest.approx([steps[3] * 0.75 ** (3 - block) for block in range(4)], rel=0.05)
