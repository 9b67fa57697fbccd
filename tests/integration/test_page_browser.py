"""The page and the report in a real browser: drawn, live, usable, and asking nobody else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from long_runs import lines, made_run
from pages import served, until_read
from processes import wait_until

from gapsl.dashboard.report import write_report

pytest.importorskip("starlette", reason="the extra dashboard is not installed")
FIXTURES = Path(__file__).parents[1] / "fixtures"
Open = Callable[..., Any]

DRAWN = """canvas => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  for (let i = 0; i < data.length; i += 4) if (data[i + 3]) colours.add(data.slice(i, i + 3).join());
  return colours.size;
}"""


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Opens pages; at the end no page may have complained, nor asked another host for anything."""
    contexts, said, asked = [], [], []

    def open_page(address: str, *, width: int = 1200, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        own = address.partition("#")[0].partition("?")[0]
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda one: asked.append((own, one.url)))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [text for text in said if "net::ERR_" not in text] == []  # of a server that is gone
    assert [url for own, url in asked if not url.startswith((own, "data:"))] == []


def shown_round(page: Any) -> int:
    return int(page.evaluate("Number(document.body.dataset.round ?? -1)"))


def canvases(page: Any) -> list[int]:
    page.wait_for_selector("canvas")
    return [found.evaluate(DRAWN) for found in page.query_selector_all("canvas") if found.is_visible()]


def test_curves_are_drawn_over_every_axis(tmp_path: Path, opened: Open) -> None:
    run = made_run(tmp_path / "a", rounds=60, devices=5)
    with served(run) as address:
        until_read(address, 60)
        page = opened(address)
        page.wait_for_selector("text=Time per round")
        for axis in ("rounds", "epochs", "bytes", "seconds"):
            page.click(f"role=radio[name='{axis}']")
            page.wait_for_selector(f"role=radio[name='{axis}'][checked=true]")
            drawn = canvases(page)
            assert len(drawn) >= 5 and min(drawn) > 3, axis
        assert "100.0 %" in page.inner_text(".tile >> nth=0")


def test_dragging_over_a_chart_looks_closer_and_back(tmp_path: Path, opened: Open) -> None:
    run = made_run(tmp_path / "a", rounds=2000, devices=2)
    with served(run) as address:
        until_read(address, 2000)
        page = opened(address)
        over = page.wait_for_selector(".card:has-text('training loss per round') .u-over")
        over.scroll_into_view_if_needed()
        box = over.bounding_box()
        page.mouse.move(box["x"] + 50, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + 150, box["y"] + 60, steps=4)
        page.mouse.up()
        page.click("text=Whole run")
        page.wait_for_selector("text=Drag over a chart")


def test_live_updates_arrive_and_a_run_that_goes_back_is_followed(tmp_path: Path, opened: Open) -> None:
    run = made_run(tmp_path / "a", rounds=20, devices=3)
    whole = list(lines(60, 3, 10))
    with served(run) as address:
        page = opened(address)
        wait_until(lambda: shown_round(page) == 20, "20 rounds")
        with (run / "records.jsonl").open("a") as file:
            file.writelines(whole[20:35])
        wait_until(lambda: shown_round(page) == 35, "35 rounds")
        assert page.inner_text(".tile >> nth=2").startswith("Round\n35")
        (run / "records.jsonl").write_text("".join(whole[:25]))
        wait_until(lambda: shown_round(page) == 25, "25 rounds")


def test_a_list_stays_open_while_news_arrive(tmp_path: Path, opened: Open) -> None:
    runs = [made_run(tmp_path / name, rounds=20, devices=3) for name in ("a", "b")]
    with served(*runs) as address:
        page = opened(f"{address}#view=devices&run=0")
        wait_until(lambda: shown_round(page) == 20, "20 rounds")
        page.wait_for_selector(".viewport .device-row")
        page.evaluate("window.before = [...document.querySelectorAll('select')]")
        with (runs[0] / "records.jsonl").open("a") as file:
            file.writelines(list(lines(26, 3, 100))[20:25])
        wait_until(lambda: shown_round(page) == 25, "25 rounds")
        assert page.evaluate("window.before.length === 2 && window.before.every((one) => one.isConnected)")


