"""Split inference against the joined model in one process: latency of one image, images per second.

Client and server are processes of this machine, so the link costs what the protocol does and no distance.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from gapsl.device.model_info import ModelInfo
from gapsl.inference.remote import RemoteServerModel
from gapsl.inference.service import InferenceService, serve_inference
from gapsl.inference.split_model import ClientPart, SplitModel, TrainedParts, blank_parts

MODELS = {
    "small, cut 1": {"model": "small", "input_shape": (1, 28, 28), "cut": 1},
    "VGG-16 at 1/4 width, cut 4": {"model": "vgg16", "input_shape": (3, 32, 32), "cut": 4, "width": 0.25},
}


def parts_of(name: str) -> TrainedParts:
    """Return a model with weights that mean nothing: time does not depend on them."""
    settings = MODELS[name]
    channels = settings["input_shape"][0]  # type: ignore[index]
    info = ModelInfo.model_validate(
        {"classes": list("0123456789"), "mean": [0.5] * channels, "std": [0.5] * channels, "inputs": "bytes"}
        | settings
    )
    torch.manual_seed(0)
    client, server, _ = blank_parts(info)
    return TrainedParts(info, (ClientPart(client.eval(), None, -1),), server.eval())


def serve(name: str, port: multiprocessing.Queue[int], over: multiprocessing.synchronize.Event) -> None:
    """Serve the server's part until it is over."""
    torch.set_num_threads(1)
    server = serve_inference(InferenceService(parts_of(name)), "localhost:0", None, streams=16)
    port.put(server.port)
    over.wait()
    server.stop()


def seconds_of(run: Callable[[], object], times: int) -> list[float]:
    """Return how long each of some calls takes, after a few that do not count."""
    for _ in range(3):
        run()
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        run()
        found.append(time.perf_counter() - begun)
    return found


def measured(predict: Callable[[Tensor], Tensor], shape: tuple[int, ...], batch: int, times: int) -> str:
    """Return a table's cells: fastest and median of one image, images per second of the fastest batch."""
    one, many = torch.randn(1, *shape), torch.randn(batch, *shape)
    with torch.no_grad():
        single = seconds_of(lambda: predict(one), times)
        whole = min(seconds_of(lambda: predict(many), max(5, times // 10)))
    return f"{1000 * min(single):.2f} | {1000 * statistics.median(single):.2f} | {batch / whole:.0f}"


def together(predict: Callable[[Tensor], Tensor], shape: tuple[int, ...], batch: int, devices: int) -> float:
    """Return images per second of several devices that ask at once."""
    many, rounds = torch.randn(batch, *shape), 6

    def ask(_: int) -> None:
        with torch.no_grad():
            for _ in range(rounds):
                predict(many)

    with ThreadPoolExecutor(devices) as pool:
        begun = time.perf_counter()
        list(pool.map(ask, range(devices)))
    return devices * rounds * batch / (time.perf_counter() - begun)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--times", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| model | where | one image, ms | median, ms | images/s, batches of {options.batch} |")
    print("| --- | --- | --- | --- | --- |")
    for name in MODELS:
        parts = parts_of(name)
        shape = parts.info.input_shape
        joined = parts.joined()
        print(
            f"| {name} | one process | {measured(joined, shape, options.batch, options.times)} |", flush=True
        )
        context = multiprocessing.get_context("spawn")
        port, over = context.Queue(), context.Event()
        server = context.Process(target=serve, args=(name, port, over))
        server.start()
        remote = RemoteServerModel(parts, f"localhost:{port.get()}", "device-0", None)
        split = SplitModel(parts.info, parts.clients, remote).eval()
        print(f"| {name} | split | {measured(split, shape, options.batch, options.times)} |", flush=True)
        print(
            f"| {name} | split, 4 devices at once | | | {together(split, shape, options.batch, 4):.0f} |",
            flush=True,
        )
        over.set()
        server.join()


if __name__ == "__main__":
    main()
