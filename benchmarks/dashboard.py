"""How long the live page takes to open on a long run: 100,000 rounds of 100 devices, 1.5 GB of records.

Writes the run once into a folder, serves it as `gapsl dashboard` does, and looks at it in a browser without a
window: from the address to the first chart that is drawn. Then, until all records are read. Run it alone:

    python benchmarks/dashboard.py --folder /tmp/long-run
"""

from __future__ import annotations

import argparse
import resource
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))


def main() -> None:
    """Print what was measured."""
    from long_runs import made_run
    from pages import ARGUMENTS, CHROMIUM, answer
    from playwright.sync_api import sync_playwright

    from gapsl.dashboard.launch import listen, serve_page

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("/tmp/gapsl-long-run"))
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--keep", action="store_true", help="Keep the folder for the next time.")
    given = parser.parse_args()
    if not given.folder.exists():
        made_run(given.folder, rounds=given.rounds, devices=given.devices, evaluate_every=500)
    size = (given.folder / "records.jsonl").stat().st_size
    print(f"{given.rounds:,} rounds, {given.devices} devices, {size / 1e9:.2f} GB of records")
    over = threading.Event()
    with listen("localhost", 0) as opened, sync_playwright() as driver:
        address = f"http://localhost:{opened.getsockname()[1]}/"
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        tab = browser.new_page()
        begun = time.perf_counter()
        page = threading.Thread(
            target=serve_page, args=([given.folder], opened), kwargs={"until": over.wait}, daemon=True
        )
        page.start()
        tab.goto(address)
        tab.wait_for_selector(".chart canvas")
        print(f"from the start of the server to the first chart: {time.perf_counter() - begun:.2f} s")
        again = browser.new_page()
        opening = time.perf_counter()
        again.goto(address)
        again.wait_for_selector(".chart canvas")
        print(f"opened again while records are read: {time.perf_counter() - opening:.2f} s")
        while answer(address, "api/overview")["runs"][0]["reading"] is not None:
            time.sleep(0.5)
        print(f"all records read after {time.perf_counter() - begun:.1f} s")
        for name in ("curves", "devices", "angles"):
            asked = time.perf_counter()
            answer(address, f"api/runs/0/{name}")
            print(f"answer {name}: {time.perf_counter() - asked:.3f} s")
        opening = time.perf_counter()
        third = browser.new_page()
        third.goto(address)
        third.wait_for_selector(".chart canvas")
        print(f"opened when all are read: {time.perf_counter() - opening:.2f} s")
        print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
        browser.close()
        over.set()
        page.join()
    if not given.keep:
        for path in given.folder.iterdir():
            path.unlink()
        given.folder.rmdir()


if __name__ == "__main__":
    main()
