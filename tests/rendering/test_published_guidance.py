"""Guidance as published: one step of paper and released code on the golden network, defaults, and what is recorded."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import adm_reference
from sample_scenes import SAMPLE_IDS, sample_scene
from unswayed.edits.composition import Guidance
from unswayed.errors import UserError
from unswayed.models import open_model
from unswayed.rendering import RenderSettings, load_network
from unswayed.rendering.diffusion import open_diffusion
from unswayed.rendering.layers import Layers
from unswayed.rendering.sampling import Schedule, as_seeds, normal
from unswayed.rendering.sampling.guidance import adversarial
from unswayed.rendering.sampling.loop import Job, Settings, denoise_all
from unswayed.rendering.sampling.samplers import SAMPLERS, visited

DATA = Path(__file__).parent.parent / "data"
WEIGHTS = DATA / "adm_mini_weights.safetensors"
SHAPE = (3, 32, 32)
# The original's recorded inputs are at steps 49 and 3 of 100: the first of 50 and of 4.
STARTS = (0.5, 0.04)
LABELS = torch.tensor([2, 4])
LINEAR = torch.randn(5, 3 * 32 * 32, generator=torch.Generator().manual_seed(1)) / 8


def guide(pictures):
    """Logits of pictures in [0, 1]."""
    return pictures.flatten(1) @ LINEAR.T


def loss_along(x0, kind, strength, released):
    """The objective whose gradient moves the mean, per picture: the paper's equations and the released code's."""
    objective = torch.zeros(len(x0))
    if kind == "complexity":
        objective = strength * torch.fft.fft2((x0 + 1) / 2).abs().mean(dim=(1, 2, 3))
    if kind == "adversarial":
        objective = strength * F.cross_entropy(guide((x0 + 1) / 2), LABELS, reduction="none")
    if released:
        objective = objective - 50 * (x0 - x0.clamp(-1, 1)).square().mean(dim=(1, 2, 3))
    return objective


def expected(golden, kind, strength, released):
    """The original's recorded mean and variance, moved by Σ·∇, with the network read by `adm_reference`."""
    state = {name: value.float() for name, value in load_file(WEIGHTS).items()}
    alpha_bar = torch.tensor(Schedule.respaced(100).alpha_bar)[golden["t"]].float().view(-1, 1, 1, 1)
    leaf = golden["x"].clone().requires_grad_(True)
    eps = adm_reference.forward(state, leaf, golden["model_t"], 1, head_channels=32)[:, :3]
    x0 = (leaf - (1 - alpha_bar).sqrt() * eps) / alpha_bar.sqrt()
    assert torch.allclose(x0, golden["pred_xstart"], rtol=1e-4, atol=1e-4)
    if not released:
        point = x0.detach().requires_grad_(True)
        objective = loss_along(point, kind, strength, False)
        (gradient,) = torch.autograd.grad(objective.sum(), point, allow_unused=True) if kind else (0 * point,)
    else:
        within = loss_along(x0, kind if kind == "complexity" else None, strength, True)
        (gradient,) = torch.autograd.grad(within.sum(), leaf)
        if kind == "adversarial":
            point = x0.detach().requires_grad_(True)
            # The released code takes the classifier's gradient at x̂0 and does not follow it through the network.
            gradient = gradient + torch.autograd.grad(loss_along(point, kind, strength, False).sum(), point)[0]
    return (golden["mean"] + golden["variance"] * gradient).detach()


@pytest.mark.parametrize("kind", [None, "complexity", "adversarial"])
@pytest.mark.parametrize("how", ["paper", "released"])
def test_a_guided_step_is_the_originals(how, kind):
    golden, network = load_file(DATA / "adm_mini_io.safetensors"), load_network(WEIGHTS)
    strength = 20.0 if kind else 0.0
    mean = expected(golden, kind, strength, how == "released")
    alpha_bar = Schedule.respaced(100).alpha_bar
    for seed in (3, 8):
        first_noise, step_noise = (normal(as_seeds([seed]), draw, SHAPE)[0] for draw in (0, 1))
        for item, start in enumerate(STARTS):
            level = alpha_bar[int(golden["t"][item])]
            # The picture whose noised version is the original's recorded input.
            first = (golden["x"][item] - np.sqrt(1 - level) * first_noise) / np.sqrt(level)
            seen = []

            def watch(jobs, steps, x_t, x0, seen=seen):
                seen.append(x_t[0].clone())

            job = Job(
                first, first, torch.zeros(1, 32, 32), visited(start, 100)[:2], start, 100, seed,
                kind, strength, label=int(LABELS[item]),
            )  # fmt: skip
            settings = Settings(SAMPLERS["ancestral"], how, guide, watch=watch)
            list(denoise_all(network, [job], 1, settings))
            assert float((seen[0] - golden["x"][item]).abs().max()) < 1e-5
            wanted = mean[item] + golden["variance"][item].sqrt() * step_noise
            assert float((seen[1] - wanted).norm() / wanted.norm()) < 1e-5


