"""Instances of loop-free problems: random worlds with a chosen margin, examples, auctions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tightrope.errors import ModelError
from tightrope.model.layered import LayeredMDP, layer_offsets, layered, unroll
from tightrope.model.mdp import FiniteMDP
from tightrope.problems import sequences
from tightrope.problems.adversarial import AdversarialProblem
from tightrope.problems.gridworlds import mars_rover
from tightrope.types import FloatArray, as_whole


def random_layered(
    *,
    layers: tuple[int, ...] = (1, 5, 5, 5, 1),
    num_actions: int = 3,
    num_constraints: int = 2,
    rho: float = 1.0,
    concentration: float = 0.5,
    seed: int = 0,
) -> LayeredMDP:
    """A random loop-free model with margin exactly `rho` and, as a rule, binding constraints.

    In every state one action has g_i = -rho/L for every i and no other action has less, so the
    margin is rho whatever the transitions. Away from it rewards grow with the constraints'
    values. Rows are Dirichlet(concentration).

    Examples
    --------
    >>> from tightrope.planning.layered import margin
    >>> world = random_layered(rho=1.5, seed=3)
    >>> round(margin(world, world.model.costs).value, 9)
    1.5
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0x7AB1E,)))
    transitions = random_transitions(rng, layers, num_actions, concentration)
    rewards, constraints = random_tables(rng, layers, num_actions, num_constraints, rho)
    return layered(transitions, layers=layers, rewards=rewards, constraints=constraints)


def random_transitions(
    rng: np.random.Generator, layers: tuple[int, ...], num_actions: int, concentration: float
) -> FloatArray:
    """(S, A, S) Dirichlet rows into the next layer."""
    offsets = layer_offsets(layers)
    num_actions = as_whole(num_actions, "num_actions", 1)
    total = int(offsets[-1])
    out = np.zeros((total, num_actions, total))
    for k in range(len(layers) - 1):
        rows = rng.dirichlet(np.full(layers[k + 1], concentration), (layers[k], num_actions))
        out[offsets[k] : offsets[k + 1], :, offsets[k + 1] : offsets[k + 2]] = rows
    return out


def random_tables(
    rng: np.random.Generator,
    layers: tuple[int, ...],
    num_actions: int,
    num_constraints: int,
    rho: float,
    safe: Any = None,
) -> tuple[FloatArray, FloatArray]:
    """Rewards (S, A) and constraints (m, S, A) with margin `rho`; `safe` (S,) are safe actions."""
    num_layers, total = len(layers) - 1, sum(layers)
    num_constraints = as_whole(num_constraints, "num_constraints")
    if not 0.0 < rho <= num_layers:
        raise ModelError(f"rho must be in (0, L] = (0, {num_layers}], got {rho}")
    floor = -rho / num_layers
    if safe is None:
        safe = rng.integers(num_actions, size=total)
    raw = rng.random((num_constraints, total, num_actions))
    constraints = floor + (1.0 - floor) * raw
    tempting = raw.mean(axis=0) if num_constraints else np.zeros((total, num_actions))
    rewards = 0.5 * rng.random((total, num_actions)) + 0.5 * tempting
    states = np.arange(total)
    constraints[:, states, safe] = floor
    rewards[states, safe] *= 0.3
    rewards[-1] = 0.0
    constraints[:, -1] = 0.0
    return rewards, constraints


def stochastic_problem(
    loop_free: LayeredMDP, *, noise: float = 0.3, name: str = "stochastic"
) -> AdversarialProblem:
    """The model's own tables as means of i.i.d. sequences."""
    model = loop_free.model
    return AdversarialProblem(
        name=name,
        loop_free=loop_free,
        rewards=sequences.iid(model.rewards, channel="rewards", noise=noise),
        constraints=sequences.iid(model.costs, channel="constraints", noise=noise),
    )


