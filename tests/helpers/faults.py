"""Faults at exact moments of a real process: what the tests do to gapsl, and gapsl knows nothing of.

The launcher calls `install` in a process before its command line starts. What is to happen is in the
environment: `GAPSL_TEST_FAULT=kill@mid-chunk:round=7`, and `GAPSL_TEST_MARKER` is a file that appears at that
moment, so that it happens once however often the process is started again.

| fault | |
| --- | --- |
| kill | as `kill -9` does |
| cut | every link of the process is closed, both ways; the process lives on |
| stall | the process is stopped, all its threads, until the test lets it go on |

| moment | device | server | parameter server |
| --- | --- | --- | --- |
| before-send | the round's activations are ready | the first gradient is ready | |
| mid-chunk | some parts of its activations are out | some parts of a gradient are out | |
| after-send | all of its activations are out | it has asked the first device, nobody has answered | |
| before-apply | its gradient is here | the first activations are here | |
| before-proposal | it is asked what its gradient does to the probes | | |
| before-agreement | what devices agreed on is here | | |
| checkpoint | half of its file is written | devices have stored the round, its own folder is a draft | |
| receiving | | | the first tensors of a client-side model are here |
| stored | | | a client-side model is on disk, nobody knows |
| sending | | | the first tensors of a mean are out |

A run in one process has two: `recorded`, a round is in its records and nothing was done since (a server has
it, too), and `checkpoint`, its devices are in a checkpoint's draft. And `hang` is a fault: it sleeps.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from gapsl.common import tensors
from gapsl.fleets.local import LocalFleet
from gapsl.fleets.remote import RemoteFleet
from gapsl.network.device import agent, store
from gapsl.network.device.member import Member
from gapsl.network.parameter_server import service as parameters
from gapsl.network.parameter_server.store import Transfer, Transfers
from gapsl.network.protocol import framing
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.server import service as training
from gapsl.network.server.service import Service
from gapsl.run.folder import RunFolder

FAULT, MARKER = "GAPSL_TEST_FAULT", "GAPSL_TEST_MARKER"
JOINS = "GAPSL_TEST_JOINS"  # how often a device may join in ten seconds
SMALL_PARTS = 64  # bytes: so that a tensor of a tiny model has a middle

Message = wire.FromDevice | wire.ToDevice


@dataclass(frozen=True)
class Fault:
    """What happens when a moment of a round is reached for the first time."""

    kind: str
    moment: str
    round: int
    marker: Path

    def reach(self, moment: str, round: int) -> None:
        """Let it happen if this is the moment, and it has not happened yet."""
        if (moment, round) != (self.moment, self.round):
            return
        try:
            self.marker.touch(exist_ok=False)
        except FileExistsError:
            return
        {"kill": kill, "cut": cut_links, "stall": stall, "hang": hang}[self.kind]()


def parse(text: str, marker: Path) -> Fault:
    """Read a fault as it is written in the environment."""
    found = re.fullmatch(r"(kill|cut|stall|hang)@([a-z-]+):round=(\d+)", text)
    assert found is not None, f"{text!r} is no fault"
    return Fault(found[1], found[2], int(found[3]), marker)


def kill() -> None:
    """End this process as nothing can prevent."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # other threads may run for an instant; this one does nothing more


def stall() -> None:
    """Stop this process as a machine that hangs does; its links stay open."""
    os.kill(os.getpid(), signal.SIGSTOP)


def hang() -> None:
    """Do nothing for longer than any test takes; a signal is heard."""
    time.sleep(600)


def arranged(fault: str, marker: Path) -> dict[str, str]:
    """Return the environment in which a fault happens to a process."""
    return {FAULT: fault, MARKER: str(marker)}


def cut_links() -> None:
    """Close every connection that this process has, as a cable does that is pulled out."""
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(int(entry)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(entry))) as link:
                if link.family in (socket.AF_INET, socket.AF_INET6):
                    link.getpeername()  # a socket that listens has none
                    link.shutdown(socket.SHUT_RDWR)


def install(environment: Mapping[str, str]) -> None:
    """Prepare this process for what the environment says shall happen to it."""
    if JOINS in environment:
        training.MOST_JOINS = int(environment[JOINS])
    if FAULT in environment:
        fault = parse(environment[FAULT], Path(environment[MARKER]))
        assert framing.parts.__defaults__ == (framing.PART_SIZE,)
        framing.parts.__defaults__ = (SMALL_PARTS,)
        for prepare in (device_sends, device_applies, device_stores, server_sends, server_applies):
            prepare(fault)
        for prepare in (
            run_records,
            run_stores,
            server_stores,
            parameters_receive,
            parameters_store,
            parameters_send,
        ):
            prepare(fault)


def found(owner: Any, name: str) -> Any:
    """Return a function of a module or a class."""
    return getattr(owner, name)


def replace(owner: Any, name: str, function: Any) -> None:
    """Put a function in the place of one that is there."""
    assert hasattr(owner, name)
    setattr(owner, name, function)


# --- moments of a device


def device_sends(fault: Fault) -> None:
    """Watch what goes out on a device's stream; gRPC asks for a message when the one before is out."""
    opened = found(agent, "open_channel")

    class Watched:
        def __init__(self, *args: Any) -> None:
            self._channel = opened(*args)

        def __enter__(self) -> Watched:
            return self

        def __exit__(self, *_: object) -> None:
            self._channel.close()

        def stream_stream(self, *args: Any, **more: Any) -> Callable[[Iterator[Any]], grpc.Call]:
            method = self._channel.stream_stream(*args, **more)
            return lambda requests: method(watched(requests, uploaded, fault))

    replace(agent, "open_channel", Watched)


