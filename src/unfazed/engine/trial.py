"""Trying out code that may end the whole process, such as a model with a fault in a C library, in a copy of it."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable

from unfazed.errors import UserError

PATIENCE = 60.0  # seconds, after which the trial is stopped and nothing is known


def try_alone(work: Callable[[], object]) -> None:
    """Raise UserError if `work` ends its process; its results and its other errors are ignored.

    It runs in a copy of this process with one thread of torch. Where processes cannot be copied, nothing happens.
    """
    if not hasattr(os, "fork"):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads do not exist in the copy, which needs none
        child = os.fork()
    if child == 0:
        _run_and_exit(work)
    end = time.monotonic() + PATIENCE
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.005)
    code = os.waitstatus_to_exitcode(ended[1])
    if code != _FINE:
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        raise UserError(f"the model ends the whole process ({how}), so it was tried in a copy of it and not used")


_FINE = 86  # so that an exit with 0 in the middle of `work` is noticed too


def _run_and_exit(work: Callable[[], object]) -> None:
    import faulthandler

    import torch

    try:
        faulthandler.disable()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        torch.set_num_threads(1)
        work()
    except SystemExit as error:
        os._exit(error.code if isinstance(error.code, int) else 1)
    except BaseException:
        pass  # the same error occurs, and is recorded, when the model is really opened
    os._exit(_FINE)
