"""Client-side models at the parameter server: on disk before anybody relies on them, and their mean."""

import os
import resource
import threading
import time

import pytest
import torch

from gapsl.common.errors import Unavailable
from gapsl.models.part import average
from gapsl.network.parameter_server.store import KEPT, MEANS, RUNS, Transfers
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError

WEIGHTS = {0: 130.0, 2: 71.0, 1: 0.3}


def part(seed, width=4):
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


def brought(transfers, weights=WEIGHTS, name="a-1-1", run="run"):
    transfer = transfers.open(run, name, weights)
    for device in weights:
        transfers.add(transfer, device, part(device))
    return transfer


def tick():
    time.sleep(0.01)  # so that the file system tells what was brought from what was brought before


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)


def test_the_mean_is_that_of_a_run_in_one_process_bit_for_bit(transfers):
    transfer = brought(transfers)
    expected = average([part(device) for device in (0, 1, 2)], [130.0, 0.3, 71.0])
    assert_same(transfers.mean(transfer, there), expected)


def test_the_mean_of_one_is_what_it_brought(transfers):
    assert_same(transfers.mean(brought(transfers, {2: 1.0}), there), part(2))


def test_a_parameter_server_that_is_started_again_has_all_that_was_brought(tmp_path):
    first = Transfers(tmp_path)
    transfer = first.open("run", "a-1-1", WEIGHTS)
    first.add(transfer, 0, part(0))
    first.add(transfer, 1, part(1))
    again = Transfers(tmp_path)
    transfer = again.open("run", "a-1-1", WEIGHTS)
    assert not transfer.complete
    again.add(transfer, 2, part(2))
    assert_same(again.mean(transfer, there), average([part(d) for d in (0, 1, 2)], [130.0, 0.3, 71.0]))
    once_more = Transfers(tmp_path)
    assert_same(once_more.mean(once_more.open("run", "a-1-1", WEIGHTS), there), again.mean(transfer, there))


def test_a_draft_of_a_process_that_was_killed_is_no_contribution(transfers):
    transfer = transfers.open("run", "a-1-1", {0: 1.0})
    folder = transfer.file(0).parent
    folder.mkdir(parents=True)
    (folder / ".draft-4711").write_bytes(b"a piece of one")
    assert not transfer.complete


def test_who_brings_its_part_twice_changes_nothing(transfers):
    transfer = brought(transfers)
    transfers.add(transfer, 1, part(1))
    assert_same(transfers.mean(transfer, there), average([part(d) for d in (0, 1, 2)], [130.0, 0.3, 71.0]))


def test_who_waits_gets_the_mean_as_soon_as_the_last_has_come(transfers):
    transfer = transfers.open("run", "a-1-1", {0: 1.0, 1: 1.0})
    transfers.add(transfer, 0, part(0))
    found = []
    waiting = threading.Thread(target=lambda: found.append(transfers.mean(transfer, there)))
    waiting.start()
    time.sleep(0.05)
    assert not found
    transfers.add(transfer, 1, part(1))
    waiting.join(10)
    assert_same(found[0], average([part(0), part(1)], [1.0, 1.0]))


def test_who_has_gone_is_not_waited_with(transfers):
    transfer = transfers.open("run", "a-1-1", {0: 1.0, 1: 1.0})
    assert transfers.mean(transfer, lambda: False) is None


def test_numbers_that_are_not_finite_are_averaged_as_in_one_process(transfers):
    parts = [{"weight": torch.tensor([1.0, float("nan"), float("inf")])}, {"weight": torch.ones(3)}]
    transfer = transfers.open("run", "a-1-1", {0: 1.0, 1: 1.0})
    for device, one in enumerate(parts):
        transfers.add(transfer, device, one)
    found, expected = transfers.mean(transfer, there), average(parts, [1.0, 1.0])
    assert found["weight"].numpy().tobytes() == expected["weight"].numpy().tobytes()


