"""Ways in which a server reaches its devices; the same strategies serve all of them.

What every fleet promises stands in `base`. Nothing here decides what is trained.
"""

from gapsl.fleets.local import LocalFleet

__all__ = ["LocalFleet"]
