"""The methods by name."""

from __future__ import annotations

from collections.abc import Iterable

from gapsl.registry import Registry
from gapsl.strategies.ablations.fixed_ratio import FixedRatio
from gapsl.strategies.ablations.fixed_threshold import FixedThreshold
from gapsl.strategies.ablations.non_gda import NonGda
from gapsl.strategies.ablations.non_lgi import NonLgi
from gapsl.strategies.ablations.rand_gda import RandGda
from gapsl.strategies.ablations.rand_lgi import RandLgi
from gapsl.strategies.ablations.single import Single
from gapsl.strategies.base import Strategy
from gapsl.strategies.central import Central
from gapsl.strategies.epsl import Epsl
from gapsl.strategies.frozen import Frozen
from gapsl.strategies.gapsl import Gapsl
from gapsl.strategies.psl import Psl
from gapsl.strategies.sfl import Sfl
from gapsl.strategies.sfl_v2 import SflV2
from gapsl.strategies.vanilla import Vanilla

METHODS: Registry[type[Strategy]] = Registry("method")


def register_method(name: str, strategy: type[Strategy], *, aliases: Iterable[str] = ()) -> type[Strategy]:
    """Make a method known by name, as `gapsl.train(method=name)` and in a configuration."""
    return METHODS.register(name, strategy, aliases=aliases)


register_method("gapsl", Gapsl)
register_method("psl", Psl)
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
