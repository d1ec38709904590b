"""`load_network("compact" | NAME | FILE | FOLDER)`: load any pixel-space diffusion network, with its facts.

network = load_network("256x256_diffusion_uncond.pt")
raw = network(x, t)                  # (N, 3, H, W) and (N,) on the 0…999 scale -> (N, 3 or 6, H, W) float32
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from unswayed.errors import UserError, unknown
from unswayed.files.known_weights import KNOWN, cached
from unswayed.files.whole import sha256

from .adm import load_adm
from .checkpoints import refuse_broken
from .compact import load_compact
from .diffusers_unet import load_unet
from .network import Network


def load_network(spec: str | Path | Network = "compact", *, size: int | None = None, **facts: Any) -> Network:
    """The network that `spec` names, in float32 on the CPU.

    spec: `compact` (embedded), a name that `unswayed weights` lists, a guided-diffusion `.pt` or `.safetensors` file,
    or a folder (a diffusers `UNet2DModel`, a diffusers pipeline that holds one, or what `train-network` wrote).
    size: refuse a network of another resolution; if a file does not state its resolution, this sets it.
    facts: settings that cannot be read from a file, see adm.FACTS and diffusers_unet.FACTS; they override its sidecar.
    """
    if isinstance(spec, Network):
        if facts:
            raise UserError(f"{spec.name} is already loaded: its {', '.join(facts)} cannot be changed")
        network = spec
    elif str(spec) == "compact":
        network = _compact(None, facts)
    else:
        network = _from_path(_find(str(spec)), size, facts)
    if size is not None:
        network.check_size(size)
    refuse_broken(network.module, network.name)
    return network


def _find(spec: str) -> Path:
    if Path(spec).exists():
        return Path(spec)
    stem = Path(spec).name.removesuffix(".pt")
    if stem in KNOWN and "/" not in spec:
        return cached(stem)
    if "/" in spec or Path(spec).suffix:
        raise UserError(
            f"there is no network {spec}",
            allowed="compact, a known name, a file or a folder",
            run="unswayed weights",
        )
    raise unknown("network", spec, ["compact", *KNOWN, "FILE", "FOLDER"], run="unswayed weights")


def _from_path(path: Path, size: int | None, facts: dict[str, Any]) -> Network:
    if path.is_file():
        return load_adm(path, size, **facts)
    if (path / "network.safetensors").exists():
        return _compact(path, facts)
    return load_unet(path, **facts)


def _compact(folder: Path | None, facts: dict[str, Any]) -> Network:
    if facts:
        raise UserError(
            f"the compact network's config already states its {', '.join(facts)}", allowed="no further facts"
        )
    place = Path(str(resources.files("unswayed.data").joinpath("network"))) if folder is None else folder
    if not (place / "network.safetensors").exists():
        raise UserError(f"there is no network in {place}", run="unswayed train-network PHOTOS -o DIR")
    module = load_compact(folder)
    config = module.config
    return Network(
        module,
        name="compact" if folder is None else folder.name,
        size=config.sample_size,
        prediction_type=config.prediction_type,
        variance_type=config.variance_type,
        beta_schedule=config.beta_schedule,
        doubt=float(config.doubt),
        weights_hash=sha256(place / "network.safetensors"),
    )
