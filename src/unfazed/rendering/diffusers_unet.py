"""diffusers' `UNet2DModel` as a network: build, load and save it with the facts that its own config leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unfazed.errors import UserError, unknown
from unfazed.files import read_json, sha256, whole, write_json

from .group_norm import GroupNorm
from .network import Network

# What a UNet2DModel's own config does not say, and the scheduler config of its pipeline (or `unfazed.json`) does.
FACTS = ("prediction_type", "beta_schedule", "image_size", "noise_scale")
WEIGHTS = "diffusion_pytorch_model.safetensors"
SIDECAR = "unfazed.json"
_BETA_NAMES = {"linear": "linear", "squaredcos_cap_v2": "cosine", "scaled_linear": "scaled_linear"}
_BETA_ENDS = {"linear": (1e-4, 0.02), "scaled_linear": (0.00085, 0.012)}


class PixelUNet(nn.Module):
    """A `UNet2DModel` called as module(x, t, y) -> raw output; its noise level is embedded in float32 always."""

    def __init__(self, unet: Any, heads: int | None = None) -> None:
        super().__init__()
        self.unet: Any = unet
        self.heads = heads
        if heads is not None:
            _set_heads(unet, heads)

    def forward(self, x: Tensor, t: Tensor, y: Tensor | None = None) -> Tensor:
        return self.unet(x, t, class_labels=y, return_dict=False)[0]

    def prepare(self, dtype: torch.dtype) -> PixelUNet:
        """In another precision, all but the embedding of the noise level, whose angles half precision would blur."""
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


def build_unet(config: dict[str, Any], heads: int | None = None) -> PixelUNet:
    """A `UNet2DModel` of that config with random weights; `heads`: one number of heads for every level."""
    return PixelUNet(_unet_class()(**config).eval(), heads)


def save_unet(network: Network, folder: str | Path) -> None:
    """Write config, weights and facts into a folder that diffusers' `UNet2DModel.from_pretrained` reads as well."""
    from safetensors.torch import save

    if not isinstance(network.module, PixelUNet):
        raise UserError(f"{network.name} is no UNet2DModel", allowed="a guided-diffusion or diffusers network")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    network.module.unet.save_config(folder)
    tensors = {name: value.detach().cpu().contiguous() for name, value in network.module.tensors().items()}
    with whole(folder / WEIGHTS) as file:
        file.write(save(tensors, metadata={"format": "pt"}))
    facts = {
        "prediction_type": network.prediction_type,
        "beta_schedule": network.beta_schedule,
        "image_size": network.size,
        "num_heads": network.module.heads,
        "noise_scale": network.noise_scale,
    }
    write_json(folder / SIDECAR, facts)


def load_unet(folder: str | Path, **facts: Any) -> Network:
    """The network of a diffusers folder: a `UNet2DModel`, or a pipeline that holds one under `unet/`."""
    folder = Path(folder)
    place = folder / "unet" if (folder / "unet" / "config.json").exists() else folder
    known_facts(facts, FACTS)
    config = _config(place)
    stated = {**_stated(folder, place), **facts}
    missing = [name for name in ("prediction_type", "beta_schedule") if name not in stated]
    if missing:
        raise UserError(
            f"{folder} does not say its {' or '.join(missing)}: there is no scheduler_config.json",
            allowed=f"a pipeline folder, or a {SIDECAR} beside config.json with prediction_type (epsilon, "
            "v_prediction, sample) and beta_schedule (linear, cosine)",
        )
    size = stated.get("image_size") or config.get("sample_size")
    if not isinstance(size, int):
        raise UserError(f"{place / 'config.json'} names no square sample_size", allowed="image_size=256, say")
    weights = _weights(place)
    tensors = _read(weights)
    unet = _unet_class().from_config(config)
    problems = unet.load_state_dict({name: value.float() for name, value in tensors.items()}, strict=False)
    if problems.missing_keys or problems.unexpected_keys:
        first = [*problems.missing_keys, *problems.unexpected_keys][0]
        raise UserError(f"{weights} does not fit its config.json (first: {first})")
    return Network(
        PixelUNet(unet.eval().requires_grad_(False), stated.get("num_heads")),
        name=folder.name,
        size=size,
        prediction_type=stated["prediction_type"],
        variance_type="learned_range" if config["out_channels"] == 2 * config["in_channels"] else "fixed",
        beta_schedule=stated["beta_schedule"],
        classes=config.get("num_class_embeds"),
        noise_scale=float(stated.get("noise_scale", 1.0)),
        weights_hash=sha256(weights),
    )


