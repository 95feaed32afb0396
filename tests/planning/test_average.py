"""The average criterion: closed forms, brute force, and a textbook program in plain arrays."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from tests.planning.exact_gains import best_gain, every_gain
from tests.random_models import random_stationary

from tightrope import FiniteMDP
from tightrope.errors import ConfigError, ModelError, Status
from tightrope.model.chain import (
    gain_and_bias,
    is_unichain,
    is_weakly_communicating,
    policy_chain,
    span,
)
from tightrope.model.policy import DeterministicPolicy, MixturePolicy, StochasticPolicy
from tightrope.planning import evaluate, plan
from tightrope.planning.criteria import frequencies, state_values
from tightrope.problems import mars_rover

GAIN_SOLVERS = ("policy-iteration", "value-iteration", "lp")
COST_SOLVERS = ("policy-iteration", "value-iteration", "lp")
LIMITED = {"value-iteration": {"max_sweeps": 2000}}  # where sweeps would take for ever


def average(transitions, rewards, costs=None, capacities=None, **extra):
    return FiniteMDP(
        transitions=transitions,
        rewards=rewards,
        costs=costs,
        capacities=capacities,
        criterion="average",
        axes="sas",
        **extra,
    )


def limit_of(chain):
    """P* by repeated squaring of the lazy chain."""
    limit = 0.5 * (np.eye(chain.shape[0]) + chain)
    for _ in range(40):
        limit = limit @ limit
        limit /= limit.sum(axis=1, keepdims=True)
    return limit


def textbook(model):
    """Two-block program of Hordijk and Kallenberg on dense arrays; None if infeasible."""
    S = model.num_states
    pairs = np.argwhere(model.available)
    dense = model.dense()[pairs[:, 0], pairs[:, 1]]
    out = np.eye(S)[pairs[:, 0]]
    zero = np.zeros((S, len(pairs)))
    A_eq = np.block([[(out - dense).T, zero], [out.T, (out - dense).T]])
    rewards = model.rewards[pairs[:, 0], pairs[:, 1]]
    costs = model.signs[:, None] * model.costs[:, pairs[:, 0], pairs[:, 1]]
    m = model.num_costs
    answer = linprog(
        np.concatenate([-rewards, np.zeros(len(pairs))]),
        A_ub=np.hstack([costs, np.zeros((m, len(pairs)))]) if m else None,
        b_ub=model.signs * model.capacities if m else None,
        A_eq=A_eq,
        b_eq=np.concatenate([np.zeros(S), model.initial]),
    )
    return -answer.fun if answer.status == 0 else None


# ------------------------------------------------------------------------------- the cases


@pytest.mark.parametrize("solver", GAIN_SOLVERS)
def test_undiscounted_gain(solver):
    model = average([[[1, 0], [0, 1]], [[0.1, 0.9], [0.1, 0.9]]], [[1.0, 0.0], [1.3, 1.3]])
    solution = plan(model, solver=solver)
    assert solution.value == pytest.approx(13 / 11, abs=1e-12)
    assert solution.policy.actions[0] == 1
    assert solution.status is Status.SOLVED
    assert solution.gap < 1e-9


MULTICHAIN = {
    "transitions": [
        [[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]],
        [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]],
        [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]],
    ],
    "rewards": [[0.0, 0.0], [4.0, 1.0], [2.0, 0.5]],
    "costs": [[[0.0, 0.0], [2.0, 0.0], [1.0, 0.0]]],
}


@pytest.mark.parametrize("solver", COST_SOLVERS)
@pytest.mark.parametrize(
    ("capacity", "right"), [(0.2, 1.05), (0.5, 1.5), (1.0, 2.25), (1.5, 3.0), (2.0, 3.0)]
)
def test_multichain_with_a_capacity(solver, capacity, right):
    solution = plan(average(**MULTICHAIN, capacities=[capacity]), solver=solver)
    assert solution.value == pytest.approx(right, abs=1e-9)
    assert solution.costs[0] <= capacity + 1e-9
    assert not solution.statistics["weakly_communicating"]


INFEASIBLE = {
    "transitions": [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]],
    "rewards": [[1.0, 0.0], [0.0, 0.0]],
    "costs": [[[1.0, 0.6], [0.2, 0.2]]],
}


@pytest.mark.parametrize("solver", COST_SOLVERS)
def test_infeasible_says_the_least_cost_its_policy_and_the_shortfall(solver):
    model = average(**INFEASIBLE, capacities=[0.3])
    solution = plan(model, solver=solver)
    assert solution.status is Status.INFEASIBLE
    assert solution.value is None
    least = solution.least_violation
    assert least.costs[0] == pytest.approx(0.4, abs=1e-12)
    assert least.shortfall == pytest.approx(0.1, abs=1e-12)
    assert evaluate(model, least.policy).costs[0] == pytest.approx(0.4, abs=1e-12)
    assert least.weights.sum() == pytest.approx(1.0)
    assert 0.3 < least.certified <= 0.4 + 1e-12
    assert solution.to_json()["least_violation"]["costs"] == {"cost": pytest.approx(0.4)}


@pytest.mark.parametrize("solver", COST_SOLVERS)
@pytest.mark.parametrize(("capacity", "right"), [(0.4, 0.0), (0.5, 1 / 6), (0.7, 0.5), (1.0, 1.0)])
def test_exactly_the_least_cost_is_feasible(solver, capacity, right):
    solution = plan(average(**INFEASIBLE, capacities=[capacity]), solver=solver)
    assert solution.status is Status.SOLVED
    assert solution.value == pytest.approx(right, abs=1e-9)


@pytest.mark.parametrize("solver", COST_SOLVERS)
@pytest.mark.parametrize("capacity", [0.0, 0.25, 0.5, 1.0])
def test_randomisation_beats_every_deterministic_policy(solver, capacity):
    model = average(
        [[[1.0, 0.0], [0.0, 1.0]]] * 2,
        [[2.0, 1.0], [0.0, 0.5]],
        [[[1.0, 0.0], [0.0, 0.0]]],
        [capacity],
        initial=[1, 0],
    )
    solution = plan(model, solver=solver)
    assert solution.value == pytest.approx(0.5 + 1.5 * capacity, abs=1e-9)
    assert solution.statistics["stationary"]  # there is one, so it is returned
    if 0.0 < capacity < 1.0:
        assert solution.multipliers[0] == pytest.approx(1.5, abs=1e-9)
        best = max(
            value
            for value, costs in (
                evaluate(model, DeterministicPolicy(np.array(actions)))
                for actions in itertools.product(range(2), repeat=2)
            )
            if costs[0] <= capacity
        )
        assert best == pytest.approx(0.5)


@pytest.mark.parametrize(("capacity", "right"), [(3.0, 1.0), (0.3, 0.37)])
def test_a_capacity_of_the_average_criterion_is_per_step(capacity, right):
    model = average(
        [[[1.0, 0.0], [0.0, 1.0]]] * 2,
        [[0.0, 0.0], [0.2, 1.0]],
        [[[0.0, 0.0], [0.0, 1.0]]],
        [capacity],
    )
    assert plan(model).value == pytest.approx(right, abs=1e-9)


def test_equal_gains_are_certified_however_slow_the_way():
    """Nine absorbing cells of one gain; a careful policy wanders for millions of steps."""
    solution = plan(mars_rover().replace(criterion="average", capacities=[0.3]))
    assert solution.status is Status.SOLVED
    assert solution.value == pytest.approx(1 / 30, abs=1e-12)
    assert solution.gap <= 1e-12


# --------------------------------------------------------- switching, periods, slow mixing


@pytest.mark.parametrize("solver", COST_SOLVERS)
def test_an_optimum_that_must_switch_is_a_mixture_and_says_so(solver):
    # stay for 1 a step at cost 1, or leave for ever for nothing: a stationary policy that leaves
    # with any chance leaves surely
    model = average(
        [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0]] * 2],
        [[1.0, 0.0], [0.0, 0.0]],
        [[[1.0, 0.0], [0.0, 0.0]]],
        [0.5],
    )
    solution = plan(model, solver=solver)
    assert solution.status is Status.SOLVED
    assert isinstance(solution.policy, MixturePolicy)
    assert not solution.statistics["stationary"]
    assert "switches once" in solution.statistics["must_switch"]
    value, costs = evaluate(model, solution.policy)
    assert (value, costs[0]) == (pytest.approx(0.5), pytest.approx(0.5))
    for stay in (0.0, 0.5, 0.99, 1.0):
        table = np.array([[stay, 1 - stay], [0.5, 0.5]])
        assert evaluate(model, StochasticPolicy(table)).value == (1.0 if stay == 1.0 else 0.0)


@pytest.mark.parametrize("solver", GAIN_SOLVERS)
def test_periodic_models_get_their_right_gain(solver):
    # action 0 goes round the ring of 5; action 1 bounces between neighbours, with period 2
    ring = np.zeros((5, 2, 5))
    for s in range(5):
        ring[s, 0, (s + 1) % 5] = 1.0
        ring[s, 1, (s - 1) % 5] = 1.0
    rewards = np.zeros((5, 2))
    rewards[0, 0], rewards[4, 0], rewards[1, 1] = 1.0, 3.0, 1.5
    solution = plan(average(ring, rewards), solver=solver)
    # best cycle: 4 -> 0 -> 4 pays 3 / 2, which has period 2; the whole ring pays 4 / 5
    assert solution.value == pytest.approx(1.5, abs=1e-9)
    assert solution.status is Status.SOLVED
    around = evaluate(average(ring, rewards), DeterministicPolicy(np.zeros(5, dtype=int)))
    assert around.value == pytest.approx(0.8, abs=1e-14)


def slow_model(eps):
    """Two halves that meet once in 1/eps steps; gains are known in closed form."""
    table = np.zeros((4, 2, 4))
    table[0, :, 1], table[2, :, 3] = 1.0, 1.0
    table[1, :, 0], table[3, :, 2] = 1.0, 1.0
    table[1, 0, 0], table[1, 0, 2] = 1 - eps, eps
    table[1, 1, 0], table[1, 1, 2] = 1 - 2 * eps, 2 * eps
    table[3, :, 2], table[3, :, 0] = 1 - 3 * eps, 3 * eps
    rewards = np.array([[1.0, 1.0], [1.0, 1.0], [5.0, 5.0], [5.0, 5.0]])
    return average(table, rewards)


@pytest.mark.parametrize("eps", [1e-3, 1e-9, 1e-12])
def test_gains_stay_right_when_mixing_takes_1e9_steps(eps):
    # leaving the poor half at rate 2 eps, the rich half at 3 eps: 2/5 of the time is rich
    solution = plan(slow_model(eps), solver="policy-iteration")
    assert solution.value == pytest.approx((3 * 1.0 + 2 * 5.0) / 5, abs=1e-12)
    assert solution.status is Status.SOLVED
    assert solution.lower_bound <= 2.6 + 1e-12
    assert solution.upper_bound >= 2.6 - 1e-12


@pytest.mark.parametrize("solver", GAIN_SOLVERS)
@pytest.mark.parametrize(("slow", "more"), [(1e-9, 6e-7), (1e-12, 6e-4), (1e-15, 0.6)])
def test_a_small_choice_is_seen_however_slow_mixing_is(solver, slow, more):
    # 3/4 of the time in state 0 for 1 a step, 1/4 in state 1, where `more` can be had or not
    table = np.zeros((2, 2, 2))
    table[0], table[1] = [1 - slow, slow], [3 * slow, 1 - 3 * slow]
    model = average(table, [[1.0, 1.0], [0.0, more]])
    solution = plan(model, solver=solver, **LIMITED.get(solver, {}))
    assert solution.value == pytest.approx(0.75 + 0.25 * more, abs=1e-15)
    assert solution.status is Status.SOLVED
    assert solution.gap < 1e-13
    assert solution.lower_bound <= solution.value <= solution.upper_bound


def blocks_model(seed, slowest):
    """Fast blocks, some of them periodic, that meet once in up to `slowest` steps.

    Kind 0 communicates; in the others blocks lead one way only, so several end components remain.
    """
    rng = np.random.default_rng(seed)
    kind, blocks, size = seed % 3, int(rng.integers(2, 4)), int(rng.integers(1, 3))
    states = blocks * size
    block = np.arange(states) // size
    table = np.zeros((states, 2, states))
    for s, a in itertools.product(range(states), range(2)):
        if rng.random() < 0.5:
            table[s, a, block[s] * size + (s + 1) % size] = 1.0
        else:
            table[s, a, block == block[s]] = rng.dirichlet(np.ones(size))
        others = np.flatnonzero(block > block[s] if kind else block != block[s])
        if others.size and (rng.random() < 0.6 or s % size == 0):
            leave = 10.0 ** -rng.uniform(2, np.log10(slowest))
            table[s, a] *= 1 - leave
            table[s, a, rng.choice(others)] += leave
    rewards = rng.normal(size=(states, 2)) * rng.choice([1.0, 1e-3, 1e-6], size=(states, 2))
    return average(
        table / table.sum(axis=2, keepdims=True),
        rewards + rng.normal(size=blocks)[block][:, None],
        initial=rng.dirichlet(np.ones(states)),
    )


def test_bounds_hold_in_fractions_and_solved_is_right_however_slow_mixing_is():
    solved = 0
    for seed in range(30):
        model = blocks_model(seed, 1e17)
        exact = best_gain(model)
        for solver in GAIN_SOLVERS:
            solution = plan(model, solver=solver, **LIMITED.get(solver, {}))
            bounds = Fraction(solution.lower_bound), Fraction(solution.upper_bound)
            assert bounds[0] <= exact <= bounds[1], (seed, solver)
            if solution.status is Status.SOLVED:
                assert abs(Fraction(solution.value) - exact) <= 1e-9, (seed, solver)
                assert solution.gap <= 1e-9
            solved += solution.status is Status.SOLVED
    assert solved > 0.8 * 3 * 30


def test_constrained_optima_in_fractions_where_mixing_is_slow():
    rng = np.random.default_rng(3)
    checked = 0
    for seed in range(24):
        model = blocks_model(seed, 1e15)
        if model.num_states > 4:
            continue
        costs = rng.random((1, *model.rewards.shape))
        model = model.replace(costs=costs, capacities=[rng.uniform(0.3, 0.7)])
        points = list(zip(every_gain(model, model.rewards), every_gain(model, costs[0])))
        limit = Fraction(float(model.capacities[0]))
        kept = [point for point in points if point[1] <= limit]
        best = max((gain for gain, _ in kept), default=None)
        for (gain, cost), (more, above) in itertools.product(kept, points):
            if above > limit:  # the mixture of two policies that costs the capacity
                best = max(best, gain + (more - gain) * (limit - cost) / (above - cost))
        for solver in ("lp", "policy-iteration"):
            solution = plan(model, solver=solver)
            if best is None:
                assert solution.status is Status.INFEASIBLE, (seed, solver)
                continue
            checked += 1
            assert solution.status is Status.SOLVED, (seed, solver)
            assert solution.value == pytest.approx(float(best), abs=2e-9)
            assert solution.upper_bound >= best
            assert solution.gap <= 1e-9
            assert solution.costs[0] <= model.capacities[0] + 1e-9
    assert checked > 10


def test_a_large_transient_part_that_is_slow_is_certified():
    """600 states between two ends, some million steps on the way; chances known in fractions."""
    size, rng = 602, np.random.default_rng(2)
    table = np.zeros((size, 1, size))
    table[0, 0, 0] = table[-1, 0, -1] = 1.0
    for k in range(1, size - 1):
        up, down = rng.uniform(0.2, 0.5, 2)
        table[k, 0, k - 1 : k + 2] = down, 1.0 - up - down, up
    rewards, initial = np.zeros((size, 1)), np.zeros(size)
    rewards[-1], initial[size // 2] = 1.0, 1.0
    solution = plan(average(table, rewards, initial=initial), solver="policy-iteration")
    steps = [Fraction(1)]
    for k in range(1, size - 1):
        steps.append(steps[-1] * Fraction(table[k, 0, k - 1]) / Fraction(table[k, 0, k + 1]))
    exact = sum(steps[: size // 2]) / sum(steps)
    assert solution.status is Status.SOLVED
    assert Fraction(solution.lower_bound) <= exact <= Fraction(solution.upper_bound)
    assert solution.gap <= 1e-12


@pytest.mark.parametrize("solver", GAIN_SOLVERS)
@pytest.mark.parametrize("slow", [1e-6, 1e-12, 1e-15])
def test_a_choice_between_ends_is_seen_and_certified_however_slow_the_way(solver, slow):
    # states 0 and 1 alternate until one leaks to 2 (gain 1) or 3 (gain 0), 3 or 2 to 1 or 1 to 3
    table = np.zeros((4, 2, 4))
    table[0, :, 1] = 1.0
    table[1, 0] = [1 - 4 * slow, 0.0, slow, 3 * slow]
    table[1, 1] = [1 - 4 * slow, 0.0, 3 * slow, slow]
    table[2, :, 2] = table[3, :, 3] = 1.0
    rewards = np.array([[5.0, 5.0], [5.0, 5.0], [1.0, 1.0], [0.0, 0.0]])
    solution = plan(average(table, rewards, initial=[1.0, 0.0, 0.0, 0.0]), solver=solver)
    assert solution.value == pytest.approx(0.75, abs=1e-14)
    assert solution.status is Status.SOLVED
    assert solution.lower_bound <= 0.75 <= solution.upper_bound


@pytest.mark.parametrize("solver", COST_SOLVERS)
@pytest.mark.parametrize("slow", [1e-9, 1e-12, 1e-15])
def test_a_capacity_where_mixing_is_slow(solver, slow):
    # the shares of time are 3/4 and 1/4 whatever is done: earn 1 at cost 1 in state 0 (x), .5 at
    # cost 1 in state 1; a capacity of 1/2 goes to state 0
    table = np.zeros((2, 2, 2))
    table[0], table[1] = [1 - slow, slow], [3 * slow, 1 - 3 * slow]
    model = average(table, [[1.0, 0.0], [0.0, 0.5]], [[[1.0, 0.0], [0.0, 1.0]]], [0.5])
    solution = plan(model, solver=solver, **LIMITED.get(solver, {}))
    assert solution.lower_bound <= 0.5 + 1e-9
    assert solution.upper_bound >= 0.5
    assert solution.status is Status.SOLVED
    assert solution.value == pytest.approx(0.5, abs=1e-9)


def test_value_iteration_that_runs_out_of_sweeps_says_so_and_its_bounds_hold():
    model = average([[[1, 0], [0, 1]], [[0.1, 0.9], [0.1, 0.9]]], [[1.0, 0.0], [1.3, 1.3]])
    solution = plan(model, solver="value-iteration", max_sweeps=1)
    assert solution.status is Status.NOT_CONVERGED
    assert solution.lower_bound <= 13 / 11 <= solution.upper_bound
    assert solution.gap > 1e-3


# ----------------------------------------------------------------- random models, three ways


def test_300_random_models_three_ways_and_a_textbook_program():
    several = 0
    for seed in range(300):
        model = random_stationary(seed)
        scale = max(1.0, np.abs(model.rewards).max())
        found = [plan(model, solver=solver) for solver in GAIN_SOLVERS]
        for solution in found:
            assert solution.status is Status.SOLVED, (seed, solution.solver)
            assert abs(solution.value - found[0].value) <= 1e-8 * scale, (seed, solution.solver)
            assert solution.gap <= 1e-9 * scale
            assert solution.upper_bound >= found[0].value - 1e-12 * scale
            if seed % 5 == 0:
                assert evaluate(model, solution.policy).value == pytest.approx(solution.value)
        assert np.abs(found[0].state_values - found[1].state_values).max() <= 1e-8 * scale
        several += found[0].statistics["end_components"] > 1
        if seed % 5 == 1:
            assert found[0].value == pytest.approx(textbook(model), abs=1e-7 * scale)
    assert several > 20


def test_multichain_gains_against_brute_force_over_deterministic_policies():
    several = 0
    for seed in range(1, 80, 3):
        model = random_stationary(seed)
        if np.prod(model.available.sum(axis=1).astype(float)) > 300:
            continue
        states = np.arange(model.num_states)
        best = np.full(model.num_states, -np.inf)
        for actions in itertools.product(*(np.flatnonzero(row) for row in model.available)):
            chain = model.dense()[states, list(actions)]
            best = np.maximum(best, limit_of(chain) @ model.rewards[states, list(actions)])
        for solver in GAIN_SOLVERS:
            found = plan(model, solver=solver)
            assert np.abs(found.state_values - best).max() <= 1e-7 * max(1, np.abs(best).max())
        several += not is_weakly_communicating(model)
    assert several >= 3


def test_constrained_random_models_against_the_textbook_program():
    counts = {Status.SOLVED: 0, Status.INFEASIBLE: 0}
    switching = 0
    for seed in range(60):
        model = random_stationary(seed, m=1 + seed % 2)
        exact = textbook(model)
        scale = max(1.0, np.abs(model.rewards).max())
        for solver in COST_SOLVERS if seed % 4 == 0 else ("policy-iteration", "lp"):
            solution = plan(model, solver=solver)
            counts[solution.status] += 1
            if exact is None:
                assert solution.status is Status.INFEASIBLE, (seed, solver)
                least = solution.least_violation
                assert least.certified > (least.weights * model.signs) @ model.capacities
                continue
            assert solution.status is Status.SOLVED, (seed, solver)
            assert solution.value == pytest.approx(exact, abs=1e-7 * scale), (seed, solver)
            assert solution.upper_bound >= exact - 1e-7 * scale
            excess = model.signs * (solution.costs - model.capacities)
            assert excess.max() <= 1e-8
            again = evaluate(model, solution.policy)
            assert (again.value, *again.costs) == (solution.value, *solution.costs)
            assert (solution.multipliers >= 0).all()
            switching += isinstance(solution.policy, MixturePolicy)
            if isinstance(solution.policy, StochasticPolicy):
                off = np.abs(solution.policy.probabilities.sum(axis=1) - 1.0).max()
                assert off <= 1e-12
    assert counts[Status.INFEASIBLE] > 10
    assert counts[Status.SOLVED] > 40
    assert switching > 0


def test_a_ring_has_no_solver_dust():
    # 40 states in a ring; moving on is rewarded and costly in places, with a little drift back
    rng = np.random.default_rng(40)
    ring = np.zeros((40, 2, 40))
    for s in range(40):
        ring[s, 0, [(s + 1) % 40, (s - 1) % 40]] = 0.9, 0.1
        ring[s, 1, [s, (s + 1) % 40]] = 0.8, 0.2
    model = average(ring, rng.random((40, 2)), rng.random((1, 40, 2)), [0.3])
    found = [plan(model, solver=solver) for solver in COST_SOLVERS]
    exact = textbook(model)
    for solution in found:
        assert solution.status is Status.SOLVED
        assert solution.value == pytest.approx(exact, abs=1e-8)
        assert solution.value <= found[0].upper_bound + 1e-12
        assert solution.costs[0] <= 0.3 + 1e-9
        assert evaluate(model, solution.policy).value == solution.value
        assert np.abs(solution.policy.probabilities.sum(axis=1) - 1.0).max() <= 1e-12
        assert (solution.policy.probabilities >= 0).all()


def test_multipliers_are_the_slope_of_the_optimum():
    for seed in (0, 3, 6, 9, 12, 15):
        model = random_stationary(seed, m=2)
        solution = plan(model)
        if solution.status is not Status.SOLVED:
            continue
        step = 1e-6
        for i in range(2):
            nearby = []
            for sign in (-1, 1):
                capacities = model.capacities.copy()
                capacities[i] += sign * step * model.signs[i]  # looser for +1
                nearby.append(plan(model.replace(capacities=capacities)).value)
            if None in nearby:
                continue
            left, right = (
                (solution.value - nearby[0]) / step,
                (nearby[1] - solution.value) / step,
            )
            assert right - 1e-4 <= solution.multipliers[i] <= left + 1e-4


# --------------------------------------------------------------------------- properties


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), shift=st.floats(-5, 5), swap=st.randoms(use_true_random=False))
def test_shift_and_relabelling(seed, shift, swap):
    model = random_stationary(seed)
    solution = plan(model)
    moved = plan(model.replace(rewards=np.where(model.available, model.rewards + shift, 0.0)))
    scale = max(1.0, np.abs(model.rewards).max())
    assert moved.value == pytest.approx(solution.value + shift, abs=1e-9 * scale)
    assert np.abs(moved.state_values - solution.state_values - shift).max() <= 1e-8 * scale
    order = list(range(model.num_states))
    swap.shuffle(order)
    named = average(
        model.dense()[order][:, :, order],
        model.rewards[order],
        available=model.available[order],
        initial=model.initial[order],
    )
    assert plan(named).value == pytest.approx(solution.value, abs=1e-9 * scale)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_frequencies_balance_and_pay_the_value(seed):
    model = random_stationary(seed, m=1)
    rng = np.random.default_rng(seed)
    table = rng.random(model.available.shape) * model.available
    policy = StochasticPolicy(table / table.sum(axis=1, keepdims=True))
    shares, passing = frequencies(model, policy)
    assert shares.sum() == pytest.approx(1.0, abs=1e-10)
    flow = shares.sum(axis=1) - np.einsum("sa,sat->t", shares, model.dense())
    assert np.abs(flow).max() < 1e-10
    second = (
        shares.sum(axis=1)
        + passing.sum(axis=1)
        - np.einsum("sa,sat->t", passing, model.dense())
        - model.initial
    )
    # mass that reaches a class does not arrive in its stationary law: sums over classes agree
    assert abs(second.sum()) < 1e-9
    value, costs = evaluate(model, policy)
    assert value == pytest.approx((shares * model.rewards).sum(), abs=1e-9 * (1 + abs(value)))
    assert costs[0] == pytest.approx((shares * model.costs[0]).sum(), abs=1e-9)


def test_bias_solves_the_optimality_equation_of_weakly_communicating_models():
    checked = 0
    for seed in range(36):
        model = random_stationary(seed)
        if not is_weakly_communicating(model):
            continue
        checked += 1
        solution = plan(model)
        ahead = model.rewards + model.dense() @ solution.bias
        best = np.where(model.available, ahead, -np.inf).max(axis=1)
        scale = max(1.0, np.abs(model.rewards).max())
        assert np.abs(best - solution.bias - solution.state_values).max() <= 1e-8 * scale
        chain, pays = policy_chain(model, solution.policy)
        gain, bias = gain_and_bias(chain, pays[:, 0])
        assert span(gain) <= 1e-9 * scale
        assert np.array_equal(bias, solution.bias)
        if is_unichain(model):
            assert span(state_values(model, solution.policy)[:, 0]) <= 1e-9 * scale
    assert checked > 12


def test_bad_input():
    model = random_stationary(0)
    with pytest.raises(ConfigError, match="solver for average models must be one of"):
        plan(model, solver="simplex")
    staged = DeterministicPolicy(np.zeros((3, model.num_states), dtype=int))
    with pytest.raises(ModelError, match="policy has shape"):
        evaluate(model, staged)


@pytest.mark.parametrize("criterion", ["average", "discounted", "total"])
@pytest.mark.parametrize("tolerance", [-1.0, np.nan, np.inf, 1.0])
def test_a_tolerance_that_is_no_relative_gap_is_refused(criterion, tolerance):
    extra = {"discount": 0.9} if criterion == "discounted" else {}
    model = FiniteMDP(transitions=[[[1.0]]], rewards=[[0.0]], criterion=criterion, **extra)
    with pytest.raises(ConfigError, match="expected 0 <= tolerance < 1"):
        plan(model, tolerance=tolerance)
    if criterion != "total":
        with pytest.raises(ConfigError, match="max_sweeps must be at least 1"):
            plan(model, max_sweeps=0)
