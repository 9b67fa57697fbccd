"""Where trained models are found: a run, the part of one that a device keeps, or an export."""

from __future__ import annotations

from pathlib import Path

from gapsl.common.errors import InputError
from gapsl.common.tensors import Rounds, read_tensors, said_by
from gapsl.data.from_python import GivenData
from gapsl.device import model_info
from gapsl.device.model_info import read_model_info
from gapsl.inference.manifest import export_parts
from gapsl.inference.run_parts import TrainedRun
from gapsl.inference.split_model import (
    ClientPart,
    SplitModel,
    TrainedParts,
    blank_parts,
    filled,
)
from gapsl.models import GivenModel
from gapsl.models.stored import EXPORT, head_in, weights_in

SUFFIX = ".safetensors"


def load(
    place: str | Path,
    client: int | str | None = None,
    *,
    model: GivenModel | None = None,
    dataset: GivenData | None = None,
    data_dir: str | None = None,
) -> SplitModel:
    """Return a trained model of a run or an export: a plain module with `.classes` and `.preprocess`.

    `client` is a device's number, "merged" (the mean of all client-side models, the default) or "ensemble"
    (the mean of all devices' predictions). A run that was given a `model` from Python needs it again.
    """
    return parts_at(place, client, model=model, dataset=dataset, data_dir=data_dir).joined()


def parts_at(
    place: str | Path,
    client: int | str | None = None,
    *,
    model: GivenModel | None = None,
    dataset: GivenData | None = None,
    data_dir: str | None = None,
    round: int | None = None,
) -> TrainedParts:
    """Return what a place has of a trained model; of a device's checkpoints that of `round`, if it has it."""
    path = Path(place).expanduser()
    if is_run(path):
        return TrainedRun(path, model=model, dataset=dataset, data_dir=data_dir).parts(client)
    if (path / EXPORT).is_file():
        return export_parts(path, client, model)
    if path.is_dir() and (several := sorted(path.glob(f"client-*/{EXPORT}"))):
        chosen = None if client is None or not str(client).isdecimal() else path / f"client-{int(client):04d}"
        if chosen is None or chosen / EXPORT not in several:
            listed = ", ".join(one.parent.name for one in several[:10])
            raise InputError(
                f"{path} has the models of several clients; name the folder of one: {path}/ and {listed}"
            )
        return export_parts(chosen, client, model)
    return state_parts(path, client, model=model, round=round)


def is_run(path: Path) -> bool:
    """Say whether a folder is a run's."""
    return (path / "config.yaml").is_file()


def state_parts(
    path: Path, client: int | str | None, *, model: GivenModel | None = None, round: int | None = None
) -> TrainedParts:
    """Return the client-side model that a device keeps."""
    folder = state_folder(path)
    if client is not None:
        raise InputError(f"{folder} is one device's state; leave out the client")
    if not (folder / model_info.NAME).is_file():
        raise InputError(
            f"{folder} was written by an older gapsl and does not say what its model is; copy "
            f"{model_info.NAME} of the server's run into it, or let the device join its run once more"
        )
    info = read_model_info(folder / model_info.NAME)
    found = Rounds(folder, SUFFIX).found()
    chosen = round if round in found else max(found)
    stored = read_tensors(found[chosen], checked=True, way_out="delete it to take an older one")
    blank_client, _, blank_head = blank_parts(info, model)
    head = None
    if blank_head is not None:
        head = filled(blank_head, head_in(stored), f"the head in {found[chosen]}")
    client_model = filled(blank_client, weights_in(stored), str(found[chosen]))
    run, _, name = said_by(found[chosen]).get("owner", "").partition("/")
    return TrainedParts(info, (ClientPart(client_model, head, -1),), None, run=run, round=chosen, client=name)


def state_folder(path: Path) -> Path:
    """Return the folder of one device in one run, in a device's state (--state/RUN/NAME)."""
    if not path.is_dir():
        raise InputError(f"there is no folder {path}; give a run's, an export's or a device's state")
    found = [one for one in (path, *sorted(path.glob("*")), *sorted(path.glob("*/*"))) if _keeps_rounds(one)]
    if not found:
        raise InputError(
            f"{path} has neither a run in it (config.yaml), nor an export ({EXPORT}), nor a device's "
            "checkpoints; give another folder, or train first"
        )
    if len(found) > 1:
        listed = ", ".join(str(one) for one in found[:10])
        raise InputError(f"{path} has the state of several devices; choose one: {listed}")
    return found[0]


def _keeps_rounds(folder: Path) -> bool:
    return folder.is_dir() and bool(Rounds(folder, SUFFIX).found())
