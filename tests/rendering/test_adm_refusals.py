"""Checkpoints that are no guided-diffusion network, not quite one, damaged, or not to be trusted."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import adm_reference
from adm_reference import written
from command_line import refused
from unswayed.errors import UserError
from unswayed.rendering import load_network
from unswayed.rendering.networks.adm import Layout, settle
from unswayed.rendering.networks.noisy_classifier import load_noisy_classifier

WEIGHTS = Path(__file__).parent.parent / "data" / "adm_mini_weights.safetensors"


def test_a_network_is_no_classifier():
    with pytest.raises(UserError, match="not a guided-diffusion classifier"):
        load_noisy_classifier(WEIGHTS)


def test_what_no_file_tells_is_asked_for_in_a_list(tmp_path):
    path = written(tmp_path, adm_reference.random_state((32, 32), (False, True)))
    with pytest.raises(UserError) as error:
        load_network(path)
    assert "num_head_channels: the tensors do not show it; one of [8, 16, 32]" in str(error.value)
    assert "image_size" in str(error.value)
    assert "net.json" in str(error.value)
    assert load_network(path, num_head_channels=16, image_size=32).size == 32


def test_a_head_width_is_never_assumed(tmp_path):
    """64 would divide these widths, and a network of any other head width would compute something else."""
    path = written(tmp_path, adm_reference.random_state((64, 64), (False, True)), image_size=32)
    with pytest.raises(UserError, match=r"num_head_channels: the tensors do not show it; one of \[8, 16, 32, 64\]"):
        load_network(path)


@pytest.mark.parametrize(
    ("channels", "layers", "facts"),
    [
        ((192, 384, 576, 768), 3, {"num_head_channels": 64, "num_heads": None, "qkv_order": "new", "image_size": 64}),
        ((256, 256, 512, 768, 1024), 2, {"num_head_channels": None, "num_heads": 4, "qkv_order": "legacy"}),
        ((256, 256, 512, 512, 1024, 1024), 2, {"num_head_channels": 64, "qkv_order": "legacy", "image_size": 256}),
    ],
)
def test_a_published_network_under_another_name_is_recognized_by_its_shapes(channels, layers, facts, tmp_path):
    attention = tuple(level >= len(channels) - 3 for level in range(len(channels)))
    layout = Layout(channels, attention, channels[0], layers, 6, None, True, True)
    settled = settle(layout, tmp_path / "renamed.pt", {})
    assert {name: settled[name] for name in facts} == facts
    with pytest.raises(UserError, match="num_head_channels: the tensors do not show it"):
        settle(replace(layout, attention=(True,) * len(channels)), tmp_path / "renamed.pt", {})


def test_another_architecture_is_refused(tmp_path):
    save_file({"layer1.0.conv1.weight": torch.zeros(3, 3), "fc.bias": torch.zeros(3)}, tmp_path / "resnet.safetensors")
    with pytest.raises(UserError, match="not a guided-diffusion network: none of its 2 tensors"):
        load_network(tmp_path / "resnet.safetensors")


def test_an_upsampler_is_refused(tmp_path):
    state = adm_reference.random_state((32, 64), (False, True))
    state["input_blocks.0.0.weight"] = torch.zeros(32, 6, 3, 3)
    with pytest.raises(UserError, match="6 input channels"):
        load_network(written(tmp_path, state, num_head_channels=32, image_size=32))


def test_a_missing_tensor_is_named(tmp_path):
    state = adm_reference.random_state((32, 64), (False, True))
    del state["middle_block.1.proj_out.weight"]
    with pytest.raises(UserError, match=r"lacks middle_block\.1\.proj_out\.weight"):
        load_network(written(tmp_path, state, num_head_channels=32, image_size=32))


def test_a_foreign_tensor_is_named(tmp_path):
    state = {**adm_reference.random_state((32, 64), (False, True)), "input_blocks.1.0.extra.weight": torch.zeros(1)}
    with pytest.raises(UserError, match=r"1 of its tensors, such as input_blocks\.1\.0\.extra\.weight, do not belong"):
        load_network(written(tmp_path, state, num_head_channels=32, image_size=32))


def test_nan_in_the_weights_is_refused(tmp_path):
    state = adm_reference.random_state((32, 64), (False, True))
    state["middle_block.0.in_layers.2.weight"][0, 0, 0, 0] = float("nan")
    with pytest.raises(UserError, match="NaN or infinity in 1 tensors"):
        load_network(written(tmp_path, state, num_head_channels=32, image_size=32))


def misshapen(name, shape):
    """A network's state with one tensor of another shape."""
    return {**adm_reference.random_state((32, 64), (False, True)), name: torch.zeros(shape)}


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("middle_block.0.in_layers.2.weight", (64, 32, 3, 3), "first .*is 64×32×3×3, not 64×64×3×3"),
        (
            "input_blocks.1.0.skip_connection.weight",
            (32, 32, 1, 1),
            "such as input_blocks.1.0.skip_connection.weight, do not belong",
        ),
        ("time_embed.0.weight", (7,), r"time_embed.0.weight has the shape \(7,\)"),
        ("input_blocks.0.0.weight", (7,), "input_blocks.0.0.weight has the shape"),
        ("out.2.weight", (), "out.2.weight has the shape"),
        ("out.2.weight", (4, 32, 3, 3), "has 4 output channels(.|\n)*3, or 6"),
        ("input_blocks.1.0.emb_layers.1.weight", (), "emb_layers.1.weight has the shape"),
        ("middle_block.1.qkv.weight", (), "middle_block.1.qkv.weight has an unexpected shape"),
        ("middle_block.1.qkv.bias", (191,), "middle_block.1.qkv.bias has an unexpected shape"),
        ("middle_block.1.proj_out.weight", (64,), "middle_block.1.proj_out.weight has an unexpected shape"),
        ("middle_block.2.out_layers.0.weight", (), "is a number, not 64"),
        ("input_blocks.1.0.out_layers.3.weight", (33, 33, 3, 3), "no UNet2DModel can be built"),
    ],
)
def test_a_misshapen_tensor_is_named(tmp_path, name, shape, words):
    with pytest.raises(UserError, match=words):
        load_network(written(tmp_path, misshapen(name, shape), num_head_channels=32, image_size=32))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num_head_channels": "32"}, "num_head_channels is '32': an integer from 1"),
        ({"num_head_channels": 32.0}, "num_head_channels is 32.0: an integer from 1"),
        ({"num_head_channels": 0}, "num_head_channels is 0"),
        ({"num_heads": -2, "num_head_channels": -1}, "num_heads is -2"),
        ({"image_size": -5}, "image_size is -5"),
        ({"image_size": 33}, "33 cannot be halved 1 times"),
        ({"noise_schedule": 5}, "no β schedule '5'"),
        ({"diffusion_steps": 4000}, "4000 timesteps\nallowed: 1000"),
        ({"num_head_channels": -1, "num_heads": 4, "num_heads_upsample": 2}, "num_heads_upsample: 2, but only"),
    ],
)
def test_a_wrong_sidecar_is_refused(tmp_path, config, words):
    fitting = {"num_head_channels": 32, "image_size": 32}
    path = written(tmp_path, adm_reference.random_state((32, 64), (False, True)), **{**fitting, **config})
    with pytest.raises(UserError, match=words):
        load_network(path)


