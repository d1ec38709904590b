"""The embedded network: what is shipped is what is stated, and it denoises real photographs."""

import json
import os
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.utils.flop_counter import FlopCounterMode

from benchmark_scripts import load_script
from command_line import refused
from unswayed.benchmark.quality import glcm_measures
from unswayed.edits.composition import Guidance
from unswayed.edits.geometry import resized
from unswayed.errors import UserError
from unswayed.rendering import load_network
from unswayed.rendering.diffusion import around, open_diffusion
from unswayed.rendering.layers import Layers
from unswayed.rendering.networks.compact import CompactConfig, CompactNetwork, load_compact, read_config, save_compact
from unswayed.scene import frame
from unswayed.sources import open_source
from unswayed.sources.pictures import read_picture

quality = load_script("picture_quality")

SMALL = CompactConfig(channels=(8, 16, 16, 32), middle=1, embedding=32, head_channels=16, sample_size=32)


@pytest.fixture(scope="module")
def network():
    return load_network("compact")


def photograph(name="koala"):
    import cv2

    image = read_picture(resources.files("unswayed.data").joinpath(f"sample/{name}.jpg").read_bytes())
    side = min(image.shape[:2])
    return cv2.resize(image[:side, :side], (256, 256), interpolation=cv2.INTER_AREA)


def test_the_shipped_network_keeps_its_promises_of_size(network):
    file = resources.files("unswayed.data").joinpath("network/network.safetensors")
    assert len(file.read_bytes()) <= 32e6
    assert sum(p.numel() for p in network.module.parameters()) <= 27e6
    with FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, 3, 256, 256), 100)
    assert counter.get_total_flops() <= 36e9


def test_its_error_on_a_photograph_is_that_of_a_trained_network(network):
    clean = torch.from_numpy(photograph()).permute(2, 0, 1)[None].float() / 127.5 - 1
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    left = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64), 0)[320].float()
    raw = network(left.sqrt() * clean + (1 - left).sqrt() * noise, 320)
    error = (raw[:, :3] - (left.sqrt() * noise - (1 - left).sqrt() * clean)).square()
    assert error.mean() < 0.06
    # The second half foresees the error: where it expects twice as much there is more of it.
    foreseen = raw[:, 3:].exp()
    sure = foreseen <= foreseen.median()
    assert error[~sure].mean() > 1.5 * error[sure].mean()
    assert 0.5 < float(foreseen.mean() / error.mean()) < 2


def test_a_photograph_comes_back_sharp_and_clean_from_few_steps(network):
    original = photograph()
    nothing = np.zeros((256, 256), np.float32)
    renderer = open_diffusion(network, steps=20, device="cpu", precision="fp32")
    (answer,) = renderer.render([Layers(original, nothing, original, 0.25, None, None, 5, needs_network="inversion")])
    before, after = original[None] / 255, answer.image[None] / 255
    assert quality.spectral_amplitude(after)[0] > 0.7 * quality.spectral_amplitude(before)[0]
    assert quality.noise_level(after)[0] < 1.3 * quality.noise_level(before)[0] + 1 / 255
    assert np.abs(after - before).mean() < 0.08
    assert (answer.image != original).mean() > 0.5


def test_saved_and_loaded_it_is_the_same(tmp_path):
    torch.manual_seed(0)
    network = CompactNetwork(replace(SMALL, doubt=1.5)).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    save_compact(network, tmp_path, exact=True)
    again = load_compact(tmp_path)
    x = torch.randn(2, 3, 32, 32)
    assert again.config.doubt == 1.5
    torch.testing.assert_close(again(x, torch.tensor([3, 900])), network(x, torch.tensor([3, 900])))


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core")
def test_its_bits_do_not_depend_on_the_number_of_threads(network):
    noisy = torch.randn(1, 3, 256, 256, generator=torch.Generator().manual_seed(0))
    before, answers = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            answers.append(network.on("cpu")(noisy, 300))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*answers)


def test_other_sides_than_256_pass_through():
    assert CompactNetwork(SMALL)(torch.zeros(1, 3, 48, 80), torch.tensor([5])).shape == (1, 6, 48, 80)


def test_weights_that_do_not_fit_their_config_are_refused(tmp_path):
    save_compact(CompactNetwork(SMALL), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for changed in ({"middle": 2}, {"channels": [8, 16, 16, 64]}):
        (tmp_path / "config.json").write_text(json.dumps(config | changed))
        with refused("train-network", given="do not fit the network"):
            load_compact(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config | {"depth": 2}))
    with pytest.raises(UserError, match="not the config of a compact network"):
        read_config(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("channels", []),
        ("channels", [8, 16, "16", 32]),
        ("encoder", [0, 2]),
        ("decoder", [0, 2, 2]),
        ("middle", -1),
        ("embedding", 32.5),
        ("head_channels", 0),
        ("head_channels", 5),
        ("sample_size", 40),
        ("doubt", "much"),
        ("beta_schedule", "sqrt"),
    ],
)
def test_a_config_that_cannot_be_is_refused(tmp_path, name, value):
    save_compact(CompactNetwork(SMALL), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {name: value}))
    with pytest.raises(UserError, match=rf"{name}.* is|no β schedule 'sqrt'"):
        load_network(tmp_path)


