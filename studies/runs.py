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
    excluded_train: bool = False  # devices left out of the server's step still train their own halves
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
    """Common ground: probes beside the batch, and a pull towards what the leaders make of them."""

    probes: int = 8
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
    trained: tuple[float, float] = (0.0, 1.0)  # the shares between which the devices' halves train
    average_every: int | None = None  # rounds between two averagings of the halves
    average_until: float = 1.0  # the share after which they are no longer averaged
    server_copies: bool = False  # a server half per device, averaged with theirs: SFL v1
    prox: float | None = None  # the pull of a half's weights towards the common start
    ema: float | None = None  # decay of the time-averaged halves that are evaluated
    class_means: float | None = None  # the pull of pooled activations towards the mean of their class
    judging: Selection | Weighting | None = None
    ground: Ground | None = None
    cut_norm: bool = False  # every sample's activations have mean 0 and variance 1 at the cut
    pretrained: int = 0  # rounds in which the common start has learned from drawn pictures
    tau: float = 1.0  # how much of the label frequencies the prior-calibrated loss takes out

    def settings(self) -> dict[str, Any]:
        """Return what makes the run what it is; what was added later counts where it is used."""
        described = {"name", "group", "why", "length"}
        found = {key: value for key, value in asdict(self).items() if key not in described}
        if found["ground"] is not None:
            found["ground"] = used(found["ground"], steps=0)
        return used(found, cut_norm=False, pretrained=0, tau=1.0)


def used(settings: dict[str, Any], **later: Any) -> dict[str, Any]:
    """Return settings without those added later that are as if they were not there."""
    return {key: value for key, value in settings.items() if key not in later or value != later[key]}


@dataclass(frozen=True)
class Group:
    """A table of the page."""

    title: str
    caption: str
    beside: tuple[str, ...] = ()  # runs of other groups that its own are to be compared with


GROUPS = {
    "baselines": Group(
        "Baselines",
        "What is there without any remedy: halves of their own at several learning rates, halves that never "
        "move, and halves that are averaged, which private halves are not allowed to be.",
    ),
    "calibration": Group(
        "Prior calibration",
        "Both halves descend a loss on logits shifted by the log of the device's label frequencies.",
        ("psl-1e-3", "frozen"),
    ),
    "drift": Group(
        "Drift control",
        "Each row adds one way of keeping the halves together to `psl-prior-3e-4`.",
        ("psl-prior-3e-4", "frozen-prior"),
    ),
    "selection": Group(
        "Selection",
        "Each row adds exclusion of devices by the angles of their gradients to `psl-prior-3e-4`: first as "
        "GAPSL has it, without its regulariser, then with one thing changed.",
        ("psl-prior-3e-4", "frozen-prior"),
    ),
    "ground": Group(
        "Common ground",
        "The server's loss is class-balanced, the devices descend the prior-calibrated one and are pulled "
        "towards what their leaders make of common probes; each row changes one thing about `ground-3e-4`. "
        "`meet`: they solve for the way there instead. The last ones train twice as long.",
        ("frozen-balanced", "sync-balanced-1e-3"),
    ),
}


def variants(base: Run, group: str) -> Callable[..., Run]:
    """Return a function that makes runs of this group from a base and what is changed about it."""

    def make(name: str, why: str, **changes: Any) -> Run:
        return replace(base, name=name, group=group, why=why, **changes)

    return make


PLAIN = Run("psl-1e-3", "baselines", "Halves of their own, slower.")
PRIOR = replace(PLAIN, name="psl-prior-3e-4", group="calibration", why="At a slower rate: the base of drift "
                "control and selection.", server_loss="prior", device_lr=3e-4)  # fmt: skip
GROUND = Run("ground-3e-4", "ground", "The base: everybody leads.", device_lr=3e-4, server_loss="balanced",
             device_loss="prior", ground=Ground())  # fmt: skip
FROZEN = (0.0, 0.0)
MEETING = Ground(steps=4)

_baseline = variants(PLAIN, "baselines")
_calibrated = variants(PRIOR, "calibration")
_held = variants(PRIOR, "drift")
_selected = variants(PRIOR, "selection")
_grounded = variants(GROUND, "ground")

