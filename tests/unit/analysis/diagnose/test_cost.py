"""Where the time goes, and what would make it less."""

from __future__ import annotations

from typing import Any

from constructed import GAPSL, changed, healthy, settings_of

from gapsl.analysis.diagnose import Severity
from gapsl.analysis.diagnose.cost import cost


def test_phases_and_bytes_are_added_up() -> None:
    found = cost(healthy())
    assert found is not None
    assert (found.severity, found.advice) == (Severity.INFO, ())
    assert "40 s for 40 rounds: server 50 %, devices forward 20 %, devices backward 20 %" in found.text
    assert "0.04 MB up and 0.036 MB down" in found.text


def test_what_takes_most_of_the_time_can_be_made_cheaper() -> None:
    def advised(phase: str, share: float, **settings: Any) -> list[str]:
        seconds = {"collect": 1 - share, phase: share}
        run = changed(healthy(**settings), lambda r: {"seconds": seconds, "averaged": r.round % 8 == 0})
        return settings_of(cost(run))

    assert advised("evaluate", 0.45) == ["evaluate_every=25"]
    assert advised("server", 0.75, method="gapsl", gapsl=GAPSL) == ["gapsl.penalty=finite"]
    assert advised("move", 0.35, method="sfl") == ["sfl.interval=16"]
    assert advised("evaluate", 0.35) == []
    assert advised("server", 0.65, method="gapsl", gapsl=GAPSL) == []
    assert advised("move", 0.25, method="sfl") == []


def test_a_run_without_times_is_not_spoken_of() -> None:
    assert cost(changed(healthy(), lambda r: {"seconds": {}})) is None
