"""What `gapsl fleet up` says of its processes."""

import json

import pytest
from typer.testing import CliRunner

from gapsl.cli.fleet import failed, follow
from gapsl.cli.main import app
from gapsl.network.processes import PROCESSES, SERVER, Processes

LOGS = {
    SERVER: "error: it is the server's own",
    "device-0": "2026-11-18 device-0: the run is finished",
    "device-1": "2026-11-18 device-1: welcome\nerror: the server refuses device-1: none is in its folder",
}


def test_who_ended_with_an_error_is_told_from_those_that_are_done(tmp_path):
    ended = [{"name": name, "pid": 2**30, "begun": ""} for name in LOGS]
    (tmp_path / PROCESSES).write_text(json.dumps(ended))
    (tmp_path / "logs").mkdir()
    for name, text in LOGS.items():
        (tmp_path / "logs" / f"{name}.log").write_text(text)
    assert failed(Processes(tmp_path)) == {SERVER, "device-1"}
    ended = CliRunner().invoke(app, ["fleet", "down", "--out", str(tmp_path)])
    assert ended.output.splitlines()[1:] == [
        "server had ended with an error: it is the server's own",
        "nobody was running",
    ]


@pytest.fixture
def commands(monkeypatch):
    """Let nothing be started, and return what would be, by name."""
    found = {}

    def start(self, name, arguments):
        found[name] = list(arguments)

    def serve(self, name, arguments, file, *, there):
        found[name] = list(arguments)
        return "localhost:7443"

    monkeypatch.setattr(Processes, "start", start)
    monkeypatch.setattr(Processes, "serve", serve)
    return found


def test_a_fleet_is_asked_for_its_rounds_and_devices_to_begin_afresh(commands, tmp_path):
    asked = ["fleet", "up", "--devices", "2", "--out", str(tmp_path)]
    ended = CliRunner().invoke(app, [*asked, "--rounds", "7", "--fresh", "--set", "method=psl"])
    assert ended.exit_code == 0, ended.output
    assert {"--set=rounds=7", "--set=devices=2", "--set=method=psl"} <= set(commands[SERVER])
    assert [name for name, words in commands.items() if "--fresh" in words] == ["device-0", "device-1"]
    CliRunner().invoke(app, asked)
    assert "--fresh" not in commands["device-0"]
    assert not [word for word in commands[SERVER] if "rounds" in word]


def test_a_fleet_is_not_put_into_a_run(commands, tmp_path):
    (tmp_path / "config.yaml").write_text("method: psl\n")
    ended = CliRunner().invoke(app, ["fleet", "up", "--devices", "2", "--out", str(tmp_path)])
    assert ended.exit_code == 2 and "has a run in it, and no fleet" in ended.output
    assert not commands


def test_what_the_server_said_before_a_restart_is_not_shown_again(tmp_path, capsys):
    (tmp_path / PROCESSES).write_text(json.dumps([{"name": SERVER, "pid": 2**30, "begun": ""}]))
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "server.log"
    log.write_text("round 1, of the first start\n")
    processes = Processes(tmp_path)
    said = processes.log_size(SERVER)
    with log.open("a") as file:
        file.write("round 2, of the second\n")
    follow(processes, said)
    assert capsys.readouterr().out == "round 2, of the second\n"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("method=central", "so there is nothing to serve; use gapsl train"),
        ("method=nope", "unknown method 'nope'"),
        ("processes=2", "processes and fleet are for simulated devices"),
        ("network.names=[a,b,c]", "network.names has 3 devices, devices = 2"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_is_started(wrong, why, commands, tmp_path):
    out = tmp_path / "fleet"
    ended = CliRunner().invoke(app, ["fleet", "up", "--devices", "2", "--out", str(out), "--set", wrong])
    assert ended.exit_code == 2 and why in ended.output.replace("\n", " "), ended.output
    assert not commands and not out.exists()


@pytest.mark.parametrize("method", ["sfl", "vanilla"])
def test_a_method_that_moves_client_models_is_given_a_parameter_server(method, commands, tmp_path):
    asked = ["fleet", "up", "--devices", "2", "--out", str(tmp_path), "--set", f"method={method}"]
    ended = CliRunner().invoke(app, asked)
    assert ended.exit_code == 0, ended.output
    assert "--parameter-server" in commands[SERVER]
