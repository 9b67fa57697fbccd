"""The systemd units in deploy/: they start what there is, as one who may read the keys, and again."""

import inspect
import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from gapsl.cli.join import join
from gapsl.cli.parameter_server import parameter_server
from gapsl.cli.serve import serve
from gapsl.common.errors import InputError, Unavailable

DEPLOY = Path(__file__).parents[3] / "deploy"
SERVER, DEVICE = DEPLOY / "gapsl-server.service", DEPLOY / "gapsl-device@.service"
PARAMETERS = DEPLOY / "gapsl-parameter-server.service"
UNITS = (SERVER, DEVICE, PARAMETERS)


def service(unit):
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read(unit, encoding="utf-8")
    return parser["Service"]


def each(function):
    return pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)(function)


@each
def test_it_runs_as_a_user_to_whom_keys_can_be_given(unit):
    found = service(unit)
    assert (found["User"], found["Group"]) == ("gapsl", "gapsl")
    assert "DynamicUser" not in found, "whose number nobody knows before, so it could not own a key"
    text = unit.read_text(encoding="utf-8")
    assert "useradd --system" in text and "chown -R gapsl:gapsl" in text


@each
def test_it_is_started_again_whatever_ended_it_but_not_when_the_run_is_over(unit):
    found = service(unit)
    assert found["Restart"] == "always"
    if unit != PARAMETERS:  # which serves run after run
        assert "0" in found["RestartPreventExitStatus"].split()
    assert found["SuccessExitStatus"].split() == ["143", "130"], "stopping it is no failure"
    assert "StartLimitIntervalSec=0" in unit.read_text(encoding="utf-8")


def test_training_that_cannot_go_on_is_not_started_again():
    assert "3" in service(SERVER)["RestartPreventExitStatus"].split()


@each
def test_bad_input_is_not_tried_again_and_an_outage_is(unit):
    prevented = service(unit)["RestartPreventExitStatus"].split()
    assert str(InputError.exit_code) in prevented and str(Unavailable.exit_code) not in prevented


@pytest.mark.parametrize(
    ("unit", "command"), [(SERVER, serve), (DEVICE, join), (PARAMETERS, parameter_server)]
)
def test_its_options_are_those_of_the_command(unit, command):
    words = service(unit)["ExecStart"].split()
    assert words[1] == command.__name__.replace("_", "-")
    options = {word[2:] for word in words if word.startswith("--")}
    names = {"log_format": "log", "set_": "set"}
    known = {names.get(name, name.replace("_", "-")) for name in inspect.signature(command).parameters}
    assert options <= known


@each
def test_every_variable_it_needs_is_in_the_example_one_a_line(unit):
    text = unit.read_text(encoding="utf-8")
    examples = re.findall(r"^#   ([A-Z_]+)=(.*)$", text, re.MULTILINE)
    needed = re.findall(r"\$\{?([A-Z_]+)", service(unit)["ExecStart"])
    assert [name for name, _ in examples if name in needed] and {name for name, _ in examples} == set(needed)
    assert not any(re.search(r"\s[A-Z_]+=", value) for _, value in examples)


def test_a_device_brings_data_only_where_it_is_told_to():
    found = service(DEVICE)
    assert "--data" not in found["ExecStart"]
    assert found["ExecStart"].endswith(" $JOIN_ARGS"), "without braces: as many words as there are, or none"
    assert "JOIN_ARGS=" in found["Environment"].split(), "none, unless the device's file says otherwise"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@each
def test_systemd_understands_it(unit, tmp_path):
    copy = tmp_path / unit.name
    text = unit.read_text(encoding="utf-8")
    copy.write_text(text.replace("/opt/gapsl/bin/gapsl", "/bin/true"), encoding="utf-8")
    found = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60)
    complaints = [line for line in found.stderr.splitlines() if unit.name.partition(".")[0] in line]
    assert found.returncode == 0 and not complaints