def uploaded(message: Any) -> tuple[int, int] | None:
    """Return the round of activations and how many bytes they are."""
    if message.WhichOneof("message") != "upload":
        return None
    return message.upload.round, message.upload.activations.bytes


def watched(
    messages: Iterable[Any], announced: Callable[[Any], tuple[int, int] | None], fault: Fault
) -> Iterator[Any]:
    """Pass on what is sent, and notice where in a tensor that is."""
    ours: int | None = None  # the round of the tensor that is on its way
    left = 0  # bytes of it
    for message in messages:
        if isinstance(message, memoryview):
            left -= len(message)
        elif (found := announced(message)) is not None:
            ours, left = found
            fault.reach("before-send", ours)
        else:
            ours = None
        yield message
        if ours is not None and isinstance(message, memoryview):
            fault.reach("mid-chunk" if left else "after-send", ours)


def device_applies(fault: Fault) -> None:
    carry_out = Member.carry_out

    def watching(self: Member, command: wire.ToDevice, *args: Any) -> Iterator[Any]:
        if command.WhichOneof("message") == "backward":
            fault.reach("before-apply", command.backward.round)
            if command.backward.turn:
                fault.reach("before-agreement", command.backward.round)
        elif command.WhichOneof("message") == "forward" and command.forward.proposes:
            fault.reach("before-proposal", command.forward.round)
        yield from carry_out(self, command, *args)

    replace(Member, "carry_out", watching)


def device_stores(fault: Fault) -> None:
    write, save_file = store.Store.write, found(tensors, "save_file")
    writing: list[int] = []

    def watching(self: store.Store, round: int, *args: Any) -> None:
        writing.append(round)
        write(self, round, *args)
        writing.pop()

    def halfway(stored: Any, path: Path, *args: Any, **more: Any) -> None:
        save_file(stored, path, *args, **more)
        if writing:
            os.truncate(path, path.stat().st_size // 2)
            fault.reach("checkpoint", writing[-1])
            save_file(stored, path, *args, **more)

    replace(store.Store, "write", watching)
    replace(tensors, "save_file", halfway)


# --- moments of a run, wherever its devices are


def run_records(fault: Fault) -> None:
    append = RunFolder.append

    def watching(self: RunFolder, record: Mapping[str, Any]) -> None:
        append(self, record)
        fault.reach("recorded", record.round)

    replace(RunFolder, "append", watching)


def run_stores(fault: Fault) -> None:
    save = LocalFleet.save

    def watching(self: LocalFleet, folder: Path, round: int) -> None:
        save(self, folder, round)
        fault.reach("checkpoint", round)

    replace(LocalFleet, "save", watching)


# --- moments of a server


def server_sends(fault: Fault) -> None:
    join = Service.join

    def replied(message: Any) -> tuple[int, int] | None:
        if message.WhichOneof("message") != "backward" or not message.backward.HasField("gradient"):
            return None
        return message.backward.round, message.backward.gradient.bytes

    def watching(self: Service, *args: Any) -> Iterator[Any]:
        sent = join(self, *args)
        # What a server waits an answer for is its question, not the gradient.
        for message in watched(sent, replied, but(fault, "after-send")):
            yield message
            if isinstance(message, wire.ToDevice) and message.WhichOneof("message") == "forward":
                fault.reach("after-send", message.forward.round)

    replace(Service, "join", watching)


def but(fault: Fault, moment: str) -> Fault:
    """Return a fault that does not happen at a moment."""
    return Fault(fault.kind, "never" if fault.moment == moment else fault.moment, fault.round, fault.marker)


def server_applies(fault: Fault) -> None:
    collect = RemoteFleet.collect

    def watching(self: RemoteFleet, round: int, *args: Any) -> Iterator[Any]:
        for upload in collect(self, round, *args):
            fault.reach("before-apply", round)
            yield upload

    replace(RemoteFleet, "collect", watching)


def server_stores(fault: Fault) -> None:
    save = RemoteFleet.save

    def watching(self: RemoteFleet, folder: Path, round: int) -> None:
        save(self, folder, round)
        fault.reach("checkpoint", round)

    replace(RemoteFleet, "save", watching)


# --- moments of a parameter server; each stream has a thread of its own, which knows its round

AT = threading.local()


def parameters_receive(fault: Fault) -> None:
    opened, received = Transfers.open, parameters.brought

    def noting(self: Transfers, run: str, transfer: str, *args: Any) -> Transfer:
        AT.round = int(transfer.split("-")[1])
        return opened(self, run, transfer, *args)

    def watching(stream: Iterator[bytes], *args: Any) -> dict[str, Any]:
        return received(slowly(stream, "receiving", fault), *args)

    replace(Transfers, "open", noting)
    replace(parameters, "brought", watching)


def slowly(messages: Iterable[Any], moment: str, fault: Fault) -> Iterator[Any]:
    """Pass messages on; the moment is when a tensor is through, and the name of the next one."""
    for number, message in enumerate(messages, start=1):
        yield message
        if number == 3:
            fault.reach(moment, AT.round)


def parameters_store(fault: Fault) -> None:
    add = Transfers.add

    def watching(self: Transfers, *args: Any) -> None:
        add(self, *args)
        fault.reach("stored", AT.round)

    replace(Transfers, "add", watching)


def parameters_send(fault: Fault) -> None:
    sent = parameters.sent

    def watching(part: Mapping[str, Any]) -> Iterator[Any]:
        return slowly(sent(part), "sending", fault)

    replace(parameters, "sent", watching)
