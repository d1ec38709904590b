"""The paper's types of models, read from the installed `imagenet-x` package as a file: its code is never imported."""

from __future__ import annotations

import ast
from pathlib import Path

from unswayed.errors import UserError

from .annotation_files import annotations_folder

# The four types that the paper compares, in its order.
TYPES = (
    "Supervised on more data", "Supervised on ImageNet-1K", "Self-supervised", "Robustness intervention",
)  # fmt: skip


def published_types(folder: str | Path | None = None) -> dict[str, str]:
    """Return the type of every model that the paper compares, by the model's name in the published tables."""
    path = annotations_folder(folder).parent / "model_types.py"
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        raise UserError(f"{path} does not contain the published model types", run="--groups FILE.csv") from None
    titles: dict[str, str] = {}
    types: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if isinstance(node.value, ast.Constant):
                titles[node.targets[0].id] = str(node.value.value)
            elif isinstance(node.value, ast.Dict):
                for key, value in zip(node.value.keys, node.value.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(value, ast.Attribute):
                        types[str(key.value)] = value.attr
    found = {model: titles.get(name, name) for model, name in types.items()}
    return {model: title for model, title in found.items() if title in TYPES}
