"""A server's folder, from its first moment on: started again, it goes on with what it was started with."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from network import SMALL, Devices, Served, trained_over_loopback
from processes import wait_until

import gapsl
from gapsl.cli.serve import serve
from gapsl.common.errors import InputError, Unavailable
from gapsl.network.device.agent import Patience
from gapsl.network.protocol.settings import make_network
from gapsl.run.api import compose
from gapsl.run.folder import RunFolder
from gapsl.run.observers import Observer
from gapsl.run.replay import refuse_unrepeatable
from gapsl.run.served_run import (
    check_served,
    opened,
    refuse_plainer,
    served_settings,
    settled,
    stored_network,
)

CONFIG = compose(words={**SMALL, "method": "psl"})
Stopped = Callable[..., Any]


def test_a_server_killed_before_its_network_was_written_is_started_again_by_the_same_command(
    tmp_path: Path,
) -> None:
    RunFolder.create(tmp_path / "run", CONFIG, {})
    asked = {"names": ["a", "b", "c"], "activations": "fp16"}
    config, network = served_settings(None, None, {"network": asked}, tmp_path / "run")
    assert config == CONFIG
    assert network.names == ("a", "b", "c") and network.activations == "fp16"
    opened(RunFolder(tmp_path / "run"), config, network)
    assert stored_network(tmp_path / "run") == network


def test_settings_of_the_network_that_devices_rely_on_stay_as_they_were(tmp_path: Path) -> None:
    opened(RunFolder(tmp_path / "run"), CONFIG, make_network({"activations": "fp16", "patience": 5}))
    config, network = served_settings(None, None, {"network": {"patience": 60}}, tmp_path / "run")
    assert (config, network.activations, network.patience) == (CONFIG, "fp16", 60)
    for changed in ({"activations": "int8"}, {"names": ["a", "b", "c"]}, {"compression": "zstd"}):
        with pytest.raises(InputError, match=r"was started with network.*choose another --out"):
            served_settings(None, None, {"network": changed}, tmp_path / "run")


def test_another_configuration_is_not_the_same_run(tmp_path: Path) -> None:
    opened(RunFolder(tmp_path / "run"), CONFIG, make_network({}))
    (tmp_path / "run.yaml").write_text("method: gapsl\n", encoding="utf-8")
    with pytest.raises(InputError, match="was started with method = psl, not gapsl"):
        served_settings(tmp_path / "run.yaml", None, {}, tmp_path / "run")
    with pytest.raises(InputError, match=r"was started with batch_size = \d+, not 9"):
        served_settings(None, None, {"batch_size": 9}, tmp_path / "run")
    same, _ = served_settings(None, None, {"rounds": 5}, tmp_path / "run")
    assert same == CONFIG


@pytest.mark.parametrize("in_file", [True, False])
def test_more_rounds_extend_a_run(in_file: bool, tmp_path: Path) -> None:
    opened(RunFolder(tmp_path / "run"), CONFIG, make_network({}))
    asked = {**CONFIG.resolved(), "rounds": 9}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(asked), encoding="utf-8")
    file = tmp_path / "run.yaml" if in_file else None
    longer, _ = served_settings(file, None, {} if in_file else {"rounds": 9}, tmp_path / "run")
    assert (longer.rounds, longer.extended_to) == (5, 9)


def test_settings_of_the_network_may_be_given_like_all_others(tmp_path: Path) -> None:
    words = {"network": {"patience": 5}, "rounds": 3}
    config, network = served_settings(None, None, words, tmp_path / "run")
    assert (config.rounds, network.patience) == (3, 5)


def test_a_run_with_devices_elsewhere_is_not_gone_on_with_here(tmp_path: Path) -> None:
    opened(RunFolder(tmp_path / "run"), CONFIG, make_network({}))
    with pytest.raises(InputError, match="go on with it by: gapsl serve --out"):
        gapsl.resume(tmp_path / "run")


@pytest.mark.parametrize(
    ("network", "why"), [({"data": "own"}, "their own data"), ({"gradients": "bf16"}, "loses digits")]
)
def test_what_cannot_be_repeated_to_the_bit_is_not_replayed(
    tmp_path: Path, network: dict[str, str], why: str
) -> None:
    opened(RunFolder(tmp_path / "run"), CONFIG, make_network(network))
    with pytest.raises(InputError, match=why):
        refuse_unrepeatable(tmp_path / "run")


def test_a_server_computes_with_the_threads_of_its_settings(tmp_path: Path) -> None:
    class Watch(Observer):
        def __init__(self) -> None:
            self.threads: list[int] = []

        def round(self, record: Any) -> None:
            self.threads.append(torch.get_num_threads())

    before, watch = torch.get_num_threads(), Watch()
    config = compose(words={**SMALL, "method": "psl", "threads": 2, "rounds": 1, "evaluate_every": 1})
    trained_over_loopback(config, tmp_path, observers=[watch])
    assert watch.threads == [2] and torch.get_num_threads() == before


class StopAfter(Observer):
    """Asks a server to stop after some rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.done = rounds, 0

    def round(self, record: Any) -> None:
        self.done = record.round

    def asked(self) -> bool:
        return self.done >= self.rounds


