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


def random_stationary(seed: int, criterion: str = "average", **extra: object) -> FiniteMDP:
    """Dense, sparse (often multichain) and periodic models in turn, with masks, m = 0..2."""
    rng = np.random.default_rng(seed)
    S, A, m = int(rng.integers(1, 13)), int(rng.integers(1, 4)), int(extra.pop("m", 0))
    kind = seed % 3
    transitions = np.zeros((S, A, S))
    for s in range(S):
        for a in range(A):
            if kind == 0:
                transitions[s, a] = rng.dirichlet(np.full(S, 0.5)) + 1e-3
            elif kind == 1:
                heads = rng.choice(S, size=min(S, int(rng.integers(1, 3))), replace=False)
                transitions[s, a, heads] = rng.dirichlet(np.ones(heads.size))
            else:
                transitions[s, a, (s + 1 + 3 * int(rng.integers(0, 2))) % S] = 1.0
    transitions /= transitions.sum(axis=-1, keepdims=True)
    available = rng.random((S, A)) < 0.8
    available[np.arange(S), rng.integers(0, A, S)] = True
    costs = rng.normal(size=(m, S, A))
    return FiniteMDP(
        transitions=transitions,
        axes="sas",
        rewards=rng.normal(size=(S, A)) * 10.0 ** rng.integers(-2, 3),
        costs=costs if m else None,
        capacities=rng.normal(size=m) * 0.5 if m else None,
        senses=list(rng.choice(["<=", ">="], size=m)),
        available=available,
        initial=rng.dirichlet(np.ones(S)),
        criterion=criterion,
        **extra,
    )
