"""A run whose devices are elsewhere: its settings, what its folder must have, and what devices are told."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from gapsl.common.errors import InputError
from gapsl.common.files import write_text
from gapsl.common.reading import SMALL, read_given, read_text
from gapsl.common.tensors import Rounds
from gapsl.data import make_evaluation_transform
from gapsl.device.build import LAYOUTS, batched
from gapsl.fleets.base import EvaluationInputs
from gapsl.fleets.remote import RemoteFleet
from gapsl.models.part import model_bytes
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.channel import PROTOCOL
from gapsl.network.protocol.contract import TensorContract
from gapsl.network.protocol.settings import CODECS, COMPRESSIONS, QUORUM, Network, make_network
from gapsl.network.server.dispatcher import Dispatcher
from gapsl.network.server.fleet_state import FleetState, last_checkpoint_of
from gapsl.network.server.service import Roster
from gapsl.network.tls.credentials import check_address
from gapsl.options.compatibility import Circumstances, refuse_incompatible
from gapsl.run.api import compose
from gapsl.run.config import INCIDENTAL, Config, differing, merge, read_yaml
from gapsl.run.folder import RunFolder
from gapsl.run.named_observers import check_observers
from gapsl.run.parts import Parts

RUN_NAME = re.compile("[0-9a-f]{32}")
MUTUAL_TLS, PLAIN_TEXT = "mutual TLS", "plain text"


def served_settings(
    config: Config | str | Path | None,
    preset: str | None,
    words: Mapping[str, Any],
    out: Path,
) -> tuple[Config, Network]:
    """Return the settings of a run: what is asked for, or what it was started with."""
    given = config.resolved() if isinstance(config, Config) else {}
    if isinstance(config, str | Path):
        given = read_yaml(Path(config).expanduser(), read_given)
    asked_for = merge(given, words)
    network = asked_for.pop("network", None) or {}
    if not isinstance(network, Mapping):
        where = f"{config}: " if isinstance(config, str | Path) else ""
        raise InputError(f"{where}`network` is a section with settings of its own, like `closing: all`")
    if named := make_network(network).names:  # those are the devices of the run, unless it says otherwise
        asked_for = merge({"devices": len(named)}, asked_for)
    if not RunFolder(out).config_file.exists():
        return compose(None, preset_name=preset, words=asked_for), make_network(network)
    stored, _ = RunFolder.open(out).config()
    if asked_for.get("rounds") not in (None, stored.rounds):
        asked_for |= {"extended_to": asked_for["rounds"], "rounds": stored.rounds}
    base = None if config is not None or preset is not None else stored
    wanted = compose(base, preset_name=preset, words=asked_for)
    for name in differing(stored, wanted):
        raise InputError(
            f"{out} was started with {name} = {stored.resolved().get(name)}, not "
            f"{wanted.resolved().get(name)}; to go on leave out --config, --preset and --set, or give those "
            "of its start; another run needs another --out"
        )
    incidental = {name: value for name, value in asked_for.items() if name in INCIDENTAL}
    if not RunFolder(out).network_file.exists():
        return compose(stored, words=incidental), make_network(network)
    known = stored_network(out)
    now = make_network(merge(known.model_dump(mode="json"), network))
    for name in ("names", "data", "activations", "gradients", "compression"):
        if getattr(now, name) != getattr(known, name):
            raise InputError(
                f"{out} was started with network.{name} = {getattr(known, name)}, not {getattr(now, name)}; "
                "choose another --out for another run"
            )
    return compose(stored, words=incidental), now


def settled(config: Config, network: Network) -> Network:
    """Return the network with a policy: with devices' own data not everybody is waited for, if that goes."""
    if network.closing != "auto":
        return network
    given = Circumstances(served=True, parameter_server=bool(network.parameter_server), waits_for_all=False)
    closing = QUORUM if network.data == "own" else "all"
    try:
        refuse_incompatible(config.method, config, config.parameters(), given)
    except InputError:
        closing = "all"
    return network.model_copy(update={"closing": closing})


