"""What can be tried: every piece of advice in one place, each with the exact setting.

A function returns nothing where its advice is followed already or does not apply to the run's method, which
says so by its traits and by the settings it has.
"""

from __future__ import annotations

from gapsl.analysis.diagnose.finding import Advice
from gapsl.analysis.diagnose.run import Run
from gapsl.analysis.labels import MILD, excess_distance
from gapsl.methods.registry import METHODS
from gapsl.run.config import Config, flat, preset

# What of the preset `recommended` works against label skew, and how it is where it is not used.
OFF = {
    name: Config.model_fields[name].default
    for name in ("calibration", "calibration_for", "balance", "probes", "probe_steps")
}
STEP = 10  # learning rates are searched by orders of magnitude
LOWEST_ETA = -1.0  # below it next to nobody is left out, and exclusion=none says so more plainly
ETA_STEP = 0.5
CLIP = 1.0  # the usual first guess; a gradient of a model that learns well is about this long
SIDES = {"server_optimizer": "on the server", "device_optimizer": "on the devices"}


def recommended(run: Run) -> tuple[Advice, ...]:
    """Set what the preset of that name sets and the run does not, where labels may differ."""
    custom = run.setting("custom") or {}
    if not run.own_models or "loss" in custom or run.setting("labels") == "device":
        return ()
    if run.labels is not None and excess_distance(run.labels.counts) < MILD:
        return ()
    left_out: set[str] = set()
    if run.setting("norm") == "batch" or {"dataset", "model"} & custom.keys():
        left_out |= {name for name in OFF if name.startswith("probe")}  # no part of a batch's statistics
    if run.setting("device_optimizer.name") == "adamw":
        left_out.add("device_optimizer.lr")  # which is one for SGD
    wanted = {n: v for n, v in flat(preset("recommended")).items() if n not in left_out}
    if not any(run.setting(name) == off != wanted.get(name, off) for name, off in OFF.items()):
        return ()  # the rest alone, a rate say, is a matter of search
    missing = (f"{n}={v}" for n, v in wanted.items() if run.setting(n) == OFF.get(n, run.setting(n)) != v)
    return (Advice("preset recommended", "what we recommend where labels differ", tuple(missing)),)


def other_methods(run: Run) -> tuple[Advice, ...]:
    """Compare with client-side models that cannot drift apart."""
    if run.setting("labels") == "device":  # which other methods do not do
        return ()
    still = next(name for name, method in METHODS.items() if not method.trains_devices)
    shared = next(name for name, one in METHODS.items() if one.moves_client_models and not one.in_turn)
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


def robust(run: Run) -> tuple[Advice, ...]:
    """Let the server take a step that a few devices cannot steer."""
    if run.setting("robust") != "none" or run.method is None or not run.method.one_step:
        return ()
    return (Advice("robust=clip", "a server step that a few bad devices cannot steer"),)


def rates(run: Run, factor: float, *sides: str) -> tuple[Advice, ...]:
    """Change the learning rates, of both sides or of those named."""
    how = "ten times larger steps" if factor > 1 else "ten times smaller steps"
    return tuple(
        Advice(f"{side}.lr={lr * factor:g}", f"{how} {SIDES[side]}")
        for side in sides or SIDES
        if (lr := run.setting(f"{side}.lr")) is not None
        and (run.trains_devices or side == "server_optimizer")
    )


def slower(run: Run) -> tuple[Advice, ...]:
    """Take smaller steps on both sides, and shorten long gradients."""
    return (*rates(run, 1 / STEP), *clip(run))


def slower_devices(run: Run) -> tuple[Advice, ...]:
    """Let the client-side models move less."""
    return rates(run, 1 / STEP, "device_optimizer") if run.trains_devices else ()


def clip(run: Run) -> tuple[Advice, ...]:
    """Limit the length of gradients, on both sides."""
    return tuple(
        Advice(f"{side}.clip={CLIP:g}", f"shortens long gradients {where}")
        for side, where in SIDES.items()
        if run.setting(f"{side}.clip") is None
    )


def longer(run: Run) -> tuple[Advice, ...]:
    """Train for more rounds."""
    return (Advice(f"rounds={2 * run.total_rounds}", "trains twice as long"),)
