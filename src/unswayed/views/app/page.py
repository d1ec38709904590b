"""`serve`: the page built and put on the loopback address, with everything a visitor can ask for bounded."""

from __future__ import annotations

import io
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from unswayed.errors import UserError, need
from unswayed.files.locks import Lock, is_held

from . import AppSettings
from .results import MODELS, Results, demo_results
from .stage import FOLDER
from .studio import Studio

if TYPE_CHECKING:
    import gradio

TITLE = "unswayed: change one thing in a photograph and see what a classifier says"
INTRODUCTION = (
    "<header class='head'><h1>unswayed</h1><p>Change one attribute of the object in a photograph and see how far a "
    "model's answer moves. Everything happens on this computer.</p></header>"
)
MOST_UPLOADED = "50mb"
MOST_WAITING = 64
PREFIX, LOCK = "unswayed-app-", ".lock"  # of the private folder of a page
LOCKED_WITHIN = 60.0  # seconds after the folder is made
MOST_SESSIONS = 500
# Files that visitors upload and download are looked at every ten minutes and deleted once they are two hours old.
KEPT = (600, 7200)
# gradio's own grays are too faint to read on white (below 4.5 to 1).
CONTRAST = {
    **dict.fromkeys(("button_primary_background_fill", "button_primary_background_fill_dark"), "#1d4ed8"),
    **dict.fromkeys(("button_primary_background_fill_hover", "button_primary_background_fill_hover_dark"), "#1e40af"),
    **dict.fromkeys(("block_info_text_color", "body_text_color_subdued", "input_placeholder_color"), "#4b5563"),
    **dict.fromkeys(("block_title_text_color", "block_label_text_color"), "#374151"),
    **dict.fromkeys(("block_info_text_color_dark", "body_text_color_subdued_dark"), "#c3c8d0"),
    **dict.fromkeys(("block_title_text_color_dark", "block_label_text_color_dark"), "#dfe3e8"),
}


def build_page(studio: Studio, results: Results) -> gradio.Blocks:
    """Return the gradio page, not yet served."""
    import gradio as gr

    from .edit_tab import browse_tab, compare_tab, edit_tab

    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=KEPT, fill_width=True) as page:
        gr.HTML(INTRODUCTION)
        with gr.Tab("Edit"):
            edit_tab(page, studio)
        with gr.Tab("Browse") as browse:
            browse_tab(browse, studio, results)
        with gr.Tab("Compare") as compare:
            compare_tab(compare, results)
    page.queue(max_size=MOST_WAITING, default_concurrency_limit=2)
    return page


@contextmanager
def served(settings: AppSettings) -> Iterator[tuple[str, object]]:
    """Serve the page inside the block and yield its address and the page; its private folder is deleted afterwards."""
    need("app", "gradio")
    predictions, benchmark = settings.predictions, settings.benchmark
    if predictions is None and benchmark is not None:
        raise UserError(
            "a benchmark is given without predictions",
            run=f"unswayed evaluate {benchmark} -m lite:0 -o predictions, then unswayed app --predictions predictions",
        )
    results = demo_results() if predictions is None else Results(predictions, benchmark)
    studio = Studio(settings.models or MODELS, settings.segmenter, settings.device, settings.renderer)
    studio.model(studio.models[0])  # a model that cannot be opened is refused before anything is served
    sweep()
    folder = tempfile.mkdtemp(prefix=PREFIX)
    lock = Lock(Path(folder) / LOCK)
    lock.take()
    quiet = {"GRADIO_TEMP_DIR": folder, "GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1"}
    before = {name: os.environ.get(name) for name in (*quiet, FOLDER)}
    os.environ.update({**quiet, FOLDER: folder})
    page = None
    try:
        page = build_page(studio, results)
        yield launched(page, settings.host, settings.port), page
    finally:
        if page is not None:
            page.close(verbose=False)
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def sweep() -> None:
    """Delete what visitors uploaded to pages whose process was killed: their folders are no longer locked.

    A new folder is locked within a moment; an older one without a lock is of a process killed while it deleted it.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            status, lock = folder.stat(), folder / LOCK
            was_locked = lock.is_file() or time.time() - status.st_mtime > LOCKED_WITHIN
            ours = not hasattr(os, "getuid") or status.st_uid == os.getuid()  # Windows has a folder for each user
            if ours and was_locked and not is_held(lock):
                shutil.rmtree(folder, ignore_errors=True)


def launched(page: Any, host: str, port: int | None) -> str:
    """Serve the page and return its address; that of a page that other computers can reach contains a token."""
    import gradio as gr
    from starlette.middleware import Middleware

    from .guard import LOOPBACK, Guard

    token = None if host in LOOPBACK else secrets.token_urlsafe(24)
    undocumented = dict.fromkeys(("docs_url", "redoc_url", "openapi_url"))
    theme = gr.themes.Default(
        primary_hue="blue", font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
    ).set(**CONTRAST)
    try:
        _, address, _ = page.launch(
            server_name=host,
            server_port=port,
            quiet=True,
            prevent_thread_lock=True,
            allowed_paths=[],
            max_file_size=MOST_UPLOADED,
            state_session_capacity=MOST_SESSIONS,
            footer_links=[],
            _frontend=False,  # gradio's own request to the page, which a busy machine answers too late
            app_kwargs={"middleware": [Middleware(Guard, token=token)], **undocumented},
            theme=theme,
            js=resources.files(__package__).joinpath("spoken.js").read_text(encoding="utf-8"),
            css=resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8"),
            **dict.fromkeys(("share", "ssr_mode", "pwa", "mcp_server", "enable_monitoring"), False),
        )
    except OSError as error:
        raise UserError(f"the page cannot be served at {host}:{port}: {error}", allowed="another --port") from None
    return str(address) if token is None else f"{address}?token={token}"


MOST_PRINTED = 2 * 2**20  # characters
LAST = "\nFurther messages of the server are not shown.\n"


class BoundedStream(io.TextIOBase):
    """A text stream that passes on at most `most` characters to another one."""

    def __init__(self, stream: TextIO, most: int = MOST_PRINTED) -> None:
        self.stream, self.left = stream, most

    def write(self, text: str) -> int:
        if self.left > 0:
            self.stream.write(text[: self.left] + (LAST if len(text) >= self.left else ""))
        self.left -= len(text)
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return self.stream.isatty()


@contextmanager
def bounded_messages() -> Iterator[None]:
    """A block in which at most MOST_PRINTED characters are written to standard output and to standard error each."""
    with redirect_stdout(BoundedStream(sys.stdout)), redirect_stderr(BoundedStream(sys.stderr)):
        yield
