"""Common ground: whether halves agree on the probes, whose does not, and who leads."""

from __future__ import annotations

from constructed import ONE_CLASS_EACH, changed, evaluated, healthy, probed, settings_of

from gapsl.analysis.diagnosis import Severity
from gapsl.analysis.diagnosis.common_ground import odd_half, on_probes, who_leads
from gapsl.analysis.diagnosis.drift import far_from_start, halves_apart


def test_without_probes_nothing_is_said() -> None:
    for finder in (on_probes, odd_half, who_leads):
        assert finder(healthy()) is None


def test_halves_that_agree_are_told_with_when_they_agreed_least() -> None:
    run = changed(probed(healthy(), 0.02), lambda r: {"apart": 0.05 if r.number == 12 else 0.02})
    found = on_probes(run)
    assert found is not None
    assert (found.name, found.severity, found.advice) == ("halves-agree", Severity.INFO, ())
    assert "the halves are 2.0 % away from their common mean" in found.text
    assert "at most 5.0 %, in round 12" in found.text
    led = on_probes(changed(run, lambda r: {"probe_leaders": frozenset({0, 1})}))
    assert led is not None
    assert "away from what their leaders make of them" in led.text


def test_halves_that_do_not_agree_are_to_be_watched_and_to_be_slower() -> None:
    assert on_probes(probed(healthy(), 0.06)).severity == Severity.INFO  # type: ignore[union-attr]
    found = on_probes(probed(healthy(ONE_CLASS_EACH), 0.08))
    assert found is not None
    assert (found.name, found.severity) == ("halves-disagree", Severity.WATCH)
    assert settings_of(found) == ["device_optimizer.lr=0.01", "preset recommended"]


def test_what_counts_is_the_end() -> None:
    run = changed(probed(healthy(), 0.02), lambda r: {"apart": 0.5 if r.number < 20 else 0.01})
    assert on_probes(run).severity == Severity.INFO  # type: ignore[union-attr]


def test_halves_that_went_far_together_are_not_said_to_have_nothing_in_common() -> None:
    far = evaluated(healthy(), lambda e: {"drift": dict.fromkeys(range(4), 1.2)})
    for apart, name in ((0.02, "drift"), (0.2, "far-from-start")):
        found = far_from_start(probed(far, apart))
        assert found is not None
        assert found.name == name
    assert "held together by the probes" in far_from_start(probed(far, 0.02)).text  # type: ignore[union-attr]


def test_halves_that_agree_and_are_told_apart_all_the_same() -> None:
    better = evaluated(healthy(), lambda e: {"ensemble": e.device_mean + 0.2})
    found = halves_apart(probed(better, 0.04))
    assert found is not None
    assert "On the probes they agree to 4.0 %" in found.text
    assert "probes" not in halves_apart(probed(better, 0.4)).text  # type: ignore[union-attr]


def test_a_half_far_from_all_others_is_named() -> None:
    found = odd_half(probed(healthy(), 0.05, odd=4.5))
    assert found is not None
    assert (found.severity, found.numbers["device"]) == (Severity.WATCH, 3)
    assert "at 4.5° to what the others make on average, theirs at 2.0° (median)" in found.text
    assert settings_of(found) == ["probe_leaders=0.5"]
    assert odd_half(probed(healthy(), 0.05, odd=3.5)) is None
    near = changed(probed(healthy(), 0.01), lambda r: {"probe_scores": {0: 0.01, 1: 0.01, 2: 0.04}})
    assert odd_half(near) is None, "three times as far as the others, and still near"


def test_who_leads_is_told_and_who_hardly_ever_does() -> None:
    run = probed(healthy(), 0.02, probe_leaders=0.5)
    run = changed(run, lambda r: {"probe_leaders": frozenset({0, 1} if r.number % 4 else {0, 2})})
    found = who_leads(run)
    assert found is not None
    assert (found.severity, found.advice) == (Severity.INFO, ())
    assert "device 0 in 100 % of its rounds, device 3 in 0 %." in found.text
    assert "Device 3 hardly ever: what is learned there alone is pulled back." in found.text
    assert found.numbers["led"] == {0: 1.0, 1: 0.75, 2: 0.25, 3: 0.0}
    turns = changed(run, lambda r: {"probe_leaders": frozenset({r.number % 4})})
    assert "hardly ever" not in who_leads(turns).text  # type: ignore[union-attr]
