"""What a device makes of commands that come again, come late or teach it nothing."""

import pytest
import torch

from gapsl.common.errors import Unavailable
from gapsl.network.device.agent import Agent
from gapsl.network.device.device_data import load_device_data
from gapsl.network.device.member import Member
from gapsl.network.device.store import Store
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError
from gapsl.run.api import compose

SETTINGS = {
    "dataset": "digits", "train_samples": 120, "test_samples": 40, "partition": "iid", "devices": 3,
    "batch_size": 4, "model": "mlp", "width": 0.25, "rounds": 4,
}  # fmt: skip


@pytest.fixture
def member(tmp_path):
    config = compose(words=SETTINGS).for_device()
    welcome = wire.Welcome(config=config, device=1, run="r1", activations=wire.PLAIN, gradients=wire.PLAIN)
    member = Member(load_device_data(welcome), Store(tmp_path / "state"), welcome)
    list(member.carry_out(wire.ToDevice(begin=wire.Begin(total_rounds=4, generation=7)), None))
    return member


def forward(member, round, *, learn):
    command = wire.ToDevice(forward=wire.Forward(round=round, learn=learn))
    message, *payload = member.carry_out(command, None)
    message.upload.ClearField("forward_seconds")
    return message.upload, b"".join(payload)


def backward(member, round, **more):
    list(member.carry_out(wire.ToDevice(backward=wire.Backward(round=round, **more)), None))


@pytest.mark.parametrize("learn", [True, False])
def test_an_upload_that_is_asked_for_again_is_the_same(member, learn):
    first = forward(member, 1, learn=learn)
    assert member.ready().ready.waiting
    assert forward(member, 1, learn=learn) == first
    assert member.device.batches.drawn == 1


@pytest.mark.parametrize("learn", [True, False])
def test_an_upload_that_came_late_was_never_drawn(member, learn):
    first = forward(member, 1, learn=learn)
    backward(member, 1, late=True)
    assert member.device.batches.drawn == 0
    assert not member.ready().ready.waiting
    assert forward(member, 1, learn=learn) == first


def test_an_upload_that_teaches_nothing_is_over_when_the_server_has_it(member):
    before = {name: value.clone() for name, value in member.device.tensors().items()}
    forward(member, 1, learn=False)
    backward(member, 1)
    assert not member.ready().ready.waiting
    after = member.device.tensors()
    assert int(after.pop("drawn")) == 1 and int(before.pop("drawn")) == 0
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_a_set_that_the_device_does_not_have_is_refused(member):
    with pytest.raises(WireError, match="no evaluation set"):
        list(member.carry_out(wire.ToDevice(evaluate=wire.Evaluate(set=wire.Evaluate.OWN)), None))


def test_what_cannot_be_kept_is_said_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Unavailable, match="make room"):
        Store(tmp_path / "file" / "state").kept(0, 0, torch.zeros(1))
    with pytest.raises(Unavailable, match="cannot keep"):
        Store(tmp_path / "state").kept(0, 0, None)


@pytest.mark.parametrize("run", ["../elsewhere", "", "a/b"])
def test_a_run_whose_name_leads_elsewhere_is_not_joined(tmp_path, run):
    agent = Agent("nowhere:1", "cam", state=tmp_path, load_data=lambda welcome: None)
    with pytest.raises(WireError, match="no name of a run"):
        agent._welcomed(wire.Welcome(run=run))
