"""Datasets, how they are divided among devices, and the batches each device draws.

Every draw comes from a named stream. Models, devices that train and methods do not belong here.
"""

from gapsl.data.batches import Batches
from gapsl.data.download import Places
from gapsl.data.partition import Partition, load_partition, make_partition
from gapsl.data.samples import ArraySamples, DatasetSamples, Samples, Source
from gapsl.data.show import render_counts
from gapsl.data.sources import SOURCES, load_source
from gapsl.data.transform import Shift, make_evaluation_transform, make_transform

__all__ = [
    "SOURCES",
    "ArraySamples",
    "Batches",
    "DatasetSamples",
    "Partition",
    "Places",
    "Samples",
    "Shift",
    "Source",
    "load_partition",
    "load_source",
    "make_evaluation_transform",
    "make_partition",
    "make_transform",
    "render_counts",
]
