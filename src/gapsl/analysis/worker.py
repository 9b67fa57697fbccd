"""A process that trains runs and tells its parent how far it is, a JSON list a line: [event, values...].

As a program it takes a folder of runs, and the names of runs in it from standard input, one per line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from gapsl.analysis.progress import Step
from gapsl.common.errors import GapslError
from gapsl.common.files import plain
from gapsl.common.interrupt import Interrupt
from gapsl.run.api import resume
from gapsl.run.observers import Observer, Started
from gapsl.run.records import RoundRecord

LOG = "log.txt"  # in a run's folder: what its process printed
STOPPED = 130  # the code of a run that somebody stopped


class Reporter(Observer):
    """Writes events to a pipe; a run whose parent is gone ends after its round."""

    def __init__(self, pipe: int) -> None:
        self._pipe, self._parent = os.fdopen(pipe, "w", encoding="utf-8"), os.getppid()
        self._broken = False

    @property
    def orphaned(self) -> bool:
        """Whether nobody listens any more."""
        return self._broken or os.getppid() != self._parent

    def send(self, event: str, *values: Any) -> None:
        """Send one event."""
        try:
            self._pipe.write(json.dumps(plain([event, *values])) + "\n")
            self._pipe.flush()
        except OSError:
            self._broken = True

    def started(self, run: Started) -> None:
        self.send("start", run.first_round, run.total_rounds)

    def round(self, record: RoundRecord) -> None:
        self.send("round", *Step.of(record))

    def warned(self, message: str) -> None:
        self.send("warning", message)


def train(folder: Path, reporter: Reporter, interrupt: Interrupt, **given: Any) -> int:
    """Train the run that a folder describes, from the start or from its last checkpoint."""
    try:
        log_to(folder / LOG)
        stop = lambda: interrupt.asked or reporter.orphaned  # noqa: E731
        result = resume(folder, observers=[reporter], stop=stop, **given)
    except GapslError as error:
        reporter.send("failed", str(error))
        return error.exit_code
    return 0 if result is not None else STOPPED


def log_to(path: Path) -> None:
    """Let what is printed from now on go to a file."""
    sys.stdout.flush()
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for printed in (1, 2):
        os.dup2(log, printed)
    os.close(log)


def main(home: str) -> None:
    """Train the runs whose names arrive, until there are no more or somebody asks to stop."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    reporter = Reporter(os.dup(1))
    os.dup2(2, 1)  # what else is printed goes to standard error: the pipe carries events alone
    with Interrupt() as interrupt:
        for name in sys.stdin:
            code = STOPPED if interrupt.asked else train(Path(home) / name.rstrip("\n"), reporter, interrupt)
            reporter.send("ended", code)
            if reporter.orphaned or interrupt.asked:
                break


if __name__ == "__main__":
    main(sys.argv[1])
