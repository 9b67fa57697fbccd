"""A server's folder, from its first moment on: started again, it goes on with what it was started with."""

from __future__ import annotations

from pathlib import Path

import pytest
from network import SMALL, trained_over_loopback

from gapsl.api import compose
from gapsl.cli.serve import settings_of
from gapsl.errors import InputError
from gapsl.net.settings import make_network
from gapsl.serving import check_served, opened, stored_network
from gapsl.training.folder import RunFolder

CONFIG = compose(words={**SMALL, "method": "psl"})


def test_a_server_killed_before_its_network_was_written_is_started_again_by_the_same_command(
    tmp_path: Path,
) -> None:
    RunFolder.create(tmp_path / "run", CONFIG, {})
    asked = {"names": ["a", "b", "c"], "activations": "fp16"}
    config, network = settings_of(None, None, {}, asked, tmp_path / "run")
    assert config == CONFIG
    assert network.names == ("a", "b", "c") and network.activations == "fp16"
    opened(tmp_path / "run", config, network)
    assert stored_network(tmp_path / "run") == network


def test_settings_of_the_network_that_devices_rely_on_stay_as_they_were(tmp_path: Path) -> None:
    opened(tmp_path / "run", CONFIG, make_network({"activations": "fp16", "patience": 5}))
    config, network = settings_of(None, None, {}, {"patience": 60}, tmp_path / "run")
    assert (config, network.activations, network.patience) == (CONFIG, "fp16", 60)
    for changed in ({"activations": "int8"}, {"names": ["a", "b", "c"]}, {"compression": "zstd"}):
        with pytest.raises(InputError, match=r"was started with network.*choose another --out"):
            settings_of(None, None, {}, changed, tmp_path / "run")


def test_another_configuration_is_not_the_same_run(tmp_path: Path) -> None:
    opened(tmp_path / "run", CONFIG, make_network({}))
    (tmp_path / "run.yaml").write_text("method: gapsl\n", encoding="utf-8")
    with pytest.raises(InputError, match="was started with method = psl, not gapsl"):
        settings_of(tmp_path / "run.yaml", None, {}, {}, tmp_path / "run")


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
