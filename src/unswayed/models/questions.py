"""The question that a vision-language model is asked about a picture, and which class its reply means.

`choice`: the model chooses among the class names, whose order is shuffled for every picture, so that a preference for a
position cannot pass for knowledge, and can be measured. `free`: the model writes what it sees, and the text is matched
with the synonyms of the classes. A reply that means no class, or more than one, is `unmatched`: no class is guessed.
"""

from __future__ import annotations

import functools
import math
import re
import string
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from unswayed.errors import printable
from unswayed.labels import LabelSpace, imagenet, plain

from .answering import Answer

CHOICE = "Which one of these is the main object in the picture? Reply with the {label} only.\n\n{}"
FREE = "What is the main object in the picture? Reply with its most specific common name only."
LONGEST_NAME = 100  # characters of a class in a prompt: the name of a folder may be a text of its own
_LABELED = re.compile(
    r"\W*(?:(?:the\s+)?(?:correct\s+)?(?:answer|option|choice)\s*(?:is)?\W*)?([a-z]|\d{1,5})\s*(?:[^\w\s]+\s*(.*))?",
    re.IGNORECASE | re.DOTALL,
)
_REFUSAL = re.compile(
    r"\W*(?:i(?:['’]m| am)? (?:very )?(?:sorry|unable|afraid)|sorry|i (?:cannot|can['’]t|can not|won['’]t)|as an ai\b)",
    re.IGNORECASE,
)
_THOUGHT = re.compile(r".*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_NEGATED = {"not", "no", "never", "isn", "cannot", "neither", "without", "unlike"}
# What follows one of these words describes the surroundings of the object.
_ASIDE = {"with", "wearing", "holding", "sitting", "standing", "lying", "on", "in", "at", "near", "by", "next", "that"}


@dataclass(frozen=True, eq=False)
class Shown:
    """A picture as it is sent. picture: a hash of its pixels; repeat: how many times it was asked about before."""

    pixels: np.ndarray
    picture: str
    repeat: int = 0


@dataclass(frozen=True)
class Reply:
    """What came back for one question.

    outcome: `answered`, or why there is no answer: `refused`, `truncated`, `malformed`, `timeout`, `failed`. tokens:
    each token of the text with its log-probability, if the server states them; first: the alternatives at the first
    token. used: how many tokens the question and the reply took. without: settings that the server did not take.
    """

    outcome: str
    text: str = ""
    tokens: list[tuple[str, float]] = field(default_factory=list)
    first: list[tuple[str, float]] = field(default_factory=list)
    used: int | None = None
    without: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Question:
    """A prompt; order: the classes in the order in which it lists them, empty for a free question."""

    prompt: str
    order: tuple[int, ...] = ()

    @property
    def options(self) -> dict[str, int]:
        """The classes by the letters, or beyond 26 options by the numbers, that the prompt gives them."""
        labels = string.ascii_uppercase if len(self.order) <= 26 else map(str, range(1, len(self.order) + 1))
        return dict(zip(labels, self.order, strict=False))


def question(template: str, space: LabelSpace, seed: Sequence[int] | None) -> Question:
    """The question for one picture; seed: of the order of the options, None for a free question."""
    if seed is None:
        return Question(template)
    order = np.random.default_rng(list(seed)).permutation(len(space)).tolist()
    asked = Question("", tuple(order))
    known = _in_prompts(space)
    names = [f"{label}. {known[index]}" for label, index in asked.options.items()]
    kind = "letter" if len(order) <= 26 else "number"
    return Question(template.replace("{label}", kind).replace("{}", "\n".join(names)), asked.order)


@functools.lru_cache(maxsize=8)
def _in_prompts(space: LabelSpace) -> list[str]:
    """The classes as a prompt calls them: each in one short line, and a WNID by its name."""
    known = dict(zip(imagenet().wnids, imagenet().classes, strict=True))
    return [" ".join(printable(known.get(name, name)).split())[:LONGEST_NAME] for name in space.classes]


def interpret(reply: Reply, asked: Question, space: LabelSpace) -> Answer:
    """The reply as an answer: the class it means first, with the probabilities that the model states."""
    text, outcome = _THOUGHT.sub("", reply.text).strip(), reply.outcome
    index: int | None = None
    if outcome == "answered":
        index = _chosen(text, asked, space) if asked.order else match(text, space)
        if index is None:
            outcome = "refused" if _REFUSAL.match(text) else "unmatched"
    more = {"tokens": reply.used}
    if index is None:
        return Answer(text=text, outcome=outcome, more=more)
    if asked.order:
        more["choice_position"] = asked.order.index(index)
    ranked = _distribution(reply, asked)
    # Unlike the probability of a letter, that of a whole text is the product over its tokens.
    stated = ranked.pop(
        index, math.exp(min(sum(value for _, value in reply.tokens), 0.0)) if reply.tokens else math.nan
    )
    others = sorted(ranked, key=lambda other: (-ranked[other], other))
    scores = np.array([min(stated, 1.0), *(ranked[other] for other in others)])
    return Answer(np.array([index, *others]), scores, text=text, outcome=outcome, more=more)


def _distribution(reply: Reply, asked: Question) -> dict[int, float]:
    """The probability of each option by the alternatives of the first token, where one token is an option."""
    by_label = asked.options if len(asked.order) <= 26 else {}
    # A reply that begins with other words says nothing about the other options.
    if not reply.tokens or _bare(reply.tokens[0][0]) not in by_label:
        return {}
    shares: dict[int, float] = defaultdict(float)
    for token, logarithm in reply.first:
        if _bare(token) in by_label:
            shares[by_label[_bare(token)]] += math.exp(min(logarithm, 0.0))
    return dict(shares)


def _bare(token: str) -> str:
    """A token without the signs around it, some of which stand for a space."""
    return token.strip(" ()*.▁Ġ")


def _chosen(text: str, asked: Question, space: LabelSpace) -> int | None:
    """The option that a text names: by its letter or number, or by its name; None if it names none or two."""
    labeled = _LABELED.fullmatch(text)
    index = asked.options.get(labeled[1].upper()) if labeled else None
    if labeled is None or index is None:
        return match(text, space)
    named = match(labeled[2], space) if labeled[2] else None
    return index if named in (None, index) else None


def match(text: str, space: LabelSpace) -> int | None:
    """The one class that a text names by its name or a synonym; None if there is none, or more than one.

    >>> [match(text, imagenet()) for text in ("A golden retriever on a park bench.", "Carassius auratus", "panda")]
    [207, 1, None]
    """
    words = plain(text).split()
    if not words or not _NEGATED.isdisjoint(words):
        return None
    terms, longest = _terms(space)
    classes: set[int | None] = set()
    position = 0
    while position < len(words):
        for length in range(min(longest, len(words) - position), 0, -1):
            term = " ".join(words[position : position + length])
            forms = (term, term.removesuffix("s"), term.removesuffix("es"))
            known = next((form for form in forms if form in terms), None)
            if known is not None:
                classes.add(terms[known])
                position += length
                break
        else:
            if words[position] in _ASIDE:
                break
            position += 1
    return classes.pop() if len(classes) == 1 else None


@functools.lru_cache(maxsize=8)
def _terms(space: LabelSpace) -> tuple[Mapping[str, int | None], int]:
    """The class of every name and synonym, None if several classes share it; and the most words that one has.

    A name of one class alone is that class, even if it is a synonym of another.
    """
    first: dict[str, set[int]] = defaultdict(set)
    others: dict[str, set[int]] = defaultdict(set)
    known, described = _imagenet_synonyms()
    for index, name in enumerate(space.classes):
        wnid = space.wnids[index] if space.wnids else name
        synonyms = described.get(wnid) or described.get(known.get(plain(name), ""), [])
        written = [name, *name.split(",")]
        for form in {plain(form) for form in (*written[:2], *synonyms[:1])} - {""}:
            first[form].add(index)
        for form in {plain(form) for form in (*written, *synonyms)} - {""}:
            others[form].add(index)
    chosen = {form: first.get(form) or classes for form, classes in others.items()}
    terms = {form: next(iter(classes)) if len(classes) == 1 else None for form, classes in chosen.items()}
    return terms, max((len(form.split()) for form in terms), default=1)


@functools.cache
def _imagenet_synonyms() -> tuple[dict[str, str], dict[str, list[str]]]:
    """The WNID of each ImageNet class by its name, where one class alone has it, and WordNet's synonyms by WNID, which
    timm contains."""
    from timm.data import ImageNetInfo

    info, space = ImageNetInfo("imagenet1k"), imagenet()
    described = {wnid: info.label_name_to_description(wnid).split(",") for wnid in space.wnids}
    names = [plain(name) for name in space.classes]
    by_name = {name: wnid for name, wnid in zip(names, space.wnids, strict=True) if names.count(name) == 1}
    return by_name, described
