"""The paper's numbers are the printed ones."""

from __future__ import annotations

import pytest
from gapsl_reproduction import paper
from gapsl_reproduction.scales import STANDARD


def test_numbers_here_and_there() -> None:
    assert paper.ACCURACY["cifar10", "non-iid"]["gapsl"] == 63.3
    assert paper.ACCURACY["cifar10", "iid"]["psl"] == 84.3
    assert paper.ACCURACY["cifar100", "non-iid"]["psl"] == 43.2
    assert paper.BY_DEVICES["non-iid", 40] == {
        "gapsl": 61.7, "sfl": 55.9, "epsl": 55.3, "vanilla": 50.1, "psl": 35.6,
    }  # fmt: skip
    assert paper.BY_DEVICES["iid", 20]["epsl"] == 86.3
    assert paper.BY_ALPHA["cifar10", 0.3]["sfl"] == 65.1
    assert paper.BY_ALPHA["cifar100", 0.3]["psl"] == 41.2


def test_the_margins_that_the_text_gives_are_those_of_the_table() -> None:
    """GAPSL over SFL, EPSL, vanilla SL and PSL under label skew (its Section V-A)."""
    told = {"cifar10": (2.6, 3.9, 6.0, 16.0), "cifar100": (3.6, 5.6, 6.7, 13.8)}
    for workload, margins in told.items():
        row = paper.ACCURACY[workload, "non-iid"]
        found = [row["gapsl"] - row[line] for line in ("sfl", "epsl", "vanilla", "psl")]
        assert found == pytest.approx(margins, abs=0.01)


def test_every_cell_is_there_and_two_tables_agree_where_they_overlap() -> None:
    tables = (paper.ACCURACY, paper.BY_DEVICES, paper.BY_ALPHA)
    assert [len(table) for table in tables] == [4, 8, 8]
    assert all(tuple(row) == paper.LINES for table in tables for row in table.values())
    for partition in ("iid", "non-iid"):
        assert paper.BY_DEVICES[partition, 10] == paper.ACCURACY["cifar10", partition]


def test_numbers_are_found_by_the_conditions_of_the_catalogue() -> None:
    assert paper.printed("psl", "alpha 0.1") == "47.3" and paper.printed("psl", "iid") == "84.3"
    assert paper.printed("sfl", "alpha 0.3") == "65.1" and paper.printed("gapsl", "40 devices") == "61.7"
    assert paper.printed("epsl", "20 devices, IID") == "86.3"
    assert paper.printed("papsl", "alpha 0.1") == paper.printed("psl", "flip:3") == ""
    conditions = {name for group in STANDARD.groups.values() for name in group}
    assert {name for name in conditions if paper.printed("gapsl", name)} == {
        "alpha 0.1", "alpha 0.3", "alpha 0.9", "iid", "20 devices", "40 devices", "20 devices, IID",
        "40 devices, IID",
    }  # fmt: skip
