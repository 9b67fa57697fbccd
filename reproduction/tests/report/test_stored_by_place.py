"""Evidence: results by their place, all seeds of it, and only what is settled and finished."""

from __future__ import annotations

from gapsl_reproduction.catalogue import LINES, SCALES
from gapsl_reproduction.planned import planned
from gapsl_reproduction.report.evidence import Place
from gapsl_reproduction.report.measures import accuracy, by_seed
from made_up import Made, result_of

REDUCED = SCALES["reduced"]
GAPSL = Place("gapsl")


def half(point: object) -> float:
    return 0.5


def test_all_seeds_of_a_place_count_whoever_asked_for_them() -> None:
    made = Made(REDUCED).fill(half, "psl-vs-sfl", "table1")
    evidence = made.evidence()
    assert list(evidence.runs(Place("psl"))) == [0, 1, 2], "psl-vs-sfl alone asks for one"
    assert list(evidence.runs(Place("sfl"))) == [0, 1, 2, 3, 4]
    assert list(evidence.runs(Place("psl", "cifar100"))) == [0]
    assert evidence.runs(Place("psl", sweep="alpha", at="0.9")) == {}
    assert evidence.wanted(Place("psl", sweep="alpha", at="0.9"))
    assert not evidence.wanted(Place("psl", sweep="alpha", at="0.5")), "not at this scale"


def test_a_run_whose_rates_are_not_chosen_is_not_shown() -> None:
    made = Made(REDUCED).fill(half, "psl-vs-sfl")
    searched = next(p for p in made.points("psl-vs-sfl") if p.searching and p.line == "psl")
    made.results.pop(searched.run.key)
    evidence = made.evidence()
    assert evidence.runs(Place("psl")) == {}
    assert list(evidence.runs(Place("sfl"))) == [0]


def test_failed_runs_are_kept_apart() -> None:
    made = Made(REDUCED).fill(half, "cost")
    point = next(p for p in made.points("cost") if p.line == "psl" and p.seed == 1)
    result = result_of(point, 0.5)
    del result["final"]
    made.results[point.run.key] = {**result, "failed": "no finite gradient"}
    evidence = made.evidence()
    place = Place("psl", partition=point.partition)
    assert list(evidence.runs(place)) == [0, 2]
    assert {seed: run["failed"] for seed, run in evidence.failed(place).items()} == {1: "no finite gradient"}
    assert evidence.restricted([0]).failed(place) == {}


def test_pairing_leaves_the_seeds_that_all_have_which_have_any() -> None:
    made = Made(REDUCED).fill(half, "table1", "selection-ratio")
    evidence = made.evidence()
    fixed = Place("gapsl", sweep="ratio", at="0.4")
    nowhere = Place("gapsl", sweep="threshold", at="80")
    paired = evidence.paired([GAPSL, fixed, nowhere])
    assert list(by_seed(paired.runs(GAPSL), accuracy)) == [0]
    assert len(evidence.runs(GAPSL)) >= 3, "the evidence itself is as it was"


def test_a_sweep_over_alpha_ends_with_the_tables_non_iid() -> None:
    evidence = Made(REDUCED).evidence()
    assert list(evidence.over_alpha("psl")) == [0.9, 0.3, 0.1]
    assert evidence.over_alpha("psl")[0.1] == Place("psl")


def test_all_lines_of_the_catalogue_differ() -> None:
    """Two names for one thing would be shown as two."""
    workload = REDUCED.workloads["cifar10"].settings
    keys: dict[str, str] = {}
    for name, line in LINES.items():
        key = planned(workload, line.settings).key
        assert key not in keys, f"{name} is {keys[key]}"
        keys[key] = name