def check_served(config: Config, network: Network) -> None:
    """Refuse what cannot be done over a network, before anybody is waited for."""
    given = Circumstances(
        served=True,
        parameter_server=bool(network.parameter_server),
        waits_for_all=network.round_policy().waits_for_all,
    )
    refuse_incompatible(config.method, config, config.parameters(), given)
    if config.processes != 1 or config.fleet != "local":
        raise InputError("processes and fleet are for simulated devices; over a network each is a process")
    if network.parameter_server:
        check_address(network.parameter_server)
    network.device_names(config.devices)
    check_observers(config.observer_names)


def refuse_incomplete(folder: RunFolder) -> None:
    """Refuse a folder that has lost a file: without it the run would begin anew, or not know its past."""
    finished = folder.result_file.exists()
    recorded = [] if finished else [record.round for record in folder.records()]
    rounds = list(Rounds(folder.checkpoints).found())
    if not finished and not any(rounds) and not recorded:
        return  # nothing is trained yet
    served = (folder.name_file, folder.fleet_file, folder.network_file)
    if not any(path.exists() for path in served):
        way = "see it with gapsl show" if finished else "go on with gapsl resume"
        raise InputError(
            f"{folder.path} has a run in it that was trained without a network: {way} {folder.quoted}, or "
            "choose another --out"
        )
    if finished:
        return  # it does not have to go on
    wanted = (*served, folder.records_file)
    missing = [path.name for path in wanted if not path.exists()]
    # That of round 0 is always kept.
    if not rounds or (not any(rounds) and last_checkpoint_of(folder.fleet_file)):
        missing.append("checkpoints")
    if missing:
        raise InputError(
            f"{folder.path} has lost {' and '.join(missing)}, without which the run cannot go on: put it "
            "back from a copy of the folder, or start a new run with another --out"
        )
    folder.check_records(max(rounds))


def opened(folder: RunFolder, config: Config, network: Network) -> bool:
    """Write down the settings of a run if they are not there; True: it is new."""
    if new := not folder.config_file.exists():
        RunFolder.create(folder.path, config, {})
    if not folder.network_file.exists():
        write_network(folder, network)
    return new


def discard(folder: RunFolder) -> None:
    """Remove what was written of a run that could not even wait for devices: it is in the next one's way."""
    made = (folder.config_file, folder.environment_file, folder.network_file, folder.name_file)
    for path in (*made, folder.connected_file, folder.metrics_file):
        path.unlink(missing_ok=True)


def write_network(folder: RunFolder, network: Network) -> None:
    """Write down how a run goes over the network."""
    write_text(folder.network_file, yaml.safe_dump(network.model_dump(mode="json"), sort_keys=False))


def stored_network(out: Path) -> Network:
    """Return how a run that was served before goes over the network; killed at its start, it may not know."""
    file = RunFolder(out).network_file
    if not file.exists():
        return make_network({})
    values = read_yaml(file)
    if not values:
        raise InputError(f"{file} is damaged: it is empty; put it back from a copy of the folder")
    return make_network(values)


def run_name(folder: RunFolder) -> str:
    """Return what tells this run from all others, to devices that keep checkpoints of several."""
    path = folder.name_file
    if not path.exists():
        write_text(path, uuid.uuid4().hex)
    name = read_text(path, SMALL, errors="replace").strip()
    if not RUN_NAME.fullmatch(name):
        raise InputError(f"{path} is damaged: it names the run; put it back, or start a new one")
    return name


def was_secure(out: Path) -> bool:
    """Say whether a run was served over TLS before."""
    before = RunFolder(out).security_file
    return before.is_file() and read_text(before, errors="replace") == MUTUAL_TLS


