"""The live page for tests: served from a thread, and looked at in a real browser."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from processes import wait_until

from gapsl.dashboard.launch import listen, serve_page

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def served(*folders: Path, port: int = 0, **settings: Any) -> Iterator[str]:
    """Serve the page of some folders inside the block; gives its address."""
    over = threading.Event()
    with listen("localhost", port) as opened:
        page = threading.Thread(
            target=serve_page, args=(list(folders), opened), kwargs={**settings, "until": over.wait}
        )
        page.start()
        try:
            yield f"http://localhost:{opened.getsockname()[1]}/"
        finally:
            over.set()
            page.join()


def ask(address: str, path: str = "", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Ask a page for something as any program may: status, headers, content."""
    return request("GET", address, path, **headers)


def request(method: str, address: str, path: str = "", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Send any request."""
    link = http.client.HTTPConnection(address.removeprefix("http://").rstrip("/"), timeout=60)
    link.request(method, f"/{path}", headers=headers)
    answer = link.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    link.close()
    return found


def answer(address: str, path: str) -> Any:
    """Return an answer of the page."""
    status, _, content = ask(address, path)
    assert status == 200, content
    return json.loads(content)


def until_read(address: str, rounds: int) -> None:
    """Wait until the page has read so many rounds of its first run."""

    def read() -> bool:
        runs = answer(address, "api/overview")["runs"]
        return bool(runs) and runs[0]["round"] >= rounds and runs[0]["reading"] is None

    wait_until(read, f"{rounds} rounds on the page")
