import numpy as np

from gapsl.analysis.plots import mean_angles


def record(present: dict[str, float], angle: float) -> dict:
    size = len(present)
    return {
        "losses": present,
        "bytes_sent": [0, 0, 0],
        "angles": (angle * (1 - np.eye(size))).tolist(),
    }


def test_angles_are_averaged_over_the_rounds_in_which_both_devices_took_part():
    found = mean_angles([record({"0": 1.0, "2": 1.0}, 1.0), record({"2": 1.0, "0": 1.0}, 2.0)])
    assert found is not None
    assert found[0, 2] == found[2, 0] == 1.5
    assert np.isnan(found[0, 1])
    assert np.isnan(found[1, 1])


def test_without_angles_there_is_nothing_to_draw():
    assert mean_angles([{"losses": {}, "bytes_sent": [0]}]) is None
