"""Ways in which a server reaches its devices; the same strategies serve all of them."""

from gapsl.fleets.local import LocalFleet

__all__ = ["LocalFleet"]
