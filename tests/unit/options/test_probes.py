"""Probe alignment: devices are pulled towards what the leaders make of the same pictures on average."""

import math
from dataclasses import replace

import pytest
import torch

from gapsl.device.exchange import Exchange, Outcome, Reply, Upload
from gapsl.methods import Strategy
from gapsl.options.probes import ProbeAlignment, angles_of, apart, leader_of, members_of, pulls


def seen(devices=3, seed=0):
    torch.manual_seed(seed)
    return {device: torch.randn(2, 4, dtype=torch.float64) for device in range(devices)}


def everybody(found):
    return leader_of(found, sorted(found))


def test_the_leader_is_the_mean_of_those_who_lead():
    found = seen()
    assert torch.allclose(leader_of(found, (0, 2)), (found[0] + found[2]) / 2)
    assert torch.allclose(everybody(found), torch.stack(list(found.values())).mean(dim=0))


def test_the_pull_is_the_gradient_of_the_relative_squared_distance_with_the_leader_held():
    found = seen()
    leader = everybody(found)
    for device, pull in pulls(found, leader, 7.0).items():
        leaf = found[device].clone().requires_grad_()
        loss = 7.0 / 2 * (leaf - leader).square().sum() / leader.square().sum()
        (expected,) = torch.autograd.grad(loss, leaf)
        assert torch.allclose(pull, expected)


def test_parts_that_agree_are_left_alone_and_pulls_add_up_to_nothing():
    same = dict.fromkeys(range(3), torch.ones(2, 4))
    assert all(torch.equal(pull, torch.zeros(2, 4)) for pull in pulls(same, everybody(same), 5.0).values())
    assert apart(same, everybody(same)) == 0
    total = sum(pulls(seen(), everybody(seen()), 5.0).values())
    assert total.abs().max() < 1e-12


def test_how_far_apart_is_relative_to_the_leader():
    found = seen()
    leader = everybody(found)
    expected = (sum((a - leader).norm() ** 2 for a in found.values()) / 3).sqrt() / leader.norm()
    assert apart(found, leader) == pytest.approx(expected.item())
    tenfold = {d: 10 * a for d, a in found.items()}
    assert apart(tenfold, 10 * leader) == pytest.approx(apart(found, leader))


def test_one_device_leads_itself():
    alone = {4: torch.ones(2, 4)}
    assert torch.equal(pulls(alone, everybody(alone), 5.0)[4], torch.zeros(2, 4))
    assert members_of(alone, angles_of(alone), 0.2) == (4,)


def test_those_who_agree_lead_or_the_share_of_them_that_agrees_most_and_a_broken_device_does_not():
    torch.manual_seed(0)
    common = torch.randn(2, 40)
    found = {device: common + 0.1 * torch.randn(2, 40) for device in (1, 3, 4, 7, 9)}
    found[3] = torch.randn(2, 40)
    found[7] = torch.zeros(2, 40)
    angles = angles_of(found)
    assert members_of(found, angles, 1.0) == (1, 4, 9)
    assert members_of(found, angles, 0.6) == (1, 4, 9)
    assert set(members_of(found, angles, 0.2)) < {1, 4, 9}


@pytest.mark.parametrize("louder", [1000.0, 2.1, 0.4, 0.0])
def test_who_is_much_louder_or_quieter_than_usual_does_not_lead_however_it_agrees(louder):
    torch.manual_seed(2)
    base = torch.randn(2, 40)
    found = {device: base + 0.1 * torch.randn(2, 40) for device in range(4)}
    found[4] = louder * base  # nearest to what all others make of the probes
    members = members_of(found, angles_of(found), 0.6)
    assert len(members) == 3 and 4 not in members
    found[4] = 1.5 * base
    assert 4 in members_of(found, angles_of(found), 0.6)


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize(("broken", "devices"), [(0, 10), (1, 10), (4, 10), (4, 9), (2, 5), (1, 3)])
def test_noise_leads_nobody_and_everybody_else_leads_while_fewer_than_half_send_it(broken, devices, alike):
    torch.manual_seed(3)
    common = torch.rand(2, 400)
    found = {d: common + 0.05 * torch.randn(2, 400) for d in range(devices)}
    for device in range(broken):
        noise = torch.randn(2, 400) * common.std() + common.mean()
        found[device] = found[0] if alike and device else noise
    assert members_of(found, angles_of(found), 1.0) == tuple(range(broken, devices))


def turned(degrees):
    """Return an activation turned by so much from that of degree 0."""
    return torch.tensor([[math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), 0.0]])


