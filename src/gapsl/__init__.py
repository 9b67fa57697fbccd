"""Parallel split learning on devices whose data differ: GAPSL and the methods it is compared with."""

__version__ = "0.1.0"

from gapsl.common.errors import GapslError, InputError, TrainingStopped
from gapsl.data import Source, load_source, make_partition
from gapsl.methods import METHODS, Parallel, Parameters, Strategy, register_method
from gapsl.models import Split, build_model, check_cut, register_model, split
from gapsl.run.api import resume, train, trained
from gapsl.run.observers import Observer

__all__ = [
    "METHODS",
    "GapslError",
    "InputError",
    "Observer",
    "Parallel",
    "Parameters",
    "Source",
    "Split",
    "Strategy",
    "TrainingStopped",
    "build_model",
    "check_cut",
    "load_source",
    "make_partition",
    "register_method",
    "register_model",
    "resume",
    "split",
    "train",
    "trained",
]
