"""The documentation builds as a site without a warning, and nothing in it leads nowhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from snippets import ROOT, inline

import gapsl
from gapsl.cli.main import COMMANDS

LINKS = re.compile(r"\]\(([^)\s]+)\)")


class Page(HTMLParser):
    """What a built page links to, loads and can be linked at."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given["id"]} if "id" in given else set()
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif found := given.get("src") or (tag == "link" and given.get("href")):
            self.loads.append(str(found))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    order = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", f"{folder}/read"]
    # A page that no toctree has, a link to no page and a reference to no name are warnings.
    done = subprocess.run(
        [*order, str(ROOT / "docs"), f"{folder}/html"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.glob("*.html"))}


def test_every_page_is_built(pages: dict[Path, Page]) -> None:
    built = {path.stem for path in pages}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} <= built


def test_every_link_leads_to_a_page_and_a_place_in_it(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for link in (link for link in page.links if not re.match(r"\w+:", link)):
            address, anchor = urldefrag(link)
            target = (path.parent / unquote(address)).resolve() if address else path
            assert target.exists(), f"{path.name} links to {link}"
            if anchor and target in pages:
                assert unquote(anchor) in pages[target].anchors, f"{path.name} links to {link}"


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for source in page.loads:
            assert not re.match(r"\w+:|//", source) or source.startswith("data:"), f"{path.name}: {source}"
            target = (path.parent / unquote(source.partition("?")[0].partition("#")[0])).resolve()
            assert target.exists(), f"{path.name} loads {source}"


def test_the_reference_has_every_public_name(site: Path, pages: dict[Path, Page]) -> None:
    assert {f"gapsl.{name}" for name in gapsl.__all__} <= pages[site / "api.html"].anchors


def test_the_reference_has_every_command(site: Path, pages: dict[Path, Page]) -> None:
    anchors = pages[site / "cli.html"].anchors
    assert {f"gapsl-{name}" for name in (*COMMANDS, "certs-device", "fleet-up", "data-show")} <= anchors


def slugs(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")], ids=str
)
def test_links_work_in_the_repository_too(page: Path) -> None:
    for link in LINKS.findall(page.read_text(encoding="utf-8")):
        address, anchor = urldefrag(link)
        if re.match(r"\w+:", link) or any(f"]({link})" in code for code in inline(page)):
            continue
        target = page.parent / address if address else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in slugs(target), f"{page.name} links to {link}"
