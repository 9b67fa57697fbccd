"""One device's stream: what is due becomes an event, anything else a refusal, and never an exception."""

import threading

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.codec import describe
from gapsl.network.protocol.errors import WireError
from gapsl.network.protocol.framing import AtMost, TensorSpec, parts, serialize
from gapsl.network.server.session import Answered, ExpectedAnswer, Heard, Inbox, Joined, Left, Session

READY = wire.FromDevice(ready=wire.Ready(samples=3, label_counts=[1, 2], batches_per_pass=1))
FORWARD = wire.ToDevice(forward=wire.Forward(round=3, turn=1, learn=True))
CUT = TensorSpec(wire.FLOAT32, (2, 5), (wire.PLAIN,))
UPLOAD = ExpectedAnswer("upload", (3, 1), CUT, range(10))
DONE, STATUS = ExpectedAnswer("done"), ExpectedAnswer("status")
SCORED = ExpectedAnswer("scored", (4,), TensorSpec(wire.FLOAT32, (AtMost(8), 5)))
ROWS = torch.arange(10.0).view(2, 5)
HEADER, DATA = describe(ROWS, wire.PLAIN)
BYTES = [bytes(part) for part in DATA]


def upload(round=3, turn=1, labels=(0, 9), **header):
    announced = wire.Tensor()
    announced.CopyFrom(HEADER)
    if "shape" in header:
        del announced.shape[:]
        announced.shape.extend(header.pop("shape"))
    for name, value in header.items():
        setattr(announced, name, value)
    return wire.FromDevice(upload=wire.Upload(round=round, turn=turn, activations=announced, labels=labels))


def part(data=b"".join(BYTES)):
    return wire.FromDevice(part=wire.Part(data=data))


def hear(*messages, due=UPLOAD, first=READY):
    """Let a session hear these after a command was sent; returns events and what it said last, if it did."""
    inbox = Inbox()
    session = Session(1, "cam", inbox)
    sending, said = session.outgoing(), []

    def stream():
        if first is not None:
            yield serialize(first)
            session.command(FORWARD, due)
            said.append(next(sending))
        for message in messages:
            yield message if isinstance(message, bytes) else serialize(message)

    session.read(stream())
    events = []
    while not inbox.empty():
        events.append(inbox.get())
    said += [m for m in sending if not isinstance(m, memoryview)]
    refusal = said[-1].refusal if said and said[-1].WhichOneof("message") == "refusal" else None
    return events, refusal


def refused(reason, match, *messages, **more):
    """Expect a refusal and nothing for the run but that the device has left."""
    events, refusal = hear(*messages, **more)
    assert refusal is not None and refusal.reason == reason
    assert match in refusal.message
    assert [type(event) for event in events if not isinstance(event, Joined)] == [Left]
    assert match in events[-1].reason


# --- what is due


def test_a_device_that_is_ready_has_joined():
    events, refusal = hear()
    assert refusal is None
    assert isinstance(events[0], Joined) and events[0].ready.samples == 3
    assert events[1].reason == "it closed its stream"


def test_an_upload_is_an_event_when_its_last_part_is_there():
    (_, answered, _), refusal = hear(upload(), part())
    assert refusal is None
    assert isinstance(answered, Answered)
    assert torch.equal(answered.tensor, ROWS) and answered.labels.tolist() == [0, 9]
    assert (answered.answer.round, answered.answer.turn) == (3, 1)


def test_an_upload_may_come_in_many_parts():
    data = b"".join(BYTES)
    pieces = [part(bytes(piece)) for piece in parts([memoryview(data)], 7)]
    (_, answered, _), _ = hear(upload(), *pieces)
    assert torch.equal(answered.tensor, ROWS)


def test_a_tensor_without_bytes_is_complete_at_once():
    scored = wire.Scored(batch=4, activations=describe(torch.zeros(0, 5), wire.PLAIN)[0])
    (_, answered, _), refusal = hear(wire.FromDevice(scored=scored), due=SCORED)
    assert refusal is None
    assert answered.tensor.shape == (0, 5) and answered.labels is None


@pytest.mark.parametrize("kind", ["done", "status"])
def test_an_answer_without_a_tensor_is_an_event(kind):
    message = {
        "done": wire.FromDevice(done=wire.Done()),
        "status": wire.FromDevice(status=wire.Status()),
    }
    (_, answered, _), refusal = hear(message[kind], due=ExpectedAnswer(kind))
    assert refusal is None and isinstance(answered, Answered)


