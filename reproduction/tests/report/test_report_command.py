"""`gapsl reproduce --report-only`, and where the page belongs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gapsl_reproduction.catalogue import SCALES
from gapsl_reproduction.cli import page_of
from gapsl_reproduction.report import write
from gapsl_reproduction.store import Store
from made_up import Made
from typer.testing import CliRunner

from gapsl.cli.main import app

SMOKE = SCALES["smoke"]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the results of a few runs."""
    monkeypatch.chdir(tmp_path)
    made = Made(SMOKE).fill(lambda point: 0.4, "single-device")
    made.drop(lambda point: point.at == "3")
    store = Store(Path("results") / "smoke")
    for result in made.results.values():
        store.put(result)
    return tmp_path


def run(*args: str) -> str:
    ended = CliRunner().invoke(app, ["reproduce", "--scale", "smoke", *args])
    assert ended.exit_code == 0, ended.output
    return ended.output


def test_a_report_is_made_of_what_is_there_and_nothing_is_run(stored: Path) -> None:
    before = sorted(path.name for path in (stored / "results" / "smoke" / "runs").iterdir())
    told = run("--report-only")
    assert "wrote results/smoke/results.md and" in told
    assert sorted(path.name for path in (stored / "results" / "smoke" / "runs").iterdir()) == before
    assert not (stored / "runs").exists()
    text = Path("results/smoke/results.md").read_text("utf-8")
    assert "](figures/single-device.png)" in text
    assert Path("results/smoke/figures/single-device.png").is_file()
    assert Path("results/smoke/figures/single-device.svg").is_file()
    assert "readings.png" not in text and not Path("results/smoke/figures/readings.png").exists()


def test_a_page_elsewhere_links_to_the_same_figures(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "draw_figures", lambda evidence, folder: 1)
    run("--report-only", "--page", "a/b/page.md", "--quiet")
    assert "](../../results/smoke/figures/single-device.png)" in Path("a/b/page.md").read_text("utf-8")


def test_without_matplotlib_there_is_a_page_and_a_warning(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    told = run("--report-only")
    assert "without figures" in told and "gapsl[plots]" in told
    assert "![" not in Path("results/smoke/results.md").read_text("utf-8")


def test_the_page_of_the_committed_results_is_in_docs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    beside = Path("results/reduced/results.md")
    reduced = SCALES["reduced"]
    assert page_of(reduced, Path("results"), usual=True) == beside, "no checkout"
    Path("docs").mkdir()
    Path("pyproject.toml").write_text("", encoding="utf-8")
    assert page_of(reduced, Path("results"), usual=True) == Path("docs/results.md")
    assert page_of(reduced, Path("results"), usual=False) == beside, "other numbers of seeds"
    assert page_of(SMOKE, Path("results"), usual=True) == Path("results/smoke/results.md")
    elsewhere = tmp_path / "elsewhere"
    assert page_of(reduced, elsewhere, usual=True) == elsewhere / "reduced" / "results.md"