def test_guidance_moves_the_golden_step():
    golden = load_file(DATA / "adm_mini_io.safetensors")
    for kind in ("complexity", "adversarial"):
        moved = expected(golden, kind, 20.0, True) - expected(golden, None, 0.0, True)
        assert float(moved.flatten(1).norm(dim=1).min()) > 1e-3


def test_the_adversarial_gradient_is_that_of_finite_differences():
    model = open_model("lite:0", device="cpu", precision="fp32")
    scene = sample_scene(SAMPLE_IDS[0])
    picture = cv2.resize(scene.image, (96, 96), interpolation=cv2.INTER_AREA)
    x0 = torch.from_numpy(picture).permute(2, 0, 1)[None].float() / 127.5 - 1
    gradient = adversarial(model.differentiable, scene.label, 1.0, None)(x0)

    def loss(x):
        with torch.no_grad():
            return float(F.cross_entropy(model.differentiable((x + 1) / 2), torch.tensor([scene.label])))

    smooth = F.interpolate(torch.randn(1, 3, 6, 6, generator=torch.Generator().manual_seed(0)), (96, 96))
    for direction in (gradient / gradient.norm(), smooth / smooth.norm()):
        step = 0.004
        slope = (loss(x0 + step * direction) - loss(x0 - step * direction)) / (2 * step)
        assert slope == pytest.approx(float((gradient * direction).sum()), rel=0.03, abs=2e-4)


def picture_layers(kind="complexity"):
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    alpha = np.zeros((32, 32), np.float32)
    alpha[8:20, 8:20] = 1
    return Layers(pixels, alpha, pixels, 0.5, Guidance(kind, 20.0), 3, 0)


@pytest.mark.parametrize(
    ("options", "guidance", "sampler"),
    [
        ({}, "released", "ancestral"),
        ({"sampler": "auto"}, "released", "ancestral"),
        ({"sampler": "dpm"}, "calibrated", "dpm"),
        ({"guidance": "calibrated"}, "calibrated", "dpm"),
        ({"guidance": "paper"}, "paper", "ancestral"),
    ],
)
def test_guided_diffusions_files_are_guided_as_released_unless_told_otherwise(options, guidance, sampler):
    network = load_network(WEIGHTS, image_size=32)
    renderer = open_diffusion(network, steps=20, device="cpu", precision="fp32", **options)
    assert (renderer.guidance, renderer.sampler) == (guidance, sampler)
    assert renderer.describe()["guidance"] == guidance
    assert renderer.render([picture_layers()])[0].measures["guidance"] == guidance


def test_the_embedded_network_is_guided_by_calibration():
    assert load_network("compact").guidance == "calibrated"


def test_three_guidances_make_three_pictures():
    network = load_network(WEIGHTS, image_size=32)
    images = [
        open_diffusion(
            network, steps=20, sampler="ancestral", guidance=one, device="cpu", precision="fp32"
        ).render([picture_layers()])[0].image
        for one in ("paper", "released", "calibrated")
    ]  # fmt: skip
    assert len({image.tobytes() for image in images}) == 3
    one = picture_layers()
    assert all(np.array_equal(image[one.alpha == 1], one.object[one.alpha == 1]) for image in images)


def test_what_the_paper_does_not_have_is_refused():
    network = load_network(WEIGHTS, image_size=32)
    for how in ("paper", "released"):
        with pytest.raises(UserError, match="ancestral sampler, not dpm"):
            open_diffusion(network, steps=20, sampler="dpm", guidance=how, device="cpu")
    with pytest.raises(UserError, match="did you mean 'released'"):
        RenderSettings(guidance="releasd")
    with pytest.raises(UserError, match="paste has no use for guidance"):
        RenderSettings(renderer="paste", guidance="paper")
