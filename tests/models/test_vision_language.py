"""Questions to vision-language models, what their replies mean, and a model of transformers that really writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from command_line import refused
from tiny_vlm import save_tiny_vlm
from unswayed.evaluation import run_evaluation
from unswayed.labels import LabelSpace, imagenet, own
from unswayed.models.chat_server import ChatServer, _retry_after, read_reply
from unswayed.models.opening import open_any, open_model
from unswayed.models.questions import CHOICE, Question, Reply, interpret, match, question
from unswayed.models.vision_language import VisionLanguageModel

ANIMALS = own(["cat", "dog", "bird"])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A golden retriever on a park bench.", "golden retriever"),
        ("golden retriever dog", "golden retriever"),
        ("Carassius auratus", "goldfish"),
        ("Tabby cats", "tabby"),
        ("cardigan welsh corgi", "Cardigan"),
        ("crayfish", "crayfish"),
        ("The picture shows a tench.", "tench"),
        ("goldfish or tench", None),
        ("a dog wearing a mask", None),
        ("not a goldfish", None),
        ("crane", None),
        ("panda", None),
        ("le poisson rouge", None),
        ("", None),
    ],
)
def test_a_text_means_one_class_or_none(text: str, name: str | None) -> None:
    index = match(text, imagenet())
    assert (None if index is None else imagenet().classes[index]) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("{dog}", "dog"),
        ("({dog})", "dog"),
        ("**{dog}**", "dog"),
        ("The answer is {dog}.", "dog"),
        ("{dog}. dog", "dog"),
        ("A dog", "dog"),
        ("<think>{cat} or {bird}?</think> {dog}", "dog"),
        ("{dog}. bird", None),
        ("D", None),
        ("a cat and a dog", None),
    ],
)
def test_an_option_is_chosen_by_its_letter_or_its_name(text: str, name: str | None) -> None:
    asked = question(CHOICE, ANIMALS, [0, 0, 7])
    letters = {ANIMALS.classes[index]: label for label, index in asked.options.items()}
    answer = interpret(Reply("answered", text.format(**letters)), asked, ANIMALS)
    assert [ANIMALS.classes[index] for index in answer.classes] == ([] if name is None else [name])
    assert answer.outcome == ("unmatched" if name is None else "answered")
    if name is not None:
        assert answer.more["choice_position"] == asked.order.index(ANIMALS.index(name))


def test_options_are_shuffled_and_their_names_are_plain_lines() -> None:
    space = LabelSpace("own", ("n01443537", "two\nlines", "x" * 500))
    prompts = {question(CHOICE, space, [0, 0, picture]).prompt for picture in range(40)}
    assert len(prompts) == 6  # every order
    lines = prompts.pop().splitlines()[2:]
    assert {line[3:] for line in lines} == {"goldfish", "two lines", "x" * 100}
    numbered = question(CHOICE, imagenet(), [0, 0, 1])
    assert "Reply with the number only" in numbered.prompt and list(numbered.options)[-1] == "1000"


def test_probabilities_are_those_of_the_letters() -> None:
    asked = Question("", (2, 0, 1))
    first = [("A", np.log(0.6)), (" A", np.log(0.1)), ("B", np.log(0.2)), ("x", np.log(0.1))]
    answer = interpret(Reply("answered", "A", [("A", np.log(0.6))], first), asked, ANIMALS)
    assert answer.classes.tolist() == [2, 0]
    np.testing.assert_allclose(answer.scores, [0.7, 0.2])
    alone = interpret(Reply("answered", "dog", [("d", np.log(0.5)), ("og", np.log(0.5))]), Question(""), ANIMALS)
    np.testing.assert_allclose(alone.scores, [0.25])


def test_a_refusal_in_words_is_no_unmatched_text() -> None:
    for text in ("I'm sorry, I can't help with that.", "I cannot identify it.", "Sorry, no.", "As an AI, I"):
        assert interpret(Reply("answered", text), Question(""), ANIMALS).outcome == "refused"


def test_replies_of_several_servers_are_read() -> None:
    plain = '{"choices": [{"message": {"content": [{"type": "text", "text": "dog"}]}, "finish_reason": "stop"}]}'
    assert read_reply(plain) == Reply("answered", "dog")
    refused_ = '{"choices": [{"message": {"content": null, "refusal": "No."}, "finish_reason": "stop"}]}'
    assert read_reply(refused_) == Reply("refused", "No.")
    filtered = (
        '{"choices": [{"message": {"content": ""}, "finish_reason": "content_filter", "logprobs": {"content": 3}}]}'
    )
    assert read_reply(filtered).outcome == "refused"
    assert (
        _retry_after("2") == 2 and _retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0 and _retry_after("soon") is None
    )


def test_the_key_is_read_from_the_environment_and_cut_out_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ChatServer("http://127.0.0.1:1/v1/chat/completions", "m", {})
    assert server.url == "http://127.0.0.1:1/v1"
    monkeypatch.setenv("UNSWAYED_API_KEY", "secret-1")
    assert server._hidden("wrong key secret-1!") == "wrong key …!"
    monkeypatch.setenv("UNSWAYED_API_KEY", "two\nlines")
    with refused("holds no key") as error:
        server._hidden("")
    assert "two" not in str(error.value)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_vlm(tmp_path_factory.mktemp("tiny") / "writer", favorite="B")


def test_a_model_of_transformers_answers_with_probabilities(writer: Path) -> None:
    model = open_any(f"transformers:{writer}?max_tokens=4", device="cpu", labels=ANIMALS)
    assert isinstance(model, VisionLanguageModel) and model.task == "answer"
    pictures = np.random.default_rng(0).integers(0, 256, (6, 48, 64, 3), dtype=np.uint8)
    answers = model.answer([model.prepare(picture) for picture in pictures])
    assert [answer.text for answer in answers] == ["B"] * 6
    assert {answer.more["choice_position"] for answer in answers} == {1}
    for answer in answers:
        assert answer.scores[0] > 0.9 and answer.scores.sum() <= 1.001
    again = model.answer([model.prepare(picture) for picture in pictures])
    assert [list(answer.scores) for answer in again] == [list(answer.scores) for answer in answers]
    card = model.card()
    assert card["origin"]["architecture"] == "llava" and card["origin"]["settings"]["temperature"] == 0
    with refused("is no classifier", allowed="evaluate"):
        open_model(f"transformers:{writer}", device="cpu")


def test_random_weights_run_into_the_limit(tmp_path: Path) -> None:
    folder = save_tiny_vlm(tmp_path / "tiny")
    model = open_any(f"transformers:{folder}?max_tokens=3&ask=free", device="cpu", labels=ANIMALS)
    assert isinstance(model, VisionLanguageModel)
    [answer] = model.answer([model.prepare(np.zeros((32, 32, 3), np.uint8))])
    assert answer.outcome == "truncated" and len(answer.text or "") == 3 and not len(answer.classes)


def test_a_preference_of_a_model_of_transformers_is_in_its_card(writer: Path, tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(1)
    for number in range(30):
        file = tmp_path / "photos" / ANIMALS.classes[number % 3] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(file)
    done = run_evaluation(f"images:{tmp_path / 'photos'}", [f"tiny=transformers:{writer}"], tmp_path / "out")
    assert any("prefers some positions" in text for text in done.warnings["tiny"])
