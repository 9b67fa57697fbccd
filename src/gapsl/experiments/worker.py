"""One run of many in a process of its own; tells its parent how far it is, a JSON object a line."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import gapsl
from gapsl.errors import GapslError
from gapsl.files import plain
from gapsl.interrupt import Interrupt
from gapsl.training.observers import Observer, Started


class Teller(Observer):
    """Writes events to a pipe; a parent that is gone ends the run after its round."""

    def __init__(self) -> None:
        # What else prints goes to standard error, so that the pipe carries events alone.
        self._pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self.orphaned = False

    def tell(self, kind: str, **values: Any) -> None:
        """Send one event."""
        try:
            self._pipe.write(json.dumps(plain({"event": kind, **values})) + "\n")
            self._pipe.flush()
        except OSError:
            self.orphaned = True

    def started(self, run: Started) -> None:
        """Say where the run begins."""
        self.tell("started", first=run.first_round, total=run.total_rounds)

    def round(self, record: Mapping[str, Any]) -> None:
        """Say how the round went."""
        names = ("round", "loss", "evaluation", "kept", "leader")
        self.tell("round", **{name: record[name] for name in names if name in record})

    def warned(self, message: str) -> None:
        """Pass a warning on."""
        self.tell("warning", message=message)


def main(folder: str) -> int:
    """Train the run that a folder describes, from the start or from its last checkpoint."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    teller = Teller()
    with Interrupt() as interrupt:
        try:
            result = gapsl.resume(folder, observers=[teller], stop=lambda: interrupt.asked or teller.orphaned)
        except GapslError as error:
            teller.tell("failed", message=str(error))
            return error.exit_code
    return 0 if result is not None else 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
