"""Links that break while everybody lives: a proxy cuts them at random, and the run ends as without it."""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from network import SMALL, Served
from processes import wait_until

import gapsl
from gapsl.run.api import compose


class Cutter:
    """ServerModel bytes on between devices and a server, until it cuts all links at once."""

    def __init__(self, port: int) -> None:
        self._port, self._links, self._lock = port, set[socket.socket](), threading.Lock()
        self._listener = socket.create_server(("localhost", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                device, _ = self._listener.accept()
                server = socket.create_connection(("localhost", self._port))
            except OSError:
                return
            with self._lock:
                self._links |= {device, server}
            for source, target in ((device, server), (server, device)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(8192):  # small pieces, so that a cut may come in mid-message
                target.sendall(data)
        except OSError:
            pass
        self._close({source, target})

    def cut(self) -> None:
        """Cut every link there is."""
        self._close(set(self._links))

    def _close(self, links: set[socket.socket]) -> None:
        with self._lock:
            self._links -= links
        for link in links:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def close(self) -> None:
        """Cut all links, and accept no more."""
        self._listener.close()
        self.cut()


WORDS: dict[str, dict[str, Any]] = {
    "psl": {"method": "psl", "norm": "batch"},
    "labels on the device": {"method": "psl", "labels": "device"},
}


@pytest.mark.parametrize("case", ["psl", pytest.param("labels on the device", marks=pytest.mark.slow)])
def test_links_cut_at_random_moments_change_nothing(case: str, tmp_path: Path) -> None:
    chance = random.Random(case)
    config = compose(words={**SMALL, **WORDS[case], "rounds": 60, "evaluate_every": 60})
    served = Served(config, tmp_path)
    cutter = Cutter(served.port)
    try:
        served.devices.start(cutter.port, "device-0", "device-1", "device-2")
        wait_until(lambda: sum("connected" in said for said in served.said) >= 3, "all devices")
        cuts = 0
        while served.running and cuts < 12:
            cutter.cut()
            cuts += 1
            time.sleep(chance.uniform(0.05, 0.4))
        result = served.result()
    finally:
        cutter.close()
    assert sum("has left" in said for said in served.said) >= 3, served.said
    assert result.final.weights_sha256 == gapsl.train(config).final.weights_sha256