PROBING = ExpectedAnswer("upload", (3, 1), CUT, range(10), unlabelled=1)


def test_the_last_rows_have_no_label_where_there_are_probes():
    (_, answered, _), _ = hear(upload(labels=(9, -1)), part(), due=PROBING)
    assert answered.labels.tolist() == [9, -1]


@pytest.mark.parametrize("labels", [(-1, 9), (-1, -1), (9, 9)])
def test_other_rows_than_the_probes_have_a_label_and_probes_have_none(labels):
    refused(wire.MALFORMED, "label", upload(labels=labels), due=PROBING)


def test_what_needs_no_answer_leaves_due_what_was():
    """A device is told that it was late while it works on the next command."""
    inbox = Inbox()
    session = Session(1, "cam", inbox)
    sending = session.outgoing()

    def stream():
        yield serialize(READY)
        session.command(wire.ToDevice(save=wire.Save(round=5)), ExpectedAnswer("done"))
        session.command(wire.ToDevice(backward=wire.Backward(round=3, turn=1, late=True)))
        assert next(sending).HasField("save") and next(sending).HasField("backward")
        yield serialize(wire.FromDevice(done=wire.Done()))

    session.read(stream())
    assert [type(inbox.get()) for _ in range(3)] == [Joined, Answered, Left]


# --- what is not


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (wire.FromDevice(done=wire.Done()), "done where upload is due"),
        (wire.FromDevice(status=wire.Status()), "status where upload is due"),
        (wire.FromDevice(scored=wire.Scored()), "scored where upload is due"),
        (wire.FromDevice(hello=wire.Hello()), "hello where upload is due"),
        (READY, "ready where upload is due"),
        (wire.FromDevice(), "an unknown message where upload is due"),
        (part(), "a part of a tensor that was not announced"),
        (b"\xa2\x01\x02\x0a\x00", "an unknown message"),  # a field of a later protocol
        (b"\xff\xff\xff", "not a FromDevice"),
        (b"", "an unknown message"),
    ],
)
def test_another_answer_than_the_one_due_is_refused(message, said):
    refused(wire.MALFORMED, said, message)


def test_an_answer_that_nobody_asked_for_is_refused():
    refused(wire.MALFORMED, "upload where nothing is due", upload(), due=None)


def test_an_answer_that_comes_twice_is_refused():
    events, refusal = hear(upload(), part(), upload(), part())
    assert refusal.reason == wire.MALFORMED and "upload where nothing is due" in refusal.message
    assert [type(event) for event in events] == [Joined, Answered, Left]


def test_a_device_says_that_it_is_ready_before_all_else():
    refused(wire.MALFORMED, "upload where ready is due", upload(), first=None)


@pytest.mark.parametrize(("round", "turn"), [(2, 1), (4, 1), (3, 0), (-3, 1), (2**31 - 1, 1)])
def test_an_upload_for_another_round_is_refused(round, turn):
    refused(wire.LATE, "where (3, 1) is due", upload(round, turn))


def test_another_batch_than_was_asked_for_is_refused():
    scored = wire.Scored(batch=5, activations=HEADER)
    refused(wire.LATE, "an answer about (5,) where (4,) is due", wire.FromDevice(scored=scored), due=SCORED)


@pytest.mark.parametrize("labels", [(0, 10), (-1, 3), (0, 2**31 - 1), (-(2**31), 0)])
def test_a_label_that_no_class_has_is_refused(labels):
    refused(wire.MALFORMED, "a label outside of 0 to 9", upload(labels=labels))


@pytest.mark.parametrize("labels", [(), (1,), (1, 2, 3)])
def test_a_label_a_row_and_no_other_number_is_accepted(labels):
    refused(wire.MALFORMED, f"{len(labels)} labels for 2 rows", upload(labels=labels))


def test_labels_that_were_not_asked_for_are_refused():
    scored = wire.Scored(batch=4, activations=HEADER, labels=[1, 2])
    refused(wire.MALFORMED, "2 labels for 2 rows", wire.FromDevice(scored=scored), due=SCORED)


