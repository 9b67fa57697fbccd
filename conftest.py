"""What all tests share: one thread, a way to start gapsl, and runs that nothing disturbed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pages import ARGUMENTS, CHROMIUM
from processes import TINY, Launcher

# Bit equality is promised for one thread count, and two would only spin.
torch.set_num_threads(1)

Runs = Callable[..., Path]


@pytest.fixture(scope="session")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """Runs `gapsl` in real processes."""
    launcher = Launcher(tmp_path_factory.mktemp("commands"))
    yield launcher
    launcher.close()


@pytest.fixture(scope="session")
def undisturbed(cli: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Returns the folder of a tiny run with these arguments that ran through; each is trained once."""
    done: dict[tuple[str, ...], Path] = {}

    def run(*args: str) -> Path:
        if args not in done:
            folder = tmp_path_factory.mktemp("undisturbed") / "run"
            ended = cli.run("train", *TINY, *args, "--out", folder)
            assert ended.code == 0, ended.stderr
            done[args] = folder
        return done[args]

    return run


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real browser without a window, started once."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"there is no {CHROMIUM}; apt-get install chromium")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()
