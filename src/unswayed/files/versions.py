"""The versions of this package and of the libraries behind a result, for the card written beside it."""

from __future__ import annotations

import functools
import platform
from importlib import metadata

# Distribution names of all that decide about pictures, answers and measures.
LIBRARIES = (
    "numpy",
    "opencv-python-headless",
    "pillow",
    "torch",
    "torchvision",
    "diffusers",
    "timm",
    "open_clip_torch",
    "transformers",
    "onnxruntime",
    "grad-cam",
    "pyarrow",
)


def versions() -> dict[str, str]:
    """The version of each installed library by its name, this package and Python first."""
    return {"unswayed": package_version(), "python": platform.python_version(), **_libraries()}


@functools.cache
def _libraries() -> dict[str, str]:
    """The versions of the installed libraries, which take a tenth of a second to read."""
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return found


def package_version() -> str:
    """The version of this package, also where it runs from a source tree that is not installed."""
    from unswayed import __version__

    return __version__