def in_memory(config: dict[str, Any], name: str, **facts: Any) -> Network:
    """A network of that config with random weights, for measuring speed."""
    return Network(build_unet(config), name, config["sample_size"], **facts)


def _config(place: Path) -> dict[str, Any]:
    if not (place / "config.json").exists():
        raise UserError(
            f"{place} holds no config.json", allowed="a diffusers UNet2DModel folder, or a train-network folder"
        )
    config = read_json(place / "config.json")
    kind = config.get("_class_name")
    if kind != "UNet2DModel":
        raise UserError(f"{place} holds a {kind or 'network of unknown kind'}", allowed="UNet2DModel")
    if config.get("in_channels", 3) != 3 or config.get("out_channels", 3) not in (3, 6):
        raise UserError(
            f"{place} takes {config.get('in_channels')} channels and gives {config.get('out_channels')}: a latent "
            "or super-resolution network",
            allowed="pixel-space networks: 3 channels in, 3 or 6 out",
        )
    return config


def _stated(folder: Path, place: Path) -> dict[str, Any]:
    """The facts that files beside the network state, nearest first."""
    if (place / SIDECAR).exists():
        return {name: value for name, value in read_json(place / SIDECAR).items() if value is not None}
    for path in (folder / "scheduler" / "scheduler_config.json", place / "scheduler_config.json"):
        if path.exists():
            return _of_scheduler(path, read_json(path))
    return {}


def _of_scheduler(path: Path, scheduler: dict[str, Any]) -> dict[str, Any]:
    name = _BETA_NAMES.get(scheduler.get("beta_schedule", "linear"))
    if name is None or scheduler.get("num_train_timesteps", 1000) != 1000:
        raise UserError(
            f"{path}: β schedule {scheduler.get('beta_schedule')} over {scheduler.get('num_train_timesteps')} steps",
            allowed=f"{', '.join(_BETA_NAMES)} over 1000 steps",
        )
    ends = _BETA_ENDS.get(name)
    found = (scheduler.get("beta_start", 1e-4), scheduler.get("beta_end", 0.02))
    if ends is not None and any(abs(a - b) > 1e-9 for a, b in zip(ends, found, strict=True)):
        raise UserError(f"{path}: β runs from {found[0]} to {found[1]}", allowed=f"{ends[0]} to {ends[1]} for {name}")
    return {"beta_schedule": name, "prediction_type": scheduler.get("prediction_type", "epsilon")}


def _weights(place: Path) -> Path:
    for name in (WEIGHTS, "diffusion_pytorch_model.bin"):
        if (place / name).exists():
            return place / name
    raise UserError(f"{place} holds no weights", allowed=f"{WEIGHTS} or diffusion_pytorch_model.bin")


def _read(path: Path) -> dict[str, Tensor]:
    from .checkpoints import read_tensors

    return read_tensors(path)


def _set_heads(unet: Any, heads: int) -> None:
    for module in unet.modules():
        if hasattr(module, "to_q"):
            module.heads = heads


def _unet_class() -> Any:
    try:
        from diffusers import UNet2DModel
    except ImportError:
        raise UserError(
            "this network needs the package diffusers, which is not installed", run="pip install diffusers"
        ) from None
    return UNet2DModel


def known_facts(facts: dict[str, Any], allowed: tuple[str, ...]) -> None:
    """Refuse a fact that such a network does not have."""
    for name in facts:
        if name not in allowed:
            raise unknown("fact of a network", name, allowed)
