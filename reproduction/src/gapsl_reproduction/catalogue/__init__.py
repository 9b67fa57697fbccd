"""What is reproduced, as data: lines, sweeps, scales, and the experiments made of them."""

from gapsl_reproduction.catalogue.contents import EXPERIMENTS, GROUPS, Experiment, find, wanted
from gapsl_reproduction.catalogue.grid import Grid, Point
from gapsl_reproduction.catalogue.lines import LINES, RECOMMENDED, Line
from gapsl_reproduction.catalogue.scales import SCALES, Scale, Workload, find_scale

__all__ = [
    "EXPERIMENTS",
    "GROUPS",
    "LINES",
    "RECOMMENDED",
    "SCALES",
    "Experiment",
    "Grid",
    "Line",
    "Point",
    "Scale",
    "Workload",
    "find",
    "find_scale",
    "wanted",
]
