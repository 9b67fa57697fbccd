"""Planted mistakes leave the bands: what test_learning.py would not notice, it would not protect.

Each mistake replaces a real function of gapsl by a wrong one and trains as test_learning.py does.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import record
import torch

from gapsl.alignment import Alignment, direction, leader, sum_of_rows
from gapsl.common.errors import TrainingStopped
from gapsl.device import probe_alignment
from gapsl.device.device import Device
from gapsl.device.exchange import Exchange, Reply
from gapsl.device.probe_alignment import solve_for_outputs
from gapsl.fleets.local import LocalFleet
from gapsl.methods import ablations
from gapsl.methods import gapsl as gapsl_file
from gapsl.methods.ablations import FixedRatio, Single
from gapsl.methods.base import Parallel
from gapsl.methods.central import Central
from gapsl.methods.epsl import Epsl
from gapsl.methods.frozen import Frozen
from gapsl.methods.gapsl import Gapsl
from gapsl.methods.psl import Psl
from gapsl.methods.server_model import ServerModel, cross_entropy
from gapsl.methods.sfl import ClientAveraging, Sfl
from gapsl.methods.sfl_v2 import SflV2
from gapsl.methods.vanilla import Vanilla
from gapsl.options import calibration, probes
from gapsl.options.balance import BalancedCrossEntropy
from gapsl.options.calibration import log_frequencies
from gapsl.options.probes import pulls

Patch = pytest.MonkeyPatch
ENOUGH = 3  # bands: where a mistake has to be at least, so that no rounding brings it back


# --- the regulariser ---


def change_penalty(patch: Patch, change: Callable) -> None:
    right = ServerModel.penalty

    def penalty(self, contribution, leader, mode):
        pull, derivative = right(self, contribution, leader, mode)
        return pull, None if derivative is None else change(*derivative)

    patch.setattr(ServerModel, "penalty", penalty)


def penalty_sign_flipped(patch: Patch) -> None:
    change_penalty(patch, lambda weights, activations: (-weights, -activations))


def penalty_detached(patch: Patch) -> None:
    change_penalty(patch, lambda weights, activations: None)


def penalty_misses_the_weights(patch: Patch) -> None:
    change_penalty(patch, lambda weights, activations: (torch.zeros_like(weights), activations))


def penalty_misses_the_activations(patch: Patch) -> None:
    change_penalty(patch, lambda weights, activations: (weights, torch.zeros_like(activations)))


def other_dropout_masks_in_the_second_pass(patch: Patch) -> None:
    for name in ("_exact", "_finite"):

        def wrong(self, contribution, direction, right=getattr(ServerModel, name)):
            self.seed += 1
            try:
                return right(self, contribution, direction)
            finally:
                self.seed -= 1

        patch.setattr(ServerModel, name, wrong)


# --- who leads ---


def scores_sorted_the_other_way(patch: Patch) -> None:
    right = leader.select
    patch.setattr(leader, "select", lambda scores, ratio, nonzero: right(-scores, ratio, nonzero=nonzero))


def leader_is_the_mean_of_all(patch: Patch) -> None:
    right = leader.mean_of_rows
    patch.setattr(leader, "mean_of_rows", lambda rows, members: right(rows, range(len(rows))))


def leader_is_a_sum(patch: Patch) -> None:
    patch.setattr(leader, "mean_of_rows", sum_of_rows)


def spread_not_carried_over(patch: Patch) -> None:
    right = Gapsl.identify

    def identify(self, round, gradients):
        self.spread = None
        return right(self, round, gradients)

    patch.setattr(Gapsl, "identify", identify)


def ratio_does_not_grow_with_the_rounds(patch: Patch) -> None:
    right = leader.selection_ratio
    patch.setattr(
        leader,
        "selection_ratio",
        lambda *given, **named: right(*given, **{**named, "round": 1, "total_rounds": 1}),
    )


def sample_deviation_of(module):
    def mistake(patch: Patch) -> None:
        right = torch.Tensor.std

        def std(self, *given, **named):
            if sys._getframe(1).f_globals["__name__"] == module.__name__:
                named["correction"] = 1
            return right(self, *given, **named)

        patch.setattr(torch.Tensor, "std", std)

    mistake.__name__ = f"sample_deviation_in_{module.__name__.rpartition('.')[2]}"
    return mistake


def leaders_not_drawn(patch: Patch) -> None:
    patch.setattr(ablations.RandLgi, "identify", Gapsl.identify)


def same_leaders_drawn_every_round(patch: Patch) -> None:
    right = ablations.random_subset
    patch.setattr(ablations, "random_subset", lambda *given, round: right(*given, round=1))


def ratio_not_fixed(patch: Patch) -> None:
    patch.setattr(FixedRatio, "identify", Gapsl.identify)


def not_everybody_leads(patch: Patch) -> None:
    patch.setattr(ablations.NonLgi, "identify", Gapsl.identify)


# --- who is kept ---


def exclusion_inverted(patch: Patch) -> None:
    right = direction.keep_within

    def keep_within(angles, threshold):
        found = right(angles, threshold)
        beyond = tuple(i for i in range(len(angles)) if i not in found.kept)
        return Alignment(angles, threshold, beyond or found.kept)

    patch.setattr(direction, "keep_within", keep_within)
    patch.setattr(ablations, "keep_within", keep_within)


def nobody_excluded(patch: Patch) -> None:
    right = gapsl_file.align
    patch.setattr(gapsl_file, "align", lambda *given, **named: gapsl_file.everybody(right(*given, **named)))


def threshold_above_the_mean(patch: Patch) -> None:
    right = gapsl_file.align
    patch.setattr(gapsl_file, "align", lambda gradients, leader, eta: right(gradients, leader, eta=-eta))


def threshold_not_fixed(patch: Patch) -> None:
    patch.setattr(ablations.FixedThreshold, "select", Gapsl.select)


def excluded_devices_step(patch: Patch) -> None:
    """Their gradient is zero, but their momentum moves them."""
    patch.setattr(gapsl_file, "nothing", lambda upload: Reply(torch.zeros_like(upload.activations)))


def excluded_devices_get_nothing(patch: Patch) -> None:
    """Although `excluded` is "plain"."""
    right = Gapsl.combine

    def combine(self, round, contributions, gradients):
        outcome = right(self, round, contributions, gradients)
        kept = list(outcome.selection.kept)
        skip = {c.device: gapsl_file.nothing(c.upload) for c in contributions if c.device not in kept}
        return replace(outcome, replies={**outcome.replies, **skip})

    patch.setattr(Gapsl, "combine", combine)


def kept_not_drawn(patch: Patch) -> None:
    patch.setattr(ablations.RandGda, "select", Gapsl.select)


def same_kept_drawn_every_round(patch: Patch) -> None:
    right = ablations.random_subset
    patch.setattr(ablations, "random_subset", lambda *given, round: right(*given, round=1))


def server_steps_on_everybody(patch: Patch) -> None:
    """Although without GDA it is the leader's gradient alone."""
    right = Gapsl.identify

    def identify(self, round, gradients):
        found = right(self, round, gradients)
        return replace(found, gradient=leader.mean_of_rows(gradients, range(len(gradients))))

    patch.setattr(ablations.NonGda, "identify", identify)


