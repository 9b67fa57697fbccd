"""Claims and their verdicts, on results made to hold, to hold in part, not to hold, or to be missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from made_up import Made

from gapsl.experiments.catalogue import SCALES, Point
from gapsl.experiments.report.claims import CLAIMS, GOALS, Claim, Judgement, Part, Verdict, judge
from gapsl.experiments.report.claims.comparing import signed, told
from gapsl.experiments.report.evidence import Evidence
from gapsl.experiments.report.measures import faulty_devices

REDUCED = SCALES["reduced"]
NAMED = {claim.name: claim for claim in (*CLAIMS, *GOALS)}
HOLDS, PART, NOT, MISSING = Verdict.HOLDS, Verdict.PART, Verdict.NOT, Verdict.MISSING

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
    for point in made.points():
        result = made.get(point.run.key)
        if result is not None and not point.searching and wanted(point):
            by(result)  # type: ignore[arg-type]
    return made


def claim_of(*parts: Part) -> Claim:
    return Claim("any", "Something is so", "Fig. 1", "It is.", lambda evidence: parts)


NOTHING = [Made(scale).evidence() for scale in SCALES.values()]
EMPTY = NOTHING[0]


@pytest.mark.parametrize(
    ("so", "verdict", "words"),
    [
        ([True, True], HOLDS, "holds"),
        ([True, False], PART, "holds in part"),
        ([False, False], NOT, "does not hold"),
        ([None, None], MISSING, "not measured yet"),
        ([True, None], HOLDS, "holds (so far)"),
        ([False, None], NOT, "does not hold (so far)"),
        ([], MISSING, "not measured yet"),
    ],
)
def test_one_rule_for_all_verdicts(so: list[bool | None], verdict: Verdict, words: str) -> None:
    found = judge(claim_of(*(Part("it", each, 3) for each in so)), EMPTY)
    assert found.verdict is verdict
    assert found.words == words


def test_few_seeds_are_told() -> None:
    assert judge(claim_of(Part("it", True, 1)), EMPTY).words == "holds (1 seed)"
    assert judge(claim_of(Part("it", True, 1), Part("it", False, 3)), EMPTY).words == (
        "holds in part (1 to 3 seeds)"
    )
    assert judge(claim_of(Part("it", True, 2), Part("it", None)), EMPTY).words == "holds (so far, 2 seeds)"
    assert judge(claim_of(Part("it", True)), EMPTY).words == "holds", "seeds have nothing to do with it"


@pytest.mark.parametrize("claim", NAMED.values(), ids=NAMED)
def test_without_results_nothing_is_claimed(claim: Claim) -> None:
    for nothing in NOTHING:
        found = judge(claim, nothing)
        assert found.verdict is MISSING
        assert found.parts


@pytest.mark.parametrize("claim", NAMED.values(), ids=NAMED)
def test_every_claim_is_decided_once_everything_is_measured(claim: Claim, everything: Evidence) -> None:
    found = judge(claim, everything)
    assert found.verdict is not MISSING
    assert all(part.so is not None for part in found.parts), [part.text for part in found.parts]


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
    ("highest-cifar10-non-iid", by_line(gapsl=0.6, sfl=0.7), PART),
    ("highest-cifar10-non-iid", by_line(gapsl=0.2), NOT),
    ("highest-cifar10-iid", by_line(gapsl=0.6), HOLDS),
    ("highest-cifar100-non-iid", by_line(gapsl=0.33), HOLDS),
    ("highest-cifar100-non-iid", by_line(gapsl=0.31), NOT),  # one point, with one seed
    ("psl-below-sfl", by_line(sfl=0.5, psl=0.4), HOLDS),
    ("psl-below-sfl", by_line(sfl=0.4, psl=0.5), NOT),
]


@pytest.mark.parametrize(("name", "rule", "verdict"), TABLE_CASES)
def test_claims_of_table_1(name: str, rule: Rule, verdict: Verdict) -> None:
    assert judged(name, Made(REDUCED).fill(rule, "table1")).verdict is verdict


def test_a_difference_that_the_seeds_do_not_agree_on_does_not_count() -> None:
    def rule(point: Point) -> float:
        return 0.5 + (0.2 if point.line == "gapsl" and point.seed == 0 else 0.0)

    found = judged("highest-cifar10-non-iid", Made(REDUCED).fill(rule, "table1"))
    assert found.verdict is NOT


def test_who_loses_most_to_skew() -> None:
    def falls(**by: float) -> Rule:
        return lambda point: 0.8 - (by.get(point.line, 0.1) if point.partition == "non-iid" else 0.0)

    def verdict(rule: Rule) -> Verdict:
        return judged("lose-most", Made(REDUCED).fill(rule, "table1")).verdict

    assert verdict(falls(psl=0.4, vanilla=0.3)) is HOLDS
    assert verdict(falls(psl=0.4)) is PART
    assert verdict(falls(gapsl=0.5, sfl=0.5, epsl=0.5)) is NOT


def test_who_converges_first() -> None:
    made = Made(REDUCED).fill(by_line(), "table1", epochs=20.0)
    assert judged("fewest-epochs-cifar10", made).verdict is NOT, "all the same"

    def sooner(result: dict[str, Any]) -> None:
        result["final"]["converged_epoch"] = 10.0

    change(made, lambda point: point.line == "gapsl" and point.partition == "iid", sooner)
    assert judged("fewest-epochs-cifar10", made).verdict is PART
    change(made, lambda point: point.line == "gapsl", sooner)
    assert judged("fewest-epochs-cifar10", made).verdict is HOLDS
    assert judged("slower-when-skewed", made).verdict is NOT


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
    assert judged("angles", made).verdict is NOT
    assert judged("angles", change(made, lambda point: point.line == "psl", widen)).verdict is HOLDS


def test_single_devices() -> None:
    def rule(point: Point) -> float:
        return 0.2 + 0.02 * int(point.at or 0) if point.line == "single" else 0.6

    made = Made(REDUCED).fill(rule, "leader-vs-single", "score-vs-accuracy", epochs=9.0)
    assert judged("singles-differ", made).verdict is HOLDS
    assert judged("score-tells-accuracy", made).verdict is HOLDS, "made up so that later devices agree more"
    assert judged("leader-beats-singles", made).verdict is PART, "better, not sooner"

    def turned(result: dict[str, Any]) -> None:
        result["final"]["device_accuracy"].reverse()

    change(made, lambda point: point.line in ("psl", "gapsl"), turned)
    assert judged("score-tells-accuracy", made).verdict is PART, "alone they still follow the scores"


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
    assert verdicts(atNone=0.6) == (NOT, HOLDS)


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


def test_traffic_and_time() -> None:
    made = Made(REDUCED).fill(by_line(), "cost")
    assert judged("traffic", made).verdict is HOLDS
    assert judged("light", made).verdict is HOLDS

    def dearer(result: dict[str, Any]) -> None:
        result["final"]["bytes_sent"] += 1
        result["final"]["seconds"] *= 2

    change(made, lambda point: point.line == "gapsl", dearer)
    assert judged("traffic", made).verdict is PART, "more than PSL, still less than SFL"
    assert judged("light", made).verdict is NOT


def test_goals() -> None:
    def verdict(name: str, rule: Rule) -> Verdict:
        made = Made(REDUCED).fill(rule, "table1", "table2", "table3", "ablation-recommended")
        return judged(name, made).verdict

    above = by_line(recommended=0.6, gapsl=0.6, sfl=0.5, frozen=0.5, psl=0.4)
    assert verdict("above-the-rest", above) is HOLDS
    close = by_line(recommended=0.6, gapsl=0.6, sfl=0.5, frozen=0.65, psl=0.5)
    assert verdict("above-the-rest", close) is PART
    assert verdict("no-harm", by_line(recommended=0.3, gapsl=0.3, psl=0.304)) is HOLDS
    assert verdict("no-harm", by_line(recommended=0.3, gapsl=0.3, psl=0.31)) is NOT
    assert verdict("lead-stays", by_line()) is HOLDS
    assert verdict("alignment-helps", by_line(recommended=0.6, non_lgi=0.5, non_gda=0.2)) is HOLDS
    assert verdict("alignment-helps", by_line(recommended=0.6, non_lgi=0.6, non_gda=0.2)) is PART
    assert verdict("level-with-averaging", by_line(recommended=0.45, sfl=0.455)) is HOLDS
    assert verdict("level-with-averaging", by_line(recommended=0.45, sfl=0.47)) is NOT


def test_differences_are_told_with_their_interval_or_their_values() -> None:
    assert signed(-1.26) == "−1.3"
    assert signed(-0.04) == "+0.0"
    assert told({0: 1.0, 1: 2.0, 2: 3.0}) == "+2.0 (−0.5 to +4.5; 3 seeds)"
    assert told({0: 1.0, 4: 3.0}) == "+2.0 (+1.0, +3.0; 2 seeds)"
    assert told({0: 1.0}) == "+1.0 (1 seed)"
    assert told({}) == "not measured"


def test_claims_have_names_of_their_own() -> None:
    assert len(NAMED) == len(CLAIMS) + len(GOALS)
    assert all(claim.rule.endswith((".", ".)")) for claim in NAMED.values())
