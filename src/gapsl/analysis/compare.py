"""Methods and seeds side by side in one folder; what is finished is skipped, the rest goes on."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapsl.analysis.comparison_folder import lay_out, runs_in
from gapsl.analysis.formats import Table
from gapsl.analysis.progress import Display, RunProgress
from gapsl.analysis.tables import results_table, to_pandas
from gapsl.analysis.worker import LOG, STOPPED
from gapsl.analysis.workers import Job, run_supply
from gapsl.common.errors import GapslError, InputError
from gapsl.common.plugins import named
from gapsl.common.registry import Registry, nearest
from gapsl.data.from_python import GivenData
from gapsl.data.sources import SOURCES
from gapsl.methods.base import Strategy
from gapsl.methods.registry import METHODS, register_method
from gapsl.methods.server_model import Loss, cross_entropy
from gapsl.models import MODELS, GivenModel
from gapsl.run.api import compose, resume
from gapsl.run.build import prepare
from gapsl.run.config import Config, flat, make_config, merge, presets
from gapsl.run.config import preset as preset_values
from gapsl.run.folder import RunFolder
from gapsl.run.named_observers import OBSERVERS, check_observers
from gapsl.run.parts import Given
from gapsl.run.records import RunResult

if TYPE_CHECKING:
    import pandas

GROUPS = ("methods", "models", "datasets", "observers")  # of what packages announce


@dataclass(frozen=True)
class Failure:
    """Why a run has no result: the exit code of its process, and what there is to say."""

    code: int
    message: str


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison: the results of its runs, in the order asked for, and what failed."""

    folder: Path
    results: Sequence[RunResult]
    failures: Mapping[str, Failure] = field(default_factory=dict)  # by the run's name, as gapsl-seed0
    stopped: bool = False  # `stop` ended it early; the same call goes on

    def table(self, baseline: str | None = None) -> Table:
        """Return a row per method: several seeds become mean ± sample standard deviation.

        The others are compared with `baseline`, or the first, seed by seed. `print` it, or take `.csv()`,
        `.latex()`, `.markdown()`.
        """
        return results_table(self.results, baseline)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a row per run: method, seed, and its final measures."""
        return to_pandas(self.results)


def compare(
    methods: Sequence[str | type[Strategy]],
    *,
    seeds: Iterable[int] = (0,),
    model: str | GivenModel | None = None,
    dataset: str | GivenData | None = None,
    config: Config | str | Path | None = None,
    preset: str | None = None,
    loss: Loss = cross_entropy,
    out: str | Path | None = None,
    workers: int = 0,
    progress: bool | Display = False,
    stop: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> Comparison:
    """Train methods side by side, with the same data, order and start for all.

    A method is a name, a preset that names one ("recommended"), or a `Strategy` class of your own; `model`,
    `dataset` and the settings are those of `gapsl.train`. Each run has a folder in `out`, as `gapsl compare`
    lays it out: the same call again goes on with what is there. Without `out` nothing is kept.

    `workers=0` trains one run after another in this process, N at most N at a time in processes of their own.
    Objects of your own (a model, data, a loss, a method of this program) reach such a process by a fork of
    this one. That works on Linux with device="cpu" and threads=1; elsewhere take workers=0. Nothing is
    pickled. A run that fails keeps no other from its end: see `Comparison.failures`.
    """
    if not methods:
        raise InputError("there is nothing to compare; name one method or more")
    words = dict(settings)
    given: dict[str, Any] = {}
    for name, value in (("model", model), ("dataset", dataset)):
        if isinstance(value, str):
            words[name] = value
        elif value is not None:
            given[name] = value
    if loss is not cross_entropy:
        given["loss"] = loss
    base = compose(config, preset_name=preset, words=words)
    for name in ("method", "seed"):
        if getattr(base, name) != Config.model_fields[name].default:
            raise InputError(f"a comparison takes {name}s, not the setting {name}; leave it out")
    with tempfile.TemporaryDirectory(prefix="gapsl-") as scratch:
        folder = Path(out).expanduser() if out is not None else Path(scratch) / "comparison"
        chosen = entries(methods)
        jobs = []
        for seed in dict.fromkeys(seeds):
            for entry, own in chosen.items():
                values = merge(base.given(), own, {"seed": seed})
                name = f"{entry.replace('/', '-')}-seed{seed}"
                jobs.append(Job(name, folder / name, make_config(values)))
        if not jobs:
            raise InputError("there is nothing to compare; give one seed or more")
        display = progress if isinstance(progress, Display) else Display(quiet=not progress)
        for line in kept_settings(base, chosen):
            display.say(line)
        return _run(folder, jobs, given, workers, display, stop, fresh=True)


def resume_comparison(
    out: str | Path,
    *,
    workers: int = 0,
    progress: bool | Display = False,
    stop: Callable[[], bool] = lambda: False,
) -> Comparison:
    """Go on with all runs of a comparison that are not finished."""
    folder = Path(out).expanduser()
    jobs = [Job(run.path.name, run.path, run.config()[0]) for run in runs_in(folder)]
    display = progress if isinstance(progress, Display) else Display(quiet=not progress)
    return _run(folder, jobs, {}, workers, display, stop, fresh=False)


def _run(
    folder: Path,
    jobs: Sequence[Job],
    given: Mapping[str, Any],
    workers: int,
    display: Display,
    stop: Callable[[], bool],
    *,
    fresh: bool,
) -> Comparison:
    here_only = workers > 0 and only_here(jobs, given)
    if here_only:
        refuse_fork(jobs[0].config)
    with display:
        if fresh:  # bad input shows here, before any run starts
            check(jobs[0].config, given, display)
            lay_out(folder, jobs, {name: type(value).__name__ for name, value in given.items()})
        supply = Listed([job for job in jobs if not RunFolder(job.folder).result_file.exists()])
        if workers == 0:
            train_here(supply, given, display, stop)
        else:
            run_supply(
                supply, workers=workers, display=display, stop=stop, given=dict(given) if here_only else None
            )
    results = [result for job in jobs if (result := RunFolder(job.folder).result()) is not None]
    return Comparison(folder, results, supply.failures, stop())


def check(config: Config, given: Mapping[str, Any], display: Display) -> None:
    """Build one run and drop it, so that what is wrong with all of them is said at once."""
    check_observers(config.observer_names)
    prepare(config, Given(**given), progress=display.download)


def only_here(jobs: Sequence[Job], given: Mapping[str, Any]) -> bool:
    """Say whether jobs need something that another process cannot find by its name."""
    if given:
        return True
    named: list[tuple[Registry[Any], str]] = []
    for config in (job.config for job in jobs):
        named += [(METHODS, config.method), (MODELS, config.model), (SOURCES, config.dataset)]
        named += [(OBSERVERS, name) for name in config.observer_names]
    return any(name in registry and not findable(registry[name]) for registry, name in named)


def findable(entry: Any) -> bool:
    """Say whether every process finds what a registry has: it is ours, or a plugin's."""
    module = getattr(getattr(entry, "build", entry), "__module__", None) or "gapsl"
    announced = [e for g in GROUPS for e in entry_points(group=f"gapsl.{g}")]
    packages = {"gapsl", *(e.module.partition(".")[0] for e in announced), *named()}
    return module.startswith("gapsl_plugin_") or bool(packages & {module, module.partition(".")[0]})


