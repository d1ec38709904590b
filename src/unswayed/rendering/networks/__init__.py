"""A denoising network with the facts needed to use it, and how weights are read into a module."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from unswayed.choices import GuidanceName
from unswayed.errors import UserError, check_known, some
from unswayed.files.tensor_files import read_tensor_file
from unswayed.files.whole import Json
from unswayed.models.runtime import true_float32

# What a file, its sidecar or its user states of a network, by name.
Facts = Json
# Steps of the noise schedule that every network here was trained on.
TIMESTEPS = 1000
PREDICTION_TYPES = ("epsilon", "v_prediction", "sample")
BETA_SCHEDULES = ("linear", "cosine", "scaled_linear")
VARIANCES = ("fixed", "fixed_large", "learned_range", "error")


@dataclass(frozen=True, eq=False)
class Network:
    """A denoising network with the facts needed to use it.

    module: forward(x, t) or forward(x, t, y) -> raw output; prediction_type: epsilon | v_prediction | sample;
    variance_type: fixed (the posterior's), fixed_large (β), learned_range (the second half of the output places the
    variance between posterior and β), error (the second half is the log of the prediction's squared error, of which the
    share `doubt` is added to the posterior variance); beta_schedule: one of BETA_SCHEDULES; size: side of the pictures
    that it was trained on; classes: of a class-conditional network, else None; fills: whether it also sees the known
    pixels, forward(x, t, known), so that it can fill holes; noise_scale: what the noise of stochastic samplers is
    multiplied by (S_noise of Karras et al. 2022); facts: what else was needed to read its file; guidance: how
    backgrounds are guided with it unless a user chooses otherwise.
    """

    module: nn.Module
    name: str
    size: int
    prediction_type: str = "epsilon"
    variance_type: str = "learned_range"
    beta_schedule: str = "linear"
    classes: int | None = None
    fills: bool = False
    noise_scale: float = 1.0
    doubt: float = 1.0
    weights_hash: str | None = None
    dtype: torch.dtype = torch.float32
    channels_last: bool = False
    facts: Mapping[str, object] = field(default_factory=dict)
    guidance: GuidanceName = "calibrated"

    def __post_init__(self) -> None:
        check_known("prediction type", [str(self.prediction_type)], PREDICTION_TYPES)
        check_known("variance type", [str(self.variance_type)], VARIANCES)
        check_known("β schedule", [str(self.beta_schedule)], BETA_SCHEDULES)

    @property
    def learned_variance(self) -> bool:
        """Whether the second half of the output is about the variance."""
        return self.variance_type in ("learned_range", "error")

    def variance_output(self, raw: Tensor) -> Tensor | None:
        """The part of `raw` that sets a step's variance, from −1 (the posterior's) to 1 (β); None if that is fixed.

        For the variance type `error`: the log of the prediction's squared error.
        """
        if self.variance_type == "fixed_large":
            return raw.new_ones(())
        return raw[:, 3:] if self.learned_variance else None

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    def __call__(self, x: Tensor, t: Tensor | float, y: Tensor | None = None, known: Tensor | None = None) -> Tensor:
        """Raw output (N, 3 or 6, H, W) float32 of x (N, 3, H, W) at t (N,) or one for all; y: (N,) class indices.

        known: (N, 4, H, W), for a network that fills: clean pixels, 0 where they are not known, and 1 where they are.
        """
        # Contiguous, since a compiled network is compiled again for another layout.
        times = torch.as_tensor(t, dtype=torch.float32, device=x.device).expand(x.shape[0]).contiguous()
        if (self.classes is None) != (y is None):
            takes = "takes a class for each picture, and none is given" if y is None else "takes no classes"
            raise UserError(f"the network {self.name} {takes}")
        # A loaded network computes in the original's order of operations; `on` makes it channels-last, which is faster.
        layout = torch.channels_last if self.channels_last else torch.preserve_format
        inputs = x.to(self.dtype, memory_format=layout)
        with true_float32(x.device) if self.dtype == torch.float32 else contextlib.nullcontext():
            if self.fills:
                given = None if known is None else known.to(self.dtype, memory_format=layout)
                output = self.module(inputs, times, given)
            else:
                output = self.module(inputs, times) if y is None else self.module(inputs, times, y)
        return output.float()

    def on(self, device: torch.device | str, dtype: torch.dtype = torch.float32) -> Network:
        """A copy of this network on a device, in a precision, its weights channels-last."""
        module = copy.deepcopy(self.module)
        prepare = getattr(module, "prepare", None)
        module = prepare(dtype) if prepare is not None else module.to(dtype)
        module = module.to(device).to(memory_format=torch.channels_last)
        return replace(self, module=module.eval().requires_grad_(False), dtype=dtype, channels_last=True)

    def check_size(self, size: int) -> None:
        if size != self.size:
            raise UserError(
                f"the network {self.name} makes pictures of {self.size}×{self.size}, {size}×{size} was requested",
                allowed=f"pictures of {self.size}×{self.size}, or a network trained at {size}",
                run="unswayed weights",
            )

    def describe(self) -> Json:
        """The network's entry in benchmark.json."""
        names = ("name", "size", "prediction_type", "variance_type", "beta_schedule", "classes", "noise_scale", "doubt")
        facts = {"facts": dict(self.facts)} if self.facts else {}
        return {**{name: getattr(self, name) for name in names}, "weights_sha256": self.weights_hash, **facts}


