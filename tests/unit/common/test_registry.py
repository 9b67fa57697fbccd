"""An unknown name: the nearest is suggested, and what there is, as far as anybody would read it."""

from __future__ import annotations

from gapsl.common.registry import MANY, nearest

FEW = ["gapsl", "psl", "sfl"]
ALL = [f"setting-{number}" for number in range(MANY)] + ["rounds"]


def test_few_names_are_all_told() -> None:
    assert nearest("plss", FEW) == "did you mean 'psl'? known: gapsl, psl, sfl"
    assert nearest("xyz", FEW) == "known: gapsl, psl, sfl"


def test_of_many_the_nearest_is_enough() -> None:
    assert nearest("rouns", ALL) == "did you mean 'rounds'?"
    assert nearest("xyz", ALL) == f"known: {', '.join(sorted(ALL))}"
