"""diffusers' `UNet2DModel` as a network: build, load and save it with the facts that its config does not contain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unswayed.errors import UserError, check_known, first_line, need
from unswayed.files.records import read_object
from unswayed.files.tensor_files import write_tensor_file
from unswayed.files.whole import sha256, write_json

from . import TIMESTEPS, Facts, Network, fill, read_tensors, wrong_number

# Facts that are not in a UNet2DModel's config but in the scheduler config of its pipeline (or in `unswayed.json`).
FACTS = ("prediction_type", "beta_schedule", "variance_type", "image_size", "noise_scale")
WEIGHTS = "diffusion_pytorch_model.safetensors"
SIDECAR = "unswayed.json"
_BETA_NAMES = {"linear": "linear", "squaredcos_cap_v2": "cosine", "scaled_linear": "scaled_linear"}
_BETA_ENDS = {"linear": (1e-4, 0.02), "scaled_linear": (0.00085, 0.012)}
# The schedulers of diffusers whose networks were trained on x = √ᾱ·x0 + √(1 − ᾱ)·ε with discrete β, which their config
# states.
_SCHEDULERS = ("DDPM", "DDIM", "PNDM", "DPMSolver", "DEIS", "UniPC", "Euler", "Heun", "LMS", "KDPM2")
_USUAL = {"beta_start": 1e-4, "beta_end": 0.02}
_VARIANCES = {
    "fixed_small": "fixed",
    "fixed_small_log": "fixed",
    "fixed_large": "fixed_large",
    "fixed_large_log": "fixed_large",
}


class PixelUNet(nn.Module):
    """A `UNet2DModel` called as module(x, t, y) -> raw output; the timestep is always embedded in float32."""

    def __init__(self, unet: Any, heads: int | None = None) -> None:
        super().__init__()
        self.unet, self.heads = unet, heads
        for attention in self.unet.modules() if heads is not None else ():
            if hasattr(attention, "to_q"):
                attention.heads = heads

    def forward(self, x: Tensor, t: Tensor, y: Tensor | None = None) -> Tensor:
        return self.unet(x, t, class_labels=y, return_dict=False)[0]

    def prepare(self, dtype: torch.dtype) -> PixelUNet:
        """Convert to another precision, except the timestep embedding, whose angles need float32."""
        for part in self.unet.modules():
            if type(part) is nn.GroupNorm:
                part.__class__ = GroupNorm
        for part in self.unet.children():
            part.to(dtype)
        if dtype != torch.float32 and not isinstance(self.unet.time_embedding, nn.Identity):
            self.unet.time_proj = _ExactTime(self.unet.time_proj, self.unet.time_embedding.float())
            self.unet.time_embedding = nn.Identity()
        return self

    def tensors(self) -> dict[str, Tensor]:
        """The weights under diffusers' own names."""
        named = self.unet.state_dict()
        return {name.replace("time_proj.embedding.", "time_embedding."): value for name, value in named.items()}


class _ExactTime(nn.Module):
    def __init__(self, sinusoids: nn.Module, embedding: nn.Module) -> None:
        super().__init__()
        self.sinusoids, self.embedding = sinusoids, embedding

    def forward(self, t: Tensor) -> Tensor:
        return self.embedding(self.sinusoids(t).float())


def build_unet(config: Facts, heads: int | None = None, where: str = "the config") -> PixelUNet:
    """A `UNet2DModel` of that config with random weights; `heads`: one number of heads for every level.

    time_channels in the config: the width of the timestep's sinusoids if it is not the first level's width, as in
    guided-diffusion's 512×512 networks. diffusers itself has no such option.
    """
    need("diffusers", "diffusers")
    from diffusers import UNet2DModel
    from diffusers.models.embeddings import TimestepEmbedding, Timesteps

    config = dict(config)
    width = config.pop("time_channels", None)
    if heads is not None:
        config["attention_head_dim"] = config["block_out_channels"][0]  # replaced by `heads` below
    try:
        unet = UNet2DModel.from_config(config)
        if width is not None:
            unet.time_proj = Timesteps(width, unet.config.flip_sin_to_cos, unet.config.freq_shift)
            unet.time_embedding = TimestepEmbedding(width, unet.time_embedding.linear_1.out_features)
            unet.register_to_config(time_channels=width)
    except Exception as error:
        given = f"{where}: no UNet2DModel can be built: {first_line(error)}"
        raise UserError(given, allowed="a config that diffusers accepts") from None
    return PixelUNet(unet.eval(), heads)


