"""Random constrained models with a known slack and capacities that bind."""

from __future__ import annotations

import numpy as np

from tightrope.errors import ConfigError
from tightrope.model.mdp import FiniteMDP
from tightrope.planning.episodic import backward_induction
from tightrope.planning.evaluation import policy_values
from tightrope.types import Episodic, FloatArray, as_number, as_whole

SPREAD = 0.1  # the capacities lie between the costs of the optima at (1 -+ SPREAD) times a price


def random_cmdp(
    num_states: int = 20,
    num_actions: int = 4,
    *,
    horizon: int = 20,
    num_costs: int = 1,
    successors: int = 10,
    slack: float | None = None,
    seed: int = 0,
) -> FiniteMDP:
    """A random episodic model whose constraints bind and can be kept with room to spare.

    Every (s, a) has min(`successors`, S) next states with Dirichlet(1) probabilities. Action 0 is
    cheap and pays little; of the others, what pays more costs more. Let pi_0 minimise the sum of
    the costs and let pi_t be optimal for the price t of every cost. The capacities are the midpoint
    of the costs of pi_0.9t and pi_1.1t, with the largest t for which pi_0 stays below every
    capacity by at least `slack`. No dense array is made anywhere.

    Parameters
    ----------
    slack : in the units of the capacity, > 0
        Default: half of the largest that this model allows.

    Raises
    ------
    ConfigError
        If the slack is larger than this model allows (the message says how large it may be), if it
        allows none, or if a size or the seed is no whole number.

    >>> random_cmdp(12, 3, horizon=6, num_costs=2, seed=1)
    FiniteMDP(S=12, A=3, m=2, Episodic(horizon=6), 360 transitions)
    """
    num_states = as_whole(num_states, "num_states", 1)
    num_actions = as_whole(num_actions, "num_actions", 1)
    horizon = as_whole(horizon, "horizon", 1)
    successors = as_whole(successors, "successors", 1)
    num_costs = as_whole(num_costs, "num_costs")
    rng = np.random.default_rng(np.random.SeedSequence(as_whole(seed, "seed")))
    rows, width = num_states * num_actions, min(successors, num_states)
    # one successor from each of `width` blocks of states: distinct and sorted without a search
    edges = np.linspace(0, num_states, width + 1).astype(np.int64)
    indices = edges[:-1] + (rng.random((rows, width)) * np.diff(edges)).astype(np.int64)
    data = rng.standard_exponential((rows, width))
    data /= data.sum(axis=1, keepdims=True)
    rewards = rng.random((num_states, num_actions))
    noise = rng.random((num_costs, num_states, num_actions))
    costs = 0.5 * rewards + 0.5 * noise
    rewards[:, 0] *= 0.2
    costs[:, :, 0] *= 0.1
    model = FiniteMDP(
        transitions_data=data.ravel(),
        transitions_indices=indices.ravel(),
        transitions_indptr=np.arange(rows + 1) * width,
        transitions_shape=(num_states, num_actions, num_states),
        rewards=rewards,
        costs=costs,
        capacities=np.full(num_costs, horizon, dtype=float),
        criterion=Episodic(horizon),
    )
    if num_costs == 0:
        return model
    return model.replace(capacities=_capacities(model, slack))


def _capacities(model: FiniteMDP, slack: float | None) -> FloatArray:
    def costs_at(price: float) -> FloatArray:
        prices = np.full(model.num_costs, price)
        return policy_values(model, backward_induction(model, multipliers=prices)[0])[1:]

    cheapest, _ = backward_induction(model, multipliers=np.ones(model.num_costs), reward_weight=0.0)
    floor = policy_values(model, cheapest)[1:]

    def middle(price: float) -> FloatArray:
        return 0.5 * (costs_at((1 - SPREAD) * price) + costs_at((1 + SPREAD) * price))

    low, high = 0.01, 10.0  # prices; rewards and costs are in [0, 1]
    best = middle(low)
    largest = float((best - floor).min())
    if slack is None and largest <= 0:
        raise ConfigError(
            "the capacities of this seed and size cannot bind with slack: what pays most costs "
            "least; take more states or actions, or another seed"
        )
    wanted = 0.5 * largest if slack is None else as_number(slack, "slack")
    if not 0 < wanted <= largest:
        raise ConfigError(
            f"slack must be in (0, {largest:.6g}] for this seed and size, got {wanted:.6g}"
        )
    for _ in range(8):
        price = float(np.sqrt(low * high))
        found = middle(price)
        if (found - floor).min() >= wanted:
            low, best = price, found
        else:
            high = price
    return best
