"""`gapsl fleet`: a run over the network on this machine alone, to try things out."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from gapsl.analysis.formats import counted
from gapsl.cli import running
from gapsl.cli.networking import given
from gapsl.cli.running import complain, guarded, output, say
from gapsl.cli.show import show
from gapsl.common.errors import InputError
from gapsl.dashboard.launch import METRICS, address_of, can_measure, check_extra, listen
from gapsl.methods.registry import METHODS
from gapsl.network.processes import PARAMETERS, SERVER, Processes
from gapsl.network.protocol.settings import Network
from gapsl.run.config import Config, merge, parse_assignment
from gapsl.run.folder import RunFolder
from gapsl.run.served_run import check_served, served_settings, settled
from gapsl.run.status import status as status_of

app = typer.Typer(
    help="Start a server and its devices as processes of this machine, to try things out.",
    epilog="Example: gapsl fleet up --devices 10 --out runs/fleet; gapsl fleet status; gapsl fleet down.",
    no_args_is_help=True,
)

Out = Annotated[Path, typer.Option(help="Folder for run/, logs/ and the devices' own state/.")]
OUT = Path("runs/fleet")
PAGE = "dashboard"  # among its processes


@app.command("up", epilog="Example: gapsl fleet up --devices 10 --set method=gapsl --wait")
@guarded
def up(
    config: running.ConfigFile = None,
    devices: running.Devices = None,
    rounds: running.Rounds = None,
    out: Out = OUT,
    preset: running.Preset = None,
    set_: running.Assignments = None,
    plugin: running.Plugins = None,
    data_dir: running.DataDir = None,
    dashboard: running.LivePage = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Devices that lost their state begin from the start.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until the run is over, and show it.")] = False,
) -> None:
    """Start server, parameter server if one is needed, and devices, or those of them that are not running."""
    processes, run = Processes(out), out / "run"
    if RunFolder(out).config_file.exists():
        raise InputError(f"{out} has a run in it, and no fleet; choose another folder with --out")
    if dashboard:
        check_extra()
    numbers = given(devices=devices, rounds=rounds).items()
    words = [*(f"{name}={value}" for name, value in numbers), *(set_ or [])]
    # Before anything is started, or written: what is wrong with them is then the only thing that is.
    chosen, network = served_settings(config, preset, merge(*map(parse_assignment, words)), run)
    check_served(chosen, settled(chosen, with_helpers(chosen, network)))
    settings = [*(["--config", str(config)] if config is not None else [])]
    settings += [*(["--preset", preset] if preset is not None else [])]
    settings += [f"--set={text}" for text in words]
    said = processes.log_size(SERVER)
    with processes.locked():
        metrics = ["--metrics", METRICS] if dashboard and can_measure() else []
        joining = ["--fresh"] if fresh else []
        if not bring_up(processes, out, chosen, network, settings, data_dir, metrics, joining):
            return
        if dashboard:
            show_page(processes, out)
    if not wait:
        say(f"see how it goes: gapsl fleet status --out {shlex.quote(str(out))}")
        say(f"stop it: gapsl fleet down --out {shlex.quote(str(out))}")
        return
    try:
        follow(processes, said)
    finally:
        processes.stop()
    if RunFolder(run).result() is None:
        raise InputError(f"the server has stopped; its log is {processes.logs / SERVER}.log")


def with_helpers(chosen: Config, network: Network) -> Network:
    """Return the network with the parameter server that will be started, if the method needs one."""
    if network.parameter_server or not METHODS[chosen.method].moves_client_models:
        return network
    return network.model_copy(update={"parameter_server": "localhost:0"})


def bring_up(
    processes: Processes,
    out: Path,
    chosen: Config,
    network: Network,
    settings: list[str],
    data_dir: str | None,
    serving: list[str],
    joining: list[str],
) -> bool:
    """Start whoever does not run; False: the run is finished, and there is nothing to start."""
    run = out / "run"
    done = RunFolder(run).result() if RunFolder(run).config_file.exists() else None
    if done is not None and (chosen.extended_to or 0) <= done.rounds:
        say(f"the run in {run} is finished; for another one choose another --out")
        show(run)
        if processes.running():
            again = f"gapsl fleet down --out {shlex.quote(str(out))}"
            say(f"{', '.join(processes.running())} still run; stop them with: {again}")
        return False
    names = network.device_names(chosen.devices)
    data = ["--data-dir", data_dir] if data_dir is not None else []
    helpers = [PARAMETERS] if METHODS[chosen.method].moves_client_models else []
    there = processes.running()
    missing = [name for name in (*helpers, SERVER, *names) if name not in there]
    if not missing:
        say(f"all {len(there)} processes of {out} are running")
        return True
    try:
        if helpers:
            state = out / "parameters"
            command = ["parameter-server", "--names", ",".join(names), "--state", str(state)]
            place = processes.serve(PARAMETERS, command, state / "address", there=SERVER in there)
            settings = [*settings, "--parameter-server", place]
        command = ["serve", "--out", str(run), *settings, *serving, *data]
        calling = any(name in there for name in names)
        address = processes.serve(SERVER, command, RunFolder(run).address_file, there=calling)
        for name in names:
            if name in missing:
                calls = ["--server", address, "--name", name, "--state", str(out / "state")]
                processes.start(name, ["join", *calls, *joining, *data])
    except BaseException:
        processes.stop(processes.started)
        raise
    if there:
        say(f"started {', '.join(missing)}; the others were running")
    say(
        f"{chosen.method} with {counted(len(names), 'device')}, server at {address}; logs in {processes.logs}"
    )
    return True


def show_page(processes: Processes, out: Path) -> None:
    """Start the live page as one of the fleet's processes, and say where it is."""
    if PAGE in processes.running():
        say(f"live page: {processes.last_lines(PAGE, 1)}")
        return
    with listen() as opened:
        place = address_of(opened, "localhost", None)
        port = opened.getsockname()[1]
    processes.start(PAGE, ["dashboard", str(out), "--expect", "--port", str(port)])
    say(f"live page: {place}")


