"""The server's fleet, event by event: who is waited for, who is answered late, and who is cut off."""

import math
import time

import pytest
import torch

from gapsl.common.errors import Rewind, Stopped, Unavailable
from gapsl.device.exchange import Exchange, Reply
from gapsl.fleets.base import Away, FleetEvents
from gapsl.fleets.remote import RemoteFleet
from gapsl.network.protocol import settings
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.contract import TensorContract
from gapsl.network.protocol.settings import parse_round_policy
from gapsl.network.server import device_link, dispatcher
from gapsl.network.server.device_link import late
from gapsl.network.server.fleet_state import FleetState
from gapsl.network.server.service import Roster
from gapsl.network.server.session import GIVES_UP, Answered, ExpectedAnswer, Inbox, Joined, Left, Session

NAMES = ("cam", "mic")
READY = {"samples": 3, "label_counts": [1, 2], "batches_per_pass": 2}
HEADER = wire.Tensor(dtype=wire.FLOAT32, shape=[2, 5], codec=wire.PLAIN, bytes=40)


class Told:
    """A fleet without a network: the test says what sessions say, and sees what they are told."""

    def __init__(self, closing="all", patience=5.0, stop=lambda: False, path=None, least=1, **agreed):
        self.inbox, self.said = Inbox(), []
        self.memory = FleetState(path, NAMES)
        asking = dispatcher.Dispatcher(
            Roster(NAMES, self.inbox),
            self.memory,
            TensorContract(wire.FLOAT32, (5,), 2, 8, 2, **agreed),
            policy=parse_round_policy(closing, least=least),
            total_rounds=9,
            patience=patience,
            stop=stop,
            tell=self.said.append,
        )
        self.fleet = RemoteFleet(asking, merges=False, sizes={wire.Evaluate.TEST: 11})
        self.sessions = {}

    def joins(self, device, **ready):
        self.sessions[device] = Session(device, NAMES[device], self.inbox)
        self.inbox.put(Joined(self.sessions[device], wire.Ready(**{**READY, **ready})))

    def leaves(self, device):
        self.inbox.put(Left(self.sessions[device], "the link broke"))

    def answers(self, device, answer, tensor=None, labels=None):
        self.inbox.put(Answered(self.sessions[device], answer, tensor, labels))

    def uploads(self, device, round, turn=0):
        upload = wire.Upload(round=round, turn=turn, activations=HEADER, labels=[0, 1])
        self.answers(device, upload, torch.zeros(2, 5), torch.tensor([0, 1]))

    def told(self, device):
        """Return what a session was told so far, and end it."""
        self.sessions[device].close()
        return [m for m in self.sessions[device].outgoing() if not isinstance(m, memoryview)]

    def begin(self):
        """Let both devices join and begin from the start."""
        for device in (0, 1):
            self.joins(device)
        self.fleet.dispatcher.gather()
        for device in (0, 1):
            self.answers(device, wire.Done())
        self.fleet.load(None, 0)
        if not self.inbox.empty():  # a run that does not wait has not heard that they have begun
            for _ in NAMES:
                self.fleet.dispatcher.step()
        return self


def kinds(messages):
    return [message.WhichOneof("message") for message in messages]


ROUND = Exchange((0, 1), 0)


# --- who is waited for


def test_everybody_is_waited_for_at_the_start():
    told = Told()
    told.joins(1)
    told.joins(0)
    told.fleet.dispatcher.gather()
    assert set(told.fleet.devices) == {0, 1}
    assert told.said == ["mic connected", "cam connected"]


def test_who_is_missing_is_said_and_waited_for_so_long(monkeypatch):
    monkeypatch.setattr(device_link, "REMIND", 0.0)
    told = Told(patience=0.7)
    told.joins(0)
    with pytest.raises(Unavailable, match="nothing from mic for 1 s; nothing is lost: start who is away"):
        told.fleet.dispatcher.gather()
    assert "waiting for mic" in told.said


