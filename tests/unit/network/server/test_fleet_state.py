"""What a server remembers of its devices in fleet.json, through restarts and other people's hands."""

import json
import os
from dataclasses import replace

import pytest

from gapsl.common.errors import InputError
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.contract import TensorContract
from gapsl.network.protocol.errors import WireError
from gapsl.network.server.fleet_state import FleetState

NAMES = ("cam", "mic")
BATCH = 5
AGREED = TensorContract(wire.FLOAT32, (5,), BATCH, 8, 3)
SECRET = replace(AGREED, features=(4,))


def ready(counts=(4, 0, 6), samples=10, batches=None):
    passes = -(-samples // BATCH) if batches is None else batches
    return wire.Ready(samples=samples, label_counts=counts, batches_per_pass=passes)


def with_both(path):
    memory = FleetState(path, NAMES)
    memory.check(1, ready((1, 1, 1), 3, 1), AGREED)
    memory.check(0, ready(), AGREED)
    memory.keep()
    memory.begin(0)
    memory.begin(5)
    return memory


def test_where_the_server_knows_the_partition_a_device_cannot_say_otherwise():
    memory = FleetState(None, NAMES, {0: (4, 0, 6)})
    memory.check(0, ready(), AGREED)
    for other in (ready((5, 0, 5)), ready((4, 0, 2**60), 2**60 + 4)):
        with pytest.raises(WireError, match="the 10 samples that the run's partition gives it") as refused:
            memory.check(0, other, AGREED)
        assert refused.value.reason == wire.OTHER_DATA
    memory.check(1, ready((5, 0, 5)), AGREED)


def test_labels_that_stay_on_the_device_are_not_compared_but_their_number_is():
    memory = FleetState(None, NAMES, {0: (4, 0, 6)})
    memory.check(0, ready(()), SECRET)
    with pytest.raises(WireError, match="partition"):
        memory.check(0, ready((), samples=11), SECRET)


def test_a_device_is_tested_with_as_many_samples_as_at_the_start(tmp_path):
    tested = ready()
    tested.test_samples = 7
    memory = FleetState(tmp_path / "fleet.json", ("cam",))
    memory.check(0, tested, AGREED)
    memory.keep()
    for known in (memory, FleetState(tmp_path / "fleet.json", ("cam",))):
        known.check(0, tested, AGREED)
        with pytest.raises(WireError, match="tested with 0 samples, and was with 7") as refused:
            known.check(0, ready(), AGREED)
        assert refused.value.reason == wire.OTHER_DATA


def test_a_device_without_tests_of_its_own_gets_none_later(tmp_path):
    memory = FleetState(tmp_path / "fleet.json", ("cam",))
    memory.check(0, ready(), AGREED)
    memory.keep()
    more = ready()
    more.test_samples = 5
    with pytest.raises(WireError, match="tested with 5 samples, and was with 0"):
        FleetState(tmp_path / "fleet.json", ("cam",)).check(0, more, AGREED)


def test_a_run_of_before_tests_were_noted_goes_on(tmp_path):
    path = tmp_path / "fleet.json"
    with_both(path)
    known = json.loads(path.read_text())
    for device in known["devices"].values():
        del device["tests"]
    path.write_text(json.dumps(known))
    more = ready()
    more.test_samples = 5
    FleetState(path, NAMES).check(0, more, AGREED)


def test_a_new_run_knows_nothing(tmp_path):
    memory = FleetState(tmp_path / "fleet.json", NAMES)
    assert memory.devices == {} and memory.generations.current == 0
    assert not (tmp_path / "fleet.json").exists()


def test_a_server_that_is_started_again_knows_all_it_knew(tmp_path):
    before = with_both(tmp_path / "fleet.json")
    after = FleetState(tmp_path / "fleet.json", NAMES)
    assert after.devices == before.devices
    assert list(after.devices) == [0, 1]
    assert after.generations == before.generations


def test_a_generation_is_on_disk_before_any_device_hears_of_it(tmp_path):
    memory = FleetState(tmp_path / "fleet.json", NAMES)
    memory.begin(7)
    assert FleetState(tmp_path / "fleet.json", NAMES).generations.begun == [(memory.generations.current, 7)]


def test_a_server_without_a_folder_remembers_as_long_as_it_lives(tmp_path):
    memory = with_both(None)
    assert len(memory.devices) == 2 and len(memory.generations.begun) == 2


def test_a_device_that_brings_the_same_data_is_welcome_again(tmp_path):
    with_both(tmp_path / "fleet.json")
    FleetState(tmp_path / "fleet.json", NAMES).check(0, ready(), AGREED)


def test_before_the_run_begins_a_device_may_come_with_other_data(tmp_path):
    memory = FleetState(tmp_path / "fleet.json", NAMES)
    memory.check(0, ready((5, 0, 5)), AGREED)
    memory.check(0, ready(), AGREED)
    assert memory.devices[0].label_counts == (4, 0, 6)


@pytest.mark.parametrize("tests", [-1, 2**62])
def test_test_samples_that_cannot_be_are_refused(tests):
    impossible = ready()
    impossible.test_samples = tests
    with pytest.raises(WireError, match="test samples"):
        FleetState(None, NAMES).check(0, impossible, AGREED)


@pytest.mark.parametrize("other", [ready((5, 0, 5)), ready((4, 0, 7), 11)])
def test_a_device_that_brings_other_data_is_not(tmp_path, other):
    with_both(tmp_path / "fleet.json")
    memory = FleetState(tmp_path / "fleet.json", NAMES)
    with pytest.raises(WireError, match="give the device its data back, or start a new run") as refusal:
        memory.check(0, other, AGREED)
    assert refusal.value.reason == wire.OTHER_DATA
    assert memory.devices[0].label_counts == (4, 0, 6), "and what was known is still known"


@pytest.mark.parametrize(
    "impossible",
    [
        ready(()),
        ready((4, 6)),
        ready((4, 0, 6, 0)),
        ready((4, -1, 7)),
        ready((4, 0, 6), samples=11),
        ready((0, 0, 0), samples=0, batches=1),
        ready((4, 0, 6), batches=0),
        ready((4, 0, 6), batches=-1),
        ready((4, 0, 6), batches=3),
        ready((4, 0, 6), batches=11),
        ready((2**62, 2**62, 2**62), samples=10),
    ],
)
def test_data_that_cannot_be_are_refused(impossible):
    memory = FleetState(None, NAMES)
    with pytest.raises(WireError, match="cannot be") as refusal:
        memory.check(0, impossible, AGREED)
    assert refusal.value.reason == wire.MALFORMED
    assert memory.devices == {}


@pytest.mark.parametrize("names", [("cam",), ("mic", "cam"), ("cam", "mic", "door")])
def test_other_devices_or_another_order_are_refused_with_those_it_began_with(tmp_path, names):
    with_both(tmp_path / "fleet.json")
    with pytest.raises(InputError, match=r"began with the devices cam, mic.*same ones in the same order"):
        FleetState(tmp_path / "fleet.json", names)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b"7", b"{}", b"\xff\xfe", b'{"names": ["cam", "mic"]}',
        b'{"names": ["cam", "mic"], "generations": [1], "devices": {}}',
        b'{"names": ["cam", "mic"], "generations": [], "devices": []}',
        b'{"names": ["cam", "mic"], "generations": [], "devices": {"0": {"samples": 1}}}',
        b'{"names": ["cam", "mic"], "generations": [], "devices": {"x": {}}}',
        b'{"names": 3, "generations": [], "devices": {}}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_named_with_what_to_do(tmp_path, content):
    path = tmp_path / "fleet.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"fleet\.json is damaged: .*restore it, or start a new run"):
        FleetState(path, NAMES)
    assert path.read_bytes() == content, "and is left as it is"


def test_a_crash_while_writing_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    memory = with_both(tmp_path / "fleet.json")
    before = json.loads((tmp_path / "fleet.json").read_text())

    def crash(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(KeyboardInterrupt):
        memory.begin(10)
    assert json.loads((tmp_path / "fleet.json").read_text()) == before


def test_that_the_server_has_had_a_checkpoint_is_remembered(tmp_path):
    path = tmp_path / "fleet.json"
    memory = FleetState(path, ("cam",))
    memory.begin(0)
    assert FleetState(path, ("cam",)).stored == 0
    memory.checkpoint_written(20)
    assert FleetState(path, ("cam",)).stored == 20
    memory.begin(40)
    assert FleetState(path, ("cam",)).stored == 40