def refuse_fork(config: Config) -> None:
    """Refuse to hand objects to other processes where a fork would not survive."""
    if sys.platform == "linux" and config.device == "cpu" and config.threads == 1:
        return
    raise InputError(
        "objects of your own reach other processes only by a fork, which is safe on Linux with device = cpu "
        "and threads = 1; take workers=0, which trains in this process"
    )


def train_here(supply: Listed, given: Mapping[str, Any], display: Display, stop: Callable[[], bool]) -> None:
    """Train one job after another in this process."""
    while not stop() and (job := supply.take()) is not None:
        try:
            result = resume(job.folder, observers=[RunProgress(display, job.name)], stop=stop, **given)
            supply.ended(job, 0 if result is not None else STOPPED, None)
        except GapslError as error:
            supply.ended(job, error.exit_code, str(error))


class Listed:
    """A supply of jobs that are all known from the start."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._waiting = deque(jobs)
        self.failures: dict[str, Failure] = {}

    @property
    def left(self) -> bool:
        """Whether some have not been taken."""
        return bool(self._waiting)

    def take(self) -> Job | None:
        """Return the next in the order given."""
        return self._waiting.popleft() if self._waiting else None

    def ended(self, job: Job, code: int, message: str | None) -> None:
        """Keep what failed."""
        if code not in (0, STOPPED):
            said = message or f"ended with code {code}; see {job.folder / LOG}"
            self.failures[job.name] = Failure(code, said)


def entries(methods: Sequence[str | type[Strategy]]) -> dict[str, dict[str, Any]]:
    """Return the settings of each method, or of each preset that names one, by what it is called."""
    found: dict[str, dict[str, Any]] = {}
    named = {name: values for name in presets() if "method" in (values := preset_values(name))}
    for entry in methods:
        name = entry if isinstance(entry, str) else name_of(entry)
        if name in named:
            found[name] = {**named[name], "label": name}
        elif name in METHODS:
            method = METHODS.canonical(name)
            found[method] = {"method": method}
        else:
            raise InputError(f"unknown method {name!r}; {nearest(name, [*METHODS, *named])}")
    return found


def kept_settings(base: Config, chosen: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say which settings a preset keeps as it has them, against what was asked for all runs."""
    asked = flat(base.given())
    lines = []
    for name, own in chosen.items():
        kept = [f"{key}={value}" for key, value in flat(own).items() if asked.get(key, value) != value]
        if kept:
            lines.append(f"{name} keeps its own settings: {', '.join(kept)}")
    return lines


def default_workers(configs: Iterable[Config]) -> int:
    """Return how many runs to train at a time: one per core, but a single one on a GPU, which they share.

    Runs of several processes take as many cores each.
    """
    chosen, cores = list(configs), os.cpu_count() or 1
    if any(config.device != "cpu" for config in chosen):
        return 1
    most = max((cores if c.processes == "auto" else c.processes for c in chosen), default=1)
    return max(1, cores // most)


def name_of(strategy: type[Strategy]) -> str:
    """Return the name a method is registered under; a new one is registered under its class's."""
    for name, known in METHODS.items():
        if known is strategy:
            return name
    name = strategy.__name__.lower()
    register_method(name, strategy)
    return name