def test_visits_that_mean_nothing_are_not_news(monkeypatch):
    told = Told(patience=0.5)
    visitor = Session(1, "mic", told.inbox)
    for _ in range(3000):
        told.inbox.put(Left(visitor, "it closed its stream"))
    with pytest.raises(Unavailable, match="nothing from cam, mic"):
        told.fleet.dispatcher.gather()


def test_a_stop_is_heard_while_somebody_is_away():
    told = Told(stop=lambda: True)
    with pytest.raises(Stopped):
        told.fleet.dispatcher.gather()


@pytest.mark.parametrize(
    ("closing", "at_once"),
    [("all", True), ("fraction:0.5", False), ("fraction:0.9", True), ("deadline:9", False)],
)
def test_a_stop_waits_for_the_end_of_a_round_if_enough_are_there(closing, at_once):
    stops = []
    told = Told(closing, stop=lambda: bool(stops), patience=0.3).begin()
    told.leaves(0)
    told.fleet.dispatcher.step()
    stops.append(True)
    with pytest.raises(Stopped if at_once else Unavailable):
        told.fleet.dispatcher.step()


def test_a_device_with_other_data_is_refused_and_the_others_are_waited_for(tmp_path):
    before = Told(path=tmp_path / "fleet.json").begin()
    told = Told(path=tmp_path / "fleet.json")
    assert told.fleet.devices == before.fleet.devices
    told.joins(0, label_counts=[2, 1])
    refused = told.sessions[0]
    told.joins(1)
    told.joins(0)
    told.fleet.dispatcher.gather()
    refused.close()
    assert next(refused.outgoing()).refusal.reason == wire.OTHER_DATA
    assert "cam is refused: the data are not those that the run began with" in told.said[0]


# --- a round


def test_uploads_are_given_as_they_arrive():
    told = Told().begin()
    told.uploads(1, 1)
    told.uploads(0, 1)
    assert [upload.device for upload in told.fleet.collect(1, ROUND)] == [1, 0]
    assert told.fleet.traffic.sent == {0: 40 + 16, 1: 40 + 16}
    assert told.fleet.drain_events() == FleetEvents()


def test_a_fraction_closes_without_the_rest_and_says_who_that_was():
    told = Told("fraction:0.5").begin()
    told.uploads(1, 1)
    assert [upload.device for upload in told.fleet.collect(1, ROUND)] == [1]
    assert told.fleet.drain_events() == FleetEvents(absent={0: (0,)})


def test_a_quorum_waits_for_everybody_first_and_closes_without_the_late_when_it_knows_the_pace(monkeypatch):
    monkeypatch.setattr(settings, "SOONEST", 0.05)
    told = Told("quorum:0.5").begin()
    for round in (1, 2, 3):
        told.uploads(1, round)
        told.uploads(0, round)
        assert len(list(told.fleet.collect(round, ROUND))) == 2
    told.uploads(1, 4)
    assert [upload.device for upload in told.fleet.collect(4, ROUND)] == [1]
    assert told.fleet.drain_events() == FleetEvents(absent={0: (0,)})


def test_who_is_late_is_told_so_before_it_is_asked_for_anything_else():
    told = Told("fraction:0.5").begin()
    told.uploads(1, 1)
    list(told.fleet.collect(1, ROUND))
    told.uploads(0, 1)  # late, while the checkpoint is asked for
    told.answers(1, wire.Done())
    told.answers(0, wire.Done())
    told.fleet.save(None, 1)
    commands = told.told(0)
    assert kinds(commands) == ["begin", "forward", "backward", "save"]
    assert commands[2] == late(1, 0)


def test_who_still_owes_an_upload_is_not_asked_for_another():
    told = Told("fraction:0.5").begin()
    for round in (1, 2, 3):
        told.uploads(1, round)
        list(told.fleet.collect(round, ROUND))
    assert kinds(told.told(0)) == ["begin", "forward"]


