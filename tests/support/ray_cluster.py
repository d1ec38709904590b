"""A real Ray cluster of two nodes on this machine, one of which a test may kill."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest


@contextlib.contextmanager
def two_nodes(cpus: int = 1, gpus: int = 0) -> Iterator[Any]:
    """A `ray.cluster_utils.Cluster` with a head and one more node, each with so many CPUs and logical GPUs.

    `next(iter(cluster.worker_nodes))` is the node that can be killed, by `cluster.remove_node(node, False)`.
    """
    os.environ.update({"RAY_raylet_start_wait_time_s": "200"})  # of a busy machine
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    from ray.cluster_utils import Cluster

    ray.shutdown()  # a process is connected to one cluster; what still runs on another one connects to it again
    quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 5}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": cpus, "num_gpus": gpus, "include_dashboard": False, "_system_config": quick},
    )
    try:
        cluster.add_node(num_cpus=cpus, num_gpus=gpus)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
