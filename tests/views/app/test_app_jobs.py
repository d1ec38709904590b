"""Long work: its progress, and Cancel, which stops the work itself."""

from __future__ import annotations

import threading

import pytest

from unswayed.edits import make_edit
from unswayed.errors import UserError
from unswayed.views.app.controls import chain_from
from unswayed.views.app.films import subject
from unswayed.views.app.photographs import open_sample
from unswayed.views.app.stage import render
from unswayed.views.app.studio import Canceled, Jobs, Report, Step, Studio


def test_progress_is_followed_and_the_result_comes_last():
    def work(report: Report) -> str:
        for done in range(3):
            report(done, 2)
        return "made"

    def visit():
        made = yield from Jobs().followed("visitor", work, lambda step: (step.done, step.total))
        yield made

    assert list(visit()) == [(0, 2), (1, 2), (2, 2), "made"]


def test_an_error_of_the_work_reaches_the_visitor():
    def work(report: Report) -> None:
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        next(Jobs().followed("visitor", work, lambda step: step))


@pytest.mark.parametrize("how", ["cancel", "leave"])
def test_cancel_and_leaving_stop_the_work_at_its_next_step(how):
    jobs, gate, stopped = Jobs(), threading.Event(), threading.Event()
    steps: list[int] = []

    def work(report: Report) -> None:
        try:
            for done in range(100):
                steps.append(done)
                report(done, 100)
                gate.wait(30)
        except Canceled:
            stopped.set()
            raise

    job = jobs.followed("visitor", work, lambda step: step)
    assert next(job).done == 0
    if how == "cancel":
        jobs.cancel("another visitor")
        jobs.cancel("visitor")
    else:
        job.close()
    gate.set()
    if how == "cancel":
        with pytest.raises(Canceled):
            next(job)
    assert stopped.wait(30)
    assert len(steps) == 2
    jobs.cancel("visitor")  # nothing is left to cancel


def test_cancel_stops_a_rendering_between_two_passes_of_the_network():
    studio, photograph = Studio(["lite:0"], "grabcut"), open_sample("koala")
    chain = chain_from({"background": {"kind": "complex"}})
    passes = 0

    def work(report: Report) -> None:
        def counted(done: int, total: int) -> None:
            nonlocal passes
            passes = max(passes, done)
            if done == 2:
                studio.jobs.cancel("visitor")
            report(done, total)

        render(studio, photograph, chain, 0, 40, counted)

    job = studio.jobs.followed("visitor", work, lambda step: step)
    with pytest.raises(Canceled):
        list(job)
    assert passes == 2
    # The renderer is as before, and no count of the canceled rendering is left in it.
    seen: list[tuple[int, int]] = []
    render(studio, photograph, chain, 0, 4, lambda *one: seen.append(one))
    assert seen == [(done, 4) for done in range(5)]


def test_a_search_refuses_a_chain_that_cannot_be_pasted_and_checks_before_each_picture():
    studio, photograph = Studio(["lite:0"], "grabcut"), open_sample("koala")
    with pytest.raises(UserError, match="cannot be pasted"):
        subject(studio, photograph, (make_edit("background", kind="simple"),))
    checked: list[None] = []
    one = subject(studio, photograph, check=lambda: checked.append(None))
    one.make(())
    one.make((make_edit("blur", pixels=2.0),))
    assert len(checked) == 2
    with_network = subject(studio, photograph, steps=4, check=lambda: checked.append(None))
    assert with_network.make((make_edit("size", rate=0.1),)).shape == (256, 256, 3)
    assert len(checked) == 2 + 1 + 1  # before the picture, and after its only pass


def test_the_time_left_is_estimated_from_the_steps_done():
    assert Step(3, 12, 6.0).left == 18.0
    assert Step(0, 12, 6.0).left is None
    assert Step(12, 12, 6.0).words("passes") == "12 of 12 passes done"
