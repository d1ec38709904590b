"""The templates of the page: all text is escaped except what is Markup already."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("unswayed.views", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: object) -> Markup:
    """Return a template of this folder filled with the values; every value is escaped unless it is Markup."""
    return Markup(_templates().get_template(template).render(values))