def test_a_device_that_left_and_came_back_is_asked_again():
    told = Told().begin()
    told.leaves(0)
    told.uploads(1, 1)
    uploads = told.fleet.collect(1, ROUND)
    assert next(uploads).device == 1
    told.joins(0, generation=told.memory.generations.current)
    told.uploads(0, 1)
    assert [upload.device for upload in uploads] == [0]
    assert kinds(told.told(0)) == ["forward"]


def test_a_link_that_breaks_between_upload_and_reply_costs_the_device_nothing():
    told = Told().begin()
    told.uploads(0, 1)
    uploads = told.fleet.collect(1, ROUND)
    assert next(uploads).device == 0
    told.leaves(0)
    told.joins(0, generation=told.memory.generations.current, round=1, waiting=True)
    told.uploads(1, 1)
    assert [upload.device for upload in uploads] == [1]
    told.fleet.deliver(1, {device: Reply(torch.ones(2, 5), True) for device in (0, 1)})
    commands = told.told(0)
    assert kinds(commands) == ["backward"] and commands[0].backward.step and not commands[0].backward.late


# --- going back


def test_a_device_without_its_memory_takes_all_back_where_all_are_waited_for():
    told = Told().begin()
    told.leaves(0)
    told.joins(0)
    with pytest.raises(Rewind, match="cam restarted and lost what it had in memory"):
        list(told.fleet.collect(1, ROUND))


def test_going_back_does_not_wait_for_what_was_asked_before_the_device_was_killed():
    told = Told().begin()
    told.leaves(0)
    told.joins(0)
    with pytest.raises(Rewind):  # cam owes its upload
        list(told.fleet.collect(1, ROUND))
    told.uploads(1, 1)  # was on its way
    told.answers(0, wire.Done())
    told.answers(1, wire.Done())
    told.fleet.load(None, 0)
    assert kinds(told.told(0)) == ["begin"]
    assert kinds(told.told(1)) == ["begin", "forward", "begin"]


def test_where_not_all_are_waited_for_it_alone_goes_back_and_the_record_says_so():
    told = Told("fraction:0.5").begin()
    told.memory.begin(5)
    told.leaves(0)
    told.joins(0, stored=[wire.Stored(round=5, generation=told.memory.generations.current)])
    told.uploads(1, 7)
    assert [upload.device for upload in told.fleet.collect(7, ROUND)] == [1]
    assert told.fleet.drain_events() == FleetEvents(absent={0: (0,)}, restored_before={0: 5})
    assert [command.begin.round for command in told.told(0)] == [5]


def without_its_state(path, closing, **ready):
    """A run that is started again after a checkpoint of both, and goes on while cam comes with these."""
    told = Told(closing, path=path).begin()
    for device in (0, 1):
        told.uploads(device, 1)
    assert len(list(told.fleet.collect(1, ROUND))) == 2
    for device in (0, 1):
        told.answers(device, wire.Done())
    told.fleet.save(None, 1)
    told.fleet.checkpoint_written(1)
    generation = told.memory.generations.current
    again = Told(closing, path=path)
    again.joins(1, stored=[wire.Stored(round=1, generation=generation)])
    again.fleet.dispatcher.step()
    again.fleet.load(None, 1)
    again.joins(0, **ready)
    while not again.inbox.empty():
        again.fleet.dispatcher.step()
    return again


@pytest.mark.parametrize("closing", ["quorum:0.5", "fraction:1", "deadline:5"])
def test_a_device_that_lost_its_state_is_refused_whatever_the_policy_is(closing, tmp_path):
    told = without_its_state(tmp_path / "fleet.json", closing)
    (refused,) = told.told(0)
    assert refused.refusal.reason == wire.OTHER_DATA and "gapsl join --fresh" in refused.refusal.message
    assert "(after round 1) none is in its folder; start it with the --state" in refused.refusal.message
    assert "cam is refused: it lacks the run's checkpoints" in told.said
    assert kinds(told.told(1)) == ["begin"], "the others go on"


