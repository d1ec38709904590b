"""guided-diffusion's networks through diffusers, against the original's recorded outputs and a plain reading."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import adm_reference
from adm_reference import classifier_state, written
from unswayed.errors import UserError
from unswayed.rendering import Schedule, load_network
from unswayed.rendering.networks.diffusers_unet import save_unet
from unswayed.rendering.networks.noisy_classifier import load_noisy_classifier
from unswayed.rendering.sampling import predicted_x0, step_sigma
from unswayed.rendering.sampling.samplers import sample_ancestral

DATA = Path(__file__).parent.parent / "data"
WEIGHTS = DATA / "adm_mini_weights.safetensors"


@pytest.fixture(scope="module")
def golden():
    return load_file(DATA / "adm_mini_io.safetensors")


@pytest.fixture(scope="module")
def mini():
    return load_network(WEIGHTS)


def apart(found, expected):
    """Relative error of the whole tensor."""
    return float((found - expected).norm() / expected.norm())


def test_raw_output_is_the_originals(mini, golden):
    assert apart(mini(golden["x"], golden["model_t"]), golden["raw"]) < 1e-5


def ancestral_step(network, schedule, raw, x_t, index):
    """x̂0, the mean and the standard deviation of the sampler's step from respaced level `index` to the one below."""
    step = sample_ancestral(schedule.alpha_bar[[index, index - 1]])
    numbers = {name: torch.tensor(getattr(step, name)[0]).float() for name in ("toward", "sigma", "low", "high")}
    numbers["alpha_bar"] = torch.tensor(schedule.alpha_bar[index]).float()
    x0 = predicted_x0(raw[:, :3], x_t, numbers["alpha_bar"], network.prediction_type)
    sigma, _ = step_sigma(network, numbers, network.variance_output(raw))
    return x0, step.keep[0] * x_t + step.toward[0] * x0, sigma


def test_a_step_is_the_originals(mini, golden):
    schedule = Schedule.respaced(100)
    assert torch.equal(torch.tensor(schedule.timesteps)[golden["t"]].float(), golden["model_t"])
    raw = mini(golden["x"], golden["model_t"])
    for at, index in enumerate(golden["t"].tolist()):
        one = slice(at, at + 1)
        x0, mean, sigma = ancestral_step(mini, schedule, raw[one], golden["x"][one], index)
        assert apart(x0, golden["pred_xstart"][one]) < 1e-5
        assert apart(mean, golden["mean"][one]) < 1e-5
        assert apart(sigma.square(), golden["variance"][one]) < 1e-5
        assert apart(2 * sigma.log(), golden["log_variance"][one]) < 1e-5


def test_a_wrong_order_of_qkv_is_far_off(golden):
    wrong = load_network(WEIGHTS, qkv_order="new")
    assert apart(wrong(golden["x"], golden["model_t"]), golden["raw"]) > 0.05


def test_a_wrong_head_width_is_far_off(golden):
    wrong = load_network(WEIGHTS, num_head_channels=16)
    assert apart(wrong(golden["x"], golden["model_t"]), golden["raw"]) > 0.01


def test_the_facts_are_read(mini):
    assert (mini.size, mini.prediction_type, mini.variance_type, mini.beta_schedule) == (
        256,
        "epsilon",
        "learned_range",
        "linear",
    )
    assert mini.learned_variance
    assert mini.classes is None
    assert len(mini.weights_hash) == 64


def test_no_number_is_lost_or_changed(mini):
    before = load_file(WEIGHTS)
    after = mini.module.tensors()
    assert sum(value.numel() for value in before.values()) == sum(value.numel() for value in after.values())
    total = sum(value.double().square().sum() for value in before.values())
    assert float(sum(value.double().square().sum() for value in after.values())) == pytest.approx(
        float(total), rel=1e-12
    )


def test_the_plain_reading_is_the_originals(golden):
    state = {name: value.float() for name, value in load_file(WEIGHTS).items()}
    found = adm_reference.forward(state, golden["x"], golden["model_t"], layers=1, head_channels=32)
    assert apart(found, golden["raw"]) < 1e-5


