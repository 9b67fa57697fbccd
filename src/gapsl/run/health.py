"""Whether a run still makes sense: one device that fails does not end it, most of them do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gapsl.common.errors import Unavailable
from gapsl.device.exchange import Outcome

PATIENCE = 10  # rounds running that most devices may be outliers before training stops
IN_VAIN = 3  # times that nobody is there to be evaluated after the same round before training stops
NAMED = 5  # devices that a message names before it counts the rest


@dataclass
class Health:
    """Who has been an outlier, for how many rounds running."""

    failing: dict[int, int] = field(default_factory=dict)  # by device
    mostly: int = 0  # rounds running in which more than half of the devices were

    def warnings(self, outcomes: Sequence[Outcome], dropped: Collection[int], devices: int) -> Iterator[str]:
        """Note a round of a fleet of so many devices; yield what a person should know.

        Raises Hopeless, after all warnings, where outliers are no longer the exception.
        """
        # Who has left has no loss, and is not ill.
        reasons = {d: why for outcome in outcomes for d, why in outcome.skipped.items() if d not in dropped}
        # A device with several turns in a round fails only if all of them do.
        trained = {d for outcome in outcomes for d in outcome.losses if d not in outcome.skipped}
        failed = {device: why for device, why in reasons.items() if device not in trained}
        self.failing = {d: rounds for d, rounds in self.failing.items() if d not in trained}
        for device, why in reasons.items():
            if device in failed:
                self.failing[device] = self.failing.get(device, 0) + 1
            rounds = self.failing.get(device, 1)
            if worth_telling(rounds):
                lasting = f" for the {rounds}th round running" if rounds > 1 else ""
                yield f"device {device} skipped{lasting}: {why}"
        self.mostly = self.mostly + 1 if len(failed) > len(trained) else 0
        # A round of few devices is not the fleet, either.
        if not trained and 2 * len(failed) > devices:
            raise Hopeless(f"all devices were outliers ({listed(failed)})")
        if self.mostly >= PATIENCE:
            raise Hopeless(
                f"more than half of the devices were outliers for {PATIENCE} rounds ({listed(failed)})"
            )


class Hopeless(Exception):
    """Training makes no sense any more."""


def worth_telling(rounds: int) -> bool:
    """Say whether so many rounds running are worth a warning: 1, 10, 100 and so on are."""
    return str(rounds).rstrip("0") == "1"


def listed(reasons: Mapping[int, str]) -> str:
    """Return the first devices with their reasons, and how many more there are."""
    first = [f"device {device}: {why}" for device, why in list(reasons.items())[:NAMED]]
    more = [f"and {len(reasons) - NAMED} more"] if len(reasons) > NAMED else []
    return "; ".join([*first, *more])


def refuse_in_vain(unmeasured: Sequence[int]) -> None:
    """End a run that goes back again and again because no device is there to be evaluated."""
    if unmeasured.count(unmeasured[-1]) == IN_VAIN:
        raise Unavailable(
            f"{IN_VAIN} times no device could be evaluated after round {unmeasured[-1]}; if a batch takes "
            "them longer than the deadline gives, give more: --closing deadline:SECONDS"
        )
