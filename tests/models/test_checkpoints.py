"""Foreign checkpoints: prefixes and wrappers are taken off, code is never unpickled, a poor fit is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from command_line import refused
from unswayed.errors import UserError
from unswayed.models import open_model
from unswayed.models.weights import load_foreign, unwrap, weights_hash


def network(classes: int = 12) -> torch.nn.Module:
    import timm

    torch.manual_seed(1)
    return timm.create_model("test_resnet", pretrained=False, num_classes=classes)


def prefixed(state: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {prefix + name: tensor for name, tensor in state.items()}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: prefixed(state, "module."),
        lambda state: {"state_dict": prefixed(state, "model."), "epoch": 3},
        lambda state: {"model": prefixed(state, "module.model."), "optimizer": {"lr": 0.1}},
        lambda state: {"state_dict": prefixed(state, "model.") | {"loss.weight": torch.ones(3)}},
    ],
)
def test_a_checkpoint_loads_in_whatever_it_is_wrapped(tmp_path: Path, wrap: Any) -> None:
    state = network().state_dict()
    torch.save(wrap(state), tmp_path / "weights.pt")
    names = tmp_path / "names.txt"
    names.write_text("\n".join(f"thing {index}" for index in range(12)))
    model = open_model(f"timm:test_resnet?checkpoint={tmp_path}/weights.pt&labels={names}", device="cpu")
    assert model.labels.classes[3] == "thing 3"
    assert weights_hash(model.module) == weights_hash(network())


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "ran"),)

    torch.save({"state_dict": Evil()}, tmp_path / "evil.pt")
    with refused("torch.save", given="evil.pt holds more than tensors"):
        open_model(f"timm:test_resnet?checkpoint={tmp_path}/evil.pt")
    assert not (tmp_path / "ran").exists()


# Their files of tensors do not end with the classifier: names are not in the module's order there.
ARCHITECTURES = [
    "timm:convnext_atto",
    "timm:regnety_002",
    "timm:seresnet18",
    "timm:mobilenetv3_small_050",
    "timm:deit_tiny_distilled_patch16_224",
    "timm:levit_128s",
    "torchvision:mobilenet_v3_small",
    "torchvision:squeezenet1_1",
    "torchvision:shufflenet_v2_x0_5",
]


@pytest.mark.parametrize("classes", [1000, 7])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_classifier_says_how_many_classes(tmp_path: Path, name: str, classes: int) -> None:
    import timm
    import torchvision
    from safetensors.torch import save_file

    source, _, architecture = name.partition(":")
    build = timm.create_model if source == "timm" else torchvision.models.get_model
    module = build(architecture, num_classes=classes)
    state = module.state_dict()
    save_file(prefixed(state, "module."), tmp_path / "weights.safetensors")
    torch.save(dict(sorted(state.items(), reverse=True)), tmp_path / "weights.pt")
    for file in ("weights.safetensors", "weights.pt"):
        model = open_model(f"{name}?checkpoint={tmp_path}/{file}", device="cpu")
        assert len(model.labels) == classes
        assert weights_hash(model.module) == weights_hash(module)


def test_an_architecture_of_a_folder_has_its_classifier_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architecture": "test_resnet"}')
    torch.save(network().state_dict(), tmp_path / "weights.pt")
    model = open_model(f"timm:local-dir:{tmp_path}?checkpoint={tmp_path}/weights.pt", device="cpu")
    assert len(model.labels) == 12


@pytest.mark.parametrize("name", ["timm:test_resnet", "torchvision:squeezenet1_1"])
def test_labels_of_another_number_are_refused(tmp_path: Path, name: str) -> None:
    import torchvision

    module = network() if name.startswith("timm") else torchvision.models.get_model("squeezenet1_1", num_classes=12)
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    (tmp_path / "names.txt").write_text("cat\ndog")
    with pytest.raises(UserError, match="names 2 classes, but the model has 12 outputs"):
        open_model(f"{name}?checkpoint={tmp_path}/weights.pt&labels={tmp_path}/names.txt", device="cpu")


@pytest.mark.parametrize("content", [b"", b"not a file of tensors", b"\xff" * 64])
@pytest.mark.parametrize("file", ["weights.safetensors", "weights.pt"])
def test_a_broken_file_is_named(tmp_path: Path, file: str, content: bytes) -> None:
    (tmp_path / file).write_bytes(content)
    with refused(r"copy or fetch the file again", given=rf"{file} \([0-9]+ bytes\) is truncated or not "):
        open_model(f"timm:test_resnet?checkpoint={tmp_path}/{file}")


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    torch.save({"layer.weight": torch.ones(2, 2)}, tmp_path / "other.pt")
    with pytest.raises(UserError, match="lacks .* of the .* tensors"):
        open_model(f"timm:test_resnet?checkpoint={tmp_path}/other.pt")


def test_another_number_of_classes_is_named() -> None:
    with pytest.raises(UserError, match="another number of classes"):
        load_foreign(network(10), network(12).state_dict(), "weights.pt")


def test_a_file_without_weights_is_refused() -> None:
    with pytest.raises(UserError, match="holds no state dict"):
        unwrap({"epoch": 3, "notes": "none"})


def test_the_hash_follows_the_weights() -> None:
    one, other = network(), network()
    assert weights_hash(one) == weights_hash(other)
    with torch.no_grad():
        next(other.parameters()).view(-1)[0] += 1e-6
    assert weights_hash(one) != weights_hash(other)


def test_a_checkpoint_with_a_changed_byte_is_refused(tmp_path: Path) -> None:
    import timm

    module = timm.create_model("test_resnet")
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    data = bytearray((tmp_path / "weights.pt").read_bytes())
    data[data.index(module.state_dict()["fc.weight"].numpy().tobytes()) + 3] ^= 1
    (tmp_path / "weights.pt").write_bytes(data)
    with pytest.raises(UserError, match="weights.pt is damaged: 1 of its"):
        open_model(f"timm:test_resnet?checkpoint={tmp_path}/weights.pt")