def test_who_names_other_weights_has_opened_another_transfer_and_is_in_nobodys_way(transfers):
    for device, other in ((2, {**WEIGHTS, 0: 131.0}), (0, {0: 130.0, 2: 71.0}), (2, {2: 71.0})):
        transfers.add(transfers.open("run", "a-1-1", other), device, part(device, width=9))
    expected = average([part(device) for device in (0, 1, 2)], [130.0, 0.3, 71.0])
    assert_same(transfers.mean(brought(transfers), there), expected)


def test_the_order_in_which_weights_are_named_does_not_matter(transfers):
    brought(transfers)
    again = transfers.open("run", "a-1-1", dict(reversed(WEIGHTS.items())))
    assert again.complete
    assert_same(transfers.mean(again, there), average([part(d) for d in (0, 1, 2)], [130.0, 0.3, 71.0]))


@pytest.mark.parametrize(
    "weights", [{}, {0: 0.0}, {0: -1.0}, {0: float("nan")}, {0: float("inf")}, {0: 1.0, 1: -0.5}]
)
def test_weights_are_positive_numbers(transfers, weights):
    with pytest.raises(WireError, match="weights are positive numbers, at least one"):
        transfers.open("run", "a-1-1", weights)


@pytest.mark.parametrize(
    "name", ["", "..", "../other", "a/b", "/etc", ".", "-", "a.b", "a\0b", "a b", "x" * 101, "a\nb", "é"]
)
def test_a_name_that_is_none_leads_nowhere(tmp_path, name):
    transfers = Transfers(tmp_path / "parameters")
    for run, transfer in ((name, "a-1-1"), ("run", name)):
        with pytest.raises(WireError, match="is no name of a run or a transfer") as refusal:
            transfers.open(run, transfer, WEIGHTS)
        assert refusal.value.reason == wire.MALFORMED
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("widths", "odd"),
    [
        ((4, 4, 5), "device 2"),
        ((5, 4, 4), "device 0"),
        ((4, 5, 4, 6, 4), "device 1, device 3"),
        ((4, 5), "device 0, device 1"),  # nobody can tell who is right
        ((4, 5, 6), "device 0, device 1, device 2"),
    ],
)
def test_parts_of_different_models_have_no_mean_and_those_that_are_not_like_most_are_named(
    transfers, widths, odd
):
    transfer = transfers.open("run", "a-1-1", dict.fromkeys(range(len(widths)), 1.0))
    for device, width in enumerate(widths):
        transfers.add(transfer, device, part(device, width))
    with pytest.raises(WireError, match=f"of different shapes .* not like most others: {odd}$") as refusal:
        transfers.mean(transfer, there)
    assert refusal.value.reason == wire.STOPPED, "it is no fault of those who ask: they may ask again"


def test_a_part_that_lacks_a_tensor_or_has_another_dtype_is_of_another_model(transfers):
    for other in ({"conv.weight": part(2)["conv.weight"]}, {**part(2), "double": torch.zeros(5)}):
        transfer = brought(transfers)
        transfers.add(transfer, 2, other)
        with pytest.raises(WireError, match=r"not like most others: device 2$"):
            transfers.mean(transfer, there)


def test_as_soon_as_all_have_brought_parts_of_one_model_there_is_a_mean(transfers):
    transfer = brought(transfers)
    transfers.add(transfer, 2, part(2, width=5))
    with pytest.raises(WireError, match="of different shapes"):
        transfers.mean(transfer, there)
    transfers.add(transfer, 2, part(2))
    assert_same(transfers.mean(transfer, there), average([part(d) for d in (0, 1, 2)], [130.0, 0.3, 71.0]))


# --- what is kept


def stored(folder, device, run="run"):
    """The transfers of which a device's client-side models are on disk."""
    return sorted(p.name.rpartition("-")[0] for p in (folder / f"device-{device:04d}" / run).iterdir())


def test_the_newest_parts_of_a_device_in_a_run_are_kept(tmp_path, transfers):
    elsewhere = brought(transfers, {0: 1.0}, run="elsewhere")
    for number in range(KEPT + 3):
        brought(transfers, {0: 1.0}, f"a-1-{number}")
        tick()
    assert stored(tmp_path, 0) == [f"a-1-{number}" for number in range(3, KEPT + 3)]
    assert elsewhere.complete, "another run is left alone"


