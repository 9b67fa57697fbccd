"""A partition for the eye: devices × classes as text that fits a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BLOCKS = " ▁▂▃▄▅▆▇█"
BAR = 10  # columns of the bar that shows a device's size
MAX_ROWS = 20  # devices shown; more are sampled evenly


def render_counts(counts: NDArray[np.int64], classes: Sequence[str], *, width: int = 80) -> str:
    """Return a table of label counts: numbers where the classes fit, one block per class where not.

    A block's height is the class's share of its device's largest class; any sample at all shows.
    """
    devices = len(counts)
    shown = (
        range(devices) if devices <= MAX_ROWS else sorted({i * devices // MAX_ROWS for i in range(MAX_ROWS)})
    )
    sizes = counts.sum(axis=1)
    name_width = max(len("device"), len(str(devices - 1)))
    size_width = max(len("samples"), len(str(sizes.max())))
    room = max(10, width - name_width - size_width - BAR - 4)  # 4 spaces between the columns
    per_block = 1
    cell = max(4, len(str(counts.max()))) + 1
    if cell * len(classes) <= room:
        header = "".join(name[: cell - 1].rjust(cell) for name in classes)
        rows = ["".join(_number(n).rjust(cell) for n in counts[i]) for i in shown]
    else:
        per_block = -(-len(classes) // room)
        rows = [_blocks(_pooled(counts[i], per_block)) for i in shown]
        header = _axis(len(classes), per_block)
    grid = max(len(header), max(len(row) for row in rows))
    lines = [f"{'device':<{name_width}}  {header:<{grid}} {'samples':>{size_width}}"]
    for i, row in zip(shown, rows, strict=True):
        bar = _bar(sizes[i] / max(1, sizes.max()))
        lines.append(f"{i:>{name_width}}  {row:<{grid}} {sizes[i]:>{size_width}} {bar}".rstrip())
    if per_block > 1:
        lines.append(f"({per_block} neighbouring classes a block)")
    if len(shown) < devices:
        lines.append(f"({len(shown)} of {devices} devices shown; what follows is over all of them)")
    lines += [
        "",
        _summary("samples per device", sizes),
        _summary("classes per device", (counts > 0).sum(axis=1)),
    ]
    return "\n".join(lines)


def _number(count: int) -> str:
    return str(count) if count else "·"


def _pooled(row: NDArray[np.int64], per_block: int) -> NDArray[np.int64]:
    """Add up neighbouring classes, so that many fit into one line."""
    padded = np.pad(row, (0, -len(row) % per_block))
    return np.asarray(padded.reshape(-1, per_block).sum(axis=1))


def _blocks(row: NDArray[np.int64]) -> str:
    heights = np.ceil(row / max(1, row.max()) * (len(BLOCKS) - 1)).astype(int)
    return "".join(BLOCKS[height] for height in heights)


def _axis(classes: int, per_block: int) -> str:
    """Return a line with class numbers above the blocks they name."""
    line = ""
    for start in range(0, classes, 10 * per_block):
        line = line.ljust(start // per_block) + str(start)
    return line


def _bar(fraction: float) -> str:
    eighths = max(1, round(fraction * BAR * 8)) if fraction > 0 else 0
    full, rest = divmod(eighths, 8)
    return "█" * full + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest]


def _summary(what: str, values: NDArray[np.int64]) -> str:
    return f"{what}: min {values.min()}, median {np.median(values):g}, max {values.max()}"