def stopped_run(tmp_path: Path, checkpoint_every: int) -> Any:
    """Serve a run until its third round is stored; returns its configuration."""
    config = compose(words={**SMALL, "method": "psl", "checkpoint_every": checkpoint_every})
    stop = StopAfter(3)
    served = Served(config, tmp_path, observers=[stop], stop=stop.asked)
    served.devices.patience = Patience(first=0.05, longest=0.1, whole=1.0)
    served.devices.start(served.port, "device-0", "device-1", "device-2")
    wait_until(lambda: not served.running, "the server's end")
    assert stop.done >= 3 and RunFolder(tmp_path / "run").result() is None
    return config


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """Returns the configuration of such a run, of which a folder has a copy; each is served once."""
    made: dict[int, tuple[Path, Any]] = {}

    def copied(folder: Path, checkpoint_every: int = 1) -> Any:
        if checkpoint_every not in made:
            place = tmp_path_factory.mktemp("stopped")
            made[checkpoint_every] = (place, stopped_run(place, checkpoint_every))
        place, config = made[checkpoint_every]
        shutil.copytree(place, folder, dirs_exist_ok=True)
        return config

    return copied


def test_a_finished_run_needs_its_checkpoints_no_more(tmp_path: Path) -> None:
    config = compose(words={**SMALL, "method": "psl"})
    result = trained_over_loopback(config, tmp_path)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    again = trained_over_loopback(config, tmp_path)
    assert again.final == result.final


def test_a_device_without_its_checkpoints_is_refused_and_no_round_is_lost(
    stopped: Stopped, tmp_path: Path
) -> None:
    config = stopped(tmp_path)
    elsewhere = Devices(tmp_path / "elsewhere")
    served = Served(config, tmp_path)
    served.devices.start(served.port, "device-0", "device-2")
    elsewhere.start(served.port, "device-1")
    elsewhere.join()
    assert isinstance(elsewhere.ended["device-1"], InputError)
    assert "none that all have is in its folder; start it with the --state that it had" in str(
        elsewhere.ended["device-1"]
    )
    assert "device-1 is refused: it lacks the run's checkpoints" in served.said
    served.devices.start(served.port, "device-1")  # with what it had
    assert served.result().final.weights_sha256 == gapsl.train(config).final.weights_sha256
    assert not any("the checkpoint of round 0" in text for text in served.said)


