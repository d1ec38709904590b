"""`unswayed edits`: every edit with its parameters, every recipe and every removal method."""

from __future__ import annotations

from typing import Annotated

import typer


def edits(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables of docs/edits.md instead.")] = False,
) -> None:
    """List every edit with its parameters and their allowed values, every recipe and every removal method.

    A recipe is a name, a sweep, a grid, a list of edits or a TOML file:

        unswayed edits

        unswayed edits --json

        unswayed build sample --recipe imagenet-e -o BENCH

        unswayed build sample --recipe size=0.02:0.5:12 -o BENCH

        unswayed build sample --recipe "size=0.05,0.1 x direction=0,20,40" -o BENCH

        unswayed build sample --recipe original,size-0.05,direction -o BENCH
    """
    import json

    from unswayed.edits.catalog import catalog, edits_table
    from unswayed.rendering.removal import REMOVALS

    if as_markdown:
        print(edits_table(), end="")
        return
    content = catalog()
    parts = {name: REMOVALS.part(name) for name in REMOVALS}
    content["removals"] = {name: {"explains": part.help, "usage": part.usage or name} for name, part in parts.items()}
    if as_json:
        print(json.dumps(content, indent=1, ensure_ascii=False))
        return
    for name, edit in content["edits"].items():
        print(f"{name}: {edit['explains']}")
        needs = f"; needs: {', '.join(edit['needs'])}" if edit["needs"] else ""
        print(f"    control: {edit['control'] or 'none'}; random: {'yes' if edit['random'] else 'no'}{needs}")
        for parameter, declared in edit["parameters"].items():
            default = "" if declared["default"] is None else f" [{declared['default']}]"
            print(f"    {parameter}{default}: {declared['explains']}\n        {declared['allowed']}")
    print()
    for name, recipe in content["recipes"].items():
        print(f"recipe {name}: {recipe['explains']}\n    {' '.join(recipe['edits'])}")
    print(
        "\nsweeps: size=0.02:0.5:12   lists: lighting(where=both)=-2,0,2   grids: size=0.05,0.1 x direction=0,20,40\n"
    )
    for removal in content["removals"].values():
        print(f"removal {removal['usage']}: {removal['explains']}")
