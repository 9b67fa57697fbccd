"""Where the paper contradicts itself, with the numbers it prints."""

from __future__ import annotations

from gapsl_reproduction import paper

IID10, SKEWED10 = paper.EPOCHS["cifar10", "iid"], paper.EPOCHS["cifar10", "non-iid"]
EVEN, SKEWED = paper.ACCURACY["cifar10", "iid"], paper.ACCURACY["cifar10", "non-iid"]
LEAST, MOST = paper.BY_ALPHA["cifar10", 0.9], paper.BY_ALPHA["cifar10", 0.3]
PSL100 = {0.3: paper.BY_ALPHA["cifar100", 0.3]["psl"], 0.1: paper.ACCURACY["cifar100", "non-iid"]["psl"]}
EPSL = {size: paper.BY_DEVICES["non-iid", size]["epsl"] for size in (30, 40)}

CONTRADICTIONS: tuple[str, ...] = (
    "**Who is slowest.** The text on converged time says that vanilla SL converges slowest. In Table I it "
    f"is PSL, in every setting: on CIFAR-10 {IID10['psl']:.0f} epochs against vanilla SL's "
    f"{IID10['vanilla']:.0f} (IID) and {SKEWED10['psl']:.0f} against {SKEWED10['vanilla']:.0f} (non-IID).",
    '**Whether PSL converges.** Section II says of PSL at alpha 0.1 that it "fails to achieve model '
    f'convergence entirely". Table I gives it {SKEWED10["psl"]:.0f} epochs to converge in that setting.',
    f"**PSL on CIFAR-100.** {PSL100[0.3]} % at alpha 0.3 (Table III) but {PSL100[0.1]} % at alpha 0.1 "
    "(Table I): more skew, more accuracy, where the text says that skew degrades PSL most.",
    '**What is minimal.** GAPSL is said to incur "only a minimal accuracy reduction" in a highly non-IID '
    f"setting. In Table III it falls from {LEAST['gapsl']} to {MOST['gapsl']} % between alpha 0.9 and 0.3, "
    f"{LEAST['gapsl'] - MOST['gapsl']:.1f} points, and in Table I from {EVEN['gapsl']} (IID) to "
    f"{SKEWED['gapsl']} % (alpha 0.1), {EVEN['gapsl'] - SKEWED['gapsl']:.1f} points.",
    "**More devices.** All methods but GAPSL are said to drop with more devices on skewed labels. EPSL is at "
    f"{EPSL[30]} % with 30 and at {EPSL[40]} % with 40.",
    '**Which data.** The text announces accuracy by number of devices "on CIFAR-10 and CIFAR-100"; Fig. 18 '
    "and Table II have CIFAR-10 alone.",
    '**Fig. 10.** Its panels are labelled "test accuracy versus selection ratio" and "versus epochs"; its '
    "caption and the text say accuracy versus the standard deviation of the scores, and the best ratio "
    "versus epochs. We drew the latter.",
    "**Algorithm 1** sorts the devices by `D_i`, which is defined nowhere. Eq. (3) ranks them by "
    "`theta_i`; so do we.",
    "**Min-max scaling** over past rounds is avoided for the threshold because one outlier spoils it "
    "(Section III-C), and used for the selection ratio (Eq. 2).",
    "**The threshold** is said to relax when gradients agree, so that more devices take part. In Eq. (6) "
    "it is mean − eta · standard deviation of the same angles: scale them or shift them (below 90°), and "
    "the same devices are kept.",
    "**Cost.** The complexity analysis counts dot products only. The regulariser of Eq. (7) is a function "
    "of gradients, and its derivative is a Hessian-vector product: one to three more passes for every kept "
    "device.",
)
