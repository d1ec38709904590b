"""`unswayed app` as a person starts it: mistakes are said before anything is served."""

from __future__ import annotations

import importlib.util

import pytest
from typer.testing import CliRunner

from unswayed.errors import UserError
from unswayed.views.app import page
from unswayed.views.cli import build_app


def started(*arguments: object) -> BaseException | None:
    return CliRunner().invoke(build_app(), ["app", *map(str, arguments)]).exception


def test_without_gradio_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(page, "find_spec", lambda name: None if name == "gradio" else importlib.util.find_spec(name))
    with pytest.raises(UserError, match=r"pip install 'unswayed\[app\]'"):
        raise started()


def test_mistakes_are_said(tmp_path):
    with pytest.raises(UserError, match="is given without predictions"):
        raise started("--benchmark", tmp_path)
    with pytest.raises(UserError, match="contains no predictions"):
        raise started("--predictions", tmp_path)
    with pytest.raises(UserError, match="EfficientNet-Lite '9'"):
        raise started("-m", "lite:9")


def test_a_port_in_use_is_said(address):
    port = address.rstrip("/").rpartition(":")[2]
    with pytest.raises(UserError, match="cannot be served"):
        raise started("-m", "lite:0", "--port", port)