def wrong_number(name: str, value: object) -> str | None:
    """The reason why a stated number is wrong; None if it is an integer from 1 or is not stated."""
    if value is None or (type(value) is int and value >= 1):
        return None
    return f"{name} is {value!r}: an integer from 1 is allowed"


_NESTS = ("state_dict", "model", "ema")


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Name -> tensor, on the CPU, in the file's own precision."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"there is no weights file {path}", run="unswayed weights")
    content = read_tensor_file(path, run="unswayed weights fetch NAME, or copy the file again")
    for nest in _NESTS:
        if isinstance(content, dict) and isinstance(content.get(nest), dict):
            content = content[nest]
    if not isinstance(content, dict) or not content or not all(isinstance(value, Tensor) for value in content.values()):
        raise UserError(f"{path} holds {_what(content)} instead of a table of tensors", allowed="a state dict")
    strange = next((name for name, value in content.items() if value.is_complex()), None)
    if strange is not None:
        raise UserError(f"{path}: {strange} holds complex numbers", allowed="real numbers")
    return {str(name): value for name, value in content.items()}


def fill(module: nn.Module, tensors: Mapping[str, Tensor], where: str, run: str | None = None) -> None:
    """Load the tensors into the module; raises UserError if one is missing, unexpected or has another shape."""
    own, given = ({name: _by(value) for name, value in table.items()} for table in (module.state_dict(), tensors))
    wrong = [f"{name} is missing" for name in own if name not in given]
    wrong += [f"{name} is unexpected" for name in given if name not in own]
    wrong += [f"{name} is {given[name]}, not {own[name]}" for name in own if given.get(name, own[name]) != own[name]]
    if wrong:
        problem = f"{len(wrong)} tensors, first {wrong[0]}"
        raise UserError(f"the weights in {where} do not fit the network: {problem}", run=run)
    module.load_state_dict(dict(tensors))


def refuse_broken(module: nn.Module, name: str) -> None:
    """Raises UserError if a weight is not finite."""
    broken = [key for key, value in module.state_dict().items() if not bool(value.isfinite().all())]
    if broken:
        raise UserError(
            f"the weights of {name} hold NaN or infinity in {len(broken)} tensors: {some(broken, 3)}",
            allowed="finite numbers",
            run="unswayed weights fetch NAME, or train again",
        )


def _by(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a number"


def _what(content: object) -> str:
    if isinstance(content, dict):
        return f"a table of {len(content)} entries such as {', '.join(map(str, list(content)[:3])) or 'none'}"
    return f"a {type(content).__name__}"
