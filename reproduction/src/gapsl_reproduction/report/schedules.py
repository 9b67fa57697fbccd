"""Schedules of the learning rates, and what they make of the time until a run has converged."""

from __future__ import annotations

from gapsl_reproduction.catalogue import Scale
from gapsl_reproduction.planned import planned
from gapsl_reproduction.report.measures import Measure, converged, converged_rounds

CONSTANT = "constant"
# What to know of the times, wherever they are shown.
COUNTED = "In rounds where the rates fall by a schedule, which then decides more than the method."


def schedule_of(scale: Scale, workload: str) -> str:
    """Return how a workload's learning rates change over the rounds, those of one half at least."""
    config = planned(scale.workloads[workload].settings).config
    found = {config.device_optimizer.schedule, config.server_optimizer.schedule} - {CONSTANT}
    return min(found, default=CONSTANT)


def time_of(scale: Scale, workload: str) -> tuple[Measure, str]:
    """Return what time to converge is counted in, and its name: rounds where a schedule goes by them."""
    if schedule_of(scale, workload) == CONSTANT:
        return converged, "epochs to converge"
    return converged_rounds, "rounds to converge"


def caution(scale: Scale, workload: str) -> str:
    """Say what a schedule does to the time until a run has converged, if there is one."""
    schedule = schedule_of(scale, workload)
    if schedule == CONSTANT:
        return ""
    return (
        f"The learning rates fall by a {schedule} schedule: every method's accuracy rises until they are "
        "low, so that these times tell the length of the runs more than the speed of a method, and nothing "
        "is concluded from them."
    )