def test_a_device_that_lost_its_state_begins_afresh_on_purpose_and_the_run_can_be_replayed(
    stopped: Stopped,
    tmp_path: Path,
) -> None:
    config = stopped(tmp_path)
    afresh = Devices(tmp_path / "elsewhere", fresh=True)
    served = Served(config, tmp_path)
    served.devices.start(served.port, "device-0", "device-2")
    afresh.start(served.port, "device-1")
    result = served.result()
    afresh.join()
    assert "device-1 goes on from round 0 of its own, the run is at 3" in served.said
    records = list(RunFolder(tmp_path / "run").records())
    assert [record.round for record in records] == [1, 2, 3, 4, 5], "no round is lost"
    assert records[3].events.restored_before == {1: 0}
    assert result.final.weights_sha256 != gapsl.train(config).final.weights_sha256
    assert gapsl.replay(tmp_path / "run").identical


def test_with_data_of_their_own_devices_are_not_waited_for_without_end(tmp_path: Path) -> None:
    assert settled(CONFIG, make_network({})).closing == "all"
    assert settled(CONFIG, make_network({"data": "own"})).closing == "quorum:0.8"
    assert settled(CONFIG, make_network({"data": "own", "closing": "all"})).closing == "all"
    in_turn = compose(words={**SMALL, "method": "vanilla"})
    assert settled(in_turn, make_network({"data": "own", "parameter_server": "a:1"})).closing == "all"


def test_records_with_a_gap_are_not_gone_on_with(stopped: Stopped, tmp_path: Path) -> None:
    config = stopped(tmp_path)
    records = tmp_path / "run" / "records.jsonl"
    whole = records.read_text().splitlines(keepends=True)
    for kept in (whole[:1], [*whole[:1], *whole[2:]], []):
        records.write_text("".join(kept))
        with pytest.raises(InputError, match=r"records\.jsonl lacks rounds that its checkpoints have"):
            trained_over_loopback(config, tmp_path)
    records.write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match="is damaged"):
        trained_over_loopback(config, tmp_path)


def test_as_many_devices_as_are_named_take_part_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    named = {"names": ["cam", "mic"]}
    config, network = served_settings(None, None, {"network": named}, tmp_path / "run")
    assert config.devices == 2 and network.device_names(config.devices) == ("cam", "mic")
    config, network = served_settings(None, None, {"devices": 3, "network": named}, tmp_path / "run")
    with pytest.raises(InputError, match=r"network\.names has 2 devices, devices = 3"):
        network.device_names(config.devices)


@pytest.mark.parametrize("section", [None, {}])
def test_an_empty_section_of_the_network_is_none(tmp_path: Path, section: Any) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({"network": section, "devices": 3}))
    assert served_settings(file, None, {}, tmp_path / "run")[1] == make_network({})


def test_a_section_of_the_network_that_is_a_list_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("network: [all]\n")
    with pytest.raises(InputError, match="`network` is a section"):
        served_settings(file, None, {}, tmp_path / "run")


@pytest.mark.parametrize("lost", ["run", "fleet.json", "records.jsonl", "network.yaml", "checkpoints"])
def test_a_folder_that_has_lost_a_file_is_not_gone_on_with(
    stopped: Stopped, tmp_path: Path, lost: str
) -> None:
    config = stopped(tmp_path)
    path = tmp_path / "run" / lost
    aside = path.rename(tmp_path / "aside")
    if lost == "checkpoints":
        path.mkdir()
    with pytest.raises(InputError, match=f"has lost {lost}, without which the run cannot go on"):
        trained_over_loopback(config, tmp_path)
    if lost == "checkpoints":
        path.rmdir()
    aside.rename(path)
    result = trained_over_loopback(config, tmp_path)
    assert result.final.weights_sha256 == gapsl.train(config).final.weights_sha256


@pytest.mark.parametrize("every", [1, 2, 100])  # with 100 there is but the one of the stop
def test_checkpoints_that_are_gone_but_for_the_start_do_not_send_everybody_back_to_it(
    stopped: Stopped, tmp_path: Path, every: int
) -> None:
    config = stopped(tmp_path, checkpoint_every=every)
    kept = {path.name for path in (tmp_path / "state").glob("*/*/round-*")}
    for path in (tmp_path / "run" / "checkpoints").glob("round-*"):
        if path.name != "round-000000":
            shutil.rmtree(path)
    with pytest.raises(InputError, match="has lost checkpoints, without which the run cannot go on"):
        trained_over_loopback(config, tmp_path)
    assert kept and {path.name for path in (tmp_path / "state").glob("*/*/round-*")} == kept


