"""Models in two parts: build one by name, cut your own, check the cut, start from a file.

A `Split` is a model that is cut; a `ModelPart` is one side of it with its optimizer. Data, devices and
methods do not belong here.
"""

from gapsl.models.catalogue import MODELS, ModelEntry, build_model, register_model
from gapsl.models.cut import CutError, GivenModel, Split, cuts_of, split
from gapsl.models.cut_checks import CutReport, check_cut
from gapsl.models.pretrained import load_pretrained

__all__ = [
    "MODELS",
    "CutError",
    "CutReport",
    "GivenModel",
    "ModelEntry",
    "Split",
    "build_model",
    "check_cut",
    "cuts_of",
    "load_pretrained",
    "register_model",
    "split",
]
