"""Foreign checkpoints: prefixes and wrappers are taken off, code is never unpickled, a poor fit is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from unfazed.errors import UserError
from unfazed.models import open_model
from unfazed.models.weights import load_foreign, unwrap, weights_hash


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
    with pytest.raises(UserError, match="cannot be read as weights alone"):
        open_model(f"timm:test_resnet?checkpoint={tmp_path}/evil.pt")
    assert not (tmp_path / "ran").exists()


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
