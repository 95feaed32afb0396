"""The discounted criterion: certified values, constraints, and discounts next to one."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog
from tests.planning.exact_gains import solve
from tests.random_models import random_stationary

from tightrope import FiniteMDP
from tightrope.errors import ConfigError, ModelError, Status
from tightrope.model.policy import MixturePolicy, StochasticPolicy
from tightrope.planning import average, constrained, evaluate, plan
from tightrope.planning.criteria import discounted_visits, state_values

SOLVERS = ("policy-iteration", "value-iteration", "lp")
TWO_STATES = [[[0.6, 0.4], [0.3, 0.7]], [[0.1, 0.9], [0.2, 0.8]]]  # (A, S, S)


def discounted(transitions, rewards, discount, axes="sas", **extra):
    return FiniteMDP(
        transitions=transitions,
        rewards=rewards,
        criterion="discounted",
        discount=discount,
        axes=axes,
        **extra,
    )


def textbook(model):
    """The visit program on dense arrays; None if infeasible."""
    pairs = np.argwhere(model.available)
    dense = model.dense()[pairs[:, 0], pairs[:, 1]]
    out = np.eye(model.num_states)[pairs[:, 0]]
    costs = model.signs[:, None] * model.costs[:, pairs[:, 0], pairs[:, 1]]
    answer = linprog(
        -model.rewards[pairs[:, 0], pairs[:, 1]],
        A_ub=costs if model.num_costs else None,
        b_ub=model.signs * model.capacities if model.num_costs else None,
        A_eq=(out - model.criterion.discount * dense).T,
        b_eq=model.initial,
    )
    return -answer.fun if answer.status == 0 else None


@pytest.mark.parametrize("solver", SOLVERS)
def test_values_are_inside_a_certified_bound(solver):
    model = discounted(TWO_STATES, [[4.0, 9.0], [-2.0, 1.0]], 0.99, axes="ass")
    solution = plan(model, solver=solver)
    assert solution.state_values == pytest.approx([251.4103730664, 244.1310282075], abs=1e-6)
    assert solution.policy.actions.tolist() == [1, 1]
    assert solution.gap < 1e-9


@pytest.mark.parametrize("solver", SOLVERS)
def test_constant_rewards_are_no_special_case(solver):
    solution = plan(discounted(TWO_STATES, [[2, 2], [2, 2]], 0.9, axes="ass"), solver=solver)
    assert solution.state_values == pytest.approx([20.0, 20.0], abs=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
def test_values_may_be_negative(solver):
    solution = plan(discounted([[[0, 1.0]], [[0, 1.0]]], [[-3.0], [-2.0]], 0.9), solver=solver)
    assert solution.state_values == pytest.approx([-21.0, -20.0], abs=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
def test_actions_that_do_not_exist_are_masked_not_filled(solver):
    model = discounted(
        [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]],
        [[-1.0, -3.0], [1.0, 0.0]],
        0.9,
        available=[[True, True], [True, False]],
    )
    assert plan(model, solver=solver).value == pytest.approx(-10.0, abs=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("capacity", "right"),
    [(3.0, 3.6315789473684212), (30.0, 9.0), (0.3, 1.2157894736842105)],
)
def test_what_a_capacity_means(solver, capacity, right):
    # 30 is the capacity 3 of the (1 - discount)-normalised convention: conversions are explicit
    model = discounted(
        [[[1.0, 0.0], [0.0, 1.0]]] * 2,
        [[0.0, 0.0], [0.2, 1.0]],
        0.9,
        costs=[[[0.0, 0.0], [0.0, 1.0]]],
        capacities=[capacity],
    )
    solution = plan(model, solver=solver)
    assert solution.value == pytest.approx(right, abs=1e-7)
    assert solution.costs[0] <= capacity + 1e-9


def test_discount_one_is_refused_with_a_pointer():
    with pytest.raises(ModelError, match=r"Average\(\).*Total\(\)"):
        discounted(TWO_STATES, [[0, 0], [0, 0]], 1.0, axes="ass")


def test_unknown_solver():
    with pytest.raises(ConfigError, match="solver for discounted models"):
        plan(discounted(TWO_STATES, [[0, 0], [0, 0]], 0.5, axes="ass"), solver="simplex")


def test_value_iteration_that_runs_out_of_sweeps_says_so_and_its_bounds_hold():
    # the greedy policy of one sweep takes the small payment at once
    model = discounted([[[1, 0], [0, 1]], [[0, 1], [0, 1]]], [[1.0, 0.0], [5.0, 5.0]], 0.9)
    solution = plan(model, solver="value-iteration", max_sweeps=1)
    assert solution.status is Status.NOT_CONVERGED
    assert solution.lower_bound <= 45.0 <= solution.upper_bound
    assert plan(model, solver="value-iteration").value == pytest.approx(45.0)


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.99, 1 - 1e-6])
def test_random_models_three_ways(discount):
    # next to 1, sweeps settle only where the chain mixes: then value iteration is left out
    solvers = SOLVERS if discount <= 0.99 else ("policy-iteration", "lp")
    for seed in range(40):
        model = random_stationary(seed, "discounted", discount=discount)
        found = [plan(model, solver=solver) for solver in solvers]
        scale = max(1.0, np.abs(found[0].state_values).max())
        for solution in found:
            assert solution.status is Status.SOLVED, (seed, solution.solver)
            assert np.abs(solution.state_values - found[0].state_values).max() <= 1e-8 * scale
        if discount <= 0.99 and seed % 4 == 0:
            assert found[0].value == pytest.approx(textbook(model), abs=1e-7 * scale)


def test_constrained_random_models_against_the_textbook_program():
    counts = {Status.SOLVED: 0, Status.INFEASIBLE: 0}
    for seed in range(60):
        model = random_stationary(seed, "discounted", discount=0.9, m=1 + seed % 2)
        exact = textbook(model)
        for solver in SOLVERS if seed % 3 == 0 else ("policy-iteration", "lp"):
            solution = plan(model, solver=solver)
            counts[solution.status] += 1
            if exact is None:
                assert solution.status is Status.INFEASIBLE
                least = solution.least_violation
                assert least.certified > (least.weights * model.signs) @ model.capacities
                continue
            scale = max(1.0, np.abs(model.rewards).max() * 10)
            assert solution.value == pytest.approx(exact, abs=1e-8 * scale), (seed, solver)
            assert (model.signs * (solution.costs - model.capacities)).max() <= 1e-7
            assert not isinstance(solution.policy, MixturePolicy)  # stationary policies suffice
            assert solution.gap <= 1e-8
    assert counts[Status.INFEASIBLE] > 5
    assert counts[Status.SOLVED] > 40


def test_visits_and_values_agree():
    for seed in range(20):
        model = random_stationary(seed, "discounted", discount=0.95, m=1)
        rng = np.random.default_rng(seed)
        table = rng.random(model.available.shape) * model.available
        policy = StochasticPolicy(table / table.sum(axis=1, keepdims=True))
        visits = discounted_visits(model, policy)
        assert visits.sum() == pytest.approx(20.0, rel=1e-12)
        value, costs = evaluate(model, policy)
        assert value == pytest.approx((visits * model.rewards).sum(), rel=1e-9, abs=1e-9)
        assert costs[0] == pytest.approx((visits * model.costs[0]).sum(), rel=1e-9, abs=1e-9)
        every = state_values(model, policy)
        step = np.einsum("sa,sat->st", policy.probabilities, model.dense())
        pays = (policy.probabilities * model.rewards).sum(axis=1)
        assert every[:, 0] == pytest.approx(pays + 0.95 * step @ every[:, 0], abs=1e-9)


def ring(size, discount, criterion="discounted"):
    """Neighbours only, so that information travels slowly."""
    rng = np.random.default_rng(5)
    moves = np.zeros((size, 2, size))
    for s in range(size):
        for a in range(2):
            moves[s, a, [(s - 1) % size, s, (s + 1) % size]] = rng.dirichlet(np.ones(3))
    return FiniteMDP(
        transitions=moves,
        axes="sas",
        rewards=rng.random((size, 2)),
        criterion=criterion,
        discount=discount,
    )


@pytest.mark.parametrize("discount", [0.999, 1 - 1e-6, 1 - 1e-9])
def test_near_one_nothing_stops_unconverged(discount, monkeypatch):
    """400 states, which 'auto' gives to value iteration; the gain is approached at the end."""
    model = ring(400, discount)
    found = plan(model)
    assert found.status.value == "solved"
    assert found.gap <= 1e-11
    monkeypatch.setattr(average, "HYBRID_PRODUCTS", 1)  # 1,000 sweeps, not enough
    again = plan(model)
    assert again.status.value == "solved"
    np.testing.assert_allclose(again.value, found.value, rtol=1e-11)
    assert again.solver == "value-iteration, policy-iteration"
    assert again.statistics["policy_iterations"] >= 1
    cut = plan(model, solver="value-iteration", max_sweeps=30)
    assert cut.status.value == "not_converged"
    assert cut.lower_bound <= found.value <= cut.upper_bound
    gain = plan(ring(400, None, "average")).value
    if discount > 0.999:
        np.testing.assert_allclose((1 - discount) * found.value, gain, rtol=5e3 * (1 - discount))


def test_average_goes_on_with_policy_iteration(monkeypatch):
    model = ring(400, None, "average")
    found = plan(model)
    monkeypatch.setattr(average, "HYBRID_PRODUCTS", 1)
    again = plan(model)
    assert again.status.value == "solved"
    assert again.solver == "value-iteration, policy-iteration"
    np.testing.assert_allclose(again.value, found.value, atol=1e-9)
    assert plan(model, solver="value-iteration", max_sweeps=30).status.value == "not_converged"


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("slow", [1e-3, 1e-9, 1e-12])
def test_bounds_hold_in_fractions_where_mixing_and_discounting_are_slow(solver, slow):
    """Two states that hardly meet, discount 1 - slow (nearly): values are known in fractions."""
    discount = 1.0 - slow
    table = np.zeros((2, 2, 2))
    table[0], table[1] = [1 - slow, slow], [3 * slow, 1 - 3 * slow]
    model = discounted(table, [[1.0, 1.0], [0.0, 1e-3]], discount, axes="sas", initial=[1.0, 0.0])
    solution = plan(model, solver=solver, **({"max_sweeps": 500} if "value" in solver else {}))
    gamma, up, down = Fraction(discount), Fraction(table[0, 0, 1]), Fraction(table[1, 0, 0])
    first, second = Fraction(1), Fraction(1e-3)
    # (1 - gamma + gamma up) v0 - gamma up v1 = first, and the like for state 1
    a, b = 1 - gamma + gamma * up, 1 - gamma + gamma * down
    exact = (first * b + gamma * up * second) / (a * b - gamma * up * gamma * down)
    assert Fraction(solution.lower_bound) <= exact <= Fraction(solution.upper_bound)
    if solver == "policy-iteration":
        assert solution.status is Status.SOLVED
        assert solution.value == pytest.approx(float(exact), rel=1e-12)


def exact_points(model):
    """(reward, cost) of every deterministic policy in fractions; a row's diagonal is the rest."""
    gamma, table = Fraction(model.criterion.discount), model.dense()
    states = range(model.num_states)
    for actions in itertools.product(range(model.num_actions), repeat=model.num_states):
        rows = [[Fraction(float(x)) for x in table[s, actions[s]]] for s in states]
        for s, row in enumerate(rows):
            row[s] = 1 - sum(x for j, x in enumerate(row) if j != s)
        system = [[(s == j) - gamma * rows[s][j] for j in states] for s in states]
        pays = (
            [Fraction(float(x[s, actions[s]])) for s in states]
            for x in (model.rewards, model.costs[0])
        )
        start = [Fraction(float(x)) for x in model.initial]
        yield tuple(sum(x * v for x, v in zip(start, solve(system, right))) for right in pays)