def four_combinations(
    *,
    layers: tuple[int, ...] = (1, 5, 5, 5, 1),
    num_actions: int = 3,
    num_constraints: int = 2,
    rho: float = 1.0,
    episodes: int = 0,
    period: int = 10,
    noise: float = 0.3,
    seed: int = 0,
) -> dict[str, AdversarialProblem]:
    """One world, rewards and constraints each stochastic or adversarial: four problems.

    Keys 'stochastic-stochastic', 'adversarial-stochastic' (rewards first), and so on. The
    adversarial rewards are piecewise over `episodes` (0: those of the run), the adversarial
    constraints switch every `period` episodes between a loose and a tight table; the margin is
    `rho` in all four.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0x4C0,)))
    transitions = random_transitions(rng, layers, num_actions, 0.5)
    safe = rng.integers(num_actions, size=sum(layers))
    r, g = zip(
        *(random_tables(rng, layers, num_actions, num_constraints, rho, safe) for _ in range(3))
    )
    world = layered(transitions, layers=layers, rewards=r[0], constraints=g[0])
    rewards = {
        "stochastic": sequences.iid(r[0], channel="rewards", noise=noise),
        "adversarial": sequences.piecewise(r, episodes, channel="rewards"),
    }
    constraints = {
        "stochastic": sequences.iid(g[0], channel="constraints", noise=noise),
        "adversarial": sequences.switching(*loose_and_tight(g[0]), period, channel="constraints"),
    }
    return {
        f"{a}-{b}": AdversarialProblem(
            name=f"{a}-{b}",
            loop_free=world,
            rewards=rewards[a],
            constraints=constraints[b],
            facts={"rho": rho},
        )
        for a in rewards
        for b in constraints
    }


def switching_problem(
    loop_free: LayeredMDP, *, period: int = 10, reward_noise: float = 0.3, name: str = "switching"
) -> AdversarialProblem:
    """Constraints that switch between a loose and a tight table with the model's G as average.

    G -+ delta with the largest delta that stays in [-1, 1], none on the safest entries. A policy
    that is safe in every episode must obey the tight one; in hindsight the average counts.
    """
    g = loop_free.model.costs
    return AdversarialProblem(
        name=name,
        loop_free=loop_free,
        rewards=sequences.iid(loop_free.model.rewards, channel="rewards", noise=reward_noise),
        constraints=sequences.switching(*loose_and_tight(g), period, channel="constraints"),
    )


def loose_and_tight(constraints: FloatArray) -> tuple[FloatArray, FloatArray]:
    """G - delta and G + delta, delta as large as [-1, 1] allows and 0 on the least entries."""
    floor = constraints[:, :-1].min(initial=1.0)
    delta = np.minimum(1.0 - constraints, 1.0 + constraints)
    delta[constraints <= floor + 1e-12] = 0.0
    delta[:, -1] = 0.0
    return constraints - delta, constraints + delta


def unrolled_problem(
    model: FiniteMDP, *, noise: float = 0.0, rescale: bool = False, name: str = "unrolled"
) -> AdversarialProblem:
    """Any episodic model in its loop-free form, with i.i.d. rewards and constraints."""
    return stochastic_problem(unroll(model, rescale=rescale), noise=noise, name=name)


def impossibility(second_half: str = "trap", episodes: int = 0) -> AdversarialProblem:
    """One decision in two worlds that no learner can tell apart in time.

    After the construction of Mannor, Tsitsiklis and Yu 2009, for one state. The safe action has
    r = 0, g = 0. The bold one has r = 1/2, g = 1 in the first half; then r = 0, g = -1 in world
    'relief' (OPT = 1/4, by always being bold) or r = 1, g = 1 in world 'trap' (OPT = 0). A learner
    that is bold in a share p of the first half has regret >= (1 - p) T/4 in the first world and
    violation >= p T/2 in the second, so one of them is >= T/6.
    """
    worlds = {"relief": (0.0, -1.0), "trap": (1.0, 1.0)}
    if second_half not in worlds:
        raise ModelError(f"second_half must be one of {sorted(worlds)}, got {second_half!r}")
    r2, g2 = worlds[second_half]
    return _bold_or_safe("impossibility-" + second_half, 1, 0.0, (0.5, 1.0), (r2, g2), episodes)


def ten_layers(
    second_half: str = "trap", episodes: int = 0, *, num_layers: int = 10
) -> AdversarialProblem:
    """The example that shows that alpha = rho/(1 + rho) is wrong for L > 1.

    One state a layer. Safe: r = 0, g = -1/L, so rho = 1. Bold: r = 1, g = 1 in the first half;
    then r = 0 and g = -1 ('relief', OPT = L/2) or g = +1 ('trap'). rho/(1 + rho) of the first
    world's optimum needs boldness of at least 1/2 in the first half, which in the second leaves a
    violation that grows with T; rho/(L + rho) needs 1/(L + 1), which does not.
    """
    num_layers = as_whole(num_layers, "num_layers", 1)
    worlds = {"relief": (0.0, -1.0), "trap": (0.0, 1.0)}
    if second_half not in worlds:
        raise ModelError(f"second_half must be one of {sorted(worlds)}, got {second_half!r}")
    name = "ten-layers-" + second_half
    return _bold_or_safe(
        name, num_layers, -1.0 / num_layers, (1.0, 1.0), worlds[second_half], episodes
    )


def _bold_or_safe(
    name: str,
    num_layers: int,
    safe_g: float,
    first: tuple[float, float],
    second: tuple[float, float],
    episodes: int,
) -> AdversarialProblem:
    """A chain of one-state layers with the actions safe (0) and bold (1), in two halves."""
    total = num_layers + 1
    transitions = np.zeros((total, 2, total))
    transitions[np.arange(num_layers), :, np.arange(1, total)] = 1.0
    rewards = np.zeros((2, total, 2))
    constraints = np.zeros((2, 1, total, 2))
    for half, (r, g) in enumerate((first, second)):
        rewards[half, :num_layers, 1] = r
        constraints[half, 0, :num_layers] = (safe_g, g)
    world = layered(
        transitions,
        layers=(1,) * total,
        rewards=rewards.mean(axis=0),
        constraints=constraints.mean(axis=0),
    )
    return AdversarialProblem(
        name=name,
        loop_free=world,
        rewards=sequences.piecewise(rewards, episodes, channel="rewards"),
        constraints=sequences.piecewise(constraints, episodes, channel="constraints"),
        facts={"rho": -safe_g * num_layers},
    )


def auction_pacing(
    *,
    prices: str = "stochastic",
    num_auctions: int = 4,
    values: tuple[float, ...] = (0.2, 0.5, 0.8, 1.0),
    bids: tuple[float, ...] = (0.0, 0.3, 0.6, 0.9),
    price_levels: tuple[float, ...] = (0.1, 0.25, 0.5, 0.8),
    budget: float = 0.6,
    period: int = 100,
    seed: int = 0,
) -> AdversarialProblem:
    """Budget pacing: an episode is a day of repeated second-price auctions.

    The state is the value of the next item; its law does not depend on the bid but changes from
    auction to auction and depends on the last value. A bid of at least the day's price wins: the
    reward is value - price where that is positive (a bid above the value is never worth it), the
    spend is the price; G = spend - budget / L, one constraint. Bid 0 never wins, so rho =
    budget. Day prices are drawn independently ('stochastic') or in alternating cheap and dear
    weeks ('adversarial').
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0xA0C,)))
    count = len(values)
    layers = (1, *([count] * num_auctions), 1)
    offsets = np.concatenate([[0], np.cumsum(layers)])
    total, num_layers = int(offsets[-1]), len(layers) - 1
    num_bids = len(bids)
    if not 0.0 < budget <= num_layers:
        raise ModelError(f"budget must be in (0, L] = (0, {num_layers}], got {budget}")
    transitions = random_transitions(rng, layers, 1, 1.0).repeat(num_bids, axis=1)
    value = np.zeros(total)
    for k in range(1, num_layers):
        value[offsets[k] : offsets[k + 1]] = values
    wins = (np.array(bids)[None, :] >= np.array(price_levels)[:, None]) & (np.array(bids) > 0)
    price = np.array(price_levels)[:, None, None]
    open_state = (value > 0)[None, :, None]
    won = wins[:, None, :] & open_state
    rewards = np.where(won, np.maximum(value[None, :, None] - price, 0.0), 0.0)
    spend = np.where(won, price, 0.0) - budget / num_layers
    spend[:, -1] = 0.0
    constraints = spend[:, None]
    if prices == "stochastic":
        law = np.full(len(price_levels), 1.0 / len(price_levels))
        r = sequences.draw(rewards, law, channel="rewards", stream=7)
        g = sequences.draw(constraints, law, channel="constraints", stream=7)
    elif prices == "adversarial":
        r = sequences.switching(rewards[0], rewards[-2], period, channel="rewards")
        g = sequences.switching(constraints[0], constraints[-2], period, channel="constraints")
    else:
        raise ModelError(f"prices must be 'stochastic' or 'adversarial', got {prices!r}")
    world = layered(
        transitions,
        layers=layers,
        rewards=rewards.mean(axis=0),
        constraints=constraints.mean(axis=0),
        cost_names=("spend",),
    )
    return AdversarialProblem(
        name=f"auction-pacing-{prices}",
        loop_free=world,
        rewards=r,
        constraints=g,
        facts={"rho": budget},
    )