def test_but_not_one_that_begins_afresh_on_purpose(tmp_path):
    told = without_its_state(tmp_path / "fleet.json", "quorum:0.5", fresh=True)
    assert [command.begin.round for command in told.told(0)] == [0]
    told.leaves(0)
    told.joins(0)
    while not told.inbox.empty():
        told.fleet.dispatcher.step()
    assert kinds(told.told(0)) == ["begin"], "it has nothing to lose before its next checkpoint"


def test_whose_newest_state_is_of_a_round_that_is_gone_may_have_none(tmp_path):
    told = Told("quorum:0.5", path=tmp_path / "fleet.json").begin()
    told.memory.saved(0, 7)
    told.memory.begin(5)
    assert told.memory.newest_of(0) == 0


@pytest.mark.parametrize("closing", ["fraction:1", "deadline:5"])
def test_a_device_that_began_again_after_its_upload_is_sent_no_gradient(closing):
    """It has not the activations any more, and would take it for a mistake."""
    told = Told(closing).begin()
    told.uploads(0, 1)
    collected = told.fleet.collect(1, ROUND)
    next(collected)
    told.leaves(0)
    told.joins(0)
    told.answers(0, wire.Done())
    told.uploads(1, 1)
    list(collected)
    while not told.inbox.empty():
        told.fleet.dispatcher.step()
    told.fleet.deliver(1, {0: Reply(torch.zeros(2, 5)), 1: Reply(torch.zeros(2, 5))})
    assert [command.WhichOneof("message") for command in told.told(0)] == ["begin"]
    assert told.told(1)[-1].backward.HasField("gradient")


def test_a_reply_for_a_device_that_begins_again_leaves_its_beginning_due():
    told = Told("fraction:0.5").begin()
    told.uploads(0, 1)
    list(told.fleet.collect(1, ROUND))
    told.leaves(0)
    told.joins(0)
    told.fleet.dispatcher.step()
    told.fleet.dispatcher.step()
    told.fleet.dispatcher.links[0].inform(late(1, 0))
    assert [command.WhichOneof("message") for command in told.told(0)] == ["begin", "backward"]
    assert told.sessions[0]._due.kind == "done"


def test_too_few_at_the_deadline_are_waited_for_by_name_and_not_for_ever(monkeypatch):
    monkeypatch.setattr(device_link, "REMIND", 0.0)
    told = Told("deadline:0.05", least=2, patience=0.7).begin()
    told.uploads(1, 1)
    told.leaves(0)
    with pytest.raises(Unavailable, match="nothing from cam for 1 s"):
        list(told.fleet.collect(1, ROUND))
    assert "waiting for cam" in told.said


def test_who_goes_back_after_the_record_is_in_the_next_one_and_keeps_its_older_state():
    told = Told("deadline:9").begin()
    told.uploads(0, 1)
    told.uploads(1, 1)
    assert len(list(told.fleet.collect(1, ROUND))) == 2
    assert told.fleet.drain_events() == FleetEvents()
    told.leaves(0)
    told.joins(0)
    told.answers(1, wire.Done())
    told.fleet.save(None, 1)
    told.answers(0, wire.Done())  # it has begun again
    told.answers(0, wire.Status(sha256="old"))
    told.answers(1, wire.Status(sha256="new"))
    assert told.fleet.digests() == {1: "new"}, "what cam has is older than the last record"
    assert "save" not in kinds(told.told(0))
    assert told.fleet.drain_events() == FleetEvents(restored_before={0: 0})


def test_who_goes_back_between_two_exchanges_of_a_round_is_not_asked_for_the_second(monkeypatch):
    monkeypatch.setitem(READY, "batches_per_pass", 3)  # of a sample and a probe
    told = Told("deadline:0.05", least=1, probes=1).begin()
    told.uploads(0, 1)
    told.uploads(1, 1)
    assert len(list(told.fleet.collect(1, ROUND))) == 2
    told.leaves(0)
    told.joins(0)
    for _ in range(2):
        told.fleet.dispatcher.step()
    told.answers(0, wire.Done())
    upload = wire.Upload(round=1, turn=1, activations=HEADER, labels=[-1])
    told.answers(1, upload, torch.zeros(1, 5), torch.tensor([-1]))
    proposals = list(told.fleet.collect(1, Exchange((0, 1), 1, proposes=True)))
    assert [one.device for one in proposals] == [1]
    assert len(proposals[0].activations) == 0 and proposals[0].probes.shape == (1, 5)
    assert "forward" not in kinds(told.told(0))
    assert told.fleet.drain_events() == FleetEvents(absent={0: (1,)}, restored_after={0: 0})


