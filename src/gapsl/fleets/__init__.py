"""Ways in which a run reaches its devices: in this process, over the network, or as records say.

What every fleet promises stands in `base`; the same loop and methods serve all of them. No method, and
nothing that decides what is trained, belongs here.
"""

from gapsl.fleets.local import LocalFleet

__all__ = ["LocalFleet"]
