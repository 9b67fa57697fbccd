"""How long the live page takes to open on a long run: 100,000 rounds of 100 devices, 1.4 GB of records.

The floor is the page of a run of 100 rounds. Both are served by `gapsl dashboard`, each in a process of its
own, and opened in turns in a browser without a window, from the address to the first chart that is drawn. The
fastest counts, since what disturbs an opening only makes it slower. First while records are read, then when
all are:

    python benchmarks/dashboard.py --folder /tmp/long-run
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))


@contextmanager
def page_of(folder: Path) -> Iterator[str]:
    """Serve the page of a run by the command; gives its address."""
    command = [sys.executable, "-m", "gapsl", "dashboard", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        try:
            yield page.stdout.readline().split()[0]
            usage = Path(f"/proc/{page.pid}/statm").read_text(encoding="ascii").split()[1]
            print(f"memory of the page of {folder.name}: {int(usage) * 4096 / 2**20:.0f} MiB")
        finally:
            page.terminate()


def main() -> None:
    """Print what was measured."""
    from long_runs import made_run
    from pages import ARGUMENTS, CHROMIUM, answer
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("/tmp/gapsl-long-run"))
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--keep", action="store_true", help="Keep the folder for the next time.")
    given = parser.parse_args()
    if not given.folder.exists():
        made_run(given.folder, rounds=given.rounds, devices=given.devices, evaluate_every=500)
    size = (given.folder / "records.jsonl").stat().st_size
    print(f"{given.rounds:,} rounds, {given.devices} devices, {size / 1e9:.2f} GB of records")
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        short = made_run(Path(place) / "short", rounds=100, devices=given.devices)
        begun = time.perf_counter()
        pages = [stack.enter_context(page_of(folder)) for folder in (short, given.folder)]
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=CHROMIUM, args=ARGUMENTS
        )

        def opening(address: str) -> float:
            asked = time.perf_counter()
            tab = browser.new_page()
            tab.goto(address)
            tab.wait_for_selector(".chart canvas")
            taken = time.perf_counter() - asked
            tab.close()
            return taken

        def measure(when: str) -> None:
            times = [[opening(address) for address in pages] for _ in range(given.times)]
            floor, found = (min(column) for column in zip(*times, strict=True))
            print(f"opened {when}: {found:.2f} s, of the floor of {floor:.2f} s: {found / floor:.2f}")

        measure("while records are read")
        while answer(pages[1], "api/overview")["runs"][0]["reading"] is not None:
            time.sleep(0.5)
        print(f"all records read after {time.perf_counter() - begun:.0f} s")
        measure("when all are read")
        browser.close()
    if not given.keep:
        for path in given.folder.iterdir():
            path.unlink()
        given.folder.rmdir()


if __name__ == "__main__":
    main()