def save_unet(network: Network, folder: str | Path) -> None:
    """Write config, weights and facts into a folder that diffusers' `UNet2DModel.from_pretrained` reads as well.

    Exceptions: diffusers refuses a network with `time_channels` (see `build_unet`) and one with a number of heads
    instead of their width; `load_unet` reads both.
    """
    if not isinstance(network.module, PixelUNet):
        raise UserError(f"{network.name} is not a UNet2DModel", allowed="a guided-diffusion or diffusers network")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads(network.module.unet.to_json_string())
    if network.module.heads is not None:
        # One width per level, as elsewhere in diffusers: UNet2DModel refuses that instead of guessing.
        config["attention_head_dim"] = [width // network.module.heads for width in config["block_out_channels"]]
    write_json(folder / "config.json", config)
    write_tensor_file(folder / WEIGHTS, network.module.tensors(), {"format": "pt"})
    facts = {
        "prediction_type": network.prediction_type,
        "beta_schedule": network.beta_schedule,
        "variance_type": network.variance_type,
        "image_size": network.size,
        "num_heads": network.module.heads,
        "noise_scale": network.noise_scale,
    }
    write_json(folder / SIDECAR, facts)


def load_unet(folder: str | Path, **facts: object) -> Network:
    """The network of a diffusers folder: a `UNet2DModel`, or a pipeline that holds one under `unet/`."""
    folder = Path(folder)
    network = folder / "unet" if (folder / "unet" / "config.json").exists() else folder
    check_known("network fact", facts, FACTS)
    config = _config(network)
    stated = {"image_size": config.get("sample_size"), **_stated(folder, network), **facts}
    missing = [name for name in ("prediction_type", "beta_schedule") if name not in stated]
    if missing:
        raise UserError(
            f"{folder} does not state its {' or '.join(missing)}: it has no scheduler_config.json",
            allowed=f"a pipeline folder, or a {SIDECAR} next to config.json with prediction_type (epsilon, "
            "v_prediction, sample) and beta_schedule (linear, cosine), or --network-fact NAME=VALUE",
        )
    size, heads = stated["image_size"], stated.get("num_heads")
    wrong = wrong_number("sample_size", "not stated" if size is None else size) or wrong_number("num_heads", heads)
    if wrong is not None:
        raise UserError(f"{network}: {wrong}", allowed="the side of a square, also as --network-fact image_size=256")
    variances = ("learned_range",) if config["out_channels"] == 6 else ("fixed", "fixed_large")
    variance = stated.get("variance_type", variances[0])
    if variance not in variances:
        raise UserError(
            f"{folder} has {config['out_channels']} output channels and the variance_type {variance}",
            allowed="6 channels and learned_range, or 3 and a fixed variance (fixed or fixed_large)",
        )
    weights = _weights(network)
    unet = build_unet(config, heads, str(network / "config.json"))
    fill(unet.unet, {name: value.float() for name, value in read_tensors(weights).items()}, str(weights))
    return Network(
        unet.requires_grad_(False),
        name=folder.name,
        size=size,
        prediction_type=stated["prediction_type"],
        variance_type=variance,
        beta_schedule=stated["beta_schedule"],
        classes=config.get("num_class_embeds"),
        noise_scale=_positive("noise_scale", stated.get("noise_scale", 1.0), network),
        weights_hash=sha256(weights),
    )


def _config(folder: Path) -> Facts:
    if not (folder / "config.json").exists():
        raise UserError(
            f"{folder} holds no config.json", allowed="a diffusers UNet2DModel folder, or a train-network folder"
        )
    config = read_object(folder / "config.json")
    kind = config.get("_class_name")
    if kind != "UNet2DModel":
        raise UserError(f"{folder} holds a {kind or 'network of unknown kind'}", allowed="UNet2DModel")
    if config.get("in_channels") != 3 or config.get("out_channels") not in (3, 6):
        taken, given = (config.get(name, "an unstated number of") for name in ("in_channels", "out_channels"))
        raise UserError(
            f"{folder} has {taken} input and {given} output channels: it is a latent or super-resolution network",
            allowed="pixel-space networks: 3 channels in, 3 or 6 out",
        )
    for name, only in (("time_embedding_type", "positional"), ("class_embed_type", None)):
        if config.get(name, only) != only:
            raise UserError(f"{folder}: its {name} is {config[name]}", allowed=only or "none, with num_class_embeds")
    return config


def _stated(folder: Path, network: Path) -> Facts:
    """The facts that the files next to the network state, nearest file first."""
    for path in (network / SIDECAR, folder / "scheduler" / "scheduler_config.json", network / "scheduler_config.json"):
        if path.exists():
            stated = {name: value for name, value in read_object(path).items() if value is not None}
            return stated if path.name == SIDECAR else _of_scheduler(path, stated)
    return {}


def _of_scheduler(path: Path, scheduler: Facts) -> Facts:
    """The facts that a scheduler's config states; raises UserError for another noise process."""
    kind = str(scheduler.get("_class_name", "DDPMScheduler"))
    if not kind.startswith(_SCHEDULERS) or "beta_schedule" not in scheduler:
        raise UserError(
            f"{path}: a {kind} with the β schedule {scheduler.get('beta_schedule', '(not stated)')}",
            allowed=f"schedulers with discrete β: {', '.join(_SCHEDULERS)}; with a beta_schedule",
        )
    for other in ("trained_betas", "rescale_betas_zero_snr", "use_flow_sigmas"):
        if scheduler.get(other):
            given = f"{path}: {other} is set, which is another noise schedule"
            raise UserError(given, allowed=f"β {', '.join(_BETA_NAMES)}")
    name = _BETA_NAMES.get(str(scheduler["beta_schedule"]))
    if name is None or scheduler.get("num_train_timesteps", TIMESTEPS) != TIMESTEPS:
        raise UserError(
            f"{path}: β schedule {scheduler['beta_schedule']} over {scheduler.get('num_train_timesteps')} steps",
            allowed=f"{', '.join(_BETA_NAMES)} over {TIMESTEPS} steps",
        )
    ends = _BETA_ENDS.get(name)
    span = tuple(_positive(end, scheduler.get(end, usual), path) for end, usual in _USUAL.items())
    if ends is not None and any(abs(a - b) > 1e-9 for a, b in zip(ends, span, strict=True)):
        raise UserError(f"{path}: β runs from {span[0]} to {span[1]}", allowed=f"{ends[0]} to {ends[1]} for {name}")
    stated = {"beta_schedule": name, "prediction_type": scheduler.get("prediction_type", "epsilon")}
    if "variance_type" in scheduler:
        stated["variance_type"] = _VARIANCES.get(str(scheduler["variance_type"]), scheduler["variance_type"])
    return stated


def _positive(name: str, value: object, folder: Path) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e6:
        raise UserError(f"{folder}: {name} is {value!r}", allowed="a number above 0")
    return float(value)


def _weights(folder: Path) -> Path:
    for name in (WEIGHTS, "diffusion_pytorch_model.bin"):
        if (folder / name).exists():
            return folder / name
    raise UserError(f"{folder} holds no weights", allowed=f"{WEIGHTS} or diffusion_pytorch_model.bin")


class GroupNorm(nn.GroupNorm):
    """`nn.GroupNorm`; when compiled, it computes the same sums in an order that suits channels-last memory.

    The compiler makes a group's numbers contiguous before it sums them, which transposes channels-last pictures
    twice: on an H200 this took a sixth of the full-size network's time.
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or not torch.compiler.is_compiling():
            return super().forward(x)
        return channels_last_norm(x, self.num_groups, self.weight, self.bias, self.eps)


def channels_last_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Group normalization of (N, C, H, W): sums over positions per channel, then over a group's channels."""
    n, channels = x.shape[:2]
    wide = x.permute(0, 2, 3, 1).float()
    # Sums of squares lose a small variance next to a large mean, so both are taken around the group's first position.
    around = wide[:, 0, 0].view(n, groups, -1).mean(dim=2, keepdim=True)
    apart = wide - around.expand(n, groups, channels // groups).reshape(n, 1, 1, channels)
    count = x[0].numel() // groups
    mean = apart.sum(dim=(1, 2)).view(n, groups, -1).sum(dim=2, keepdim=True) / count
    square = apart.square().sum(dim=(1, 2)).view(n, groups, -1).sum(dim=2, keepdim=True) / count
    scale = torch.rsqrt((square - mean.square()).clamp_min(0) + eps) * weight.float().view(groups, -1)
    shift = bias.float().view(groups, -1) - (mean + around) * scale
    out = wide * scale.view(n, 1, 1, channels) + shift.view(n, 1, 1, channels)
    return out.to(x.dtype).permute(0, 3, 1, 2)
