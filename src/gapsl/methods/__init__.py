"""The methods: how uploads become one server update and the replies, one file per method.

`base` has what every method is, `server_model` the passes through the server-side model, `outliers` who is
left out of a round. No transport, no files and no printing belong here.
"""

from gapsl.device.exchange import DeviceInfo, Exchange, Outcome, Reply, Upload
from gapsl.methods.base import Parallel, Parameters, RunInfo, Strategy
from gapsl.methods.contribution import Contribution
from gapsl.methods.registry import METHODS, register_method
from gapsl.methods.server_model import ServerModel

__all__ = [
    "METHODS",
    "Contribution",
    "DeviceInfo",
    "Exchange",
    "Outcome",
    "Parallel",
    "Parameters",
    "Reply",
    "RunInfo",
    "ServerModel",
    "Strategy",
    "Upload",
    "register_method",
]
