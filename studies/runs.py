"""What a run of the study is, and the catalogue of all of them: each differs from another in one thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Loss = Literal["plain", "prior", "balanced"]


@dataclass(frozen=True)
class Selection:
    """Exclusion as in GAPSL, without its regulariser, and ways to change it."""

    eta: float = 0.5  # the threshold is mean - eta * std of the angles to the leader
    excluded_train: bool = False  # devices left out of the server's step still train their own models
    classifier: bool = True  # whether angles are taken with the classifier's part of the gradients
    usual: float | None = None  # decay of a mean per device; angles are judged relative to it
    cap: int | None = None  # a device is left out at most so many rounds in a row
    leader_decay: float = 0.0  # the leader is found in running means of the gradients


@dataclass(frozen=True)
class Weighting:
    """Devices count by max(cos of the angle to the leader, 0) instead of being in or out."""

    on_server: bool  # in the server's mean as well as in what is returned


@dataclass(frozen=True)
class Ground:
    """Probe alignment: probes beside the batch, and a pull towards what the leaders make of them."""

    probes: int = 2
    pull: float = 0.03  # times 1 / device_lr: a step covers the same share of the way at every rate
    leaders: float = 1.0  # the share of the devices that lead
    at_random: bool = False  # they are drawn, not those that agree most
    steps: int = 0  # of solving for the way to the leader, instead of the pull


@dataclass(frozen=True)
class Run:
    """One line of the study. Shares are of the run's rounds; None and the defaults leave a thing out."""

    name: str
    group: str
    why: str
    length: int = 1  # times the rounds asked for
    device_lr: float = 1e-3
    server_loss: Loss = "plain"
    device_loss: Loss | None = None  # None: the server's
    trained: tuple[float, float] = (0.0, 1.0)  # the shares between which client-side models train
    average_every: int | None = None  # rounds between two averagings of the client-side models
    average_until: float = 1.0  # the share after which they are no longer averaged
    server_copies: bool = False  # a server-side model per device, averaged with theirs: SFL v1
    prox: float | None = None  # the pull of a client-side model's weights towards the common start
    ema: float | None = None  # decay of the time-averaged client-side models that are evaluated
    class_means: float | None = None  # the pull of pooled activations towards the mean of their class
    judging: Selection | Weighting | None = None
    ground: Ground | None = None
    cut_norm: bool = False  # every sample's activations have mean 0 and variance 1 at the cut
    pretrained: int = 0  # rounds in which the common start has learned from drawn pictures
    tau: float = 1.0  # how much of the label frequencies the prior-calibrated loss takes out

    def settings(self) -> dict[str, Any]:
        """Return what makes the run what it is."""
        described = {"name", "group", "why", "length"}
        return {key: value for key, value in asdict(self).items() if key not in described}


@dataclass(frozen=True)
class Group:
    """A table of the page."""

    title: str
    caption: str
    base: str  # the run that the others of the group are compared with
    beside: tuple[str, ...] = ()  # runs of other groups that are shown with its own


GROUPS = {
    "baselines": Group(
        "Baselines",
        "What is there without any remedy: client-side models of their own at several learning rates, some "
        "that never move, and some that are averaged, which private ones are not allowed to be.",
        "frozen",
    ),
    "calibration": Group(
        "Prior calibration",
        "Both sides descend a loss on logits shifted by the log of the device's label frequencies.",
        "psl-1e-3",
        ("psl-1e-3", "frozen"),
    ),
    "drift": Group(
        "Drift control",
        "Each row adds one way of keeping the client-side models together to `psl-prior-3e-4`.",
        "psl-prior-3e-4",
        ("psl-prior-3e-4", "frozen-prior"),
    ),
    "selection": Group(
        "Selection",
        "Each row adds exclusion of devices by the angles of their gradients to `psl-prior-3e-4`: first as "
        "GAPSL has it, without its regulariser, then with one thing changed.",
        "psl-prior-3e-4",
        ("psl-prior-3e-4", "frozen-prior"),
    ),
    "ground": Group(
        "Probe alignment",
        "The server's loss is class-balanced, the devices descend the prior-calibrated one and solve for the "
        "way to what all make of two common probes. Rows that begin with `meet` change one thing about it; "
        "`pull` has eight probes and its own learning rate, 3e-4, and `frozen` models have no loss of their "
        "own. Runs named `-twice` train twice as long.",
        "meet",
        ("frozen-balanced", "sync-balanced-1e-3"),
    ),
    "on-top": Group(
        "Selection with probe alignment",
        "Models that agree, and GAPSL's selection on the server's gradients on top: each row adds one thing "
        "to `meet`. A device that is left out still goes to its leader on the probes.",
        "meet",
        ("meet",),
    ),
}


