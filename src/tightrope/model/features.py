"""Feature maps for linear function approximation, and their normalisation.

Features of a finite model are one array (S, A, d); a `FeatureMap` turns points of a continuous
state space into such arrays. [LIN] is Wei, Jafarnia-Jahromi, Luo and Jain (2020), Learning
infinite-horizon average-reward MDPs with linear function approximation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tightrope.errors import ConfigError, ModelError, UndeclaredError
from tightrope.types import BoolArray, FloatArray, ProblemSpec

LARGEST_NORM = math.sqrt(2.0)  #: [LIN, Assumption 2]
RANK_TOLERANCE = 1e-9
ESTIMATED = ("mixing_time", "sigma")  #: what `tr.run` can estimate
OFFER = "tr.features.normalise(features) gives features that fit"


@dataclass(frozen=True, kw_only=True)
class FeatureMap:
    """Features as a function: ``map(points)`` is (n, A, d) for points (n,) or (n, k).

    Attributes
    ----------
    function : (n, k) -> (n, A, d)
    num_actions, dimension : int
    name : str
    """

    function: Callable[[FloatArray], FloatArray]
    num_actions: int
    dimension: int
    name: str

    def __call__(self, points: Any) -> FloatArray:
        points = np.asarray(points, dtype=np.float64)
        values = self.function(points.reshape(len(points), -1))
        expected = (len(points), self.num_actions, self.dimension)
        if values.shape != expected:
            raise ModelError(f"features '{self.name}' have shape {values.shape}, not {expected}")
        return values


def one_hot(available: BoolArray) -> FloatArray:
    """One coordinate for each available pair: (S, A, d) with d the number of such pairs.

    >>> one_hot(np.array([[True, True], [True, False]])).argmax(axis=2)
    array([[0, 1],
           [2, 0]])
    """
    available = np.asarray(available, dtype=bool)
    pairs = np.flatnonzero(available)
    out = np.zeros((available.size, pairs.size))
    out[pairs, np.arange(pairs.size)] = 1.0
    return out.reshape(*available.shape, pairs.size)


def random_simplex(
    num_states: int,
    num_actions: int,
    dimension: int,
    *,
    rng: np.random.Generator,
    concentration: float = 1.0,
) -> FloatArray:
    """Independent Dirichlet points of the simplex: (S, A, d), every row >= 0 with sum 1."""
    shape = np.full(dimension, concentration)
    return rng.dirichlet(shape, size=(num_states, num_actions))


def _per_action(
    basis: Callable[[FloatArray], FloatArray], size: int, num_actions: int, name: str
) -> FeatureMap:
    """A copy of the basis of the state for each action, zero for the others."""

    def function(points: FloatArray) -> FloatArray:
        values = basis(points)
        out = np.zeros((len(points), num_actions, num_actions, size))
        out[:, np.arange(num_actions), np.arange(num_actions)] = values[:, None, :]
        return out.reshape(len(points), num_actions, num_actions * size)

    return FeatureMap(
        function=function, num_actions=num_actions, dimension=num_actions * size, name=name
    )


def polynomial(
    num_actions: int, degree: int, *, low: Any = 0.0, high: Any = 1.0, variables: int = 1
) -> FeatureMap:
    """Monomials up to a total degree in the state scaled from [low, high] to [-1, 1], per action.

    >>> polynomial(2, 2)([0.0, 1.0])[1]
    array([[1., 1., 1., 0., 0., 0.],
           [0., 0., 0., 1., 1., 1.]])
    """
    powers = np.array(
        [p for p in itertools.product(range(degree + 1), repeat=variables) if sum(p) <= degree]
    )
    low = np.broadcast_to(np.asarray(low, dtype=np.float64), (variables,))
    width = np.broadcast_to(np.asarray(high, dtype=np.float64), (variables,)) - low
    if degree < 0 or not (width > 0).all():
        raise ConfigError(f"polynomial needs degree >= 0 and low < high, got {degree}, {width}")

    def basis(points: FloatArray) -> FloatArray:
        scaled = 2.0 * (points - low) / width - 1.0
        return np.prod(scaled[:, None, :] ** powers[None], axis=2)

    return _per_action(basis, len(powers), num_actions, f"polynomial-{degree}")


def fourier(
    num_actions: int, order: int, *, low: Any = 0.0, high: Any = 1.0, variables: int = 1
) -> FeatureMap:
    """Cosines ``cos(pi c.x)``, c in {0..order}^variables, of the state scaled to [0, 1] per action.

    >>> fourier(1, 2)([0.0, 0.5, 1.0])[:, 0].round(12) + 0.0
    array([[ 1.,  1.,  1.],
           [ 1.,  0., -1.],
           [ 1., -1.,  1.]])
    """
    waves = np.array(list(itertools.product(range(order + 1), repeat=variables)), dtype=np.float64)
    low = np.broadcast_to(np.asarray(low, dtype=np.float64), (variables,))
    width = np.broadcast_to(np.asarray(high, dtype=np.float64), (variables,)) - low
    if order < 0 or not (width > 0).all():
        raise ConfigError(f"fourier needs order >= 0 and low < high, got {order}, {width}")

    def basis(points: FloatArray) -> FloatArray:
        return np.cos(np.pi * ((points - low) / width) @ waves.T)

    return _per_action(basis, len(waves), num_actions, f"fourier-{order}")


# ------------------------------------------------------------------ checking


def feature_rows(features: FloatArray, available: BoolArray | None = None) -> FloatArray:
    """The features of the available pairs, one a row (n, d); ModelError if they are no array."""
    features = np.asarray(features, dtype=np.float64)
    if features.ndim != 3:
        raise ModelError(f"features have shape {features.shape}, expected (S, A, d)")
    if available is None:
        available = np.ones(features.shape[:2], dtype=bool)
    if features.shape[:2] != np.shape(available):
        raise ModelError(
            f"features have shape {features.shape}, expected (S, A, d) with (S, A) = "
            f"{np.shape(available)}"
        )
    bad = np.argwhere(~np.isfinite(features) & np.asarray(available)[:, :, None])
    if bad.size:
        state, action, i = (int(part) for part in bad[0])
        raise ModelError(
            f"feature {i} of state {state}, action {action} is {features[state, action, i]}, "
            "expected a finite number"
        )
    return features[np.asarray(available)]


def spans_constant(rows: FloatArray) -> bool:
    """Whether some z has ``rows @ z = 1`` everywhere (then no constant coordinate is needed)."""
    ones = np.ones(len(rows))
    solution = np.linalg.lstsq(rows, ones, rcond=RANK_TOLERANCE)[0]
    return bool(np.abs(rows @ solution - ones).max() <= 1e-7)


def check_features(features: FloatArray, available: BoolArray | None = None) -> None:
    """Raise ModelError, with the place, unless features fit [LIN, Assumption 2].

    Norm at most sqrt(2), full rank d, and the constant function in their span.
    """
    rows = feature_rows(features, available)
    norms = np.zeros(np.shape(features)[:2])
    norms[np.ones_like(norms, dtype=bool) if available is None else available] = np.linalg.norm(
        rows, axis=1
    )
    state, action = np.unravel_index(int(norms.argmax()), norms.shape)
    if norms[state, action] > LARGEST_NORM * (1 + 1e-9):
        raise ModelError(
            f"features of state {state}, action {action} have norm {norms[state, action]:.6g}, "
            f"expected at most sqrt(2) [LIN, Assumption 2]; {OFFER}"
        )
    rank = int(np.linalg.matrix_rank(rows, tol=RANK_TOLERANCE * np.linalg.norm(rows, 2)))
    if rank < rows.shape[1]:
        raise ModelError(
            f"features have rank {rank}, expected full rank d = {rows.shape[1]}: some coordinates "
            f"are combinations of others; {OFFER}"
        )
    if not spans_constant(rows):
        raise ModelError(
            f"no combination of the features is constant, [LIN, Assumption 2] needs one; {OFFER}"
        )


# ------------------------------------------------------------- normalisation


@dataclass(frozen=True, kw_only=True, eq=False)
class Normalised:
    """Features after Lemma 8, and the map that makes them.

    Attributes
    ----------
    features : (S, A, d')
    transform : (rank, d)
        ``transform @ phi`` has norm at most 1; a constant coordinate, if any, comes before it.
    constant_added : bool
        True if the constant was not in the span, so that coordinate 0 is a 1 that was added.
    rank, original_dimension : int
    gap : float
        Certificate: the ellipsoid's log-volume is within this of the least.
    """

    features: FloatArray
    transform: FloatArray
    constant_added: bool
    rank: int
    original_dimension: int
    gap: float

    def apply(self, features: FloatArray) -> FloatArray:
        """The same map on other features (..., d), for instance those of a continuous state."""
        out = features @ self.transform.T
        return _with_constant(out) if self.constant_added else out


def _with_constant(features: FloatArray) -> FloatArray:
    return np.concatenate([np.ones((*features.shape[:-1], 1)), features], axis=-1)


def normalise(
    features: FloatArray, available: BoolArray | None = None, *, tolerance: float = 1e-9
) -> Normalised:
    """Features with norm at most sqrt(2), full rank, and a constant in their span.

    The minimum-volume ellipsoid of the features and their negatives is mapped to the unit ball
    [LIN, Lemma 8]; redundant coordinates are dropped; the constant coordinate is prepended only
    where the span lacks it.

    Raises
    ------
    ModelError
        If the features are not finite, or all zero.

    Examples
    --------
    >>> fitted = normalise(np.array([[[3.0, 0.0], [0.0, 40.0]]]))
    >>> fitted.features.round(6), fitted.constant_added
    (array([[[1., 0.],
            [0., 1.]]]), False)
    """
    rows = feature_rows(features, available)
    values, basis = np.linalg.svd(rows, full_matrices=False)[1:]
    if values.size == 0 or values[0] == 0.0:
        raise ModelError("all features are zero")
    rank = int((values > RANK_TOLERANCE * values[0]).sum())
    if rank == rows.shape[1]:
        basis = np.eye(rank)
    reduced = rows @ basis[:rank].T
    shape, gap = enclosing_ellipsoid(reduced, tolerance=tolerance)
    scales, axes = np.linalg.eigh(shape)
    transform = (axes * np.sqrt(scales)) @ axes.T @ basis[:rank]
    transform /= max(1.0, float(np.linalg.norm(rows @ transform.T, axis=1).max()))
    out = np.nan_to_num(np.asarray(features, dtype=np.float64)) @ transform.T
    missing = not spans_constant(rows)
    return Normalised(
        features=_with_constant(out) if missing else out,
        transform=transform,
        constant_added=missing,
        rank=rank,
        original_dimension=rows.shape[1],
        gap=gap,
    )


def enclosing_ellipsoid(
    points: FloatArray, *, tolerance: float = 1e-9, max_iterations: int = 200_000
) -> tuple[FloatArray, float]:
    """Minimum-volume ellipsoid {u: u'Bu <= 1} around points (n, d) of full rank and their mirrors.

    Khachiyan's barycentric coordinate ascent with away steps (Todd and Yildirim 2007) on the dual,
    the D-optimal design: B = M(u)^-1 / d with M(u) = sum u_i x_i x_i'.

    Returns
    -------
    (d, d) array, float
        B scaled to contain every point, and a bound of its log-volume above the least.
    """
    count, dimension = points.shape
    if dimension == 1:
        return np.array([[1.0 / float(np.abs(points).max()) ** 2]]), 0.0
    weights = np.full(count, 1.0 / count)
    inverse = np.linalg.inv(points.T @ (points * weights[:, None]))
    leverage = np.einsum("nd,nd->n", points @ inverse, points)
    for iteration in range(max_iterations):
        entering = int(leverage.argmax())
        leaving = int(np.where(weights > 0, leverage, np.inf).argmin())
        excess = leverage[entering] / dimension - 1.0
        shortfall = 1.0 - leverage[leaving] / dimension
        if excess <= tolerance and shortfall <= max(tolerance, 1e-7):
            break
        index = entering if excess > shortfall else leaving
        k = leverage[index]
        step = (k - dimension) / (dimension * (k - 1.0)) if k > 1.0 else -np.inf
        step = max(step, -weights[index] / (1.0 - weights[index]))
        weights *= 1.0 - step
        weights[index] = max(0.0, weights[index] + step)
        direction = inverse @ points[index]
        factor = step / (1.0 - step + step * k)
        inverse = (inverse - factor * np.outer(direction, direction)) / (1.0 - step)
        leverage = (leverage - factor * (points @ direction) ** 2) / (1.0 - step)
        if iteration % 500 == 499:  # rank-one updates drift
            inverse = np.linalg.inv(points.T @ (points * weights[:, None]))
            leverage = np.einsum("nd,nd->n", points @ inverse, points)
    inverse = np.linalg.inv(points.T @ (points * weights[:, None]))
    largest = float(np.einsum("nd,nd->n", points @ inverse, points).max())
    # volume of the scaled ellipsoid against the bound that the design gives: (largest / d)^(d/2)
    return inverse / largest, max(0.0, 0.5 * dimension * math.log(largest / dimension))


def feature_map_of(spec: ProblemSpec) -> FloatArray | FeatureMap:
    """The features of any problem: a map where states are continuous, else as `features_of`."""
    return spec.features if isinstance(spec.features, FeatureMap) else features_of(spec)


def dimension_of(features: FloatArray | FeatureMap) -> int:
    """d."""
    return features.dimension if isinstance(features, FeatureMap) else features.shape[2]


def rows_at(features: FloatArray | FeatureMap, states: np.ndarray) -> FloatArray:
    """(n, A, d) features at states (n,), which are numbers of states or points."""
    return features(states) if isinstance(features, FeatureMap) else features[states]


def features_of(spec: ProblemSpec) -> FloatArray:
    """The features of a finite problem, checked; one-hot where the problem declares none."""
    if isinstance(spec.features, FeatureMap):
        raise ConfigError("this learner needs finitely many states, the problem's are continuous")
    if spec.features is None:
        return one_hot(spec.available)
    check_features(spec.features, spec.available)
    return np.where(spec.available[:, :, None], spec.features, 0.0)


def declared(spec: ProblemSpec, name: str, given: float | str | None, learner: str) -> float:
    """Prior knowledge from the configuration, else from the problem.

    Raises UndeclaredError if it is in neither (or "estimate" is asked for): `tr.run` then estimates
    t_mix and sigma. ConfigError for a number that is not finite and > 0 (the span may be 0).
    """
    value = spec.knowledge.get(name) if given is None else given
    if value == "estimate" and name not in ESTIMATED:
        raise ConfigError(f"{learner} cannot estimate {name}: set it to a number")
    if value is None or value == "estimate":
        raise UndeclaredError(
            f"{learner} needs the {name.replace('_', ' ')} of the problem: declare it in "
            f"spec(knowledge={{'{name}': ...}}) or set {name} in the configuration",
            name,
        )
    if isinstance(value, str):
        raise ConfigError(f"{name} must be a number or 'estimate', got {value!r}")
    words = name.replace("_", " ")
    if name not in ESTIMATED:
        if not (math.isfinite(value) and value >= 0):
            raise ConfigError(f"{learner} needs a finite {words} >= 0, got {value}")
    elif not (math.isfinite(value) and value > 0):
        raise ConfigError(
            f"{learner} needs a finite {words} > 0, got {value}; where the "
            f"assumption fails, set {name} in the configuration, to a number or to 'estimate' (no "
            "theorem is claimed for an estimate)"
        )
    return float(value)