def test_a_browser_comes_back_after_the_server_was_away(tmp_path: Path, opened: Open) -> None:
    run = made_run(tmp_path / "a", rounds=10, devices=3)
    with served(run) as address:
        page = opened(address)
        wait_until(lambda: shown_round(page) == 10, "10 rounds")
    page.wait_for_selector("text=no connection")
    page.click("role=radio[name='epochs']")  # asks in vain, and says nothing more
    with (run / "records.jsonl").open("a") as file:
        file.writelines(lines(30, 3, 10, first=11))
    with served(run, port=int(address.rstrip("/").rpartition(":")[2])):
        wait_until(lambda: shown_round(page) == 30, "30 rounds")
        page.wait_for_selector("text=no connection", state="detached")


def test_the_slider_goes_through_the_rounds(tmp_path: Path, opened: Open) -> None:
    run = made_run(tmp_path / "a", rounds=30, devices=6)
    with served(run) as address:
        until_read(address, 30)
        page = opened(f"{address}#view=angles")
        slider = page.wait_for_selector("input[type=range]")
        page.wait_for_selector("output:has-text('round 30')")
        assert canvases(page)[0] >= 3
        slider.focus()
        page.keyboard.press("ArrowLeft")
        page.wait_for_selector("output:has-text('round 29')")
        slider.fill("4")
        page.wait_for_selector("output:has-text('round 5')")
        names = page.inner_text(".names.rows").split()
        assert sorted(names[:3]) in (["0", "2", "4"], ["1", "3", "5"]), "who agrees stands together"
        page.select_option("select[aria-label='order of the devices']", "number")
        assert page.inner_text(".names.rows").split() == list("012345")
        page.hover("canvas", position={"x": 5, "y": 150})
        assert page.inner_text("dd >> nth=0").startswith("1 and 0: 109°")


def test_a_run_without_angles_says_so(tmp_path: Path, opened: Open) -> None:
    run = made_run(tmp_path / "a", rounds=5, devices=2)
    records = [json.loads(line) for line in lines(5, 2, 10)]
    with (run / "records.jsonl").open("w") as file:
        for record in records:
            kept = {key: value for key, value in record.items() if key not in ("angles", "selection")}
            file.write(json.dumps(kept) + "\n")
    with served(run) as address:
        page = opened(f"{address}#view=angles")
        page.wait_for_selector("text=does not measure the angles")
        page.click("role=tab[name='Devices']")
        page.wait_for_selector("text=This method measures no angles")


def test_a_thousand_devices_are_a_few_rows_that_scroll(tmp_path: Path, opened: Open) -> None:
    run = made_run(tmp_path / "a", rounds=3, devices=1000)
    with served(run) as address:
        until_read(address, 3)
        page = opened(f"{address}#view=devices")
        page.wait_for_selector(".viewport .device-row")
        assert page.locator(".viewport .device-row").count() < 40
        page.evaluate("document.querySelector('.viewport').scrollTop = 1e9")
        page.wait_for_selector(".viewport .device-row:has-text('999')")
        assert page.locator(".viewport .device-row").count() < 40
        page.fill("input[type=search]", "77")
        page.wait_for_selector(".viewport .device-row >> nth=0 >> text=77")
        assert page.locator(".viewport .device-row").count() <= 19
        page.focus(".viewport")
        page.keyboard.press("ArrowDown")
        page.wait_for_selector("h2:has-text('Device 77')")
        page.keyboard.press("ArrowDown")
        page.wait_for_selector("h2:has-text('Device 177')")


def test_how_long_a_device_takes_is_seen_and_who_is_slow(tmp_path: Path, opened: Open) -> None:
    run = made_run(tmp_path / "a", rounds=3, devices=4)
    spent = {"forward": {0: 0.1, 1: 0.1, 2: 0.1, 3: 0.2}, "backward": dict.fromkeys(range(4), 0.2),
             "server": dict.fromkeys(range(4), 0.1), "waiting": {0: 0, 1: 0, 2: 0, 3: 9}}  # fmt: skip
    made = [json.loads(line) | {"device_seconds": spent} for line in lines(3, 4, 10)]
    (run / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in made))
    with served(run) as address:
        page = opened(f"{address}#view=devices")
        page.wait_for_selector(".viewport .device-row")
        assert page.locator(".time").all_inner_texts() == ["400 ms", "400 ms", "400 ms", "9.5 s"]
        assert page.locator(".time.slow").all_inner_texts() == ["9.5 s"]
        page.click("role=button[name='time per round']")
        page.click(".viewport .device-row >> nth=0")
        page.wait_for_selector("h2:has-text('Device 3')")
        assert re.search(r"9\.5 s: more than 2 .*device 400 ms.*waiting 9 s", page.inner_text(".detail"))


