"""What can be tried: every piece of advice in one place, each with the exact setting.

A function returns nothing where its advice is followed already or does not apply to the run's method.
"""

from __future__ import annotations

from gapsl.analysis.diagnosis.evidence import Evidence
from gapsl.analysis.diagnosis.finding import Advice
from gapsl.analysis.diagnosis.label_distance import MILD, excess_distance
from gapsl.run.config import WITHOUT_PROBES, flat, preset

# What of the preset `recommended` works against label skew, whichever method it is used with.
CORRECTIONS = {"calibration", "calibration_for", "balance", "probes", "probe_steps", "probe_leaders"}
SLOWER = 10  # learning rates are searched by orders of magnitude
LOWEST_ETA = -1.0  # below it next to nobody is left out, and exclusion=none says so more plainly
ETA_STEP = 0.5
CLIP = 1.0  # the usual first guess; a gradient of a model that learns well is about this long
LARGER = 2
MORE_ROUNDS = 2
FEWER_EVALUATIONS = 5
FEWER_AVERAGINGS = 2


def recommended(run: Evidence) -> tuple[Advice, ...]:
    """Set what the preset of that name sets and the run does not, where labels may differ."""
    if run.setting("custom.loss") is not None or run.pooled or labels_stay(run):
        return ()
    if run.labels is not None and excess_distance(run.labels.counts) < MILD:
        return ()
    wanted = {name: value for name, value in flat(preset("recommended")).items() if serves(run, name)}
    missing = {name: value for name, value in wanted.items() if run.setting(name) != value}
    if missing.keys().isdisjoint(CORRECTIONS):  # the rest alone, a rate say, is a matter of search
        return ()
    called = "preset recommended" if run.own_halves else "losses of preset recommended"
    settings = tuple(f"{name}={value}" for name, value in missing.items())
    return (Advice(called, "what we recommend where labels differ", settings),)


def labels_stay(run: Evidence) -> bool:
    """Say whether labels stay on the devices, so that the server can correct no loss."""
    return bool(run.setting("labels") == "device")


def serves(run: Evidence, name: str) -> bool:
    """Say whether a setting of the preset `recommended` is of use to a run, and not there in another way."""
    if name in WITHOUT_PROBES:  # they are pictures, and no part of a batch's statistics
        unknown = bool(run.setting("custom.dataset") or run.setting("custom.model"))
        chosen = run.setting(name) not in (None, WITHOUT_PROBES[name])
        return run.own_halves and not (chosen or run.setting("norm") == "batch" or unknown)
    if name == "device_optimizer.lr":  # which is one for SGD
        return run.own_halves and run.setting("device_optimizer.name") != "adamw"
    if name.startswith("calibration"):  # frozen halves have no use for it; where it is on, it is for both
        return run.method != "frozen" or run.setting("calibration") != "none"
    return run.own_halves or name == "balance"


def slower_halves(run: Evidence) -> tuple[Advice, ...]:
    """Let the devices' halves move less."""
    lr = run.setting("device_optimizer.lr")
    if run.method == "frozen" or lr is None:
        return ()
    return (Advice(f"device_optimizer.lr={lr / SLOWER:g}", "moves the devices' halves ten times slower"),)


def other_methods(run: Evidence) -> tuple[Advice, ...]:
    """Compare with halves that cannot drift apart."""
    if labels_stay(run):  # which other methods do not do
        return ()
    frozen = Advice("method=frozen", "to compare: halves that stay at their common start")
    sfl = Advice("method=sfl", "to compare: halves that are averaged (more traffic)")
    return tuple(advice for advice in (frozen, sfl) if advice.name != f"method={run.method}")


def best_lead(run: Evidence) -> tuple[Advice, ...]:
    """Let the devices lead that agree most, so that one that may be broken does not."""
    if run.setting("probe_leaders") != 1:
        return ()
    return (Advice("probe_leaders=0.5", "only those lead on the probes that agree most"),)


def keep_more(run: Evidence) -> tuple[Advice, ...]:
    """Leave fewer devices out."""
    eta = run.setting("gapsl.eta")
    if run.setting("gapsl.exclusion") != "adaptive" or eta is None:
        return ()
    everybody = Advice("gapsl.exclusion=none", "keeps everybody; they are still aligned")
    if run.method == "gapsl/fixed-threshold" or eta <= LOWEST_ETA:
        return (everybody,)
    lower = max(LOWEST_ETA, eta - ETA_STEP)
    return (Advice(f"gapsl.eta={lower:g}", "leaves fewer devices out"), everybody)


def slower(run: Evidence) -> tuple[Advice, ...]:
    """Take smaller steps on both sides."""
    return (*_server_rate(run, 1 / SLOWER, "ten times smaller steps on the server"), *slower_halves(run))


def slower_server(run: Evidence) -> tuple[Advice, ...]:
    """End with small steps on the server."""
    if run.setting("server_optimizer.schedule") == "constant":
        return (Advice("server_optimizer.schedule=cosine", "ends training with small steps"),)
    return _server_rate(run, 1 / SLOWER, "ten times smaller steps on the server")


def faster(run: Evidence) -> tuple[Advice, ...]:
    """Take larger steps on both sides."""
    server = _server_rate(run, SLOWER, "ten times larger steps on the server")
    lr = run.setting("device_optimizer.lr")
    if run.method == "frozen" or lr is None:
        return server
    return (*server, Advice(f"device_optimizer.lr={lr * SLOWER:g}", "ten times larger steps on the devices"))


def _server_rate(run: Evidence, factor: float, effect: str) -> tuple[Advice, ...]:
    lr = run.setting("server_optimizer.lr")
    return () if lr is None else (Advice(f"server_optimizer.lr={lr * factor:g}", effect),)


def clip(run: Evidence) -> tuple[Advice, ...]:
    """Limit the length of gradients, on both sides."""
    return tuple(
        Advice(f"{side}.clip={CLIP:g}", effect)
        for side, effect in (
            ("server_optimizer", "shortens long gradients on the server"),
            ("device_optimizer", "shortens long gradients on the devices"),
        )
        if run.setting(f"{side}.clip") is None
    )


def larger_batches(run: Evidence) -> tuple[Advice, ...]:
    """Average more of the noise out of each gradient."""
    size = run.setting("batch_size")
    return () if size is None else (Advice(f"batch_size={LARGER * size}", "less noise in each gradient"),)


def longer(run: Evidence) -> tuple[Advice, ...]:
    """Train for more rounds."""
    return (Advice(f"rounds={MORE_ROUNDS * run.total_rounds}", "trains twice as long"),)


def evaluate_less(run: Evidence, every: int) -> tuple[Advice, ...]:
    """Evaluate less often than every so many rounds."""
    return (
        Advice(f"evaluate_every={FEWER_EVALUATIONS * every}", "spends a fifth of the time on evaluations"),
    )


def cheaper_server(run: Evidence) -> tuple[Advice, ...]:
    """Differentiate the regulariser with one extra pass instead of several."""
    exact = run.setting("gapsl.penalty") == "exact" and run.setting("gapsl.lambda")
    if not (exact and run.method.startswith("gapsl")):
        return ()
    return (Advice("gapsl.penalty=finite", "one extra pass a device instead of two or three"),)


def average_less(run: Evidence, every: int) -> tuple[Advice, ...]:
    """Average less often than every so many rounds."""
    if not run.method.startswith("sfl"):
        return ()
    return (Advice(f"sfl.interval={FEWER_AVERAGINGS * every}", "averages half as often"),)
