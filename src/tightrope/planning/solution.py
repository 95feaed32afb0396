"""`Solution`: what every planner returns. A value never travels without its bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tightrope.errors import PlanError, Status
from tightrope.model.policy import Policy
from tightrope.types import FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class LeastViolation:
    """How close to the capacities an infeasible model can come.

    Attributes
    ----------
    policy : the policy that minimises ``max_i signs_i (V_i - capacity_i)``
    value : its reward
    costs : (m,) its costs
    shortfall : its largest excess over a capacity, > 0
    weights : (m,) >= 0 with sum 1
        The Farkas certificate: every policy has ``weights @ (signs * V_c) >= certified``.
    certified : float
        A lower bound of that weighted cost over all policies; exceeds that of the capacities.
    """

    policy: Policy
    value: float
    costs: FloatArray
    shortfall: float
    weights: FloatArray
    certified: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Solution:
    """A planner's answer.

    Attributes
    ----------
    status : Status
    solver : str
    value : float or None
        What the returned policy earns, evaluated again in the model; None if there is no policy.
    policy : Policy or None
        A distribution at every state.
    costs : (m,)
        What the returned policy consumes, evaluated again.
    capacities : (m,)
    cost_names : tuple of str
    multipliers : (m,) >= 0
        Gain in value per unit by which the capacity is relaxed; for '<=' dV/dcapacity.
    lower_bound, upper_bound : float
        Certified bounds of the optimum.
    least_violation : LeastViolation or None
        Only for an infeasible model.
    seconds : float
        Wall time.
    model_hash : str
    statistics : dict
        The solver's own counts.
    state_values : (S,) or None
        Without constraints: what the policy earns from each state (its gain, for the average
        criterion); None for episodic models.
    bias : (S,) or None
        Average criterion without constraints: the policy's bias.
    """

    status: Status
    solver: str
    value: float | None
    policy: Policy | None
    costs: FloatArray
    capacities: FloatArray
    cost_names: tuple[str, ...]
    multipliers: FloatArray
    lower_bound: float
    upper_bound: float
    seconds: float
    model_hash: str
    least_violation: LeastViolation | None = None
    statistics: dict[str, Any] = field(default_factory=dict)
    state_values: FloatArray | None = None
    bias: FloatArray | None = None

    @property
    def gap(self) -> float:
        """|upper - lower| / max(1, |value|); infinite without a value."""
        if self.value is None:
            return math.inf
        return abs(self.upper_bound - self.lower_bound) / max(1.0, abs(self.value))

    @property
    def binding(self) -> tuple[str, ...]:
        """Names of the capacities that the policy uses up (to 1e-9) or that have a price."""
        if self.value is None:
            return ()
        near = np.abs(self.costs - self.capacities) <= 1e-9 * np.maximum(1, np.abs(self.capacities))
        tight = near | (self.multipliers > 1e-9)
        return tuple(name for name, flag in zip(self.cost_names, tight) if flag)

    def require_solved(self) -> Solution:
        """The solution itself, or PlanError unless it is solved."""
        if self.status is not Status.SOLVED:
            text = f"plan is {self.status.value}: {self.status.sentence}"
            raise PlanError(text + self._least_text(), self)
        return self

    def _least_text(self) -> str:
        """What can be achieved at best, where the capacities (or g <= 0) cannot be kept."""
        least = self.least_violation
        if least is None:
            return ""
        if "constraint_values" in self.statistics:  # g of [CON, Eq. (15)]
            costs = ", ".join(f"{n} {x:.6g}" for n, x in zip(self.cost_names, least.costs))
            return f"; the least that the largest g can be is {least.shortfall:.6g}, at {costs}"
        costs = ", ".join(
            f"{name} {cost:.6g} (capacity {limit:.6g})"
            for name, cost, limit in zip(self.cost_names, least.costs, self.capacities)
        )
        return f"; the policy of least violation has {costs}, {least.shortfall:.6g} over"

    def to_json(self) -> dict[str, Any]:
        """The contract's JSON keys; numbers that do not exist are None."""

        def named(values: FloatArray) -> dict[str, float | None]:
            return {name: finite(value) for name, value in zip(self.cost_names, values)}

        out: dict[str, Any] = {
            "status": self.status.value,
            "value": None if self.value is None else finite(self.value),
            "costs": named(self.costs) if self.value is not None else None,
            "capacities": named(self.capacities),
            "multipliers": named(self.multipliers),
            "lower_bound": finite(self.lower_bound),
            "upper_bound": finite(self.upper_bound),
            "gap": finite(self.gap),
            "seconds": self.seconds,
            "solver": self.solver,
            "model_hash": self.model_hash,
        }
        if self.statistics.get("must_switch"):
            out["must_switch"] = self.statistics["must_switch"]
        if self.least_violation is not None:
            least = self.least_violation
            out["least_violation"] = {
                "costs": named(least.costs),
                "policy_value": finite(least.value),
                "shortfall": finite(least.shortfall),
            }
        return out


def finite(value: float) -> float | None:
    """A number that JSON can hold, or None."""
    return float(value) if np.isfinite(value) else None
