"""A linear head on frozen features: learns, is chosen on held-out pictures, is kept and opened again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from unswayed.errors import UserError
from unswayed.evaluation.inputs import Pictures
from unswayed.models import fit_head, open_model
from unswayed.models.heads import RELEASED, Training, classification_layer, split, train_linear


def colored(label: int, seed: int) -> np.ndarray:
    """A noisy picture that is mostly red, green or blue."""
    image = np.random.default_rng(seed).integers(0, 90, (48, 48, 3), dtype=np.uint8)
    image[..., label] += 120
    return image


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = open_model("lite:0", device="cpu")
    targets = [index % 3 for index in range(24)]
    images = (colored(label, index) for index, label in enumerate(targets))
    head = fit_head(base, images, targets, ["red", "green", "blue"], Training(epochs=60))
    folder = tmp_path_factory.mktemp("head")
    head.save(folder)
    return folder


def test_the_head_is_opened_as_a_model_and_knows_its_classes(saved: Path) -> None:
    model = open_model(f"head:{saved}", device="cpu")
    batch = torch.stack([model.prepare(colored(label, 100 + label)) for label in range(3)])
    assert model.labels.classes == ("red", "green", "blue")
    assert model.logits(batch).argmax(1).tolist() == [0, 1, 2]
    assert model.transform == open_model("lite:0", device="cpu").transform
    assert model.heat_layer.name == "0.bn2"


def test_the_card_says_what_training_saw(saved: Path) -> None:
    card = json.loads((saved / "head.json").read_text())
    assert card["base"] == "lite:0"
    assert card["pictures"] == {"train": 18, "validation": 6}
    assert card["validation_accuracy"] == 1.0
    assert card["losses"][card["epoch"] - 1] == min(card["losses"])


def test_a_head_on_itself_is_refused(saved: Path, tmp_path: Path) -> None:
    card = json.loads((saved / "head.json").read_text()) | {"base": f"head:{tmp_path}"}
    (tmp_path / "head.json").write_text(json.dumps(card))
    with pytest.raises(UserError, match="and so on for more than 8 models"):
        open_model(f"head:{tmp_path}", device="cpu")


def test_a_base_with_other_weights_is_refused(saved: Path, tmp_path: Path) -> None:
    card = json.loads((saved / "head.json").read_text()) | {"base_weights_sha256": "0" * 64}
    (tmp_path / "head.json").write_text(json.dumps(card))
    (tmp_path / "head.safetensors").write_bytes((saved / "head.safetensors").read_bytes())
    with pytest.raises(UserError, match="trained on other weights"):
        open_model(f"head:{tmp_path}", device="cpu")


def test_training_stops_early_and_keeps_the_best_epoch() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 40, generator=generator)
    targets = torch.randint(0, 2, (60,), generator=generator)  # nothing to learn: more epochs only overfit
    training = Training(epochs=200, patience=5, learning_rate=0.05)
    train, held_out = split(targets, training)
    _, _, history = train_linear(features, targets, train, held_out, 2, training)
    assert len(history["losses"]) == history["epoch"] + 5
    assert history["validation_loss"] == min(history["losses"])


def test_the_released_preset_trains_every_epoch_on_the_features_as_they_are() -> None:
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(80) % 2
    features = torch.randn(80, 16, generator=generator) + 4 * targets[:, None]
    train, held_out = split(targets, RELEASED)
    weight, _, history = train_linear(features, targets, train, held_out, 2, RELEASED)
    assert len(history["losses"]) == RELEASED.epochs == 10
    # Adam moves a weight by at most about one learning rate per step: 2 batches of 32 in each of 10 epochs.
    torch.manual_seed(RELEASED.seed)
    assert (weight - torch.nn.Linear(16, 2).weight).abs().max() < 21 * 1e-5
    assert not torch.equal(weight, torch.nn.Linear(16, 2).weight)


def test_a_head_takes_pictures_in_its_own_framing_only(saved: Path) -> None:
    model = open_model(f"head:{saved}", device="cpu")
    model.check_framing("squash")  # trained without a record of its framing
    squashed = replace(model, origin={"head": {"frame": "squash"}})
    for frame in ("squash", None):
        squashed.check_framing(frame)
    framed = Pictures("BENCH", model.labels, (), {"identity": {"settings": {"frame": "center"}}})
    assert framed.frame == "center"
    with pytest.raises(UserError, match="--frame squash, and these have --frame center"):
        squashed.check_framing(framed.frame)


def test_the_split_holds_out_of_every_class_and_never_shares() -> None:
    targets = torch.tensor([0] * 10 + [1] * 5 + [2])
    train, held_out = split(targets, Training(validation=0.2))
    assert sorted([*train.tolist(), *held_out.tolist()]) == list(range(16))
    assert targets[held_out].tolist() == [0, 0, 1]


def test_what_cannot_be_trained_on_is_refused() -> None:
    base = open_model("lite:0", device="cpu")
    with pytest.raises(UserError, match="no pictures"):
        fit_head(base, [], [], ["a", "b"])
    with pytest.raises(UserError, match="outside the 2 classes"):
        fit_head(base, [colored(0, 0)], [2], ["a", "b"])
    with pytest.raises(UserError, match="no class has two pictures"):
        split(torch.tensor([0, 1]), Training())


def test_the_classification_layer_is_found() -> None:
    assert classification_layer(open_model("lite:0", device="cpu")) == "classifier"
