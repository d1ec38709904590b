"""Networks of other kinds behind the same call: diffusers folders, the compact one, and what is refused."""

import hashlib
import json
from pathlib import Path

import pytest
import torch

from unswayed.errors import UserError
from unswayed.files.downloads import KNOWN, Known
from unswayed.rendering import load_network
from unswayed.rendering.networks import Network
from unswayed.rendering.sampling import predicted_x0

MINI = Path(__file__).parent.parent / "data" / "adm_mini_weights.safetensors"
MINI_FACTS = {"num_head_channels": 32, "image_size": 256}
SMALL = {
    "sample_size": 16,
    "in_channels": 3,
    "out_channels": 3,
    "layers_per_block": 1,
    "block_out_channels": [32, 32],
    "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
    "up_block_types": ["AttnUpBlock2D", "UpBlock2D"],
}


@pytest.fixture(scope="module")
def unet_folder(tmp_path_factory):
    from diffusers import UNet2DModel

    folder = tmp_path_factory.mktemp("unet")
    torch.manual_seed(0)
    UNet2DModel(**SMALL).save_pretrained(folder)
    return folder


def scheduler(**changes):
    return json.dumps(
        {"beta_schedule": "linear", "beta_start": 1e-4, "beta_end": 0.02, "num_train_timesteps": 1000, **changes}
    )


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
def test_a_diffusers_network_says_what_it_predicts(unet_folder, tmp_path, prediction):
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "scheduler_config.json").write_text(
        scheduler(prediction_type=prediction, beta_schedule="squaredcos_cap_v2")
    )
    (tmp_path / "unet").symlink_to(unet_folder)
    network = load_network(tmp_path)
    assert (network.prediction_type, network.beta_schedule, network.variance_type) == (prediction, "cosine", "fixed")
    assert network.size == 16
    x = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    expected = network.module.unet(x, torch.tensor([3, 900])).sample
    assert torch.allclose(network(x, torch.tensor([3, 900])), expected, atol=1e-5)


def test_what_a_bare_folder_leaves_open_can_be_said(unet_folder):
    with pytest.raises(UserError, match="prediction_type or beta_schedule"):
        load_network(unet_folder)
    network = load_network(unet_folder, prediction_type="epsilon", beta_schedule="linear")
    assert network.prediction_type == "epsilon"


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
def test_x0_comes_out_of_every_prediction(prediction):
    start, noise = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8)
    alpha_bar = torch.tensor([0.9, 0.1]).view(-1, 1, 1, 1)
    x = alpha_bar.sqrt() * start + (1 - alpha_bar).sqrt() * noise
    answers = {
        "epsilon": noise,
        "v_prediction": alpha_bar.sqrt() * noise - (1 - alpha_bar).sqrt() * start,
        "sample": start,
    }
    assert torch.allclose(predicted_x0(answers[prediction], x, alpha_bar, prediction), start, atol=1e-5)


def test_one_time_serves_a_batch(unet_folder):
    network = load_network(unet_folder, prediction_type="epsilon", beta_schedule="linear")
    x = torch.randn(3, 3, 16, 16)
    assert torch.equal(network(x, 7), network(x, torch.tensor([7.0, 7.0, 7.0])))


def test_classes_are_asked_for_and_refused(unet_folder):
    network = load_network(unet_folder, prediction_type="epsilon", beta_schedule="linear")
    with pytest.raises(UserError, match="no classes"):
        network(torch.zeros(1, 3, 16, 16), 0, torch.tensor([1]))


def test_another_resolution_is_refused(unet_folder):
    with pytest.raises(UserError, match="16×16, 256×256 was requested"):
        load_network(unet_folder, prediction_type="epsilon", beta_schedule="linear", size=256)


def test_a_latent_network_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"_class_name": "UNet2DModel", "in_channels": 4, "out_channels": 4})
    )
    with pytest.raises(UserError, match="pixel-space"):
        load_network(tmp_path)


def test_another_kind_of_diffusers_network_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"_class_name": "UNet2DConditionModel"}))
    with pytest.raises(UserError, match="UNet2DConditionModel"):
        load_network(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"beta_schedule": "sigmoid"},
        {"beta_end": 0.012},
        {"num_train_timesteps": 4000},
        {"rescale_betas_zero_snr": True},
        {"trained_betas": [0.5] * 1000},
        {"_class_name": "EDMEulerScheduler"},
        {"_class_name": "FlowMatchEulerDiscreteScheduler", "beta_schedule": None},
        {"_class_name": "ScoreSdeVeScheduler"},
        {"beta_schedule": None},
    ],
)
def test_a_schedule_it_was_not_trained_with_is_refused(unet_folder, tmp_path, changes):
    (tmp_path / "unet").symlink_to(unet_folder)
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "scheduler_config.json").write_text(scheduler(**changes))
    with pytest.raises(UserError, match="β"):
        load_network(tmp_path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("[1]", r"contains \[1\]"),
        (scheduler(beta_start="a"), "beta_start is 'a'"),
        (scheduler(prediction_type="flow_prediction"), "no prediction type 'flow_prediction'"),
        (scheduler(prediction_type=["epsilon"]), "no prediction type"),
        (scheduler(variance_type="learned_range"), "3 output channels and the variance_type learned_range"),
    ],
)
def test_a_scheduler_that_cannot_be_is_refused(unet_folder, tmp_path, given, words):
    (tmp_path / "unet").symlink_to(unet_folder)
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "scheduler_config.json").write_text(given)
    with pytest.raises(UserError, match=words):
        load_network(tmp_path)


