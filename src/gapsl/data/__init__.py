"""Datasets, how they are divided among devices, and the batches each device draws.

Every draw comes from a named stream. Nothing here knows of models, of devices that train or of methods.
"""

from gapsl.data.batches import Batches
from gapsl.data.divide import make_partition
from gapsl.data.download import Places, download
from gapsl.data.partition import Partition, load_partition
from gapsl.data.partitioners import PARTITIONERS
from gapsl.data.samples import ArraySamples, DatasetSamples, Samples
from gapsl.data.shift import SHIFTS, Shift
from gapsl.data.show import render_counts
from gapsl.data.source import Source
from gapsl.data.sources import SOURCES, load_source
from gapsl.data.transform import (
    AUGMENTATIONS,
    EvaluationTransform,
    TrainingTransform,
    make_evaluation_transform,
    make_transform,
)

__all__ = [
    "AUGMENTATIONS",
    "PARTITIONERS",
    "SHIFTS",
    "SOURCES",
    "ArraySamples",
    "Batches",
    "DatasetSamples",
    "EvaluationTransform",
    "Partition",
    "Places",
    "Samples",
    "Shift",
    "Source",
    "TrainingTransform",
    "download",
    "load_partition",
    "load_source",
    "make_evaluation_transform",
    "make_partition",
    "make_transform",
    "render_counts",
]
