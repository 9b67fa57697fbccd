"""MLflow as a tracker: a run's settings, numbers and end, sent to the server that MLflow's variables name."""

from __future__ import annotations

import importlib.util
import itertools
import json
import logging
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapsl.common.errors import InputError
from gapsl.common.files import write_json
from gapsl.common.reading import read_bytes
from gapsl.run.config import flat
from gapsl.run.folder import RunFolder
from gapsl.run.observers import Observer, Started
from gapsl.run.records import RoundRecord, RunResult
from gapsl.run.tensorboard_tracker import measures, scalars

NAME = "mlflow.json"  # in a run's folder: which run of the server it is
ROUND = "gapsl.round"  # the tag that says up to which round the server has the numbers
MOST_METRICS, MOST_PARAMS = 1000, 100  # that the server takes at once
EVERY = 5.0  # seconds between two messages, unless there is more than one of them has room for
AGAIN = 60.0  # seconds until a server that was away is tried again
CLOSING = 30.0  # seconds that the end of a run waits for what is not sent yet
BACKLOG = 10_000  # rounds that are kept for a server that is away

# MLflow itself tries for minutes, and tells its makers of its use.
VARIABLES = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}

log = logging.getLogger("gapsl")


@dataclass(frozen=True)
class Numbers:
    """What is to be logged of a round, and when it was measured."""

    round: int
    milliseconds: int
    values: Mapping[str, float]


