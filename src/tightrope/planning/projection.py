"""Euclidean projection onto the occupancies of a confidence set, certified by a duality gap.

[BOBW, Algorithm 3] projects ``z`` onto Delta(P_i): minimise ``1/2 ||q - z||^2`` over q(x, a) with
mass 1 in each layer that flows along some transition function of the confidence set. A gap g
certifies ``||q - q*||_2 <= sqrt(2 g)``. The method is described in
`kernels.projection`; the reference twin and fallback is the aggregated quadratic program in
`planning.projection_program`.

A learner that projects every episode keeps a `Projector`:

    projector = Projector(confidence)            # start of an epoch, or of a run
    projector.project(z)                         # every episode; result in projector.occupancy
    projector.change(confidence)                 # next epoch; the warm start is carried over

Its whole memory is two arrays, ``projector.heights`` and ``projector.fractions``: save them, and
``Projector(confidence, heights=..., fractions=...)`` continues bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ConfigError, ModelError, Status
from tightrope.kernels import projection as kernels
from tightrope.model.policy import StochasticPolicy
from tightrope.planning.confidence import Confidence, transition_rows
from tightrope.types import FloatArray

MAX_ROUNDS = 500
MAX_STEPS = 100
LARGEST = 1e100  # of the numbers of z, so that their squares can be added up
ROUNDING = 1e-14
"""A gap below this, times 1 + ||z||, is rounding: no other solver could do better."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection:
    """A certified projection.

    Attributes
    ----------
    status : Status
        Solved if and only if ``distance <= tol``.
    solver : 'cuts' or 'qp'
        'qp' if the cutting planes did not converge and the fallback made the answer.
    q : (S, A)
        Feasible occupancies of the (state, action) pairs; 0 in the last layer.
    gap : float
        Objective at `q` minus the best dual value.
    distance : float
        ``sqrt(2 * gap)``, a bound of ``||q - q*||_2``.
    objective : float
        ``1/2 ||q - z||^2`` over the available pairs.
    rounds, steps : int
        Rounds of cutting planes and Newton steps.
    heights, fractions, landing : (S,), (E,), (S,)
        The solver's end state; `project(..., start=projection)` starts from it.
    confidence : Confidence
    """

    status: Status
    solver: str
    q: FloatArray
    gap: float
    distance: float
    objective: float
    rounds: int
    steps: int
    heights: FloatArray
    fractions: FloatArray
    landing: FloatArray
    confidence: Confidence

    @cached_property
    def policy(self) -> StochasticPolicy:
        """``q(x, a) / q(x)``, uniform over the available actions where q(x) = 0."""
        return StochasticPolicy(occupancy_policy(self.q, self.confidence.available))

    @cached_property
    def transitions(self) -> sp.csr_array:
        """Transition rows (S*A, S) within the confidence set that carry `q`."""
        return transition_rows(self.confidence, self.fractions, self.landing)


class Projector:
    """Repeated projections onto one confidence set after the other, started warm.

    Attributes
    ----------
    confidence : Confidence
    heights : (S,), fractions : (E,)
        The memory: dual potentials and flow fractions of the last projection.
    occupancy : (S, A)
        The last projection; overwritten by the next one.
    gap, distance : float
        Certificate of the last projection.
    rounds, steps : int
    """

    def __init__(
        self,
        confidence: Confidence,
        *,
        heights: FloatArray | None = None,
        fractions: FloatArray | None = None,
    ) -> None:
        self._use(confidence)
        layout = confidence.layout
        states, entries = layout.state_row.size - 1, layout.entry_prob.size
        self.heights = np.zeros(states)
        self.fractions = np.empty(entries)
        if heights is not None:
            self.heights[:] = _sized(heights, states, "heights")
        if fractions is None:
            kernels.first_fractions(layout, self.fractions)
        else:
            self.fractions[:] = _sized(fractions, entries, "fractions")
        self.gap = self.distance = math.inf
        self.rounds = self.steps = 0

    def _use(self, confidence: Confidence) -> None:
        self.confidence = confidence
        self.occupancy = np.zeros(confidence.shape)
        self._flat = self.occupancy.reshape(-1)
        self.landing = np.zeros(confidence.shape[0])

    def change(self, confidence: Confidence) -> None:
        """Go over to the next confidence set of the same states and actions."""
        if not (
            np.array_equal(confidence.layers, self.confidence.layers)
            and np.array_equal(confidence.available, self.confidence.available)
        ):
            raise ModelError("the new confidence set has other layers or other available actions")
        fractions = np.empty(confidence.layout.entry_prob.size)
        kernels.carry_fractions(
            self.confidence.layout, confidence.layout, self.fractions, fractions
        )
        self.fractions = fractions
        self._use(confidence)

    def project(
        self,
        z: FloatArray,
        tol: float = 1e-5,
        *,
        max_rounds: int = MAX_ROUNDS,
        max_steps: int = MAX_STEPS,
    ) -> float:
        """Project z (S, A); returns the certified distance, result in `occupancy`.

        Only the pairs that exist are read. The caller must compare the distance with `tol`:
        it is larger if the rounds ran out.
        """
        z = np.ascontiguousarray(z, dtype=np.float64)
        if z.shape != self.occupancy.shape:
            raise ConfigError(f"z has shape {z.shape}, expected {self.occupancy.shape}")
        if not z.flags.writeable:  # the kernel is compiled for arrays that are
            z = z.copy()
        gap, self.rounds, self.steps = kernels.project_pairs(
            *self.confidence.layout,
            self.confidence.pairs,
            z.reshape(-1),
            self.heights,
            self.fractions,
            self._flat,
            self.landing,
            tol,
            max_rounds,
            max_steps,
        )
        if math.isnan(gap):
            raise ConfigError("z has numbers that are not finite")
        self.gap = gap
        self.distance = math.sqrt(2.0 * gap)
        return self.distance