def test_a_sidecar_without_a_table_is_refused(tmp_path):
    path = written(tmp_path, adm_reference.random_state((32, 64), (False, True)))
    (tmp_path / "net.json").write_text('{"config": "x"}')
    with pytest.raises(UserError, match="'config' is 'x'"):
        load_network(path)


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


class Evil:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (Path.write_text, (Path(self.mark), "ran"))


@pytest.mark.parametrize("how", ["zip", "old", 2, 4])
def test_a_pickle_with_code_is_not_opened(tmp_path, how):
    mark = tmp_path / "ran"
    if how in ("zip", "old"):
        torch.save({"a": Evil(mark)}, tmp_path / "evil.pt", _use_new_zipfile_serialization=how == "zip")
    else:
        (tmp_path / "evil.pt").write_bytes(pickle.dumps({"a": Evil(mark)}, protocol=how))
    with refused("if you trust the file", given="a pickle with code"):
        load_network(tmp_path / "evil.pt")
    assert not mark.exists()


def test_a_whole_module_is_not_opened(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    with pytest.raises(UserError, match="code"):
        load_network(tmp_path / "module.pt")


def test_an_unknown_fact_is_refused():
    with pytest.raises(UserError, match="num_head_channels"):
        load_network(WEIGHTS, head_width=32)


def test_a_byte_that_changed_is_found_by_the_files_own_checksums(tmp_path):
    path = tmp_path / "net.pt"
    state = load_file(WEIGHTS)
    torch.save(state, path)
    data = bytearray(path.read_bytes())
    data[data.index(state["out.2.weight"].numpy().tobytes()) + 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="damaged: 1 of its [0-9]+ records"):
        load_network(path, num_head_channels=32, image_size=32)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_no_damage_ends_in_anything_but_a_clear_error(tmp_path, seed, zipped):
    state = {name: value[:1] for name, value in load_file(WEIGHTS).items()}
    torch.save(state, tmp_path / "net.pt", _use_new_zipfile_serialization=zipped)
    data = bytearray((tmp_path / "net.pt").read_bytes())
    rng = np.random.default_rng(seed)
    if not zipped:
        data = data[: len(data) - int(rng.integers(2)) * len(data) // 3]
    for _ in range(20):  # half of them where a zip's table of records lies
        data[int(rng.integers(len(data) - 20_000 if rng.random() < 0.5 else 0, len(data)))] ^= 1 << int(rng.integers(8))
    (tmp_path / "net.pt").write_bytes(data)
    with pytest.raises(UserError):
        load_network(tmp_path / "net.pt", num_head_channels=32, image_size=32)


def test_a_file_without_checksums_is_read(tmp_path):
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(load_file(WEIGHTS), tmp_path / "net.pt")
    finally:
        torch.serialization.set_crc32_options(before)
    assert load_network(tmp_path / "net.pt", num_head_channels=32, image_size=32).size == 32


@pytest.mark.parametrize("data", [b"<html>404</html>", b"P", b"error: not found", b""])
def test_what_is_no_checkpoint_is_not_called_an_attack(tmp_path, data):
    (tmp_path / "net.pt").write_bytes(data)
    with pytest.raises(UserError, match="not a weights file") as error:
        load_network(tmp_path / "net.pt")
    assert "code" not in str(error.value)
    assert "copy the file again" in str(error.value)


def test_complex_weights_are_refused(tmp_path):
    state = load_file(WEIGHTS)
    state["out.2.weight"] = state["out.2.weight"].to(torch.complex64)
    torch.save(state, tmp_path / "net.pt")
    with pytest.raises(UserError, match=r"out\.2\.weight holds complex numbers"):
        load_network(tmp_path / "net.pt", num_head_channels=32, image_size=32)


def test_a_loaded_network_takes_no_further_facts():
    network = load_network(WEIGHTS, image_size=32)
    assert load_network(network) is network
    with pytest.raises(UserError, match="already loaded: its beta_schedule"):
        load_network(network, beta_schedule="cosine")
