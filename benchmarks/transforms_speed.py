"""Speed of the training transforms against torchvision's v2 RandAugment, in the same run.

    PYTHONPATH=src python benchmarks/transforms_speed.py [PETS] [--device cuda] [--batch 512]

PETS: a folder of photographs with masks of the same name as PNG; constructed pictures without it. Prints pictures a
second at 224×224. On a device: BatchEdit, compiled and not, with every picture edited by a mixture of all edits;
RandAugment applied to the whole batch (one draw for all pictures) and to each picture (a draw each, as BatchEdit has).
On a CPU: one process with one thread, RandomEdit and RandAugment on `tv_tensors`, picture by picture, and the time of
each edit.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import torch
from torchvision import tv_tensors
from torchvision.transforms import v2

from unswayed.edits.mixture import KINDS
from unswayed.transforms import BatchEdit, EditMixture, RandomEdit

SIDE = 224


def pictures(folder: Path | None, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(count, 3, 224, 224) uint8 and (count, 1, 224, 224) uint8 masks."""
    images, masks = [], []
    files = sorted(folder.rglob("*.jpg")) if folder is not None else []
    rng = np.random.default_rng(0)
    for number in range(min(count, len(files) or 64)):
        if files:
            path = files[number * len(files) // min(count, len(files))]
            image = cv2.resize(cv2.imread(str(path), cv2.IMREAD_COLOR_RGB), (SIDE, SIDE), interpolation=cv2.INTER_AREA)
            mask = cv2.resize(cv2.imread(str(path.with_suffix(".png")), cv2.IMREAD_GRAYSCALE), (SIDE, SIDE))
        else:
            image = cv2.GaussianBlur(rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8), (0, 0), 3)
            mask = np.zeros((SIDE, SIDE), np.uint8)
            x, y = (int(one) for one in rng.integers(60, 164, 2))
            cv2.circle(mask, (x, y), int(rng.integers(25, 60)), 255, -1)
        images.append(image)
        masks.append(mask)
    rows = [number % len(images) for number in range(count)]
    return (
        torch.from_numpy(np.stack(images)[rows]).permute(0, 3, 1, 2).contiguous(),
        torch.from_numpy(np.stack(masks)[rows])[:, None],
    )


def rate(run: Callable[[int], object], count: int, repeats: int, device: str) -> float:
    """Pictures a second: `run` is called `repeats` times, each time on `count` pictures."""
    for number in range(max(repeats // 5, 3)):
        run(number)
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    begun = time.perf_counter()
    for number in range(repeats):
        run(number)
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return count * repeats / (time.perf_counter() - begun)


def every_edit(device: str) -> BatchEdit:
    return BatchEdit(EditMixture(probability=1.0)).to(device)


def on_device(images: torch.Tensor, masks: torch.Tensor, device: str, repeats: int) -> None:
    images, masks = images.to(device), masks.to(device)
    count = len(images)
    plain, edit, randaugment = every_edit(device), every_edit(device), v2.RandAugment()
    edit.compile()
    begun = time.perf_counter()
    edit(images, masks)
    print(f"compiling took {time.perf_counter() - begun:.0f} s")
    print(f"{device}: batch of {count}, {torch.cuda.get_device_name() if device.startswith('cuda') else 'CPU'}")
    ours = rate(lambda _: edit(images, masks), count, repeats, device)
    eager = rate(lambda _: plain(images, masks), count, repeats, device)
    whole = rate(lambda _: randaugment(images), count, 8 * repeats, device)  # its operations differ greatly
    few = images[:64]
    each = rate(lambda _: [randaugment(one) for one in few], len(few), max(repeats // 10, 2), device)
    print(f"  BatchEdit, compiled, all edits, a draw for each {ours:12,.0f} pictures/s")
    print(
        f"  BatchEdit, not compiled                         {eager:12,.0f} pictures/s   time ratio {eager / ours:.3f}"
    )
    print(f"  RandAugment, a draw for each picture            {each:12,.0f} pictures/s   time ratio {each / ours:.3f}")
    print(
        f"  RandAugment, one draw for the batch             {whole:12,.0f} pictures/s   time ratio {whole / ours:.3f}"
    )
    for kind in KINDS:
        only = BatchEdit(EditMixture(weights={kind: 1.0}, probability=1.0, most=1)).to(device)
        speed = rate(lambda _, only=only: only(images, masks), count, max(repeats // 4, 3), device)
        print(f"    {kind:12} {speed:12,.0f} pictures/s")


def on_cpu(images: torch.Tensor, masks: torch.Tensor, repeats: int) -> None:
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    samples = [
        (tv_tensors.Image(image), tv_tensors.Mask(mask[0])) for image, mask in zip(images[:64], masks[:64], strict=True)
    ]
    randaugment = v2.RandAugment()
    edits = {
        "RandomEdit, default mixture": RandomEdit(),
        "RandomEdit, every picture, up to 3": RandomEdit(EditMixture(probability=1.0)),
    }
    print("CPU: one process, one thread, picture by picture")
    theirs = rate(lambda n: randaugment(samples[n % len(samples)][0]), 1, repeats, "cpu")
    print(f"  {'RandAugment on tv_tensors.Image':40} {theirs:9,.0f} pictures/s")
    for name, edit in edits.items():
        ours = rate(lambda n, edit=edit: edit(*samples[n % len(samples)]), 1, repeats, "cpu")
        print(f"  {name:40} {ours:9,.0f} pictures/s   time ratio {theirs / ours:.2f}")
    backgrounds = [image.permute(1, 2, 0).numpy() for image in images[:8]]
    for kind in KINDS:
        only = RandomEdit(EditMixture(weights={kind: 1.0}, probability=1.0, most=1), backgrounds)
        ours = rate(lambda n, only=only: only(*samples[n % len(samples)]), 1, max(repeats // 4, 20), "cpu")
        print(f"    {kind:12} {1000 / ours:6.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pets", type=Path, nargs="?")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=50)
    options = parser.parse_args()
    images, masks = pictures(options.pets, options.batch)
    if options.device != "cpu":
        on_device(images, masks, options.device, options.repeats)
    on_cpu(images, masks, options.repeats * 10)


if __name__ == "__main__":
    main()
