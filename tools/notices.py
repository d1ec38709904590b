"""python tools/notices.py: write THIRD_PARTY_NOTICES.md, what `pip install unswayed` installs and its licenses.

Read from the metadata of what is installed beside this Python, without the CUDA packages that torch adds on Linux.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FILE = Path(__file__).parents[1] / "THIRD_PARTY_NOTICES.md"
CUDA = re.compile(r"cuda-|nvidia-|triton$")
HEAD = """# Third-party notices

`pip install unswayed` installs these packages beside it. None of them is a part of unswayed, each has its own license,
and the license texts lie in their `*.dist-info` folders. Versions are those that this list was made from (`make
notices`). On Linux, torch of PyPI also installs the CUDA libraries of NVIDIA, which are under NVIDIA's own agreement,
and Triton (MIT); the CPU build of torch does not.

What is a part of unswayed and was not written for it: the sample photographs, see [NOTICE](NOTICE). The diffusion
network was trained for unswayed and is under Apache-2.0, see [its notice](src/unswayed/data/network/NOTICE.md).

| package | version | license | home page |
| --- | --- | --- | --- |
"""


def core(name: str = "unswayed") -> dict[str, Distribution]:
    """The packages that a package needs without extras, and those that these need, by name."""
    found: dict[str, Distribution] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(name, frozenset())]
    seen = set(waiting)
    while waiting:
        package, extras = waiting.pop()
        try:
            found[package] = distribution(package)
        except PackageNotFoundError:
            continue  # for another system or version of Python
        for text in found[package].requires or ():
            requirement = Requirement(text)
            wanted = any(
                requirement.marker is None or requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            )
            needed = canonicalize_name(requirement.name), frozenset(requirement.extras)
            if wanted and not CUDA.match(needed[0]) and needed not in seen:
                seen.add(needed)
                waiting.append(needed)
    return {package: found[package] for package in sorted(found) if package != name}


def license_of(package: Distribution) -> str:
    """The license as the package states it: as an expression, a classifier or a short text."""
    stated = package.metadata
    if stated["License-Expression"]:
        return stated["License-Expression"]
    classified = [line.split(" :: ")[-1] for line in stated.get_all("Classifier") or () if line.startswith("License")]
    named = ", ".join(name for name in classified if name != "OSI Approved")
    text = (stated["License"] or "").strip().split("\n")[0]
    if not named and (not 0 < len(text) < 60 or text == "UNKNOWN"):  # then the first line of its license file
        files = [file for file in package.files or () if "license" in file.name.lower() and file.suffix in ("", ".txt")]
        text = files[0].read_text().strip().split("\n")[0].strip() if files else "not stated"
    return named or text


def home_of(package: Distribution) -> str:
    links: Iterable[str] = package.metadata.get_all("Project-URL") or ()
    named = {label.strip().lower(): address.strip() for label, _, address in (link.partition(",") for link in links)}
    wanted = ("homepage", "home", "source", "source code", "repository", "github")
    return package.metadata["Home-page"] or next((named[label] for label in wanted if label in named), "")


if __name__ == "__main__":
    rows = [
        f"| {name} | {package.version} | {license_of(package)} | {home_of(package)} |"
        for name, package in core().items()
    ]
    FILE.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    print(f"{FILE}: {len(rows)} packages")