@pytest.mark.parametrize(
    ("header", "labels", "reason"),
    [
        ({"shape": (2, 6)}, (0, 9), wire.TOO_MUCH),
        ({"shape": (2, 4)}, (0, 9), wire.MALFORMED),
        ({"shape": (3, 5)}, (0, 9, 1), wire.TOO_MUCH),
        ({"shape": (1, 5)}, (0,), wire.MALFORMED),
        ({"shape": (2, 5, 1)}, (0, 9), wire.MALFORMED),
        ({"shape": ()}, (), wire.MALFORMED),
        ({"shape": (2, 2**62)}, (0, 9), wire.TOO_MUCH),
        ({"shape": (2, -5)}, (0, 9), wire.MALFORMED),
        ({"dtype": wire.FLOAT64}, (0, 9), wire.MALFORMED),
        ({"dtype": wire.INT64}, (0, 9), wire.MALFORMED),
        ({"dtype": wire.DTYPE_UNKNOWN}, (0, 9), wire.MALFORMED),
        ({"codec": wire.FP16}, (0, 9), wire.MALFORMED),
        ({"compression": wire.ZSTD}, (0, 9), wire.MALFORMED),
        ({"bytes": 41}, (0, 9), wire.TOO_MUCH),
        ({"bytes": 39}, (0, 9), wire.MALFORMED),
        ({"bytes": 2**62}, (0, 9), wire.TOO_MUCH),
        ({"bytes": -1}, (0, 9), wire.MALFORMED),
    ],
)
def test_a_tensor_that_is_not_what_was_agreed_is_refused_before_its_bytes(header, labels, reason):
    events, refusal = hear(upload(labels=labels, **header))
    assert refusal is not None and refusal.reason == reason
    assert [type(event) for event in events] == [Joined, Left]


def test_a_loss_comes_with_the_derivative_that_is_due_and_no_other_tensor():
    judged = wire.FromDevice(judged=wire.Judged(loss=0.5, tensor=HEADER))
    (_, answered, _), refusal = hear(judged, part(), due=ExpectedAnswer("judged", (), CUT))
    assert refusal is None and answered.answer.loss == 0.5 and torch.equal(answered.tensor, ROWS)
    refused(wire.MALFORMED, "a tensor too much", judged, due=ExpectedAnswer("judged"))
    alone = wire.FromDevice(judged=wire.Judged(loss=0.5))
    refused(wire.MALFORMED, "or too few", alone, due=ExpectedAnswer("judged", (), CUT))


def test_a_message_amid_the_parts_of_a_tensor_is_refused():
    refused(
        wire.MALFORMED,
        "a message where a part of a tensor is due",
        upload(),
        part(b"".join(BYTES)[:8]),
        wire.FromDevice(done=wire.Done()),
    )


def test_more_bytes_than_announced_are_refused():
    refused(wire.TOO_MUCH, "a part of 44 bytes where 40 are missing", upload(), part(b"\0" * 44))


def test_an_empty_part_is_refused():
    refused(wire.MALFORMED, "an empty part", upload(), part(b""))


def test_a_device_that_gives_up_says_why():
    events, refusal = hear(wire.FromDevice(failed=wire.Failed(reason="no disk " * 100)))
    assert "the device gives up: no disk" in events[-1].reason
    assert refusal is not None and len(refusal.message) < 300


def test_an_answer_to_a_command_that_is_not_on_its_way_yet_is_refused():
    """So a device that reads nothing cannot have one reply after the other put by for it."""
    session = Session(1, "cam", inbox := Inbox())

    def stream():
        yield serialize(READY)
        session.command(FORWARD, UPLOAD)
        yield serialize(upload())

    session.read(stream())
    assert isinstance(inbox.get(), Joined)
    assert "upload where nothing is due" in inbox.get().reason


def test_a_last_word_that_is_not_taken_ends_the_stream_all_the_same(monkeypatch):
    monkeypatch.setitem(Session.close.__globals__, "LAST_WORD_SECONDS", 0.05)
    session, over = Session(1, "cam", Inbox()), threading.Event()
    session.cancel = over.set
    session.command(FORWARD, UPLOAD)
    session.refuse(WireError(wire.LATE, "too late"))  # and nobody asks for what is to be sent
    assert over.wait(10)


def test_a_stream_that_has_ended_is_not_ended_again(monkeypatch):
    monkeypatch.setitem(Session.close.__globals__, "LAST_WORD_SECONDS", 1.0)
    session, over = Session(1, "cam", Inbox()), threading.Event()
    session.cancel = over.set
    session.close()
    session.ended()
    assert not over.wait(1.5)


