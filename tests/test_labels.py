"""Classes are found by index, WNID or name, and spaces come back from JSON."""

import numpy as np
import pytest

from command_line import refused
from unswayed.errors import UserError
from unswayed.labels import LabelSpace, choose, imagenet, imagenet_e_classes, own


def test_imagenet_has_its_thousand_classes_in_the_published_order():
    space = imagenet()
    assert len(space) == len(set(space.wnids)) == len(set(space.classes)) == 1000
    assert list(space.wnids) == sorted(space.wnids)
    assert (space.classes[0], space.wnids[0]) == ("tench", "n01440764")
    assert (space.classes[388], space.wnids[388]) == ("giant panda", "n02510455")
    assert (space.classes[999], space.wnids[999]) == ("toilet tissue", "n15075141")


def test_every_class_is_found_by_its_index_wnid_and_name():
    space = imagenet()
    for index, (name, wnid) in enumerate(zip(space.classes, space.wnids, strict=True)):
        assert space.index(index) == space.index(str(index)) == space.index(wnid) == space.index(name) == index


@pytest.mark.parametrize("spelling", ["Giant_Panda", "giant-panda", " giant  panda ", np.int64(388), "388"])
def test_spelling_does_not_matter(spelling):
    assert imagenet().index(spelling) == 388


def test_the_dog_and_the_garment_of_one_name_are_told_apart():
    assert imagenet().wnids[imagenet().index("Cardigan")] == "n02113186"
    assert imagenet().wnids[imagenet().index("cardigan")] == "n02963159"


@pytest.mark.parametrize("label", [1000, -1, "1000"])
def test_an_index_outside_is_refused(label):
    with pytest.raises(UserError, match="allowed: 0 to 999|there is no class"):
        imagenet().index(label)


def test_an_unknown_class_is_answered_with_the_nearest():
    with pytest.raises(UserError, match="did you mean 'giant panda'"):
        imagenet().index("gaint panda")


def test_the_classes_of_imagenet_e_are_373_in_order():
    classes = imagenet_e_classes()
    assert len(classes) == len(set(classes)) == 373
    assert list(classes) == sorted(classes)
    assert imagenet().index("giant panda") in classes
    assert imagenet().index("airliner") not in classes


def test_classes_are_chosen_by_list_by_text_or_as_imagenet_e():
    assert choose(imagenet(), "giant panda, n01440764,5,5") == (388, 0, 5)
    assert choose(imagenet(), [388, "n01440764"]) == (388, 0)
    assert choose(imagenet(), "imagenet-e") == imagenet_e_classes()
    with pytest.raises(UserError, match="means ImageNet classes"):
        choose(own(["a", "b"]), "imagenet-e")


def test_an_own_space_takes_digits_as_names_where_they_are_names():
    space = own(["10", "2"])
    assert (space.index("10"), space.index("2"), space.index(1)) == (0, 1, 1)


def test_names_that_cannot_be_told_apart_are_refused():
    with refused(given="occur more than once: cat = Cat"):
        own(["cat", "dog", "Cat"])


@pytest.mark.parametrize("space", [imagenet(), own(["b", "a"], "mine"), LabelSpace("none", ())])
def test_a_space_comes_back_from_json(space):
    assert LabelSpace.from_json(space.to_json()) == space


def test_an_unknown_space_is_refused():
    with pytest.raises(UserError, match="there is no label space 'imagenet-22k'"):
        LabelSpace.from_json({"name": "imagenet-22k"})
