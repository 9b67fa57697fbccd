"""Some records of a long file, which show the whole run before all of them are read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO

from gapsl.common.reading import open_file
from gapsl.dashboard.record_index import RecordIndex
from gapsl.run.records import RoundRecord

ROUND = re.compile(rb'"round": (\d+)')


def sketch_of(path: Path, every: int | None, most: int = 120) -> RecordIndex:
    """Return an index of some records of a long file, which takes no time: those of every so many rounds.

    Rounds follow each other in the file and take about the same room, so a round is found by a few guesses.
    """
    found = RecordIndex(path)
    with open_file(path) as file:
        found.size = os.fstat(file.fileno()).st_size
        last, _ = last_line(file, found.size)
        total = round_of(last)
        step = every or 1
        wanted = [step * k for k in range(1, total // step + 1)]
        chosen = wanted[:: -(-len(wanted) // most)] if wanted else []
        for round in dict.fromkeys([1, *chosen, total]):
            place = locate(file, found.size, total, round)
            if place is not None:
                file.seek(place)
                try:
                    found.add(RoundRecord.from_line(file.readline()), place)
                except (ValueError, RecursionError):
                    continue  # who reads the whole file says so
    return found


def locate(file: BinaryIO, size: int, total: int, round: int) -> int | None:
    """Return where the record of a round begins, None if it is not found by guessing."""
    low, high = 0, size  # it begins in between
    first, last = 0, total + 1  # the rounds around that
    for _ in range(40):
        guess = low + int((high - low) * (round - first - 1) / max(1, last - first))
        start = line_start(file, guess)
        file.seek(start)
        here = round_of(file.read(64))
        if here == round:
            return start
        if here == 0:
            return None
        if here < round:
            file.seek(start)
            file.readline()
            low, first = file.tell(), here
        else:
            high, last = start, here
        if low >= high:
            return None
    return None


def line_start(file: BinaryIO, place: int) -> int:
    """Return where the line begins that has the byte at a place."""
    while place > 0:
        back = min(place, 1 << 14)
        file.seek(place - back)
        found = file.read(back).rfind(b"\n")
        if found >= 0:
            return place - back + found + 1
        place -= back
    return 0


def last_line(file: BinaryIO, size: int) -> tuple[bytes, int]:
    """Return the last line that is finished, and where it begins."""
    file.seek(max(0, size - 1))
    end = size if file.read(1) == b"\n" else line_start(file, size)
    start = line_start(file, end - 1) if end else 0
    file.seek(start)
    return file.read(end - start), start


def round_of(head: bytes) -> int:
    """Return the round that a record's first bytes name, 0 if they name none."""
    found = ROUND.search(head[:64])
    return int(found[1]) if found is not None else 0