CASES = {
    "class-conditional": ({"classes": 7}, {"num_head_channels": 32}),
    "new qkv order": ({}, {"num_head_channels": 32, "use_new_attention_order": True}),
    "plain resampling": ({"residual": False}, {"num_head_channels": 32}),
    "no scale and shift": ({"scale_shift": False}, {"num_head_channels": 16}),
    "fixed variance, cosine": ({"outputs": 3}, {"num_head_channels": 32, "noise_schedule": "cosine"}),
    "a number of heads": ({}, {"num_heads": 4, "num_head_channels": -1, "num_heads_upsample": -1}),
    "heads by guided-diffusion's own number": ({}, {"num_head_channels": -1}),
    "the first level half as wide as the embedding's base": ({"base": 64}, {"num_head_channels": 32}),
    "the same with classes": ({"base": 64, "classes": 7}, {"num_head_channels": 32}),
    "x0 predicted": ({}, {"num_head_channels": 32, "predict_xstart": True, "diffusion_steps": 1000}),
}


@pytest.mark.parametrize("name", CASES)
def test_any_configuration_is_read_off_its_tensors(tmp_path, name):
    shape, config = CASES[name]
    state = adm_reference.random_state((32, 64, 96), (False, True, True), layers=2, **shape)
    network = load_network(written(tmp_path, state, image_size=32, **config))
    x, t = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1)), torch.tensor([700.0, 3.0])
    y = torch.tensor([5, 0]) if "classes" in shape else None
    expected = adm_reference.forward(
        state,
        x,
        t,
        layers=2,
        y=y,
        heads=config.get("num_heads", 4) if config["num_head_channels"] == -1 else None,
        head_channels=config["num_head_channels"],
        order="new" if config.get("use_new_attention_order") else "legacy",
    )
    assert apart(network(x, t, y), expected) < 1e-5
    assert network.size == 32
    assert network.classes == shape.get("classes")
    assert network.learned_variance == (shape.get("outputs", 6) == 6)
    assert network.beta_schedule == config.get("noise_schedule", "linear")
    assert network.prediction_type == ("sample" if "predict_xstart" in config else "epsilon")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A narrow network with the levels of guided-diffusion's 512×512: model_channels 64, multipliers from one half."""
    state = adm_reference.random_state((32, 64, 64, 128, 128, 256, 256), (False,) * 4 + (True,) * 3, base=64)
    return written(tmp_path_factory.mktemp("large"), state, num_head_channels=64)


def test_a_512_network_is_known_by_its_multipliers_and_survives_saving(tmp_path, large):
    network = load_network(large)
    assert network.size == 512
    x, t = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(4)), torch.tensor([321.0])
    expected = adm_reference.forward(load_file(large), x, t, layers=1, head_channels=64)
    assert apart(network(x, t), expected) < 1e-5
    save_unet(network, tmp_path / "saved")
    again = load_network(tmp_path / "saved")
    assert torch.equal(again(x, t), network(x, t))
    assert again.size == 512
    assert apart(again.on("cpu", torch.bfloat16)(x, t), expected) < 0.05


@pytest.mark.parametrize("size", [64, 128])
def test_an_asked_size_does_not_overrule_sidecar_or_multipliers(large, size):
    with pytest.raises(UserError, match=f"256×256, {size}×{size} was requested"):
        load_network(WEIGHTS, size=size)
    with pytest.raises(UserError, match=f"512×512, {size}×{size} was requested"):
        load_network(large, size=size)


def test_an_asked_size_fills_a_gap(tmp_path):
    path = written(tmp_path, adm_reference.random_state((32, 32), (False, True)), num_head_channels=16)
    assert load_network(path, size=48).size == 48
    with pytest.raises(UserError, match="64×64, 48×48 was requested"):
        load_network(path, size=48, image_size=64)


def test_what_was_settled_is_described(mini):
    assert mini.describe()["facts"] == {"num_head_channels": 32, "num_heads": None, "qkv_order": "legacy"}


def test_saved_in_diffusers_format_it_is_the_same_network(tmp_path, golden, mini):
    from diffusers import UNet2DModel

    save_unet(mini, tmp_path / "saved")
    again = load_network(tmp_path / "saved")
    raw = mini(golden["x"], golden["model_t"])
    assert torch.equal(again(golden["x"], golden["model_t"]), raw)
    assert (again.size, again.variance_type, again.beta_schedule) == (256, "learned_range", "linear")
    theirs = UNet2DModel.from_pretrained(tmp_path / "saved")
    assert torch.allclose(theirs(golden["x"], golden["model_t"]).sample, raw, atol=1e-5)


