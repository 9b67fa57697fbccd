"""The methods by name."""

from __future__ import annotations

from collections.abc import Iterable

from gapsl.common.registry import Registry
from gapsl.methods.ablations import (
    FixedRatio,
    FixedThreshold,
    NonGda,
    NonLgi,
    RandGda,
    RandLgi,
    Single,
)
from gapsl.methods.base import Strategy
from gapsl.methods.central import Central
from gapsl.methods.epsl import Epsl
from gapsl.methods.frozen import Frozen
from gapsl.methods.gapsl import Gapsl
from gapsl.methods.papsl import Papsl
from gapsl.methods.psl import Psl
from gapsl.methods.sfl import Sfl
from gapsl.methods.sfl_v2 import SflV2
from gapsl.methods.vanilla import Vanilla

METHODS: Registry[type[Strategy]] = Registry("method", group="gapsl.methods", base=Strategy)


def register_method(name: str, strategy: type[Strategy], *, aliases: Iterable[str] = ()) -> type[Strategy]:
    """Make a method known by name, as `gapsl.train(method=name)` and in a configuration."""
    return METHODS.register(name, strategy, aliases=aliases)


register_method("gapsl", Gapsl)
register_method("psl", Psl)
register_method("papsl", Papsl)
register_method("epsl", Epsl)
register_method("sfl", Sfl, aliases=["sfl-v1"])
register_method("sfl-v2", SflV2)
register_method("vanilla", Vanilla, aliases=["sl", "vanilla-sl"])
register_method("frozen", Frozen)
register_method("central", Central)
register_method("single", Single)
register_method("gapsl/non-lgi", NonLgi)
register_method("gapsl/rand-lgi", RandLgi)
register_method("gapsl/non-gda", NonGda)
register_method("gapsl/rand-gda", RandGda)
register_method("gapsl/fixed-ratio", FixedRatio)
register_method("gapsl/fixed-threshold", FixedThreshold)
