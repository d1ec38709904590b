"""What all visitors share: opened models and renderers, held in small numbers and used by one visitor at a time."""

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
"""Called with the passes done and the passes in all."""


class Studio:
    """models: the names that may be opened, the first the one to begin with; segmenter: `grabcut` or `onnx:FILE`."""

    def __init__(self, models: Sequence[str], segmenter: str = "grabcut", device: str | None = None) -> None:
        if not models:
            raise UserError("no model is given", run="unfazed app -m lite:0")
        self.models, self.segmenter, self.device = tuple(dict.fromkeys(models)), segmenter, device
        self._opened: dict[str, Classifier] = {}
        self._renderers: OrderedDict[str, Renderer] = OrderedDict()
        # Heat maps hook into a model and a renderer counts its passes: neither can serve two visitors at once. A
        # thread of their own, because torch keeps working memory for every thread that it was ever called from.
        self._looking, self._rendering = ThreadPoolExecutor(1, "looking"), ThreadPoolExecutor(1, "rendering")

    def model(self, name: str) -> Classifier:
        """The model of that name, opened once; only those that the page was started with can be asked for."""
        if name not in self.models:
            raise unknown("model of this page", name, self.models, run=f"unfazed app -m {name}")
        return _alone(self._looking, self._open, name)

    def answers(self, name: str, images: Sequence[np.ndarray]) -> list[Answer]:
        """The model's answers to pictures (H, W, 3) uint8."""
        return _alone(self._looking, answer_all, self.model(name), images)

    def heat(self, name: str, images: Sequence[np.ndarray], targets: Sequence[int]) -> list[np.ndarray]:
        """The pictures under the heat maps of these classes, one a picture."""
        return _alone(self._looking, warm_pictures, self.model(name), images, targets)

    def edit(self, request: Request, photograph: Photograph, progress: Progress | None = None) -> Edited:
        """The photograph under the request, with the record that replays it; progress follows a diffusion's passes."""
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
        """The renderer that a replay of this request would open, so that both make the same bytes."""
        plan = request_plan(request)
        key = canonical([request.to_json()["options"], plan.guide, request.size])
        if key not in self._renderers:
            while len(self._renderers) >= RENDERERS_HELD:
                self._renderers.popitem(last=False)
            self._renderers[key] = plan.open_renderer()
        self._renderers.move_to_end(key)
        return self._renderers[key]


def _alone(thread: ThreadPoolExecutor, work: Callable[..., T], *given: Any) -> T:
    """What `work` gives, done in that thread; it sees the caller's context, by which gradio finds its progress bar."""
    return thread.submit(contextvars.copy_context().run, work, *given).result()


def expected_passes(request: Request) -> int:
    """About how many passes of the network the request takes: the latest start of its edits, in steps."""
    starts = [float(getattr(edit, "start", 0.0) or 0.0) for edit in request.chain]
    return max(1, round(max(starts, default=0.0) * (request.steps or 100)))


@contextlib.contextmanager
def passes_counted(renderer: Any, expected: int, progress: Progress | None) -> Iterator[None]:
    """A block in which `progress` is called after every pass of the renderer's network."""
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