# --- the scale of gradients ---


def reduced_the_other_way(patch: Patch) -> None:
    def reduce(self, gradients, contributions, rows=None):
        rows = range(len(contributions)) if rows is None else rows
        total = leader.mean_of_rows(gradients, rows)
        return total * len(rows) if self.run.reduction == "mean" else total

    patch.setattr(Parallel, "reduce", reduce)


def devices_get_their_own_gradient(patch: Patch) -> None:
    patch.setattr(Parallel, "reply", lambda self, gradient, device, members: Reply(gradient))


def devices_get_the_mean_whatever_the_reduction(patch: Patch) -> None:
    patch.setattr(Parallel, "reply", lambda self, gradient, device, members: Reply(gradient / len(members)))


def devices_scaled_by_all_instead_of_the_kept(patch: Patch) -> None:
    def reply(self, gradient, device, members):
        return Reply(gradient / len(self.run.devices))

    patch.setattr(Parallel, "reply", reply)


# --- the other methods ---


def broadcast_scaled(patch: Patch) -> None:
    right = Epsl._through_mean

    def through_mean(self, waiting, shared, mean_of):
        on_weights, broadcast = right(self, waiting, shared, mean_of)
        return on_weights, broadcast / len(waiting)

    patch.setattr(Epsl, "_through_mean", through_mean)


