"""The command line as people use it: every subcommand, its help, plain lines and a progress bar."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from processes import (
    ENVIRONMENT,
    TINY,
    Launcher,
    fresh,
    records_of,
    result_of,
    strict_json,
    wait_until,
    weights_of,
)
from rich.cells import cell_len

import gapsl
from conftest import Runs
from gapsl.cli.main import COMMANDS, app, load
from gapsl.methods.registry import METHODS
from gapsl.run.api import compose
from gapsl.run.config import preset

ESCAPE = "\x1b"
KNOWN_METHODS = dict(METHODS)  # before any test registers one of its own


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


EVERY_COMMAND = {(): typer.main.get_command(app)}
for name, place in COMMANDS.items():
    EVERY_COMMAND |= dict(commands(load(name, place), (name,)))


# --- a fresh interpreter


def test_python_m_gapsl_trains_and_prints_plain_lines_where_there_is_no_terminal(
    undisturbed: Runs, tmp_path: Path
) -> None:
    ended = fresh("train", *TINY, "--out", "runs/a", cwd=tmp_path)
    assert ended.code == 0, ended.stderr
    assert ended.stderr == ""
    assert ESCAPE not in ended.stdout
    assert "\r" not in ended.stdout
    assert re.search(
        r"^gapsl: round 40/40 loss \d\.\d+ led \d kept \d acc 0\.\d+ \(.*/s, 0:00 left\)$", ended.stdout, re.M
    )
    assert "files: runs/a/result.json" in ended.stdout
    assert weights_of(tmp_path / "runs/a") == weights_of(undisturbed()), "a second process, the same seed"


def test_the_installed_script_is_the_same_command() -> None:
    script = Path(sys.executable).with_name("gapsl")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"gapsl {gapsl.__version__}\n")


# --- help


def test_the_commands_are_those_of_the_manual() -> None:
    named = {("train",), ("compare",), ("resume",), ("show",), ("methods",), ("model",)}
    named |= {("data",), ("data", "list"), ("data", "get"), ("data", "show")}
    assert named <= set(EVERY_COMMAND)


@pytest.mark.parametrize("path", EVERY_COMMAND, ids=lambda path: " ".join(path) or "gapsl")
def test_help_names_every_option_and_command_at_80_columns(cli: Launcher, path: tuple[str, ...]) -> None:
    ended = cli.run(*path, "--help", env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert ended.code == 0
    assert ended.stderr == ""
    assert ESCAPE not in ended.stdout
    command = EVERY_COMMAND[path]
    for name in getattr(command, "commands", {}):
        assert re.search(rf"^│ {name} ", ended.stdout, re.M), name
    for parameter in command.params:
        if parameter.param_type_name == "option" and not parameter.hidden:
            assert max(parameter.opts, key=len) in ended.stdout.split(), parameter.name
    assert all(cell_len(line) <= 80 for line in ended.stdout.splitlines())


# --- what a run is made of: preset, file, options, --set


def test_a_configuration_file_with_one_setting_changed(cli: Launcher, tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(
        "model: mlp\ndevices: 3\nrounds: 2\nbatch_size: 4\ntest_samples: 60\nseed: 5\n"
        "gapsl: {eta: 0.1, lambda: 1e-3}\nserver_optimizer: {lr: 1e-2, momentum: 0}\n",
        encoding="utf-8",
    )
    folder = tmp_path / "run"
    ended = cli.run(
        "train", "--config", file, "--set", "gapsl.eta=0.3", "--set", "server_optimizer.lr=2e-2",
        "--seed", "6", "--out", folder,
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    config = result_of(folder).config
    assert (config["devices"], config["rounds"], config["seed"]) == (3, 2, 6)
    assert (config["gapsl"]["eta"], config["gapsl"]["lambda"]) == (0.3, 1e-3)
    assert (config["server_optimizer"]["lr"], config["server_optimizer"]["momentum"]) == (0.02, 0)


def test_set_outranks_an_option_and_an_option_a_file_and_a_file_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("batch_size: 16\ndevices: 3", encoding="utf-8")
    chosen = compose(file, preset_name="paper-cifar10-vgg16", words={"devices": 5})
    assert (chosen.batch_size, chosen.devices, chosen.model) == (16, 5, "vgg16")
    chosen = compose(preset_name="paper-cifar10-vgg16", words={"rounds": 7})
    assert (chosen.rounds, chosen.epochs) == (7, None)


def test_the_presets_are_the_papers_settings() -> None:
    vgg = compose(preset_name="paper-cifar10-vgg16").resolved()
    assert (vgg["dataset"], vgg["model"], vgg["cut"], vgg["devices"]) == ("cifar10", "vgg16", 4, 10)
    assert (vgg["partition"], vgg["batch_size"], vgg["epochs"], vgg["reduction"]) == (
        "dirichlet:0.1",
        128,
        80,
        "sum",
    )
    assert (vgg["device_optimizer"]["lr"], vgg["server_optimizer"]["lr"]) == (0.005, 0.01)
    for part in (vgg["device_optimizer"], vgg["server_optimizer"]):
        assert (part["name"], part["momentum"], part["weight_decay"]) == ("sgd", 0.9, 0)
    assert (vgg["gapsl"]["k_min"], vgg["gapsl"]["k_max"], vgg["gapsl"]["lambda"]) == (0.2, 0.8, 5e-4)

    vit = compose(preset_name="paper-cifar100-vit").resolved()
    assert (vit["dataset"], vit["model"], vit["cut"], vit["patch"]) == ("cifar100", "vit-base", 3, 4)
    assert (vit["devices"], vit["batch_size"], vit["epochs"], vit["reduction"]) == (10, 64, 450, "sum")
    assert (vit["device_optimizer"]["lr"], vit["server_optimizer"]["lr"]) == (1e-4, 3e-4)
    assert vit["device_optimizer"]["name"] == vit["server_optimizer"]["name"] == "adamw"
    assert (vit["gapsl"]["k_min"], vit["gapsl"]["k_max"], vit["gapsl"]["lambda"]) == (0.2, 0.8, 3e-5)
    assert vgg["augment"] == vit["augment"] == "crop-flip"


def test_without_out_the_run_gets_a_folder_named_after_it_and_quiet_shows_no_progress(
    cli: Launcher, tmp_path: Path
) -> None:
    ended = cli.run("train", *TINY, "--rounds", "1", "--method", "gapsl/non-lgi", "--quiet", cwd=tmp_path)
    assert ended.code == 0, ended.stderr
    assert (tmp_path / "runs" / "digits-gapsl-non-lgi-seed0" / "result.json").is_file()
    assert "round 1/1" not in ended.stdout


# --- the other commands


def test_methods_lists_every_method_with_its_parameters(cli: Launcher) -> None:
    ended = cli.run("methods")
    assert ended.code == 0
    for name, strategy in KNOWN_METHODS.items():
        assert f"{name}  {strategy.summary}" in ended.stdout
    for name in ("k_min", "k_max", "eta", "lambda", "penalty", "exclusion", "excluded"):
        assert f"    gapsl.{name} " in ended.stdout
    for name in ("epsl.phi", "sfl.interval", "reduction", "device_gradient"):
        assert f"    {name} " in ended.stdout


def test_model_lists_models_and_prints_both_parts_of_one(cli: Launcher) -> None:
    ended = cli.run("model")
    assert ended.code == 0
    for name in ("vgg16", "vit-base", "small", "mlp"):
        assert name in ended.stdout

    ended = cli.run("model", "vgg16", "--cut", "4", "--width", "0.25", "--batch-size", "8")
    assert ended.code == 0, ended.stderr
    for word in ("parameters", "FLOPs", "device", "server", "features.0", "features.10", "classifier"):
        assert word in ended.stdout
    # After the fourth convolution's pool a 32×32 image has 8×8 places of 128 · 0.25 channels, 4 bytes each.
    assert "8×32×8×8 float32" in ended.stdout
    assert f"{8 * 32 * 8 * 8 * 4:,}" in ended.stdout
    device, _, server = ended.stdout.partition("\nserver")
    assert "features.9 " in device
    assert "features.10 " in server


def test_data_lists_finds_and_draws(cli: Launcher, tmp_path: Path) -> None:
    ended = cli.run("data", "list")
    assert ended.code == 0
    for name in ("digits", "fashion-mnist", "cifar10", "cifar100", "folder:PATH"):
        assert re.search(rf"^{name} ", ended.stdout, re.M)

    ended = cli.run("data", "get", "digits")
    assert (ended.code, ended.stdout) == (
        0,
        "digits: 1437 training and 360 test samples of 1×8×8, 10 classes\n",
    )

    saved, drawn = tmp_path / "partition.json", tmp_path / "split.png"
    ended = cli.run(
        "data", "show", "--partition", "shards:2", "--devices", "5", "--save", saved, "--png", drawn
    )
    assert ended.code == 0, ended.stderr
    assert "shards:2, 5 devices, seed 0" in ended.stdout
    assert [len(own) > 0 for own in json.loads(saved.read_text(encoding="utf-8"))["devices"]] == [True] * 5
    assert drawn.read_bytes().startswith(b"\x89PNG")

    settings = ["--rounds", "1", "--devices", "5", "--set", "test_samples=null"]
    ended = cli.run("train", *TINY, *settings, "--partition", f"file:{saved}", "--out", tmp_path / "run")
    assert ended.code == 0, ended.stderr


def test_show_prints_the_table_and_draws(cli: Launcher, undisturbed: Runs) -> None:
    folder = undisturbed()
    ended = cli.run("show", folder, "--plots")
    assert ended.code == 0, ended.stderr
    final = result_of(folder).final
    assert f"{100 * final.device_mean:.1f}" in ended.stdout
    assert ESCAPE not in ended.stdout
    for name in ("curves", "labels", "angles", "confusion"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_show_prints_every_format_and_the_classes(cli: Launcher, undisturbed: Runs) -> None:
    folder = undisturbed()
    mean = result_of(folder).final.device_mean
    for name, start in (("csv", "method,"), ("latex", "%"), ("markdown", "digits"), ("json", "{")):
        ended = cli.run("show", folder, "--format", name)
        assert ended.code == 0, ended.stderr
        assert ended.stdout.startswith(start)
    assert strict_json(ended.stdout)["groups"][0]["device_mean"] == mean
    ended = cli.run("show", folder, "--classes", "--confusion")
    assert ended.code == 0, ended.stderr
    assert [line.split()[0] for line in ended.stdout.splitlines()[1:12]] == ["class", *map(str, range(10))]


def test_show_tells_of_a_run_that_is_not_finished_how_far_it_is_and_how_to_finish_it(
    cli: Launcher, undisturbed: Runs, tmp_path: Path
) -> None:
    shutil.copytree(undisturbed(), tmp_path / "half")
    (tmp_path / "half" / "result.json").unlink()
    ended = cli.run("show", tmp_path)
    assert ended.code == 0, ended.stderr
    rounds = len(records_of(tmp_path / "half"))
    assert f"half is at round {rounds} of {rounds}; finish it with: gapsl resume" in ended.stdout
    shutil.copytree(tmp_path / "half", tmp_path / "other")
    shutil.copytree(undisturbed(), tmp_path / "broken")
    (tmp_path / "broken" / "result.json").write_text("[]", encoding="utf-8")
    ended = cli.run("show", tmp_path, "--plots", "--format", "csv")
    assert ended.code == 0
    assert len(ended.stdout.splitlines()) == 3, "a row per run, and not a word about pictures"
    assert "not shown: broken: " in ended.stderr and "drawn: " in ended.stderr
    ended = cli.run("show", tmp_path)
    assert f"2 runs are not finished; finish them with: gapsl resume {tmp_path}" in ended.stdout


def test_output_into_a_pipe_that_closes_early_is_no_error(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gapsl", "methods"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()  # as `head` does
    complaints = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(60) in (0, 141)
    assert "Traceback" not in complaints


# --- a comparison


@pytest.fixture(scope="module")
def comparison(cli: Launcher, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder and the output of two methods on two seeds."""
    out = tmp_path_factory.mktemp("comparison") / "out"
    chosen = ["--methods", "psl,gapsl", "--seeds", "0,1", "--workers", "2"]
    ended = cli.run("compare", *TINY, *chosen, "--out", out, env={"COLUMNS": "80"})
    assert ended.code == 0, ended.stderr
    assert ended.stderr == ""
    return out, ended.stdout


