"""`load_network("compact" | NAME | FILE | FOLDER)`: load any pixel-space diffusion network, with its facts.

network = load_network("256x256_diffusion_uncond.pt")
raw = network(x, t)                  # (N, 3, H, W) and (N,) on the 0…999 scale -> (N, 3 or 6, H, W) float32
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from unswayed.errors import UserError, unknown
from unswayed.files.downloads import KNOWN, cached
from unswayed.files.storage import cache_folder
from unswayed.files.whole import sha256
from unswayed.jobs.resources import is_out_of_memory
from unswayed.models.runtime import CudaGraphs

from . import Facts, Network, refuse_broken
from .adm import load_adm
from .compact import EMBEDDED, load_compact
from .diffusers_unet import load_unet


def load_network(spec: str | Path | Network = "compact", *, size: int | None = None, **facts: object) -> Network:
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
        network = _compact(EMBEDDED, "compact", facts)
    elif (path := _find(str(spec))).is_file():
        network = load_adm(path, size, **facts)
    elif (path / "network.safetensors").exists():
        network = _compact(path, path.name, facts)
    else:
        network = load_unet(path, **facts)
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
        given = f"there is no network {spec}"
        raise UserError(given, allowed="compact, a known name, a file or a folder", run="unswayed weights")
    raise unknown("network", spec, ["compact", *KNOWN, "FILE", "FOLDER"], run="unswayed weights")


def _compact(folder: Path, name: str, facts: Facts) -> Network:
    if facts:
        given = f"the compact network's config already states its {', '.join(facts)}"
        raise UserError(given, allowed="no further facts")
    if not (folder / "network.safetensors").exists():
        raise UserError(f"there is no network in {folder}", run="unswayed train-network PHOTOS -o DIR")
    module = load_compact(folder)
    config = module.config
    return Network(
        module,
        name=name,
        size=config.sample_size,
        prediction_type=config.prediction_type,
        variance_type=config.variance_type,
        beta_schedule=config.beta_schedule,
        fills=config.inputs > 3,
        doubt=float(config.doubt),
        weights_hash=sha256(folder / "network.safetensors"),
    )


PRECISIONS: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# More pictures at once gain nothing: the first number for large networks, the second for small ones, whose passes are
# short beside what surrounds them.
LARGEST_BATCH, SMALL_NETWORK, LARGEST_OF_SMALL = 32, 10**8, 128


def choose_precision(name: str | None, device: torch.device) -> str:
    """fp32 or bf16: bf16 if the hardware supports it (GPUs, CPUs with AMX or AVX-512 BF16), else fp32."""
    if name in (None, "auto"):
        if device.type == "cuda":
            return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
        probes = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
        has_bf16 = device.type == "cpu" and any(getattr(torch.cpu, probe, bool)() for probe in probes)
        return "bf16" if has_bf16 else "fp32"
    if name not in PRECISIONS:
        raise UserError(f"precision is '{name}'", allowed=", ".join(["auto", *PRECISIONS]))
    return str(name)


def choose_batch_size(network: Network, size: int, asked: int | None = None) -> int:
    """The batch size: on a GPU a power of two, at most 32 or 128, that fits its free memory; on a CPU one.

    A CPU gains nothing from a batch (measured: 0.25 s per picture at 1 and at 4), and a picture alone in its batch
    always has the same bytes.
    """
    if asked is not None and asked < 1:
        raise UserError(f"batch size is {asked}", allowed="1 or more")
    if network.device.type != "cuda":
        return 1
    if asked is not None:
        return asked
    free, _ = torch.cuda.mem_get_info(network.device)
    each = max(1, _bytes_a_picture(network, size))
    parameters = sum(weight.numel() for weight in network.module.parameters())
    most = LARGEST_OF_SMALL if parameters < SMALL_NETWORK else LARGEST_BATCH
    batch = 1
    while batch < most and 2 * batch * each < 0.8 * free:
        batch *= 2
    return batch


def _bytes_a_picture(network: Network, size: int) -> int:
    """Peak memory of one picture's pass, without the weights."""
    device = network.device
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    labels = None if network.classes is None else torch.zeros(1, dtype=torch.long, device=device)
    try:
        with torch.no_grad():
            network(torch.zeros(1, 3, size, size, device=device), 0.0, labels)
    except torch.OutOfMemoryError:
        raise out_of_memory(network, size) from None
    # Ten more float32 pictures are the sampler's state.
    return torch.cuda.max_memory_allocated(device) - before + 40 * 3 * size * size


class Recording(nn.Module):
    """A module whose passes a GPU replays, see `CudaGraphs`."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.replayed = CudaGraphs(module)

    def forward(self, *inputs: torch.Tensor | None) -> torch.Tensor:
        return self.replayed(*inputs)


def compiled(module: nn.Module) -> nn.Module:
    """The module compiled for one shape of its input; what the compiler makes is kept for the next run."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "compiled"))
    return torch.compile(module, dynamic=False)  # type: ignore[return-value]


@contextlib.contextmanager
def loading_onto_device(what: str, device: torch.device) -> Iterator[None]:
    """A block that loads `what` onto a device; raises UserError if memory runs out."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(
            f"{what} does not fit on {device}",
            allowed="--device cpu, or --network compact",
            run="nvidia-smi" if device.type == "cuda" else "free -h",
        ) from None


def out_of_memory(network: Network, size: int) -> UserError:
    """The error for a single picture that does not fit."""
    device = network.device
    held = sum(value.numel() * value.element_size() for value in network.module.parameters())
    left = ""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        left = f" ({free / 2**30:.1f} of {total / 2**30:.1f} GiB are free)"
    return UserError(
        f"out of memory on {device} with one picture of {size}×{size} at a time: the weights of {network.name} alone "
        f"take {held / 2**30:.2f} GiB{left}",
        allowed="a device with more free memory, --device cpu, or --network compact",
        run="nvidia-smi" if device.type == "cuda" else "free -h",
    )
