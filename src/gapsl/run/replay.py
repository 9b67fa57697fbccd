"""A run over the network once more in this process, with who took part when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from gapsl.common.errors import InputError
from gapsl.data.download import Progress
from gapsl.data.from_python import GivenData
from gapsl.fleets.local import ReplayFleet
from gapsl.methods.server_model import Loss, cross_entropy
from gapsl.models import Split
from gapsl.run.api import compose, displayed
from gapsl.run.build import make_parts, make_training
from gapsl.run.environment import threads
from gapsl.run.folder import RunFolder
from gapsl.run.local_fleet import make_fleet
from gapsl.run.observers import Observer
from gapsl.run.parts import Given
from gapsl.run.records import RunResult
from gapsl.run.served_run import stored_network


@dataclass(frozen=True)
class Replay:
    """What a replay gave, and what it was to give."""

    result: RunResult
    expected: RunResult
    absences: int  # times that a device was missing in an exchange
    rollbacks: int  # times that a device went back to an earlier state of its own

    @property
    def identical(self) -> bool:
        """Whether the weights are the same, bit for bit."""
        return self.result.final.weights_sha256 == self.expected.final.weights_sha256


def replay(
    out: str | Path,
    *,
    model: nn.Module | Split | None = None,
    dataset: GivenData | None = None,
    observers: Sequence[Observer] = (),
    stop: Callable[[], bool] = lambda: False,
    loss: Loss = cross_entropy,
    progress: bool | Progress = False,
    **incidental: Any,
) -> Replay | None:
    """Repeat a finished run in this process, with the same devices missing at the same times.

    Returns what came of it; None if `stop` ended it early. Arguments are those of `resume`.
    """
    folder = RunFolder.open(Path(out).expanduser())
    expected = folder.result()
    if expected is None:
        raise InputError(f"{out} is not finished; finish it with: {folder.go_on}")
    config, custom = folder.config()
    given = Given(model, dataset, loss)
    given.check("replay", out, custom)
    refuse_unrepeatable(folder.path)
    config = compose(config, words=incidental)
    events = {record.round: record.events for record in folder.records()}
    with threads(config.threads), displayed(progress, "replay", observers) as (observers, download):
        parts = make_parts(config, given, partition_file=folder.partition_file, progress=download)
        fleet = make_fleet(parts, kind=partial(ReplayFleet, events, expected.final.unheard))
        result = make_training(parts, fleet, observers=observers, stop=stop).run()
    if result is None:
        return None
    absences = rollbacks = 0
    for one in events.values():
        absences += sum(map(len, one.absent.values()))
        rollbacks += len(one.restored_before) + len(one.restored_between) + len(one.restored_after)
    return Replay(result, expected, absences, rollbacks)


def refuse_unrepeatable(folder: Path) -> None:
    """Refuse what this process does not have, or could not repeat to the bit."""
    result = RunFolder(folder).result()
    if result is not None and result.extended:
        raise InputError(f"{folder} was extended, and what it did depended on how many rounds there were")
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