def test_a_comparison_is_drawn_with_its_table_and_differences(opened: Open) -> None:
    with served(FIXTURES / "comparison") as address:
        page = opened(address)
        page.wait_for_selector("h2:has-text('Differences')")
        page.wait_for_selector(".forest")
        assert canvases(page)[0] > 3
        assert page.locator("table tbody tr").count() == 2
        page.select_option("select[aria-label='baseline']", "1")
        assert "PSL" in page.inner_text(".forest")
        page.click("role=tab[name='Curves']")
        page.select_option("select[aria-label='run']", "1")
        page.wait_for_selector("text=Time per round")
        assert "run=1" in page.url


def test_a_fleet_shows_its_links(opened: Open) -> None:
    with served(FIXTURES / "network") as address:
        page = opened(f"{address}#view=fleet")
        page.wait_for_selector("h2:has-text('Links')")
        assert page.locator("table tbody tr").count() == 3


def test_views_are_reached_with_the_keyboard(tmp_path: Path, opened: Open) -> None:
    run = made_run(tmp_path / "a", rounds=5, devices=2)
    with served(run) as address:
        page = opened(address)
        page.wait_for_selector("role=tab[name='Curves'][selected=true]")
        page.focus("role=tab[name='Curves']")
        for name in ("Devices", "Angles", "About", "Curves"):
            page.keyboard.press("ArrowRight")
            page.wait_for_selector(f"role=tab[name='{name}'][selected=true]")
            page.wait_for_function("name => document.activeElement.textContent === name", arg=name)


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
def test_it_fits_a_phone_in_both_schemes(tmp_path: Path, opened: Open, scheme: str) -> None:
    run = made_run(tmp_path / "a", rounds=12, devices=12)
    with served(run) as address:
        until_read(address, 12)
        for view in ("curves", "devices", "angles", "about"):
            page = opened(f"{address}#view={view}", width=360, scheme=scheme)
            page.wait_for_selector(".card, .devices, canvas")
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
            assert page.evaluate("document.documentElement.dataset.theme") == scheme
        page.click("#theme")
        assert page.evaluate("document.documentElement.dataset.theme") != scheme


def test_names_from_elsewhere_are_text(tmp_path: Path, opened: Open) -> None:
    run = made_run(tmp_path / "a", rounds=2, devices=2, label="<img src=x onerror=alert(1)></script>")
    with served(run) as address:
        page = opened(address)
        page.wait_for_selector("h1:has-text('<img src=x')")
        assert page.locator("img").count() == 0
    write_report([run], tmp_path / "report.html")
    page = opened(f"file://{tmp_path}/report.html")
    page.wait_for_selector("h1:has-text('<img src=x')")
    assert page.locator("img").count() == 0


def test_a_report_is_one_file_with_everything_in_it(tmp_path: Path, opened: Open) -> None:
    out = tmp_path / "somewhere" / "report.html"
    write_report([FIXTURES / "comparison", FIXTURES / "finished"], out)
    page = opened(f"file://{out}")
    page.wait_for_selector("h2:has-text('Differences')")
    assert canvases(page)[0] > 3
    page.click("role=tab[name='Curves']")
    page.wait_for_selector("text=Time per round")
    assert min(canvases(page)) > 2
    page.select_option("select[aria-label='run']", "2")
    page.click("role=tab[name='Angles']")
    page.wait_for_selector("input[type=range]").fill("1")
    page.wait_for_selector("output:has-text('round 2')")
    page.click("role=tab[name='About']")
    page.wait_for_selector("text=Compare the weights")
    assert "gapsl train --config" in page.inner_text("main")
    assert "http" not in page.content().replace("http-equiv", "").replace("http://www.w3.org", "").replace(
        "https://github.com/leeoniya/uPlot", ""
    )
