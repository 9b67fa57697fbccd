"""Claims and their verdicts, on results made to hold, to hold in part, not to hold, or to be missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from gapsl_reproduction.catalogue import SCALES, Point
from gapsl_reproduction.report.claims import (
    CLAIMS,
    CONVERGED,
    FOR_ITS_BYTES,
    GOALS,
    LONGER,
    QUESTIONS,
    Claim,
    Judgement,
    Part,
    State,
    Verdict,
    judge,
)
from gapsl_reproduction.report.claims.comparing import signed, told
from gapsl_reproduction.report.claims.goals import ALIGNED
from gapsl_reproduction.report.evidence import Evidence, Place
from gapsl_reproduction.report.faulty import ends
from gapsl_reproduction.report.measures import faulty_devices
from made_up import Made

REDUCED = SCALES["reduced"]
NAMED = {c.name: c for c in (*CLAIMS, *GOALS, *QUESTIONS, CONVERGED, LONGER, FOR_ITS_BYTES)}
HOLDS, PART, NOT, MISSING = Verdict.HOLDS, Verdict.PART, Verdict.NOT, Verdict.MISSING
UNDECIDED, UNJUDGED = Verdict.UNDECIDED, Verdict.UNJUDGED
SO, NOT_SO, OPEN, ASIDE, GONE = (
    State.SO,
    State.NOT_SO,
    State.UNDECIDED,
    State.UNJUDGED,
    State.MISSING,
)

Rule = Callable[[Point], float]


def by_line(**accuracies: float) -> Rule:
    """Return a rule that gives each line an accuracy, others 0.3; recommended variants as theirs."""
    known = {name.replace("_", "-"): value for name, value in accuracies.items()}
    return lambda point: known.get(point.line.removeprefix("recommended "), 0.3)


def over_alpha(**lines: tuple[float, float]) -> Rule:
    """Return a rule in which lines change with alpha, from the first number (0.9) to the second (0.1)."""

    def rule(point: Point) -> float:
        even, skewed = lines.get(point.line, (0.5, 0.5))
        share = 0.0 if point.sweep is None else float(point.at or 0) / 0.9
        return skewed + (even - skewed) * share

    return rule


def judged(name: str, made: Made) -> Judgement:
    return judge(NAMED[name], made.evidence())


def change(made: Made, wanted: Callable[[Point], bool], by: Callable[[dict[str, Any]], None]) -> Made:
    """Change some of the results."""
    for point in made.points(*made.filled):
        result = made.get(point.run.key)
        if result is not None and not point.searching and wanted(point):
            by(result)  # type: ignore[arg-type]
    return made


def claim_of(*parts: Part) -> Claim:
    return Claim("any", "Something is so", "Fig. 1", "It is.", lambda evidence: parts)


NOTHING = [Made(scale).evidence() for scale in SCALES.values()]
EMPTY = NOTHING[0]
ONE_SEED = Made(REDUCED.with_seeds(1)).fill(lambda point: 0.3 + 0.3 * (point.line == "gapsl")).evidence()
# The same without a schedule, so that what converges first can be judged.
CONSTANT = REDUCED.with_settings(
    {"device_optimizer": {"schedule": "constant"}, "server_optimizer": {"schedule": "constant"}}
)


@pytest.mark.parametrize(
    ("states", "verdict", "words"),
    [
        ([SO, SO], HOLDS, "holds"),
        ([SO, NOT_SO], PART, "holds in part"),
        ([SO, OPEN], PART, "holds in part"),
        ([NOT_SO, NOT_SO], NOT, "does not hold"),
        ([NOT_SO, OPEN], NOT, "does not hold"),
        ([OPEN, OPEN], UNDECIDED, "undecided"),
        ([GONE, GONE], MISSING, "not measured yet"),
        ([SO, GONE], HOLDS, "holds (so far)"),
        ([NOT_SO, GONE], NOT, "does not hold (so far)"),
        ([OPEN, GONE], UNDECIDED, "undecided (so far)"),
        ([ASIDE, ASIDE], UNJUDGED, "not judged at this scale: it tells nothing"),
        ([SO, ASIDE], HOLDS, "holds"),
        ([ASIDE, NOT_SO], NOT, "does not hold"),
        ([ASIDE, GONE], MISSING, "not measured yet"),
        ([], MISSING, "not measured yet"),
    ],
)
def test_one_rule_for_all_verdicts(states: list[State], verdict: Verdict, words: str) -> None:
    parts = [Part("it", state, 3, why="it tells nothing" if state is ASIDE else "") for state in states]
    found = judge(claim_of(*parts), EMPTY)
    assert found.verdict is verdict
    assert found.words == words


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        ([SO, SO], HOLDS),
        ([SO, NOT_SO], NOT),
        ([SO, OPEN], UNDECIDED),
        ([SO, GONE], HOLDS),
        ([GONE, GONE], MISSING),
    ],
)
def test_a_claim_to_be_the_best_of_all_has_no_in_part(states: list[State], verdict: Verdict) -> None:
    claim = replace(claim_of(*(Part("it", state, 3) for state in states)), whole=True)
    assert judge(claim, EMPTY).verdict is verdict


def test_few_seeds_are_told() -> None:
    assert judge(claim_of(Part("it", SO, 1)), EMPTY).words == "holds (1 seed)"
    assert judge(claim_of(Part("it", SO, 1), Part("it", NOT_SO, 3)), EMPTY).words == (
        "holds in part (1 to 3 seeds)"
    )
    assert judge(claim_of(Part("it", SO, 2), Part("it", GONE)), EMPTY).words == "holds (so far, 2 seeds)"
    assert judge(claim_of(Part("it", SO)), EMPTY).words == "holds", "seeds have nothing to do with it"
    assert judge(claim_of(Part("it", SO, 3), Part("it", ASIDE, 1)), EMPTY).words == "holds"


@pytest.mark.parametrize("claim", NAMED.values(), ids=NAMED)
def test_without_results_nothing_is_claimed(claim: Claim) -> None:
    for nothing in NOTHING:
        found = judge(claim, nothing)
        assert found.verdict in (MISSING, UNJUDGED)
        assert found.parts


@pytest.mark.parametrize("claim", NAMED.values(), ids=NAMED)
def test_every_claim_is_decided_once_everything_is_measured(claim: Claim, everything: Evidence) -> None:
    found = judge(claim, everything)
    assert found.verdict is not MISSING
    assert not any(part.state is GONE for part in found.parts), [part.text for part in found.parts]


@pytest.mark.parametrize("claim", NAMED.values(), ids=NAMED)
def test_nothing_simply_holds_with_one_seed(claim: Claim) -> None:
    """Bytes alone are the same with every seed."""
    found = judge(claim, ONE_SEED)
    assert claim.name in ("traffic", "same-traffic") or found.words != "holds"


@pytest.fixture(scope="module")
def everything() -> Evidence:
    def rule(point: Point) -> float:
        return 0.3 + 0.1 * (point.seed == 0) + 0.05 * (point.line == "gapsl")

    made = Made(REDUCED).fill(rule)

    def spread(result: dict[str, Any]) -> None:
        for window in result["windows"]:
            if "dispersion" in window:  # so that there is something to correlate with
                window["dispersion"] += 0.01 * result["seed"]

    return change(made, lambda point: True, spread).evidence()


TABLE_CASES = [
    ("highest-cifar10-non-iid", by_line(gapsl=0.6), HOLDS),
    ("highest-cifar10-non-iid", by_line(gapsl=0.6, sfl=0.7), NOT),
    ("highest-cifar10-non-iid", by_line(gapsl=0.2), NOT),
    ("highest-cifar10-iid", by_line(gapsl=0.6), HOLDS),
    ("highest-cifar100-non-iid", by_line(gapsl=0.33), HOLDS),
    ("highest-cifar100-non-iid", by_line(gapsl=0.31), UNDECIDED),  # one point, with one seed
    ("psl-below-sfl", by_line(sfl=0.5, psl=0.4), HOLDS),
    ("psl-below-sfl", by_line(sfl=0.4, psl=0.5), NOT),
    ("psl-below-sfl", lambda point: 0.4 + 0.1 * (point.line == "sfl" and point.seed == 1), UNDECIDED),
]


@pytest.mark.parametrize(("name", "rule", "verdict"), TABLE_CASES)
def test_claims_of_table_1(name: str, rule: Rule, verdict: Verdict) -> None:
    assert judged(name, Made(REDUCED).fill(rule, "table1")).verdict is verdict


def test_a_difference_that_the_seeds_do_not_agree_on_is_undecided() -> None:
    def rule(point: Point) -> float:
        return 0.5 + (0.2 if point.line == "gapsl" and point.seed == 0 else 0.0)

    found = judged("highest-cifar10-non-iid", Made(REDUCED).fill(rule, "table1"))
    assert found.verdict is UNDECIDED


def test_who_loses_most_to_skew() -> None:
    def falls(**by: float) -> Rule:
        return lambda point: 0.8 - (by.get(point.line, 0.1) if point.partition == "non-iid" else 0.0)

    def verdict(rule: Rule) -> Verdict:
        return judged("lose-most", Made(REDUCED).fill(rule, "table1")).verdict

    assert verdict(falls(psl=0.4, vanilla=0.3)) is HOLDS
    assert verdict(falls(psl=0.4)) is PART
    assert verdict(falls(gapsl=0.5, sfl=0.5, epsl=0.5)) is NOT


def test_who_converges_first() -> None:
    made = Made(CONSTANT).fill(by_line(), "table1", epochs=20.0)
    assert judged("fewest-epochs-cifar10", made).verdict is NOT, "all the same"

    def sooner(result: dict[str, Any]) -> None:
        result["final"]["converged_epoch"] = 10.0

    change(made, lambda point: point.line == "gapsl" and point.partition == "iid", sooner)
    assert judged("fewest-epochs-cifar10", made).verdict is PART
    change(made, lambda point: point.line == "gapsl", sooner)
    assert judged("fewest-epochs-cifar10", made).verdict is HOLDS
    assert judged("slower-when-skewed", made).verdict is NOT
    change(made, lambda point: point.partition == "iid", sooner)
    assert judged("slower-when-skewed", made).verdict is PART, "GAPSL is as fast with either"


def test_a_schedule_decides_who_converges_first() -> None:
    made = Made(REDUCED).fill(by_line(), "table1", epochs=20.0)
    found = judged("fewest-epochs-cifar10", made)
    assert found.verdict is UNJUDGED and "schedule" in found.words and "cosine" in found.words
    assert judged("slower-when-skewed", made).verdict is UNJUDGED
    assert judged("fewest-epochs-cifar100", made).verdict is not UNJUDGED, "there the rates are constant"


def test_more_devices() -> None:
    def rule(fall: Mapping[str, float]) -> Rule:
        return lambda point: 0.6 - (fall.get(point.line, 0.1) if point.at == "40" else 0.0)

    def verdict(name: str, **fall: float) -> Verdict:
        return judged(name, Made(REDUCED).fill(rule(fall), "table2")).verdict

    assert verdict("steady-with-devices", gapsl=0.01) is HOLDS
    assert verdict("steady-with-devices", gapsl=0.05) is PART, "the others fall more, but it falls, too"
    assert verdict("steady-with-devices", gapsl=0.2) is NOT
    assert verdict("steady-when-even", gapsl=0.0, sfl=-0.01, epsl=0.01, vanilla=0.0, psl=0.0) is HOLDS
    assert verdict("steady-when-even", gapsl=-0.1) is NOT, "a rise is a change"
    assert verdict("highest-with-devices", gapsl=-0.1) is PART, "ahead with 40, level with 10"


def test_skew() -> None:
    def verdict(name: str, rule: Rule) -> Verdict:
        return judged(name, Made(REDUCED).fill(rule, "table1", "table3")).verdict

    assert verdict("psl-falls-most", over_alpha(psl=(0.8, 0.2))) is HOLDS
    assert verdict("psl-falls-most", over_alpha()) is NOT
    assert verdict("psl-falls-most", over_alpha(psl=(0.8, 0.2), sfl=(0.8, 0.1))) is NOT, "one falls more"
    growing = over_alpha(sfl=(0.6, 0.6), psl=(0.55, 0.3))
    assert verdict("gap-grows", growing) is HOLDS
    assert verdict("gap-grows", over_alpha(sfl=(0.6, 0.6), psl=(0.5, 0.5))) is PART
    assert verdict("gap-grows", over_alpha(sfl=(0.5, 0.5), psl=(0.6, 0.6))) is NOT


def test_angles() -> None:
    def widen(result: dict[str, Any]) -> None:
        skew = 1 - float(result["config"].get("partition", "dirichlet:0.1").partition(":")[2])
        for window in result["windows"]:
            window["angle_mean"] = 1.6 + 0.2 * skew

    made = Made(REDUCED).fill(by_line(), "angle-vs-alpha")
    assert judged("angles", made).verdict is UNDECIDED, "the same, with one seed"
    assert judged("angles", change(made, lambda point: point.line == "psl", widen)).verdict is HOLDS
    other = Made(REDUCED).fill(by_line(), "angle-vs-alpha")
    assert judged("angles", change(other, lambda point: point.line == "sfl", widen)).verdict is NOT


def alone(point: Point) -> float:
    """Let the devices that train alone differ, and all else be better."""
    return 0.2 + 0.02 * int(point.at or 0) if point.line == "single" else 0.6


def test_single_devices() -> None:
    made = Made(REDUCED).fill(alone, "leader-vs-single")
    assert judged("singles-differ", made).verdict is HOLDS
    found = judged("leader-beats-singles", made)
    assert found.verdict is HOLDS
    assert [part.state for part in found.parts] == [SO, ASIDE], "who is sooner is not judged"
    constant = judged("leader-beats-singles", Made(CONSTANT).fill(alone, "leader-vs-single", epochs=9.0))
    assert constant.verdict is PART, "better, not sooner"

    def near(point: Point) -> float:
        return 0.6 - 0.002 * int(point.at or 0) if point.line == "single" else 0.3

    made = Made(REDUCED).fill(near, "leader-vs-single")
    assert judged("singles-differ", made).verdict is NOT
    assert judged("leader-beats-singles", made).verdict is NOT


def test_the_best_and_the_worst_device_are_those_of_the_validation_split() -> None:
    made = Made(REDUCED).fill(alone, "single-device")

    def lucky(result: dict[str, Any]) -> None:
        result["final"]["device_mean"] = 0.9

    change(made, lambda point: point.at == "4", lucky)
    (part,) = judged("singles-differ", made).parts
    assert part.text.startswith("device 9 alone above device 0 alone: +18.0")


def test_scores_are_judged_where_they_do_not_decide_who_learns() -> None:
    made = Made(REDUCED).fill(alone, "score-vs-accuracy")
    assert judged("score-tells-accuracy", made).verdict is HOLDS, "made up so that later devices agree more"

    def turned(result: dict[str, Any]) -> None:
        result["final"]["device_accuracy"].reverse()

    change(made, lambda point: point.line == "gapsl", turned)
    assert judged("score-tells-accuracy", made).verdict is HOLDS, "GAPSL has no say in it"
    change(made, lambda point: point.line == "psl", turned)
    assert judged("score-tells-accuracy", made).verdict is PART, "alone they still follow the scores"

    def reversed_(point: Point) -> float:
        return 0.4 - 0.02 * int(point.at or 0) if point.line == "single" else 0.6

    made = Made(REDUCED).fill(reversed_, "score-vs-accuracy")
    change(made, lambda point: point.line == "psl", turned)
    assert judged("score-tells-accuracy", made).verdict is NOT


def test_which_single_device_is_best_over_time() -> None:
    made = Made(REDUCED).fill(by_line(), "single-device")

    def crossing(result: dict[str, Any]) -> None:
        device = result["config"].get("single", {"device": 0})["device"]
        for i, entry in enumerate(result["history"]):
            entry["device_mean"] = 0.5 if (device == 3) == (i < 3) else 0.2 + 0.001 * device

    change(made, lambda point: point.at in ("3", "7"), crossing)
    assert judged("best-device-changes", made).verdict is HOLDS
    made = Made(REDUCED).fill(lambda point: 0.9 if point.at == "4" else 0.3, "single-device")
    assert judged("best-device-changes", made).verdict is NOT


@pytest.mark.parametrize(
    ("experiment", "name", "adaptive", "middle"),
    [
        ("selection-ratio", "intermediate-ratio", "adaptive-ratio", "0.6"),
        ("threshold", "intermediate-threshold", "adaptive-threshold", "75"),
    ],
)
def test_fixed_choices(experiment: str, name: str, adaptive: str, middle: str) -> None:
    def verdicts(**by: float) -> tuple[Verdict, Verdict]:
        made = Made(REDUCED).fill(lambda point: by.get(f"at{point.at}", 0.4), experiment)
        return judged(name, made).verdict, judged(adaptive, made).verdict

    points = list(REDUCED.sweeps["ratio" if "ratio" in name else "threshold"])
    ends = points[0], points[-1]
    assert verdicts(**{f"at{middle}": 0.5}) == (HOLDS, NOT)
    assert verdicts(**{f"at{middle}": 0.5, f"at{ends[1]}": 0.6}) == (PART, NOT)
    assert verdicts(**{f"at{ends[0]}": 0.6, f"at{ends[1]}": 0.6}) == (NOT, NOT)
    assert verdicts(atNone=0.6) == (UNDECIDED, HOLDS), "all fixed ones the same, with one seed"


@pytest.mark.parametrize(("sweep", "experiment"), [("ratio", "selection-ratio"), ("threshold", "threshold")])
def test_the_best_fixed_one_is_that_of_the_validation_split(sweep: str, experiment: str) -> None:
    """One is best on the test set by luck; another is best where the choice is made, and that one counts."""
    made = Made(REDUCED).fill(lambda point: 0.45 if point.sweep is None else 0.4, experiment)
    names = list(REDUCED.sweeps[sweep])

    def best(result: dict[str, Any]) -> None:
        result["final"]["validation"] = {**result["final"]["validation"], "device_mean": 0.7}

    def lucky(result: dict[str, Any]) -> None:
        result["final"]["device_mean"] = 0.9

    change(made, lambda point: point.at == names[1], best)
    change(made, lambda point: point.at == names[2], lucky)
    (adaptive,) = judged(f"adaptive-{sweep}", made).parts
    assert adaptive.state is SO and f", {names[1]}" in adaptive.text
    assert [part.state for part in judged(f"intermediate-{sweep}", made).parts] == [OPEN, OPEN]


def test_the_best_rival_is_that_of_the_validation_split() -> None:
    made = Made(REDUCED).fill(by_line(gapsl=0.5, epsl=0.45), "table2")

    def lucky(result: dict[str, Any]) -> None:
        result["final"]["device_mean"] = 0.9

    change(made, lambda point: point.line == "vanilla", lucky)
    found = judged("highest-with-devices", made)
    assert found.verdict is HOLDS
    assert all("the best of the others, EPSL" in part.text for part in found.parts)


def test_without_a_validation_split_the_best_is_that_of_the_test_set() -> None:
    full = SCALES["full"]
    made = Made(full).fill(by_line(gapsl=0.5, sfl=0.45), "table2")

    def drop(result: dict[str, Any]) -> None:
        result["final"].pop("validation", None)

    change(made, lambda point: True, drop)
    found = judged("highest-with-devices", made)
    assert all("the best of the others, SFL" in part.text for part in found.parts)


def test_the_best_ratio_over_time() -> None:
    def course(best: list[str]) -> Made:
        made = Made(REDUCED).fill(by_line(), "selection-ratio")

        def shape(result: dict[str, Any]) -> None:
            ratio = f"{result['config']['gapsl'].get('ratio', 0.5):g}"
            for wanted, entry in zip(best, result["history"], strict=True):
                entry["device_mean"] = 0.5 if ratio == wanted else 0.1

        return change(made, lambda point: point.sweep == "ratio", shape)

    growing = course(["0.2", "0.4", "0.4", "0.6", "0.8", "1"])
    assert judged("best-ratio-grows", growing).verdict is HOLDS
    assert judged("best-ratio-grows", course(["1", "0.8", "0.6", "0.4", "0.2", "0.2"])).verdict is NOT
    assert judged("best-ratio-grows", course(["0.6"] * 6)).verdict is NOT


def test_dispersion() -> None:
    def rule(sign: float) -> Made:
        made = Made(REDUCED).fill(over_alpha(psl=(0.8, 0.2), gapsl=(0.8, 0.2)), "dispersion")

        def shape(result: dict[str, Any]) -> None:
            for window in result["windows"]:
                window["dispersion"] = 0.5 + sign * result["final"]["device_mean"]

        return change(made, lambda point: point.sweep in (None, "alpha"), shape)

    assert judged("falls-with-dispersion", rule(-0.1)).verdict is HOLDS
    assert judged("falls-with-dispersion", rule(0.1)).verdict is NOT


def test_ablations() -> None:
    def verdicts(rule: Rule) -> tuple[Verdict, ...]:
        made = Made(REDUCED).fill(rule, "ablation-lgi", "ablation-gda")
        return tuple(judged(name, made).verdict for name in ("lgi", "rand-lgi-worst", "gda", "non-gda-worst"))

    paper = by_line(gapsl=0.6, recommended=0.6, non_lgi=0.5, rand_lgi=0.4, non_gda=0.3, rand_gda=0.4)
    assert verdicts(paper) == (HOLDS, HOLDS, HOLDS, HOLDS)
    assert verdicts(by_line()) == (NOT, NOT, NOT, NOT)
    some = by_line(gapsl=0.45, recommended=0.45, non_lgi=0.5, rand_lgi=0.4, non_gda=0.5, rand_gda=0.4)
    assert verdicts(some) == (PART, HOLDS, PART, NOT)


def test_what_lgi_brings_on_transformers() -> None:
    def verdict(small: float, large: float) -> Verdict:
        gains = {"cifar10": small, "cifar100": large}
        made = Made(REDUCED).fill(
            lambda point: 0.3 + gains[point.workload] * (point.line == "gapsl"), "ablation-lgi"
        )
        return judged("lgi-on-transformers", made).verdict

    assert verdict(0.1, 0.2) is HOLDS
    assert verdict(0.1, 0.11) is UNDECIDED, "one seed"
    assert verdict(0.2, 0.1) is NOT


def test_faulty_devices() -> None:
    def rule(loss: Mapping[str, float]) -> Rule:
        return lambda point: 0.6 - (loss.get(point.line, 0.1) if point.sweep == "faults" else 0.0)

    def shut_out(result: dict[str, Any]) -> None:
        for window in result["windows"]:
            for device in faulty_devices(result):
                window["leader_share"][device] = 0.0

    made = Made(REDUCED).fill(rule({"gapsl": 0.01, "recommended": 0.01}), "robustness")
    change(made, lambda point: point.line == "gapsl" and point.sweep == "faults", shut_out)
    assert judged("filters-noise", made).verdict is HOLDS
    made = Made(REDUCED).fill(rule({"gapsl": 0.3, "recommended": 0.3}), "robustness")
    change(made, lambda point: point.line == "gapsl" and point.sweep == "faults", shut_out)
    assert judged("filters-noise", made).verdict is PART

    def let_in(result: dict[str, Any]) -> None:
        for window in result["windows"]:
            for device in faulty_devices(result):
                window["leader_share"][device] = 1.0

    change(made, lambda point: point.line == "gapsl" and point.sweep == "faults", let_in)
    assert judged("filters-noise", made).verdict is NOT


def fail(result: dict[str, Any]) -> None:
    """Let a run have ended before its time."""
    result.pop("final", None)
    result.update({"failed": "no finite loss", "rounds": 300})


def at_flips(line: str) -> Callable[[Point], bool]:
    return lambda point: point.line == line and point.at == "flip:3"


def test_runs_that_fail_among_faulty_devices_count_as_guessing() -> None:
    def first(*failing: str) -> Part:
        made = Made(REDUCED).fill(lambda point: 0.4 - 0.2 * (point.sweep == "faults"), "robustness")
        for line in failing:
            change(made, at_flips(line), fail)
        return judged("filters-noise", made).parts[0]

    said = "3 with flipped gradients: PSL's honest devices lose more than GAPSL's"
    assert first("psl").state is SO
    assert re.fullmatch(
        re.escape(said) + r" \(PSL 10\.0 %, GAPSL 2\d\.\d %, PSL fails in round 300\): \+1\d\.\d \(1 seed\)",
        first("psl").text,
    ), "20 %, and guessing 10"
    assert first("gapsl").state is NOT_SO
    both = first("psl", "gapsl")
    assert "(PSL 10.0 %, GAPSL 10.0 %, PSL fails in round 300, GAPSL fails in round 300): +0.0" in both.text
    assert both.state is OPEN


def test_a_run_that_fails_is_compared_with_nothing_while_the_other_is_missing() -> None:
    made = Made(REDUCED).fill(by_line(), "robustness")
    change(made, at_flips("psl"), fail).drop(at_flips("gapsl"))
    assert judged("filters-noise", made).parts[0].state is GONE


def test_whether_angles_tell_more_after_calibration() -> None:
    made = Made(REDUCED).fill(by_line(), "separation")

    def angles(of_faulty: float) -> Callable[[dict[str, Any]], None]:
        def set_angles(result: dict[str, Any]) -> None:
            for window in result["windows"]:
                faulty = faulty_devices(result)
                window["scores"] = [of_faulty if device in faulty else 1.5 for device in range(10)]

        return set_angles

    change(made, lambda point: point.line == "psl", angles(1.4))
    change(made, lambda point: point.line == "psl prior", angles(1.6))
    change(made, at_flips("psl"), fail)  # it counts as far as it went
    found = judged("calibration-separates", made)
    assert found.verdict is HOLDS
    assert found.parts[1].text == (
        "random labels, pairs told apart (100 % against 0 %): +100.0 (+100.0 to +100.0; 3 seeds)"
    )
    change(made, lambda point: point.line == "psl prior" and point.at == "noise:3", angles(1.4))
    found = judged("calibration-separates", made)
    assert [part.state for part in found.parts] == [SO, SO, NOT_SO], "not better is no"

    made.drop(lambda point: point.line == "psl prior" and point.at == "labels:3" and point.seed > 0)
    change(made, lambda point: point.line == "psl" and point.at == "labels:3" and point.seed > 0, angles(1.6))
    part = judged("calibration-separates", made).parts[1]
    assert "(100 % against 0 %): +100.0 (1 seed)" in part.text, "over the seeds that both have"
    assert part.state is OPEN, "one seed tells nothing of so few pairs"


def test_only_the_seeds_that_are_compared_are_said_to_have_failed() -> None:
    made = Made(REDUCED).fill(by_line(), "robustness", "separation")
    change(made, lambda point: at_flips("psl")(point) and point.seed > 0, fail)
    assert "fails" not in judged("filters-noise", made).parts[0].text, "GAPSL has seed 0 alone"
    place = Place("psl", sweep="faults", at="flip:3")
    assert ends(made.evidence(), place) == "PSL fails with 2 of 3 seeds in rounds 300 and 300"


def test_traffic_and_time() -> None:
    made = Made(REDUCED).fill(by_line(), "cost")
    assert judged("traffic", made).verdict is HOLDS
    assert judged("light", made).verdict is UNJUDGED, "the runs went beside others"

    def dearer(result: dict[str, Any]) -> None:
        result["final"]["bytes_sent"] += 1

    change(made, lambda point: point.line == "gapsl", dearer)
    assert judged("traffic", made).verdict is PART, "more than PSL, still less than SFL"


def lines(other: float = 0.3, **accuracies: float) -> Rule:
    """Return a rule that gives lines an accuracy by their whole name, all others another."""
    known = {name.replace("_", " "): value for name, value in accuracies.items()}
    return lambda point: known.get(point.line, other)


def shaky(*names: str, by: float) -> Rule:
    """Return a rule in which lines are better by so much, but with one seed alone."""
    return lambda point: 0.3 + by * (point.line in names and point.seed == 1)


def with_many(**changes: float) -> Rule:
    """Return a rule in which lines gain or lose with the most devices."""
    known = {"recommended": 0.5, "psl": 0.3}
    return lambda point: known.get(point.line, 0.3) + changes.get(point.line, 0.0) * (point.at == "40")


def among_faulty(line: str, *at: str) -> Rule:
    """A line is worse than the others at these points, and nowhere else."""
    return lambda point: 0.4 - 0.2 * (point.line == line and point.at in at)


GOAL_CASES = [
    ("above-the-rest", lines(recommended=0.6, sfl=0.5, frozen=0.5, psl=0.4), HOLDS),
    ("above-the-rest", lines(recommended=0.6, sfl=0.5, frozen=0.5, psl=0.45), PART),  # by 15 points
    ("above-the-rest", lines(recommended=0.6, sfl=0.5, frozen=0.65, psl=0.4), PART),
    ("above-the-rest", lines(recommended=0.4, sfl=0.5, frozen=0.5, psl=0.3), NOT),
    ("above-the-rest", shaky("recommended", by=0.6), UNDECIDED),  # above PSL by 20 points, on average
    ("level-with-averaging", lines(recommended=0.45, recommended_sfl=0.455), HOLDS),
    ("level-with-averaging", lines(recommended=0.45, recommended_sfl=0.47), NOT),
    ("level-with-averaging", lines(recommended=0.45, recommended_sfl=0.4, sfl_prior=0.47), NOT),
    ("level-with-averaging", lines(recommended=0.45, recommended_sfl=0.4, sfl_prior=0.455), HOLDS),
    ("level-with-averaging", shaky("recommended", by=0.1), UNDECIDED),
    ("ground-helps", lines(recommended=0.5, recommended_unpulled=0.4), HOLDS),
    ("ground-helps", lines(recommended=0.4, recommended_unpulled=0.5), NOT),
    ("ground-helps", lines(), NOT),
    ("ground-helps", shaky("recommended", by=0.1), UNDECIDED),
    ("solving-helps", lines(recommended_unled=0.5, recommended_pulled=0.4), HOLDS),
    ("solving-helps", lines(recommended_unled=0.4, recommended_pulled=0.5), NOT),
    ("solving-helps", shaky("recommended unled", by=0.1), UNDECIDED),
    ("leaders-filter", among_faulty("recommended unled", "flip:3", "labels:3", "noise:3"), HOLDS),
    ("leaders-filter", among_faulty("recommended unled", "noise:3"), PART),
    ("leaders-filter", among_faulty("recommended", "flip:3", "labels:3", "noise:3"), NOT),
    ("leaders-filter", among_faulty("recommended unled", "noise:1", "noise:2"), NOT),
    ("leaders-cost-little", lines(recommended=0.4, recommended_unled=0.405), HOLDS),
    ("leaders-cost-little", lines(recommended=0.4, recommended_unled=0.42), NOT),
    ("leaders-cost-little", shaky("recommended", by=0.1), UNDECIDED),
    ("for-its-bytes", lambda point: 0.4 + 0.1 * (point.line == "recommended"), HOLDS),
    ("for-its-bytes", lambda point: 0.4 + 0.1 * (point.at in ("1600", "3200")), NOT),
    ("for-its-bytes", shaky("recommended", by=0.1), UNDECIDED),
    ("alignment-on-top", lines(**dict.fromkeys((name.replace(" ", "_") for name in ALIGNED), 0.4)), HOLDS),
    ("alignment-on-top", lines(recommended_gapsl=0.2, recommended_penalty=0.4), PART),
    ("alignment-on-top", lines(recommended=0.4), NOT),
    ("alignment-on-top", shaky(*ALIGNED, by=0.1), UNDECIDED),
    ("lead-stays", with_many(), HOLDS),
    ("lead-stays", with_many(psl=-0.1), HOLDS),
    ("lead-stays", with_many(recommended=-0.01), NOT),
    ("lead-stays", with_many(psl=0.1), NOT),
    ("lead-stays", lambda p: 0.3 + 0.1 * (p.line == "psl" and p.at == "40") * (p.seed - 1), UNDECIDED),
    ("no-harm", lines(recommended=0.3, psl=0.304), HOLDS),
    ("no-harm", lines(recommended=0.3, psl=0.31), NOT),
    ("no-harm", lambda point: 0.3 + 0.1 * (point.line == "psl" and point.partition == "iid"), PART),
    ("no-harm", shaky("recommended", by=0.1), UNDECIDED),
]


@pytest.mark.parametrize(("name", "rule", "verdict"), GOAL_CASES)
def test_goals(name: str, rule: Rule, verdict: Verdict) -> None:
    experiments = {
        "lead-stays": ["table2"],
        "no-harm": ["cost", "table3"],
        "for-its-bytes": ["length"],
        "leaders-filter": ["robustness"],
    }
    made = Made(REDUCED).fill(rule, *experiments.get(name, ["cost", "ablation-recommended"]))
    assert judged(name, made).verdict is verdict


def test_the_better_of_two_averaged_ones_is_that_of_the_validation_split() -> None:
    made = Made(REDUCED).fill(lines(recommended=0.45, sfl_prior=0.4), "cost", "ablation-recommended")

    def lucky(result: dict[str, Any]) -> None:
        result["final"]["device_mean"] = 0.9

    change(made, lambda point: point.line == "recommended sfl", lucky)
    (part,) = judged("level-with-averaging", made).parts
    assert part.state is SO and "both halves calibrated" in part.text


def test_the_recommended_settings_send_as_much_as_psl() -> None:
    made = Made(REDUCED).fill(lines(), "table1")
    assert judged("same-traffic", made).verdict is HOLDS

    def more(result: dict[str, Any]) -> None:
        result["final"]["bytes_received"] += 1

    assert judged("same-traffic", change(made, lambda p: p.line == "recommended", more)).verdict is NOT


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [((0.019, 0.019), HOLDS), ((-0.05, 0.0), HOLDS), ((0.021, 0.01), PART), ((0.03, 0.021), NOT)],
)
def test_sfl_has_converged_if_longer_runs_bring_little(gains: tuple[float, float], verdict: Verdict) -> None:
    def rule(point: Point) -> float:
        grown = {"1600": gains[0], "3200": sum(gains)}.get(point.at or "", 0.0)
        return 0.4 + (grown if point.line == "sfl" else 2 * grown)

    found = judged("sfl-has-converged", Made(REDUCED).fill(rule, "length"))
    assert found.verdict is verdict
    steps = ("from 800 to 1600", "from 1600 to 3200")
    for part, gain, step, seeds in zip(found.parts, gains, steps, (3, 1), strict=True):
        sfl, psl = told(dict.fromkeys(range(seeds), 100 * gain)), told({0: 200 * gain})
        assert f"{step} rounds: SFL {sfl}, PSL {psl}" in part.text


def test_the_lead_is_looked_at_in_the_longer_runs_alone() -> None:
    def rule(point: Point) -> float:
        return 0.5 if (point.line == "recommended") == (point.at != "800") else 0.4

    found = judged("leads-in-longer-runs", Made(REDUCED).fill(rule, "length"))
    assert found.verdict is HOLDS
    assert [part.text.partition(":")[0] for part in found.parts] == [
        f"after {length} rounds, recommended above {name}"
        for length in (1600, 3200)
        for name in ("SFL", "frozen", "PSL")
    ]


def test_where_nothing_is_run_for_longer_nobody_says_what_has_converged() -> None:
    found = judged("sfl-has-converged", Made(SCALES["smoke"]).fill(lines(), "length"))
    assert found.words == "not judged at this scale: nothing is run for longer"


def test_differences_are_told_with_their_interval_or_their_values() -> None:
    assert signed(-1.26) == "−1.3"
    assert signed(-0.04) == "+0.0"
    assert told({0: 1.0, 1: 2.0, 2: 3.0}) == "+2.0 (−0.5 to +4.5; 3 seeds)"
    assert told({0: 1.0, 4: 3.0}) == "+2.0 (+1.0, +3.0; 2 seeds)"
    assert told({0: 1.0}) == "+1.0 (1 seed)"
    assert told({}) == "not measured"


def test_claims_have_names_of_their_own() -> None:
    assert len(NAMED) == len(CLAIMS) + len(GOALS) + len(QUESTIONS) + 3
    assert all(claim.rule.endswith((".", ".)")) for claim in NAMED.values())
