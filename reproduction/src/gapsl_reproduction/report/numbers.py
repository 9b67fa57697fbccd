"""Numbers by seed (differences, intervals, correlations), in words, and Markdown as GitHub reads it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from scipy import stats

from gapsl.analysis.statistics import Values, deviation, mean

ENOUGH = 3  # seeds that an interval is computed from
LEVEL = 0.95


def minus(first: Values, second: Values) -> Values:
    """Return the differences for the seeds that both have."""
    return {seed: first[seed] - second[seed] for seed in sorted(set(first) & set(second))}


def interval(values: Values) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean by Student's t; None for too few seeds."""
    if len(values) < ENOUGH:
        return None
    numbers = list(values.values())
    half = stats.t.ppf((1 + LEVEL) / 2, len(numbers) - 1) * stats.sem(numbers)
    centre = statistics.fmean(numbers)
    return float(centre - half), float(centre + half)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; None for fewer than three pairs or where one never changes."""
    if len(first) < 3 or len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return float(stats.spearmanr(first, second).statistic)


def signed(value: float, digits: int = 1) -> str:
    """Return a number with its sign, a real minus sign among them."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def seeds_name(count: int) -> str:
    """Return "1 seed" or "3 seeds"."""
    return f"{count} seed{'' if count == 1 else 's'}"


def told(values: Values, unit: str = "", digits: int = 1) -> str:
    """Return a mean difference with its interval, or its values where there are too few for one."""
    centre = mean(values)
    if centre is None:
        return "not measured"
    span = interval(values)
    if span is not None:
        within = " to ".join(signed(end, digits) for end in span) + "; "
    else:
        each = [signed(value, digits) for value in values.values()]
        within = ", ".join(each) + "; " if len(each) > 1 else ""
    return f"{signed(centre, digits)}{unit} ({within}{seeds_name(len(values))})"


def spread(values: Values, digits: int = 1) -> str:
    """Return "45.2 ± 0.8 (3)": the mean, the standard deviation over seeds, and how many seeds."""
    centre, apart = mean(values), deviation(values)
    if centre is None:
        return "–"
    return f"{centre:.{digits}f}" + ("" if apart is None else f" ± {apart:.{digits}f}") + f" ({len(values)})"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Return a table; all but the first columns are flush right."""
    marks = ["---" if i < left else "---:" for i in range(len(headings))]
    lines = [headings, marks, *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def bullets(items: Iterable[str]) -> str:
    """Return a list."""
    return "\n".join(f"- {item}" for item in items)


def paragraphs(*texts: str) -> str:
    """Return texts with an empty line between, without the empty ones."""
    return "\n\n".join(text for text in texts if text)


def listed(names: Sequence[str]) -> str:
    """Return "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
