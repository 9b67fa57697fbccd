"""`gapsl replay`: a run over the network once more in this process, with who took part when."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer

from gapsl.analysis.progress import Display, RunProgress
from gapsl.cli import running
from gapsl.cli.running import output, say
from gapsl.cli.show import how_to_finish
from gapsl.common.errors import GapslError, InputError
from gapsl.common.interrupt import Interrupt
from gapsl.fleets.replay import ReplayFleet
from gapsl.run.build import make_fleet, make_parts, make_training
from gapsl.run.config import make_config, merge
from gapsl.run.folder import RunFolder
from gapsl.run.served_run import stored_network


class Different(GapslError):
    """A replay has not given what the run gave."""


def refuse_unrepeatable(folder: Path) -> None:
    """Refuse what this process does not have, or could not repeat to the bit."""
    network = stored_network(folder)
    if network.data == "own":
        raise InputError(
            f"the devices of {folder} brought their own data, which are not here to be trained on"
        )
    for name in ("activations", "gradients"):
        if getattr(network, name) != "none":
            raise InputError(
                f"{folder} was trained with network.{name} = {getattr(network, name)}, which loses digits on "
                "the way; only runs without a codec can be repeated to the bit"
            )


def replay(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    data_dir: running.DataDir = None,
    plugin: running.Plugins = None,
    quiet: running.Quiet = False,
) -> None:
    """Repeat a run in this process with the same devices missing at the same times; weights must be equal."""
    opened = RunFolder.open(folder)
    result = opened.result()
    if result is None:
        raise InputError(f"{folder} is not finished; {how_to_finish(opened)}")
    config, custom = opened.config()
    if custom:
        raise InputError(f"{folder} was started from Python with objects of its own; replay it there")
    refuse_unrepeatable(folder)
    if data_dir is not None:
        config = make_config(merge(config.resolved(), {"data_dir": data_dir}))
    happened = {record.round: record.events for record in opened.records()}
    unheard = result.final.unheard
    torch.set_num_threads(config.threads)
    parts = make_parts(config, partition_file=opened.partition_file)
    fleet = make_fleet(parts, kind=partial(ReplayFleet, happened, unheard))
    with Interrupt(running.asked_to_stop) as interrupt, Display(output, quiet=quiet) as display:
        shown = [RunProgress(display, "replay")]
        again = make_training(parts, fleet, observers=shown, stop=lambda: interrupt.asked).run()
    if again is None:
        raise typer.Exit(interrupt.exit_code)
    expected, found = (r.final.weights_sha256 for r in (result, again))
    if expected != found:
        raise Different(f"the weights differ: {expected[:16]}... in {folder}, {found[:16]}... here")
    missing = sum(len(turns) for one in happened.values() for turns in one.absent.values())
    returned = sum(
        len(one.restored_before) + len(one.restored_between) + len(one.restored_after)
        for one in happened.values()
    )
    disturbed = (
        f" ({missing} times a device was missing, {returned} times one went back to a state of its own)"
    )
    say(f"the same weights, bit for bit: {found[:16]}...{disturbed if missing or returned else ''}")
