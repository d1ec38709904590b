"""`unswayed models`: the names that models can have; `unswayed models SPEC`: one model's card."""

from __future__ import annotations

from typing import Annotated

import typer


def models(
    spec: Annotated[str | None, typer.Argument(help="A model, such as `lite:0`, whose card is printed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """List the model sources, or print one model's card: preprocessing, labels, weights, layer of the heat map.

        unswayed models

        unswayed models lite:0

        unswayed models "timm:resnet50?checkpoint=mine.pt+tencrop" --json

    Wrappers follow the name: `+tencrop` (mean over ten crops), `+flip` (mean over the picture and its mirror image),
    `+object-crop` (mean over the picture and a crop around the object), `+bn-adapt` (batch-norm statistics recomputed
    from the pictures). Options follow a `?`: `checkpoint=FILE`, `labels=FILE`, `crop=224`, `mean=0.5`, `layer=NAME`.
    """
    import json

    from unswayed.models.opening import describe_model, describe_sources

    described = describe_model(spec) if spec else describe_sources()
    if as_json:
        print(json.dumps(described, ensure_ascii=False, indent=1))
        return
    for name, text in described.items():
        lines = [f"{key:<14}{value}" for key, value in text.items()] if isinstance(text, dict) else [str(text)]
        print(f"{name:<14}{lines[0]}")
        for line in lines[1:]:
            print(f"{'':<14}{line}")
