"""All findings together: their order, what is left out, and how they are printed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from constructed import ONE_CLASS_EACH, aligned, changed, evaluated, healthy, with_accuracy
from rich.cells import cell_len

from gapsl.analysis.diagnose import Run, Severity, diagnose, things_to_try
from gapsl.analysis.diagnose.display import compared, machine_readable, whole
from gapsl.common.files import plain


def sick() -> Run:
    """A run of GAPSL with much to say about."""
    run = aligned(lambda r: {r % 3}, ONE_CLASS_EACH)
    return evaluated(
        run,
        lambda e: {
            "device_accuracy": {0: 0.6, 1: 0.6, 2: 0.6, 3: 0.2},
            "device_mean": 0.5,
            "ensemble": 0.8,
            "local": 0.95,
            "class_accuracy": (0.7, 0.7, 0.6, 0.0),
        },
    )


def broken() -> Run:
    """The same, with gradients that exploded, and nothing learned."""
    return changed(
        with_accuracy(sick(), [0.26] * 8), lambda r: {"norms": dict.fromkeys(range(4), 10.0**r.round)}
    )


def printed(run: Run, width: int = 80) -> list[str]:
    return [line.plain for line in whole(run, diagnose(run), Path("runs/a"), width)]


def test_a_healthy_run_has_nothing_that_asks_for_anything() -> None:
    assert diagnose(healthy()) == []
    assert printed(healthy())[0] == "healthy"
    assert len(printed(healthy())) == 2, "what was run, and not a word more"
    assert printed(replace(healthy(), finished=False))[0] == "healthy so far"


@pytest.mark.parametrize("method", ["psl", "gapsl", "sfl", "frozen"])
def test_a_run_that_learns_is_healthy_whatever_its_loss_gradients_angles_and_labels_are(method: str) -> None:
    run = with_accuracy(healthy(ONE_CLASS_EACH, method=method), [0.3 + 0.05 * i for i in range(8)])
    run = changed(
        run,
        lambda r: {
            "loss": 2.0 + r.round / 10,
            "norms": dict.fromkeys(range(4), 10.0 ** (r.round / 5)),
            "angle_mean": 1.7,
        },
    )
    assert [finding.name for finding in diagnose(run)] == ["label-skew", "still-rising"]
    assert printed(run)[0] == "healthy"
    assert "What to try, one at a time" not in printed(run)


def test_the_worst_comes_first_and_every_finding_has_evidence_and_advice() -> None:
    findings = diagnose(sick())
    severities = [finding.severity for finding in findings]
    assert severities == sorted(severities, reverse=True)
    names = [finding.name for finding in findings]
    assert len(set(names)) == len(names)
    assert {"drift", "worst-device", "exclusion", "label-skew"} <= set(names)
    for finding in findings:
        assert finding.numbers, finding.name
        assert finding.text.endswith("."), finding.name
        assert finding.advice or finding.severity == Severity.INFO, finding.name


def test_advice_is_collected_once_and_ranked_by_how_much_it_would_mend() -> None:
    tried = [advice.name for advice in things_to_try(diagnose(sick()))]
    assert len(set(tried)) == len(tried)
    assert tried[0] == "preset recommended"
    assert {"gapsl.eta=0", "gapsl.exclusion=none"} < set(tried)


def test_no_rate_is_advised_both_ways_and_the_worse_finding_decides() -> None:
    stuck = changed(
        with_accuracy(sick(), [0.27] * 8), lambda r: {"loss": 2.0, "losses": dict.fromkeys(range(4), 2.0)}
    )
    stuck = evaluated(stuck, lambda e: {"ensemble": 0.8})
    findings = diagnose(stuck)
    assert {"loss-stuck", "drift"} <= {finding.name for finding in findings}
    rates = {s for f in findings for a in f.advice for s in a.settings if s.startswith("device_optimizer.lr")}
    assert rates == {"device_optimizer.lr=1"}, "steps are too small"


@pytest.mark.parametrize("change", [0.0, 0.01, 0.02])
def test_a_loss_that_does_not_fall_is_never_told_beside_rising_accuracy(change: float) -> None:
    curve = [0.4 + change * i for i in range(8)]
    run = changed(with_accuracy(healthy(), curve), lambda r: {"loss": 2.0 + 0.05 * r.round})
    names = {finding.name for finding in diagnose(run)}
    assert not names & {"loss-stuck", "loss-rising"}, "accuracy is good, or rises"
    assert ("still-rising" in names) == (change > 0)


def test_where_numbers_ran_away_only_that_asks_for_something() -> None:
    serious = [finding.name for finding in diagnose(broken()) if finding.severity > Severity.INFO]
    assert serious == ["exploding-gradients"]
    text = "\n".join(printed(broken()))
    assert "Not examined: what else there is to see, which follows from these numbers." in text


@pytest.mark.parametrize("width", [80, 120, 60])
@pytest.mark.parametrize("run", [healthy(), sick(), broken()], ids=["healthy", "sick", "broken"])
def test_lines_fit_the_terminal_and_80_columns(run: Run, width: int) -> None:
    lines = printed(run, width)
    assert max(cell_len(line) for line in lines) <= min(width, 80)
    assert not any(line.lstrip().startswith("%") for line in lines)


def test_the_summary_line_counts() -> None:
    assert printed(sick())[0] == "3 things to look at (3 trouble)"
    worse = evaluated(sick(), lambda e: {"device_accuracy": {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.3}})
    assert printed(worse)[0] == "3 things to look at (2 trouble, 1 to watch)"


def sentences(**runs: Run) -> list[str]:
    """What is said of several runs, a sentence each."""
    lines = [line.plain for line in compared({n: (run, diagnose(run)) for n, run in runs.items()}, 80)]
    assert max(cell_len(line) for line in lines) <= 80
    return " ".join(lines).replace(". ", ".\n").replace("  ", "").replace("  ", " ").splitlines()


def test_several_runs_get_a_sentence_each_with_how_far_they_are_from_the_best_of_their_seed() -> None:
    other = healthy(seed=1)
    half = replace(with_accuracy(healthy(), [0.6] * 8), finished=False, total_rounds=100)
    said = [" ".join(line.split()) for line in sentences(good=healthy(), ill=sick(), half=half, other=other)]
    assert said[0] == "good: 40 rounds, accuracy 90 %, the best of its seed; healthy."
    assert said[1].startswith("ill: 40 rounds, accuracy 50 %, 40 points below good; trouble: ")
    assert said[1].endswith(" more.")
    assert said[2] == (
        "half: round 40 of 100, not finished, accuracy 60 %, 30 points below good; healthy so far."
    )
    assert said[3] == "other: 40 rounds, accuracy 90 %; healthy.", "nothing to compare it with"


def test_runs_that_are_level_are_not_nothing_below_each_other() -> None:
    said = " ".join(sentences(a=healthy(), b=healthy()))
    assert "as good as a" in said and "0 points" not in said


def test_runs_of_other_data_are_not_compared() -> None:
    said = sentences(a=healthy(), b=with_accuracy(healthy(partition="dirichlet:0.1"), [0.5] * 8))
    assert "below" not in " ".join(said) and "best" not in " ".join(said)


def test_runs_with_fewer_samples_another_test_or_data_of_their_own_are_not_compared() -> None:
    one = healthy()
    other = evaluated(healthy(), lambda found: {"split": "validation"})
    for two in (healthy(test_samples=50), healthy(train_samples=50), other):
        assert not any("best of" in line or "below" in line for line in sentences(one=one, two=two))
    cameras, phones = (
        replace(healthy(partition="own data"), names=(f"{name}-1", f"{name}-2")) for name in ("cam", "phone")
    )
    assert not any("best of" in line for line in sentences(cameras=cameras, phones=phones))


def test_programs_get_the_same_as_strict_json() -> None:
    described = plain(machine_readable(sick(), diagnose(sick()), Path("runs/a")))
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    assert (described["run"], described["healthy"], described["finished"]) == ("runs/a", False, True)
    first = described["findings"][0]
    assert set(first) == {"name", "severity", "title", "text", "numbers", "advice"}
    assert first["severity"] == "trouble"


def test_runs_from_python_are_told_how_to_follow_advice_there() -> None:
    run = replace(sick(), settings={**sick().settings, "custom": {"dataset": "tuple"}})
    lines = printed(run)
    assert any(line.startswith("for example: gapsl.train(..., method='psl', ") for line in lines)