@pytest.mark.parametrize("variance", ["learned", "fixed_small"])
def test_six_channels_are_a_learned_range_or_refused(tmp_path, variance):
    from diffusers import UNet2DModel

    UNet2DModel(**{**SMALL, "out_channels": 6}).save_pretrained(tmp_path)
    (tmp_path / "scheduler_config.json").write_text(scheduler(variance_type="learned_range"))
    assert load_network(tmp_path).variance_type == "learned_range"
    (tmp_path / "scheduler_config.json").write_text(scheduler(variance_type=variance))
    with pytest.raises(UserError, match="6 output channels and the variance_type"):
        load_network(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"block_out_channels": [64, 64]}, r"do not fit the network.*is \d+(×\d+)*, not"),
        ({"down_block_types": ["Foo", "Bar"]}, "no UNet2DModel can be built: Foo"),
        ({"block_out_channels": "wide"}, "no UNet2DModel can be built"),
        ({"out_channels": None}, "3 or 6 out"),
        ({"class_embed_type": "identity"}, "class_embed_type is identity"),
        ({"time_embedding_type": "fourier"}, "time_embedding_type is fourier"),
        ({"sample_size": [16, 32]}, r"sample_size is \[16, 32\]"),
        ({"sample_size": None}, "sample_size is 'not stated'"),
        ({"time_channels": "x"}, "no UNet2DModel can be built"),
    ],
)
def test_a_config_that_cannot_be_is_refused(unet_folder, tmp_path, changes, words):
    config = json.loads((unet_folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    (tmp_path / "diffusion_pytorch_model.safetensors").symlink_to(unet_folder / "diffusion_pytorch_model.safetensors")
    with pytest.raises(UserError, match=words):
        load_network(tmp_path, prediction_type="epsilon", beta_schedule="linear")


@pytest.mark.parametrize("file", ["config.json", "unswayed.json"])
def test_a_list_is_no_config(unet_folder, tmp_path, file):
    (tmp_path / "config.json").write_text((unet_folder / "config.json").read_text())
    (tmp_path / file).write_text("[1]")
    with pytest.raises(UserError, match=rf"{file} contains \[1\]"):
        load_network(tmp_path, prediction_type="epsilon", beta_schedule="linear")


def test_a_noise_scale_that_cannot_be_is_refused(unet_folder):
    with pytest.raises(UserError, match="noise_scale is 'loud'"):
        load_network(unet_folder, prediction_type="epsilon", beta_schedule="linear", noise_scale="loud")


def test_weights_that_do_not_fit_their_config_are_refused(unet_folder, tmp_path):
    config = json.loads((unet_folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "layers_per_block": 2}))
    (tmp_path / "diffusion_pytorch_model.safetensors").symlink_to(unet_folder / "diffusion_pytorch_model.safetensors")
    with pytest.raises(UserError, match="do not fit the network"):
        load_network(tmp_path, prediction_type="epsilon", beta_schedule="linear")


def test_a_folder_without_a_network_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no config\.json"):
        load_network(tmp_path)


def test_a_name_that_is_not_known_lists_those_that_are():
    with pytest.raises(UserError, match="256x256_diffusion_uncond"):
        load_network("256x256_difusion_uncond")


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(UserError, match=r"there is no network gone/net\.pt"):
        load_network("gone/net.pt")


def test_a_known_network_that_was_not_fetched_says_how(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="unswayed weights fetch 256x256_diffusion_uncond"):
        load_network("256x256_diffusion_uncond")


def test_another_file_under_a_known_name_is_refused(monkeypatch, tmp_path):
    """In the cache or elsewhere; under another name it is the user's own."""
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path))
    weights = MINI.read_bytes()
    (tmp_path / "256x256_diffusion_uncond.pt").write_bytes(weights)
    (tmp_path / "256x256_diffusion_uncond.safetensors").write_bytes(weights)
    (tmp_path / "mine.safetensors").write_bytes(weights)
    for spec in ("256x256_diffusion_uncond", tmp_path / "256x256_diffusion_uncond.safetensors"):
        with pytest.raises(UserError) as error:
            load_network(spec, num_head_channels=32)
        assert f"{hashlib.sha256(weights).hexdigest()}, expected a37c32fffd31" in str(error.value)
        assert "under another name" in str(error.value)
        assert "run: unswayed weights fetch 256x256_diffusion_uncond" in str(error.value)
    assert load_network(tmp_path / "mine.safetensors", num_head_channels=32, image_size=256).size == 256


def test_the_known_file_itself_is_taken(monkeypatch, tmp_path):
    weights = MINI.read_bytes()
    known = Known("https://example.org/ours.safetensors", sha256=hashlib.sha256(weights).hexdigest(), facts=MINI_FACTS)
    monkeypatch.setitem(KNOWN, "ours", known)
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path))
    (tmp_path / "ours.safetensors").write_bytes(weights)
    assert load_network("ours").weights_hash == known.sha256
    with pytest.raises(UserError, match="256×256, 128×128 was requested"):
        load_network("ours", size=128)
    (tmp_path / "ours.safetensors").write_bytes(weights[:-1] + b"!")
    with pytest.raises(UserError, match="is another file"):
        load_network("ours")


def test_a_wrong_fact_is_refused_when_stated():
    with pytest.raises(UserError, match="epsilon, v_prediction, sample"):
        Network(torch.nn.Linear(1, 1), "x", 8, prediction_type="noise")
