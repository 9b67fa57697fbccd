"""How Sphinx builds these pages: `make docs`.

The pages are plain Markdown that reads well in the repository, too. Links between its files work in both
places: `at_home` turns those to files that have a page here into links to that page.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(DOCS), str(ROOT / "src")]

from commands import commands  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

import gapsl  # noqa: E402

project = "gapsl"
author = copyright = "The gapsl authors"
version = release = gapsl.__version__
html_title = f"gapsl {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
smartquotes = False  # "--rounds" is an option, not a dash
nitpicky = True
# Types of torch, numpy, typing and of our own rooms have no page here; functions that are named do.
nitpick_ignore_regex = [("py:(class|obj|data)", ".*")]

default_role = "code"  # docstrings write `code` as Markdown does
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 88

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["gapsl.css"]
html_copy_source = html_show_sourcelink = False
html_theme_options = {"light_css_variables": {"font-stack--monospace": "ui-monospace, monospace"}}

# Files of the repository, and where the site shows them.
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "src/gapsl/network/protocol/wire.proto": "protocol.md",
    **{
        f"examples/{path.name}": f"examples.md#{path.stem}"
        for path in sorted((ROOT / "examples").glob("*.py"))
    },
}


def at_home(text: str, folder: Path) -> str:
    """Return the text of a file in this folder with its links as they are seen from a page of the site."""

    def link(found: re.Match[str]) -> str:
        target, anchor = found["target"], found["anchor"] or ""
        path = Path(os.path.normpath(folder / target))
        if path.is_relative_to(ROOT) and (page := PAGES.get(str(path.relative_to(ROOT)))):
            return f"]({page}{anchor})"
        return f"]({os.path.relpath(path, DOCS)}{anchor})"

    return re.sub(r"\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)", link, text)


def read_page(app: Sphinx, name: str, source: list[str]) -> None:
    """Fill in the commands, and send links to where they lead here."""
    text = source[0].replace("<!-- the commands -->", commands()) if name == "cli" else source[0]
    source[0] = at_home(text, DOCS)


def read_included(app: Sphinx, path: Path, parent: str, source: list[str]) -> None:
    """Send the links of a file that a page includes to where they lead here."""
    source[0] = at_home(source[0], (DOCS / path).resolve().parent)


def without_fields(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: Any, returns: Any
) -> Any:
    """Leave the arguments of a class away: nobody makes these by hand, and docs/files.md has the fields."""
    return ("", None) if what == "class" else None


def setup(app: Sphinx) -> None:
    """Connect the above."""
    app.connect("source-read", read_page)
    app.connect("include-read", read_included)
    app.connect("autodoc-process-signature", without_fields)