def test_a_comparison_gives_the_weights_of_single_runs(
    comparison: tuple[Path, str], undisturbed: Runs
) -> None:
    out, _ = comparison
    assert sorted(p.name for p in out.iterdir() if p.is_dir()) == [
        "gapsl-seed0", "gapsl-seed1", "psl-seed0", "psl-seed1",
    ]  # fmt: skip
    assert weights_of(out / "gapsl-seed0") == weights_of(undisturbed())
    assert weights_of(out / "gapsl-seed1") == weights_of(undisturbed("--seed", "1"))
    assert weights_of(out / "psl-seed0") == weights_of(undisturbed("--method", "psl"))


def test_a_comparison_differs_in_the_method_alone(comparison: tuple[Path, str]) -> None:
    out, _ = comparison
    for seed in (0, 1):
        psl, ours = out / f"psl-seed{seed}", out / f"gapsl-seed{seed}"
        assert (psl / "partition.json").read_bytes() == (ours / "partition.json").read_bytes()
        # The same start and the same first batches: the same losses and angles before the first step.
        for measure in ("losses", "angles", "bytes_sent"):
            first, second = (getattr(records_of(folder)[0], measure) for folder in (psl, ours))
            assert first == second
        differing = {k for k, v in result_of(ours).config.items() if result_of(psl).config.get(k) != v}
        assert differing == {"method", "gapsl"}
    assert (out / "psl-seed0/partition.json").read_bytes() != (out / "psl-seed1/partition.json").read_bytes()


