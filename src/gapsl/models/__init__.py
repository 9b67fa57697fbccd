"""Models in two halves: build one by name, cut your own, check the cut, start from a file.

A `Split` is a model that is cut; a `Half` is one side of it with its optimizer. Nothing here knows of data,
of devices or of methods.
"""

from gapsl.models.catalogue import MODELS, ModelEntry, build_model, register_model
from gapsl.models.cut import CutError, Cuttable, Split, cuts_of, split
from gapsl.models.cut_checks import CutReport, HalfReport, check_cut
from gapsl.models.describe import Description, Layer, describe
from gapsl.models.pretrained import LoadReport, load_pretrained

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
