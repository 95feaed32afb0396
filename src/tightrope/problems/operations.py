"""Problems of operations: queues, stock, machines, buffers and budgets, each with its source.

Every function returns a validated model. Rewards are maximised, so what is minimised (queue
lengths, repairs) is a negative reward; costs have capacities, floors have the sense '>='.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tightrope.errors import ConfigError
from tightrope.model.mdp import FiniteMDP
from tightrope.types import Average, Criterion, Episodic, FloatArray


def service_queue(
    *,
    buffer: int = 10,
    service: Sequence[float] = (0.2, 0.4, 0.6, 0.8),
    arrival: Sequence[float] = (0.1, 0.3, 0.5),
    energy: float = 0.35,
    throughput: float = 0.25,
    criterion: Criterion | None = None,
) -> FiniteMDP:
    """A single-server queue with a choice of service rate and of admitted flow [Altman, Ch. 5].

    The state is the queue length 0..buffer. In a slot one customer is served with probability a
    (if there is one, or else the one that has just come) and one comes with probability b (none
    when the buffer is full); an action is a pair (a, b). The mean queue length is minimised, while
    the mean energy ``a**2`` stays below `energy` and the mean flow admitted stays above
    `throughput` (a floor): m = 2.

    Optimum of the default, per slot: -0.1109243697 (both bind).

    Source: E. Altman, Constrained Markov Decision Processes, 1999, Chapter 5.

    >>> service_queue()
    FiniteMDP(S=11, A=12, m=2, Average(), 372 transitions)
    """
    _check_probabilities("service", service)
    _check_probabilities("arrival", arrival)
    pairs = [(a, b) for a in service for b in arrival]
    shape = (_positive("buffer", buffer) + 1, len(pairs))
    moves = np.zeros((*shape, shape[0]))
    rewards, costs = np.zeros(shape), np.zeros((2, *shape))
    for x in range(shape[0]):
        for k, (a, b) in enumerate(pairs):
            flow = b if x < buffer else 0.0
            down, up = a * (1 - flow) if x else 0.0, (1 - a) * flow
            for after, probability in ((x - 1, down), (x + 1, up), (x, 1 - down - up)):
                if probability > 0:
                    moves[x, k, after] += probability
            rewards[x, k] = -x
            costs[:, x, k] = a**2, flow
    return FiniteMDP(
        transitions=moves,
        axes="sas",
        rewards=rewards,
        costs=costs,
        cost_names=["energy", "throughput"],
        capacities=[energy, throughput],
        senses=["<=", ">="],
        criterion=criterion or Average(),
        action_names=[f"serve {a:g} admit {b:g}" for a, b in pairs],
    )


def inventory(
    *,
    max_stock: int = 5,
    demand: Sequence[float] = (0.1, 0.2, 0.3, 0.2, 0.15, 0.05),
    unit_cost: float = 0.25,
    order_cost: float = 0.3,
    holding: float = 3.2,
    ordering: float = 2.0,
    horizon: int = 7,
    criterion: Criterion | None = None,
) -> FiniteMDP:
    """Periodic-review stock of one product; what is not in stock is a lost sale [Puterman, 3.2].

    The state is the stock 0..max_stock in the morning. An order of a <= max_stock - stock units (so
    the actions are ragged) comes at once, then demand d has probability ``demand[d]``. All is
    normalised to [0, 1]: the reward is the number sold, and the cost of holding the stock after the
    order, both as a share of `max_stock`; ordering costs ``order_cost + unit_cost * a`` (nothing
    for a = 0) as a share of the largest order's. Over the episode (a week) they stay below
    `holding` and `ordering`: m = 2. Starts with an empty stock.

    Optimum of the default, per episode: 1.9209095540 (both bind).

    Source: M. Puterman, Markov Decision Processes, 1994, Section 3.2.

    >>> inventory()
    FiniteMDP(S=6, A=6, m=2, Episodic(horizon=7), 91 transitions)
    """
    law = np.asarray(demand, dtype=np.float64)
    _check_probabilities("demand", law)
    if abs(law.sum() - 1.0) > 1e-9:
        raise ConfigError(f"demand probabilities sum to {law.sum():.10g}, expected 1")
    size = _positive("max_stock", max_stock) + 1
    dearest = order_cost + unit_cost * max_stock
    moves, available = np.zeros((size, size, size)), np.zeros((size, size), dtype=bool)
    rewards, costs = np.zeros((size, size)), np.zeros((2, size, size))
    for stock in range(size):
        for order in range(size - stock):
            level = stock + order
            sold = np.minimum(np.arange(law.size), level)
            np.add.at(moves[stock, order], level - sold, law)
            available[stock, order] = True
            rewards[stock, order] = law @ sold / max_stock
            costs[0, stock, order] = level / max_stock
            costs[1, stock, order] = (order_cost + unit_cost * order if order else 0.0) / dearest
    return FiniteMDP(
        transitions=moves,
        axes="sas",
        rewards=rewards,
        costs=costs,
        cost_names=["holding", "ordering"],
        capacities=[holding, ordering],
        available=available,
        criterion=criterion or Episodic(horizon),
        action_names=[f"order {a}" for a in range(size)],
    )


def machine_replacement(
    *,
    num_states: int = 10,
    wear: float = 0.3,
    breakdown: float = 0.05,
    repair_success: float = 0.6,
    replacements: float = 0.03,
    crew: float = 0.15,
    criterion: Criterion | None = None,
) -> FiniteMDP:
    """A machine that wears out: keep, repair or replace it [Derman, Ch. 1; Ross, 2.3].

    States 0 (new) to ``num_states - 1`` (broken). Kept, it wears by one level with probability
    `wear`, and in level i breaks with probability ``breakdown * i / (num_states - 1)``; broken it
    stays broken. Repair lowers the level by two with probability `repair_success`, else nothing
    changes; replacement makes it new. Output a slot is 1 minus the level as a share of the worst,
    and nothing while it is repaired or replaced. The share of slots with a replacement stays below
    `replacements`, and the share with the crew at work (repairing or replacing) below `crew`:
    m = 2.

    Optimum of the default, per slot: 0.7642328549 (both bind).

    Source: C. Derman, Finite State Markovian Decision Processes, 1970, Chapter 1.

    >>> machine_replacement()
    FiniteMDP(S=10, A=3, m=2, Average(), 55 transitions)
    """
    for name, value in (("wear", wear), ("repair_success", repair_success)):
        _check_probabilities(name, [value])
    last = _positive("num_states", num_states) - 1
    if last < 1 or not 0 <= breakdown <= 1 - wear:
        raise ConfigError("machine_replacement needs num_states >= 2 and wear + breakdown <= 1")
    moves = np.zeros((num_states, 3, num_states))
    rewards, costs = np.zeros((num_states, 3)), np.zeros((2, num_states, 3))
    for level in range(num_states):
        fails = breakdown * level / last
        if level == last:
            moves[level, 0, level] = 1.0
        else:
            moves[level, 0, level + 1] += wear
            moves[level, 0, last] += fails
            moves[level, 0, level] += 1 - wear - fails
        moves[level, 1, max(0, level - 2)] += repair_success
        moves[level, 1, level] += 1 - repair_success
        moves[level, 2, 0] = 1.0
        rewards[level, 0] = 1.0 - level / last
    costs[0, :, 2] = 1.0
    costs[1, :, 1:] = 1.0
    return FiniteMDP(
        transitions=moves,
        axes="sas",
        rewards=rewards,
        costs=costs,
        cost_names=["replacements", "crew"],
        capacities=[replacements, crew],
        criterion=criterion or Average(),
        action_names=["keep", "repair", "replace"],
    )


def media_buffer(
    *,
    buffer: int = 9,
    fast: float = 0.9,
    slow: float = 0.1,
    playing: float = 0.5,
    fast_share: float = 0.4,
    horizon: int = 10,
    criterion: Criterion | None = None,
) -> FiniteMDP:
    """A media player's buffer, filled by a fast or a slow channel [Bura et al. 2022, Section 6].

    The state is the number of packets 0..buffer. A packet comes with probability `fast` or `slow`
    by the channel chosen, and one is played with probability `playing`. A slot is good if the
    buffer is not empty; the number of slots with the fast channel stays below `fast_share` of the
    horizon. Starts empty.

    Optimum of the default, per episode: 5.6680569721, multiplier 1.1034388166.

    Source: A. Bura et al., DOPE: Doubly optimistic and pessimistic exploration for safe
    reinforcement learning, 2022, Section 6.

    >>> media_buffer()
    FiniteMDP(S=10, A=2, m=1, Episodic(horizon=10), 56 transitions)
    """
    _check_probabilities("fast, slow and playing", [fast, slow, playing])
    size = _positive("buffer", buffer) + 1
    moves = np.zeros((size, 2, size))
    for packets in range(size):
        for action, comes in enumerate((slow, fast)):
            up, down = comes * (1 - playing), (1 - comes) * playing
            moves[packets, action, min(packets + 1, buffer)] += up
            moves[packets, action, max(packets - 1, 0)] += down
            moves[packets, action, packets] += 1 - up - down
    rewards = np.repeat((np.arange(size) > 0)[:, None].astype(float), 2, axis=1)
    return FiniteMDP(
        transitions=moves,
        axes="sas",
        rewards=rewards,
        costs={"fast": np.tile([0.0, 1.0], (size, 1))},
        capacities={"fast": fast_share * horizon},
        criterion=criterion or Episodic(horizon),
        action_names=["slow", "fast"],
    )


def budget_pacing(
    *,
    values: Sequence[float] = (0.2, 0.4, 0.6, 0.8, 1.0),
    prices: Sequence[float] = (0.1, 0.3, 0.5, 0.7, 0.9),
    bids: Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    persistence: float = 0.5,
    auctions: int = 20,
    budget: float = 4.0,
    wins: float = 10.0,
) -> FiniteMDP:
    """Bidding in repeated second-price auctions with a budget [Balseiro and Gur 2019].

    The state is the value of the present auction's item, which keeps to the next auction with
    probability `persistence`, else is drawn anew, uniformly from `values`. The highest competing
    bid is uniform on `prices`; a bid at or above it wins, earns the value and pays the price. Over
    the episode the spend stays below `budget` and the number of items won below `wins`: m = 2.

    Optimum of the default, per episode: 8.14, multipliers 0.5 and 0.35.

    Source: S. Balseiro and Y. Gur, Learning in repeated auctions with budgets, Management Science
    65(9), 2019, with a finite set of bids.

    >>> budget_pacing()
    FiniteMDP(S=5, A=6, m=2, Episodic(horizon=20), 150 transitions)
    """
    _check_probabilities("persistence", [persistence])
    worth, price, bid = (np.asarray(x, dtype=np.float64) for x in (values, prices, bids))
    size = worth.size
    law = np.full((size, size), (1 - persistence) / size) + persistence * np.eye(size)
    won = bid[:, None] >= price
    shape = (size, bid.size)
    return FiniteMDP(
        transitions=np.repeat(law[:, None], bid.size, axis=1),
        axes="sas",
        rewards=np.outer(worth, won.mean(axis=1)),
        costs={
            "spend": np.broadcast_to((won * price).mean(axis=1), shape),
            "wins": np.broadcast_to(won.mean(axis=1), shape),
        },
        capacities={"spend": budget, "wins": wins},
        initial=np.full(size, 1.0 / size),
        criterion=Episodic(auctions),
        state_names=[f"value {v:g}" for v in worth],
        action_names=[f"bid {v:g}" for v in bid],
    )


def _positive(name: str, value: int) -> int:
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ConfigError(f"{name} must be a whole number >= 1, got {value!r}")
    return int(value)


def _check_probabilities(name: str, values: Sequence[float] | FloatArray) -> None:
    for value in values:
        if not 0.0 <= value <= 1.0:
            raise ConfigError(f"{name} must be probabilities in [0, 1], got {value!r}")
