"""The methods: how uploads become one server update and the replies, a file each."""

from gapsl.device.exchange import DeviceInfo, Exchange, Outcome, Reply, Upload
from gapsl.methods.base import Parallel, Parameters, Setting, Strategy
from gapsl.methods.registry import METHODS, register_method
from gapsl.methods.server_model import Contribution, Passes

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
