"""The renderer: what is kept to the byte, what does not depend on the batch, and what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gaussian_network import gaussian
from unswayed.edits.composition import Guidance
from unswayed.errors import UserError
from unswayed.rendering import RenderSettings, load_network
from unswayed.rendering.diffusion import open_diffusion
from unswayed.rendering.layers import Layers, Refusal, Rendering
from unswayed.rendering.sampling import Schedule, as_seeds, normal
from unswayed.rendering.sampling.loop import Job, Settings, denoise_all
from unswayed.rendering.sampling.samplers import SAMPLERS, visited

SIZE = 32
WEIGHTS = Path(__file__).parent.parent / "data" / "adm_mini_weights.safetensors"


@pytest.fixture(scope="module")
def mini():
    return load_network(WEIGHTS, image_size=SIZE)


def layers(seed=0, start=0.5, guidance=None, label=3, size=SIZE):
    """An object with a soft rim over another picture."""
    rng = np.random.default_rng(seed)
    alpha = np.zeros((size, size), np.float32)
    alpha[8:20, 8:20] = 1
    alpha[7, 8:20], alpha[20, 8:20] = 0.3, 0.7
    coarse = rng.integers(0, 256, (2, 4, 4, 3))
    front, back = (np.kron(one, np.ones((size // 4, size // 4, 1))).astype(np.uint8) for one in coarse)
    return Layers(front, alpha, back, start, guidance, label, seed)


def diffusion(network, **options):
    return open_diffusion(network, **{"steps": 20, "precision": "fp32", "guidance": "calibrated", **options})


MIXED = [
    layers(0, 0.5),
    layers(1, 0.25),
    layers(2, 0.5, Guidance("complexity", 20.0)),
    layers(3, 0.5, Guidance("complexity", -20.0, "high")),
    layers(4, 0.0),
    layers(5, 0.35, Guidance("adversarial", 20.0)),
]


@pytest.fixture(scope="module")
def guide():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIZE * SIZE, 10)).requires_grad_(False)


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
def test_the_object_keeps_its_own_bytes(mini, guide, sampler):
    for one, answer in zip(MIXED, diffusion(mini, sampler=sampler, guide=guide).render(MIXED), strict=True):
        assert isinstance(answer, Rendering)
        assert np.array_equal(answer.image[one.alpha == 1], one.object[one.alpha == 1])
        assert answer.image.dtype == np.uint8
        if one.start > 0:
            assert (answer.image[one.alpha == 0] != one.background[one.alpha == 0]).mean() > 0.5


def test_the_rim_is_mixed_by_its_alpha(mini):
    one = layers(0)
    bare = diffusion(mini).render([replace(one, alpha=np.where(one.alpha > 0.5, 1, 0).astype(np.float32))])[0].image
    soft = diffusion(mini).render([one])[0].image
    expected = bare[7, 8:20] + 0.3 * (one.object[7, 8:20].astype(float) - bare[7, 8:20])
    assert np.abs(soft[7, 8:20] - expected).max() <= 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("dpm", 32)),
        ({"sampler": "auto"}, ("dpm", 32)),
        ({"sampler": "ddim"}, ("ddim", 100)),
        ({"sampler": "ancestral"}, ("ancestral", 100)),
        ({"guidance": "paper"}, ("ancestral", 100)),
        ({"steps": 50}, ("ancestral", 50)),
        ({"steps": 20}, ("dpm", 20)),
    ],
)
def test_what_is_not_given_of_sampler_and_steps_follows_from_the_rest(mini, options, expected):
    renderer = diffusion(mini, **{"steps": None, **options})
    assert (renderer.sampler, renderer.steps) == expected


def slots(network, jobs, count, guide):
    done = dict(denoise_all(network, jobs, count, Settings(SAMPLERS["ancestral"], guide=guide)))
    return torch.stack([done[i] for i in range(len(jobs))])


def test_alone_or_among_sixteen_a_picture_is_the_same(mini, guide):
    renderer = diffusion(mini, guide=guide)
    batch = [layers(seed, start, guidance) for seed, (start, guidance) in enumerate(
        [(0.5, None), (0.25, None), (0.5, Guidance("complexity", 20.0)), (0.3, Guidance("adversarial", 20.0))] * 4
    )]  # fmt: skip
    together = renderer.render(batch)
    for one, answer in zip(batch[:4], together, strict=False):
        alone = renderer.render([one])[0]
        assert np.array_equal(alone.image, answer.image)
    # and in slots that pass through the network together, as on a GPU
    jobs = [renderer._begin(one).job for one in batch]
    wide, narrow = slots(mini, jobs, 16, guide), slots(mini, jobs, 1, guide)
    assert float((wide - narrow).abs().max()) * 127.5 <= 1


def test_slots_are_refilled_and_no_pass_is_wasted(mini):
    passes = []

    class Counting(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x, t):
            passes.append(x.shape[0])
            return self.inner(x, t)

    jobs = [diffusion(mini)._begin(layers(seed, start)).job for seed, start in enumerate([0.5, 0.1, 0.25, 0.1, 0.05])]
    network = replace(mini, module=Counting(mini.module))
    list(denoise_all(network, jobs, 2, Settings(SAMPLERS["ancestral"])))
    steps = [len(job.timesteps) for job in jobs]
    assert set(passes) == {2}
    assert len(passes) == max(max(steps), -(-sum(steps) // 2))


def test_the_object_is_noised_to_the_level_it_is_blended_into():
    """Where the mask is 1, x_t is exactly N(√ᾱ_t·object, 1 − ᾱ_t); the released code is one level late."""
    size = 64
    kept, mask = torch.full((3, size, size), 0.6), torch.ones(1, size, size)
    timesteps = visited(0.5, 20)
    alpha_bar = Schedule.respaced(1000).alpha_bar[timesteps]
    for how in ("calibrated", "released"):
        seen = {}

        def watch(positions, places, x, start, seen=seen):
            seen[places[0]] = x[0].double()

        job = Job(kept, kept, mask, timesteps, 0.5, 20, 4)
        list(denoise_all(gaussian(size=size), [job], 1, Settings(SAMPLERS["ancestral"], how, watch=watch)))
        for place in range(1, len(timesteps)):
            level = alpha_bar[place - 1] if how == "released" else alpha_bar[place]
            assert float(seen[place].var()) == pytest.approx(1 - level, rel=0.08)
            assert float(seen[place].mean()) == pytest.approx(0.6 * np.sqrt(level), abs=0.05)


def test_flow_samplers_keep_one_draw_of_object_noise():
    size = 32
    kept, mask = torch.full((3, size, size), 0.6), torch.ones(1, size, size)
    timesteps = visited(0.5, 20, "karras")
    alpha_bar = Schedule.respaced(1000).alpha_bar[timesteps]
    draws = []

    def watch(positions, places, x, start):
        level = alpha_bar[places[0]]
        draws.append((x[0] - np.sqrt(level) * 0.6) / np.sqrt(1 - level))

    job = Job(kept, kept, mask, timesteps, 0.5, 20, 4)
    list(denoise_all(gaussian(size=size), [job], 1, Settings(SAMPLERS["dpm"], watch=watch)))
    first = normal(as_seeds([4]), 0, (3, size, size))[0]
    assert all(torch.allclose(draw, first, atol=2e-3) for draw in draws)


def test_the_same_seed_is_the_same_picture_and_another_is_not(mini):
    renderer = diffusion(mini)
    one, again, other = renderer.render([layers(0), layers(0), replace(layers(0), seed=99)])
    assert np.array_equal(one.image, again.image)
    assert not np.array_equal(one.image, other.image)


@pytest.mark.parametrize("value", [0, 128, 255])
@pytest.mark.parametrize("kind", ["complexity", "adversarial"])
def test_flat_pictures_give_finite_pictures(mini, guide, value, kind):
    flat = np.full((SIZE, SIZE, 3), value, np.uint8)
    one = Layers(flat, np.zeros((SIZE, SIZE), np.float32), flat, 0.5, Guidance(kind, 20.0), 1, 0)
    for sampler in SAMPLERS:
        assert isinstance(diffusion(mini, sampler=sampler, guide=guide).render([one])[0], Rendering)


def test_an_empty_and_a_full_mask_are_fine(mini):
    one = layers(0)
    none = replace(one, alpha=np.zeros_like(one.alpha))
    everything = replace(one, alpha=np.ones_like(one.alpha))
    answers = diffusion(mini).render([none, everything])
    assert np.array_equal(answers[1].image, one.object)
    assert not np.array_equal(answers[0].image, one.background)


def test_guidance_through_the_network_differs_and_keeps_the_object(mini):
    one = layers(0, 0.5, Guidance("complexity", 20.0))
    ours = diffusion(mini, sampler="ancestral").render([one])[0].image
    theirs = diffusion(mini, sampler="ancestral", guidance="released").render([one])[0].image
    assert np.array_equal(theirs[one.alpha == 1], one.object[one.alpha == 1])
    assert not np.array_equal(ours, theirs)


def test_guidance_through_the_network_hears_the_band(mini):
    wanted = [layers(0, 0.5, Guidance("complexity", 20.0, band)) for band in ("all", "high")]
    renderer = diffusion(mini, sampler="ancestral", guidance="released", batch_size=2)
    together = [answer.image for answer in renderer.render(wanted)]
    alone = [renderer.render([one])[0].image for one in wanted]
    assert not np.array_equal(*together)
    assert all(np.abs(a.astype(int) - b).max() <= 1 for a, b in zip(together, alone, strict=True))


def test_a_read_only_photograph_is_rendered_without_a_warning(mini, recwarn):
    one = layers(0)
    expected = diffusion(mini).render([one])[0].image
    for picture in (one.object, one.background):
        picture.flags.writeable = False
    assert np.array_equal(diffusion(mini).render([one])[0].image, expected)
    assert not [str(each.message) for each in recwarn if "not writable" in str(each.message)]


def test_start_zero_is_pasted_without_the_network(mini):
    one = layers(0, 0.0)
    answer = diffusion(mini).render([one])[0]
    assert np.array_equal(answer.image[one.alpha == 0], one.background[one.alpha == 0])


def test_the_card_says_what_was_used(mini, guide):
    card = diffusion(mini, guide=guide).describe()
    assert card["network"]["weights_sha256"] == mini.weights_hash
    assert card["steps"] == 20
    assert card["sampler"] == "dpm"
    assert card["guide"]["name"] == "Sequential"
    assert card["device"] == "cpu"


def test_the_loaded_network_is_left_as_it_was(mini):
    diffusion(mini, precision="bf16").render([layers(0)])
    assert next(mini.module.parameters()).dtype == torch.float32


# Bad input


def test_adversarial_without_a_guide_or_label_is_skipped_with_its_reason(mini, guide):
    attacked = layers(0, 0.5, Guidance("adversarial", 20.0))
    without = diffusion(mini).render([attacked])[0]
    assert isinstance(without, Refusal)
    assert "guide" in without.reason
    nameless = diffusion(mini, guide=guide).render([replace(attacked, label=None)])[0]
    assert isinstance(nameless, Refusal)
    assert "label" in nameless.reason


@pytest.mark.parametrize("steps", [1, 2])
def test_guidance_of_too_few_steps_is_refused_and_nothing_else(mini, guide, steps):
    kinds = (Guidance("complexity", 20.0), Guidance("complexity", -20.0), Guidance("adversarial", 20.0), None)
    wanted = [layers(0, 0.5, one) for one in kinds]
    *guided, plain = diffusion(mini, steps=steps, guide=guide).render(wanted)
    assert isinstance(plain, Rendering)
    assert all(isinstance(one, Refusal) and "needs at least 3 steps" in one.reason for one in guided)
    enough = [one.image for one in diffusion(mini, steps=3, guide=guide).render(wanted)]
    assert not any(np.array_equal(one, enough[-1]) for one in enough[:-1])


def test_a_class_conditional_network_needs_a_class_it_knows(mini):
    conditional = replace(mini, classes=5)
    refused = diffusion(conditional).render([layers(0, label=7)])[0]
    assert isinstance(refused, Refusal)
    assert "5 classes, not 7" in refused.reason


def test_pictures_of_another_size_are_refused(mini):
    with pytest.raises(UserError, match="32×32, 64×64 was requested"):
        diffusion(mini).render([layers(0, size=64)])
    with pytest.raises(UserError, match="64×64 was requested"):
        diffusion(mini, size=64)


def test_a_network_that_answers_nan_fails_its_picture_alone():
    class Broken(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x, t):
            return torch.where(x.mean(dim=(1, 2, 3), keepdim=True) > 0, float("nan"), 0.0) * x + 0 * x

    network = replace(gaussian(size=SIZE, kind="fixed"), module=Broken())
    white, black = (np.full((SIZE, SIZE, 3), value, np.uint8) for value in (255, 0))
    empty = np.zeros((SIZE, SIZE), np.float32)
    answers = diffusion(network).render([Layers(p, empty, p, 0.05, None, None, 0) for p in (white, black)])
    assert isinstance(answers[0], Refusal)
    assert answers[0].status == "failed"
    assert isinstance(answers[1], Rendering)


@pytest.mark.parametrize("steps", [0, -1, 1001])
def test_impossible_steps_are_refused(mini, steps):
    with pytest.raises(UserError, match="1 to 1000"):
        diffusion(mini, steps=steps)


def test_an_unknown_renderer_names_the_known_ones():
    with pytest.raises(UserError, match="diffusion, paste"):
        RenderSettings(renderer="difusion")


def test_a_gpu_s_guide_sees_few_shapes_and_a_cpu_s_no_spare_pictures():
    from unswayed.rendering.sampling.loop import GUIDED, padded

    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert padded([4, 7, 9], gpu) == [4, 7] + [9] * 14 and len(padded([3], gpu)) == GUIDED == 16
    assert len(padded(list(range(17)), gpu)) == 32
    assert padded([4, 7, 9], cpu) == [4, 7, 9]
