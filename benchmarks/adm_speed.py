"""How fast the full-size guided-diffusion network renders on a GPU, against the bf16 matrix product of the same run.

    python benchmarks/adm_speed.py -o adm_speed.json             # about five minutes, compiling included
    python benchmarks/adm_speed.py --sources 0                   # without `build` and its eleven edits
    python benchmarks/adm_speed.py --sources 0 --brief --steps 32 --released

Weights are random (of the right shapes), which changes no time. The released code took 8.17 s for one 50-step edit and
4.03 s for one 25-step edit on an H200; --released times its loop in the same run: one picture at a time, in bf16, with
the gradient through the network. --steps times the same guided edit with fewer steps of the whole schedule, of which a
background takes half.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from unswayed.benchmark import BuildSettings
from unswayed.choices import Precision
from unswayed.edits.composition import Guidance
from unswayed.rendering.diffusion import Diffusion, open_diffusion
from unswayed.rendering.layers import Layers, Rendering
from unswayed.rendering.networks import Network
from unswayed.rendering.networks.diffusers_unet import build_unet
from unswayed.rendering.sampling.samplers import find_sampler

ADM = {
    "sample_size": 256,
    "in_channels": 3,
    "out_channels": 6,
    "layers_per_block": 2,
    "block_out_channels": [256, 256, 512, 512, 1024, 1024],
    "attention_head_dim": 64,
    "down_block_types": ["ResnetDownsampleBlock2D"] * 3 + ["AttnDownBlock2D"] * 3,
    "up_block_types": ["AttnUpBlock2D"] * 3 + ["ResnetUpsampleBlock2D"] * 3,
    "resnet_time_scale_shift": "scale_shift",
    "downsample_type": "resnet",
    "upsample_type": "resnet",
    "attn_norm_num_groups": 32,
}
SMALL = {**ADM, "sample_size": 32, "block_out_channels": [32, 64], "attention_head_dim": 32, "layers_per_block": 1,
         "down_block_types": ["ResnetDownsampleBlock2D", "AttnDownBlock2D"],
         "up_block_types": ["AttnUpBlock2D", "ResnetUpsampleBlock2D"]}  # fmt: skip
RELEASED = {"50 steps": 8.17, "25 steps": 4.03}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path(os.environ.get("OUT", ".")) / "adm_speed.json")
    parser.add_argument("--batch", type=int, nargs="+", default=[32], help="pictures at once; the first gets all parts")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="a tiny network, to try the command without a GPU")
    parser.add_argument("--sources", type=int, default=46, help="photographs of the build at the end; 0: none")
    parser.add_argument("--removal", default="patches", help="of that build")
    parser.add_argument("--steps", type=int, nargs="+", default=[], help="further numbers of steps of a guided edit")
    parser.add_argument("--released", action="store_true", help="time the loop of the released code, too")
    parser.add_argument("--brief", action="store_true", help="leave out adversarial edits and the profile")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    options = parser.parse_args()
    result = edits(options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: value for name, value in result.items() if name != "profile"}, indent=1))


def edits(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds a picture of each kind of edit, and the network's share of the ceiling."""
    device = torch.device(options.device)
    network = random_network(device, options.small)
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "parameters": sum(value.numel() for value in network.module.parameters()),
        "batches": {},
    }
    for number, batch in enumerate(options.batch):
        sources = 0 if number else options.sources
        result["batches"][str(batch)] = one_batch(network, batch, number == 0, device, sources, options)
        if device.type == "cuda":
            torch.cuda.empty_cache()
    result["profile"] = result["batches"][str(options.batch[0])].pop("profile", "")
    return result


