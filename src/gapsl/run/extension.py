"""Training a run longer than it was planned."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from gapsl.common.errors import InputError
from gapsl.run.build import Parts
from gapsl.run.config import stretched
from gapsl.run.folder import RunFolder

log = logging.getLogger("gapsl")


def extended(folder: RunFolder, parts: Parts, rounds: int, custom: Mapping[str, str]) -> Parts:
    """Return the parts of a run that is to have more rounds, and write that down in its folder."""
    refuse_fewer(folder, rounds, parts.total_rounds)
    if rounds == parts.total_rounds:
        return parts
    config = parts.config.model_copy(update={"extended_to": rounds})
    folder.extend(config, custom)
    if why := stretched(config):
        log.warning("extended to %d rounds: %s", rounds, why)
    return replace(parts, config=config, total_rounds=rounds)


def refuse_fewer(folder: RunFolder, rounds: int, planned: int) -> None:
    """Refuse to make a run shorter than it is or was to be."""
    if rounds < planned:
        raise InputError(f"{folder.path} has {planned} rounds already; to train longer, give more than that")
