"""guided-diffusion's networks through diffusers, against the original's recorded outputs and a plain reading."""

import json
import pickle
from pathlib import Path

import adm_reference
import pytest
import torch
from safetensors.torch import load_file, save_file

from unfazed.errors import UserError
from unfazed.rendering import Schedule, load_network
from unfazed.rendering.diffusers_unet import save_unet
from unfazed.rendering.noisy_classifier import load_noisy_classifier
from unfazed.rendering.schedule import posterior

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


def written(folder, state, **config):
    """A checkpoint with its sidecar."""
    save_file({name: value.contiguous() for name, value in state.items()}, folder / "net_weights.safetensors")
    if config:
        (folder / "net.json").write_text(json.dumps({"config": config}))
    return folder / "net_weights.safetensors"


def test_raw_output_is_the_originals(mini, golden):
    assert apart(mini(golden["x"], golden["model_t"]), golden["raw"]) < 1e-5


@pytest.mark.parametrize("name", ["mean", "variance", "log_variance", "pred_xstart"])
def test_a_step_is_the_originals(mini, golden, name):
    schedule = Schedule.respaced(100)
    assert torch.equal(torch.tensor(schedule.network_times)[golden["t"]].float(), golden["model_t"])
    step = posterior(schedule, mini(golden["x"], golden["model_t"]), golden["x"], golden["t"])
    found = step.start if name == "pred_xstart" else getattr(step, name)
    assert apart(found, golden[name]) < 1e-5


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
    "a number of heads": ({}, {"num_heads": 4, "num_head_channels": -1}),
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
        heads=config.get("num_heads"),
        head_channels=config["num_head_channels"],
        order="new" if config.get("use_new_attention_order") else "legacy",
    )
    assert apart(network(x, t, y), expected) < 1e-5
    assert network.size == 32
    assert network.classes == shape.get("classes")
    assert network.learned_variance == (shape.get("outputs", 6) == 6)
    assert network.beta_schedule == config.get("noise_schedule", "linear")


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
    save_unet(network.on("cpu", torch.bfloat16), tmp_path / "saved")
    again = load_network(tmp_path / "saved")
    x = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    assert apart(again(x, 10.0), network(x, 10.0)) < 0.05


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


def classifier_state(base=32, depth=1, classes=11, head=32):
    """A noisy classifier of the 64×64 layout (multipliers 1, 2, 3, 4) cut to its encoder."""
    widths = tuple(base * m for m in (1, 2, 3, 4))
    full = adm_reference.random_state(widths, (False, False, True, True), depth)
    state = {name: value for name, value in full.items() if not name.startswith(("output_blocks", "out."))}
    generator = torch.Generator().manual_seed(5)
    wide = widths[-1]
    shapes = {
        "out.0.weight": (wide,),
        "out.0.bias": (wide,),
        "out.2.positional_embedding": (wide, 17),
        "out.2.qkv_proj.weight": (3 * wide, wide, 1),
        "out.2.qkv_proj.bias": (3 * wide,),
        "out.2.c_proj.weight": (classes, wide, 1),
        "out.2.c_proj.bias": (classes,),
    }
    return {**state, **{name: torch.randn(shape, generator=generator) / wide**0.5 for name, shape in shapes.items()}}


def test_the_noisy_classifier_is_the_plain_reading(tmp_path):
    state = classifier_state()
    classifier, _ = load_noisy_classifier(written(tmp_path, state, num_head_channels=32))
    x, t = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3)), torch.tensor([0.0, 400.0])
    expected = adm_reference.classify(state, x, t, depth=1, head_channels=32)
    assert apart(classifier(x, t), expected) < 1e-5
    assert apart(classifier(x[:1]), expected[:1]) < 1e-5
    assert classifier.classes == 11


def test_a_network_is_no_classifier():
    with pytest.raises(UserError, match="no guided-diffusion classifier"):
        load_noisy_classifier(WEIGHTS)


# Bad input


