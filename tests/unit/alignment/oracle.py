"""LGI and GDA as naive float64 loops, sentence by sentence from SPEC; slow, obvious, no torch."""

import math

import numpy as np


def dot(a, b):
    return math.fsum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def length(a):
    # Scaled by the largest entry, so that squares of tiny or huge numbers stay in range.
    top = max((abs(float(x)) for x in a), default=0.0)
    return 0.0 if top == 0 else top * math.sqrt(math.fsum((float(x) / top) ** 2 for x in a))


def cosine(a, b):
    """0 where either is zero: a zero gradient is at pi/2 to everything."""
    la, lb = length(a), length(b)
    if la == 0 or lb == 0:
        return 0.0
    return min(1.0, max(-1.0, dot([float(x) / la for x in a], [float(y) / lb for y in b])))


def angle(a, b):
    return math.acos(cosine(a, b))


def scores(gradients):
    """The mean of the angles to all other devices."""
    n = len(gradients)
    found = []
    for i in range(n):
        others = [angle(gradients[i], gradients[j]) for j in range(n) if j != i]
        found.append(math.fsum(others) / len(others) if others else 0.0)
    return found


def population_std(values):
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))


def ratio(nu, lowest, highest, t, total, k_min, k_max):
    fraction = 0.0 if highest - lowest <= 1e-9 else (highest - nu) / (highest - lowest)
    return k_min + (t / total) * fraction * (k_max - k_min)


def members(scores, ratio, nonzero):
    """The k lowest scores, rounded to 1e-9 rad, ties to the lower id; never a zero gradient."""
    k = max(1, math.ceil(ratio * len(scores) - 1e-9))
    able = [i for i in range(len(scores)) if nonzero[i]] or list(range(len(scores)))
    ranked = sorted(able, key=lambda i: (round(scores[i] / 1e-9), i))
    return tuple(sorted(ranked[: min(k, len(able))]))


def mean(gradients, members):
    return [
        math.fsum(float(gradients[i][c]) for i in members) / len(members) for c in range(len(gradients[0]))
    ]


def threshold(angles, eta):
    centre = math.fsum(angles) / len(angles)
    return max(min(centre - eta * population_std(angles), math.pi / 2), 0.0)


def kept(angles, threshold):
    inside = tuple(i for i, a in enumerate(angles) if a <= threshold + 1e-9)
    return inside or tuple(i for i, a in enumerate(angles) if a <= min(angles) + 1e-9)


def leader_round(gradients, *, t, total, k_min, k_max, spread=None):
    """A whole LGI round: everything it finds, by name."""
    gradients = np.asarray(gradients, dtype=np.float64)
    found = scores(gradients)
    nu = population_std(found)
    lowest, highest = spread or (nu, nu)
    lowest, highest = min(lowest, nu), max(highest, nu)
    k = ratio(nu, lowest, highest, t, total, k_min, k_max)
    chosen = members(found, k, [bool(np.any(row)) for row in gradients])
    return {
        "scores": found,
        "dispersion": nu,
        "spread": (lowest, highest),
        "ratio": k,
        "members": chosen,
        "gradient": mean(gradients, chosen),
    }