def exact_optimum(points, capacity):
    """The best mixture of two of the points (reward, cost) that keeps the capacity."""
    best = [v for v, u in points if u <= capacity]
    for (v, u), (w, x) in itertools.product(points, repeat=2):
        if u <= capacity < x:
            best.append(v + (w - v) * (capacity - u) / (x - u))
    return max(best)


def small_constrained(seed):
    """Three states, two actions, one capacity: the model, and its optimum in fractions."""
    rng = np.random.default_rng(seed)
    table = 10.0 ** -rng.integers(0, (1, 8)[seed % 2], (3, 2, 3)) * rng.uniform(0.5, 1, (3, 2, 3))
    parts = dict(
        transitions=table / table.sum(axis=2, keepdims=True),
        rewards=rng.uniform(-1, 1, (3, 2)),
        discount=(0.5, 0.9, 0.999, 1 - 1e-6)[seed % 4],
        initial=rng.dirichlet(np.ones(3)),
        costs=rng.uniform(0, 1, (1, 3, 2)),
    )
    points = list(exact_points(discounted(**parts, capacities=[1.0])))
    low, high = (f(u for _, u in points) for f in (min, max))
    capacity = float(low + (high - low) * Fraction(rng.uniform(0.05, 0.9)))
    return discounted(**parts, capacities=[capacity]), exact_optimum(points, Fraction(capacity))


