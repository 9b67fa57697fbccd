"""Halves at the parameter server: on disk before anybody relies on them, and the mean that everybody gets."""

import resource
import threading
import time

import pytest
import torch

from gapsl.errors import InputError
from gapsl.halves import average
from gapsl.net import wire_pb2 as wire
from gapsl.net.errors import WireError
from gapsl.net.transfers import KEPT, Transfers

WEIGHTS = {0: 130.0, 2: 71.0, 1: 0.3}


def half(seed, width=4):
    generator = torch.Generator().manual_seed(seed)
    return {
        "conv.weight": torch.randn(width, 3, generator=generator),
        "norm.count": torch.tensor(seed),
        "double": torch.randn(5, dtype=torch.float64, generator=generator),
    }


def there():
    return True


@pytest.fixture
def transfers(tmp_path):
    return Transfers(tmp_path)


def brought(transfers, weights=WEIGHTS, name="a-1-1"):
    transfer = transfers.open("run", name, weights)
    for device in weights:
        transfer.add(device, half(device))
    return transfer


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)


def test_the_mean_is_that_of_a_run_in_one_process_bit_for_bit(transfers):
    transfer = brought(transfers)
    expected = average([half(device) for device in (0, 1, 2)], [130.0, 0.3, 71.0])
    assert_same(transfers.mean(transfer, there), expected)


def test_the_mean_of_one_is_what_it_brought(transfers):
    assert_same(transfers.mean(brought(transfers, {2: 1.0}), there), half(2))


def test_a_parameter_server_that_is_started_again_has_all_that_was_brought(tmp_path):
    transfer = Transfers(tmp_path).open("run", "a-1-1", WEIGHTS)
    transfer.add(0, half(0))
    transfer.add(1, half(1))
    again = Transfers(tmp_path)
    transfer = again.open("run", "a-1-1", WEIGHTS)
    assert not transfer.complete
    transfer.add(2, half(2))
    assert_same(again.mean(transfer, there), average([half(d) for d in (0, 1, 2)], [130.0, 0.3, 71.0]))
    once_more = Transfers(tmp_path)
    assert_same(once_more.mean(once_more.open("run", "a-1-1", WEIGHTS), there), again.mean(transfer, there))


def test_a_draft_of_a_process_that_was_killed_is_no_contribution(transfers):
    transfer = transfers.open("run", "a-1-1", {0: 1.0})
    (transfer.folder / ".draft-0-4711").write_bytes(b"half of a half")
    assert not transfer.complete


def test_who_brings_its_half_twice_changes_nothing(transfers):
    transfer = brought(transfers)
    transfer.add(1, half(1))
    assert_same(transfers.mean(transfer, there), average([half(d) for d in (0, 1, 2)], [130.0, 0.3, 71.0]))


def test_who_waits_gets_the_mean_as_soon_as_the_last_has_come(transfers):
    transfer = transfers.open("run", "a-1-1", {0: 1.0, 1: 1.0})
    transfer.add(0, half(0))
    found = []
    waiting = threading.Thread(target=lambda: found.append(transfers.mean(transfer, there)))
    waiting.start()
    time.sleep(0.05)
    assert not found
    transfer.add(1, half(1))
    waiting.join(10)
    assert_same(found[0], average([half(0), half(1)], [1.0, 1.0]))


def test_who_has_gone_is_not_waited_with(transfers):
    transfer = transfers.open("run", "a-1-1", {0: 1.0, 1: 1.0})
    assert transfers.mean(transfer, lambda: False) is None


def test_all_must_name_the_same_weights(transfers):
    transfers.open("run", "a-1-1", WEIGHTS)
    transfers.open("run", "a-1-1", dict(reversed(WEIGHTS.items())))
    for other in ({**WEIGHTS, 0: 131.0}, {0: 130.0, 2: 71.0}, {**WEIGHTS, 3: 1.0}):
        with pytest.raises(WireError, match="other weights than another device") as refusal:
            transfers.open("run", "a-1-1", other)
        assert refusal.value.reason == wire.MALFORMED


@pytest.mark.parametrize(
    "weights", [{}, {0: 0.0}, {0: -1.0}, {0: float("nan")}, {0: float("inf")}, {0: 1.0, 1: -0.5}]
)
def test_weights_are_positive_numbers(transfers, weights):
    with pytest.raises(WireError, match="weights are positive numbers, at least one"):
        transfers.open("run", "a-1-1", weights)


@pytest.mark.parametrize(
    "name", ["", "..", "../other", "a/b", "/etc", ".", "-", "a.b", "a\0b", "a b", "x" * 101, "a\nb"]
)
def test_a_name_that_is_none_leads_nowhere(tmp_path, name):
    transfers = Transfers(tmp_path / "halves")
    for run, transfer in ((name, "a-1-1"), ("run", name)):
        with pytest.raises(WireError, match="is no name of a run or a transfer") as refusal:
            transfers.open(run, transfer, WEIGHTS)
        assert refusal.value.reason == wire.MALFORMED
    assert not list(tmp_path.iterdir())


def test_halves_of_different_models_have_no_mean(transfers):
    for name, other in (("a-1-1", half(1, width=5)), ("a-1-2", {"conv.weight": half(1)["conv.weight"]})):
        transfer = transfers.open("run", name, {0: 1.0, 1: 1.0})
        transfer.add(0, half(0))
        transfer.add(1, other)
        with pytest.raises(WireError, match="halves of different models cannot be averaged"):
            transfers.mean(transfer, there)


def test_the_newest_transfers_of_a_run_are_kept_and_other_runs_are_left_alone(tmp_path, transfers):
    other = transfers.open("elsewhere", "a-1-1", {0: 1.0})
    for number in range(KEPT + 3):
        transfers.open("run", f"a-1-{number}", {0: 1.0})
        time.sleep(0.01)  # so that the file system tells them apart
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        f"a-1-{number}" for number in range(3, KEPT + 3)
    ]
    assert other.folder.exists()


def test_a_full_disk_is_named_and_leaves_no_half_of_a_half(transfers):
    transfer = transfers.open("run", "a-1-1", {0: 1.0})
    large = {"weight": torch.zeros(100_000)}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(InputError, match=r"cannot write .*device-0000.*make room"):
            transfer.add(0, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not transfer.complete
    assert [path.name for path in transfer.folder.iterdir()] == ["weights.json"]
    transfer.add(0, large)
    assert transfer.complete
