"""Criteria, and what a learner may know of a problem.

Index order everywhere is ``[constraint, stage, state, action, next_state]``, missing axes dropped.
Letters: S states, A actions, H horizon, m constraints, d features, K episodes, T steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tightrope.errors import ConfigError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.integer]
BoolArray = NDArray[np.bool_]
Feedback = Literal["sampled", "mean", "bernoulli"]


def as_number(value: Any, name: str) -> float:
    """The value as a float; ConfigError unless it is one real number."""
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "iuf":
        raise ConfigError(f"{name} must be a number, got {value!r}")
    return float(array)


def as_whole(value: Any, name: str, least: int = 0) -> int:
    """The value as an int; ConfigError unless it is one whole number >= `least`.

    >>> as_whole(3.0, "horizon", 1)
    3
    """
    array = np.asarray(value)
    whole = array.ndim == 0 and array.dtype.kind in "iuf" and float(array).is_integer()
    if not whole or array < least:
        raise ConfigError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(array)


@dataclass(frozen=True)
class Episodic:
    """Expected total over `horizon` steps from the initial law, undiscounted."""

    horizon: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "horizon", as_whole(self.horizon, "horizon", 1))


@dataclass(frozen=True)
class Average:
    """Long-run mean per step."""


@dataclass(frozen=True)
class Discounted:
    """Expected sum of ``discount**t * r_t``; the first exponent is 0 and nothing is normalised."""

    discount: float

    def __post_init__(self) -> None:
        if not 0.0 <= as_number(self.discount, "discount") < 1.0:
            raise ConfigError(
                f"discount must be in [0, 1), got {self.discount!r}; for discount 1 choose the "
                "criterion Average() (mean per step) or Total() (undiscounted sum)"
            )
        object.__setattr__(self, "discount", float(self.discount))


@dataclass(frozen=True)
class Total:
    """Expected undiscounted sum until the process stops paying."""


Criterion = Episodic | Average | Discounted | Total

CRITERION_NAMES: dict[type, str] = {
    Episodic: "episodic",
    Average: "average",
    Discounted: "discounted",
    Total: "total",
}


def make_criterion(
    criterion: Criterion | str, horizon: int | None = None, discount: float | None = None
) -> Criterion:
    """A criterion from its name and its parameter, as model files hold them.

    >>> make_criterion("episodic", horizon=3)
    Episodic(horizon=3)
    """
    if not isinstance(criterion, str):
        if not isinstance(criterion, Criterion):
            raise ConfigError(
                f"criterion must be Episodic(H), Average(), Discounted(gamma), Total() or a name, "
                f"got {criterion!r}"
            )
        if horizon is not None or discount is not None:
            raise ConfigError("give horizon/discount inside the criterion, or its name as a string")
        return criterion
    if criterion == "episodic":
        if horizon is None:
            raise ConfigError(
                "criterion 'episodic' needs horizon: the steps of an episode, such as horizon=30"
            )
        if discount is not None:
            raise ConfigError("criterion 'episodic' takes no discount")
        return Episodic(horizon)
    if criterion == "discounted":
        if discount is None:
            raise ConfigError(
                "criterion 'discounted' needs discount: a number in [0, 1), such as discount=0.95"
            )
        if horizon is not None:
            raise ConfigError("criterion 'discounted' takes no horizon")
        return Discounted(discount)
    if criterion in ("average", "total"):
        if horizon is not None or discount is not None:
            raise ConfigError(f"criterion '{criterion}' takes neither horizon nor discount")
        return Average() if criterion == "average" else Total()
    raise ConfigError(
        f"criterion must be 'episodic', 'average', 'discounted' or 'total', got {criterion!r}"
    )


@dataclass(frozen=True, kw_only=True)
class ProblemSpec:
    """All that a learner may know of a problem before it acts.

    Attributes
    ----------
    num_states, num_actions, num_costs : int
    criterion : Criterion
    available : (S, A) bool
        Which actions exist in which state.
    initial : (S,)
        The initial law.
    cost_names : tuple of str, length m
    capacities : (m,)
    signs : (m,)
        +1 where the cost stays at or below its capacity, -1 where it stays at or above (a floor).
    staged : bool
        Whether transitions, rewards or costs differ by step.
    reward_range : (low, high)
        Smallest and largest reward that a step can pay.
    cost_ranges : (m, 2)
    feedback : 'sampled', 'mean' or 'bernoulli'
    layers : (S,) int or None
        Layer of each state of a loop-free problem.
    features : (S, A, d), a `tightrope.model.features.FeatureMap`, or None
        Features for learners with linear function approximation. With a map states are points of a
        continuous space and `num_states` is 0.
    knowledge : dict
        Declared prior knowledge by name (``span``, ``mixing_time``, ``sigma``).
    """

    num_states: int
    num_actions: int
    num_costs: int
    criterion: Criterion
    available: BoolArray
    initial: FloatArray
    cost_names: tuple[str, ...]
    capacities: FloatArray
    signs: FloatArray
    staged: bool
    reward_range: tuple[float, float]
    cost_ranges: FloatArray
    feedback: Feedback = "sampled"
    layers: IntArray | None = None
    features: Any = None
    knowledge: dict[str, float] = field(default_factory=dict)

    @property
    def horizon(self) -> int:
        """Steps of an episode; an error for other criteria."""
        if not isinstance(self.criterion, Episodic):
            raise ConfigError(f"expected an episodic problem, got criterion {self.criterion}")
        return self.criterion.horizon