CATALOGUE = (
    _baseline("psl-1e-2", "Halves of their own, at a usual learning rate.", device_lr=1e-2),
    PLAIN,
    _baseline("psl-1e-4", "Does drift go away with the learning rate?", device_lr=1e-4),
    _baseline("psl-1e-5", "Halves that hardly move at all.", device_lr=1e-5),
    _baseline("frozen", "What training the halves has to beat.", trained=FROZEN),
    _baseline("frozen-balanced", "The same, and the server sees all classes equally.", trained=FROZEN,
              server_loss="balanced"),
    _baseline("sfl-1e-2", "SFL v1: a server copy per device, both halves averaged.", device_lr=1e-2,
              average_every=10, server_copies=True),
    _baseline("sfl-1e-3", "The same, slower.", average_every=10, server_copies=True),
    _baseline("sync-1e-2", "The bound: halves averaged every round, so that there is no drift.",
              device_lr=1e-2, average_every=1),
    _baseline("sync-1e-3", "The same, slower.", average_every=1),
    _baseline("sync-balanced-1e-3", "The bound with a class-balanced loss.", average_every=1,
              server_loss="balanced"),
    #
    _calibrated("psl-prior-1e-3", "A loss that does not teach label frequencies.", device_lr=1e-3),
    PRIOR,
    _calibrated("psl-prior-3e-5", "Halves that hardly move.", device_lr=3e-5),
    _calibrated("frozen-prior", "What calibration does to the server alone.", trained=FROZEN),
    #
    _held("prox-0.01", "A weak pull towards the common start.", prox=0.01),
    _held("prox-0.1", "A stronger pull.", prox=0.1),
    _held("prox-1", "A pull that should dominate.", prox=1.0),
    _held("freeze-late", "The halves train in the first fifth of the rounds only.", trained=(0.0, 0.2)),
    _held("freeze-early", "They stand still in the first fifth, while the server finds its way.",
          trained=(0.2, 1.0)),
    _held("ema-0.99", "Time-averaged halves are evaluated: is drift mostly noise?", ema=0.99),
    _held("cosine-replies", "Devices far from the leader learn less.", judging=Weighting(on_server=False)),
    _held("cosine-both", "And count less in the server's mean.", judging=Weighting(on_server=True)),
    _held("class-means-1", "Features are pulled to class means common to all devices.", class_means=1.0),
    _held("class-means-10", "The same, more strongly.", class_means=10.0),
    _held("average-early", "Halves averaged in the first fifth of the rounds only: is one good start enough?",
          average_every=10, average_until=0.2),
    _held("cut-norm", "Normalised at the cut: is a mark a matter of scale?", cut_norm=True),
    _held("pretrained", "A common start that can tell how drawn pictures are turned.", pretrained=500),
    #
    _selected("exclusion", "As GAPSL has it: those left out skip the round.", judging=Selection()),
    _selected("exclusion-train", "Those left out still train their own halves.",
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
    _grounded("ground-1e-3", "Faster halves, a weaker pull.", device_lr=1e-3),
    GROUND,
    _grounded("ground-1e-4", "Slower halves, a stronger pull.", device_lr=1e-4),
    _grounded("ground-half", "The half of the devices that agrees most leads.", ground=Ground(leaders=0.5)),
    _grounded("ground-fifth", "A fifth of them leads.", ground=Ground(leaders=0.2)),
    _grounded("ground-random", "Half of them, drawn anew every round, leads: is it who leads that matters?",
              ground=Ground(leaders=0.5, at_random=True)),
    _grounded("ground-pull-0.1", "A pull three times as strong.", ground=Ground(pull=0.1)),
    _grounded("ground-pull-0.3", "Ten times as strong.", ground=Ground(pull=0.3)),
    _grounded("ground-no-pull", "Without the pull; the probes are in no loss, so without them, too.",
              ground=None),
    _grounded("ground-no-prior", "Devices descend the server's loss.", device_loss=None),
    _grounded("ground-tau-0.7", "Devices' label frequencies taken out in part.", tau=0.7),
    _grounded("ground-tau-1.3", "More than taken out.", tau=1.3),
    _grounded("ground-sync-1e-3", "The bound: halves averaged every round instead of pulled.", device_lr=1e-3,
              ground=None, average_every=1),
    _grounded("ground-no-balance", "The server's loss is plain.", server_loss="plain"),
    _grounded("meet-1e-3", "Devices solve for the way to the leader, by four steps.", device_lr=1e-3,
              ground=MEETING),
    _grounded("meet-1e-2", "Faster halves.", device_lr=1e-2, ground=MEETING),
    _grounded("meet-1e-4", "Slower halves.", device_lr=1e-4, ground=MEETING),
    _grounded("meet-1", "One step.", device_lr=1e-3, ground=replace(MEETING, steps=1)),
    _grounded("meet-8", "Eight steps.", device_lr=1e-3, ground=replace(MEETING, steps=8)),
    _grounded("meet-2-probes", "With two probes instead of eight.", device_lr=1e-3,
              ground=replace(MEETING, probes=2)),
    _grounded("meet-half", "The half of the devices that agrees most leads.", device_lr=1e-3,
              ground=replace(MEETING, leaders=0.5)),
    _grounded("meet-no-prior", "Devices descend the server's loss.", device_lr=1e-3, ground=MEETING,
              device_loss=None),
    _grounded("meet-1e-3-twice", "Twice the rounds.", device_lr=1e-3, ground=MEETING, length=2),
    _grounded("ground-cut-norm", "Normalised at the cut.", cut_norm=True),
    _grounded("ground-pretrained", "From a start that can tell how drawn pictures are turned.",
              pretrained=500),
    _grounded("frozen-pretrained", "Halves that never move from that start.", pretrained=500, trained=FROZEN,
              device_loss=None, ground=None),
    _grounded("ground-3e-4-twice", "Twice the rounds.", length=2),
    _grounded("ground-1e-4-twice", "Slower halves, twice the rounds.", device_lr=1e-4, length=2),
    _grounded("frozen-balanced-twice", "Halves that never move, twice the rounds.", trained=FROZEN, length=2,
              device_loss=None, ground=None),
)  # fmt: skip
