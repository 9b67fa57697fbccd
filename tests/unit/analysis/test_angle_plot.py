import numpy as np

from gapsl.analysis.plots import mean_angles
from gapsl.run.records import Angles, RoundRecord


def record(present: tuple[int, ...], angle: float | None) -> RoundRecord:
    angles = None if angle is None else Angles(devices=present, above=((angle,), ()))
    nothing = dict.fromkeys(range(3), 0)
    return RoundRecord(
        round=1, epoch=1.0, loss=1.0, losses=dict.fromkeys(present, 1.0), bytes_sent=nothing,
        bytes_received=nothing, seconds={}, angles=angles,
    )  # fmt: skip


def test_angles_are_averaged_over_the_rounds_in_which_both_devices_took_part():
    found = mean_angles([record((0, 2), 1.0), record((0, 2), 2.0)])
    assert found is not None
    assert found[0, 2] == found[2, 0] == 1.5
    assert np.isnan(found[0, 1])
    assert np.isnan(found[1, 1])


def test_without_angles_there_is_nothing_to_draw():
    assert mean_angles([record((0, 2), None)]) is None