def test_the_runs_that_a_device_came_for_last_are_kept(tmp_path, transfers):
    for number in range(RUNS):
        brought(transfers, {0: 1.0}, run=f"run-{number:02d}")
        tick()
    brought(transfers, {0: 1.0}, "a-2-2", run="run-00")  # still in use
    for number in range(RUNS, RUNS + 3):
        brought(transfers, {0: 1.0}, run=f"run-{number:02d}")
        tick()
    kept = [0, *range(4, RUNS + 3)]
    assert sorted(path.name for path in (tmp_path / "device-0000").iterdir()) == [
        f"run-{number:02d}" for number in kept
    ]


def test_nobody_can_push_out_what_another_device_has_brought(transfers):
    honest = transfers.open("run", "a-1-1", {0: 1.0, 1: 1.0})
    transfers.add(honest, 0, part(0))
    for number in range(3 * KEPT):
        brought(transfers, {1: 1.0}, f"b-{number}")
    for number in range(3 * RUNS):
        brought(transfers, {1: 1.0}, run=f"run-{number}")
    transfers.add(honest, 1, part(1))
    assert_same(transfers.mean(honest, there), average([part(0), part(1)], [1.0, 1.0]))


def test_what_has_only_been_named_takes_no_room(tmp_path):
    transfers = Transfers(tmp_path / "parameters")
    for number in range(100):
        transfers.open(f"run-{number}", "a-1-1", {0: 1.0})
    assert not list(tmp_path.iterdir())


def test_the_means_that_were_asked_for_last_are_in_memory_whatever_the_run(transfers):
    computed = []
    transfers = Transfers(transfers._folder, computed.append)
    for number in range(3 * MEANS):
        transfers.mean(brought(transfers, {0: 1.0}, run=f"run-{number}"), there)
        tick()
    assert len(transfers._means) == MEANS
    del computed[:]
    for number in (3 * MEANS - MEANS, 3 * MEANS - 1, 0):
        transfers.mean(transfers.open(f"run-{number}", "a-1-1", {0: 1.0}), there)
    assert computed == ["run run-0, transfer a-1-1: the mean of 1 is done"], "the others were there"


def test_a_full_disk_is_named_and_leaves_no_part_of_a_part(transfers):
    transfer = transfers.open("run", "a-1-1", {0: 1.0})
    large = {"weight": torch.zeros(100_000)}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(Unavailable, match=r"cannot write .*device-0000.*make room"):
            transfers.add(transfer, 0, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not transfer.complete
    assert not list(transfer.file(0).parent.iterdir())
    transfers.add(transfer, 0, large)
    assert transfer.complete


def test_a_clock_that_is_put_back_does_not_cost_what_was_just_brought(tmp_path, transfers):
    for number in range(KEPT):
        brought(transfers, {0: 1.0}, name=f"a-{number}")
    ahead = time.time_ns() + 3600 * 10**9
    for path in tmp_path.rglob("*"):
        os.utime(path, ns=(ahead, ahead))
    for number in range(KEPT, KEPT + 2):
        transfer = brought(transfers, {0: 1.0}, name=f"a-{number}")
        assert_same(transfers.mean(transfer, there), part(0))
        assert transfer.file(0).exists()
    assert len(list(transfer.file(0).parent.iterdir())) == KEPT


def test_a_run_that_was_just_come_for_is_kept_whatever_the_clock_says(tmp_path, transfers):
    for number in range(RUNS):
        brought(transfers, {0: 1.0}, run=f"run-{number}")
    ahead = time.time_ns() + 3600 * 10**9
    for path in tmp_path.rglob("*"):
        os.utime(path, ns=(ahead, ahead))
    assert brought(transfers, {0: 1.0}, run="another").file(0).exists()


def test_a_part_that_cannot_be_read_is_told_to_those_who_wait_with_whose_it_is(transfers):
    transfer = brought(transfers)
    transfer.file(2).write_bytes(b"no client-side model")
    with pytest.raises(WireError, match="the model of device 2 cannot be read") as refused:
        transfers.mean(transfer, there)
    assert refused.value.reason == wire.STOPPED, "they may try again"