@pytest.mark.parametrize(("degrees", "leads"), [(15, True), (25, False)])
def test_within_twenty_degrees_of_most_others_devices_agree(degrees, leads):
    found = {**{d: turned(d) for d in range(4)}, 4: turned(degrees)}
    assert (4 in members_of(found, angles_of(found), 1.0)) == leads


def test_where_models_are_apart_as_a_rule_only_what_is_three_times_as_far_is_far_off():
    torch.manual_seed(5)
    common = torch.rand(2, 400)
    found = {d: common + 0.17 * torch.randn(2, 400) for d in range(5)}  # at about 25 degrees to each other
    found[5] = 0.6 * torch.randn(2, 400)
    assert members_of(found, angles_of(found), 1.0) == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("louder", [1000.0, 1.0, 0.001])
def test_of_two_devices_both_lead_since_nobody_knows_which_is_far_off(louder):
    found = {0: turned(0), 1: louder * turned(60)}
    assert members_of(found, angles_of(found), 1.0) == (0, 1)


def test_of_a_few_sound_devices_all_lead_though_two_of_them_are_nearer_to_each_other():
    torch.manual_seed(4)
    common = torch.rand(2, 400)
    found = {d: common + noise * torch.randn(2, 400) for d, noise in enumerate((0.001, 0.001, 0.1))}
    assert members_of(found, angles_of(found), 1.0) == (0, 1, 2)


class Answering(Strategy):
    """A method that answers every device with its number, and notes what it was given."""

    def __init__(self, outcome=None):
        super().__init__(server=None, run=None)
        self.outcome, self.given = outcome, []

    def step(self, round, exchange, uploads, *, measure=False):
        self.given = list(uploads)
        replies = {u.device: Reply(torch.full((3, 4), float(u.device))) for u in self.given}
        return self.outcome or Outcome(replies, dict.fromkeys(replies, 1.0))


def uploads(devices=3):
    torch.manual_seed(1)
    labels = torch.tensor([0, 1, 2])
    return [Upload.unpack(device, 1, 0, torch.randn(5, 4), labels, 2) for device in range(devices)]


def answered(given, *, method=None, **settings):
    exchange = Exchange(tuple(u.device for u in given))
    return ProbeAlignment(method or Answering(), 3.0, **settings).step(1, exchange, given)


def test_the_record_says_who_leads_unless_all_do():
    for share, led in ((1.0, False), (0.5, True)):
        probes = answered(uploads(), share=share).probes
        assert probes.apart > 0 and sorted(probes.scores) == [0, 1, 2]
        assert (probes.leaders is not None) == led


def test_who_is_far_off_is_pulled_to_the_others_and_pulls_nobody():
    seen = {d: torch.full((2, 4), 10.0 if d == 2 else 1 + d / 100) for d in range(4)}
    given = [replace(upload, probes=seen[upload.device]) for upload in uploads(4)]
    outcome = answered(given)
    assert outcome.probes.leaders == (0, 1, 3)
    expected = pulls(seen, leader_of(seen, (0, 1, 3)), 3.0)
    assert all(torch.equal(reply.pull, expected[device]) for device, reply in outcome.replies.items())


def test_a_method_sees_samples_alone_and_the_pull_is_added_to_its_replies():
    given, method = uploads(), Answering()
    outcome = answered(given, method=method)
    assert all(u.labels.tolist() == [0, 1, 2] and u.activations.shape == (3, 4) for u in method.given)
    probes = {u.device: u.probes for u in given}
    expected = pulls(probes, everybody(probes), 3.0)
    for device, reply in outcome.replies.items():
        assert torch.equal(reply.gradient, torch.full((3, 4), float(device)))
        assert torch.equal(reply.pull, expected[device])
    assert outcome.probes.apart > 0


def test_a_device_that_was_left_out_is_led_back_and_one_that_is_not_finite_skips():
    given = uploads(4)
    given[2].activations[0] = float("nan")
    given[0].probes[-1] = float("inf")
    replies = {u.device: Reply(torch.zeros(3, 4), step=u.device == 0) for u in given}
    left = Answering(Outcome(replies, {0: 1.0, 1: 1.0, 3: 1.0}, skipped={2: "left out"}))
    outcome = answered(given, method=left)
    assert [outcome.replies[d].step for d in range(4)] == [False, True, False, True]
    assert sorted(outcome.skipped) == [0, 2]
    assert outcome.replies[1].pull.abs().max() > 0
    for device in (0, 2):
        assert torch.equal(outcome.replies[device].pack(), torch.zeros(5, 4))