def variants(base: Run, group: str) -> Callable[..., Run]:
    """Return a function that makes runs of this group from a base and what is changed about it."""

    def make(name: str, why: str, **changes: Any) -> Run:
        return replace(base, name=name, group=group, why=why, **changes)

    return make


PLAIN = Run("psl-1e-3", "baselines", "Client-side models of their own, slower.")
PRIOR = replace(PLAIN, name="psl-prior-3e-4", group="calibration", why="At a slower rate: the base of drift "
                "control and selection.", server_loss="prior", device_lr=3e-4)  # fmt: skip
FROZEN = (0.0, 0.0)
MEETING = Ground(steps=4)
MEET = Run("meet", "ground", "The base: everybody leads, four steps of solving.", server_loss="balanced",
           device_loss="prior", ground=MEETING)  # fmt: skip
PULL = replace(MEET, device_lr=3e-4, ground=Ground(probes=8))

_baseline = variants(PLAIN, "baselines")
_calibrated = variants(PRIOR, "calibration")
_held = variants(PRIOR, "drift")
_selected = variants(PRIOR, "selection")
_grounded = variants(MEET, "ground")
_on_top = variants(MEET, "on-top")

CATALOGUE = (
    _baseline("psl-1e-2", "Client-side models of their own, at a usual learning rate.", device_lr=1e-2),
    PLAIN,
    _baseline("psl-1e-4", "Does drift go away with the learning rate?", device_lr=1e-4),
    _baseline("psl-1e-5", "Client-side models that hardly move at all.", device_lr=1e-5),
    _baseline("frozen", "What training the client-side models has to beat.", trained=FROZEN),
    _baseline("frozen-balanced", "Models that never move, and the server sees all classes equally.",
              trained=FROZEN, server_loss="balanced"),
    _baseline("sfl-1e-2", "SFL v1: a server copy per device, both sides averaged.", device_lr=1e-2,
              average_every=10, server_copies=True),
    _baseline("sfl-1e-3", "The same, slower.", average_every=10, server_copies=True),
    _baseline("sync-1e-3", "The bound: client-side models averaged every round, so that there is no drift.",
              average_every=1),
    _baseline("sync-balanced-1e-3", "The bound with a class-balanced loss.", average_every=1,
              server_loss="balanced"),
    #
    _calibrated("psl-prior-1e-3", "A loss that does not teach label frequencies.", device_lr=1e-3),
    PRIOR,
    _calibrated("psl-prior-3e-5", "Client-side models that hardly move.", device_lr=3e-5),
    _calibrated("frozen-prior", "What calibration does to the server alone.", trained=FROZEN),
    #
    _held("prox-0.1", "A pull towards the common start.", prox=0.1),
    _held("prox-1", "A pull that should dominate.", prox=1.0),
    _held("freeze-late", "The models train in the first fifth of the rounds only.", trained=(0.0, 0.2)),
    _held("freeze-early", "They stand still in the first fifth, while the server finds its way.",
          trained=(0.2, 1.0)),
    _held("ema-0.99", "Time-averaged client-side models are evaluated: is drift mostly noise?", ema=0.99),
    _held("cosine-replies", "Devices far from the leader learn less.", judging=Weighting(on_server=False)),
    _held("cosine-both", "And count less in the server's mean.", judging=Weighting(on_server=True)),
    _held("class-means-1", "Features are pulled to class means common to all devices.", class_means=1.0),
    _held("class-means-10", "The same, more strongly.", class_means=10.0),
    _held("average-early", "Models averaged in the first fifth of the rounds only: is one good start enough?",
          average_every=10, average_until=0.2),
    _held("cut-norm", "Normalised at the cut: is a mark a matter of scale?", cut_norm=True),
    _held("pretrained", "A common start that can tell how drawn pictures are turned.", pretrained=500),
    #
    _selected("exclusion", "As GAPSL has it: those left out skip the round.", judging=Selection()),
    _selected("exclusion-train", "Those left out still train their own client-side models.",
              judging=Selection(excluded_train=True)),
    _selected("exclusion-wide", "A wide threshold: few are left out.", judging=Selection(eta=-1.0)),
    _selected("exclusion-body", "Angles without the classifier, where labels show most.",
              judging=Selection(classifier=False)),
    _selected("exclusion-usual", "Angles relative to what is usual for a device.",
              judging=Selection(usual=0.9)),
    _selected("exclusion-cap-3", "Nobody is left out more than three rounds in a row.",
              judging=Selection(cap=3)),
    _selected("exclusion-leader-0.9", "A leader found in running means, which are less noisy.",
              judging=Selection(leader_decay=0.9)),
    #
    MEET,
    _grounded("meet-1e-2", "Faster client-side models.", device_lr=1e-2),
    _grounded("meet-1e-4", "Slower client-side models.", device_lr=1e-4),
    _grounded("meet-1-step", "One step.", ground=replace(MEETING, steps=1)),
    _grounded("meet-8-steps", "Eight steps.", ground=replace(MEETING, steps=8)),
    _grounded("meet-8-probes", "Eight probes.", ground=replace(MEETING, probes=8)),
    _grounded("meet-half", "The half of the devices that agrees most leads.",
              ground=replace(MEETING, leaders=0.5)),
    _grounded("meet-random", "Half of them, drawn anew every round, leads: is it who leads that matters?",
              ground=replace(MEETING, leaders=0.5, at_random=True)),
    replace(PULL, name="pull", why="A pull in the gradient instead of solving, with eight probes."),
    replace(PULL, name="pull-strong", why="A pull three times as strong.", ground=Ground(probes=8, pull=0.1)),
    _grounded("apart", "Neither; the probes are in no loss, so without them, too.", ground=None),
    _grounded("apart-1e-4", "The same with slower models, which drift less.", ground=None, device_lr=1e-4),
    _grounded("together", "The bound: client-side models averaged every round, no probes.", ground=None,
              average_every=1),
    _grounded("meet-no-prior", "Devices descend the server's loss.", device_loss=None),
    _grounded("meet-tau-0.7", "Devices' label frequencies taken out in part.", tau=0.7),
    _grounded("meet-tau-1.3", "More than taken out.", tau=1.3),
    _grounded("meet-no-balance", "The server's loss is plain.", server_loss="plain"),
    _grounded("meet-cut-norm", "Normalised at the cut.", cut_norm=True),
    _grounded("together-cut-norm", "The bound, normalised at the cut: is it the net that gets better?",
              ground=None, average_every=1, cut_norm=True),
    _grounded("frozen-cut-norm", "Client-side models that never move, normalised at the cut.", trained=FROZEN,
              device_loss=None, ground=None, cut_norm=True),
    _grounded("meet-pretrained", "From a start that can tell how drawn pictures are turned.", pretrained=500),
    _grounded("frozen-pretrained", "Models that never move from that start.", pretrained=500, trained=FROZEN,
              device_loss=None, ground=None),
    _grounded("meet-twice", "Twice the rounds.", length=2),
    _grounded("together-twice", "The bound, twice the rounds.", ground=None, average_every=1, length=2),
    _grounded("frozen-balanced-twice", "Models that never move, twice the rounds.", trained=FROZEN, length=2,
              device_loss=None, ground=None),
    #
    _on_top("meet-exclusion", "As GAPSL has it.", judging=Selection()),
    _on_top("meet-exclusion-wide", "A wide threshold: few are left out.", judging=Selection(eta=-1.0)),
    _on_top("meet-exclusion-body", "Angles without the classifier.", judging=Selection(classifier=False)),
    _on_top("meet-cosine", "Everybody counts, by the cosine to the leader.",
            judging=Weighting(on_server=True)),
)  # fmt: skip
