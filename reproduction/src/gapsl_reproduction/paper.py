"""The numbers of the paper's tables, exactly as printed: accuracies in percent."""

from __future__ import annotations

from collections.abc import Mapping

Row = Mapping[str, float]  # by line

LINES = ("gapsl", "sfl", "epsl", "vanilla", "psl")  # in the order of the tables' columns


def _row(*numbers: float) -> Row:
    return dict(zip(LINES, numbers, strict=True))


# Table I, by workload and partition (non-iid: alpha 0.1).
ACCURACY: Mapping[tuple[str, str], Row] = {
    ("cifar10", "iid"): _row(86.9, 86.2, 85.8, 85.7, 84.3),
    ("cifar10", "non-iid"): _row(63.3, 60.7, 59.4, 57.3, 47.3),
    ("cifar100", "iid"): _row(72.1, 71.5, 70.8, 70.7, 69.8),
    ("cifar100", "non-iid"): _row(57.0, 53.4, 51.4, 50.3, 43.2),
}

# Table II, CIFAR-10, by partition and number of devices.
BY_DEVICES: Mapping[tuple[str, int], Row] = {
    ("iid", 10): _row(86.9, 86.2, 85.8, 85.7, 84.3),
    ("iid", 20): _row(86.8, 86.4, 86.3, 86.1, 84.7),
    ("iid", 30): _row(86.7, 86.2, 86.0, 85.8, 84.6),
    ("iid", 40): _row(86.5, 85.9, 85.7, 85.7, 84.9),
    ("non-iid", 10): _row(63.3, 60.7, 59.4, 57.3, 47.3),
    ("non-iid", 20): _row(63.1, 60.1, 57.2, 56.3, 45.5),
    ("non-iid", 30): _row(62.6, 58.5, 55.1, 54.2, 41.4),
    ("non-iid", 40): _row(61.7, 55.9, 55.3, 50.1, 35.6),
}

# Table III, by workload and Dirichlet alpha.
BY_ALPHA: Mapping[tuple[str, float], Row] = {
    ("cifar10", 0.9): _row(85.0, 84.1, 82.8, 82.7, 81.3),
    ("cifar10", 0.7): _row(78.1, 76.6, 74.9, 73.4, 70.3),
    ("cifar10", 0.5): _row(73.2, 71.2, 68.0, 66.2, 60.9),
    ("cifar10", 0.3): _row(69.3, 65.1, 61.8, 58.9, 53.5),
    ("cifar100", 0.9): _row(70.1, 69.3, 68.2, 67.3, 66.1),
    ("cifar100", 0.7): _row(66.2, 63.1, 62.3, 62.0, 57.4),
    ("cifar100", 0.5): _row(63.4, 60.2, 58.2, 57.1, 50.0),
    ("cifar100", 0.3): _row(60.6, 54.3, 52.1, 51.4, 41.2),
}


def printed(line: str, condition: str) -> str:
    """Return the accuracy that the paper has for a line under a condition on CIFAR-10; often nothing."""
    rows = {"iid": ACCURACY["cifar10", "iid"], "alpha 0.1": ACCURACY["cifar10", "non-iid"]}
    rows |= {f"alpha {alpha:g}": row for (data, alpha), row in BY_ALPHA.items() if data == "cifar10"}
    for (partition, devices), row in BY_DEVICES.items():
        rows[f"{devices} devices" + (", IID" if partition == "iid" else "")] = row
    found = rows.get(condition, {}).get(line)
    return "" if found is None else f"{found:.1f}"