def test_nor_is_who_goes_back_while_others_are_waited_for(monkeypatch):
    monkeypatch.setitem(READY, "batches_per_pass", 3)
    told = Told("deadline:0.3", least=1, probes=1).begin()
    told.uploads(0, 1)
    told.uploads(1, 1)
    assert len(list(told.fleet.collect(1, ROUND))) == 2
    told.leaves(0)
    told.joins(0)
    told.answers(0, wire.Done())
    upload = wire.Upload(round=1, turn=1, activations=HEADER, labels=[-1])
    told.answers(1, upload, torch.zeros(1, 5), torch.tensor([-1]))
    proposals = list(told.fleet.collect(1, Exchange((0, 1), 1, proposes=True)))
    assert [one.device for one in proposals] == [1]
    assert told.fleet.dropped() == set(), "its upload of the round was there"
    assert "forward" not in kinds(told.told(0))
    assert told.fleet.drain_events() == FleetEvents(absent={0: (1,)}, restored_after={0: 0})


def test_who_begins_from_an_older_state_than_the_others_goes_back_before_the_round():
    told = Told("deadline:9").begin()
    told.uploads(0, 1)
    told.uploads(1, 1)
    assert len(list(told.fleet.collect(1, ROUND))) == 2
    told.fleet.drain_events()
    generation = told.memory.generations.current
    told.fleet.dispatcher.links[1].ready.stored.append(wire.Stored(round=1, generation=generation))
    told.uploads(0, 2)
    told.uploads(1, 2)
    assert len(list(told.fleet.collect(2, ROUND))) == 2
    told.fleet.load(None, 1)  # in mid-round
    assert told.fleet.drain_events() == FleetEvents(restored_before={0: 0})


def test_a_state_from_a_round_that_is_still_to_come_is_not_believed():
    told = Told("fraction:0.5").begin()
    told.leaves(0)
    told.joins(0, stored=[wire.Stored(round=99, generation=told.memory.generations.current)])
    told.fleet.dispatcher.step()
    told.fleet.dispatcher.step()
    assert [command.begin.round for command in told.told(0)] == [0]


def test_an_upload_that_teaches_the_device_nothing_is_acknowledged_all_the_same():
    told = Told().begin()
    for device in (0, 1):
        told.uploads(device, 1)
    list(told.fleet.collect(1, Exchange((0, 1), learn=False)))
    told.leaves(0)
    told.joins(0, generation=told.memory.generations.current, round=1, waiting=True)
    told.fleet.dispatcher.step()
    told.fleet.dispatcher.step()
    (again,) = told.told(0)
    assert again.backward.round == 1 and not again.backward.late and not again.backward.HasField("gradient")


# --- evaluation


@pytest.mark.parametrize(("closing", "batches"), [("deadline:5", 1), ("fraction:0.5", 3), ("all", 3)])
def test_under_a_deadline_there_is_an_end_to_a_devices_own_tests(closing, batches, monkeypatch):
    """How many there are is the device's word: what came in time counts, and the run goes on."""
    monkeypatch.setitem(RemoteFleet._evaluated.__globals__, "OWN_TESTS", 0)
    told = Told(closing).begin()
    told.fleet.dispatcher.links[0].ready.test_samples = 20
    for batch, rows in enumerate((8, 8, 4)):
        told.answers(0, wire.Scored(batch=batch), torch.zeros(rows, 5), torch.zeros(rows, dtype=torch.int64))
    assert len(list(told.fleet.evaluate_own(0, 0))) == batches
    assert ("cam is tested with the first 1 batches alone" in told.said) == (batches == 1)