def averaged_rows_scaled_on_the_server(patch: Patch) -> None:
    right = Epsl._through_mean

    def through_mean(self, waiting, shared, mean_of):
        on_weights, broadcast = right(self, waiting, shared, mean_of)
        return on_weights / len(waiting), broadcast

    patch.setattr(Epsl, "_through_mean", through_mean)


def rows_averaged_by_data(patch: Patch) -> None:
    def mean(self, devices, tensors):
        samples = [self.run.devices[device].samples for device in devices]
        return sum(n / sum(samples) * t.detach() for n, t in zip(samples, tensors, strict=True))

    patch.setattr(Epsl, "_mean", mean)


def models_averaged_unweighted(patch: Patch) -> None:
    right = ClientAveraging.weights
    patch.setattr(ClientAveraging, "weights", lambda self: dict.fromkeys(right(self), 1.0))


def client_models_not_averaged(patch: Patch) -> None:
    patch.setattr(LocalFleet, "average", lambda self, weights: None)


def server_copies_not_averaged(patch: Patch) -> None:
    patch.setattr(Sfl, "average", ClientAveraging.average)


def devices_always_in_the_same_order(patch: Patch) -> None:
    right = SflV2.step

    def step(self, round, exchange, uploads, *, measure=False):
        return right(self, 1, exchange, uploads, measure=measure)

    patch.setattr(SflV2, "step", step)


def client_model_not_handed_over(patch: Patch) -> None:
    patch.setattr(LocalFleet, "hand_over", lambda self, source, target: None)


def turns_of_one_batch(patch: Patch) -> None:
    patch.setattr(Vanilla, "_turn_of", lambda self, device: 1)


def frozen_devices_learn(patch: Patch) -> None:
    patch.setattr(Frozen, "exchanges", Psl.exchanges)
    patch.setattr(Frozen, "step", Psl.step)


def one_batch_a_round(patch: Patch) -> None:
    def exchanges(self, round, present):
        (self.holder,) = present
        yield Exchange((self.holder,), 0)

    patch.setattr(Central, "exchanges", exchanges)


def devices_do_not_learn(patch: Patch) -> None:
    patch.setattr(Device, "backward", lambda self, round, reply: None)


def everybody_trains(patch: Patch) -> None:
    patch.setattr(Single, "exchanges", Psl.exchanges)


def frequencies_of_the_wrong_sign(patch: Patch) -> None:
    patch.setattr(calibration, "log_frequencies", lambda counts: -log_frequencies(counts))


def pulled_away(patch: Patch) -> None:
    patch.setattr(probes, "pulls", lambda seen, leader, weight: pulls(seen, leader, -weight))


def frequencies_taken_out_of_the_servers_loss(patch: Patch) -> None:
    own = property(lambda self: self.device_loss, lambda self, value: None)
    patch.setattr(ServerModel, "loss", own, raising=False)


def balance_cancelled(patch: Patch) -> None:
    patch.setattr(BalancedCrossEntropy, "__call__", lambda self, *batch: cross_entropy(*batch))


def everybody_leads(patch: Patch) -> None:
    patch.setattr(probes, "members_of", lambda seen, angles, share: tuple(sorted(seen)))


def those_that_agree_least_lead(patch: Patch) -> None:
    right = probes.members_of
    patch.setattr(probes, "members_of", lambda seen, angles, share: right(seen, math.pi - angles, share))


def one_step_of_solving(patch: Patch) -> None:
    patch.setattr(probe_alignment, "solve_for_outputs", lambda *given: solve_for_outputs(*given[:-1], 1))


def nobody_is_aligned(patch: Patch) -> None:
    patch.setattr(probe_alignment, "align", lambda *given: None)


def everybody_weighs_the_same(patch: Patch) -> None:
    patch.setattr(Parallel, "divisor", lambda self, device, members: len(members))


