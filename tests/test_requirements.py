"""The pinned requirements: what the integrations add leaves the versions of the development environment alone."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def pins(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))


def test_the_integrations_change_no_pin_of_the_development_environment():
    ours, theirs = pins("requirements-dev.txt"), pins("requirements-integrations.txt")
    assert len(theirs) > 50
    assert {name: theirs[name] for name in theirs if ours.get(name, theirs[name]) != theirs[name]} == {}


def test_every_extra_of_an_integration_and_what_its_tests_need_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    named = re.search(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    only_tests = project["dependency-groups"]["integrations"]
    for requirement in [*(one for extra in named for one in extras[extra]), *only_tests]:
        assert re.match(r"[\w-]+", requirement)[0] in pins("requirements-integrations.txt")
