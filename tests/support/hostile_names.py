"""Names that must stay text, and a command run as a user runs it."""

from __future__ import annotations

from typer.testing import CliRunner

from unswayed.views.cli import build_app

HOSTILE_MODEL = "<script>window.hacked=1</script>"
HOSTILE_EDIT = "<img src=x onerror=window.hacked=1>${window.hacked=1}{{constructor}}"


def run(*arguments: object) -> None:
    done = CliRunner().invoke(build_app(), [*map(str, arguments)])
    assert done.exit_code == 0, (done.output, done.exception)