def test_a_stream_that_has_ended_needs_no_last_word(monkeypatch):
    monkeypatch.setitem(Session.close.__globals__, "LAST_WORD_SECONDS", 0.05)
    session, over = Session(1, "cam", Inbox()), threading.Event()
    session.cancel = over.set
    session.ended()
    session.close()
    assert not over.wait(0.3)


def test_a_link_that_breaks_is_not_the_runs_problem():
    inbox = Inbox()
    session = Session(1, "cam", inbox)

    def stream():
        yield serialize(READY)
        raise ConnectionResetError

    session.read(stream())
    assert [type(inbox.get()) for _ in range(2)] == [Joined, Left]
    assert list(session.outgoing()) == []


def test_a_stream_that_ends_amid_a_tensor_gives_no_event():
    events, refusal = hear(upload(), part(b"".join(BYTES)[:8]))
    assert [type(event) for event in events] == [Joined, Left]
    assert refusal is None


# --- whatever arrives

LABELS = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3)
NUMBERS = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 5)
TENSORS = st.builds(
    wire.Tensor,
    dtype=st.integers(0, 5),
    shape=st.lists(st.sampled_from([-(2**63), -1, 0, 1, 2, 5, 2**31, 2**63 - 1]), max_size=4),
    codec=st.integers(0, 6),
    compression=st.integers(0, 3),
    bytes=st.sampled_from([-(2**63), -1, 0, 10, 40, 41, 2**31, 2**63 - 1]),
)
MESSAGES = (
    st.binary(max_size=40)
    | st.builds(lambda data: serialize(part(data)), st.binary(max_size=48))
    | st.sampled_from([serialize(upload()), serialize(part()), serialize(READY)])
    | st.builds(
        lambda *a: serialize(
            wire.FromDevice(upload=wire.Upload(round=a[0], turn=a[1], activations=a[2], labels=a[3]))
        ),
        NUMBERS,
        NUMBERS,
        TENSORS,
        LABELS,
    )
    | st.builds(
        lambda *a: serialize(wire.FromDevice(scored=wire.Scored(batch=a[0], activations=a[1], labels=a[2]))),
        NUMBERS,
        TENSORS,
        LABELS,
    )
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(MESSAGES, max_size=5),
    st.sampled_from([UPLOAD, SCORED, ExpectedAnswer("done"), ExpectedAnswer("status"), None]),
)
@example([serialize(upload()), serialize(part())], UPLOAD)
def test_whatever_arrives_ends_in_at_most_one_answer_and_a_typed_refusal(messages, due):
    events, refusal = hear(*messages, due=due)
    kinds = [type(event) for event in events]
    assert kinds[0] is Joined and kinds[-1] is Left and kinds.count(Left) == 1
    assert kinds.count(Answered) <= (due is not None)
    assert "the link broke" not in events[-1].reason, "no exception of ours was taken for a broken link"
    if refusal is not None:
        assert refusal.reason in (
            wire.MALFORMED,
            wire.TOO_MUCH,
            wire.LATE,
            wire.NOT_FINITE,
            wire.REASON_UNKNOWN,
        )
        assert refusal.message and len(refusal.message) < 500


def test_a_device_that_has_heard_of_the_end_says_so_and_nothing_else_is_wanted():
    session = Session(1, "cam", inbox := Inbox())
    session.finish("over")
    late, heard = serialize(upload()), serialize(wire.FromDevice(heard=wire.Heard()))
    session.read(iter([late, serialize(part()), heard]))
    sent = list(session.outgoing())
    assert [message.WhichOneof("message") for message in sent] == ["goodbye"] and sent[0].goodbye.finished
    assert isinstance(inbox.get(), Heard) and isinstance(inbox.get(), Left) and inbox.empty()


def test_nobody_has_heard_of_an_end_before_it_is_said():
    refused(wire.MALFORMED, "heard where upload is due", wire.FromDevice(heard=wire.Heard()))


def test_a_session_that_is_closed_wakes_its_sender():
    session = Session(1, "cam", Inbox())
    sent = []
    thread = threading.Thread(target=lambda: sent.extend(session.outgoing()))
    thread.start()
    session.refuse(WireError(wire.LATE, "too late"))
    thread.join(10)
    assert not thread.is_alive()
    assert sent[-1].refusal.reason == wire.LATE
