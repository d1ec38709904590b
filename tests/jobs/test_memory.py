"""Freed memory is kept within the block, and given back at its end: looked at in a process of its own."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

from unswayed.jobs.resources import kept_heap

LOOK = """
import json, resource
from unswayed.jobs.resources import kept_heap

def pages():  # that the system clears for 64 MB, filled and freed
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytes([120]) * (64 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():  # megabytes
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20

empty = resident()
with kept_heap():
    first, again, inside = pages(), pages(), resident()
print(json.dumps({"first": first, "again": again, "inside": inside - empty, "after": resident() - empty}))
"""


glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc has the setting")


@glibc
def test_a_block_that_comes_again_costs_no_pages_and_goes_back_at_the_end() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    assert seen["again"] < seen["first"] / 10
    assert seen["inside"] > 60
    assert seen["after"] < 10


GROW = """
import resource, time
from unswayed.jobs.resources import kept_heap

def resident():  # megabytes
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20

empty = resident()

def least():  # the least memory seen in the seconds after 256 MB were filled and freed
    with kept_heap():
        time.sleep(1.2)  # the memory is looked at before it grows
        bytes([120]) * (256 << 20)
        end = time.monotonic() + 10
        while (now := resident() - empty) > 50 and time.monotonic() < end:
            time.sleep(0.05)
        return now

# Again if the machine was so busy that the first look came too late.
print(next((now for now in (least() for _ in range(3)) if now < 50), "all of it was kept"))
"""


@glibc
def test_memory_that_has_grown_goes_back_within_the_block() -> None:
    """Otherwise the memory of a long evaluation doubles."""
    done = subprocess.run([sys.executable, "-c", GROW], capture_output=True, text=True, check=True)
    assert done.stdout.strip() != "all of it was kept"


def test_an_error_passes_through() -> None:
    with pytest.raises(ValueError, match="mine"), kept_heap():
        raise ValueError("mine")


SLOW_PASSES = """
import resource, time
from unswayed.jobs import resources

resources._FIRST_LOOK = 0.01
with resources.kept_heap():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(60):  # passes whose most memory is used for a moment, as by the first layers of a network
        time.sleep(0.03)
        bytes([120]) * (32 << 20)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize() >> 20)
"""


@glibc
def test_passes_that_are_longer_than_the_time_between_two_looks_keep_their_memory() -> None:
    """Otherwise every pass pays for its pages again, which takes more time than the pass itself."""
    done = subprocess.run([sys.executable, "-c", SLOW_PASSES], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60 * 32 / 3