def test_the_server_knows_how_many_rows_an_evaluation_set_has():
    told = Told().begin()
    sent = [wire.Scored(batch=0), wire.Scored(batch=1)]
    for scored, rows in zip(sent, (8, 3), strict=True):
        told.answers(0, scored, torch.zeros(rows, 5))
    assert [len(rows) for rows in told.fleet.evaluate("test", 0)] == [8, 3]
    session = told.sessions[0]
    told.told(0)
    assert session._due.tensor.shape == (3, 5)


def test_a_device_that_has_not_come_since_the_server_was_started_again_is_away():
    told = Told("fraction:0.5").begin()
    told.fleet._links[1].session = told.fleet._links[1].ready = None
    with pytest.raises(Away, match="mic is away"):
        list(told.fleet.evaluate("test", 1))


# --- a device that hangs


def test_a_silent_device_is_cut_off_where_rounds_have_a_deadline(monkeypatch):
    monkeypatch.setattr(settings, "SLOW", 0.1)
    told = Told("deadline:0.05").begin()
    told.uploads(1, 1)
    assert [upload.device for upload in told.fleet.collect(1, ROUND)] == [1]
    told.answers(1, wire.Done())
    told.fleet.save(None, 1)
    last = told.told(0)[-1]
    assert last.refusal.reason == wire.LATE and "join again" in last.refusal.message
    assert "cam does not answer, and is not waited for" in told.said
    told.joins(0, generation=told.memory.generations.current, round=1, waiting=True)
    told.fleet.dispatcher.step()
    assert told.told(0) == [late(1, 0)], "and goes on when it lives"


def test_under_a_quorum_a_silent_device_holds_an_evaluation_as_long_as_rounds_tell(monkeypatch):
    for name in ("SLOW", "SOONEST"):
        monkeypatch.setattr(settings, name, 0.02)
    told = Told("quorum:0.5").begin()
    for round in (1, 2, 3):
        told.uploads(1, round)
        told.uploads(0, round)
        assert len(list(told.fleet.collect(round, ROUND))) == 2
    with pytest.raises(Away, match="mic is away"):
        list(told.fleet.evaluate("test", 1))
    assert "mic does not answer, and is not waited for" in told.said


# --- labels that stay on devices

JUDGED = wire.Judged(
    loss=0.5, tensor=wire.Tensor(dtype=wire.FLOAT32, shape=[2, 3], codec=wire.PLAIN, bytes=24)
)
FEATURES = torch.zeros(2, 3)


def judging(closing):
    """A round whose uploads are there, of devices that have the last layer."""
    told = Told(closing, features=(3,)).begin()
    for device in (0, 1):
        told.uploads(device, 1)
    uploads = told.fleet.collect(1, ROUND)
    assert {next(uploads).device, next(uploads).device} == {0, 1}
    return told


def test_features_that_are_not_finite_have_no_loss_and_nobody_is_asked():
    told = judging("all")
    loss, _ = told.fleet.head_loss(0, torch.full((2, 3), math.inf))
    assert math.isnan(loss) and not told.fleet.dropped()
    assert "head" not in kinds(told.told(0))


def test_a_loss_is_asked_of_the_device_that_has_the_labels():
    told = judging("all")
    told.answers(0, JUDGED, torch.ones(2, 3))
    loss, gradient = told.fleet.head_loss(0, FEATURES)
    assert loss == 0.5 and torch.equal(gradient, torch.ones(2, 3))
    assert kinds(told.told(0))[-1] == "head"


@pytest.mark.parametrize("when", ["before it is asked", "while it is asked", "silent"])
def test_a_device_that_is_gone_has_no_loss_where_it_is_not_waited_for(when, monkeypatch):
    monkeypatch.setattr(settings, "SLOW", 0.1)
    told = judging("deadline:0.1")
    if when == "before it is asked":
        told.leaves(0)
        told.fleet.dispatcher.step()
    elif when == "while it is asked":
        told.leaves(0)
    loss, gradient = told.fleet.head_loss(0, FEATURES)
    assert math.isnan(loss) and not gradient.any()
    assert set(told.fleet.dropped()) == {0}, "so that nobody thinks it ill"
    assert told.fleet.drain_events() == FleetEvents(absent={0: (0,)})
    assert not told.fleet.dispatcher.links[0].pending, "nobody will ask it for that later"


