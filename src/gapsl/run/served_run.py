"""A run whose devices are elsewhere, as its folder has it: settings, name, what it must not have lost."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gapsl.common.errors import InputError
from gapsl.common.files import write_text
from gapsl.common.tensors import Rounds
from gapsl.network.protocol.settings import QUORUM, Network, make_network
from gapsl.network.server.fleet_state import last_checkpoint_of
from gapsl.network.tls.credentials import check_address
from gapsl.options.compatibility import Circumstances, refuse_incompatible
from gapsl.run.api import compose
from gapsl.run.config import INCIDENTAL, Config, differing, merge, read_yaml
from gapsl.run.folder import RunFolder
from gapsl.run.observers import check_observers

RUN_NAME = re.compile("[0-9a-f]{32}")
MUTUAL_TLS, PLAIN_TEXT = "mutual TLS", "plain text"


def served_settings(
    config: Config | str | Path | None,
    preset: str | None,
    words: Mapping[str, Any],
    asked: Mapping[str, Any],
    out: Path,
) -> tuple[Config, Network]:
    """Return the settings of a run: what is asked for, or what it was started with."""
    given = config.resolved() if isinstance(config, Config) else {}
    if isinstance(config, str | Path):
        given = read_yaml(Path(config).expanduser())
    asked_for = merge(given, words)
    section = asked_for.pop("network", None) or {}
    if not isinstance(section, Mapping):
        where = f"{config}: " if isinstance(config, str | Path) else ""
        raise InputError(f"{where}`network` is a section with settings of its own, like `closing: all`")
    network = merge(section, asked)
    named = make_network(network).names
    if named:  # those are the devices of the run, unless it says otherwise
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
    if not rounds or (
        not any(rounds) and last_checkpoint_of(folder.fleet_file)
    ):  # that of round 0 is always kept
        missing.append("checkpoints")
    if missing:
        raise InputError(
            f"{folder.path} has lost {' and '.join(missing)}, without which the run cannot go on: put it "
            "back from a copy of the folder, or start a new run with another --out"
        )
    folder.check_records(max(rounds))


def opened(folder: RunFolder, config: Config, network: Network) -> bool:
    """Write down the settings of a run if they are not there; True: it is new."""
    new = not folder.config_file.exists()
    if new:
        RunFolder.create(folder.path, config, {})
    if not folder.network_file.exists():
        write_network(folder, network)
    return new


def discard(folder: RunFolder) -> None:
    """Remove what was written of a run that could not even wait for devices: it is in the next one's way."""
    for path in (folder.config_file, folder.environment_file, folder.network_file, folder.name_file):
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
    name = path.read_text(encoding="utf-8", errors="replace").strip()
    if not RUN_NAME.fullmatch(name):
        raise InputError(f"{path} is damaged: it names the run; put it back, or start a new one")
    return name


def was_secure(out: Path) -> bool:
    """Say whether a run was served over TLS before."""
    before = out / "security"
    return before.is_file() and before.read_text(encoding="utf-8", errors="replace") == MUTUAL_TLS


def refuse_plainer(out: Path) -> None:
    """Refuse to go on in plain text, unasked, with a run that was served over TLS and is not finished."""
    if was_secure(out) and not RunFolder(out).result_file.exists():
        raise InputError(
            f"{out} was served with {MUTUAL_TLS}, and its devices expect that: give --listen and --certs as "
            "before, or ask for plain text with --insecure"
        )
