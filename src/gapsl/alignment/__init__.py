"""GAPSL's mathematics as pure functions of tensors: LGI, GDA and the regulariser's derivative.

With the paper open: `geometry` has the angles, `leader` is leader gradient identification (Algorithm 1),
`direction` is gradient direction alignment (Algorithm 2), `curvature` differentiates its regulariser; not
from the paper is `sketch`, which keeps angles in less memory. Comments name the equations.
Nothing here does input or output, keeps state, or imports anything else of gapsl.
"""

from gapsl.alignment.curvature import Pull, cosine_pull, exact_product, finite_product, finite_step
from gapsl.alignment.direction import Alignment, align, angles_to, keep_within
from gapsl.alignment.geometry import mean_of_rows, pairwise_angles, sum_of_rows
from gapsl.alignment.leader import Leader, consistency_scores, identify_leader, selection_ratio

__all__ = [
    "Alignment",
    "Leader",
    "Pull",
    "align",
    "angles_to",
    "consistency_scores",
    "cosine_pull",
    "exact_product",
    "finite_product",
    "finite_step",
    "identify_leader",
    "keep_within",
    "mean_of_rows",
    "pairwise_angles",
    "selection_ratio",
    "sum_of_rows",
]
