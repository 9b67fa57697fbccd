"""The command line loads the subcommand that is called and no other, and knows all of them."""

from __future__ import annotations

import errno
import inspect
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
import typer
import typer.main
from typer.testing import CliRunner

import gapsl
from gapsl.cli import main
from gapsl.cli.main import COMMANDS, app, load, summary
from gapsl.cli.running import guarded


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules that a fresh process has after a command."""
    script = (
        "import sys; from gapsl.cli import main\n"
        f"sys.argv = ['gapsl', *{list(arguments)!r}]\n"
        "try: main()\nexcept SystemExit as left: assert not left.code, left.code\n"
        "print('MODULES', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("MODULES ")[2].split())


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_help_and_version_load_no_subcommand_and_no_torch(arguments: tuple[str, ...]) -> None:
    loaded = loaded_by(*arguments)
    assert "gapsl.cli.running" in loaded
    assert not loaded & {place.partition(":")[0] for place in COMMANDS.values()}
    assert not loaded & {"torch", "numpy", "grpc", "pydantic", "matplotlib", "gapsl_reproduction.cli"}


def test_a_device_process_loads_no_method_no_plotting_and_no_reproduction() -> None:
    loaded = loaded_by("join", "--help")
    assert "gapsl.cli.join" in loaded
    assert not {name for name in loaded if name.startswith(("gapsl.analysis", "gapsl_reproduction"))}
    assert not loaded & {"matplotlib", "gapsl.run.build", "gapsl.cli.train"}
    assert not {name for name in loaded if name.startswith(("gapsl.methods", "gapsl.options", "gapsl.run"))}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_list_is_the_commands_own_help(name: str) -> None:
    command = load(name, COMMANDS[name])
    assert summary(COMMANDS[name]) == inspect.cleandoc(command.help)
    assert command.name == name


def test_every_subcommand_keeps_its_epilog() -> None:
    for name in ("train", "compare", "model", "serve", "join", "parameter-server", "certs", "fleet"):
        assert load(name, COMMANDS[name]).epilog, name


def test_a_typo_names_the_nearest_subcommand() -> None:
    ended = CliRunner().invoke(app, ["trian"])
    assert ended.exit_code == 2
    assert "Did you mean 'train'" in ended.output


def test_another_packages_command_is_listed_unloaded_and_called_with_our_exit_codes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = EntryPoint("show-again", "gapsl.cli.show:show", "gapsl.commands")
    broken = EntryPoint("broken", "no_such_package:command", "gapsl.commands")
    monkeypatch.setattr(sys.modules[main.__module__], "entry_points", lambda group: [found, broken])
    helped = CliRunner().invoke(app, ["--help"])
    assert helped.exit_code == 0
    assert "show-again" in helped.output
    assert "broken" in helped.output, "it breaks when it is called"
    ended = CliRunner().invoke(app, ["show-again", "/nowhere"])
    assert ended.exit_code == 2


def test_every_public_name_is_found_and_no_other() -> None:
    assert set(gapsl.__all__) <= set(dir(gapsl))
    for name in gapsl.__all__:
        assert getattr(gapsl, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'tarin'"):
        gapsl.tarin  # noqa: B018


def test_the_group_is_one_command_of_typer() -> None:
    assert set(typer.main.get_command(app).commands) >= set(COMMANDS)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_too_little_memory_is_said_without_a_traceback(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    def hungry() -> None:
        raise error

    with pytest.raises(typer.Exit) as ended:
        guarded(hungry)()
    assert ended.value.exit_code == 4
    assert "not enough memory" in capsys.readouterr().err


def test_a_full_disk_is_an_outage_wherever_it_is_met(capsys: pytest.CaptureFixture[str]) -> None:
    def writing() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(typer.Exit) as ended:
        guarded(writing)()
    assert ended.value.exit_code == 4
    assert capsys.readouterr().err == "error: No space left on device; make room, and try again\n"


def test_a_path_that_may_not_be_used_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    def writing() -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", "runs/a/records.jsonl")

    with pytest.raises(typer.Exit) as ended:
        guarded(writing)()
    assert ended.value.exit_code == 2
    assert "runs/a/records.jsonl: Operation not permitted; check the path" in capsys.readouterr().err


def test_no_option_of_a_prediction_is_ignored() -> None:
    ended = CliRunner().invoke(app, ["predict", "run", "image.png", "--certs", "folder"])
    assert ended.exit_code == 2
    assert "are for a --server" in ended.output
