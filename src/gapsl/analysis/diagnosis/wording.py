"""Numbers and lists as people read them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gapsl.analysis.diagnosis.evidence import Evidence, Labels

NAMED = 5  # more names than this nobody reads
MIX = 3  # classes named of a device's labels
MENTIONED = 0.05  # a class with less of a device's samples is among the others


def percent(share: float) -> str:
    """Return a share in percent, with a decimal only where it is small."""
    value = 100 * share
    return f"{value:.1f} %" if 0 < abs(value) < 9.95 else f"{value:.0f} %"


def points(difference: float) -> str:
    """Return a difference of accuracies in points."""
    value = round(100 * difference)
    return f"{value} point{'' if abs(value) == 1 else 's'}"


def times(factor: float) -> str:
    """Return a factor with two digits, in words where it is beyond counting."""
    return f"{factor:,.0f} times" if 100 <= factor < 1e6 else f"{factor:.2g} times"


def listed(names: Sequence[object]) -> str:
    """Return names with commas and an "and", cut short where there are many."""
    words = [str(name) for name in names]
    if len(words) > NAMED + 1:
        words = [*words[:NAMED], f"{len(words) - NAMED} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def capital(text: str) -> str:
    """Return a text that starts with a capital; `str.capitalize` would change the rest, too."""
    return text[:1].upper() + text[1:]


def devices(ids: Sequence[int]) -> str:
    """Return "device 3" or "devices 3, 5 and 8"."""
    return f"device{'' if len(ids) == 1 else 's'} {listed(ids)}"


def classes(run: Evidence, indices: Sequence[int]) -> str:
    """Return "class cat" or "classes cat, dog and ship"."""
    names = [run.class_name(index) for index in indices]
    return f"class{'' if len(names) == 1 else 'es'} {listed(names)}"


def label_mix(labels: Labels, device: int) -> str:
    """Return how many samples a device has, and of which classes most."""
    own = labels.proportions[device]
    order = [int(i) for i in np.argsort(-own, kind="stable")[:MIX] if own[i] >= MENTIONED]
    parts = [f"{percent(own[i])} class {labels.classes[i]}" for i in order]
    rest = 1 - float(own[order].sum())
    if rest >= 0.005:  # what percent() would not round to 0
        parts.append(f"{percent(rest)} other")
    return f"{labels.counts[device].sum()} samples: {', '.join(parts)}"
