"""The model of Bradley and Terry: a strength for each method, so that differences are log-odds of winning."""

import numpy as np

from heatcheck.stats.table import Array
from heatcheck.stats.win_matrix import PRIOR

_TOLERANCE = 1e-10  # of the gradient, per case
_STEP = 2.0  # the longest step of a strength, so that no step overshoots
_ROUNDS = 200


def bradley_terry(points: Array, cases: Array, compared: Array | None = None) -> Array:
    r"""The strengths κ that make the outcomes most likely, with $\Sigma\kappa = 0$.

    $P(p \text{ beats } q) = 1 / (1 + e^{\kappa_q - \kappa_p})$; a tie is half a win of both. It takes account of who met
    whom, so that not every method has to be ranked in every case, as long as cases connect all of them (`apart`). A method that always wins would be infinitely
    strong; ½ of a win is added to both sides of every pair that meets.

    Args:
        points: wins, ties half, [..., methods, methods].
        cases: in which both are ranked, likewise.
        compared: whether two methods meet in any case, [methods, methods]; where `cases` is positive if None.

    Returns:
        [..., methods].

    Raises:
        ValueError: the strengths do not settle.

    Example:
        >>> points = np.array([[0.0, 2.0], [1.0, 0.0]])
        >>> bradley_terry(points, points + points.T).round(3).tolist()
        [0.255, -0.255]

    Paper: bradley1952.
    """
    there = ((cases if compared is None else compared) > 0).astype(np.float64)
    won, met = points + PRIOR * there, cases + 2 * PRIOR * there
    won, met = (np.asarray(x, dtype=np.float64) for x in np.broadcast_arrays(won, met))
    methods = won.shape[-1]
    strength = np.zeros(won.shape[:-1])
    limit = _TOLERANCE * max(1.0, float(met.max(initial=0.0)))
    for _ in range(_ROUNDS):
        odds = strength[..., :, None] - strength[..., None, :]
        p = 1 / (1 + np.exp(-odds))
        gradient = (won - met * p).sum(axis=-1)
        if np.abs(gradient).max(initial=0.0) <= limit:
            return np.asarray(strength - strength.mean(axis=-1, keepdims=True))
        curvature = met * p * (1 - p)
        hessian = -curvature + np.eye(methods) * curvature.sum(axis=-1)[..., None] + 1 / methods
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        longest = np.abs(step).max(axis=-1, keepdims=True)
        strength = strength + step * np.minimum(1.0, _STEP / np.maximum(longest, _STEP))
    raise ValueError(f"the strengths of {methods} methods do not settle within {_ROUNDS} rounds")
