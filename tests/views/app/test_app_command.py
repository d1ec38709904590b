"""`unswayed app` as a person starts it: mistakes are said before anything is served."""

from __future__ import annotations

import sys

import gradio.networking
import httpx

from command_line import refusal, run_cli
from unswayed.views.app import AppSettings
from unswayed.views.app.page import served


def test_without_gradio_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    refusal(run_cli("app"), run="pip install 'unswayed[app]'")


def test_mistakes_are_said(tmp_path):
    refusal(run_cli("app", "--benchmark", tmp_path), "is given without predictions")
    refusal(run_cli("app", "--predictions", tmp_path), "contains no predictions")
    refusal(run_cli("app", "-m", "lite:9"), "EfficientNet-Lite '9'")


def test_a_port_in_use_is_said(address):
    port = address.rstrip("/").rpartition(":")[2]
    refusal(run_cli("app", "-m", "lite:0", "--port", port), "cannot be served")


def test_a_page_that_answers_late_is_served(monkeypatch):
    """On a busy machine gradio's own request to the page took more than three seconds, and the command ended."""
    monkeypatch.setattr(gradio.networking, "url_ok", lambda url: False)
    with served(AppSettings(models=["lite:0"])) as (address, _):
        assert httpx.get(address, timeout=60).status_code == 200
