"""Label spaces meet: by identity, WNID, name, as a subset, many to one; what does not fit is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from unswayed.errors import UserError
from unswayed.labels import RIVAL10, LabelSpace, imagenet, own
from unswayed.models.label_mapping import map_labels, read_groups


def test_equal_spaces_change_nothing() -> None:
    mapping = map_labels(imagenet(), imagenet(), [1, 2])
    logits = torch.randn(2, 1000)
    assert mapping.kind == "identity"
    assert torch.equal(mapping.apply(logits), logits)


def test_another_order_is_matched_by_name() -> None:
    mapping = map_labels(own(["dog", "Polar_Bear", "cat"]), own(["cat", "dog", "polar bear"]), [0, 1, 2])
    assert mapping.kind == "names"
    assert mapping.apply(torch.tensor([[10.0, 20.0, 30.0]])).tolist() == [[30.0, 10.0, 20.0]]


def test_a_subset_of_imagenet_by_name_or_wnid() -> None:
    for names in (["goldfish", "tench"], ["n01443537", "n01440764"]):
        mapping = map_labels(imagenet(), own(names), [0, 1])
        assert (mapping.kind, mapping.members) == ("subset", ((1,), (0,)))


def test_synonyms_count() -> None:
    mapping = map_labels(LabelSpace("hub", ("tench, Tinca tinca", "goldfish, Carassius auratus")), imagenet(), [0, 1])
    assert mapping.members[:3] == ((0,), (1,), ())


def test_a_name_without_letters_is_the_name_of_nothing() -> None:
    """`cat,` has an empty synonym, which used to stand for every class that the model does not have."""
    with pytest.raises(UserError, match="no counterpart for 1 of the benchmark's classes: horse"):
        map_labels(LabelSpace("hub", ("cat,", "dog", "?")), own(["dog", "horse"]), [0, 1])


def test_a_model_whose_classes_are_named_by_wnid() -> None:
    mapping = map_labels(own(["n01443537", "n01440764"]), imagenet(), [0, 1])
    assert mapping.members[:3] == ((1,), (0,), ())


def test_rival10_is_made_of_pairs() -> None:
    space = LabelSpace("rival10", tuple(RIVAL10))
    mapping = map_labels(imagenet(), space, range(10))
    assert mapping.kind == "groups"
    assert [len(group) for group in mapping.members] == [2] * 10
    logits = torch.randn(3, 1000, dtype=torch.float64)
    chosen = [index for group in mapping.members for index in group]
    pairs = torch.softmax(logits[:, chosen], 1).view(3, 10, 2).sum(2)
    assert torch.allclose(torch.softmax(mapping.apply(logits), 1), pairs)


def test_a_model_of_the_ten_classes_needs_no_grouping() -> None:
    space = LabelSpace("rival10", tuple(RIVAL10))
    assert map_labels(own(reversed(RIVAL10)), space, range(10)).members[0] == (9,)


def test_own_groups_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "groups.json").write_text(json.dumps({"fish": ["tench", "n01443537"], "bird": [10, 11]}))
    mapping = map_labels(imagenet(), own(["bird", "fish"]), [0, 1], read_groups(tmp_path / "groups.json"))
    assert mapping.members == ((10, 11), (0, 1))
    (tmp_path / "bad.json").write_text('["fish"]')
    with pytest.raises(UserError, match="is not a grouping"):
        read_groups(tmp_path / "bad.json")
    with pytest.raises(UserError, match="more than one class"):
        map_labels(imagenet(), own(["bird", "fish"]), [0, 1], {"bird": [10], "fish": [10]})


def test_a_class_that_the_model_does_not_know_is_named() -> None:
    with pytest.raises(UserError, match="1 of the benchmark's classes: hedgehog"):
        map_labels(own(["cat", "dog"]), own(["cat", "hedgehog"]), [0, 1])
    # A class that never occurs may be missing; its answer is impossible.
    mapping = map_labels(own(["cat", "dog"]), own(["cat", "hedgehog"]), [0])
    assert mapping.apply(torch.zeros(1, 2)).tolist() == [[0.0, float("-inf")]]


def test_names_that_differ_only_in_a_capital_are_kept_apart() -> None:
    from torch import nn

    from unswayed.models import Classifier, Transform

    turned = [*imagenet().classes[1:], imagenet().classes[0]]
    model = Classifier(nn.Identity(), Transform(), turned, device="cpu")  # type: ignore[arg-type]
    members = map_labels(model.labels, imagenet(), range(1000)).members
    assert members == tuple(((index - 1) % 1000,) for index in range(1000))
    assert Classifier(nn.Identity(), Transform(), list(imagenet().classes), device="cpu").labels == imagenet()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"fish": ["tench", "goldfsh"]}, "for the group 'fish': 'goldfsh'; did you mean 'goldfish'"),
        ({"fisch": ["tench"]}, "named in --groups: 'fisch'; did you mean 'fish'"),
        ({"fish": [1000]}, "for the group 'fish': '1000'"),
    ],
)
def test_groups_of_what_does_not_exist_are_refused(groups: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        map_labels(imagenet(), own(["fish", "goldfish"]), [0, 1], groups)
