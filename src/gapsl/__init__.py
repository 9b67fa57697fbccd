"""Parallel split learning on devices whose data differ: GAPSL and the methods it is compared with."""

__version__ = "0.1.0"

from gapsl.api import resume, train, trained
from gapsl.data import Source, load_source, make_partition
from gapsl.errors import GapslError, InputError, TrainingStopped
from gapsl.models import Split, build_model, check_cut, register_model, split
from gapsl.strategies import METHODS, Parallel, Parameters, Strategy, register_method
from gapsl.training.observers import Observer

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