def project(
    z: FloatArray,
    confidence: Confidence,
    *,
    tol: float = 1e-5,
    start: Projection | None = None,
    max_rounds: int = MAX_ROUNDS,
) -> Projection:
    """Project z onto the occupancies of a confidence set.

    Parameters
    ----------
    z : (S, A)
        Numbers up to 1e100; those of the last layer and of actions that do not exist are not read.
    confidence : Confidence
    tol : float > 0
        Wanted bound of the distance to the exact projection. Rounding sets the limit, about
        1e-8 for z near the occupancies and 3e-7 for numbers around 10.
    start : Projection
        An earlier projection, of this or of an earlier confidence set of the same states.
    max_rounds : int
        Rounds of cutting planes before the quadratic program takes over.

    Returns
    -------
    Projection
        `status` is NOT_CONVERGED if `tol` was not reached.

    Raises
    ------
    MissingExtraError
        If the quadratic program is needed and the extra ``qp`` is not installed.

    Examples
    --------
    >>> from tightrope.planning.confidence import confidence_set
    >>> confidence = confidence_set([0, 1, 1, 2], np.zeros((4, 1, 4)), 2.0)
    >>> project(np.array([[1.0], [0.3], [0.5], [0.0]]), confidence).q.ravel().round(6)
    array([1. , 0.4, 0.6, 0. ])
    """
    z = np.asarray(z, dtype=np.float64)
    if z.shape != confidence.shape:
        raise ConfigError(f"z has shape {z.shape}, expected {confidence.shape}")
    small = np.abs(z) <= LARGEST  # False for NaN
    if not small[confidence.available].all():
        x, a = (int(i) for i in np.argwhere(~small & confidence.available)[0])
        raise ConfigError(
            f"z of (state {x}, action {a}) is {z[x, a]}, expected a finite number of at most "
            f"{LARGEST:g}"
        )
    if not isinstance(tol, int | float | np.number) or not tol > 0.0:
        raise ConfigError(f"tol must be > 0, got {tol!r}")
    if start is None:
        projector = Projector(confidence)
    else:
        projector = Projector(start.confidence, heights=start.heights, fractions=start.fractions)
        if start.confidence is not confidence:
            projector.change(confidence)
    projector.project(z, tol, max_rounds=max_rounds)
    solver = "cuts"
    size = 1.0 + float(np.linalg.norm(z[confidence.available]))
    if not projector.distance <= tol and projector.gap > ROUNDING * size:
        from tightrope.planning.projection_program import improve_with_program

        solver = "qp"
        improve_with_program(projector, z, tol)
    q = projector.occupancy
    off = (q - z)[confidence.available]
    return Projection(
        status=Status.SOLVED if projector.distance <= tol else Status.NOT_CONVERGED,
        solver=solver,
        q=q,
        gap=projector.gap,
        distance=projector.distance,
        objective=0.5 * float(off @ off),
        rounds=projector.rounds,
        steps=projector.steps,
        heights=projector.heights,
        fractions=projector.fractions,
        landing=projector.landing,
        confidence=confidence,
    )


def occupancy_policy(q: FloatArray, available: np.ndarray) -> FloatArray:
    """(S, A) action probabilities ``q(x, a) / q(x)``; uniform where q(x) = 0.

    States of the last layer, where no action is available, get the uniform row over all actions.
    """
    total = q.sum(axis=1, keepdims=True)
    exists = np.where(available.any(axis=1, keepdims=True), available, True)
    uniform = exists / exists.sum(axis=1, keepdims=True)
    return np.where(total > 0.0, q / np.where(total > 0.0, total, 1.0), uniform)


def _sized(array: FloatArray, size: int, name: str) -> FloatArray:
    if np.shape(array) != (size,):
        raise ConfigError(f"{name} has shape {np.shape(array)}, expected ({size},)")
    return array
