"""Taking part in a run as a device, or as several in one process: `gapsl join` and `gapsl.join`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import grpc
import torch

from gapsl.common.errors import GapslError, InputError, Unavailable
from gapsl.network.device.agent import Agent, Patience
from gapsl.network.device.device_data import DeviceData, load_device_data
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.settings import check_names
from gapsl.network.tls.credentials import check_address, choose_security, device_credentials

log = logging.getLogger("gapsl")


def join(
    server: str,
    name: str | Sequence[str],
    *,
    state: str | Path = "gapsl-state",
    data: str | None = None,
    data_dir: str | None = None,
    parameter_server: str | None = None,
    certs: str | Path | None = None,
    insecure: bool = False,
    patience: float = 3600.0,
    fresh: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Take part in a run through broken links and restarts; True when it is over, False if `stop` ended it.

    A device keeps its client-side model in `state`; `data` are its own, where the run asks for them;
    `parameter_server` is the only one that may see the model. With `fresh`, a device that has lost its state
    begins from the start, however far the run is. After a stop the device goes on from what it
    stored, as if it were killed: its threads are left to the end of the process.
    """
    names = check_names((name,) if isinstance(name, str) else tuple(name))
    torch.set_num_threads(1)
    check_address(server)
    shown = None if certs is None else Path(certs)
    folder = choose_security(server, shown, insecure)
    kind, _, rest = (data or "").partition(":")
    if (
        kind == "folder" and not (path := Path(rest.partition("?")[0])).is_dir()
    ):  # said before a server is there
        raise InputError(f"--data {data}: there is no folder {path}")
    agents = [
        Agent(
            server,
            one,
            state=Path(state).expanduser(),
            load_data=partial(load_data, data=data, data_dir=data_dir, tell=partial(say, one)),
            credentials=None if folder is None else device_credentials(folder, one),
            credentials_for=partial(
                credentials_at, name=one, certs=shown, insecure=insecure, pinned=parameter_server
            ),
            patience=Patience(whole=patience),
            fresh=fresh,
            tell=partial(say, one),
        )
        for one in names
    ]
    failures: list[Exception] = []

    def run(agent: Agent) -> None:
        try:
            log.info("%s: %s", agent.name, agent.run())
        except Exception as error:  # the thread ends here, and the process must not end as if all were well
            if len(agents) > 1 or not isinstance(error, GapslError):  # else it is said when it is raised
                log.error("%s: %s", agent.name, error, exc_info=not isinstance(error, GapslError))
            failures.append(error)

    threads = [threading.Thread(target=run, args=(agent,), daemon=True) for agent in agents]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if stop():
            return False
        time.sleep(0.1)
    if failures:
        raise failures[0] if len(agents) == 1 else all_of(failures, len(agents))
    return True


def all_of(failures: Sequence[Exception], devices: int) -> Exception:
    """Return what to raise where each was said before: a fault in the program, an outage, or bad input."""
    bugs = [error for error in failures if not isinstance(error, GapslError)]
    if bugs:
        return bugs[0]
    outage = any(isinstance(error, Unavailable) for error in failures)
    return (Unavailable if outage else InputError)(
        f"{len(failures)} of {devices} devices have ended with an error, which is above"
    )


def say(name: str, text: str) -> None:
    """Write a device's line to the log."""
    log.info("%s: %s", name, text, extra={"fields": {"device": name}})


def load_data(
    welcome: wire.Welcome, data: str | None, data_dir: str | None, tell: Callable[[str], None]
) -> DeviceData:
    """Return what a device works with, and use as many threads as the run's settings say."""
    found = load_device_data(welcome, data, data_dir, tell)
    torch.set_num_threads(found.config.threads)
    return found


def credentials_at(
    address: str, name: str, certs: Path | None, insecure: bool, pinned: str | None
) -> grpc.ChannelCredentials | None:
    """Return what a device shows the parameter server that the server names, if it may go there at all."""
    if pinned is not None and address != pinned:
        raise InputError(
            f"the server names {address} as the parameter server, not {pinned}: no model goes there; "
            "if it is right, change --parameter-server"
        )
    try:
        folder = choose_security(address, certs, insecure)
    except InputError as error:
        raise InputError(f"the parameter server that the server names: {error}") from None
    return None if folder is None else device_credentials(folder, name)