def test_a_config_that_leaves_a_fact_out_is_refused(tmp_path):
    save_compact(CompactNetwork(SMALL), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["beta_schedule"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="does not state beta_schedule"):
        load_network(tmp_path)


def test_a_truncated_weights_file_is_refused(tmp_path):
    save_compact(CompactNetwork(SMALL), tmp_path)
    file = tmp_path / "network.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with refused("train-network", given="truncated or not a safetensors file"):
        load_compact(tmp_path)


def test_a_grid_is_seen_where_there_is_one():
    rng = np.random.default_rng(0)
    plain = rng.random((4, 64, 128, 3))
    gridded = plain.copy()
    gridded[:, :, ::8] += 0.5
    assert quality.grid(plain, 8) < 0.05
    assert quality.grid(gridded, 8) > 0.3


def test_blur_lowers_the_amplitude_and_noise_raises_the_noise_level():
    import cv2

    image = photograph() / 255
    blurred = cv2.GaussianBlur(image, (0, 0), 2)
    noisy = np.clip(image + np.random.default_rng(0).normal(0, 0.05, image.shape), 0, 1)
    assert quality.spectral_amplitude(blurred[None])[0] < 0.7 * quality.spectral_amplitude(image[None])[0]
    assert quality.noise_level(noisy[None])[0] > quality.noise_level(image[None])[0] + 0.02


def test_saved_weights_are_integers_of_8_bits_and_stay_near(tmp_path):
    torch.manual_seed(0)
    network = CompactNetwork(SMALL)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    save_compact(network, tmp_path)
    again = load_compact(tmp_path).state_dict()
    stored = load_file(tmp_path / "network.safetensors")
    for name, value in network.state_dict().items():
        if value.ndim < 2:
            torch.testing.assert_close(again[name], value, rtol=2.0**-10, atol=1e-6)
            continue
        assert stored[name].dtype == torch.int8
        largest = value.abs().flatten(1).amax(dim=1).view(-1, *[1] * (value.ndim - 1))
        assert bool(((again[name] - value).abs() <= 0.501 * largest / 127).all())


def test_a_scale_of_no_tensor_is_refused(tmp_path):
    save_compact(CompactNetwork(SMALL), tmp_path)
    stored = load_file(tmp_path / "network.safetensors")
    save_file({**stored, "conv_in.weight/scale": torch.ones(3)}, tmp_path / "network.safetensors")
    with refused("train-network", given="conv_in.weight/scale belongs to no tensor"):
        load_compact(tmp_path)


def koala():
    scene = frame(open_source("sample")["koala"])
    return resized(scene.image, 256), resized(scene.mask, 256)


def test_a_regenerated_background_keeps_what_it_shows_and_guidance_moves_it_both_ways(network):
    picture, mask = koala()
    renderer = open_diffusion(network, steps=12, device="cpu", precision="fp32")
    guided = (None, Guidance("complexity", -20.0), Guidance("complexity", 20.0))
    drawn = [
        answer.image
        for answer in renderer.render(
            [Layers(picture, mask, picture, 0.5, g, None, 3, needs_network="x") for g in guided]
        )
    ]
    behind = mask < 0.01
    same, simple, complex_ = (np.abs(made.astype(float) - picture)[behind].mean() for made in drawn)
    assert 0.5 < same < 9 and same < simple and same < complex_
    contrast = [glcm_measures(made, mask)["contrast"] for made in (drawn[1], picture, drawn[2])]
    assert contrast[0] < 0.8 * contrast[1] and contrast[2] > 1.25 * contrast[1]
    for made in drawn:
        assert np.array_equal(made[mask == 1], picture[mask == 1])


def test_a_given_background_changes_only_in_a_band_around_the_object(network):
    picture, mask = koala()
    other = np.ascontiguousarray(picture[::-1, ::-1])
    renderer = open_diffusion(network, steps=12, device="cpu", precision="fp32")
    [answer] = renderer.render([Layers(picture, mask, other, 0.25, None, None, 3)])
    band = around(torch.from_numpy(mask)).numpy()
    assert np.array_equal(answer.image[mask == 1], picture[mask == 1])
    outside = ~band & (mask == 0)
    assert np.array_equal(answer.image[outside], other[outside]) and outside.mean() > 0.5
    assert np.abs(answer.image[band].astype(float) - other[band]).mean() > 1


def test_passes_count_the_way_up_of_a_regenerated_background(network):
    renderer = open_diffusion(network, steps=12, device="cpu", precision="fp32")
    picture, mask = koala()
    counted = []
    renderer.render([Layers(picture, mask, picture, 0.5, None, None, 3, needs_network="x")], counted.append)
    assert len(counted) == renderer.passes(0.5, True) > renderer.passes(0.5) == 6
    stochastic = open_diffusion(network, steps=12, sampler="ancestral", device="cpu", precision="fp32")
    assert stochastic.passes(0.5, True) == stochastic.passes(0.5)
