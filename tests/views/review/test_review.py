"""Reviews: sessions, the file they are kept in, the server that takes them, and what analyses make of them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import polars as pl
import pytest
from mutations import damaged

from unswayed.analyses.alignment import agreement
from unswayed.benchmark import Benchmark
from unswayed.benchmark.rows import REVIEWS, Review, add_review, read_reviews
from unswayed.errors import UserError
from unswayed.evaluation.facts import Facts, human_accuracy, on_valid_pictures
from unswayed.views.review import open_session, served, summarize, summary_text


def asked(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    given = {"Content-Type": "application/json", **{name.replace("_", "-"): one for name, one in headers.items()}}
    connection.request(method, path, None if body is None else json.dumps(body), given)
    reply = connection.getresponse()
    return reply.status, reply.read()


def test_a_session_continues_where_it_stopped(bench):
    session = open_session(bench, "ann", limit=5)
    session.answer(0, "valid")
    session.answer(2, "artifact", 1.5)
    again = open_session(bench, "ann", limit=5)
    assert [item["answer"] for item in again.state()["items"]] == ["valid", None, "artifact", None, None]
    again.answer(0, "unrecognizable")
    assert len(read_reviews(bench)) == 2
    assert {item["answer"] for item in open_session(bench, "bob", limit=5).state()["items"]} == {None}


def test_shuffling_keeps_the_pictures_and_gives_each_rater_an_order_of_their_own(bench):
    plain = open_session(bench, "ann", limit=12).items
    ann, bob = (open_session(bench, rater, limit=12, shuffle=True).items for rater in ("ann", "bob"))
    assert set(ann) == set(bob) == set(plain)
    assert ann != bob
    assert ann == open_session(bench, "ann", limit=12, shuffle=True).items


def test_a_blind_rater_is_told_neither_edit_nor_class(bench):
    text = json.dumps(open_session(bench, "ann", blind=True).state())
    assert not any(edit in text for edit in (*Benchmark(bench).edits, "small and moved"))
    assert '"label": null' in text
    assert "small and moved" in json.dumps(open_session(bench, "ann").state())


def test_answers_of_several_raters_at_once_are_all_kept(bench):
    def rate(rater: str) -> None:
        session = open_session(bench, rater, limit=6)
        for number in range(6):
            session.answer(number, "valid")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(rate, ["ann", "bob", "eve"]))
    assert len(read_reviews(bench)) == 18
    assert not list(bench.glob("*.part"))


def test_the_server_answers_only_its_own_page(bench):
    with served(open_session(bench, "ann", limit=4)) as server:
        assert asked(server.port, "GET", "/")[0] == 200
        assert asked(server.port, "GET", "/state", Host="evil.example")[0] == 403
        answer = {"item": 0, "answer": "valid"}
        assert asked(server.port, "POST", "/answer", answer, Origin="http://evil.example")[0] == 403
        assert asked(server.port, "POST", "/answer", answer, Origin="null")[0] == 403
        assert asked(server.port, "POST", "/answer", answer, Content_Type="text/plain")[0] == 415
        assert read_reviews(bench) == []
        assert asked(server.port, "POST", "/answer", answer, Origin=f"http://127.0.0.1:{server.port}")[0] == 200
        assert [one.answer for one in read_reviews(bench)] == ["valid"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/answer", {"item": 99, "answer": "valid"}, 404),
        ("/answer", {"item": -1, "answer": "valid"}, 404),
        ("/answer", {"item": 0, "answer": "nice"}, 400),
        ("/answer", ["no"], 400),
        ("/elsewhere", {"item": 0, "answer": "valid"}, 404),
    ],
)
def test_answers_that_make_no_sense_are_refused(bench, path, body, status):
    with served(open_session(bench, "ann", limit=4)) as server:
        assert asked(server.port, "POST", path, body)[0] == status
    assert read_reviews(bench) == []


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 4000,
        b'{"item": 0, "answer": "valid", "seconds": 1e999}',
        b'{"item": 0, "answer": "valid", "seconds": NaN}',
    ]
    + [b'{"item": 0, "answer": ["valid"]}', b"\xff", b""],
)
def test_hostile_answers_are_refused_without_a_traceback(bench, body, capfd):
    with served(open_session(bench, "ann", limit=4)) as server:
        assert posted(server.port, body) == 400
    assert read_reviews(bench) == []
    assert capfd.readouterr().err == ""


def posted(port: int, body: bytes) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", "/answer", body, {"Content-Type": "application/json"})
    return connection.getresponse().status


def test_a_client_that_stops_in_the_middle_is_not_waited_for(bench, monkeypatch, capfd):
    monkeypatch.setattr("unswayed.views.review.PATIENCE", 0.1)
    with served(open_session(bench, "ann", limit=4)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            host = f"Host: 127.0.0.1:{server.port}\r\n".encode()
            client.sendall(b"POST /answer HTTP/1.1\r\nContent-Type: application/json\r\n" + host)
            client.sendall(b"Content-Length: 100\r\n\r\n{")
            assert client.recv(1000) == b""
        assert asked(server.port, "GET", "/state")[0] == 200
    assert capfd.readouterr().err == ""


def test_damaged_requests_are_refused_without_a_word_and_the_next_visitor_is_served(bench, capfd):
    """Three hundred of them: bytes flipped, cut, repeated or replaced in requests that are answered."""
    draw, statuses = random.Random(0), Counter()
    with served(open_session(bench, "ann", limit=4)) as server:
        common = f"HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nOrigin: http://127.0.0.1:{server.port}\r\n".encode()
        body = b'{"item": 0, "answer": "valid", "seconds": 1.5}'
        posting = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        valid = [b"GET /state " + common + b"\r\n", b"GET /picture/1/edited " + common + b"\r\n"]
        valid += [b"POST /answer " + common + posting + body] * 2
        twice = [b"Content-Length: 9\r\nContent-Length: 46\r\n\r\n" + body, b"Host: evil.example\r\n\r\n"]
        odd = [b"POST /answer " + common + end for end in (*twice, b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello")]
        odd += [
            method + b" /state " + common + b"\r\n" for method in (b"HEAD", b"PUT", b"TRACE", b"CONNECT", b"A" * 70000)
        ]
        odd += [b"GET http://evil.example/state " + common + b"\r\n", b"GET /" + b"a" * 70000 + b" " + common + b"\r\n"]
        odd += [b"GET /state " + common + b"X: a\r\n" * 200 + b"\r\n", b"\x16\x03\x01\x02\x00\x01", b"\r\n", b""]
        for data in [*valid, *odd, *(damaged(draw.choice(valid), draw) for _ in range(300))]:
            statuses[status_of(server.port, data)] += 1
        assert asked(server.port, "GET", "/state")[0] == 200
    assert statuses[200] > 20 and statuses.total() == len(valid) + len(odd) + 300
    assert set(statuses) <= {None, 200, 400, 403, 404, 414, 415, 431, 501, 505}
    assert {review.sample_id for review in read_reviews(bench)} <= {row["sample_id"] for row in rows_of(bench)}
    assert capfd.readouterr().err == ""


def status_of(port: int, data: bytes) -> int | None:
    """The status that the bytes of a request are answered with; None if the connection is closed without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client, contextlib.suppress(ConnectionError):
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        words = b"".join(iter(lambda: client.recv(2**16), b"")).split()
        return int(words[1]) if words and words[0].startswith(b"HTTP/") else None
    return None


