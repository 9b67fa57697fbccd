"""One HTML file with everything in it: the page's own code and styles, and the answers it would ask for."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from pathlib import Path

from gapsl.common.errors import InputError
from gapsl.common.files import unwritable, write_text
from gapsl.dashboard import answers
from gapsl.dashboard.comparison import comparison
from gapsl.dashboard.downsample import Answer, thinned
from gapsl.dashboard.fleet import fleet
from gapsl.dashboard.watch import Watch

STATIC = Path(__file__).parent / "static"
MATRICES = 1 << 20  # bytes of angles that a report may have, of all runs together
FRAMES = 60  # rounds of a run whose angles a report has, at most
IMPORT = re.compile(r'^import .*? from "\./(\w+)\.js";\n', re.MULTILINE)
CODE_FILES = (
    "dom", "source", "charts", "curves", "devices", "angles", "compare", "fleet", "about", "main",
)  # fmt: skip


def write_report(folders: list[Path], out: Path, *, data_dir: str | None = None) -> list[str]:
    """Write the report of all runs in some folders; returns what of them could not be read."""
    watch = Watch(folders, data_dir=data_dir)
    watch.read_all()
    if out.is_dir():
        raise InputError(f"{out} is a folder; name a file, like {out / 'report.html'}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, page(gathered(watch)))
    except OSError as error:
        raise unwritable(out, error, "--out") from None
    troubled = (f"{run.folder.path}: {run.trouble}" for run in watch.runs if run.trouble)
    return [*watch.refused.values(), *troubled]


def gathered(watch: Watch) -> Answer:
    """Return the answers by the addresses the page asks."""
    found: Answer = {"api/overview": answers.overview(watch)}
    if len(watch.runs) > 1:
        found["api/compare"] = comparison(watch)
    for run in watch.runs:
        place = f"api/runs/{run.number}"
        for name, answer in (
            ("curves", answers.curves),
            ("devices", answers.devices),
            ("fleet", fleet),
            ("about", answers.about),
        ):
            found[f"{place}/{name}"] = answer(run)
        newest = answers.angles(run)
        room = MATRICES // len(watch.runs) // max(1, len(newest.get("names", ())) ** 2)
        rounds = thinned(newest["rounds"], max(1, min(FRAMES, room))).tolist()
        if newest["rounds"] and newest["round"] not in rounds:
            rounds = [newest["round"]]
        found[f"{place}/angles"] = newest | {"rounds": rounds}
        for round in rounds:
            found[f"{place}/angles?round={round}"] = answers.angles(run, round) | {"rounds": rounds}
    return found


def page(found: Answer) -> str:
    """Return the report's HTML: no other file, no other host."""
    styles = [(STATIC / name).read_text(encoding="utf-8") for name in ("vendor/uPlot.min.css", "style.css")]
    library, licence = (
        (STATIC / "vendor" / name).read_text(encoding="utf-8") for name in ("uPlot.iife.min.js", "LICENSE")
    )
    scripts = [f"/*\n{licence}*/\n{library}", joined_modules()]
    data = answers.as_text(found).replace("<", "\\u003c")  # nothing in it ends the script
    allowed = " ".join(f"'sha256-{digest(script)}'" for script in scripts)
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:"
    title = html.escape(f"gapsl report: {found['api/overview']['title']}")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n"
        + "".join(f"<style>{style}</style>\n" for style in styles)
        + '</head>\n<body class="report">\n<div id="app"></div>\n'
        + f'<script type="application/json" id="answers">{data}</script>\n'
        + "".join(f"<script>{script}</script>\n" for script in scripts)
        + "</body>\n</html>\n"
    )


def joined_modules() -> str:
    """Return the page's modules as one script: they import each other by name alone, and no name twice."""
    parts = []
    for name in CODE_FILES:
        text = (STATIC / f"{name}.js").read_text(encoding="utf-8")
        parts.append(re.sub(r"^export ", "", IMPORT.sub("", text), flags=re.MULTILINE))
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "\n})();\n"


def digest(script: str) -> str:
    """Return what a content security policy knows a script by."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
