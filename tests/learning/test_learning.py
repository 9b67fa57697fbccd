"""Learning itself: every method's trajectory on digits stays within a narrow band of its reference."""

import json

import pytest
import record

# `make test` has the methods; what is one method with another setting is in `make test-all`.
QUICK = {f"float64/{method}" for method in record.SHIPPED if "/" not in method}
QUICK |= {"default/gapsl", "float64/gapsl exact", "float64/psl meeting"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in record.CASES]
)
def test_a_run_stays_within_its_band(name):
    far = record.deviations(
        name, record.summarise(*record.run(record.CASES[name])), record.references()[name]
    )
    assert {statistic: bands for statistic, bands in far.items() if bands > 1} == {}


def test_with_sketches_a_run_stays_within_its_band():
    name = "float64/gapsl exact"
    found = record.summarise(*record.run({**record.CASES[name], "gradient_rows": "sketch"}))
    assert max(record.deviations(name, found, record.references()[name]).values()) <= 1


def test_every_method_has_a_reference_made_with_the_settings_that_are_run():
    stored = json.loads(record.REFERENCES.read_text(encoding="utf-8"))
    assert set(stored["runs"]) >= {f"float64/{method}" for method in record.SHIPPED}
    assert {name: entry["settings"] for name, entry in stored["runs"].items()} == record.CASES
    assert stored["made_with"]["commit"]


def test_exact_and_finite_penalties_learn_the_same():
    stored = record.references()
    for suffix in ("", " dropout"):
        exact, finite = stored[f"float64/gapsl exact{suffix}"], stored[f"float64/gapsl finite{suffix}"]
        far = record.deviations("float64/", finite, exact)
        assert max(far.values()) < 0.1