def rows_of(bench) -> list[dict[str, Any]]:
    return Benchmark(bench).manifest.to_pylist()


def test_a_pipe_in_the_place_of_a_picture_is_refused(bench):
    session = open_session(bench, "ann", limit=4)
    place = session.items[0].edited
    place.unlink()
    os.mkfifo(place)
    with served(session) as server:
        assert asked(server.port, "GET", "/picture/0/edited")[0] == 404
        assert asked(server.port, "GET", f"/picture/{'1' * 5000}/edited")[0] == 404


def test_only_pictures_of_the_session_are_served(bench):
    with served(open_session(bench, "ann", limit=4)) as server:
        status, data = asked(server.port, "GET", "/picture/0/edited")
        assert (status, data[:4]) == (200, b"\x89PNG")
        for path in ("/picture/4/edited", "/picture/0/manifest.parquet", "/../manifest.parquet", "/benchmark.json"):
            assert asked(server.port, "GET", path)[0] == 404


def test_kappa_is_scikit_learns_for_two_raters_and_statsmodels_for_three():
    from sklearn.metrics import cohen_kappa_score

    inter_rater = pytest.importorskip("statsmodels.stats.inter_rater")
    rng = np.random.default_rng(3)
    kinds = np.array(["valid", "unrecognizable", "artifact"])
    truth = rng.integers(0, 3, 40)
    given = {
        rater: dict(enumerate(kinds[np.where(rng.random(40) < 0.7, truth, rng.integers(0, 3, 40))].tolist()))
        for rater in ("ann", "bob", "eve")
    }
    texts = {rater: {str(item): answer for item, answer in its.items()} for rater, its in given.items()}
    two = agreement({rater: texts[rater] for rater in ("ann", "bob")})
    ann, bob = (list(given[rater].values()) for rater in ("ann", "bob"))
    assert two is not None and two.kappa == pytest.approx(cohen_kappa_score(ann, bob))
    three = agreement(texts)
    counts, _ = inter_rater.aggregate_raters(np.array([list(its.values()) for its in given.values()]).T)
    assert three is not None and three.method == "Fleiss"
    assert three.kappa == pytest.approx(inter_rater.fleiss_kappa(counts))