class MLflow(Observer):
    """Logs a run to a tracking server; one that is away delays training by seconds, and never ends it."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self.check()
        self._run: Started | None = None
        self._client: Any = None
        self._id = ""  # the server's name for the run; empty until it has one
        self._connected = False
        self._status = "RUNNING"
        self._last_round = 0  # that was logged, or waits for it
        self._waiting: deque[Numbers] = deque(maxlen=BACKLOG)
        self._final: Numbers | None = None
        self._tags: dict[str, str] = {}
        self._next = 0.0  # when the next message is due
        self._warned = False

    @classmethod
    def check(cls) -> None:
        """Refuse before anything is trained if MLflow is not installed, or has no place to log to."""
        if importlib.util.find_spec("mlflow") is None:
            raise InputError("MLflow is not installed; pip install 'gapsl[mlflow]'")
        # All of MLflow has a database of its own; what the extra installs needs a server.
        if not os.environ.get("MLFLOW_TRACKING_URI") and importlib.util.find_spec("sqlalchemy") is None:
            raise InputError("MLflow has no server to log to; set MLFLOW_TRACKING_URI to its address")

    def started(self, run: Started) -> None:
        """Begin a run on the server, or go on with the one it has."""
        self._run = run
        self._send()

    def round(self, record: RoundRecord) -> None:
        """Log a round's numbers, unless it was logged before the run went back behind it."""
        if record.round <= self._last_round:
            return
        self._last_round = record.round
        self._waiting.append(numbers_of(record))
        if time.monotonic() >= self._next or (not self._warned and self._is_full()):
            self._send()

    def finished(self, result: RunResult) -> None:
        """Note the final evaluation and the weights' digest."""
        values = measures(result.final, "final")
        self._final = Numbers(result.rounds, milliseconds(), values)
        self._tags = {"gapsl.weights_sha256": result.final.weights_sha256}
        self._status = "FINISHED"

    def failed(self, error: BaseException) -> None:
        self._status = "FAILED" if isinstance(error, Exception) else "KILLED"

    def closed(self) -> None:
        """Send what is left, and say how the run ended."""
        if self._status == "RUNNING":  # somebody asked it to stop
            self._status = "KILLED"
        deadline = time.monotonic() + CLOSING
        while self._send() and self._waiting and time.monotonic() < deadline:
            pass
        if self._waiting:
            log.warning("MLflow: rounds %d to %d were not sent", self._waiting[0].round, self._last_round)

    def _is_full(self) -> bool:
        return sum(len(one.values) for one in self._waiting) >= MOST_METRICS

    def _send(self) -> bool:
        """Send what waits, as much as one message takes; say whether the server took it."""
        try:
            with bounded():
                self._connect()
                self._log()
        except Exception as error:  # whatever is wrong with the server: training goes on
            if not self._warned:
                log.warning(
                    "MLflow is tried again once per minute, and training goes on without it: %.400s", error
                )
            self._warned, self._next = True, time.monotonic() + AGAIN
            return False
        if self._warned:
            log.info("MLflow is there again")
        self._warned, self._next = False, time.monotonic() + EVERY
        return True

    def _log(self) -> None:
        """Send one message, and the end of the run after the last one."""
        from mlflow.entities import Metric, RunTag

        batch = list(first_of(self._waiting))
        ends = self._status != "RUNNING" and len(batch) == len(self._waiting)
        rows = [*batch, self._final] if ends and self._final is not None else batch
        tags = {ROUND: str(batch[-1].round)} if batch else {}
        tags |= self._tags if ends else {}
        if rows:
            self._client.log_batch(
                self._id,
                metrics=[
                    Metric(name, value, one.milliseconds, one.round)
                    for one in rows
                    for name, value in one.values.items()
                ],
                tags=[RunTag(name, value) for name, value in tags.items()],
                synchronous=True,
            )
        for _ in batch:  # only now: what was not sent is sent again
            self._waiting.popleft()
        if ends:
            self._client.set_terminated(self._id, self._status)

    def _connect(self) -> None:
        """Find the run on the server or begin it there, with its settings and the rounds that it lacks."""
        if self._connected:
            return
        from mlflow import MlflowClient
        from mlflow.entities import Param

        assert self._run is not None
        self._client = self._client or MlflowClient()
        found = self._found() or self._begun(self._run)
        self._id = found.info.run_id
        if found.info.status != "RUNNING":
            self._client.update_run(self._id, status="RUNNING")
        settings = [  # a setting that is there stays as it was: the server refuses changes
            Param(name, value if isinstance(value, str) else json.dumps(value))
            for name, value in flat(self._run.settings).items()
            if name not in found.data.params
        ]
        for start in range(0, len(settings), MOST_PARAMS):
            some = settings[start : start + MOST_PARAMS]
            self._client.log_batch(self._id, params=some, synchronous=True)
        logged = int(found.data.tags.get(ROUND, 0))
        known = [*self._earlier(logged), *self._waiting]
        self._waiting = deque((one for one in known if one.round > logged), maxlen=BACKLOG)
        self._last_round = max(self._last_round, logged)
        self._connected = True

    def _found(self) -> Any:
        """Return the server's run that was begun before; None if there is none, or it was deleted."""
        from mlflow.exceptions import MlflowException

        run_id = self._id or self._noted()
        try:
            found = self._client.get_run(run_id) if run_id else None
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        return found if found is not None and found.info.lifecycle_stage == "active" else None

    def _noted(self) -> str:
        """Return the server's name for the run, as the folder has it; empty if it has none."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            if self.folder is not None:
                return str(json.loads(read_bytes(self.folder / NAME))["run_id"])
        return ""

    def _begun(self, run: Started) -> Any:
        """Begin a run on the server, and note its name in the folder."""
        name = run.settings.get("label") or (self.folder.name if self.folder else run.method)
        tags = {"gapsl.run": run.identity, "gapsl.method": run.method, "gapsl.seed": str(run.seed)}
        found = self._client.create_run(self._experiment(), tags=tags, run_name=str(name))
        if self.folder is not None:
            write_json(self.folder / NAME, {"run_id": found.info.run_id})
        return found

    def _experiment(self) -> str:
        """Return the experiment that MLflow's variables name, made if there is none; else the default one."""
        from mlflow.exceptions import MlflowException

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME")
        if not name:
            return os.environ.get("MLFLOW_EXPERIMENT_ID") or "0"
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        try:
            return str(self._client.create_experiment(name))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        return str(self._client.get_experiment_by_name(name).experiment_id)  # another worker has just made it

    def _earlier(self, logged: int) -> Iterator[Numbers]:
        """Return the rounds before this process began which the server lacks."""
        if self.folder is None or self._run is None:
            return
        for record in RunFolder(self.folder).records():
            if logged < record.round < self._run.first_round:
                yield numbers_of(record)


def numbers_of(record: RoundRecord) -> Numbers:
    """Return what is logged of a round."""
    return Numbers(record.round, milliseconds(), scalars(record))


def milliseconds() -> int:
    """Return the time as MLflow has it."""
    return int(time.time() * 1000)


def first_of(waiting: deque[Numbers]) -> Iterator[Numbers]:
    """Return the first rounds, as many as one message has room for beside the final evaluation."""
    room = itertools.accumulate(len(one.values) for one in waiting)
    return (one for one, total in zip(waiting, room, strict=False) if total <= MOST_METRICS - 20)


@contextmanager
def bounded() -> Iterator[None]:
    """Let MLflow give up after seconds instead of minutes, unless its variables are set."""
    ours = {name: value for name, value in VARIABLES.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