def refuse_plainer(out: Path) -> None:
    """Refuse to go on in plain text, unasked, with a run that was served over TLS and is not finished."""
    if was_secure(out) and not RunFolder(out).result_file.exists():
        raise InputError(
            f"{out} was served with {MUTUAL_TLS}, and its devices expect that: give --listen and --certs as "
            "before, or ask for plain text with --insecure"
        )


def make_remote_fleet(
    parts: Parts,
    network: Network,
    folder: RunFolder,
    roster: Roster,
    *,
    stop: Callable[[], bool],
    tell: Callable[[str], None],
) -> tuple[RemoteFleet, Callable[[int], wire.Welcome]]:
    """Return a fleet that nobody has joined yet, and what each device is told that joins."""
    cut, features = shapes_at_cut(parts)
    welcome = partial(make_welcome, parts, network, run_name(folder), features)
    dispatcher = Dispatcher(
        roster,
        FleetState(folder.fleet_file, roster.names, known_labels(parts)),
        TensorContract.of(welcome(0), parts.config, cut),
        policy=network.round_policy(),
        total_rounds=parts.total_rounds,
        patience=network.patience,
        stop=stop,
        tell=tell,
    )
    fleet = RemoteFleet(
        dispatcher,
        merges=bool(network.parameter_server),
        model_bytes=model_bytes(parts.model.device),
        sizes=common_sizes(parts),
        sets=public_sets(parts) if network.data == "own" else None,
        where=parts.where,
        layout=LAYOUTS[parts.config.layout],
    )
    return fleet, welcome


def make_welcome(
    parts: Parts, network: Network, run: str, features: tuple[int, ...], device: int
) -> wire.Welcome:
    """Return what a device is told of the run."""
    return wire.Welcome(
        protocol=PROTOCOL,
        device=device,
        run=run,
        devices=parts.config.devices,
        config=parts.config.for_device(),
        classes=parts.source.classes,
        inputs=parts.source.input_shape,
        activations=CODECS[network.activations],
        gradients=CODECS[network.gradients],
        compression=COMPRESSIONS[network.compression],
        parameter_server=network.parameter_server,
        mean=parts.source.mean,
        std=parts.source.std,
        own_data=network.data == "own",
        features=features,
    )


def known_labels(parts: Parts) -> dict[int, tuple[int, ...]]:
    """Return how many of each class devices have, where all have one dataset."""
    if not parts.partition.samples:
        return {}
    counts = parts.partition.label_counts(parts.source.train.labels, len(parts.source.classes))
    return {device: tuple(row) for device, row in enumerate(counts.tolist())}


def common_sizes(parts: Parts) -> dict[wire.Evaluate.Set, int]:
    """Return how many samples the evaluation sets have that are the same for all devices."""
    test = 0 if parts.source.described else len(parts.source.test)
    return {wire.Evaluate.TEST: test, wire.Evaluate.VALIDATION: len(parts.partition.validation)}


def public_sets(parts: Parts) -> dict[wire.Evaluate.Set, EvaluationInputs]:
    """Return the evaluation sets that the server has and its devices do not."""
    source = parts.source
    if source.described:
        return {}
    dtype = next(parts.model.device.parameters()).dtype

    def test() -> Iterator[Tensor]:
        inputs = batched(source.test, np.arange(len(source.test)), make_evaluation_transform(source))
        return (batch.to(dtype) for batch in inputs)

    return {wire.Evaluate.TEST: test}


def shapes_at_cut(parts: Parts) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of one sample's activations, and before the head where devices have it."""
    with torch.no_grad():
        sample = torch.zeros(1, *parts.source.input_shape, dtype=next(parts.model.device.parameters()).dtype)
        at_cut = parts.model.device.eval()(sample.to(parts.where))
        parts.model.device.train()
        if parts.head is None:
            return tuple(at_cut.shape[1:]), ()
        features = parts.model.server.eval()(at_cut)
        parts.model.server.train()
    return tuple(at_cut.shape[1:]), tuple(features.shape[1:])