@app.command("status")
@guarded
def status(out: Out = OUT) -> None:
    """Say who runs, and how far the run is."""
    processes = Processes(out)
    found = processes.found()
    if not found:
        again = f"gapsl fleet up --out {shlex.quote(str(out))}"
        raise InputError(f"no fleet was started in {out}; start one with: {again}")
    table = Table(box=None, pad_edge=False)
    # A long name is folded: what its process says last must stay readable.
    table.add_column("process", overflow="fold", max_width=output.width // 3)
    for title in ("pid", "state"):
        table.add_column(title, no_wrap=True)
    table.add_column("last message", overflow="fold")
    for process in sorted(found, key=lambda one: (one.name != SERVER, one.name != PARAMETERS)):
        last = processes.last_lines(process.name, 1)
        last = last[20:] if last[:2].isdigit() else last  # without its time
        last = last.removeprefix(f"{process.name}: ")
        table.add_row(process.name, str(process.pid), "up" if process.alive else "ended", last)
    output.print(table)
    if RunFolder(out / "run").config_file.exists():
        for line in status_of(out).lines():
            say(line)


@app.command("down")
@guarded
def down(out: Out = OUT) -> None:
    """Stop all of them; the run goes on with the next `gapsl fleet up`."""
    processes = Processes(out)
    for name in sorted(failed(processes)):
        say(f"{name} had ended with an {processes.last_lines(name, 1)}")
    stopped = processes.stop()
    say(f"stopped {', '.join(process.name for process in stopped)}" if stopped else "nobody was running")


def failed(processes: Processes) -> set[str]:
    """Return who has ended with an error, for example because it was refused."""
    ended = (process.name for process in processes.found() if not process.alive)
    return {name for name in ended if processes.last_lines(name, 1).startswith("error: ")}


def follow(processes: Processes, said: int = 0) -> None:
    """Show the server's log, after what it has `said` before, until it ends, and who of the devices fails."""
    told: set[str] = set()
    server = next(process for process in processes.found() if process.name == SERVER)
    with (processes.logs / f"{SERVER}.log").open(encoding="utf-8", errors="replace") as log:
        log.seek(said)
        while True:
            alive = server.alive
            for line in log:
                say(line.rstrip())
            for name in failed(processes) - told - {SERVER}:
                told.add(name)
                complain(f"{name} has ended with an {processes.last_lines(name, 1)}")
                complain(
                    "the others go on, or wait for it; it is started again by gapsl fleet up, or with --fresh"
                )
            if not alive:
                return
            time.sleep(0.2)