def best_response_problem(
    loop_free: LayeredMDP, *, seed: int = 0, num_tables: int = 3, rho: float = 1.0
) -> AdversarialProblem:
    """An adaptive adversary over random tables that share the model's safest actions."""
    model = loop_free.model
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0xBE5,)))
    safe = model.costs.max(axis=0).argmin(axis=1)
    sizes = tuple(int(n) for n in np.diff(loop_free.offsets))
    pairs = [
        random_tables(rng, sizes, model.num_actions, model.num_costs, rho, safe)
        for _ in range(num_tables)
    ]
    return AdversarialProblem(
        name="best-response",
        loop_free=loop_free,
        rewards=sequences.best_response([r for r, _ in pairs], channel="rewards"),
        constraints=sequences.best_response([g for _, g in pairs], channel="constraints"),
        facts={"rho": rho},
    )


# ------------------------------------------------------------ by name, for the registry


def switching(*, period: int = 10, **parameters: Any) -> AdversarialProblem:
    """`switching_problem` on a `random_layered` world."""
    return switching_problem(random_layered(**parameters), period=period)


def _one(combination: str, **defaults: Any) -> Callable[..., AdversarialProblem]:
    def make(**parameters: Any) -> AdversarialProblem:
        return four_combinations(**{**defaults, **parameters})[combination]

    return make


