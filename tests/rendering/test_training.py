"""Training of the compact network on small made photographs: it learns, resumes exactly, refuses the sample."""

import io
import json
import os
import shutil
import tarfile
from importlib import resources

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from dying_run import SMALL
from dying_run import small_recipe as recipe
from small_critic import write_small_critic
from unswayed.errors import UserError
from unswayed.files.whole import sha256
from unswayed.rendering.networks.compact import CompactNetwork, load_compact
from unswayed.rendering.sampling import Schedule
from unswayed.rendering.training import loop
from unswayed.rendering.training.loop import losses, orthogonal
from unswayed.rendering.training.photos import holes, load_photos, perceptual_hash, read_photos


@pytest.fixture
def photos(tmp_path):
    """Six photographs of colored gradients and blobs, one of them wide, one small."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number, (high, wide) in enumerate([(256, 256), (300, 260), (256, 400), (400, 400), (200, 220), (330, 300)]):
        coarse = rng.integers(0, 255, (6, 6, 3), np.uint8)
        Image.fromarray(coarse).resize((wide, high), Image.Resampling.BICUBIC).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def small_network(monkeypatch):
    monkeypatch.setattr(loop, "CompactConfig", lambda: SMALL)


def test_a_run_stopped_half_way_ends_where_an_unbroken_one_does(photos, tmp_path, small_network):
    torch.set_num_threads(1)
    loop.train([photos], tmp_path / "whole", recipe(), device="cpu", compiled=False)
    first = loop.Trainer(recipe(), *load_photos([photos], 2, "cpu"), tmp_path / "halves", compiled=False)
    for _ in range(3):
        first.advance()
    first.save()
    second = loop.train([photos], tmp_path / "halves", recipe(), device="cpu", compiled=False)
    assert second.step == 6
    whole, halves = ((tmp_path / run / "network.safetensors").read_bytes() for run in ("whole", "halves"))
    assert whole == halves


def test_the_loss_on_photographs_held_out_falls(photos, tmp_path, small_network):
    trainer = loop.Trainer(
        recipe(steps=60, batch=4), *load_photos([photos], 2, "cpu"), tmp_path / "run", compiled=False
    )
    before = trainer.validate()
    said = []
    assert trainer.run(every=30, say=said.append)
    after = json.loads(said[-1])["held_out"]
    assert after["180"] < 0.92 * before["180"]
    assert len(said) == 2
    card = json.loads((tmp_path / "run" / "config.json").read_text())["trained"]
    assert card["steps"] == 60 and card["samples"] == 240 and card["photographs"] == 4


def test_another_recipe_or_other_photographs_do_not_resume(photos, tmp_path, small_network):
    loop.train([photos], tmp_path / "run", recipe(steps=1), device="cpu", compiled=False)
    with pytest.raises(UserError, match="a different seed"):
        loop.train([photos], tmp_path / "run", recipe(seed=1), device="cpu", compiled=False)
    (photos / "0.png").unlink()
    with pytest.raises(UserError, match="a different photographs"):
        loop.train([photos], tmp_path / "run", recipe(steps=2), device="cpu", compiled=False)


def test_a_run_starts_from_a_network_and_says_so(photos, tmp_path, small_network):
    first = loop.train([photos], tmp_path / "one", recipe(), device="cpu", compiled=False)
    second = loop.Trainer(
        recipe(), *load_photos([photos], 2, "cpu"), tmp_path / "two", False, begun=load_compact(tmp_path / "one")
    )
    kept, began = first.average.state_dict(), second.network.state_dict()
    # Saved as integers of 8 bits: at most half a step of the largest weight away.
    assert all(float((kept[name] - began[name]).abs().max()) <= float(kept[name].abs().max()) / 200 for name in kept)
    second.run(say=lambda line: None)
    trained = json.loads((tmp_path / "two" / "config.json").read_text())["trained"]
    assert trained["begun_from"]["steps"] == 6 and trained["steps"] == 6
    with pytest.raises(UserError, match="no network in .*nowhere"):
        loop.train([photos], tmp_path / "three", recipe(), device="cpu", compiled=False, begin=tmp_path / "nowhere")
    with pytest.raises(UserError, match="another shape"):
        loop.train([photos], tmp_path / "three", recipe(), device="cpu", compiled=False, begin="compact")


def test_a_critic_is_asked_and_remembered(photos, tmp_path, small_network):
    critic = write_small_critic(tmp_path / "critic.safetensors")
    trainer = loop.train([photos], tmp_path / "run", recipe(), device="cpu", compiled=False, critic=critic)
    seen = trainer.validate()
    assert seen["180 unlike"] > 0 and seen["800 unlike"] == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["trained"]["critic_sha256"] == sha256(critic)
    plain = loop.train([photos], tmp_path / "plain", recipe(), device="cpu", compiled=False)
    assert not torch.equal(trainer.network.conv_out.weight, plain.network.conv_out.weight)
    with pytest.raises(UserError, match="a different critic"):
        loop.train([photos], tmp_path / "run", recipe(steps=9), device="cpu", compiled=False)


def test_sample_photographs_are_refused_even_mirrored_and_recompressed(photos):
    with resources.as_file(resources.files("unswayed.data").joinpath("sample/koala.jpg")) as file:
        image = Image.open(file)
        image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).resize((400, 533)).save(photos / "mine.jpg", quality=60)
    with pytest.raises(UserError, match=r"mine.jpg looks like the sample photograph koala.jpg \(mirrored\)"):
        load_photos([photos], 2, "cpu")


def test_folders_and_tars_give_the_same_photographs(photos, tmp_path):
    with tarfile.open(tmp_path / "photos.tar", "w") as tar:
        for file in sorted(photos.iterdir()):
            tar.add(file, arcname=file.name)
    (from_folder, held), (from_tar, held_too) = (
        load_photos([photos], 2, "cpu"),
        load_photos([tmp_path / "photos.tar"], 2, "cpu"),
    )
    assert from_folder.digest == from_tar.digest
    assert torch.equal(held, held_too)
    assert held.shape == (2, 3, 256, 256) and float(held.abs().max()) <= 1
    assert len(from_folder.names) == 4


def test_crops_are_pieces_of_the_photographs_and_repeat_with_their_seed(photos):
    chosen, _ = load_photos([photos], 2, "cpu")
    crops, objects = chosen.crops(8, torch.Generator().manual_seed(3))
    again, _ = chosen.crops(8, torch.Generator().manual_seed(3))
    assert crops.shape == (8, 3, 256, 256) and torch.equal(crops, again)
    assert not torch.equal(crops[0], crops[1])
    assert crops.is_contiguous(memory_format=torch.channels_last)
    assert objects.shape == (8, 1, 256, 256) and not objects.any()


def test_a_mask_beside_a_photograph_says_where_its_object_is(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)
    mask = np.zeros((256, 256), np.uint8)
    mask[64:128, 32:96], mask[128:160, 32:96] = 255, 128  # a trimap: its border counts as the object
    Image.fromarray(pixels).save(tmp_path / "pet.jpg", quality=95)
    Image.fromarray(mask).save(tmp_path / "pet.png")
    chosen, _ = load_photos([tmp_path], 0, "cpu")
    assert chosen.names == ("pet.jpg",)
    _, objects = chosen.crops(4, torch.Generator().manual_seed(0))
    grown = np.zeros((256, 256), bool)
    grown[60:164, 28:100] = True
    for found in objects[:, 0].numpy() > 0:
        assert np.array_equal(found, grown) or np.array_equal(found, grown[:, ::-1])


def test_what_is_drawn_over_an_object_does_not_count():
    network, clean = CompactNetwork(SMALL), torch.zeros(1, 3, 64, 64)
    counted = torch.ones(1, 1, 64, 64)
    counted[..., 16:32, 16:32] = 0
    with_object = clean.clone()
    with_object[..., 16:32, 16:32] = 1
    elsewhere = clean.clone()
    elsewhere[..., 40:48, 40:48] = 1
    given = torch.tensor([500]), torch.randn(1, 3, 64, 64), torch.ones(1), torch.zeros(1, 1, 64, 64), counted
    alpha_bar = torch.from_numpy(Schedule.respaced().alpha_bar).float()
    # A fresh network predicts a constant, so that the error depends on the picture alone.
    error = [
        float(losses(network, picture, *given, alpha_bar)[0].detach()) for picture in (clean, with_object, elsewhere)
    ]
    assert error[0] == error[1] != error[2]


def test_a_folder_of_photographs_that_cannot_be_listed_is_named(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match="cannot be listed: Permission denied"):
        list(read_photos([tmp_path]))


def test_bad_photographs_are_named(photos, tmp_path):
    shutil.copy(photos / "0.png", photos / "broken.png")
    (photos / "broken.png").write_bytes((photos / "broken.png").read_bytes()[:200])
    with pytest.raises(UserError, match="broken.png cannot be read"):
        load_photos([photos], 2, "cpu")
    with pytest.raises(UserError, match="neither a folder nor a tar"):
        list(read_photos([tmp_path / "nothing"]))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match="found 0 photographs"):
        load_photos([empty], 2, "cpu")


def test_the_hash_sees_through_size_and_compression():
    image = Image.open(io.BytesIO(resources.files("unswayed.data").joinpath("sample/dog.jpg").read_bytes()))
    smaller = io.BytesIO()
    image.resize((200, 150)).save(smaller, "JPEG", quality=40)
    other = resources.files("unswayed.data").joinpath("sample/cow.jpg").read_bytes()
    code = perceptual_hash(np.asarray(image))
    assert (code != perceptual_hash(np.asarray(Image.open(smaller)))).sum() <= 4
    assert (code != perceptual_hash(np.asarray(Image.open(io.BytesIO(other))))).sum() > 12


@pytest.mark.parametrize("shape", [(3, 8, 40), (2, 40, 8), (1, 16, 16)])
def test_orthogonalised_matrices_have_singular_values_near_one(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonal(matrices).float())
    assert values.min() > 0.5 and values.max() < 1.3


def test_the_learning_rate_warms_up_holds_and_falls_to_nothing():
    plan = loop.Recipe(steps=100, warmup=10, decay=0.5, lr=1.0)
    rates = [loop.learning_rate(plan, step) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[10:50] == [1.0] * 40
    assert rates[100] == 0 and np.all(np.diff(rates[50:]) < 0)


def test_noise_levels_favor_little_noise():
    t = loop.noise_levels(loop.Recipe(), torch.zeros(20000, dtype=torch.bool), torch.Generator().manual_seed(0))
    assert int(t.min()) >= 0 and int(t.max()) <= 999
    assert 0.90 < float((t < 620).float().mean()) < 0.94
    assert float((t < 155).float().mean()) > 2 * float(((t >= 465) & (t < 620)).float().mean())


def test_holes_are_filled_from_every_level_of_noise():
    t = loop.noise_levels(loop.Recipe(), torch.ones(20000, dtype=torch.bool), torch.Generator().manual_seed(0))
    shares = torch.histc(t.float(), bins=4, min=0, max=1000) / len(t)
    assert float(shares.min()) > 0.15


def test_holes_cover_the_shares_of_the_picture_that_objects_do():
    masks = np.zeros((1, 128, 128), np.float32)
    cv2.circle(masks[0], (64, 64), 63, 1, -1)
    shapes = holes(400, torch.from_numpy(masks)[:, None], torch.Generator().manual_seed(0))
    assert shapes.shape == (400, 1, 256, 256) and set(shapes.unique().tolist()) == {0.0, 1.0}
    area = shapes.mean(dim=(1, 2, 3))
    assert 0.02 < float(area.quantile(0.1)) < 0.08 and 0.2 < float(area.quantile(0.95)) < 0.6


def test_a_mask_beside_its_photograph_is_a_shape_and_not_a_photograph(photos):
    Image.open(photos / "3.png").rotate(90).save(photos / "pet.jpg")
    without, _ = load_photos([photos], 0, "cpu")
    mask = np.zeros((400, 400), np.uint8)
    mask[50:150, 60:240] = 255
    Image.fromarray(mask).save(photos / "pet.png")
    with_mask, _ = load_photos([photos], 0, "cpu")
    assert with_mask.names == without.names
    assert len(with_mask.silhouettes) == len(without.silhouettes) + 1 == 21
    assert float(with_mask.silhouettes[-1].mean()) == 1  # a box fills its square


def test_a_recipe_that_cannot_be_is_refused(photos, tmp_path):
    for wrong in ({"steps": 0}, {"batch": 0}, {"lr": 0.0}, {"lr": float("nan")}, {"decay": 2.0}, {"perceptual": -1.0}):
        with pytest.raises(UserError, match=r"or more|above 0|0 to 1"):
            recipe(**wrong)
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="sees no GPU here"):
            loop.train([photos], tmp_path / "run", recipe(), device="cuda", compiled=False)
