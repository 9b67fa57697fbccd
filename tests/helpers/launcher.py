"""Starts `gapsl`, or a program that uses it, in processes of their own, from one that has imported torch.

Every command is a real process with its own pid, files and signals; only the two seconds that a fresh
interpreter spends importing torch are saved. What depends on a fresh interpreter is tested with one
(see `fresh` in processes.py).

Takes one JSON object a line on standard input and answers with one on standard output.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from importlib import import_module

import faults
import torch._dynamo  # noqa: F401 - torch's optimizers import it when the first is made

import gapsl.cli
from gapsl.cli.main import COMMANDS

for place in COMMANDS.values():
    import_module(place.partition(":")[0])  # here once, and not in every process


def start(order: dict) -> int:
    """Fork a process that runs the command line and ends with its exit code."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()  # a terminal's Ctrl-C goes to a process group: this is one
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(order["cwd"])
        for number, name in ((0, os.devnull), (1, order["stdout"]), (2, order["stderr"])):
            opened = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(opened, number)
            os.close(opened)
        os.environ.update(order["env"])
        faults.install(os.environ)
        if order["script"]:
            runpy.run_path(order["script"], run_name="__main__")
        else:
            sys.argv = ["gapsl", *order["args"]]
            gapsl.cli.main()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # what the interpreter does with a bug of ours
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(pid: int) -> int | None:
    """Return how a process ended, negative for a signal; None if it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        if order.get("args", [])[:1] == ["reproduce"]:
            import_module("gapsl_reproduction.report.page")  # with what it draws with; others need none of it
        answer = ended(order["ended"]) if "ended" in order else start(order)
        print(json.dumps(answer), flush=True)