def one_batch(
    network: Network,
    batch: int,
    everything: bool,
    device: torch.device,
    sources: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    renderer = open_diffusion(
        network, steps=100, sampler="ancestral", guide=guide("tf_efficientnet_lite2", 260, device),
        device=str(device), batch_size=batch, guidance="calibrated",
    )  # fmt: skip
    slots = renderer.batch_size
    found: dict[str, Any] = {"batch": slots}
    answers, found["compile_seconds"] = timed(lambda: render(renderer, slots, 0.02, None), device)
    assert all(isinstance(answer, Rendering) for answer in answers), answers[0]
    say(f"batch {slots}: compiled in {found['compile_seconds']:.0f} s")
    ceiling = matrix_product(device, 512 if options.small else 8192)
    found["ceiling_tflops"] = ceiling / 1e12
    say(f"matrix product: {ceiling / 1e12:.0f} TFLOP/s")
    flops = forward_flops(renderer.exact)
    x = torch.randn(slots, 3, renderer.size, renderer.size, device=device)
    times = torch.full((slots,), 300.0, device=device)
    with torch.no_grad():
        renderer.network(x, times)
        _, seconds = timed(lambda: [renderer.network(x, times) for _ in range(10)], device)
    found["pass_ms_a_picture"] = seconds / 10 / slots * 1e3
    found["network_tflops"] = flops * slots * 10 / seconds / 1e12
    found["share_of_ceiling"] = found["network_tflops"] * 1e12 / ceiling
    say(f"network: {found['pass_ms_a_picture']:.2f} ms a picture, {found['share_of_ceiling']:.0%} of the ceiling")
    for name, start, guidance in (("50 steps", 0.5, Guidance("complexity", 20.0)), ("25 steps", 0.25, None)):
        _, seconds = timed(lambda start=start, guidance=guidance: render(renderer, slots, start, guidance), device)
        found[name] = {"seconds_a_picture": seconds / slots, "released_over_ours": RELEASED[name] * slots / seconds}
        say(f"{name}: {seconds / slots:.3f} s a picture, {RELEASED[name] * slots / seconds:.0f} × the released code")
    released = RELEASED["50 steps"]
    if options.released and everything:
        released = found["released"] = released_loop(network, device)
    for steps in options.steps:
        found[f"{steps} steps of the schedule"] = fewer_steps(renderer, steps, released, device)
    if everything and not options.brief:
        found["adversarial"] = adversarial(renderer, slots, device)
        found["profile"] = profile(renderer, slots, device)
    if sources:
        found["end_to_end"] = end_to_end(renderer, sources, options.removal, options.workers)
    if device.type == "cuda":
        found["peak_memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return found


def fewer_steps(renderer: Diffusion, steps: int, released: float, device: torch.device) -> dict[str, float]:
    """Seconds a picture of the complexity-guided edit with this number of steps, the better of two runs."""
    shorter = replace(renderer, steps=steps, sampler=find_sampler("auto", steps).name)
    work = functools.partial(render, shorter, shorter.batch_size, 0.5, Guidance("complexity", 20.0))
    seconds = min(timed(work, device)[1] for _ in range(2)) / shorter.batch_size
    passes = shorter.passes(0.5)
    say(f"{steps} steps, {passes} passes: {seconds:.3f} s a picture, {released / seconds:.0f} × the released code")
    return {"passes": passes, "seconds_a_picture": seconds, "released_over_ours": released / seconds}


def released_loop(network: Network, device: torch.device) -> float:
    """Seconds of one 50-pass complexity-guided edit as the released code makes it: alone, with two passes and one
    backward pass in every step, not compiled."""
    kind: Precision = "bf16" if device.type == "cuda" else "fp32"
    renderer = open_diffusion(
        network, steps=100, sampler="ancestral", device=str(device), batch_size=1, precision=kind, compile=False,
        guidance="released",
    )  # fmt: skip
    render(renderer, 1, 0.02, Guidance("complexity", 20.0))
    _, seconds = timed(lambda: render(renderer, 1, 0.5, Guidance("complexity", 20.0)), device)
    say(f"the released code's loop, 50 passes: {seconds:.2f} s a picture")
    return seconds


def adversarial(renderer: Diffusion, slots: int, device: torch.device) -> dict[str, float]:
    """Seconds a picture of the 50-step adversarial edit, and what the guide adds to it."""
    _, plain = timed(lambda: render(renderer, slots, 0.1, None), device)
    found: dict[str, float] = {}
    for name, side in (("tf_efficientnet_lite2", 260), ("resnet50", 224)):
        from unswayed.rendering.sampling.guidance import open_guide

        renderer.guide = open_guide(guide(name, side, device))
        render(renderer, slots, 0.02, Guidance("adversarial", 20.0))
        _, seconds = timed(lambda: render(renderer, slots, 0.1, Guidance("adversarial", 20.0)), device)
        found[f"{name}_ms_a_step_and_picture"] = (seconds - plain) / 9 / slots * 1e3
        found[f"{name}_seconds_of_50_steps"] = (plain / 10 * 50 + (seconds - plain) / 9 * 49) / slots
        say(f"adversarial, {name}: {found[f'{name}_seconds_of_50_steps']:.3f} s a picture")
    return found


def profile(renderer: Diffusion, slots: int, device: torch.device) -> str:
    """The longest kernels of three steps."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiling

    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with profiling(activities=kinds) as run:
        render(renderer, slots, 0.03, Guidance("complexity", 20.0))
    order = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
    table = run.key_averages().table(sort_by=order, row_limit=14, max_name_column_width=70)
    say(table)
    return table


def end_to_end(renderer: Diffusion, sources: int, removal: str, workers: int) -> dict[str, Any]:
    """Seconds a source of `build` with all eleven edits: decoding, removal, rendering, PNG; the network kept loaded."""
    from unswayed.benchmark import build
    from unswayed.edits.recipes import named_recipe
    from unswayed.rendering.sampling.guidance import open_guide

    ours = ("direction-small", "reinsertion")
    eleven = replace(
        named_recipe("imagenet-e"),
        name="eleven",
        items=tuple(item for item in named_recipe("imagenet-e").items if item.name not in ours),
    )
    renderer.guide = open_guide(guide("tf_efficientnet_lite2", 260, renderer.network.device))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_photographs(root / "photos", sources)
        started = time.perf_counter()
        built = build(
            f"folder:{root / 'photos'}",
            root / "bench",
            BuildSettings(recipe=eleven, removal=removal, workers=workers, size=renderer.size),
            renderer=renderer,
        )
        seconds = time.perf_counter() - started
    say(f"end to end: {seconds / sources:.2f} s a source")
    return {
        "sources": sources,
        "seconds_a_source": seconds / sources,
        "pictures": built.counts,
        "stage_seconds": dict(built.stages),
        "failures": dict(built.failures),
    }


def make_photographs(folder: Path, count: int) -> None:
    """Made-up photographs of 500×375 with a blob as object, all of one ImageNet class, as `folder:` reads them."""
    import cv2

    rng = np.random.default_rng(0)
    for kind in ("images", "masks"):
        (folder / kind / "n02123045").mkdir(parents=True, exist_ok=True)
    for number in range(count):
        noise = cv2.resize(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8), (500, 375), interpolation=cv2.INTER_CUBIC)
        mask = np.zeros((375, 500), np.uint8)
        centre = (int(rng.integers(150, 350)), int(rng.integers(130, 250)))
        cv2.ellipse(mask, centre, (int(rng.integers(50, 100)), int(rng.integers(40, 90))), 0, 0, 360, 255, -1)
        picture = np.where(mask[..., None] > 0, rng.integers(0, 256, 3, dtype=np.uint8), noise)
        cv2.imwrite(str(folder / "images" / "n02123045" / f"{number:04d}.jpg"), picture)
        cv2.imwrite(str(folder / "masks" / "n02123045" / f"{number:04d}.png"), mask)


def random_network(device: torch.device, small: bool) -> Network:
    """The full-size network with random weights; on a GPU they are drawn there."""
    with torch.device(device):
        config = SMALL if small else ADM
        return Network(build_unet(config), "adm-random", config["sample_size"])


def guide(name: str, side: int, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    """A classifier of that architecture without weights, as a function of pictures in [0, 1]."""
    import timm

    model = timm.create_model(name, pretrained=False).eval().requires_grad_(False).to(device)
    model = model.to(memory_format=torch.channels_last)

    def logits(pictures: torch.Tensor) -> torch.Tensor:
        resized = F.interpolate(pictures, size=(side, side), mode="bilinear", antialias=True, align_corners=False)
        with torch.autocast(device.type, torch.bfloat16):
            return model(2 * resized - 1)

    logits.__name__ = name
    return logits


def render(renderer: Diffusion, count: int, start: float, guidance: Guidance | None) -> list[Any]:
    rng = np.random.default_rng(0)
    side = renderer.size
    alpha = np.zeros((side, side), np.float32)
    alpha[side // 3 : side // 2, side // 3 : side // 2] = 1
    pictures = rng.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    return renderer.render([Layers(p, alpha, p, start, guidance, 7, seed) for seed, p in enumerate(pictures)])


def forward_flops(network: Network) -> float:
    """Floating-point operations of one picture's pass."""
    from torch.utils.flop_counter import FlopCounterMode

    x = torch.zeros(1, 3, network.size, network.size, device=network.device)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(x, 0.0)
    return float(counter.get_total_flops())


def matrix_product(device: torch.device, side: int) -> float:
    """FLOP/s of a bf16 product of two square matrices."""
    a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    _, seconds = timed(lambda: [a @ b for _ in range(20)], device)
    return 2 * side**3 * 20 / seconds


def timed(work: Callable[[], Any], device: torch.device) -> tuple[Any, float]:
    if device.type == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return result, time.perf_counter() - started


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
