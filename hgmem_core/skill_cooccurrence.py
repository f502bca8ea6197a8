"""Which skills occur in the same runs, and vectors drawn towards those of skills that do (HyperSkill, evolution).

C = H diag(1 / |V_e|) Hᵀ with an empty diagonal, W_ij = C_ij · min(γ_i, γ_j), Ŵ = D̂^(-1/2) (W + I) D̂^(-1/2) with D̂ the
row sums of W + I. Z̃ = S Z with S = (1 − a)^L Ŵ^L + a Σ_{l<L} (1 − a)^l Ŵ^l, but S is never made: X_0 = Z and
X_{l+1} = (1 − a) Ŵ X_l + a Z give X_L = S Z.
"""

from dataclasses import dataclass

import numpy as np

from hgmem_core.namespace_graph import Lists
from hgmem_core.similar import Matrix
from hgmem_core.skill_graph import Hypergraph
from hgmem_core.skill_utility import Numbers


@dataclass(frozen=True, slots=True)
class Symmetric:
    """A sparse symmetric matrix without a diagonal: the columns of each row, rising, and the value of each, float64."""

    columns: Lists
    values: Numbers

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.columns.offsets) - 1


def co_occurrence(hypergraph: Hypergraph) -> Symmetric:
    """Return C: for each two skills the sum of 1 / |V_e| over the runs that hold both; subtasks count in |V_e|."""
    n = hypergraph.n_skills
    sizes = np.diff(hypergraph.skills.offsets)
    keys, shares = [np.zeros(0, np.int64)], [np.zeros(0)]
    for size in np.unique(sizes[sizes > 1]).tolist():
        edges = np.flatnonzero(sizes == size)
        members = hypergraph.skills.of_all(edges).reshape(-1, size)
        for place in range(size - 1):
            keys.append((members[:, place, None] * n + members[:, place + 1 :]).ravel())
            shares.append(np.repeat(1.0 / hypergraph.sizes[edges], size - 1 - place))
    every = np.concatenate(keys)
    order = np.argsort(every, kind="stable")
    pairs, first = np.unique(every[order], return_index=True)
    sums = np.add.reduceat(np.concatenate(shares)[order], first) if len(pairs) else np.zeros(0)
    one, other = np.divmod(pairs, max(n, 1))
    rows, columns = np.concatenate([one, other]), np.concatenate([other, one])
    order = np.argsort(rows * n + columns, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    return Symmetric(Lists(offsets, columns[order]), np.concatenate([sums, sums])[order])


def weighted(shared: Symmetric, utility: Numbers) -> Symmetric:
    """Return W, from C and γ of the skills, float64 `[skills]`."""
    least = np.minimum(np.repeat(utility, np.diff(shared.columns.offsets)), utility[shared.columns.values])
    return Symmetric(shared.columns, shared.values * least)


def propagate_skills(weights: Symmetric, vectors: Matrix, restart: float, depth: int) -> Matrix:
    """Return Z̃, `[skills, d]` in the type of the vectors; not normalised.

    Args:
        weights: W.
        vectors: Z.
        restart: a, the share of a skill's own vector at each step.
        depth: L, the number of steps.
    """
    offsets, columns = weights.columns.offsets, weights.columns.values
    sizes = np.diff(offsets)
    rows = np.repeat(np.arange(len(weights)), sizes)
    scale = 1.0 / np.sqrt(1.0 + np.bincount(rows, weights=weights.values, minlength=len(weights)))
    values = (weights.values * scale[rows] * scale[columns]).astype(vectors.dtype)
    own = (scale * scale).astype(vectors.dtype)[:, None]
    joined = np.flatnonzero(sizes)
    bounds = list(zip(joined.tolist(), offsets[joined].tolist(), offsets[joined + 1].tolist(), strict=True))
    moved = vectors
    for _ in range(depth):
        step = own * moved
        for row, first, last in bounds:
            step[row] += values[first:last] @ moved[columns[first:last]]
        moved = step * (1.0 - restart) + vectors * restart
    return moved
