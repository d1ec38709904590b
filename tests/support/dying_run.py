"""A training that kills itself, run as a script: dying_run.py PHOTOS FOLDER after|between.

Saved at every step, it dies by SIGKILL at the third save: after the state is written, or between its two files.
"""

import os
import signal
import sys

import torch

from unswayed.rendering import training
from unswayed.rendering.networks.compact import CompactConfig
from unswayed.rendering.training import loop

SMALL = CompactConfig(channels=(8, 16, 16, 32), middle=1, embedding=32, head_channels=16)


def small_recipe(**changes):
    return loop.Recipe(**{"steps": 6, "batch": 2, "warmup": 2, "held_out": 2} | changes)


def main(photos: str, folder: str, when: str) -> None:
    torch.set_num_threads(1)
    loop.CompactConfig = lambda: SMALL
    loop.PAUSE = loop.TIMES = 0.0
    module, name = (loop, "write_state") if when == "after" else (training, "write_json")
    write, calls = getattr(module, name), []

    def dying(*arguments):
        calls.append(arguments)
        if len(calls) < 3 or when == "after":
            write(*arguments)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(module, name, dying)
    loop.train([photos], folder, small_recipe(), device="cpu", compiled=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
