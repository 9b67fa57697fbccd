"""`gapsl reproduce --report-only`: from what is there, and what is said of what is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gapsl_reproduction.cli import page_of
from gapsl_reproduction.scales import SMOKE, STANDARD
from gapsl_reproduction.store import Store
from made_up import Made
from typer.testing import CliRunner

from gapsl.cli.main import app


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A folder with the results of a few runs."""
    monkeypatch.chdir(tmp_path)
    store = Store(Path("results") / "smoke")
    for result in Made(SMOKE).fill(lambda cell: 40.0, "selection-ratio").results.values():
        store.put(result)
    return store


def run(*args: str, code: int = 0) -> str:
    ended = CliRunner().invoke(app, ["reproduce", "--scale", "smoke", *args])
    assert ended.exit_code == code, ended.output
    return " ".join(ended.output.split())


def test_a_report_is_made_of_what_is_there_and_nothing_is_run(stored: Store) -> None:
    before = sorted(path.name for path in stored.runs.iterdir())
    assert "wrote results/smoke/results.md and 3 figures from 4 runs" in run("--report-only")
    assert sorted(path.name for path in stored.runs.iterdir()) == before
    assert not Path("runs").exists()
    text = Path("results/smoke/results.md").read_text("utf-8")
    assert "](figures/curves.png)" in text and Path("results/smoke/figures/curves.png").is_file()


def test_a_page_elsewhere_links_to_the_same_figures(stored: Store) -> None:
    run("--report-only", "--page", "a/b/page.md", "--quiet")
    text = Path("a/b/page.md").read_text("utf-8")
    assert "](../../results/smoke/figures/curves.png)" in text and "(page-appendix.md)" in text
    assert Path("a/b/page-appendix.md").is_file()


def test_an_empty_folder_is_told_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = run("--report-only")
    assert "results/smoke/runs has no finished run; gapsl reproduce core --scale smoke does them" in told
    assert list(tmp_path.iterdir()) == []
    Path("docs").mkdir()
    run("--report-only", "--page", "docs/page.md")
    assert "No run is there yet." in Path("docs/page.md").read_text("utf-8")


def test_results_of_another_version_or_scale_are_named_and_not_shown(stored: Store) -> None:
    for result in list(Made(STANDARD).fill(lambda cell: 99.0, "protocol").results.values())[:1]:
        stored.put(result)
        key = result["key"]
    old, *_ = (path for path in sorted(stored.runs.iterdir()) if path.stem != key)
    old.write_text(old.read_text("utf-8").replace('"schema": 1', '"schema": 0'), "utf-8")
    told = run("--report-only")
    assert "1 results in results/smoke/runs are of no run that smoke plans" in told and f"{key}.json" in told
    assert f"{old.name} has schema 0, this gapsl reads 1" in told
    assert old.is_file() and stored.path(key).is_file(), "nothing is lost"
    assert "99.0" not in Path("results/smoke/results.md").read_text("utf-8")


def test_without_matplotlib_there_is_a_page_and_a_warning(
    stored: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "without figures" in run("--report-only")
    assert "![" not in Path("results/smoke/results.md").read_text("utf-8")


def test_a_file_where_a_folder_belongs_is_named(stored: Store) -> None:
    Path("file").write_text("", encoding="utf-8")
    assert "--work file is a file; name a folder" in run("table1", "--work", "file", code=2)
    assert "choose another --results" in run("table1", "--results", "file", code=2)
    assert "choose another --page" in run("--report-only", "--page", "file/page.md", code=2)


def test_the_page_of_the_committed_results_is_in_docs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    beside = Path("results/standard/results.md")
    assert page_of(STANDARD, Path("results"), usual=True) == beside, "no checkout"
    Path("docs").mkdir()
    Path("pyproject.toml").write_text("", encoding="utf-8")
    assert page_of(STANDARD, Path("results"), usual=True) == Path("docs/results.md")
    assert page_of(STANDARD, Path("results"), usual=False) == beside, "other numbers of seeds"
    assert page_of(SMOKE, Path("results"), usual=True) == Path("results/smoke/results.md")
    assert page_of(STANDARD, tmp_path / "elsewhere", usual=True) == tmp_path / "elsewhere/standard/results.md"
