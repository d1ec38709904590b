"""Errors say what was given, what is allowed, what to run, and survive the way back from a worker."""

import pickle

import pytest

from unswayed.errors import BadPicture, UserError, need, unknown


def test_an_error_says_what_was_given_what_is_allowed_and_what_to_run():
    error = UserError("size is 7", allowed="0 to 1", run="unswayed edits")
    assert str(error) == "size is 7\nallowed: 0 to 1\nrun: unswayed edits"
    assert str(UserError("size is 7")) == "size is 7"


@pytest.mark.parametrize("kind", [UserError, BadPicture])
def test_an_error_comes_back_from_another_process_unchanged(kind):
    error = kind("no", allowed="yes", run="this")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.given, again.allowed, again.run) == (str(error), "no", "yes", "this")


def test_a_bad_picture_is_a_user_error_so_that_one_handler_catches_both():
    assert issubclass(BadPicture, UserError)


def test_an_unknown_name_is_answered_with_the_nearest_and_with_all():
    text = str(unknown("edit", "postion", ["size", "position", "direction"], run="unswayed edits"))
    assert "there is no edit 'postion'; did you mean 'position'?" in text
    assert "allowed: size, position, direction" in text
    assert text.endswith("run: unswayed edits")


def test_a_name_like_no_other_gets_no_guess_and_a_long_list_is_cut():
    text = str(unknown("class", "qqqqqq", [f"name{n}" for n in range(1000)]))
    assert "did you mean" not in text
    assert "(1000 in all)" in text
    assert "name39" in text
    assert "name40" not in text


def test_a_missing_extra_names_the_pip_line():
    need("app", "json")
    with pytest.raises(UserError, match="the package 'no_such_thing', which is not installed") as error:
        need("app", "json", "no_such_thing")
    assert error.value.run == "pip install 'unswayed[app]'"