def test_the_table_of_a_comparison_is_whole_and_plain(comparison: tuple[Path, str]) -> None:
    _, printed = comparison
    assert ESCAPE not in printed
    assert "…" not in printed, "cells are cut off"
    lines = printed.splitlines()
    header = next(line for line in lines if line.startswith("method"))
    for name in ("mean", "std", "min", "max", "ensemble", "merged", "local", "up", "down", "vs PSL"):
        assert name in header
    rows = [line.split()[0] for line in lines[lines.index(header) + 1 :][:2]]
    assert rows == ["PSL", "GAPSL"], "in the order they were asked for"


def test_a_preset_that_names_a_method_is_compared_under_its_own_name(cli: Launcher, tmp_path: Path) -> None:
    out = tmp_path / "out"
    one = ["compare", *TINY, "--workers", "1", "--out", out]
    ended = cli.run(*one, "--methods", "psl,recommended", env={"COLUMNS": "80"})
    assert ended.code == 0, ended.stderr
    rows = [
        line.split()[0] for line in ended.stdout.splitlines() if line.startswith(("PSL ", "recommended "))
    ]
    assert rows == ["PSL", "recommended"]
    ours = result_of(out / "recommended-seed0")
    assert (ours.method, ours.label) == ("psl", "recommended")
    for name, value in preset("recommended").items():
        if name == "device_optimizer":
            assert ours.config[name]["lr"] == value["lr"]
        else:
            assert ours.config[name] == value
    assert result_of(out / "psl-seed0").label is None
    more = cli.run(*one, "--methods", "psl,frozen", "--quiet")
    assert more.code == 0, "the same comparison with another method: " + more.stderr
    other = cli.run(*one, "--methods", "psl", "--seeds", "3", "--batch-size", "6")
    assert other.code == 2
    assert "batch_size" in other.stderr