def test_what_no_file_tells_is_asked_for_in_a_list(tmp_path):
    path = written(tmp_path, adm_reference.random_state((32, 32), (False, True)))
    with pytest.raises(UserError) as error:
        load_network(path)
    assert "num_head_channels: 64 does not divide [32]" in str(error.value)
    assert "image_size" in str(error.value)
    assert "net.json" in str(error.value)
    assert load_network(path, num_head_channels=16, image_size=32).size == 32


def test_another_architecture_is_refused(tmp_path):
    save_file({"layer1.0.conv1.weight": torch.zeros(3, 3), "fc.bias": torch.zeros(3)}, tmp_path / "resnet.safetensors")
    with pytest.raises(UserError, match="no guided-diffusion network: of 2 tensors"):
        load_network(tmp_path / "resnet.safetensors")


def test_an_upsampler_is_refused(tmp_path):
    state = adm_reference.random_state((32, 64), (False, True))
    state["input_blocks.0.0.weight"] = torch.zeros(32, 6, 3, 3)
    with pytest.raises(UserError, match="6 channels"):
        load_network(written(tmp_path, state, num_head_channels=32, image_size=32))


def test_a_missing_tensor_is_named(tmp_path):
    state = adm_reference.random_state((32, 64), (False, True))
    del state["middle_block.1.proj_out.weight"]
    with pytest.raises(UserError, match=r"lacks middle_block\.1\.proj_out\.weight"):
        load_network(written(tmp_path, state, num_head_channels=32, image_size=32))


def test_a_foreign_tensor_is_named(tmp_path):
    state = {**adm_reference.random_state((32, 64), (False, True)), "input_blocks.1.0.extra.weight": torch.zeros(1)}
    with pytest.raises(UserError, match=r"1 tensors that no ADM network has, such as input_blocks\.1\.0\.extra"):
        load_network(written(tmp_path, state, num_head_channels=32, image_size=32))


def test_nan_in_the_weights_is_refused(tmp_path):
    state = adm_reference.random_state((32, 64), (False, True))
    state["middle_block.0.in_layers.2.weight"][0, 0, 0, 0] = float("nan")
    with pytest.raises(UserError, match="NaN or infinity in 1 tensors"):
        load_network(written(tmp_path, state, num_head_channels=32, image_size=32))


@pytest.mark.parametrize("share", [0.5, 0.001])
def test_a_truncated_safetensors_is_refused(tmp_path, share):
    data = WEIGHTS.read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(UserError, match="truncated"):
        load_network(tmp_path / "cut.safetensors")


def test_a_truncated_pt_is_refused(tmp_path):
    torch.save(load_file(WEIGHTS), tmp_path / "whole.pt")
    data = (tmp_path / "whole.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match="truncated"):
        load_network(tmp_path / "cut.pt")


def test_a_pt_is_read(tmp_path, golden):
    torch.save(load_file(WEIGHTS), tmp_path / "mini.pt")
    network = load_network(tmp_path / "mini.pt", num_head_channels=32, image_size=256)
    assert apart(network(golden["x"], golden["model_t"]), golden["raw"]) < 1e-5


class Evil:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (Path.write_text, (Path(self.mark), "ran"))


@pytest.mark.parametrize("legacy", [True, False])
def test_a_pickle_with_code_is_not_opened(tmp_path, legacy):
    mark = tmp_path / "ran"
    if legacy:
        (tmp_path / "evil.pt").write_bytes(pickle.dumps({"a": Evil(mark)}))
    else:
        torch.save({"a": Evil(mark)}, tmp_path / "evil.pt")
    with pytest.raises(UserError, match="not opened|no file of weights"):
        load_network(tmp_path / "evil.pt")
    assert not mark.exists()


def test_a_whole_module_is_not_opened(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    with pytest.raises(UserError, match="code"):
        load_network(tmp_path / "module.pt")


def test_an_unknown_fact_is_refused():
    with pytest.raises(UserError, match="num_head_channels"):
        load_network(WEIGHTS, head_width=32)
