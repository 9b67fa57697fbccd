"""A replay: what befell the devices of another fleet befalls those of this process."""

from functools import partial

import pytest
from quick import config_of, play_round, prepared

from gapsl.fleets.base import FleetEvents
from gapsl.fleets.local import ReplayFleet
from gapsl.run.build import make_parts, make_training
from gapsl.run.local_fleet import make_fleet

WORDS = {
    "method": "sfl",
    "sfl": {"interval": 3},
    "rounds": 4,
    "device_optimizer": {"lr": 0.1, "momentum": 0.9},
}
DEVICE, BACK, AVERAGED = 1, 2, 3  # which goes back to the state after round 2, in the round of the averaging


def replayed(happened):
    parts = make_parts(config_of(**WORDS))
    training = make_training(parts, make_fleet(parts, kind=partial(ReplayFleet, happened, [])))
    training.run()
    return training.fleet.digests()


def by_hand(when):
    """The same, with the device's state put back by hand."""
    training = prepared(**WORDS)
    device, average = training.fleet._devices[DEVICE], training.fleet.average
    kept = {}
    averagings = iter(range(AVERAGED, WORDS["rounds"] + 1))  # after round 3, and at the end

    def restore():
        device.load({name: tensor.clone() for name, tensor in kept.items()})

    def averaged(weights):
        if when == "between" and next(averagings) == AVERAGED:
            restore()
        average(weights)

    training.fleet.average = averaged
    for round in range(1, WORDS["rounds"] + 1):
        if when == "before" and round == AVERAGED:
            restore()
        play_round(training, round)
        if when == "after" and round == AVERAGED:
            restore()
        if round == BACK:
            kept.update({name: tensor.clone() for name, tensor in device.tensors().items()})
    return training.fleet.digests()


@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_a_device_goes_back_when_it_did(when):
    assert replayed({AVERAGED: FleetEvents(**{f"restored_{when}": {DEVICE: BACK}})}) == by_hand(when)


def test_when_it_goes_back_matters():
    between = replayed({AVERAGED: FleetEvents(restored_between={DEVICE: BACK})})
    after = replayed({AVERAGED: FleetEvents(restored_after={DEVICE: BACK})})
    assert between != after