@pytest.mark.parametrize("solver", ["auto", "lp", "policy-iteration"])
def test_constrained_upper_bounds_hold_in_fractions(solver):
    for seed in range(24):
        model, best = small_constrained(seed)
        solution = plan(model, solver=solver)
        assert solution.status is Status.SOLVED, seed
        assert Fraction(solution.upper_bound) >= best, seed
        assert solution.gap <= 1e-9, seed


def test_an_excess_over_a_capacity_is_paid_for_in_the_lower_bound():
    """Rewards per unit of cost of 1000, and a policy 5e-10 over the capacity."""
    model = discounted(
        [[[1.0, 0.0], [0.0, 1.0]]] * 2,
        [[0.0, 0.0], [0.0, 1000.0]],
        0.5,
        costs=[[[0.0, 0.0], [0.0, 1.0]]],
        capacities=[0.5],
        initial=[0.0, 1.0],
    )
    exact = plan(model)
    table = exact.policy.probabilities.copy()
    table[1] += [-2e-10, 2e-10]
    over = constrained._answer(
        model,
        Status.SOLVED,
        "lp",
        StochasticPolicy(table),
        exact.multipliers,
        exact.upper_bound,
        0.0,
        {},
    )
    assert over.statistics["largest_excess"] > 1e-10
    assert over.value > exact.value + 1e-7
    assert over.lower_bound == pytest.approx(exact.value, abs=1e-9)
