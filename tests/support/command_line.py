"""The command line as tests use it: a command in this process or in one of its own, and what a refusal must say."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner, Result

from unswayed.errors import UserError
from unswayed.views.cli import main

PROGRAM = [sys.executable, "-c", "from unswayed.views.cli import main; main()"]


class _Program:
    """What `CliRunner` calls instead of a click command: the whole program."""

    name = "unswayed"

    def main(self, args: list[str], prog_name: str, **_: Any) -> None:
        # click names the program after the package of __main__, which is that of pytest.
        with patch.object(sys, "argv", [prog_name, *args]), patch.object(sys.modules["__main__"], "__package__", ""):
            main()


def run_cli(*arguments: object, code: int | None = None, env: Mapping[str, str | None] | None = None) -> Result:
    """Run `unswayed ARGUMENTS` in this process; the result has `exit_code`, `stdout`, `stderr` and `output`.

    Whatever would end the program with a traceback is raised. With `code`, any other exit code fails the test.
    """
    result = CliRunner().invoke(_Program(), list(map(str, arguments)), env=env, catch_exceptions=False)  # type: ignore[arg-type]
    assert code is None or result.exit_code == code, (arguments, result.exit_code, result.output)
    return result


def run_cli_process(
    *arguments: object, env: Mapping[str, str] | None = None, code: int | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `unswayed ARGUMENTS` in a process of its own, as a shell would; `env` is added to this environment."""
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, **(env or {})}, **options
    )
    assert code is None or done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def _parts(refused: Result | subprocess.CompletedProcess[str] | BaseException) -> tuple[str, str, str]:
    if isinstance(refused, BaseException):
        assert isinstance(refused, UserError), repr(refused)
        return refused.given, refused.allowed or "", refused.run or ""
    code = refused.exit_code if isinstance(refused, Result) else refused.returncode
    assert code == 2, (code, refused.stdout, refused.stderr)
    head, found, message = refused.stderr.rpartition("error: ")
    assert found and (not head or head.endswith("\n")), f"no refusal in {refused.stderr!r}"
    rest, _, run = message.strip().partition("\nrun: ")
    given, _, allowed = rest.partition("\nallowed: ")
    return given, allowed, run


def _says(part: str, words: str) -> bool:
    return words in part or re.search(words, part) is not None


def refusal(
    refused: Result | subprocess.CompletedProcess[str] | BaseException | None,
    *words: str,
    given: str = "",
    allowed: str = "",
    run: str = "",
) -> str:
    """Assert that a command was refused, or that an error refuses; returns the whole text.

    words: in any part of it; given, allowed, run: in that part. Each is a text or a regular expression.
    """
    assert refused is not None, "nothing was refused"
    parts = dict(zip(("given", "allowed", "run"), _parts(refused), strict=True))
    text = "\n".join(filter(None, parts.values()))
    for word in words:
        assert _says(text, word), f"{word!r} is not in {text!r}"
    for name, expected in {"given": given, "allowed": allowed, "run": run}.items():
        assert _says(parts[name], expected), (
            f"{name}: {expected!r} is not in {parts[name]!r}; the whole refusal: {text!r}"
        )
    return text


@contextlib.contextmanager
def refused(*words: str, **parts: str) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Assert that what stands inside is refused, as `refusal` does."""
    with pytest.raises(UserError) as error:
        yield error
    refusal(error.value, *words, **parts)
