"""Parallel split learning on devices whose data differ: GAPSL and the methods it is compared with.

These names are the public interface. Each is loaded when it is first used, so that a device's process, which
imports this package as everybody does, never loads a method.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gapsl.analysis.compare import Comparison, compare
    from gapsl.analysis.diagnose import Finding, diagnose
    from gapsl.common.errors import GapslError, InputError, TrainingStopped, Unavailable
    from gapsl.data import Source, load_source, make_partition
    from gapsl.inference.export import Exported, export
    from gapsl.inference.places import load
    from gapsl.inference.run_parts import trained
    from gapsl.inference.split_model import SplitModel
    from gapsl.methods import METHODS, Parallel, Parameters, Strategy, register_method
    from gapsl.models import Split, build_model, check_cut, register_model, split
    from gapsl.network.device.join import join
    from gapsl.run.api import resume, train
    from gapsl.run.named_observers import register_observer
    from gapsl.run.observers import Observer
    from gapsl.run.records import Evaluation, RoundRecord, RunResult
    from gapsl.run.replay import Replay, replay
    from gapsl.run.serve import serve
    from gapsl.run.status import RunStatus, status

__version__ = "0.2.0"

__all__ = [
    "METHODS",
    "Comparison",
    "Evaluation",
    "Exported",
    "Finding",
    "GapslError",
    "InputError",
    "Observer",
    "Parallel",
    "Parameters",
    "Replay",
    "RoundRecord",
    "RunResult",
    "RunStatus",
    "Source",
    "Split",
    "SplitModel",
    "Strategy",
    "TrainingStopped",
    "Unavailable",
    "build_model",
    "check_cut",
    "compare",
    "diagnose",
    "export",
    "join",
    "load",
    "load_source",
    "make_partition",
    "register_method",
    "register_model",
    "register_observer",
    "replay",
    "resume",
    "serve",
    "split",
    "status",
    "train",
    "trained",
]

_NAMES = {
    "gapsl.analysis.compare": ("Comparison", "compare"),
    "gapsl.analysis.diagnose": ("Finding", "diagnose"),
    "gapsl.common.errors": ("GapslError", "InputError", "TrainingStopped", "Unavailable"),
    "gapsl.data": ("Source", "load_source", "make_partition"),
    "gapsl.inference.export": ("Exported", "export"),
    "gapsl.inference.places": ("load",),
    "gapsl.inference.run_parts": ("trained",),
    "gapsl.inference.split_model": ("SplitModel",),
    "gapsl.methods": ("METHODS", "Parallel", "Parameters", "Strategy", "register_method"),
    "gapsl.models": ("Split", "build_model", "check_cut", "register_model", "split"),
    "gapsl.run.api": ("resume", "train"),
    "gapsl.network.device.join": ("join",),
    "gapsl.run.named_observers": ("register_observer",),
    "gapsl.run.observers": ("Observer",),
    "gapsl.run.records": ("Evaluation", "RoundRecord", "RunResult"),
    "gapsl.run.replay": ("Replay", "replay"),
    "gapsl.run.serve": ("serve",),
    "gapsl.run.status": ("RunStatus", "status"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name from the module it lives in."""
    if name not in _HOME:
        raise AttributeError(f"module 'gapsl' has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
