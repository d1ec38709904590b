"""Edits as augmentations: what each does, that both ways agree, and that they fit the training loops of others."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision import tv_tensors
from torchvision.transforms import v2

from unswayed.edits.blur import blurred, blurred_batch
from unswayed.edits.layers import without_object
from unswayed.edits.mixture import KINDS, draw
from unswayed.edits.random_edit import edit_one, rim
from unswayed.errors import UserError
from unswayed.sources import open_source
from unswayed.transforms import BatchEdit, EditMixture, RandomEdit, Scenes

DOCS = Path(__file__).parents[2] / "docs" / "transforms.md"


@pytest.fixture(scope="module")
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    scenes = Scenes(open_source("sample"), size=128)
    images, masks = zip(*(scenes[place][:2] for place in range(6)), strict=True)
    return torch.stack([torch.Tensor(one).to(torch.uint8) for one in images]), torch.stack([m.float() for m in masks])


def only(kind: str, **ranges: object) -> EditMixture:
    return EditMixture(weights={kind: 1.0}, probability=1.0, most=1, **ranges)  # type: ignore[arg-type]


def rates(masks: torch.Tensor) -> torch.Tensor:
    return (masks > 0.5).float().mean(dim=(1, 2))


def box(mask: torch.Tensor) -> tuple[int, int, int, int]:
    rows, columns = (mask > 0.5).any(1).nonzero()[:, 0], (mask > 0.5).any(0).nonzero()[:, 0]
    return int(columns[0]), int(rows[0]), int(columns[-1]), int(rows[-1])


def test_every_edit_changes_the_picture_and_keeps_types_and_range(batch):
    images, masks = batch
    for kind in KINDS:
        edited, visible = BatchEdit(only(kind))(images, masks, generator=torch.Generator().manual_seed(1))
        assert edited.dtype == torch.uint8 and edited.shape == images.shape and visible.shape == masks.shape
        assert float(visible.min()) >= 0 and float(visible.max()) <= 1
        changed = (edited != images).float().mean(dim=(1, 2, 3))
        assert (changed > 0.01).all(), (kind, changed)


def test_size_meets_the_rate_that_was_drawn_and_keeps_the_object_whole(batch):
    images, masks = batch
    _, visible = BatchEdit(only("size", size=(0.05, 0.05)))(images, masks)
    assert torch.allclose(rates(visible), torch.full((6,), 0.05), atol=0.006)
    _, full = BatchEdit(only("size", size=(1.0, 1.0)))(images, masks)
    for after in full:
        left, top, right, bottom = box(after)
        assert max(right - left, bottom - top) > 0.85 * 128


def test_position_moves_the_object_into_the_corner_that_was_asked_for(batch):
    images, masks = batch
    mixture = EditMixture({"size": 1.0, "position": 1.0}, 1.0, size=(0.05, 0.05), position=(1.0, 1.0))
    rng = np.random.default_rng(0)
    draws = draw(6, mixture, rng)
    draws.kinds[:, [KINDS.index("size"), KINDS.index("position")]] = True
    for mask in BatchEdit(mixture)(images, masks, draws=draws)[1]:
        _, _, right, bottom = box(mask)
        assert right >= 128 - 8 and bottom >= 128 - 8


def test_direction_turns_counter_clockwise():
    image = torch.zeros(1, 3, 96, 96)
    mask = torch.zeros(1, 96, 96)
    mask[:, 46:50, 20:76] = 1  # a bar along x
    _, turned = BatchEdit(only("direction", direction=(30.0, 30.0)))(image, mask)
    rows, columns = (turned[0] > 0.5).nonzero(as_tuple=True)
    slope = np.polyfit(columns.numpy(), rows.numpy(), 1)[0]
    # Counter-clockwise as seen: the right end rises, and y grows downwards.
    assert slope == pytest.approx(-np.tan(np.radians(30)), abs=0.06)


def test_background_keeps_the_object_and_takes_nothing_of_the_other_object(batch):
    images, masks = batch
    edited, visible = BatchEdit(only("background"))(images, masks)
    inside = (visible == 1)[:, None].expand_as(images)
    assert (edited[inside].int() - images[inside].int()).abs().max() <= 1
    red = torch.zeros(2, 3, 64, 64, dtype=torch.uint8)
    red[:, 0] = 255  # red objects on blue
    mask = torch.zeros(2, 64, 64)
    mask[0, 5:25, 5:25] = mask[1, 35:60, 35:60] = 1
    red[:, 0] = (mask * 255).to(torch.uint8)
    red[:, 2] = 255 - red[:, 0]
    edited, visible = BatchEdit(only("background"))(red, mask)
    assert edited[:, 0][visible == 0].max() <= 1


def test_occlusion_hides_about_the_share_that_was_drawn(batch):
    images, masks = batch
    _, visible = BatchEdit(only("occlusion", occlusion=(0.4, 0.4)))(images, masks)
    assert torch.allclose(rates(visible) / rates(masks), torch.full((6,), 0.6), atol=0.08)


def test_one_picture_on_the_cpu_is_edited_as_in_a_batch(batch):
    images, masks = batch
    arrays = [one.permute(1, 2, 0).numpy() for one in images]
    alphas = [rim(one.numpy()) for one in masks]
    for kind in KINDS:
        draws = draw(6, only(kind), np.random.default_rng(2))
        bank = torch.from_numpy(without_object(arrays[5], alphas[5])).permute(2, 0, 1)[None]
        edited, visible = BatchEdit(only(kind), bank)(images, masks, draws=draws)
        for place in range(6):
            picture, alpha = edit_one(
                arrays[place], alphas[place], draws[place : place + 1], None, bank[0].permute(1, 2, 0).numpy()
            )
            apart = np.abs(picture.astype(int) - edited[place].permute(1, 2, 0).numpy()).mean()
            assert apart < 5, (kind, place, apart)
            assert np.abs(alpha - visible[place].numpy()).mean() < 0.01, (kind, place)


def test_a_compiled_batch_is_edited_as_one_that_is_not_compiled_for_every_size_of_batch(batch):
    images, masks = batch
    mixture = EditMixture(probability=0.8)
    plain, compiled = BatchEdit(mixture), BatchEdit(mixture)
    # One graph without breaks; what a backend makes of it is the backend's own matter.
    compiled.compile(backend="eager", fullgraph=True)
    cases = [draw(count, mixture, np.random.default_rng(count)) for count in (6, 5)]
    # Draws from elsewhere may hold edits that the mixture itself never draws.
    sizes = BatchEdit(only("size"))
    sizes.compile(backend="eager", fullgraph=True)
    assert torch.equal(sizes(images, masks, draws=cases[0])[0], compiled(images, masks, draws=cases[0])[0])
    for draws in cases:
        count = len(draws)
        expected, shown = plain(images[:count], masks[:count], draws=draws)
        edited, visible = compiled(images[:count], masks[:count], draws=draws)
        assert (edited.int() - expected.int()).abs().max() <= 1
        assert torch.allclose(visible, shown, atol=1e-4)


def test_blur_reflects_at_the_borders_as_opencv_does():
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (40, 52, 3)).astype(np.uint8)
    whole = np.ones((40, 52), np.float32)
    expected, _ = blurred(picture, whole, 5.0)
    layer = torch.cat([torch.from_numpy(picture / 255).permute(2, 0, 1).float(), torch.from_numpy(whole)[None]])[None]
    soft = blurred_batch(layer, torch.tensor([5.0]))[0, :3].permute(1, 2, 0).numpy()
    assert np.abs(soft * 255 - expected).max() <= 0.6


def test_the_same_generator_draws_the_same_edits_and_another_draws_others(batch):
    edit = BatchEdit(EditMixture(probability=1.0))
    first, again = (edit(*batch, generator=torch.Generator().manual_seed(7))[0] for _ in range(2))
    other = edit(*batch, generator=torch.Generator().manual_seed(8))[0]
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_pictures_without_a_mask_stay_as_they_are_and_lend_nothing(batch):
    images, masks = batch[0].clone(), batch[1].clone()
    masks[2] = 0
    edit = BatchEdit(EditMixture(probability=1.0))
    edited, visible = edit(images, masks)
    assert torch.equal(edited[2], images[2]) and float(visible[2].max()) == 0
    images[2] = 0
    images[2, 1] = 255  # pure green, which must not appear elsewhere
    edited, _ = BatchEdit(only("background"))(images, masks, usable=[True, True, False, True, True, True])
    for place in (0, 1, 3, 4, 5):
        green = (edited[place, 1] == 255) & (edited[place, 0] == 0) & (edited[place, 2] == 0)
        assert not green.any()


def test_masks_of_bool_bytes_and_floats_mean_the_same(batch):
    images, masks = batch
    draws = draw(6, EditMixture(probability=1.0), np.random.default_rng(5))
    solid = masks > 0.5
    kinds = (solid, solid.to(torch.uint8), solid.to(torch.uint8) * 255, solid.float())
    results = [BatchEdit()(images, one, draws=draws) for one in kinds]
    for one, (edited, visible) in zip(kinds, results, strict=True):
        assert torch.equal(edited, results[0][0])
        assert visible.dtype == one.dtype


def test_removed_pictures_are_what_shows_behind_a_moved_object(batch):
    images, masks = batch
    removed = torch.full_like(images, 7)
    edited, visible = BatchEdit(only("size", size=(0.03, 0.03)))(images, masks, removed)
    assert (edited.permute(0, 2, 3, 1)[visible == 0] == 7).all()


def test_random_edit_is_a_v2_transform_that_survives_pickling(batch):
    image, mask = tv_tensors.Image(batch[0][0]), tv_tensors.Mask(batch[1][0] > 0.5)
    edit = pickle.loads(pickle.dumps(RandomEdit(EditMixture(probability=1.0))))
    compose = v2.Compose([edit, v2.RandomHorizontalFlip(1.0)])
    torch.manual_seed(0)
    edited, moved, label = compose(image, mask, 4)
    assert type(edited) is tv_tensors.Image and type(moved) is tv_tensors.Mask and label == 4
    assert edited.dtype == torch.uint8 and moved.dtype == torch.bool and not torch.equal(edited, image)
    torch.manual_seed(0)
    sample = pickle.loads(pickle.dumps(RandomEdit(EditMixture(probability=1.0))))({"image": image, "mask": mask})
    assert torch.equal(sample["image"].flip(-1), edited)


def test_random_edit_takes_pil_pictures_and_given_backgrounds(batch, tmp_path):
    picture = v2.functional.to_pil_image(batch[0][0])
    blue = np.zeros((50, 70, 3), np.uint8)
    blue[..., 2] = 255
    edit = RandomEdit(only("background"), backgrounds=[blue])
    edited, mask = edit(picture, tv_tensors.Mask(batch[1][0]))
    behind = np.asarray(edited)[mask.numpy() == 0]
    assert edited.size == picture.size and (behind == (0, 0, 255)).all()


def test_random_edit_refuses_what_it_cannot_edit(batch):
    image, mask = tv_tensors.Image(batch[0][0]), tv_tensors.Mask(batch[1][0])
    with pytest.raises(UserError, match="1 pictures and 0 masks"):
        RandomEdit()(image, 3)
    with pytest.raises(UserError, match="mask is 20"):
        RandomEdit(EditMixture(probability=1.0))(image, tv_tensors.Mask(torch.ones(20, 20)))
    with pytest.raises(UserError, match="masks"):
        BatchEdit()(batch[0], mask[None, :20, :20])


def test_a_mixture_is_json_both_ways_and_refuses_nonsense():
    mixture = EditMixture(weights={"size": 2.0}, size=(0.1, 0.2))
    assert EditMixture.from_json(mixture.to_json()) == mixture
    for wrong in ({"weights": {"sise": 1.0}}, {"size": (0.0, 2.0)}, {"probability": 2.0}, {"weights": {"size": 0.0}}):
        with pytest.raises(UserError):
            EditMixture(**wrong)
    for wrong in ([1], {"size": 0.1}, {"size": [0.1]}, {"size": [0.1, "a"]}, {"probability": "half"}, {"most": 1.5}):
        with pytest.raises(UserError):
            EditMixture.from_json(wrong)
    for wrong in ({"weights": {"size": None}}, {"weights": 1}, {"sizes": [0.1, 0.2]}, {"most": None}):
        with pytest.raises(UserError):
            EditMixture.from_json(wrong)


def test_weights_and_probability_are_what_is_drawn():
    mixture = EditMixture(weights={"size": 3.0, "blur": 1.0}, probability=0.5, most=1)
    draws = draw(20_000, mixture, np.random.default_rng(0))
    assert draws.kinds.any(axis=1).mean() == pytest.approx(0.5, abs=0.02)
    assert draws.has("size").sum() / draws.has("blur").sum() == pytest.approx(3.0, rel=0.1)
    assert not draws.has("background", "color").any()


@pytest.mark.parametrize("title", ["torchvision", "timm"])
def test_the_documented_training_loops_run(title):
    code = re.search(rf'```python title="{title}"\n(.*?)```', DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None and sum(map(bool, code[1].splitlines())) <= 12
    space: dict[str, object] = {}
    exec(compile(code[1], str(DOCS), "exec"), space)
    assert torch.isfinite(space["loss"])  # type: ignore[arg-type]
