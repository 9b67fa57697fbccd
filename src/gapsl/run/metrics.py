"""A run's figures for Prometheus: rounds, seconds, bytes, angles, who is kept, who drops out."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from gapsl.common.errors import InputError, Unavailable
from gapsl.run.observers import Observer, Started
from gapsl.run.records import RoundRecord


class Metrics(Observer):
    """Counts what a run's records say, and serves it to whoever asks over HTTP."""

    def __init__(
        self,
        names: Sequence[str],
        connected: Callable[[], Container[int]],
        departures: Callable[[], Mapping[int, int]],
    ) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError:
            raise InputError('metrics need: pip install "gapsl[server]"') from None
        self._prometheus, self._names = prometheus, names
        self.registry = prometheus.CollectorRegistry()

        def counter(name: str, meaning: str, labels: Sequence[str] = ()) -> Any:
            return prometheus.Counter(f"gapsl_{name}", meaning, labels, registry=self.registry)

        def gauge(name: str, meaning: str, labels: Sequence[str] = ()) -> Any:
            return prometheus.Gauge(f"gapsl_{name}", meaning, labels, registry=self.registry)

        self._rounds = counter("rounds_total", "rounds done by this process")
        self._round = gauge("round", "the last round that is done")
        self._total = gauge("rounds_planned", "rounds of the run")
        self._loss = gauge("loss", "mean training loss of the last round")
        self._seconds = counter("seconds_total", "seconds by phase of a round", ["phase"])
        self._bytes = counter("bytes_total", "bytes, as the device sees it", ["device", "direction"])
        self._angle = gauge("angle_mean_radians", "mean angle between the devices' gradients")
        self._kept = counter("kept_total", "rounds in which a device's gradient was kept", ["device"])
        self._absent = counter("absent_total", "rounds that were closed without a device", ["device"])
        self._skipped = counter("skipped_total", "rounds in which a device was an outlier", ["device"])
        self._accuracy = gauge("accuracy", "mean accuracy over the devices, last evaluation")
        self._left = gauge("departures", "times that a device's link has ended", ["device"])
        self._here = gauge("connected", "whether a device is connected", ["device"])
        for unknown in (self._total, self._loss, self._angle, self._accuracy):
            unknown.set(math.nan)  # a loss of 0 would be a perfect one
        for device, name in enumerate(names):
            self._here.labels(name).set_function(lambda device=device: float(device in connected()))
            self._left.labels(name).set_function(lambda device=device: departures().get(device, 0))
            for count in (self._absent, self._skipped):
                count.labels(name)  # what begins at 0 can be watched from the start

    def serve(self, address: str) -> int:
        """Serve the figures on HOST:PORT; returns the port."""
        host, _, port = address.rpartition(":")
        try:
            server, _ = self._prometheus.start_http_server(
                int(port), addr=host or "localhost", registry=self.registry
            )
        except (OSError, ValueError, OverflowError) as error:
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            raise (Unavailable if taken else InputError)(
                f"cannot serve metrics on {address}: {error}; give HOST:PORT"
            ) from None
        return int(server.server_port)

    def started(self, run: Started) -> None:
        self._total.set(run.total_rounds)
        self._round.set(run.first_round - 1)

    def round(self, record: RoundRecord) -> None:
        self._rounds.inc()
        self._round.set(record.round)
        if record.loss is not None:
            self._loss.set(record.loss)
        for phase, seconds in record.seconds.items():
            self._seconds.labels(phase).inc(seconds)
        for device, name in enumerate(self._names):
            self._bytes.labels(name, "sent").inc(record.bytes_sent[device])
            self._bytes.labels(name, "received").inc(record.bytes_received[device])
        for device in record.selection.kept if record.selection is not None else ():
            self._kept.labels(self._names[device]).inc()
        for device in record.events.absent:
            self._absent.labels(self._names[device]).inc()
        for device in record.skipped:
            self._skipped.labels(self._names[device]).inc()
        if record.angle_mean is not None:
            self._angle.set(record.angle_mean)
        if record.evaluation is not None:
            self._accuracy.set(record.evaluation.device_mean)
