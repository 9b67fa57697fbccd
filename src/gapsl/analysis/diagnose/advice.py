"""What can be tried: every piece of advice in one place, each with the exact setting.

A function returns nothing where its advice is followed already or does not apply to the run's method, which
says so by its traits and by the settings it has.
"""

from __future__ import annotations

from gapsl.analysis.diagnose.finding import Advice
from gapsl.analysis.diagnose.run import Run
from gapsl.analysis.labels import MILD, excess_distance
from gapsl.methods.registry import METHODS
from gapsl.run.config import WITHOUT_PROBES, flat, preset

# What of the preset `recommended` works against label skew, whichever method it is used with.
CORRECTIONS = {"calibration", "calibration_for", "balance", "probes", "probe_steps", "probe_leaders"}
STEP = 10  # learning rates are searched by orders of magnitude
LOWEST_ETA = -1.0  # below it next to nobody is left out, and exclusion=none says so more plainly
ETA_STEP = 0.5
CLIP = 1.0  # the usual first guess; a gradient of a model that learns well is about this long
FEWER_EVALUATIONS = 5
RATES = {"server_optimizer.lr": "on the server", "device_optimizer.lr": "on the devices"}
CLIPS = {"server_optimizer.clip": "on the server", "device_optimizer.clip": "on the devices"}


def recommended(run: Run) -> tuple[Advice, ...]:
    """Set what the preset of that name sets and the run does not, where labels may differ."""
    if run.setting("custom.loss") is not None or run.pooled or run.setting("labels") == "device":
        return ()
    if run.labels is not None and excess_distance(run.labels.counts) < MILD:
        return ()
    wanted = {name: value for name, value in flat(preset("recommended")).items() if serves(run, name)}
    missing = {name: value for name, value in wanted.items() if run.setting(name) != value}
    if missing.keys().isdisjoint(CORRECTIONS):  # the rest alone, a rate say, is a matter of search
        return ()
    called = "preset recommended" if run.own_models else "losses of preset recommended"
    settings = tuple(f"{name}={value}" for name, value in missing.items())
    return (Advice(called, "what we recommend where labels differ", settings),)


def serves(run: Run, name: str) -> bool:
    """Say whether a setting of the preset `recommended` is of use to a run, and not there in another way."""
    if name in WITHOUT_PROBES:  # they are pictures, and no part of a batch's statistics
        unknown = bool(run.setting("custom.dataset") or run.setting("custom.model"))
        chosen = run.setting(name) not in (None, WITHOUT_PROBES[name])
        return run.own_models and not (chosen or run.setting("norm") == "batch" or unknown)
    if name == "device_optimizer.lr":  # which is one for SGD
        return run.own_models and run.setting("device_optimizer.name") != "adamw"
    if name.startswith("calibration"):  # for models that learn; where it is on, it is for both sides
        return run.trains_devices or run.setting("calibration") != "none"
    return run.own_models or name == "balance"


def other_methods(run: Run) -> tuple[Advice, ...]:
    """Compare with client-side models that cannot drift apart."""
    if run.setting("labels") == "device":  # which other methods do not do
        return ()
    still = next(name for name, method in METHODS.items() if not method.trains_devices)
    shared = next(
        name for name, method in METHODS.items() if method.moves_client_models and not method.in_turn
    )
    found = (
        Advice(f"method={still}", "to compare: client-side models that do not learn"),
        Advice(f"method={shared}", "to compare: client-side models that are averaged"),
    )
    return tuple(advice for advice in found if advice.name != f"method={run.settings['method']}")


def keep_more(run: Run) -> tuple[Advice, ...]:
    """Leave fewer devices out."""
    if run.method is None or run.own("exclusion") != "adaptive":
        return ()
    section, eta = run.method.section, run.own("eta")
    everybody = Advice(f"{section}.exclusion=none", "keeps everybody; they are still aligned")
    if run.has("threshold") or eta is None or eta <= LOWEST_ETA:
        return (everybody,)
    lower = max(LOWEST_ETA, eta - ETA_STEP)
    return (Advice(f"{section}.eta={lower:g}", "leaves fewer devices out"), everybody)


def rates(run: Run, factor: float, *names: str) -> tuple[Advice, ...]:
    """Change the learning rates, of both sides or of those named."""
    how = "ten times larger steps" if factor > 1 else "ten times smaller steps"
    found = []
    for name, side in RATES.items():
        lr = run.setting(name)
        learns = name != "device_optimizer.lr" or run.trains_devices
        if lr is not None and learns and (not names or name in names):
            found.append(Advice(f"{name}={lr * factor:g}", f"{how} {side}"))
    return tuple(found)


def slower(run: Run) -> tuple[Advice, ...]:
    """Take smaller steps on both sides, and shorten long gradients."""
    return (*rates(run, 1 / STEP), *clip(run))


def slower_devices(run: Run) -> tuple[Advice, ...]:
    """Let the client-side models move less."""
    return rates(run, 1 / STEP, "device_optimizer.lr")


def faster(run: Run) -> tuple[Advice, ...]:
    """Take larger steps on both sides."""
    return rates(run, STEP)


def clip(run: Run) -> tuple[Advice, ...]:
    """Limit the length of gradients, on both sides."""
    return tuple(
        Advice(f"{name}={CLIP:g}", f"shortens long gradients {side}")
        for name, side in CLIPS.items()
        if run.setting(name) is None
    )


def larger_batches(run: Run) -> tuple[Advice, ...]:
    """Average more of the noise out of each gradient."""
    size = run.setting("batch_size")
    return () if size is None else (Advice(f"batch_size={2 * size}", "less noise in each gradient"),)


def longer(run: Run) -> tuple[Advice, ...]:
    """Train for more rounds."""
    return (Advice(f"rounds={2 * run.total_rounds}", "trains twice as long"),)


def evaluate_less(run: Run) -> tuple[Advice, ...]:
    """Evaluate less often."""
    if not run.evaluations:
        return ()
    every = FEWER_EVALUATIONS * max(1, len(run.records) // len(run.evaluations))
    return (Advice(f"evaluate_every={every}", "spends a fifth of the time on evaluations"),)


def cheaper_penalty(run: Run) -> tuple[Advice, ...]:
    """Differentiate the regulariser with one extra pass instead of several."""
    if run.method is None or run.own("penalty") != "exact" or not run.own("lambda"):
        return ()
    name = f"{run.method.section}.penalty=finite"
    return (Advice(name, "one extra pass a device instead of two or three"),)


def average_less(run: Run) -> tuple[Advice, ...]:
    """Average client-side models less often."""
    averagings = sum(record.averaged for record in run.records)
    if run.method is None or not averagings or not run.has("interval"):
        return ()
    every = 2 * max(1, len(run.records) // averagings)
    return (Advice(f"{run.method.section}.interval={every}", "averages half as often"),)
