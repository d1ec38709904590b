"""Data sets that torchvision can fetch: found where they are, downloaded where the user asks for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from unswayed.errors import UserError
from unswayed.files.whole import make_folder
from unswayed.specs import Spec


def downloaded(
    spec: Spec, find: Callable[[Path], Path | None], fetch: Callable[[Path], object], download: bool, layout: str
) -> Path:
    """The data set's folder below the spec's path; fetched there first if it is missing and `download` is set.

    find: the path -> the data set's folder, or None; fetch: downloads into the path; layout: what should be there.
    """
    if not spec.name:
        raise UserError(f"the source '{spec.text}' has no path", allowed=f"{spec.kind}:PATH")
    path = Path(spec.name).expanduser()
    found = find(path)
    if found is not None:
        return found
    if not download:
        joint = "&" if spec.options else "?"
        raise UserError(
            f"{path} does not hold the data set of '{spec.kind}:'",
            allowed=f"a folder with {layout}",
            run=f"the same command with '{spec.text}{joint}download=yes', where there is a network",
        )
    try:
        fetch(make_folder(path))
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the data set of '{spec.kind}:' could not be downloaded into {path}: {error}",
            allowed=f"a network, or a folder with {layout} copied from elsewhere",
        ) from None
    found = find(path)
    if found is None:
        raise UserError(f"the download into {path} is not complete", allowed=f"a folder with {layout}")
    return found
