"""What several cores give, and what a thousand devices cost, as ratios measured in the same run.

Two processes are held against two bare torch computations that run side by side, each of half a round's
batches: more than they do, two cores cannot give. The kinds take turns, and the median counts. The
memory is the sum of what every process has for itself or shares (PSS). Run it alone:

    python benchmarks/scale.py                    # the table of README.md in this folder
    python benchmarks/scale.py --quick            # smaller, to see that it works
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from round import bare, synthetic

from gapsl.run.build import prepare
from gapsl.run.config import make_config
from gapsl.run.environment import describe_environment
from gapsl.run.loop import Training
from gapsl.run.parts import Given

COMMON: dict[str, Any] = {
    "model": "vgg16",
    "norm": "group",
    "partition": "iid",
    "rounds": 10_000,
    "evaluate_every": 100_000,
    "angles": "off",
}


def training(devices: int, batch: int, width: float, **settings: Any) -> Training:
    """Return a run on images of noise that is ready for its first round."""
    words = {**COMMON, "devices": devices, "batch_size": batch, "width": width, **settings}
    return prepare(make_config(words), Given(dataset=synthetic(max(5000, devices * 20), 10)))


def seconds(once: Callable[[], Any]) -> float:
    """Return how long it takes."""
    begun = time.perf_counter()
    once()
    return time.perf_counter() - begun


def side_by_side(options: argparse.Namespace, pipe: Any) -> None:
    """Compute half a round whenever asked."""
    torch.set_num_threads(1)
    once = bare(options)
    pipe.send(None)
    while pipe.recv():
        once()
        pipe.send(None)


def two_bare(options: argparse.Namespace) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what two processes do that have nothing to do with each other, and how to end them."""
    half = argparse.Namespace(**{**vars(options), "devices": options.devices // 2})
    pipes = []
    for _ in range(2):
        ours, theirs = multiprocessing.Pipe()
        multiprocessing.get_context("spawn").Process(
            target=side_by_side, args=(half, theirs), daemon=True
        ).start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.recv()

    def once() -> None:
        for pipe in pipes:
            pipe.send(True)
        for pipe in pipes:
            pipe.recv()

    def end() -> None:
        for pipe in pipes:
            pipe.send(False)

    return once, end


def next_round(run: Training) -> Callable[[], None]:
    """Return a function that trains one round to its end, the devices' steps included."""

    def once() -> None:
        run.one_round(run.state.round + 1)
        settle = getattr(run.fleet, "_settle", None)
        if settle is not None:
            settle()

    return once


def cores(options: argparse.Namespace) -> None:
    """Measure what a second core gives."""
    floor, end = two_bare(options)
    size = (options.devices, options.batch_size, options.width)
    kinds: dict[str, Callable[[], None]] = {"two bare torch processes": floor}
    runs = {
        "one process": training(*size, method="psl"),
        "--processes 2": training(*size, method="psl", processes=2),
        "gapsl, --processes 2": training(*size, method="gapsl", processes=2),
        "papsl, --processes 2": training(*size, method="papsl", processes=2),
    }
    if options.ray:
        runs["--fleet ray --processes 2"] = training(*size, method="psl", processes=2, fleet="ray")
    kinds |= {name: next_round(run) for name, run in runs.items()}
    threads = next_round(training(*size, method="psl", threads=2))

    def with_threads() -> None:
        torch.set_num_threads(2)
        threads()
        torch.set_num_threads(1)

    kinds["one process, 2 threads"] = with_threads
    spent: dict[str, list[float]] = {name: [] for name in kinds}
    for repetition in range(options.repeat + 1):
        for name, once in kinds.items():
            took = seconds(once)
            if repetition:
                spent[name].append(took)
    best = {name: statistics.median(times) for name, times in spent.items()}
    print(f"\nVGG-16 at width {options.width:g}, {options.devices} devices, batch {options.batch_size}\n")
    print("| round | seconds | share of the two | of --processes 2 |")
    print("| --- | --- | --- | --- |")
    for name, took in best.items():
        share, of = best["two bare torch processes"] / took, best["--processes 2"] / took
        print(f"| {name} | {took:.2f} | {share:.2f} | {of:.2f} |")
    end()
    for run in runs.values():
        if hasattr(run.fleet, "finish"):
            run.fleet.finish()


def memory() -> float:
    """Return the MiB of this process and its children, each page of memory counted once."""
    own = os.getpid()
    children = Path(f"/proc/{own}/task/{own}/children").read_text(encoding="utf-8").split()
    found = 0
    for process in (own, *children):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
        found += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return found / 1024


def many(options: argparse.Namespace) -> None:
    """Measure what many devices cost, each in a process of its own."""
    kinds = {
        "10": {"devices": 10},
        f"{options.many}, graphs kept": {"devices": options.many, "graph_memory": 100_000},
        f"{options.many}, graph_memory 256": {"devices": options.many, "graph_memory": 256},
        f"{options.many}, the same, --processes 2": {
            "devices": options.many, "graph_memory": 256, "processes": 2,
        },
    }  # fmt: skip
    print("\nVGG-16 at width 0.125, batch 16\n")
    print("| devices | ms per device | of 10 devices' | MiB beyond 10 devices' |")
    print("| --- | --- | --- | --- |")
    first: tuple[float, float] | None = None
    for name, words in kinds.items():
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=one_of_many, args=(words, theirs))
        process.start()
        theirs.close()  # so that its end is noticed
        each, used = ours.recv()
        process.join()
        first = first or (each, used)
        print(f"| {name} | {1000 * each:.1f} | {each / first[0]:.2f} | {used - first[1]:.0f} |", flush=True)


def one_of_many(words: dict[str, Any], pipe: Any) -> None:
    """Train a few rounds, and say how long a device took and how much memory was in use at most."""
    run = training(words.pop("devices"), 16, 0.125, method="psl", **words)
    once, devices = next_round(run), len(run.fleet.devices)
    once()
    each = min(seconds(once) for _ in range(max(2, 60 // devices))) / devices
    pipe.send((each, memory()))
    if hasattr(run.fleet, "finish"):
        run.fleet.finish()


def leading(options: argparse.Namespace) -> None:
    """Measure what finding the leader costs, each number of devices in a process of its own.

    By the processor's time, which other work beside it does not change much.
    """
    print("\nGAPSL without the regulariser, VGG-16 at width 0.25\n")
    headings = ("batch", "devices", "gradient_rows", "s per round", "LGI", "sketches", "sums again", "MiB")
    print("| " + " | ".join(headings) + " |")
    print("| --- " * len(headings) + "|")
    for batch, rows in ((16, "exact"), (16, "sketch"), (128, "exact")):
        for devices, rounds in options.leading.items():
            ours, theirs = multiprocessing.Pipe()
            words = {"devices": devices, "batch": batch, "gradient_rows": rows, "graph_memory": 256}
            process = multiprocessing.get_context("fork").Process(target=led, args=(words, rounds, theirs))
            process.start()
            theirs.close()
            each, shares, used = ours.recv()
            process.join()
            columns = " | ".join(f"{100 * share:.1f} %" for share in shares)
            print(f"| {batch} | {devices} | {rows} | {each:.1f} | {columns} | {used:.0f} |", flush=True)


def led(words: dict[str, Any], rounds: int, pipe: Any) -> None:
    """Train a few rounds, and say how long one took, what shares of it were LGI's, and how much memory."""
    size = (words.pop("devices"), words.pop("batch"), 0.25)
    run = training(*size, method="gapsl", gapsl={"penalty": "none"}, **words)
    spent = [0.0, 0.0, 0.0]

    def clock(owner: Any, name: str, which: int) -> None:
        inner = getattr(owner, name, None)

        def timed(*args: Any, **kwargs: Any) -> Any:
            assert inner is not None
            begun = time.process_time()
            found = inner(*args, **kwargs)
            spent[which] += time.process_time() - begun
            return found

        if inner is not None:
            setattr(owner, name, timed)

    for owner, name, which in (
        (run.strategy, "identify", 0),
        (run.strategy.server, "_sketched", 1),
        (run.strategy.server, "reduced", 2),
    ):
        clock(owner, name, which)
    begun = time.process_time()
    for _ in range(rounds):
        run.one_round(run.state.round + 1)
    took = time.process_time() - begun
    pipe.send((took / rounds, [part / took for part in spent], memory()))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few small rounds")
    parser.add_argument("--ray", action="store_true", help="Ray actors, too")
    parser.add_argument("--only", nargs="+", choices=["many", "leading", "cores"], help="some of the tables")
    chosen = parser.parse_args()
    options = argparse.Namespace(
        model="vgg16",
        norm="group",
        width=0.125 if chosen.quick else 0.25,
        devices=4 if chosen.quick else 10,
        batch_size=16 if chosen.quick else 128,
        repeat=2 if chosen.quick else 7,
        many=50 if chosen.quick else 1000,
        ray=chosen.ray,
        leading={10: 2, 50: 1} if chosen.quick else {10: 5, 100: 2, 1000: 1},
    )
    torch.set_num_threads(1)
    machine = describe_environment()
    print(f"{machine['processor']}, torch {machine['torch']}, commit {machine['commit']}")
    parts = {"many": many, "leading": leading, "cores": cores}
    for name in chosen.only or parts:
        parts[name](options)


if __name__ == "__main__":
    main()
