"""Downloads, against a real server that can be told to break off."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gapsl.common.errors import InputError, Unavailable
from gapsl.data.download import Places, download

CONTENT = bytes(range(256)) * 4096  # 1 MiB
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT, by ranges too, and does what the server's plan says of each request in turn."""

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        plan = self.server.plan.pop(0) if self.server.plan else "serve"
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and plan != "no ranges" else 0
        if isinstance(plan, int):
            return self.send_error(plan)
        if start >= len(CONTENT):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.end_headers()
        end = (start + len(CONTENT)) // 2 if plan == "break off" else len(CONTENT)
        self.wfile.write(CONTENT[start:end])
        return None

    def log_message(self, *parts):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.plan, running.asked = [], []
        running.url = f"http://127.0.0.1:{running.server_port}/file.bin"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def fetch(server, target, md5=MD5, **options):
    return download(server.url, target, md5=md5, pause=0, **options)


def test_a_file_arrives_whole_and_leaves_no_part(server, tmp_path):
    seen = []
    path = fetch(server, tmp_path / "file.bin", progress=lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert not (tmp_path / "file.bin.part").exists()


def test_a_connection_that_breaks_off_is_resumed_where_it_stopped(server, tmp_path):
    server.plan = ["break off"] * 4  # more often than a silent server is asked: each time brought something
    assert fetch(server, tmp_path / "file.bin").read_bytes() == CONTENT
    size = len(CONTENT)
    starts = [size // 2, size * 3 // 4, size * 7 // 8, size * 15 // 16]
    assert server.asked == [None, *(f"bytes={start}-" for start in starts)]


def test_a_part_of_an_earlier_run_is_continued(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1000])
    assert fetch(server, tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]


def test_a_part_that_is_complete_is_taken(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    assert fetch(server, tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_server_without_ranges_starts_over(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"something else entirely")
    server.plan = ["no ranges"]
    assert fetch(server, tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_the_part_removed(server, tmp_path):
    with pytest.raises(InputError, match=f"has md5 {MD5}, not 0000"):
        fetch(server, tmp_path / "file.bin", md5="0000")
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin.lock"]


def test_a_server_that_stumbles_is_asked_again(server, tmp_path):
    server.plan = [503, 500]
    assert fetch(server, tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_server_that_stays_down_is_given_up_after_three_times(server, tmp_path):
    server.plan = [503] * 10
    with pytest.raises(Unavailable, match=r"HTTP 503 .*put the file at .*file\.bin"):
        fetch(server, tmp_path / "file.bin")
    assert len(server.asked) == 3


def test_a_missing_file_is_asked_for_once(server, tmp_path):
    server.plan = [404]
    with pytest.raises(Unavailable, match="HTTP 404"):
        fetch(server, tmp_path / "file.bin")
    assert len(server.asked) == 1


def test_no_network_says_where_to_put_the_file(server, tmp_path):
    server.server_close()  # nobody listens on its port any more
    with pytest.raises(Unavailable, match=r"cannot download http://127.*put the file at .*file\.bin"):
        fetch(server, tmp_path / "file.bin")


def test_two_at_once_download_once(server, tmp_path):
    both = [threading.Thread(target=fetch, args=(server, tmp_path / "file.bin")) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == [None]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GAPSL_DATA", raising=False)
    return tmp_path


def test_places_are_searched_in_their_order(home, monkeypatch):
    monkeypatch.setenv("GAPSL_DATA", str(home / "env"))
    places = Places(home / "given")
    assert places.folders == (home / "given", home / "env", home / "home/.cache/gapsl")
    assert places.find("x") is None
    for folder in reversed(places.folders):
        folder.mkdir(parents=True)
        (folder / "x").touch()
        assert places.find("x") == folder / "x"


def test_a_download_goes_to_the_first_place_that_can_be_written(server, home):
    (home / "given").touch()  # a file: no folder can be made there
    found = Places(home / "given").fetch(server.url, "sub/file.bin", MD5)
    assert found == home / "home/.cache/gapsl/sub/file.bin"
    assert found.read_bytes() == CONTENT


def test_a_forbidden_download_says_what_to_put_where(home):
    with pytest.raises(InputError, match=r"file\.bin is not in .*given.*get it from http://there and put it"):
        Places(home / "given", may_download=False).fetch("http://there", "file.bin", MD5)