random_stochastic_stochastic = _one("stochastic-stochastic")
random_stochastic_adversarial = _one("stochastic-adversarial")
random_adversarial_stochastic = _one("adversarial-stochastic")
random_adversarial_adversarial = _one("adversarial-adversarial")

# L = 2, m = 1 and rho = 1.7: Condition 2 holds from T = 5.9e5 on. So large a margin leaves little
# that could bind; of the worlds 0..59 this one has the largest least multiplier in hindsight over
# the four, 0.446.
ROOMY: dict[str, Any] = {"layers": (1, 3, 1), "num_constraints": 1, "rho": 1.7, "seed": 51}
roomy_stochastic_stochastic = _one("stochastic-stochastic", **ROOMY)
roomy_stochastic_adversarial = _one("stochastic-adversarial", **ROOMY)
roomy_adversarial_stochastic = _one("adversarial-stochastic", **ROOMY)
roomy_adversarial_adversarial = _one("adversarial-adversarial", **ROOMY)


def mars_rover_loop_free(**parameters: Any) -> AdversarialProblem:
    """The Mars rover, unrolled; rewards and costs are the means, without noise.

    G's total is the cost minus the capacity, so optimum and multiplier are the rover's own.
    """
    return unrolled_problem(mars_rover(**parameters), name="mars-rover-loop-free")


ten_layers_relief = partial(ten_layers, "relief")
ten_layers_trap = partial(ten_layers, "trap")
impossibility_relief = partial(impossibility, "relief")
impossibility_trap = partial(impossibility, "trap")
