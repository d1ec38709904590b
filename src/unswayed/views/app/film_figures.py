"""Searches, sweeps and fragility profiles as HTML: a filmstrip under its probability curve, and bars."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from unswayed.evaluation.smallest import Found, Still, Strip
from unswayed.views.report.pictures import data_address
from unswayed.views.text import percent, plural, tag

THUMBNAIL = 96
MEANING = (
    "A bar shows how far an attribute was changed until the prediction changed: 0 % is the photograph, 100 % the end "
    "of the attribute's range. The shorter the bar, the more fragile the prediction. Levels between those tried may "
    "change it earlier."
)
CURVE = ("The curve is the probability of", "from 0 to 100 %; an orange diamond is another prediction.")


def filmstrip(strip: Strip, model: str, said: str, shown: Still | None = None) -> Markup:
    """Return pictures to scrub over, under the curve of the probability that the first prediction keeps.

    said: the result in a sentence; shown: the picture that is shown first, by default the last one.
    """
    stills, before = strip.stills, strip.before
    place = len(stills) - 1 if shown is None else stills.index(shown)
    shares = [min(max(strip.direction.share(one.level, before.level), 0.0), 1.0) for one in stills]
    words = [_words(strip, still) for still in stills]
    points = [
        tag(
            "span",
            class_="point" if still.best == before.best else "point turned",
            style=f"left: {100 * share:.2f}%; top: {100 * (1 - still.kept):.2f}%",
        )
        for still, share in zip(stills, shares, strict=True)
    ]
    line = " ".join(f"{100 * share:.2f},{100 * (1 - one.kept):.2f}" for one, share in zip(stills, shares, strict=True))
    drawn = Markup(
        '<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true"><polyline points="{}"/></svg>'
    ).format(line)
    now = tag("span", class_="now", style=f"left: {100 * shares[place]:.2f}%")
    name = f"Probability of “{before.name}” from {percent(before.kept, 0)} to {percent(stills[-1].kept, 0)}"
    curve = tag("div", drawn, *points, now, class_="curve", role="img", aria_label=name)
    ends = (tag("span", "unchanged"), tag("span", strip.direction.describe(strip.direction.change.extreme)))
    frames = [
        tag(
            "img", src=data_address(one.image), alt="", draggable="false", data_share=f"{100 * at:.2f}", data_words=text
        )
        for one, at, text in zip(stills, shares, words, strict=True)
    ]
    slider = tag(
        "input",
        type="range",
        min=0,
        max=len(stills) - 1,
        step=1,
        value=place,
        aria_label="picture of the filmstrip",
        aria_valuetext=words[place],
    )
    big = tag("img", src=data_address(stills[place].image), alt=words[place], class_="big", draggable="false")
    return tag(
        "section",
        tag("p", tag("b", f"{model}, {strip.direction.name}: "), said, role="status"),
        tag(
            "p",
            f"Probability of “{before.name}”, from 0 to 100 %; an orange diamond is another prediction.",
            class_="quiet",
        ),
        curve,
        tag("div", *ends, class_="ends quiet"),
        tag("div", *frames, class_="thumbs", aria_hidden="true"),
        slider,
        tag("figure", big, tag("figcaption", words[place], aria_live="polite")),
        class_="film",
    )


def found_film(found: Found) -> Markup:
    """Return the result of a search as a filmstrip that shows the turn, or the last picture that was tried."""
    return filmstrip(found.strip, found.model, found.sentence, found.turn)


def swept_film(strip: Strip, model: str) -> Markup:
    """Return a sweep as a filmstrip that shows its last picture."""
    levels = strip.stills[1:]
    turned = sum(still.best != strip.before.best for still in levels)
    said = f"{plural(len(levels), 'level')}; the prediction is another one at {turned} of them." if levels else ""
    if strip.impossible is not None:
        said += f" {'Some levels were not' if levels else 'No level was'} possible: {strip.impossible}."
    return filmstrip(strip, model, said.strip())


def _words(strip: Strip, still: Still) -> str:
    said = f"{strip.describe(still)}: {still.name}, {percent(still.probability, 0)}"
    kept = "" if still.best == strip.before.best else f"; {strip.before.name} {percent(still.kept, 0)}"
    return said + kept


def profile_bars(found: Sequence[Found], total: int) -> Markup:
    """Return the profile: one bar for each change and model; when all `total` are there, the most fragile first."""
    if not found:
        return tag("section", tag("p", MEANING, class_="quiet"), class_="profile")
    by_change: dict[str, list[Found]] = {}
    for one in found:
        by_change.setdefault(one.direction.name, []).append(one)
    names = list(by_change)
    if len(found) == total:
        names.sort(key=lambda name: min(2.0 if one.share is None else one.share for one in by_change[name]))
    groups = [
        tag("li", tag("h4", name), tag("ul", *(tag("li", *_row(one)) for one in by_change[name]))) for name in names
    ]
    fragile = sum(one.turn is not None for one in found)
    summary = f"The prediction changed in {fragile} of {len(found)} searches."
    return tag(
        "section",
        tag("p", MEANING, class_="quiet"),
        tag("p", summary, role="status") if len(found) == total else None,
        tag("ol", *groups),
        class_="profile",
    )


def _row(found: Found) -> list[Markup]:
    turn, share = found.turn, found.share
    if share is None:
        said, bar = found.short, tag("span", class_="bar steady", aria_hidden="true")
    else:
        said = f"{percent(share, 0)}: {found.short}"
        bar = tag("span", tag("span", style=f"width: {100 * share:.2f}%"), class_="bar", aria_hidden="true")
    last = turn or found.strip.stills[-1]
    button = tag(
        "button",
        tag("img", src=data_address(last.image, THUMBNAIL), alt=""),
        type="button",
        data_change=found.direction.name,
        data_model=found.model,
        aria_label=f"pictures of {found.direction.name}, {found.model}",
    )
    return [button, tag("span", found.model, class_="model"), bar, tag("span", said, class_="said")]
