"""The page beside training never stands in its way."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from gapsl.dashboard.launch import live_page

pytest.importorskip("starlette", reason="the extra dashboard is not installed")


def test_a_page_that_hangs_does_not_keep_training_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf, ready = tmp_path / "deaf", tmp_path / "ready"
    deaf.write_text(
        f"#!{sys.executable}\nimport pathlib, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"pathlib.Path({str(ready)!r}).touch()\ntime.sleep(600)\n"
    )
    deaf.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(deaf))
    said: list[str] = []
    with live_page(tmp_path, True, said.append):
        while not ready.exists():
            time.sleep(0.01)
    assert said and said[0].startswith("live page: http://localhost:")
