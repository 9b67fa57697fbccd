"""Compare ways to keep client-side models together under label skew, one thing changed at a time.

    python -m studies.small_net --data-dir DIR              # all runs that are not stored yet
    python -m studies.small_net --data-dir DIR --only 'psl-*' frozen --seeds 0,1,2
    python -m studies.small_net --list                      # what there is, and why
    python -m studies.small_net --table                     # docs/study.md from what is stored

It can be stopped and started again at any time: a finished run is stored at once and not repeated.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gapsl.common.errors import InputError
from gapsl.data import Source, load_source
from gapsl.run.environment import describe_environment
from studies.page import write_page
from studies.runs import CATALOGUE, Run
from studies.task import Setting, small_pictures
from studies.training import train

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "studies" / "results.jsonl", ROOT / "docs" / "study.md"


def read_results(path: Path) -> list[dict[str, Any]]:
    """Return the stored results, none if there is no file yet."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def is_finished(path: Path, run: Run, seed: int, rounds: int) -> bool:
    """Say whether a run is stored; refuse if it is stored with other settings."""
    for stored in read_results(path):
        if (stored["name"], stored["seed"], stored["rounds"]) == (run.name, seed, rounds):
            if stored["settings"] != json.loads(json.dumps(run.settings())):  # tuples are lists there
                raise InputError(f"{path} has {run.name} with other settings; remove its lines or rename it")
            return True
    return False


def run_all(
    runs: Sequence[Run],
    source: Source,
    *,
    seeds: Sequence[int],
    rounds: int,
    path: Path,
    setting: Setting | None = None,
) -> None:
    """Train every run with every seed and store each at once, but for those that are stored already."""
    commit = describe_environment()["commit"]
    for seed in seeds:
        for run in runs:
            length = rounds * run.length
            if is_finished(path, run, seed, length):
                continue
            began = time.monotonic()
            found = train(run, source, seed=seed, rounds=length, setting=setting)
            seconds = time.monotonic() - began
            record = {
                "name": run.name, "seed": seed, "rounds": length, "settings": run.settings(),
                "commit": commit, **{key: round(value, 5) for key, value in found.items()},
                "seconds": round(seconds, 1),
            }  # fmt: skip
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            shown = f"devices {100 * found['device_mean']:.1f} %, worst {100 * found['device_min']:.1f} %"
            print(f"{run.name}, seed {seed}, {length} rounds: {shown}, {seconds:.0f} s", flush=True)


def chosen(patterns: Sequence[str]) -> list[Run]:
    """Return the runs of these names, which may have wildcards; all of them if there is none."""
    for pattern in patterns:
        if not fnmatch.filter([run.name for run in CATALOGUE], pattern):
            raise InputError(f"there is no run {pattern!r}; see --list")
    return [run for run in CATALOGUE if not patterns or any(fnmatch.fnmatch(run.name, p) for p in patterns)]


def seeds_of(text: str) -> list[int]:
    """Read seeds with commas between them."""
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of seeds; write 0,1,2") from None


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    summary, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser("studies.small_net", description=summary)
    parser.add_argument("--data-dir", help="the folder with CIFAR-10, or where it is downloaded to")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these runs; * is a wildcard")
    parser.add_argument("--seeds", type=seeds_of, default=[0], help="for example 0,1,2")
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--list", action="store_true", help="say what there is and stop")
    parser.add_argument("--table", action="store_true", help="write the page from what is stored and stop")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line asks for."""
    options = parse(arguments)
    runs = chosen(options.only)
    if options.list:
        print("\n".join(f"{run.name:24}{run.why}" for run in runs))
    elif options.table:
        records = read_results(RESULTS)
        if not records:
            raise InputError(f"there are no results in {RESULTS}; run something first")
        page = write_page(records)
        PAGE.write_text(page, encoding="utf-8")
        print(page)
    else:
        torch.set_num_threads(1)
        source = small_pictures(load_source("cifar10", data_dir=options.data_dir))
        run_all(runs, source, seeds=options.seeds, rounds=options.rounds, path=RESULTS)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # whoever reads it, `head` for example, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
