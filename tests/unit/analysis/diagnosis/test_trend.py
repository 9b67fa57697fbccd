"""Where a noisy series starts and ends."""

from __future__ import annotations

from gapsl.analysis.diagnosis.trend import ends


def test_a_fifth_at_each_end_and_no_trend_in_less_than_ten_values() -> None:
    assert ends(list(range(20))) == (1.5, 17.5)
    assert ends([1.0, 2.0, *[9.0] * 6, 3.0, 4.0]) == (1.5, 3.5)
    assert ends([1.0] * 9) is None


def test_one_value_out_of_line_changes_nothing() -> None:
    assert ends([1.0] * 14 + [1e9]) == (1.0, 1.0)
