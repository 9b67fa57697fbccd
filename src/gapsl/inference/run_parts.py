"""The trained models in a run's folder: any device's, all devices' averaged, or all together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from torch import Tensor, nn

from gapsl.common.errors import InputError
from gapsl.common.reading import read_text
from gapsl.common.tensors import read_tensors
from gapsl.data import load_partition
from gapsl.data.from_python import GivenData
from gapsl.device.exchange import DeviceInfo
from gapsl.device.model_info import ModelInfo, describe_model, read_model_info
from gapsl.inference.split_model import ClientPart, TrainedParts, blank_parts, filled
from gapsl.methods.base import RunInfo, Strategy
from gapsl.methods.registry import METHODS
from gapsl.methods.server_model import ServerModel
from gapsl.models import GivenModel
from gapsl.models.device_files import devices_in, read_device, read_devices
from gapsl.models.part import average, make_part
from gapsl.models.stored import head_in, weights_in
from gapsl.network.server.fleet_state import read_fleet
from gapsl.run.api import compose
from gapsl.run.checkpoint import Checkpoint, Checkpoints
from gapsl.run.folder import RunFolder
from gapsl.run.parts import take_source

MERGED, ENSEMBLE, ALL = "merged", "ensemble", "all"


class TrainedRun:
    """A run's newest checkpoint, and the models in it."""

    def __init__(
        self,
        out: str | Path,
        *,
        model: GivenModel | None = None,
        dataset: GivenData | None = None,
        data_dir: str | None = None,
    ) -> None:
        self.folder = RunFolder.open(Path(out).expanduser())
        self.config, self.custom = self.folder.config()
        if data_dir is not None:
            self.config = compose(self.config, words={"data_dir": data_dir})
        self._dataset = dataset
        self.checkpoint = newest_checkpoint(self.folder)
        self.info = self._info()
        self._client, self._server, self._head = blank_parts(self.info, model)

    @property
    def served(self) -> bool:
        """Whether its devices are elsewhere, and so are their client-side models."""
        return self.folder.network_file.exists()

    def parts(self, client: int | str | None = None) -> TrainedParts:
        """Return the parts of the model of a device (its number), `merged` or `ensemble`.

        Without a client it is the server's part, or `merged` where the devices' are here, too.
        """
        if self.served:
            if client is not None:
                raise InputError(
                    f"the client-side models of {self.folder.path} are with its devices; export the server's "
                    "part without --client, a device's part there (gapsl export STATE), and put them "
                    "together with --join"
                )
            return self._made((), "")
        known = self.numbers if self._shared is None else range(self.config.devices)
        chosen = MERGED if client is None else self._checked(str(client), known)
        if self._shared is not None:
            clients: tuple[ClientPart, ...] = (self._shared_part(self._shared),)
        elif chosen == ENSEMBLE:
            clients = tuple(self._own_part(number) for number in self.numbers)
        elif chosen == MERGED:
            clients = (
                self._mean_part({number: float(one.samples) for number, one in self._devices.items()}),
            )
        else:
            clients = (self._own_part(int(chosen)),)
        return self._made(clients, chosen)

    @cached_property
    def numbers(self) -> list[int]:
        """The devices whose client-side models are here."""
        return list(devices_in(self.checkpoint.folder))

    @property
    def each(self) -> list[int]:
        """The devices that have a client-side model of their own."""
        if self.served or self._shared is not None:
            where = "with the devices" if self.served else "one and the same for all devices"
            fix = "leave out --client" if self.served else f"use --client {MERGED}"
            raise InputError(f"the client-side models of {self.folder.path} are {where}; {fix}")
        return self.numbers

    def _made(self, clients: tuple[ClientPart, ...], client: str) -> TrainedParts:
        name = self.folder.name_file
        return TrainedParts(
            self.info,
            clients,
            self._strategy.server_model().eval(),
            method=METHODS.canonical(self.config.method),
            run=read_text(name, errors="replace").strip()
            if name.exists()
            else self.folder.path.resolve().name,
            round=self.checkpoint.round,
            client=client,
            accuracy=self._accuracy(client),
        )

    def _accuracy(self, client: str) -> float | None:
        """Return what the run measured of a model at its end, if that is what is here."""
        result = self.folder.result()
        if result is None or result.final.round != self.checkpoint.round or not client:
            return None
        if client in (MERGED, ENSEMBLE):
            return result.final.merged if client == MERGED else result.final.ensemble
        return result.final.device_accuracy.get(int(client))

    def _info(self) -> ModelInfo:
        if self.folder.model_file.exists():
            return read_model_info(self.folder.model_file)
        own = {name: self.custom[name] for name in ("model", "dataset") if name in self.custom}
        if "dataset" in own and self._dataset is None:
            raise InputError(
                f"{self.folder.path} was written by an older gapsl and does not say how its inputs were "
                f"prepared; give its data again: gapsl.load({str(self.folder.path)!r}, dataset=...)"
            )
        try:
            source = take_source(self.config, self._dataset)
        except InputError as error:
            raise InputError(
                f"{self.folder.path} was written by an older gapsl and does not say how its inputs were "
                f"prepared, and its data are not here ({error}); name their folder with --data-dir"
            ) from None
        return describe_model(self.config, source, own_model=own.get("model", ""), own_data="dataset" in own)

    @cached_property
    def _devices(self) -> Mapping[int, DeviceInfo]:
        if self.served:
            known = read_fleet(self.folder.fleet_file).devices
            return {number: DeviceInfo(one.samples, one.labels, one.batches) for number, one in known.items()}
        sizes = load_partition(self.folder.partition_file).sizes
        if METHODS[self.config.method].pooled:
            sizes = (sum(sizes),)
        return {number: DeviceInfo(size, (), 1) for number, size in enumerate(sizes)}

    @cached_property
    def _strategy(self) -> Strategy:
        """The method as it was after the round: it knows which server-side model is evaluated."""
        config = self.config
        part = make_part(self._server, config.server_optimizer, self.checkpoint.round)
        run = RunInfo(
            seed=config.seed,
            total_rounds=max(1, self.checkpoint.round),
            rounds_per_epoch=1,
            batches_per_round=1,
            devices=self._devices,
            parameters=config.parameters(),
            classes=len(self.info.classes),
        )
        strategy = METHODS[config.method](ServerModel(part, seed=config.seed), run)
        for name, one in strategy.parts().items():
            self.checkpoint.load_part(name, one)
        strategy.load_state(self.checkpoint.state["strategy"])
        return strategy

    @cached_property
    def _shared(self) -> int | Mapping[int, float] | None:
        return self._strategy.shared_client_model()

    def _shared_part(self, whose: int | Mapping[int, float]) -> ClientPart:
        return self._own_part(whose)._replace(number=-1) if isinstance(whose, int) else self._mean_part(whose)

    def _own_part(self, number: int) -> ClientPart:
        stored = self._stored(number)
        what = f"device {number} of {self.checkpoint.folder}"
        head: nn.Module | None = None
        if self._head is not None:
            head = filled(self._head, head_in(stored), f"the head of {what}")
        return ClientPart(filled(self._client, weights_in(stored), what), head, number)

    def _mean_part(self, weights: Mapping[int, float]) -> ClientPart:
        if self._head is not None:
            raise InputError(
                "the devices have heads of their own, which have no mean; give --client NUMBER or --client "
                "ensemble"
            )
        stored = dict(read_devices(self.checkpoint.folder, sorted(weights)))
        models = [weights_in(stored[number]) for number in sorted(weights)]
        mean = average(models, [weights[number] for number in sorted(weights)])
        return ClientPart(filled(self._client, mean, str(self.checkpoint.folder)), None, -1)

    def _stored(self, number: int) -> dict[str, Tensor]:
        return read_device(self.checkpoint.folder, number)

    def _checked(self, text: str, known: range | list[int]) -> str:
        if text in (MERGED, ENSEMBLE):
            return text
        if not text.isdecimal() or int(text) not in known:
            raise InputError(
                f"{self.folder.path} has no client {text!r}; give a number from {known[0]} to {known[-1]}, "
                f"{MERGED} or {ENSEMBLE}"
            )
        return str(int(text))


def newest_checkpoint(folder: RunFolder) -> Checkpoint:
    """Return the newest checkpoint of a run, every file of it checked."""
    checkpoint = Checkpoints(folder.checkpoints, run="", keep=1).latest()
    if checkpoint is None:
        raise InputError(f"{folder.path} has no checkpoint yet; train it with: {folder.go_on}")
    return checkpoint


def trained(out: str | Path) -> dict[str, dict[str, Tensor]]:
    """Return the weights of a run's newest checkpoint, with the model's own names, part by part.

    The parts are "device-0000" and so on, and "server" (SFL v1: "server-0000" and so on, a copy a device).
    `gapsl.load` returns a model.
    """
    checkpoint = newest_checkpoint(RunFolder.open(Path(out).expanduser()))
    stored = read_devices(checkpoint.folder, devices_in(checkpoint.folder))
    clients = {f"device-{number:04d}": weights_in(state) for number, state in stored}
    servers = sorted(checkpoint.folder.glob("server*.safetensors"))
    return {**clients, **{path.stem: weights_in(read_tensors(path)) for path in servers}}