def test_an_upload_that_comes_while_a_head_is_asked_is_late_if_the_round_closes_without_it():
    told = Told("fraction:0.5", features=(3,)).begin()
    told.uploads(0, 1)
    uploads = told.fleet.collect(1, ROUND)
    assert next(uploads).device == 0
    told.uploads(1, 1)
    told.answers(0, JUDGED, torch.ones(2, 3))
    told.fleet.head_loss(0, FEATURES)
    assert list(uploads) == []
    told.fleet.dispatcher.links[1].ask(wire.ToDevice(ask=wire.Ask()), ExpectedAnswer("status"))
    assert kinds(told.told(1)) == ["begin", "forward", "backward", "ask"]
    assert told.fleet.traffic.sent == {0: 56 + 24, 1: 56}


def test_a_device_that_begins_anew_while_another_is_judged_is_left_out_of_the_round():
    told = Told("fraction:1", features=(3,)).begin()

    def uploads(device):
        upload = wire.Upload(round=1, turn=0, activations=HEADER)
        told.answers(device, upload, torch.zeros(2, 5), torch.zeros(0, dtype=torch.int64))

    uploads(0)
    collected = told.fleet.collect(1, ROUND)
    next(collected)
    uploads(1)  # while the head of cam is waited for; then mic is killed, and comes back
    told.leaves(1)
    told.joins(1)
    told.answers(0, wire.Judged(loss=1.0), torch.zeros(2, 3))
    assert told.fleet.head_loss(0, torch.zeros(2, 3))[0] == 1.0
    told.answers(1, wire.Done())
    assert [upload.device for upload in collected] == [1]
    assert math.isnan(told.fleet.head_loss(1, torch.zeros(2, 3))[0])
    told.fleet.deliver(1, {0: Reply(torch.zeros(2, 5)), 1: Reply(torch.zeros(2, 5), step=False)})
    assert told.fleet.drain_events() == FleetEvents(absent={1: (0,)}, restored_after={1: 0})
    begin, last = told.told(1)
    assert begin.HasField("begin") and last == late(1, 0), "it has no mini-batch that could be judged"


def test_a_device_that_gives_up_before_it_begins_is_said():
    told = Told(patience=0.3)
    visitor = Session(1, "mic", told.inbox)
    told.inbox.put(Left(visitor, f"{GIVES_UP}: its folder is empty"))
    with pytest.raises(Unavailable):
        told.fleet.dispatcher.gather()
    assert f"mic could not begin: {GIVES_UP}: its folder is empty" in told.said


def test_features_count_as_they_are_sent():
    told = Told(features=(3,), activations=wire.FP16).begin()
    told.answers(0, wire.Judged(loss=1.0, tensor=wire.Tensor(bytes=7)), torch.zeros(2, 3))
    told.fleet.head_loss(0, torch.zeros(2, 3))
    assert (told.fleet.traffic.sent[0], told.fleet.traffic.received[0]) == (7, 2 * 3 * 2)


# --- going on from checkpoints


def restarted(first, second, closing="all"):
    """A server started again, and devices that have stored these rounds."""
    told = Told(closing)
    told.memory.generations.begin(0)
    generation = told.memory.generations.current
    for device, rounds in enumerate((first, second)):
        told.joins(device, stored=[wire.Stored(round=r, generation=generation) for r in rounds])
    told.fleet.dispatcher.gather()
    return told


def test_the_newest_checkpoint_that_all_have_is_gone_on_from():
    assert restarted([20, 40], [20]).fleet.newest_common_checkpoint({0, 20, 40}) == 20
    assert restarted([20, 40], [20, 40]).fleet.newest_common_checkpoint({0, 20, 40}) == 40


