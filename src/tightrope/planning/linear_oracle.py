"""Linear minimisation over the occupancies of a confidence set: extended value iteration.

One backward sweep over the layers; at each pair the best transition row of the L1 ball takes half
the radius from the most expensive next states and puts it on the cheapest one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ConfigError
from tightrope.kernels import projection as kernels
from tightrope.model.policy import DeterministicPolicy
from tightrope.planning.confidence import Confidence, transition_rows
from tightrope.types import FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class OptimisticPlan:
    """The cheapest policy together with the cheapest transition function.

    Attributes
    ----------
    value : float
        Least expected total cost, ``min <costs, q>`` over the occupancies of the confidence set.
    values : (S,)
        Least expected cost from each state on; 0 in the last layer.
    policy : DeterministicPolicy
        Action 0 in the last layer, where none is taken.
    transitions : (S*A, S) CSR
        The transition rows that attain `values`; within the confidence set.
    q : (S, A)
        Occupancies of `policy` under `transitions`: a vertex that attains the minimum.
    """

    value: float
    values: FloatArray
    policy: DeterministicPolicy
    transitions: sp.csr_array

    @cached_property
    def q(self) -> FloatArray:
        states = self.values.size
        actions = self.transitions.shape[0] // states
        chosen = np.arange(states) * actions + self.policy.actions
        chain = self.transitions[chosen]
        mass, reached = np.zeros(states), np.zeros(states)
        mass[0] = 1.0
        while mass.any():
            reached += mass
            mass = chain.T @ mass
        out = np.zeros((states, actions))
        acts = np.diff(self.transitions.indptr).reshape(states, actions).any(axis=1)
        out[acts, self.policy.actions[acts]] = reached[acts]
        return out


def optimistic(costs: FloatArray, confidence: Confidence) -> OptimisticPlan:
    """Minimise the expected total cost over policies and the transitions of a confidence set.

    Parameters
    ----------
    costs : (S, A)
        Any finite numbers; for rewards pass their negative. The last layer is not read, nor are
        actions that do not exist.
    confidence : Confidence

    Raises
    ------
    ConfigError
        If `costs` has another shape or is not finite.

    Examples
    --------
    >>> from tightrope.planning.confidence import confidence_set
    >>> p_bar = np.zeros((4, 2, 4))
    >>> p_bar[0, :, 1:3] = 0.5
    >>> p_bar[1:3, :, 3] = 1.0
    >>> confidence = confidence_set([0, 1, 1, 2], p_bar, 0.4)
    >>> plan = optimistic(np.array([[0.1, 0.0], [1.0, 1.0], [2.0, 3.0], [0.0, 0.0]]), confidence)
    >>> round(plan.value, 12), plan.policy.actions
    (1.3, array([1, 0, 0, 0]))
    """
    costs = np.asarray(costs, dtype=np.float64)
    if costs.shape != confidence.shape:
        raise ConfigError(f"costs have shape {costs.shape}, expected {confidence.shape}")
    if not np.isfinite(costs[confidence.available]).all():
        x, a = (int(i) for i in np.argwhere(~np.isfinite(costs) & confidence.available)[0])
        raise ConfigError(f"cost of (state {x}, action {a}) is {costs[x, a]}, expected a number")
    states, actions = confidence.shape
    layout, pairs = confidence.layout, confidence.pairs
    values, landing = np.empty(states), np.empty(states)
    best = np.empty(states, dtype=np.int64)
    fractions = np.empty(layout.entry_prob.size)
    kernels.optimistic_sweep(layout, costs.ravel()[pairs], values, best, fractions, landing)
    chosen = np.where(best < 0, 0, pairs[best] % actions)
    return OptimisticPlan(
        value=float(values[0]),
        values=values,
        policy=DeterministicPolicy(chosen),
        transitions=transition_rows(confidence, fractions, landing),
    )
