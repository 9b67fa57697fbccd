"""Models in two halves: build one by name, cut your own, check the cut, start from a file."""

from gapsl.models.catalogue import MODELS, ModelEntry, build_model, register_model
from gapsl.models.check import CutReport, HalfReport, check_cut
from gapsl.models.cut import Cuttable, Split, cuts_of, split
from gapsl.models.describe import Description, Layer, describe
from gapsl.models.pretrained import LoadReport, load_pretrained
from gapsl.models.refusals import CutError

__all__ = [
    "MODELS",
    "CutError",
    "CutReport",
    "Cuttable",
    "Description",
    "HalfReport",
    "Layer",
    "LoadReport",
    "ModelEntry",
    "Split",
    "build_model",
    "check_cut",
    "cuts_of",
    "describe",
    "load_pretrained",
    "register_model",
    "split",
]
