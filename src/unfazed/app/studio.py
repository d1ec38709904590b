"""Models and renderers that all visitors share: a few are kept loaded, and one visitor at a time uses them."""

from __future__ import annotations

import contextlib
import contextvars
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from unfazed.benchmark.photograph import Edited, Request, edit_photograph, request_plan
from unfazed.errors import UserError, unknown
from unfazed.files import canonical
from unfazed.rendering.layers import Renderer

from .classification import Answer, answer_all, warm_pictures
from .photographs import Photograph

if TYPE_CHECKING:
    from unfazed.models import Classifier

RENDERERS_HELD = 2
T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with the number of passes done and in total."""


class Studio:
    """models: the names that can be opened, first the initial one; segmenter: `grabcut` or `onnx:FILE`."""

    def __init__(self, models: Sequence[str], segmenter: str = "grabcut", device: str | None = None) -> None:
        if not models:
            raise UserError("no model is given", run="unfazed app -m lite:0")
        self.models, self.segmenter, self.device = tuple(dict.fromkeys(models)), segmenter, device
        self._opened: dict[str, Classifier] = {}
        self._renderers: OrderedDict[str, Renderer] = OrderedDict()
        # Heat maps register hooks in a model and a renderer counts its passes, so neither can be used by two visitors
        # at once. One thread each, because torch keeps memory for every thread that ever called it.
        self._looking, self._rendering = ThreadPoolExecutor(1, "looking"), ThreadPoolExecutor(1, "rendering")

    def model(self, name: str) -> Classifier:
        """Return the model of that name, loaded once; only models that the page was started with are allowed."""
        if name not in self.models:
            raise unknown("model of this page", name, self.models, run=f"unfazed app -m {name}")
        return _alone(self._looking, self._open, name)

    def answers(self, name: str, images: Sequence[np.ndarray]) -> list[Answer]:
        """Return the model's predictions for pictures (H, W, 3) uint8."""
        return _alone(self._looking, answer_all, self.model(name), images)

    def heat(self, name: str, images: Sequence[np.ndarray], targets: Sequence[int]) -> list[np.ndarray]:
        """Return the pictures with the heat maps of these classes, one per picture."""
        return _alone(self._looking, warm_pictures, self.model(name), images, targets)

    def edit(self, request: Request, photograph: Photograph, progress: Progress | None = None) -> Edited:
        """Return the edited photograph with its record; progress is called after each diffusion pass."""
        if request.renderer == "paste":
            return edit_photograph(request, photograph.scene, Path(photograph.path))
        return _alone(self._rendering, self._render, request, photograph, progress)

    def _open(self, name: str) -> Classifier:
        from unfazed.models import open_model

        if name not in self._opened:
            self._opened[name] = open_model(name, device=self.device)
        return self._opened[name]

    def _render(self, request: Request, photograph: Photograph, progress: Progress | None) -> Edited:
        renderer = self._renderer(request)
        with passes_counted(renderer, expected_passes(request), progress):
            return edit_photograph(request, photograph.scene, Path(photograph.path), renderer)

    def _renderer(self, request: Request) -> Renderer:
        """Return the renderer that a replay of this request would open, so that both make the same bytes."""
        plan = request_plan(request)
        key = canonical([request.to_json()["options"], plan.guide, request.size])
        if key not in self._renderers:
            while len(self._renderers) >= RENDERERS_HELD:
                self._renderers.popitem(last=False)
            self._renderers[key] = plan.open_renderer()
        self._renderers.move_to_end(key)
        return self._renderers[key]


def _alone(thread: ThreadPoolExecutor, work: Callable[..., T], *given: Any) -> T:
    """Run `work` in that thread, with the caller's context, which gradio needs for its progress bar."""
    return thread.submit(contextvars.copy_context().run, work, *given).result()


def expected_passes(request: Request) -> int:
    """Return the approximate number of network passes of the request, from the largest `start` of its edits."""
    starts = [float(getattr(edit, "start", 0.0) or 0.0) for edit in request.chain]
    return max(1, round(max(starts, default=0.0) * (request.steps or 100)))


@contextlib.contextmanager
def passes_counted(renderer: Any, expected: int, progress: Progress | None) -> Iterator[None]:
    """Call `progress` after every pass of the renderer's network inside the block."""
    if progress is None:
        yield
        return
    done = 0

    def passed(*_: object) -> None:
        nonlocal done
        done += 1
        progress(min(done, expected), expected)

    hook = renderer.network.module.register_forward_hook(passed)
    try:
        yield
    finally:
        hook.remove()
