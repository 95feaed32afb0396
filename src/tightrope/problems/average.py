"""Problems for the average criterion: RiverSwim by source, ergodic models, queues.

The optima in the docstrings are the gains of `tightrope.planning.plan`, certified to 1e-9.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightrope.errors import ConfigError, unknown_name
from tightrope.model.mdp import FiniteMDP
from tightrope.types import Average, Criterion


class River(NamedTuple):
    """What swimming right does, and the two rewards."""

    middle: tuple[float, float, float]  #: left, stay, right
    first: tuple[float, float]  #: stay, right
    last: tuple[float, float]  #: left, stay
    left_reward: float  #: for action 0 in the first state
    right_reward: float  #: for action 1 in the last state
    on_transition: bool = False  #: the right reward only if the swimmer stays there


RIVERS: dict[str, River] = {
    "osband2013": River((0.05, 0.60, 0.35), (0.4, 0.6), (0.4, 0.6), 0.005, 1.0),
    "strehl2008": River((0.1, 0.6, 0.3), (0.7, 0.3), (0.7, 0.3), 5.0, 10_000.0),
    "strehl2008-transition": River((0.1, 0.6, 0.3), (0.7, 0.3), (0.7, 0.3), 5.0, 10_000.0, True),
    "statisticalrl": River((0.05, 0.35, 0.60), (0.4, 0.6), (0.05, 0.95), 0.1, 1.0),
    "statisticalrl-099": River((0.05, 0.35, 0.60), (0.4, 0.6), (0.05, 0.95), 0.1, 0.99),
    "right-040": River((0.05, 0.55, 0.40), (0.6, 0.4), (0.4, 0.6), 0.05, 1.0),
}


def _check_whole(least: int, **values: int) -> None:
    """Raise ConfigError unless every value is a whole number of at least `least`."""
    for name, value in values.items():
        if value != value or value < least or int(value) != value:
            raise ConfigError(f"{name} must be a whole number >= {least}, got {value!r}")


def riverswim(
    *, source: str = "osband2013", states: int = 6, criterion: Criterion | None = None
) -> FiniteMDP:
    """RiverSwim: swim right against the current, or drift left to a small reward.

    Several models bear this name; `source` says which. Action 0 goes one state left surely; action
    1 swims right. Written (left, stay, right) in the middle; (stay, right) in the first and
    (left, stay) in the last state; reward of drifting in the first and of swimming in the last:

    ======================== =============== ======== ========= ============= ==============
    source                   middle          first    last      rewards       gain, 6 states
    ======================== =============== ======== ========= ============= ==============
    osband2013 (default)     .05 .60 .35     .4 .6    .4 .6     .005, 1       0.4286224338
    strehl2008               .1 .6 .3        .7 .3    .7 .3     5, 10000      2229.3577982
    strehl2008-transition    the same, 10000 only if it stays   5, 10000      668.8073394
    statisticalrl            .05 .35 .60     .4 .6    .05 .95   .1, 1         0.9166669737
    statisticalrl-099        .05 .35 .60     .4 .6    .05 .95   .1, .99       0.9075003039
    right-040                .05 .55 .40     .6 .4    .4 .6     .05, 1        0.4666742623
    ======================== =============== ======== ========= ============= ==============

    Sources: Osband, Russo, Van Roy, NeurIPS 2013; Strehl and Littman, JCSS 74 (2008); the package
    StatisticalRL (and its use with .99); the last is in use without a source that we know.
    The default's optimal bias has span 6.310324; its diameter is 14.7223. No one-step contraction:
    Assumption 3 of Wei et al. 2020 fails, so a mixing time has to be declared.

    >>> riverswim()
    FiniteMDP(S=6, A=2, m=0, Average(), 22 transitions)
    """
    if source not in RIVERS:
        raise unknown_name("RiverSwim source", source, RIVERS)
    _check_whole(2, states=states)
    river = RIVERS[source]
    moves, rewards = np.zeros((states, 2, states)), np.zeros((states, 2))
    for s in range(states):
        moves[s, 0, max(s - 1, 0)] = 1.0
        left, stay, right = river.middle
        if s == 0:
            left, (stay, right) = 0.0, river.first
        elif s == states - 1:
            (left, stay), right = river.last, 0.0
        for after, chance in ((s - 1, left), (s, stay), (s + 1, right)):
            if chance > 0:
                moves[s, 1, after] = chance
    rewards[0, 0], rewards[-1, 1] = river.left_reward, river.right_reward
    if not river.on_transition:
        return FiniteMDP(
            transitions=moves, axes="sas", rewards=rewards, criterion=criterion or Average()
        )
    paid = np.zeros(moves.shape)
    paid[0, 0, 0], paid[-1, 1, -1] = river.left_reward, river.right_reward
    return FiniteMDP(
        transitions=moves, axes="sas", rewards_next=paid, criterion=criterion or Average()
    )


def ergodic_mdp(
    *,
    states: int = 10,
    actions: int = 3,
    floor: float = 0.2,
    concentration: float = 0.3,
    seed: int = 0,
) -> FiniteMDP:
    """A random model in which every policy mixes fast: Assumption 3 of Wei et al. 2020.

    Assumption 5 depends on the features. With one-hot features, which is what learners take where a
    problem declares none, it fails with two actions or more: a deterministic policy never takes the
    others, so sigma = 0.

    Rows are ``floor * u + (1 - floor) * Dirichlet(concentration)`` with one common law u (Dirichlet
    of 5 in every entry), so two laws come together by a factor of at most ``1 - floor`` a step
    and t_mix <= -1 / ln(1 - floor); `tightrope.model.chain.mixing_time` gives it exactly, and
    `sigma` that of any features. Rewards are uniform on [0, 1], cubed: good pairs are rare.

    Default: gain 0.5565826787, the uniform policy 0.2676194180; t_mix 3.854779 (at most 4.481420).

    >>> ergodic_mdp()
    FiniteMDP(S=10, A=3, m=0, Average(), 300 transitions)
    """
    _check_whole(1, states=states, actions=actions)
    _check_whole(0, seed=seed)
    if not 0.0 < floor <= 1.0:
        raise ConfigError(f"floor must be in (0, 1], got {floor}")
    rng = np.random.default_rng(seed)
    common = rng.dirichlet(np.full(states, 5.0))
    rows = rng.dirichlet(np.full(states, concentration), size=(states, actions))
    return FiniteMDP(
        transitions=floor * common + (1.0 - floor) * rows,
        axes="sas",
        rewards=rng.random((states, actions)) ** 3,
        criterion=Average(),
    )


def access_control(
    *,
    servers: int = 10,
    release: float = 0.06,
    priorities: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0),
) -> FiniteMDP:
    """Access control to a multi-server queue [Sutton and Barto 2018, Example 10.2].

    At each step the customer at the head of the queue is rejected (0) or takes a free server (1)
    and pays its priority. Then each busy server, that one included, becomes free with chance
    `release`, and the next customer has a priority drawn uniformly. State: free servers and
    priority, ``free * len(priorities) + k``. Without a free server only rejecting is available.

    Default: gain 2.7476419506 (44 states). All servers start free, priority uniform.

    >>> access_control()
    FiniteMDP(S=44, A=2, m=0, Average(), 2096 transitions)
    """
    _check_whole(1, servers=servers)
    if not 0.0 < release <= 1.0:
        raise ConfigError(f"release must be in (0, 1], got {release}")
    if not len(priorities):
        raise ConfigError("priorities must name at least one kind of customer, got none")
    from scipy.stats import binom

    kinds = len(priorities)
    shape = ((servers + 1) * kinds, 2)
    moves, rewards = np.zeros((*shape, shape[0])), np.zeros(shape)
    available = np.ones(shape, dtype=bool)
    for free in range(servers + 1):
        for k, priority in enumerate(priorities):
            state = free * kinds + k
            for action in range(2 if free else 1):
                busy = servers - free + action
                released = binom.pmf(np.arange(busy + 1), busy, release)
                for count, chance in enumerate(released):
                    first = (free - action + count) * kinds
                    moves[state, action, first : first + kinds] += chance / kinds
                rewards[state, action] = priority * action
            available[state, 1] = free > 0
    initial = np.zeros(shape[0])
    initial[-kinds:] = 1.0 / kinds
    return FiniteMDP(
        transitions=moves,
        axes="sas",
        rewards=rewards,
        available=available,
        initial=initial,
        criterion=Average(),
        action_names=("reject", "accept"),
    )


def admission_control(
    *,
    buffer: int = 20,
    arrival: float = 0.45,
    service: float = 0.55,
    entry: float = 5.0,
    holding: float = 0.3,
) -> FiniteMDP:
    """Admission control to an M/M/1/N queue [Naor 1969], uniformised.

    A slot is an arrival with chance `arrival`, or else, with chance `service`, an end of service
    (void if nobody is there); the two sum to 1. An arrival that is accepted (1) pays `entry`,
    unless the buffer is full; each slot costs `holding` for each customer present. The best policy
    accepts below a threshold.

    Default: gain 1.4789004137, threshold 4.

    >>> admission_control()
    FiniteMDP(S=21, A=2, m=0, Average(), 83 transitions)
    """
    _check_whole(1, buffer=buffer)
    if min(arrival, service) < 0.0 or abs(arrival + service - 1.0) > 1e-12:
        raise ConfigError(
            f"arrival and service must be >= 0 and sum to 1 (uniformised), got {arrival} and "
            f"{service}"
        )
    size = buffer + 1
    moves, rewards = np.zeros((size, 2, size)), np.zeros((size, 2))
    for queue in range(size):
        for action in range(2):
            joins = action == 1 and queue < buffer
            moves[queue, action, max(queue - 1, 0)] += service
            moves[queue, action, queue + joins] += arrival
            rewards[queue, action] = arrival * entry * joins - holding * queue
    return FiniteMDP(
        transitions=moves,
        axes="sas",
        rewards=rewards,
        criterion=Average(),
        action_names=("reject", "accept"),
    )