def test_the_summary_has_shares_by_edit_and_the_agreement(bench):
    with pytest.raises(UserError, match="nobody has reviewed"):
        summarize(bench)
    items = open_session(bench, "ann", edits=["position"]).items
    for number, item in enumerate(items):
        for rater in ("ann", "bob"):
            answer = "unrecognizable" if number == 0 else "valid"
            add_review(bench, Review(item.sample_id, item.source_id, item.edit, item.run, rater, answer))
    found = summarize(bench)
    assert found["edits"]["position"]["unrecognizable"] == pytest.approx(1 / len(items))
    assert found["agreement"]["kappa"] == 1.0
    assert "Cohen's kappa 1.000" in summary_text(found)


def test_human_answers_give_the_ceiling_and_the_valid_pictures(bench):
    items = open_session(bench, "ann", edits=["position"]).items
    for item, answer in zip(items, ["valid", "unrecognizable", "artifact", *["valid"] * 5], strict=True):
        add_review(bench, Review(item.sample_id, item.source_id, item.edit, item.run, "ann", answer))
    facts = Facts(root=bench)
    ceiling = human_accuracy(facts)
    assert ceiling is not None
    assert ceiling.row(0) == ("position", pytest.approx(7 / 8), 8)
    rows = [
        {"model": "m", "source_id": item.source_id, "edit": edit, "run": 0, "correct": True}
        for item in items
        for edit in ("original", "position", "size-0.1")
    ]
    kept = on_valid_pictures(pl.DataFrame(rows), facts, "human", [])
    assert kept.group_by("edit").len().sort("edit").rows() == [("original", 8), ("position", 6)]
    with pytest.raises(UserError, match="nobody has reviewed"):
        on_valid_pictures(pl.DataFrame(rows), Facts(), "human", [])


def test_a_damaged_file_of_reviews_is_refused(bench):
    (bench / REVIEWS).write_bytes(b"not parquet")
    with pytest.raises(UserError, match="is not a readable Parquet file"):
        read_reviews(bench)


def test_an_answer_to_a_removed_benchmark_is_refused_and_creates_nothing(bench, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(bench, copy)
    with served(open_session(copy, "ann")) as server:
        shutil.rmtree(copy)
        status, body = asked(server.port, "POST", "/answer", {"item": 0, "answer": "valid"})
    assert (status, copy.exists()) == (409, False)
    assert "is no benchmark any more" in json.loads(body)["error"]
