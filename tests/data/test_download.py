from __future__ import annotations

import dataclasses
import hashlib
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ocil.data import SOURCES, Source, SourceFile
from ocil.data.download import fetch
from ocil.errors import OcilError

DATA = bytes(range(256)) * 4000  # about a megabyte
NAME = "train-images-idx3-ubyte.gz"


class Server(http.server.ThreadingHTTPServer):
    """Serves DATA; `cuts` ends an answer after so many bytes, `ranges` allows to continue."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []
        self.cuts: list[int] = []
        self.ranges = True
        self.body = DATA
        self.status = 200
        self.length: str | None = None
        self.shift = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is what some tests are about."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{NAME}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        start = 0
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            shown = start + self.server.shift
            self.send_response(206)
            last = len(self.server.body) - 1
            self.send_header("Content-Range", f"bytes {shown}-{last}/{last + 1}")
        else:
            self.send_response(200)
        body = self.server.body[start:]
        self.send_header("Content-Length", self.server.length or str(len(body)))
        self.end_headers()
        if self.server.cuts:
            body = body[: self.server.cuts.pop(0)]
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the test output clean."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def source_at(*urls: str, data: bytes = DATA, **more: str | None) -> Source:
    md5 = hashlib.md5(data).hexdigest()
    file = SourceFile(NAME, urls, len(data), **{"md5": md5, **more})  # type: ignore[arg-type]
    return dataclasses.replace(SOURCES["mnist"], files=(file,))


def target(root: Path) -> Path:
    return root / "mnist" / NAME


def part(root: Path) -> Path:
    return root / "mnist" / f"{NAME}.part"


def test_fetch_once(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    folder = fetch(source_at(server.url), tmp_path, lambda *step: seen.append(step))
    assert folder == tmp_path / "mnist"
    assert target(tmp_path).read_bytes() == DATA
    assert not part(tmp_path).exists()
    assert seen[-1] == (NAME, len(DATA), len(DATA))
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})
    fetch(source_at(server.url), tmp_path)
    assert server.asked == [None]  # a file that is as published is not asked for again


def test_goes_on_after_a_cut(server: Server, tmp_path: Path) -> None:
    server.cuts = [300_000, 100_000]
    fetch(source_at(server.url), tmp_path)
    assert server.asked == [None, "bytes=300000-", "bytes=400000-"]
    assert target(tmp_path).read_bytes() == DATA


def test_goes_on_in_a_later_call(
    server: Server, tmp_path: Path, one_sentence: Callable[..., None]
) -> None:
    server.cuts = [1000, 1000, 1000]
    with pytest.raises(OcilError) as caught:
        fetch(source_at(server.url), tmp_path)
    one_sentence(caught.value, NAME, "3000 of 1024000 bytes", str(tmp_path / "mnist"))
    assert part(tmp_path).read_bytes() == DATA[:3000]
    assert not target(tmp_path).exists()
    fetch(source_at(server.url), tmp_path)
    assert server.asked[-1] == "bytes=3000-"
    assert target(tmp_path).read_bytes() == DATA


def test_a_server_without_ranges_starts_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.cuts = [500_000]
    fetch(source_at(server.url), tmp_path)
    assert target(tmp_path).read_bytes() == DATA


def test_an_answer_from_another_place_is_not_appended(server: Server, tmp_path: Path) -> None:
    server.cuts, server.shift = [500_000], 7
    with pytest.raises(OcilError, match="expected 1024000"):
        fetch(source_at(server.url), tmp_path)
    assert not target(tmp_path).exists()


def test_a_wrong_part_is_dropped_and_fetched_anew(server: Server, tmp_path: Path) -> None:
    part(tmp_path).parent.mkdir()
    part(tmp_path).write_bytes(b"x" * 5000)
    fetch(source_at(server.url), tmp_path)
    assert server.asked == ["bytes=5000-", None]
    assert target(tmp_path).read_bytes() == DATA


@pytest.mark.parametrize("size", [len(DATA), len(DATA) + 5])
def test_a_whole_or_too_long_part(server: Server, tmp_path: Path, size: int) -> None:
    part(tmp_path).parent.mkdir()
    part(tmp_path).write_bytes((DATA + b"12345")[:size])
    fetch(source_at(server.url), tmp_path)
    assert target(tmp_path).read_bytes() == DATA
    assert server.asked == ([] if size == len(DATA) else [None])


@pytest.mark.parametrize("kind", ["md5", "sha256"])
def test_wrong_checksum(
    server: Server, tmp_path: Path, one_sentence: Callable[..., None], kind: str
) -> None:
    with pytest.raises(OcilError, match=f"its {kind} is") as caught:
        fetch(source_at(server.url, **{kind: "0" * 32}), tmp_path)
    one_sentence(caught.value, NAME)
    assert not target(tmp_path).exists()
    assert not part(tmp_path).exists()


def test_wrong_size_is_refused_before_it_is_read(server: Server, tmp_path: Path) -> None:
    server.body = DATA + b"more"
    with pytest.raises(OcilError, match="it has 1024004 bytes, expected 1024000"):
        fetch(source_at(server.url), tmp_path)
    assert not part(tmp_path).exists()


@pytest.mark.parametrize("status", [404, 416, 503])
def test_server_errors(
    server: Server, tmp_path: Path, one_sentence: Callable[..., None], status: int
) -> None:
    server.status = status
    with pytest.raises(OcilError, match=f"answers {status}") as caught:
        fetch(source_at(server.url), tmp_path)
    one_sentence(caught.value, "127.0.0.1", "put train-images-idx3-ubyte.gz", str(tmp_path))


def test_the_second_address_helps(server: Server, tmp_path: Path) -> None:
    closed = "http://127.0.0.1:9/x"
    fetch(source_at(closed, server.url), tmp_path)
    assert target(tmp_path).read_bytes() == DATA


def test_without_a_network(tmp_path: Path, one_sentence: Callable[..., None]) -> None:
    source = source_at("http://127.0.0.1:9/x", "http://nowhere.invalid/x")
    with pytest.raises(OcilError) as caught:
        fetch(source, tmp_path, timeout=5)
    names = (file.name for file in SOURCES["mnist"].files)
    one_sentence(caught.value, *names, str(tmp_path / "mnist"), "try again with a network")


def test_a_silent_server_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/x"
        with pytest.raises(OcilError, match="timed out"):
            fetch(source_at(url), tmp_path, timeout=0.2)


def test_many_at_once_ask_once(server: Server, tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            fetch(source_at(server.url), tmp_path)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert server.asked == [None]
    assert target(tmp_path).read_bytes() == DATA


def test_two_processes_ask_once(server: Server, tmp_path: Path) -> None:
    import multiprocessing

    context = multiprocessing.get_context("fork")
    arguments = (source_at(server.url), tmp_path)
    processes = [context.Process(target=fetch, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert server.asked == [None]


def test_a_file_that_is_not_the_published_one_is_kept(server: Server, tmp_path: Path) -> None:
    target(tmp_path).parent.mkdir()
    target(tmp_path).write_bytes(b"mine")
    with pytest.raises(OcilError, match="not the published file; move it away"):
        fetch(source_at(server.url), tmp_path)
    assert target(tmp_path).read_bytes() == b"mine"


def test_the_same_content_packed_otherwise_is_accepted(server: Server, tmp_path: Path) -> None:
    import gzip

    target(tmp_path).parent.mkdir()
    target(tmp_path).write_bytes(gzip.compress(DATA, 1))
    packed = gzip.compress(DATA, 9, mtime=1)
    inner = hashlib.md5(DATA).hexdigest()
    fetch(source_at(server.url, data=packed, unpacked_md5=inner), tmp_path)
    assert server.asked == []


def test_unwritable_folder(
    server: Server, tmp_path: Path, one_sentence: Callable[..., None]
) -> None:
    (tmp_path / "mnist").write_text("a file where the folder should be")
    with pytest.raises(OcilError, match="Cannot write mnist into") as caught:
        fetch(source_at(server.url), tmp_path)
    one_sentence(caught.value, str(tmp_path / "mnist"), "--data-dir")


def test_full_disk(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ocil.data.download._Transfer._copy", full)
    with pytest.raises(OcilError, match=r"No space left on device.*free 1 MB there"):
        fetch(source_at(server.url), tmp_path)


def test_a_failed_fetch_leaves_nothing(server: Server, tmp_path: Path) -> None:
    with pytest.raises(OcilError):
        fetch(source_at("http://127.0.0.1:9/x"), tmp_path / "a" / "b", timeout=5)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mnist").mkdir()
    with pytest.raises(OcilError):
        fetch(source_at("http://127.0.0.1:9/x"), tmp_path, timeout=5)
    assert list((tmp_path / "mnist").iterdir()) == []


def test_a_failed_fetch_keeps_what_was_there(server: Server, tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "mine.txt").write_text("mine")
    with pytest.raises(OcilError):
        fetch(source_at("http://127.0.0.1:9/x"), tmp_path, timeout=5)
    assert (tmp_path / "mnist" / "mine.txt").read_text() == "mine"