# --- on a terminal


def on_a_terminal(*args: str, cwd: Path, columns: int = 80) -> tuple[int, str]:
    """Run gapsl on a pseudo-terminal and return its exit code and all it wrote there."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {k: v for k, v in {**os.environ, **ENVIRONMENT}.items() if k not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "gapsl", *args],
        stdin=child,
        stdout=child,
        stderr=child,
        env={**environment, "TERM": "xterm-256color"},
        start_new_session=True,
        cwd=cwd,
    )
    os.close(child)
    written = b""
    while True:
        try:
            chunk = os.read(parent, 1 << 16)
        except OSError:  # how Linux says that the other side has closed
            break
        if not chunk:
            break
        written += chunk
    os.close(parent)
    return process.wait(60), written.decode()


def visible_lines(written: str) -> list[str]:
    """Return what was written line by line, without colours and cursor movements."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written))


@pytest.mark.parametrize("command", ["methods", pytest.param("settings", marks=pytest.mark.slow)])
def test_lists_are_broken_between_words_on_a_terminal(tmp_path: Path, command: str) -> None:
    code, written = on_a_terminal(command, cwd=tmp_path)
    lines = visible_lines(written)
    assert code == 0 and max(map(len, lines)) <= 80
    (begun,) = [number for number, line in enumerate(lines) if line.startswith("    gapsl.exclusion ")]
    assert lines[begun + 1].startswith(" " * 20), "what does not fit hangs below"
    told = " ".join(line.strip() for line in lines[begun : begun + 2])
    assert "leave out devices beyond the threshold, or keep everybody (adaptive, none)" in told


