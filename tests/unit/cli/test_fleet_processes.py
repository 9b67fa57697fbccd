"""What `gapsl fleet up` says of its processes."""

import json

from gapsl.cli.fleet import failed
from gapsl.network.processes import PROCESSES, SERVER, Processes

LOGS = {
    SERVER: "error: it is the server's own",
    "device-0": "2026-11-18 device-0: the run is finished",
    "device-1": "2026-11-18 device-1: welcome\nerror: the server refuses device-1: none is in its folder",
}


def test_devices_that_ended_with_an_error_are_told_from_those_that_are_done(tmp_path):
    ended = [{"name": name, "pid": 2**30, "begun": ""} for name in LOGS]
    (tmp_path / PROCESSES).write_text(json.dumps(ended))
    (tmp_path / "logs").mkdir()
    for name, text in LOGS.items():
        (tmp_path / "logs" / f"{name}.log").write_text(text)
    assert failed(Processes(tmp_path)) == {"device-1"}
