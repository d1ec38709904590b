"""One pass of the embedded network at 256×256 on this machine's cores: seconds, parameters, GFLOP, size on disk.

    python benchmarks/network_speed.py [--threads 2] [--passes 20]

The limit printed beside it is the same multiply-adds as one large float32 matrix product takes in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch.utils.flop_counter import FlopCounterMode

from unswayed.rendering import load_network


def median_seconds(work, passes: int) -> float:
    for _ in range(3):
        work()
    times = []
    for _ in range(passes):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--passes", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    network = load_network("compact").on("cpu")
    x, t = torch.randn(1, 3, 256, 256).contiguous(memory_format=torch.channels_last), torch.tensor([300])
    with FlopCounterMode(display=False) as counter:
        network(x, t)
    flops = counter.get_total_flops()
    seconds = median_seconds(lambda: network(x, t), arguments.passes)
    side = 2048
    a, b = torch.randn(side, side), torch.randn(side, side)
    ceiling = 2 * side**3 / median_seconds(lambda: a @ b, 5)
    parameters = sum(p.numel() for p in network.module.parameters())
    print(f"parameters {parameters / 1e6:.2f} M, {flops / 1e9:.1f} GFLOP a pass")
    print(f"one pass {seconds:.3f} s on {arguments.threads} threads (limit 0.20 s)")
    print(f"{flops / seconds / 1e9:.0f} GFLOP/s, {flops / seconds / ceiling:.2f} of a matrix product's")


if __name__ == "__main__":
    main()