def test_a_number_of_heads_survives_saving(tmp_path):
    state = adm_reference.random_state((32, 64), (True, True))
    network = load_network(written(tmp_path, state, image_size=16, num_heads=4))
    x = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    for precision, most in ((torch.bfloat16, 0.05), (torch.float32, 1e-6)):
        save_unet(network.on("cpu", precision), tmp_path / "saved")
        assert apart(load_network(tmp_path / "saved")(x, 10.0), network(x, 10.0)) < most
    from diffusers import UNet2DModel

    with pytest.raises(TypeError):  # diffusers has no number of heads; it must not read another one out of the folder
        UNet2DModel.from_pretrained(tmp_path / "saved")


def test_half_precision_embeds_the_noise_level_exactly(mini, golden):
    half = mini.on("cpu", torch.bfloat16)
    t = torch.tensor([494.0, 30.0])
    exact = mini.module.unet.time_embedding(mini.module.unet.time_proj(t))
    assert torch.allclose(half.module.unet.time_proj(t), exact, atol=0.02)
    assert half.module.unet.time_proj(t).dtype == torch.float32
    assert apart(half(golden["x"], golden["model_t"]), golden["raw"]) < 0.05
    assert next(mini.module.parameters()).dtype == torch.float32


def test_attention_is_the_fused_kind(mini):
    processors = (
        {type(module).__name__ for module in mini.module.unet.attn_processors.values()}
        if hasattr(mini.module.unet, "attn_processors")
        else {type(m.processor).__name__ for m in mini.module.unet.modules() if hasattr(m, "processor")}
    )
    assert processors == {"AttnProcessor2_0"}


def test_the_noisy_classifier_is_the_plain_reading(tmp_path):
    state = classifier_state()
    classifier, _ = load_noisy_classifier(written(tmp_path, state, num_head_channels=32))
    x, t = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3)), torch.tensor([0.0, 400.0])
    expected = adm_reference.classify(state, x, t, depth=1, head_channels=32)
    assert apart(classifier(x, t), expected) < 1e-5
    assert apart(classifier(x[:1]), expected[:1]) < 1e-5
    assert (classifier.classes, classifier.size) == (11, 32)


@pytest.mark.parametrize(
    ("config", "variance"),
    [({}, "fixed_large"), ({"sigma_small": False}, "fixed_large"), ({"sigma_small": True}, "fixed")],
)
def test_a_fixed_variance_is_the_one_it_was_sampled_with(tmp_path, config, variance):
    state = adm_reference.random_state((32, 64), (False, True), outputs=3)
    network = load_network(written(tmp_path, state, image_size=16, num_head_channels=32, **config))
    assert network.variance_type == variance
    save_unet(network, tmp_path / "saved")
    assert load_network(tmp_path / "saved").variance_type == variance
    assert load_network(tmp_path / "net_weights.safetensors", variance_type="fixed").variance_type == "fixed"
    schedule, x = Schedule.respaced(10), torch.zeros(1, 3, 16, 16)
    _, _, sigma = ancestral_step(network, schedule, x, x, 7)
    now, then = schedule.alpha_bar[[7, 6]]
    large = 1 - now / then
    expected = {"fixed": large * (1 - then) / (1 - now), "fixed_large": large}[variance]
    assert float(sigma**2) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("out.2.c_proj.weight", (11, 7, 1), "do not fit the network"),
        ("out.2.c_proj.bias", (), "not a guided-diffusion classifier"),
        ("middle_block.1.qkv.weight", (12, 128, 1), "not a guided-diffusion classifier"),
    ],
)
def test_a_noisy_classifier_that_does_not_fit_is_refused(tmp_path, name, shape, message):
    state = {**classifier_state(), name: torch.zeros(shape)}
    with pytest.raises(UserError, match=message):
        load_noisy_classifier(written(tmp_path, state, num_head_channels=32))


def test_a_pt_is_read(tmp_path, golden):
    torch.save(load_file(WEIGHTS), tmp_path / "mini.pt")
    network = load_network(tmp_path / "mini.pt", num_head_channels=32, image_size=256)
    assert apart(network(golden["x"], golden["model_t"]), golden["raw"]) < 1e-5


def test_safetensors_are_read_whatever_they_are_called(tmp_path, golden):
    (tmp_path / "mini.pt").write_bytes(WEIGHTS.read_bytes())
    network = load_network(tmp_path / "mini.pt", num_head_channels=32, image_size=256)
    assert apart(network(golden["x"], golden["model_t"]), golden["raw"]) < 1e-5
