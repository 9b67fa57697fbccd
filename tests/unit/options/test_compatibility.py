"""Which option goes with which method: the table says what the rules do, and the docs have it."""

from pathlib import Path

import pytest
from quick import prepared

from gapsl.common.errors import InputError
from gapsl.methods.registry import METHODS
from gapsl.options.compatibility import LEGEND, TABLE, goes_with, table_markdown

DOCS = Path(__file__).parents[3] / "docs" / "methods.md"
OWN = [name for name, method in METHODS.items() if method.__module__.startswith("gapsl.")]
ASKED = {
    "labels=device": {"labels": "device", "gapsl": {"penalty": "none"}},
    "calibration": {"calibration": "prior", "calibration_for": "devices"},
    "balance": {"balance": "classes"},
    "probes": {"probes": 1},
    "faults": {"faults": "noise:1"},
}
OFF = {"calibration": "none", "balance": "none", "probes": 0}  # papsl has them on


@pytest.mark.parametrize("method", OWN)
def test_the_table_says_what_a_run_does(method):
    found = goes_with(METHODS[method])
    assert tuple(found) == TABLE
    assert set(found.values()) <= {"yes", "no", *LEGEND}
    for option, settings in ASKED.items():
        words = {**OFF, **settings}
        if found[option] == "no" or (found[option] == "both" and method != "frozen"):
            with pytest.raises(InputError, match=r"(set|leave out) "):
                prepared(method=method, **words)
        else:
            prepared(method=method, **words)


def test_the_docs_have_the_table():
    assert table_markdown() in DOCS.read_text(encoding="utf-8")
