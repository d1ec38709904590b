"""Scene ids are unique, path-safe and stable."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unswayed.errors import UserError
from unswayed.sources.source import slug, unique_slugs

NAMES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30), unique=True, max_size=20)


@given(NAMES)
def test_ids_are_path_safe_and_distinct_even_where_case_is_not(names):
    ids = unique_slugs(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,240}", one) for one in ids)
    assert len({one.lower() for one in ids}) == len(names)


@given(NAMES)
def test_ids_do_not_depend_on_the_order_of_the_names(names):
    assert dict(zip(names, unique_slugs(names), strict=True)) == dict(
        zip(names[::-1], unique_slugs(names[::-1]), strict=True)
    )


def test_folders_make_a_difference():
    assert unique_slugs(["dog/001.jpg", "cat/001.jpg"]) == ("dog--001", "cat--001")


def test_names_that_differ_by_suffix_case_or_odd_characters_get_different_ids():
    names = ["a.jpg", "a.png", "A.jpg", "a b.jpg", "a?b.jpg", "猫.jpg", "犬.jpg", "con.jpg", "x" * 300 + "1", "x" * 300]
    ids = unique_slugs(names)
    assert len({one.lower() for one in ids}) == len(names)
    assert ids[7] != "con"
    assert max(map(len, ids)) < 150


def test_an_id_has_no_dot_because_runs_are_numbered_after_one():
    assert slug("photo.v2.run1.jpg") == "photo_v2_run1"


def test_two_scenes_of_one_name_are_refused():
    with pytest.raises(UserError, match=r"two scenes have the same name, a\.jpg"):
        unique_slugs(["a.jpg", "a.jpg"])
