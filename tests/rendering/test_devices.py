"""Devices, precision, and memory that runs out."""

import pytest
import torch

from command_line import refused
from gaussian_network import gaussian
from unswayed.errors import UserError
from unswayed.jobs import choose_device
from unswayed.jobs.resources import is_out_of_memory, shrinking
from unswayed.rendering.networks.loading import choose_batch_size, choose_precision, out_of_memory


def test_memory_that_runs_out_halves_the_batch():
    tried = []

    def run(batch):
        tried.append(batch)
        if batch > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return "done"

    assert shrinking(run, 16, lambda: UserError("never")) == ("done", 2)
    assert tried == [16, 8, 4, 2]


def test_a_batch_that_does_not_fit_passes_in_parts():
    sizes = []

    def doubled(part):
        sizes.append(len(part))
        if len(part) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return part * 2

    batch = torch.arange(7.0)
    doubles, size = shrinking(lambda size: torch.cat([doubled(part) for part in batch.split(size)]), 7)
    assert torch.equal(doubles, batch * 2) and size == 1
    assert sizes == [7, 3, 1, 1, 1, 1, 1, 1, 1]
    with pytest.raises(torch.OutOfMemoryError, match="mine"):
        shrinking(lambda size: (_ for _ in ()).throw(torch.OutOfMemoryError("mine")), 7)


def test_out_of_memory_with_one_picture_is_an_error_that_says_what_to_do():
    def run(batch):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory")

    with refused(r"--network compact", given=r"one picture of 64×64 at a time"):
        shrinking(run, 4, lambda: out_of_memory(gaussian(), 64))


def test_other_errors_pass_through():
    with pytest.raises(ZeroDivisionError):
        shrinking(lambda batch: 1 // 0, 4, lambda: UserError("never"))
    assert not is_out_of_memory(RuntimeError("shapes differ"))


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    ],
)
def test_memory_that_runs_out_outside_torchs_allocator_is_noticed(message: str):
    assert is_out_of_memory(RuntimeError(message))


def test_a_cpu_passes_pictures_one_by_one():
    assert choose_batch_size(gaussian(), 64, 16) == 1
    with pytest.raises(UserError, match="1 or more"):
        choose_batch_size(gaussian(), 64, 0)


def test_names_are_checked():
    assert choose_device("cpu").type == "cpu"
    for name in ("gpu", "meta", "xla"):
        with refused(given=f"device is '{name}'", allowed="auto, cpu, cuda"):
            choose_device(name)
    with pytest.raises(UserError, match="fp32, bf16"):
        choose_precision("int8", torch.device("cpu"))
    assert choose_precision("fp32", torch.device("cpu")) == "fp32"
    assert choose_precision(None, torch.device("cpu")) in ("fp32", "bf16")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(UserError, match="no GPU"):
        choose_device("cuda")
