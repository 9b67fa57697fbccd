"""The methods: how uploads become one server update and the replies, a file each."""

from gapsl.strategies.base import Parallel, Parameters, Setting, Strategy
from gapsl.strategies.exchange import DeviceInfo, Exchange, Outcome, Reply, Upload
from gapsl.strategies.passes import Contribution, Passes
from gapsl.strategies.registry import METHODS, register_method

__all__ = [
    "METHODS",
    "Contribution",
    "DeviceInfo",
    "Exchange",
    "Outcome",
    "Parallel",
    "Parameters",
    "Passes",
    "Reply",
    "Setting",
    "Strategy",
    "Upload",
    "register_method",
]
