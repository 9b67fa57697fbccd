"""SFL v2: one server-side model, which takes the devices one after another in a random order."""

from __future__ import annotations

from collections.abc import Iterable

from gapsl.common.streams import numpy_stream
from gapsl.device.exchange import Exchange, Outcome, Upload
from gapsl.methods.contribution import size_of
from gapsl.methods.outliers import Size
from gapsl.methods.sfl import Answers, ClientAveraging


class SflV2(ClientAveraging):
    """Split federated learning, version 2."""

    summary = "split federated learning v2: devices in random order; client-side models averaged"

    def step(
        self, round: int, exchange: Exchange, uploads: Iterable[Upload], *, measure: bool = False
    ) -> Outcome:
        """Take one server step per device, in this round's random order."""
        by_device = {upload.device: upload for upload in uploads}
        measured = self.measure_angles(list(by_device.values())) if measure else None
        answers = Answers()
        before: list[Size] = []  # of those that trained before in this round
        stream = numpy_stream(self.run.seed, "sfl-order", round=round)
        for device in stream.permutation(sorted(by_device)).tolist():
            contribution = self.server.first_order(by_device[device])
            why = self.outlier(contribution, before, devices=len(by_device))
            why = why or self.train_once(self.server, round, contribution)
            answers.add(contribution, why)
            if why is None:
                before.append(size_of(contribution))
        return answers.outcome(measured)
