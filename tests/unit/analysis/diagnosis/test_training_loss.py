"""The training loss: stuck, rising, or falling as it should."""

from __future__ import annotations

from collections.abc import Callable

from constructed import changed, healthy, settings_of

from gapsl.analysis.diagnosis import Evidence, Severity
from gapsl.analysis.diagnosis.loss import rising, stuck


def losing(loss: Callable[[int], float | None]) -> Evidence:
    """A run with this loss by round."""
    return changed(healthy(), lambda r: {"loss": loss(r.number)})


def test_a_loss_that_stays_where_it_began_wants_larger_steps() -> None:
    found = stuck(losing(lambda r: 2.3 - 0.001 * r))
    assert found is not None
    assert (found.severity, found.breaks) == (Severity.TROUBLE, False)
    assert settings_of(found) == ["server_optimizer.lr=1", "device_optimizer.lr=1"]


def test_one_that_shot_up_on_the_way_wants_smaller_ones() -> None:
    found = stuck(losing(lambda r: 4.0 if r == 5 else 2.3))
    assert found is not None
    assert settings_of(found) == ["server_optimizer.lr=0.01", "device_optimizer.lr=0.01"]


def test_early_on_it_is_only_to_be_watched() -> None:
    found = stuck(changed(losing(lambda r: 2.3), lambda r: {"epoch": r.number / 100}))
    assert found is not None
    assert found.severity == Severity.WATCH


def test_a_loss_that_falls_a_tenth_is_falling() -> None:
    assert stuck(losing(lambda r: 2.3 - 0.01 * r)) is None
    assert rising(losing(lambda r: 2.3 - 0.01 * r)) is None
    assert stuck(healthy()) is None
    assert rising(healthy()) is None


def test_a_loss_that_has_been_lower_is_rising() -> None:
    found = rising(losing(lambda r: 2.0 - 0.08 * r if r <= 20 else 0.4 + 0.03 * (r - 20)))
    assert found is not None
    assert (found.severity, found.breaks) == (Severity.WATCH, False)
    assert abs(found.numbers["round"] - 20) <= 3
    again = rising(losing(lambda r: 2.0 + 0.5 * r))
    assert again is not None
    assert (again.severity, again.breaks) == (Severity.TROUBLE, True)
    assert stuck(losing(lambda r: 2.0 + 0.5 * r)) is None, "one finding is enough"


def test_a_loss_near_zero_may_double_and_batches_may_scatter() -> None:
    assert rising(losing(lambda r: 0.05 if r < 30 else 0.14)) is None
    assert rising(losing(lambda r: 0.05 if r < 30 else 0.17)) is not None
    assert rising(losing(lambda r: 1.0 + 0.2 * (r % 2))) is None


def test_rounds_without_any_finite_loss_are_left_out() -> None:
    assert rising(losing(lambda r: None)) is None
    assert stuck(losing(lambda r: None)) is None