MISTAKES: Mapping[str, list[Callable[[Patch], None]]] = {
    "gapsl exact": [
        penalty_sign_flipped,
        penalty_detached,
        penalty_misses_the_weights,
        penalty_misses_the_activations,
    ],
    "gapsl finite": [penalty_sign_flipped, penalty_detached],
    "gapsl exact dropout": [other_dropout_masks_in_the_second_pass],
    "gapsl finite dropout": [other_dropout_masks_in_the_second_pass],
    "gapsl": [
        penalty_sign_flipped,
        penalty_detached,
        exclusion_inverted,
        nobody_excluded,
        threshold_above_the_mean,
        excluded_devices_step,
        scores_sorted_the_other_way,
        leader_is_the_mean_of_all,
        spread_not_carried_over,
        ratio_does_not_grow_with_the_rounds,
        sample_deviation_of(leader),
        sample_deviation_of(direction),
        reduced_the_other_way,
        devices_get_their_own_gradient,
        devices_scaled_by_all_instead_of_the_kept,
    ],
    "gapsl plain": [excluded_devices_get_nothing],
    "gapsl/non-lgi": [not_everybody_leads, exclusion_inverted],
    "gapsl/rand-lgi": [leaders_not_drawn, same_leaders_drawn_every_round],
    "gapsl/non-gda": [leader_is_a_sum, server_steps_on_everybody, scores_sorted_the_other_way],
    "gapsl/rand-gda": [kept_not_drawn, same_kept_drawn_every_round],
    "gapsl/fixed-ratio": [ratio_not_fixed, scores_sorted_the_other_way],
    "gapsl/fixed-threshold": [exclusion_inverted, threshold_not_fixed],
    "psl": [reduced_the_other_way, devices_get_their_own_gradient, devices_do_not_learn],
    "psl sum": [reduced_the_other_way, devices_get_the_mean_whatever_the_reduction],
    "psl samples": [everybody_weighs_the_same, devices_get_the_mean_whatever_the_reduction],
    "gapsl samples": [everybody_weighs_the_same],
    "epsl": [broadcast_scaled, averaged_rows_scaled_on_the_server, rows_averaged_by_data],
    "epsl per-device": [rows_averaged_by_data],
    "sfl": [models_averaged_unweighted, client_models_not_averaged, server_copies_not_averaged],
    "sfl-v2": [models_averaged_unweighted, devices_always_in_the_same_order],
    "vanilla": [client_model_not_handed_over, turns_of_one_batch],
    "frozen": [frozen_devices_learn],
    "central": [one_batch_a_round],
    "single": [everybody_trains],
    "psl prior": [frequencies_of_the_wrong_sign],
    "psl together": [pulled_away, frequencies_taken_out_of_the_servers_loss, balance_cancelled],
    "psl meeting": [everybody_leads, those_that_agree_least_lead, one_step_of_solving, nobody_is_aligned],
}


# Enough for `make test` is a mistake of every kind; `make test-all` plants all.
SOME = {
    ("gapsl exact", penalty_sign_flipped),
    ("gapsl", exclusion_inverted),
    ("gapsl", leader_is_the_mean_of_all),
    ("psl", reduced_the_other_way),
    ("epsl", broadcast_scaled),
    ("sfl", models_averaged_unweighted),
    ("vanilla", client_model_not_handed_over),
    ("psl prior", frequencies_of_the_wrong_sign),
    ("psl meeting", nobody_is_aligned),
}


@pytest.mark.parametrize(
    ("case", "mistake"),
    [
        pytest.param(
            case,
            mistake,
            id=f"{case}-{mistake.__name__}",
            marks=[] if (case, mistake) in SOME else [pytest.mark.slow],
        )
        for case, mistakes in MISTAKES.items()
        for mistake in mistakes
    ],
)
def test_a_planted_mistake_leaves_the_band(case, mistake, monkeypatch):
    name = f"float64/{case}"
    mistake(monkeypatch)
    try:
        found = record.summarise(*record.run(record.CASES[name]))
    except TrainingStopped:
        return  # it diverged, which is far enough
    far = record.deviations(name, found, record.references()[name])
    assert max(far.values()) > ENOUGH, far


def test_every_method_has_its_mistakes():
    assert {case for case, mistake in SOME if mistake in MISTAKES[case]} == {case for case, _ in SOME}
    assert {f"float64/{case}" for case in MISTAKES} == {n for n in record.CASES if n.startswith("float64/")}