def test_before_the_first_checkpoint_the_start_is_what_all_have():
    assert restarted([20], []).fleet.newest_common_checkpoint({0}) == 0


@pytest.mark.parametrize(("first", "second"), [([100, 140], [100, 120]), ([140], []), ([140], [100])])
def test_nobody_is_sent_back_to_the_start_while_there_are_checkpoints(first, second):
    """The second device comes again with what it had; until then it is refused, and the others wait."""
    told = restarted(first, second)
    told.joins(1, stored=[wire.Stored(round=140, generation=told.memory.generations.current)])
    assert told.fleet.newest_common_checkpoint({0, 120, 140}) == 140
    assert "mic is refused: it lacks the run's checkpoints" in told.said


def test_a_run_that_does_not_wait_goes_on_from_its_own_newest():
    assert restarted([], [], closing="fraction:0.5").fleet.newest_common_checkpoint({0, 20, 40}) == 40


def averaged(told, *, late=()):
    """Let the devices average their models after a round that was closed without the late ones."""
    for device in {0, 1} - set(late):
        told.uploads(device, 1)
    list(told.fleet.collect(1, ROUND))
    for device in late:
        told.uploads(device, 1)
    for device in (0, 1):
        told.answers(device, wire.Done())
    told.fleet.average({0: 1.0, 1: 1.0})


def goes_back(told, device):
    """Let a device come back with nothing in memory and nothing stored."""
    told.leaves(device)
    told.joins(device)
    told.answers(device, wire.Done())
    for _ in range(3):
        told.fleet.dispatcher.step()


def test_who_goes_back_after_parts_were_averaged_does_so_after_the_round():
    told = Told("deadline:0.2").begin()
    averaged(told)
    goes_back(told, 0)
    assert told.fleet.drain_events() == FleetEvents(restored_after={0: 0})


def test_so_does_who_was_late_for_the_round_but_had_the_mean():
    told = Told("deadline:0.2").begin()
    averaged(told, late=[0])
    goes_back(told, 0)
    assert told.fleet.drain_events() == FleetEvents(absent={0: (0,)}, restored_after={0: 0})
    goes_back(told, 1)
    assert told.fleet.drain_events() == FleetEvents(restored_before={1: 0}), "of the next round"


def test_who_goes_back_before_parts_are_averaged_is_told_from_who_does_after():
    told = Told("deadline:5").begin()
    told.uploads(0, 1)
    collected = told.fleet.collect(1, ROUND)
    next(collected)
    told.leaves(0)
    told.joins(0)  # without what it had in memory, and with nothing stored
    told.answers(0, wire.Done())
    told.uploads(1, 1)
    assert [upload.device for upload in collected] == [1]
    for device in (0, 1):
        told.answers(device, wire.Done())
    told.fleet.average({0: 1.0, 1: 1.0})
    assert told.fleet.drain_events() == FleetEvents(restored_between={0: 0})


# --- a stop while client-side models are averaged


def test_a_stop_waits_for_an_averaging_however_long_ago_it_was_asked_for(monkeypatch):
    monkeypatch.setattr(device_link, "SHARING", 0.3)
    asked = []
    told = Told(stop=lambda: bool(asked)).begin()
    asked.append("now")
    for device in (0, 1):
        told.uploads(device, 1)
    list(told.fleet.collect(1, ROUND))
    time.sleep(0.4)  # the server computes
    for device in (0, 1):
        told.answers(device, wire.Done())
    told.fleet.average({0: 1.0, 1: 1.0})


def test_but_not_for_ever(monkeypatch):
    monkeypatch.setattr(device_link, "SHARING", 0.3)
    asked = []
    told = Told(stop=lambda: bool(asked)).begin()
    asked.append("now")
    told.answers(0, wire.Done())  # the other one waits at the parameter server
    with pytest.raises(Stopped):
        told.fleet.average({0: 1.0, 1: 1.0})