@pytest.mark.parametrize("method", [pytest.param("gapsl", marks=pytest.mark.slow), "gapsl/fixed-threshold"])
def test_a_terminal_of_80_columns_shows_a_bar_in_which_nothing_is_cut_off(
    tmp_path: Path, method: str
) -> None:
    settings = ["--set", "gapsl.threshold=1.0"] if method.endswith("threshold") else []
    code, written = on_a_terminal("train", *TINY, "--method", method, *settings, "--out", "run", cwd=tmp_path)
    assert code == 0, written
    assert ESCAPE in written
    lines = visible_lines(written)
    assert max(cell_len(line) for line in lines) <= 80
    bars = [line for line in lines if "━" in line and "/40" in line]
    assert bars, "no progress bar"
    ends = [line for line in bars if "40/40" in line]
    assert ends
    assert re.match(
        rf"{method} +━.* 40/40 loss \d\.\d+ led \d kept \d acc 0\.\d+ done in \d:\d\d", ends[-1]
    ), ends[-1]
    assert any(re.search(r"\d/s \d:\d\d", line) for line in bars), "neither rounds a second nor time left"
    assert not any("…" in line for line in lines)


# --- small words


def test_what_is_done_is_said_and_runs_further_down_are_not_passed_over(
    cli: Launcher, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    for place in ("a", "b/c"):
        assert cli.run("train", *TINY, "--out", runs / place).code == 0
    rounds = str(result_of(runs / "a").rounds)
    again = cli.run("resume", runs / "a", "--rounds", rounds)
    assert again.code == 0 and "there is nothing to do" in again.stdout
    shown = cli.run("show", runs)
    assert shown.code == 0 and f"not shown: the runs in {runs / 'b'}" in shown.stderr
    diagnosed = cli.run("diagnose", runs)
    assert diagnosed.code == 0 and f"gapsl diagnose {runs / 'b'}" in diagnosed.stdout
    (runs / "a").rename(tmp_path / "a")
    for command in ("show", "diagnose"):
        nothing = cli.run(command, runs)
        assert nothing.code == 2 and f"there are runs in {runs / 'b'}" in nothing.stderr


def test_one_setting_is_explained(cli: Launcher) -> None:
    one = cli.run("settings", "gapsl.eta")
    assert one.code == 0 and "gapsl.eta" in one.stdout and "batch_size" not in one.stdout
    both = cli.run("settings", "lr").stdout
    assert "device_optimizer.lr" in both and "server_optimizer.lr" in both
    assert "gapsl.eta" in cli.run("settings", "gapsl").stdout
    unknown = cli.run("settings", "batchsize")
    assert unknown.code == 2 and "did you mean 'batch_size'?" in unknown.stderr


def test_a_device_that_is_refused_is_told_so_once(cli: Launcher, tmp_path: Path) -> None:
    served = cli.start("serve", "--devices", "1", "--listen", "localhost:0", "--out", tmp_path / "run")
    address = tmp_path / "run" / "address"
    wait_until(address.exists, "the server")
    joined = cli.run(
        "join", "--server", address.read_text(), "--name", "nobody", "--state", tmp_path / "state"
    )
    assert joined.code == 2 and joined.stderr.count("is not a device of this run") == 1
    served.kill()