@pytest.mark.parametrize("name", ["network.yaml", "config.yaml"])
def test_an_emptied_file_of_settings_does_not_mean_defaults(tmp_path: Path, name: str) -> None:
    opened(RunFolder(tmp_path / "run"), CONFIG, make_network({"activations": "fp16"}))
    (tmp_path / "run" / name).write_text("")
    with pytest.raises(InputError, match=f"{name} is damaged"):
        served_settings(None, None, {}, tmp_path / "run")


@pytest.mark.parametrize("line", ["{}", "[1]", '{"round": "one"}'])
def test_a_record_that_is_none_is_damage_and_no_accident(stopped: Stopped, tmp_path: Path, line: str) -> None:
    config = stopped(tmp_path)
    records = tmp_path / "run" / "records.jsonl"
    records.write_text(line + "\n" + records.read_text())
    with pytest.raises(InputError, match=r"records\.jsonl is damaged in line 1: .*; put it back from a copy"):
        trained_over_loopback(config, tmp_path)


def test_when_rounds_close_may_change_and_stays_changed(stopped: Stopped, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    stopped(tmp_path)
    config, network = served_settings(None, None, {"network": {"closing": "fraction:0.5"}}, folder.path)
    served = Served(config, tmp_path, network=network.model_dump(mode="json"))
    served.devices.start(served.port, "device-0", "device-1", "device-2")
    served.result()
    assert served_settings(None, None, {}, folder.path)[1].closing == "fraction:0.5"


def test_a_run_that_could_not_begin_is_not_in_the_way_of_the_next(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="2000 devices but"):
        trained_over_loopback(compose(words={**SMALL, "method": "psl", "devices": 2000}), tmp_path)
    assert not [path for path in (tmp_path / "run").iterdir() if not path.name.startswith(".")]
    trained_over_loopback(CONFIG, tmp_path)


@pytest.mark.parametrize(("finished", "way"), [(True, "gapsl show"), (False, "gapsl resume")])
def test_a_run_that_was_trained_without_a_network_is_not_served(
    tmp_path: Path, finished: bool, way: str
) -> None:
    gapsl.train(CONFIG, out=tmp_path / "run")
    if not finished:
        (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(InputError, match=f"was trained without a network: .*{way}"):
        trained_over_loopback(CONFIG, tmp_path)


def test_a_served_run_is_not_in_the_way_of_another_without_the_right_command(tmp_path: Path) -> None:
    opened(RunFolder(tmp_path / "run"), CONFIG, make_network({}))
    with pytest.raises(InputError, match="go on with it by: gapsl serve --out"):
        gapsl.train(CONFIG, out=tmp_path / "run")


@pytest.mark.parametrize("metrics", ["", "localhost:0"])
def test_a_server_whose_port_is_taken_leaves_nothing_in_the_way_of_the_next_attempt(
    metrics: str, tmp_path: Path
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"localhost:{other.getsockname()[1]}"
        for _ in range(2):
            with pytest.raises(Unavailable, match="another program is at"):
                gapsl.serve(CONFIG, out=tmp_path / "run", listen=address, metrics=metrics)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_a_device_that_cannot_write_its_state_says_so_before_it_trains(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    broken = Devices(tmp_path / "file")
    served = Served(CONFIG, tmp_path)
    broken.start(served.port, "device-0")
    broken.join()
    assert "cannot write to" in str(broken.ended["device-0"])
    assert "choose another --state" in str(broken.ended["device-0"])
    served.devices.start(served.port, "device-0", "device-1", "device-2")
    assert served.result().final.weights_sha256 == gapsl.train(CONFIG).final.weights_sha256


def test_a_damaged_name_of_a_run_is_named(stopped: Stopped, tmp_path: Path) -> None:
    config = stopped(tmp_path)
    name = tmp_path / "run" / "run"
    for damaged in (b"", name.read_bytes()[:16], b"\xff" * 32):
        name.write_bytes(damaged)
        with pytest.raises(InputError, match="is damaged: it names the run"):
            trained_over_loopback(config, tmp_path)


def test_a_run_served_over_tls_goes_on_in_plain_text_only_if_it_is_asked_to(tmp_path: Path) -> None:
    refuse_plainer(tmp_path)
    (tmp_path / "security").write_text("plain text")
    refuse_plainer(tmp_path)
    (tmp_path / "security").write_text("mutual TLS")
    with pytest.raises(InputError, match=r"was served with mutual TLS.*--certs as before.*--insecure"):
        refuse_plainer(tmp_path)
    with pytest.raises(InputError, match="was served with mutual TLS"):
        serve(out=tmp_path, listen="localhost:0")


def test_a_run_that_is_finished_stays_as_it_is(tmp_path: Path) -> None:
    first = trained_over_loopback(CONFIG, tmp_path)
    assert trained_over_loopback(CONFIG, tmp_path, started=lambda port: None) == first


def test_methods_that_cannot_be_served_say_what_is_missing() -> None:
    with pytest.raises(InputError, match="central has all data in one place, so there is nothing to serve"):
        check_served(compose(words={"method": "central"}), make_network({}))
    for method in ("sfl", "vanilla"):
        config = compose(words={"method": method})
        with pytest.raises(InputError, match="start a gapsl parameter-server, and name it with"):
            check_served(config, make_network({}))
        check_served(config, make_network({"parameter_server": "localhost:7444"}))
    with pytest.raises(InputError, match="vanilla goes from device to device"):
        check_served(config, make_network({"parameter_server": "localhost:7444", "closing": "fraction:0.5"}))


def test_a_device_whose_disk_is_full_stops_with_a_word_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    run = tmp_path / "run" / "run"

    class Obstacle(Observer):
        def round(self, record: Any) -> None:
            if record.round == 1 and not served.devices.ended:
                place = served.devices.state / run.read_text(encoding="utf-8") / "device-1"
                shutil.rmtree(place)
                place.touch()  # a file where its folder has to be: it cannot write

    config = compose(words={**SMALL, "method": "psl", "checkpoint_every": 2})
    served = Served(config, tmp_path, observers=[Obstacle()])
    served.devices.start(served.port, "device-0", "device-1", "device-2")
    wait_until(lambda: "device-1" in served.devices.ended, "the end of device-1")
    error = str(served.devices.ended["device-1"])
    assert "cannot write" in error and "make room, and start the device again" in error
    assert served.running and set(served.devices.ended) == {"device-1"}

    (served.devices.state / run.read_text(encoding="utf-8") / "device-1").unlink()
    served.devices.start(served.port, "device-1")
    result = served.result()
    assert result.final.weights_sha256 == gapsl.train(config).final.weights_sha256


def test_a_device_that_missed_the_end_is_told_when_it_comes(tmp_path: Path) -> None:
    config = compose(words={**SMALL, "rounds": 2, "evaluate_every": 2})
    first = trained_over_loopback(config, tmp_path)
    told = tmp_path / "run" / "told"
    assert told.read_text().split() == ["device-0", "device-1", "device-2"]
    told.write_text("device-0\ndevice-2\n")
    late = Devices(tmp_path / "state")
    again = trained_over_loopback(
        config, tmp_path, devices=late, started=lambda port: late.start(port, "device-1")
    )
    assert late.ended == {"device-1": "the run is finished"}
    assert again == first
    assert told.read_text().split() == ["device-0", "device-1", "device-2"]


def test_a_finished_run_that_everybody_knows_of_listens_no_more(tmp_path: Path) -> None:
    config = compose(words={**SMALL, "rounds": 2, "evaluate_every": 2})
    first = trained_over_loopback(config, tmp_path)
    assert trained_over_loopback(config, tmp_path, started=pytest.fail) == first
