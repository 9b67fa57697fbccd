"""Trains one run after another in a process of its own, and tells its parent how far it is.

The argument is a folder of runs. Standard input has the name of a run in it a line, standard output a JSON
object a line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gapsl
from gapsl.analysis.jobs import LOG
from gapsl.common.errors import GapslError
from gapsl.common.files import plain
from gapsl.common.interrupt import Interrupt
from gapsl.run.observers import Observer, Started


class Teller(Observer):
    """Writes events to a pipe; a parent that is gone ends the run after its round."""

    def __init__(self) -> None:
        # What else prints goes to standard error, so that the pipe carries events alone.
        self._pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self.orphaned = False

    def log_to(self, path: Path) -> None:
        """Let what is printed from now on go to a file."""
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        sys.stdout.flush()
        for printed in (1, 2):
            os.dup2(log, printed)
        os.close(log)

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


def main(home: str) -> int:
    """Train the runs whose names arrive, until there are no more or somebody asks to stop."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    teller = Teller()
    with Interrupt() as interrupt:
        for name in sys.stdin:
            code = 130 if interrupt.asked else train(Path(home) / name.rstrip("\n"), teller, interrupt)
            teller.tell("ended", code=code)
            if teller.orphaned or interrupt.asked:
                break
    return 0


def train(folder: Path, teller: Teller, interrupt: Interrupt) -> int:
    """Train the run that a folder describes, from the start or from its last checkpoint."""
    try:
        teller.log_to(folder / LOG)
        result = gapsl.resume(folder, observers=[teller], stop=lambda: interrupt.asked or teller.orphaned)
    except GapslError as error:
        teller.tell("failed", message=str(error))
        return error.exit_code
    return 0 if result is not None else 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
