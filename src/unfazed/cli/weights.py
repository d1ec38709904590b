"""`unfazed weights`: known weight files; fetch them, check them."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def weights(
    action: Annotated[str, typer.Argument(help="`list`, `fetch NAME` or `check FILE`.")] = "list",
    name: Annotated[str | None, typer.Argument(help="A name or kind of the list, or a file to check.")] = None,
    url: Annotated[str | None, typer.Option(help="Fetch from this mirror instead.")] = None,
    sha256: Annotated[str | None, typer.Option(help="Hold the file to this hash where none is known.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the known weights (diffusion networks, guides, masks, measures); fetch one or a kind; check a file.

    The list has sizes, SHA-256 hashes and whether each file is here.

        unfazed weights

        unfazed weights fetch 256x256_diffusion_uncond

        unfazed weights fetch masks

        unfazed weights check downloads/256x256_diffusion_uncond.pt

        unfazed build sample -o bench --network 256x256_diffusion_uncond

    A download that broke off goes on where it stopped. Files land in ~/.cache/unfazed, or in $UNFAZED_CACHE. The
    network `compact` comes with the package and needs no download.

    Exit codes: 0 done, 1 a checked file is not what it should be, 2 the command was wrong or the file out of reach.
    """
    import json

    from unfazed.errors import UserError, unknown
    from unfazed.known_weights import listing, verify

    if action == "list":
        rows = listing()
        if as_json:
            print(json.dumps(rows, indent=1, ensure_ascii=False))
            return
        for row in rows:
            size = f"{row['size'] / 1e6:,.0f} MB" if row["size"] else "size unknown"
            print(f"{row['name']}: {row['summary']} ({row['kind']}, {size}, {'here' if row['here'] else 'not here'})")
            print(f"    {row['url'] or 'comes with the package'}{_inside(row)}")
            print(f"    {_hash_line(row)}")
        return
    if action not in ("fetch", "check"):
        raise unknown("action", action, ["list", "fetch", "check"])
    if name is None:
        raise UserError(f"{action} what?", allowed="a name of the list" if action == "fetch" else "a file")
    if action == "fetch":
        from unfazed.known_weights import of_kind

        # A kind of which every file has a known hash can be fetched as a whole.
        for one in of_kind(name) if name in ("masks", "measure") else [name]:
            _fetch(one, url, sha256, as_json)
        return
    found, known = verify(name)
    right = known is not None if sha256 is None else found == sha256.lower()
    print(
        json.dumps({"sha256": found, "name": known, "right": right})
        if as_json
        else f"{found} {known or 'unknown file'}"
    )
    if not right:
        raise typer.Exit(1)


def _fetch(name: str, url: str | None, sha256: str | None, as_json: bool) -> None:
    import json

    from unfazed.known_weights import fetch, find

    from .progress import progress_line

    with progress_line(name, "MB") as show:
        path = fetch(
            name, url=url, expected=sha256, progress=lambda done, all_: show(done >> 20, (all_ or 0) >> 20, "")
        )
    checked = (find(name).sha256 or sha256) is not None
    if not checked:
        typer.echo(f"{path} is there; no SHA-256 of {name} is known, so it was not checked", err=True)
    print(json.dumps({"path": str(path), "checked": checked}) if as_json else path)


def _inside(row: dict[str, Any]) -> str:
    licensed = f" ({row['license']})" if row["license"] and row["url"] else ""
    return (f", in it {row['member']}" if row["member"] else "") + licensed


def _hash_line(row: dict[str, Any]) -> str:
    """What is said of a row's hash: a file that is here is not read for a list, so nothing is vouched for."""
    if row["sha256"] is None:
        return "sha256 unknown: nothing to check it by" if row["here"] else "sha256 unknown: fetch needs --sha256"
    if row["url"] is None or not row["here"]:
        return f"sha256 {row['sha256']}"
    if row["size"] not in (None, row["size_here"]):
        return f"{row['here']} is another file: {row['size_here']:,} bytes, not {row['size']:,}"
    return f"sha256 should be {row['sha256']}; not checked: unfazed weights check {row['here']}"
