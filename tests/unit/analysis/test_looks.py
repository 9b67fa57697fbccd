"""A method looks the same in every figure, whatever else is in it."""

from __future__ import annotations

from gapsl.analysis.looks import COLOURS, LOOKS, looks_of
from gapsl.methods.registry import METHODS


def test_a_known_method_has_its_own_colour_wherever_it_stands() -> None:
    assert len({look.colour for look in LOOKS.values()}) == len(LOOKS) == len(COLOURS)
    assert looks_of(["psl", "gapsl"])["gapsl"] is looks_of(["gapsl"])["gapsl"] is LOOKS["gapsl"]
    assert all(name in METHODS or name == "recommended" for name in LOOKS)


def test_others_get_what_is_left_and_no_colour_of_a_method_beside_them() -> None:
    found = looks_of(["gapsl", "mine", "psl", "yours"])
    assert found["mine"].name == "mine"
    assert len({look.colour for look in found.values()}) == 4
    many = looks_of([*LOOKS, "mine"])
    assert many["mine"].colour not in COLOURS
    assert len(looks_of([f"run {i}" for i in range(20)])) == 20
