"""The total criterion: policies that end, endless costs, round trips that pay."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from tightrope import FiniteMDP
from tightrope.errors import ConfigError, ModelError, Status
from tightrope.model.policy import DeterministicPolicy, MixturePolicy, StochasticPolicy
from tightrope.planning import evaluate, plan

SOLVERS = ("policy-iteration", "lp")
COST_SOLVERS = ("lp", "column-generation")


def total(transitions, rewards, **extra):
    return FiniteMDP(
        transitions=transitions, rewards=rewards, criterion="total", axes="sas", **extra
    )


def steps(*heads):
    """Deterministic transitions (S, A, S) from next states."""
    return np.eye(len(heads))[np.array(heads)]


TRAP = steps([1, 2], [1, 1], [2, 2])  # goal 1, trap 2


def trap(capacity):
    return total(
        TRAP,
        [[1.0, 5.0], [0.0, 0.0], [0.0, 0.0]],
        costs=[[[4.0, 0.0], [0.0, 0.0], [1.0, 1.0]]],
        capacities=[capacity],
        state_names=["start", "goal", "trap"],
    )


@pytest.mark.parametrize("solver", COST_SOLVERS)
def test_an_endless_cost_is_not_forgotten(solver):
    solution = plan(trap(4.0), solver=solver)
    assert solution.value == pytest.approx(1.0, abs=1e-9)
    assert solution.costs[0] == pytest.approx(4.0)


@pytest.mark.parametrize("solver", COST_SOLVERS)
def test_an_endless_cost_is_infeasible_below_the_least_cost(solver):
    solution = plan(trap(3.0), solver=solver)
    assert solution.status is Status.INFEASIBLE
    assert solution.least_violation.costs[0] == pytest.approx(4.0)
    assert solution.least_violation.shortfall == pytest.approx(1.0)


def test_evaluating_a_policy_that_never_ends_names_the_state():
    with pytest.raises(ModelError, match=r"state trap .* costs 'cost' of 1"):
        evaluate(trap(4.0), DeterministicPolicy(np.array([1, 0, 0])))
    # the trap exists, but this policy does not enter it
    assert evaluate(trap(4.0), DeterministicPolicy(np.array([0, 0, 0]))).value == 1.0


def test_a_start_that_cannot_end_is_named():
    model = total(TRAP, [[1.0, 5.0], [0, 0], [-1.0, -1.0]], initial=[0.5, 0.0, 0.5])
    with pytest.raises(ModelError, match="from state 2 no policy surely ends"):
        plan(model)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_round_trip_that_pays_is_unbounded(solver):
    model = total(steps([1, 2], [0, 0], [2, 2]), [[2.0, 0.0], [-1.0, -1.0], [0.0, 0.0]])
    solution = plan(model, solver=solver)
    assert solution.status is Status.UNBOUNDED
    assert solution.value is None


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_round_trip_that_pays_out_of_reach_is_no_matter(solver):
    model = total(steps([1, 1], [1, 1], [2, 1]), [[2.0, 1.0], [0, 0], [1.0, 0.0]])
    assert plan(model, solver=solver).value == pytest.approx(2.0)


def test_a_round_trip_that_pays_may_be_limited_by_a_capacity():
    model = total(
        steps([1, 2], [0, 0], [2, 2]),
        [[2.0, 0.0], [-1.0, -1.0], [0.0, 0.0]],
        costs=[[[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]],
        capacities=[7.5],
    )
    solution = plan(model)
    assert solution.value == pytest.approx(7.5)
    assert solution.multipliers[0] == pytest.approx(1.0)
    assert solution.status is Status.SOLVED
    with pytest.raises(ModelError, match="use solver='lp'"):
        plan(model, solver="column-generation")


@pytest.mark.parametrize("solver", SOLVERS)
def test_gamblers_ruin(solver):
    # bet 1 at odds 0.4 until 0 or 10; the reward is paid on reaching 10
    table = np.zeros((11, 1, 11))
    table[0, 0, 0] = table[10, 0, 10] = 1.0
    rewards = np.zeros((11, 1))
    for s in range(1, 10):
        table[s, 0, s + 1], table[s, 0, s - 1] = 0.4, 0.6
    rewards[9, 0] = 0.4
    initial = np.eye(11)[5]
    ratio = 0.6 / 0.4
    solution = plan(total(table, rewards, initial=initial), solver=solver)
    assert solution.value == pytest.approx((ratio**5 - 1) / (ratio**10 - 1), rel=1e-12)


@pytest.mark.parametrize("solver", COST_SOLVERS)
def test_resting_or_leaving_cannot_be_mixed_by_one_stationary_policy(solver):
    model = total(
        steps([0, 1], [1, 1]),
        [[0.0, 1.0], [0.0, 0.0]],
        costs=[[[0.0, 1.0], [0.0, 0.0]]],
        capacities=[0.5],
    )
    solution = plan(model, solver=solver)
    assert solution.value == pytest.approx(0.5)
    assert solution.costs[0] == pytest.approx(0.5)
    assert isinstance(solution.policy, MixturePolicy)
    assert solution.statistics["must_switch"]
    half = StochasticPolicy(np.array([[0.5, 0.5], [1.0, 0.0]]))
    assert evaluate(model, half).value == 1.0


def random_total(seed, m=0):
    """Sparse transitions to an absorbing goal, rewards mostly negative, some resting places."""
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(2, 6)), 2
    table = np.zeros((S, A, S))
    for s, a in itertools.product(range(S), range(A)):
        heads = rng.choice(S, size=min(S, 2), replace=False)
        table[s, a, heads] = rng.dirichlet(np.ones(heads.size))
    table[-1] = np.eye(S)[-1]
    rewards = -rng.random((S, A)) * rng.integers(0, 2, size=(S, A))
    rewards[0] = rng.normal(size=A)
    rewards[-1] = 0.0
    costs = rng.random((m, S, A)) * rng.integers(0, 2, size=(m, S, A))
    costs[:, -1] = 0.0
    return total(
        table,
        rewards,
        costs=costs if m else None,
        capacities=rng.random(m) * 2 if m else None,
        initial=rng.dirichlet(np.ones(S)),
    )


def test_random_models_against_brute_force():
    outcomes = set()
    for seed in range(40):
        model = random_total(seed)
        best = -np.inf
        for actions in itertools.product(range(2), repeat=model.num_states):
            try:
                value = evaluate(model, DeterministicPolicy(np.array(actions))).value
            except ModelError:
                continue
            best = max(best, value)
        try:
            found = [plan(model, solver=solver) for solver in SOLVERS]
        except ModelError:
            assert best == -np.inf
            outcomes.add("endless")
            continue
        for solution in found:
            assert solution.status is found[0].status, seed
            outcomes.add(solution.status)
            if solution.status is Status.SOLVED:
                assert solution.value == pytest.approx(best, abs=1e-9), seed
                assert best <= solution.upper_bound + 1e-12
                assert solution.gap < 1e-9
    assert outcomes == {"endless", Status.SOLVED, Status.UNBOUNDED}


def textbook(model):
    """Visits to all states but the goal, where the goal is the only resting place."""
    pairs = [(s, a) for s in range(model.num_states - 1) for a in range(2)]
    rows = np.array(pairs)
    dense = model.dense()[rows[:, 0], rows[:, 1]][:, :-1]
    out = np.eye(model.num_states - 1)[rows[:, 0]]
    answer = linprog(
        -model.rewards[rows[:, 0], rows[:, 1]],
        A_ub=model.costs[:, rows[:, 0], rows[:, 1]],
        b_ub=model.capacities,
        A_eq=(out - dense).T,
        b_eq=model.initial[:-1],
    )
    return {0: -answer.fun if answer.fun is not None else None, 2: "infeasible"}.get(answer.status)


def test_constrained_random_models_against_the_textbook_program():
    solved = infeasible = 0
    for seed in range(40):
        model = random_total(seed, m=1)
        body = np.arange(model.num_states)[:, None] < model.num_states - 1
        model = model.replace(rewards=np.where(body, np.minimum(model.rewards, -0.1), 0.0))
        try:
            found = [plan(model, solver=solver) for solver in COST_SOLVERS]
        except ModelError:
            continue
        exact = textbook(model)
        for solution in found:
            if exact == "infeasible":
                assert solution.status is Status.INFEASIBLE, seed
                infeasible += 1
            else:
                assert solution.value == pytest.approx(exact, abs=1e-8), seed
                assert solution.costs[0] <= model.capacities[0] + 1e-8
                solved += 1
    assert solved > 10
    assert infeasible > 5


def test_cliff_walking_and_taxi():
    gymnasium = pytest.importorskip("gymnasium")
    taxi = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"
    for name, right in (("CliffWalking-v1", -13.0), (taxi, 7.93)):
        env = gymnasium.make(name).unwrapped
        size, width = len(env.P), len(env.P[0])
        table, rewards = np.zeros((size + 1, width, size + 1)), np.zeros((size + 1, width))
        table[-1, :, -1] = 1.0  # only the done flag ends an episode
        for s, a in itertools.product(range(size), range(width)):
            for chance, head, reward, done in env.P[s][a]:
                table[s, a, size if done else head] += chance
                rewards[s, a] += chance * reward
        initial = np.append(env.initial_state_distrib, 0.0)
        solution = plan(total(table, rewards, initial=initial))
        assert solution.value == pytest.approx(right, abs=5e-3)
        assert solution.status is Status.SOLVED


def test_unknown_solver():
    with pytest.raises(ConfigError, match="solver for total models"):
        plan(trap(4.0), solver="simplex")
    with pytest.raises(ConfigError, match=r"no value iteration.*the last change bounds nothing"):
        plan(trap(4.0), solver="value-iteration")


def two_costs(loop, leave, capacities, rewards=(0.0, 1.0)):
    """One state with a round trip and an exit; costs of both."""
    moves = np.zeros((2, 2, 2))
    moves[0, 0, 0] = moves[0, 1, 1] = 1.0
    moves[1, :, 1] = 1.0
    costs = np.zeros((2, 2, 2))
    costs[:, 0, 0], costs[:, 0, 1] = loop, leave
    return FiniteMDP(
        transitions=moves,
        axes="sas",
        rewards=[list(rewards), [0.0, 0.0]],
        costs=costs,
        capacities=capacities,
        criterion="total",
    )


@pytest.mark.parametrize(
    ("loop", "leave", "capacities", "shortfall"),
    [
        # n round trips: costs (1 - n, 1 + 2n); none is best
        ((-1, 2), (1, 1), (0.4, 0.4), 0.6),
        # (1 - n, 1 + 3n) against (.9, 1.2): 0.1 - n = 3n - 0.2
        ((-1, 3), (1, 1), (0.9, 1.2), 0.025),
        # (1 - 2n, 1 + n) against (-50, 1.2): 51 - 2n = n - 0.2
        ((-2, 1), (1, 1), (-50, 1.2), 1 - 1.2 + 51.2 / 3),
    ],
)
def test_infeasible_where_round_trips_relieve_one_cost_and_raise_another(
    loop, leave, capacities, shortfall
):
    """No weighting of the costs need have a best response: 'auto' takes the program for it."""
    model = two_costs(loop, leave, capacities)
    found = plan(model)
    assert found.status is Status.INFEASIBLE
    least = found.least_violation
    np.testing.assert_allclose(least.shortfall, shortfall, atol=1e-9)
    np.testing.assert_allclose(evaluate(model, least.policy).costs, least.costs)
    np.testing.assert_allclose(least.weights.sum(), 1.0)
    # the certificate: no weighted cost can come below `certified`, which no capacity allows
    assert least.certified >= least.weights @ np.asarray(capacities) + (1 - 1e-6) * shortfall
    for trips in range(60):
        costs = np.array(leave) + trips * np.array(loop)
        assert least.weights @ costs >= least.certified - 1e-9
