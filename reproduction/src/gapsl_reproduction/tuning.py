"""The search of learning rates: the same candidates for every line, chosen on the validation split."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product

from gapsl.run.config import merge
from gapsl_reproduction.catalogue import LINES
from gapsl_reproduction.runs import RunSpec, Settings, run_spec
from gapsl_reproduction.scales import Rates, Workload
from gapsl_reproduction.store import Result

Results = Callable[[str], Result | None]  # by key

SEED = 0  # of the trials


@dataclass(frozen=True)
class Candidate:
    """What a trial tries: a pair of learning rates, and one of a line's own choices."""

    rates: Rates
    choice: int = 0  # its place among the line's choices

    def over(self, line: str) -> Settings:
        """Return a line's settings with what was chosen; what the line itself sets is not a choice."""
        found = LINES[line]
        choice = LINES[found.tuned_as or line].choices[self.choice]
        rates = {"device_optimizer": {"lr": self.rates.device}, "server_optimizer": {"lr": self.rates.server}}
        return merge(choice, found.settings, rates)


def trials(workload: Workload, line: str) -> Mapping[Candidate, RunSpec]:
    """Return the short runs among which a line's candidate is chosen; none where rates are given."""
    return _trials(workload, LINES[line].tuned_as or line)


@cache  # lines and experiments share trials
def _trials(workload: Workload, line: str) -> Mapping[Candidate, RunSpec]:
    found = LINES[line]
    rates = workload.rates
    if not found.clients_learn:  # one trial for each of the server's rates
        rates = tuple({pair.server: pair for pair in rates}.values())
    tried = [Candidate(*each) for each in product(rates, range(len(found.choices)))]
    layers = (workload.settings, workload.trial, {"seed": SEED})
    return {candidate: run_spec(*layers, candidate.over(line)) for candidate in tried}


def ranked(runs: Mapping[Candidate, RunSpec], results: Results) -> list[Candidate] | None:
    """Return candidates by validation accuracy, the best first; None before all trials have ended.

    A trial that failed is among the worst, and of those the smallest rates are the best.
    """
    found: dict[Candidate, float] = {}
    failed: list[Candidate] = []
    for candidate, run in runs.items():
        result = results(run.key)
        if result is None:
            return None
        if "failed" in result:
            failed.append(candidate)
        else:
            found[candidate] = result["final"]["validation"]["device_mean"]
    return sorted(found, key=lambda each: -found[each]) + sorted(failed, key=lambda each: each.rates)
