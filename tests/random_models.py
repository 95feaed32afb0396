"""Small random models of every shape that the planners must handle."""

import numpy as np

from tightrope import FiniteMDP
from tightrope.types import Episodic


def random_episodic(seed: int) -> FiniteMDP:
    """m = 0..4, S <= 40, A <= 4, H <= 10, per-step tables, '>=' senses, masks; some infeasible."""
    rng = np.random.default_rng(seed)
    S, A, H, m = rng.integers(1, 41), rng.integers(1, 5), rng.integers(1, 11), rng.integers(0, 5)
    staged = rng.random(3) < 0.3

    def shape(per_step: bool, *tail: int) -> tuple[int, ...]:
        return (H, *tail) if per_step else tail

    transitions = rng.random(shape(staged[0], S, A, S)) ** 3
    transitions *= rng.random(transitions.shape) < 0.5
    transitions[..., 0] += 1e-3
    transitions /= transitions.sum(axis=-1, keepdims=True)
    available = rng.random((S, A)) < 0.8
    available[np.arange(S), rng.integers(0, A, S)] = True
    senses = rng.choice(["<=", ">="], size=m, p=[0.7, 0.3])
    costs = rng.normal(size=(m, *shape(staged[2], S, A)))
    anchor = (rng.random(m) - 0.45) * H * np.where(senses == "<=", 1.0, -1.0)
    return FiniteMDP(
        transitions=transitions,
        axes="sas",
        rewards=rng.normal(size=shape(staged[1], S, A)) * 10.0 ** rng.integers(-2, 3),
        costs=costs if m else None,
        capacities=anchor if m else None,
        senses=list(senses),
        available=available,
        initial=rng.dirichlet(np.ones(S)),
        criterion=Episodic(int(H)),
    )
