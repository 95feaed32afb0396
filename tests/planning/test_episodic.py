"""Column generation, the whole LP and brute force against each other; published optima."""

import itertools

import numpy as np
import pytest
from tests.random_models import random_episodic

import tightrope as tr
from tightrope.errors import ConfigError, PlanError, Status
from tightrope.kernels import episodic as kernels
from tightrope.model.policy import DeterministicPolicy, check_policy, uniform_policy
from tightrope.planning import column_generation
from tightrope.planning.episodic import signed_tables


@pytest.mark.parametrize("block", range(10))
def test_two_solvers_agree(block):
    infeasible = 0
    for seed in range(50 * block, 50 * block + 50):
        model = random_episodic(seed)
        columns = tr.plan(model, solver="column-generation")
        whole = tr.plan(model, solver="lp")
        assert columns.status == whole.status
        if columns.status is Status.INFEASIBLE:
            infeasible += 1
            for solution in (columns, whole):
                check_certificate(model, solution)
            left, right = columns.least_violation, whole.least_violation
            assert left.shortfall == pytest.approx(right.shortfall, abs=1e-6, rel=1e-6)
            continue
        scale = max(1.0, abs(whole.value))
        assert abs(columns.value - whole.value) <= 1e-7 * scale
        assert columns.gap <= 1e-8
        assert whole.gap <= 1e-7
        excess = model.signs * (columns.costs - model.capacities)
        assert (excess <= 1e-9 * np.maximum(1.0, np.abs(model.capacities))).all()
        assert (columns.multipliers >= 0).all()
        check_policy(columns.policy, model.available, model.horizon)
        check_policy(whole.policy, model.available, model.horizon)
    assert infeasible < 50


@pytest.mark.parametrize(("solver", "decades"), [("column-generation", 9), ("lp", 4)])
@pytest.mark.parametrize("block", range(4))
def test_units_do_not_matter(block, solver, decades):
    """Rewards in billions and costs in billionths, or the other way round: the same plan."""
    for seed in range(20 * block, 20 * block + 20):
        model = random_episodic(seed)
        rng = np.random.default_rng(seed)
        money = 10.0 ** rng.integers(-9, 10)
        units = 10.0 ** rng.integers(-decades, decades + 1, size=model.num_costs)
        scaled = model.replace(
            rewards=model.rewards * money,
            costs=np.array([c * u for c, u in zip(model.costs, units)]) if units.size else None,
            capacities=model.capacities * units if units.size else None,
        )
        plain = tr.plan(model)
        found = tr.plan(scaled, solver=solver)
        assert found.status is plain.status, seed
        if plain.status is Status.INFEASIBLE:
            least = found.least_violation
            assert least.certified > least.weights @ (scaled.signs * scaled.capacities)
            continue
        assert found.gap <= 2e-8
        assert found.value == pytest.approx(plain.value * money, rel=2e-8, abs=2e-8)
        excess = scaled.signs * (found.costs - scaled.capacities) / units
        assert excess.max(initial=0.0) <= 1e-8 * model.horizon


@pytest.mark.parametrize(
    ("rewards", "costs", "capacities", "horizon"),
    [
        ([1e9, 2e8], [[1.0, 0.1]], [0.999], 10),
        ([1e6, 2e5], [[1.0, 0.1]], [3 - 2e-6], 30),
        ([1.0, 0.2], [[1e10, 0.0], [1.0, 0.1]], [1e12, 0.999], 10),
    ],
)
def test_least_cost_is_not_hidden_by_large_rewards(rewards, costs, capacities, horizon):
    """The least cost is a tenth of the horizon, more than the capacity by 1e-6 and more."""
    model = tr.FiniteMDP(
        transitions=np.ones((1, 2, 1)), rewards=[rewards], costs=[[c] for c in costs],
        capacities=capacities, criterion=tr.Episodic(horizon),
    )  # fmt: skip
    for solver in ("column-generation", "lp"):
        solution = tr.plan(model, solver=solver)
        assert solution.status is Status.INFEASIBLE
        assert (solution.lower_bound, solution.upper_bound) == (-np.inf, -np.inf)
        shortfall = horizon / 10 - capacities[-1]
        assert solution.least_violation.shortfall == pytest.approx(shortfall, rel=1e-6)


@pytest.mark.parametrize("excess", [3e-13, 1e-10, 1e-6])
def test_an_infeasible_model_has_no_value_however_small_the_excess(excess):
    model = tr.FiniteMDP(
        transitions=np.ones((1, 1, 1)), rewards=[[1.0]], costs=[[[1.0]]], capacities=[1 - excess],
        criterion=tr.Episodic(1),
    )  # fmt: skip
    solution = tr.plan(model)
    assert solution.status is Status.INFEASIBLE
    assert (solution.value, solution.lower_bound) == (None, -np.inf)


@pytest.mark.parametrize("tolerance", [0.0, -1.0, np.nan, np.inf, "x"])
def test_tolerance_is_checked(tolerance):
    with pytest.raises(ConfigError, match="tolerance must be a number > 0"):
        tr.plan(tr.problems.box(), tolerance=tolerance)


def check_certificate(model, solution):
    """The Farkas weights prove, by one dynamic program of the test's own, that no policy fits."""
    least = solution.least_violation
    assert solution.value is None
    weights = least.weights
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1.0, abs=1e-7)
    tables, limits = signed_tables(model)
    actions = np.empty((model.horizon, model.num_states), dtype=np.int32)
    cheapest = -kernels.best_response(*tables, model.horizon, 0.0, weights, actions)
    assert cheapest > weights @ limits
    assert cheapest - weights @ limits <= least.shortfall + 1e-9
    _value, costs = tr.evaluate(model, least.policy)
    assert (model.signs * (costs - model.capacities)).max() == pytest.approx(least.shortfall)


def test_random_models_include_infeasible_ones():
    statuses = [tr.plan(random_episodic(seed)).status for seed in range(100)]
    assert 5 < statuses.count(Status.INFEASIBLE) < 95


OPTIMA = [
    ("mars_rover", 0.3, 1.53628844, 0.19298178),
    ("mars_rover", 0.2, 1.51699026, None),
    ("mars_rover", 0.1, 1.49741215, None),
    ("box", 0.1, 1.74967662, 0.07823317),
]


@pytest.mark.parametrize("solver", ["lp", "column-generation"])
@pytest.mark.parametrize(("name", "capacity", "value", "multiplier"), OPTIMA)
def test_published_optima(name, capacity, value, multiplier, solver):
    model = getattr(tr.problems, name)(capacity=capacity)
    solution = tr.plan(model, solver=solver)
    assert solution.value == pytest.approx(value, abs=1e-7)
    assert solution.gap <= 1e-8
    assert solution.costs[0] == pytest.approx(capacity, abs=1e-8)
    if multiplier is not None:
        assert solution.multipliers[0] == pytest.approx(multiplier, abs=1e-7)


def test_mars_rover_extremes():
    free = tr.plan(tr.problems.mars_rover(capacity=30.0))
    assert free.value == pytest.approx(1.81682218, abs=1e-8)
    assert free.multipliers[0] == 0.0
    tight = tr.plan(tr.problems.mars_rover(capacity=1e-6))
    assert tight.status is Status.INFEASIBLE
    assert tight.least_violation.costs[0] == pytest.approx(4.0058e-6, abs=1e-10)
    with pytest.raises(PlanError, match="no policy keeps every capacity"):
        tight.require_solved()


def test_box_extremes():
    free = tr.plan(tr.problems.box(capacity=30.0))
    assert free.value == pytest.approx(1.81576884, abs=1e-8)
    least = tr.plan(tr.problems.box(capacity=0.0)).least_violation
    assert least.costs[0] == pytest.approx(0.03325520, abs=1e-8)


def test_brute_force_over_deterministic_policies():
    """At most m + 1 deterministic policies mix to the optimum: check against all of them."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(5)
    for _ in range(20):
        transitions = rng.dirichlet(np.ones(2), size=(2, 3))
        model = tr.FiniteMDP(
            transitions=transitions, rewards=rng.normal(size=(2, 3)),
            costs=rng.random((2, 2, 3)), capacities=rng.random(2) + 0.6,
            criterion=tr.Episodic(2), initial=[0.4, 0.6],
        )  # fmt: skip
        values = np.array([
            np.hstack(tr.evaluate(model, DeterministicPolicy(np.array(a).reshape(2, 2))))
            for a in itertools.product(range(3), repeat=4)
        ])  # fmt: skip
        best = linprog(
            -values[:, 0], A_ub=values[:, 1:].T, b_ub=model.capacities,
            A_eq=np.ones((1, len(values))), b_eq=[1.0],
        )  # fmt: skip
        solution = tr.plan(model)
        if best.status == 2:
            assert solution.status is Status.INFEASIBLE
        else:
            assert solution.value == pytest.approx(-best.fun, abs=1e-9)


def test_multiplier_is_the_slope_of_the_value():
    model = tr.problems.random_cmdp(15, 3, horizon=8, num_costs=2, seed=4)
    solution = tr.plan(model)
    for i in range(2):
        step = np.eye(2)[i] * 1e-5
        up = tr.plan(model.replace(capacities=model.capacities + step)).value
        down = tr.plan(model.replace(capacities=model.capacities - step)).value
        low, high = (up - solution.value) / 1e-5, (solution.value - down) / 1e-5
        assert low - 1e-4 <= solution.multipliers[i] <= high + 1e-4


def test_floor_multiplier_is_positive():
    model = tr.problems.mars_rover()
    as_floor = model.replace(costs=-model.costs, capacities=-model.capacities, senses=[">="])
    solution = tr.plan(as_floor)
    assert solution.value == pytest.approx(1.53628844, abs=1e-7)
    assert solution.multipliers[0] == pytest.approx(0.19298178, abs=1e-7)


def test_exactly_the_least_cost_is_feasible():
    """R16: least achievable cost 0.4 (here over one step from each state of a two-step model)."""
    model = tr.problems.mars_rover(capacity=0.0)
    least = tr.plan(model).least_violation.costs[0]
    assert tr.plan(model.replace(capacities=[least])).status is Status.SOLVED


@pytest.mark.parametrize("num_costs", [0, 1, 3])
def test_one_state_one_action(num_costs):
    model = tr.FiniteMDP(
        transitions=[[[1.0]]], rewards=[[2.0]], criterion=tr.Episodic(3),
        costs=np.ones((num_costs, 1, 1)), capacities=np.full(num_costs, 3.0),
    )  # fmt: skip
    for solver in ("lp", "column-generation"):
        assert tr.plan(model, solver=solver).value == pytest.approx(6.0)


def test_zero_rewards_and_zero_costs():
    model = tr.problems.mars_rover()
    blank = model.replace(rewards=np.zeros((64, 4)), costs=np.zeros((1, 64, 4)), capacities=[0.0])
    assert tr.plan(blank).value == 0.0


def test_occupancy_round_trip():
    model = random_episodic(7)
    rho = tr.planning.occupancy(model, uniform_policy(model.available))
    assert rho.sum(axis=(1, 2)) == pytest.approx(np.ones(model.horizon))
    again = tr.planning.policy_from_occupancy(rho, model.available)
    assert tr.planning.occupancy(model, again) == pytest.approx(rho, abs=1e-14)
    check_policy(again, model.available, model.horizon)


def test_mixture_equals_its_markov_policy():
    model = tr.problems.mars_rover()
    mixed = tr.plan(model).policy
    plain = tr.planning.markov_policy(model, mixed)
    assert tr.evaluate(model, plain).value == pytest.approx(tr.evaluate(model, mixed).value)


def test_unknown_solver():
    with pytest.raises(ConfigError, match="column-generation"):
        tr.plan(tr.problems.mars_rover(), solver="simplex")
    with pytest.raises(ConfigError, match="no value-iteration: an episode has a last step"):
        tr.plan(tr.problems.mars_rover(), solver="value-iteration")


def test_large_model_takes_the_parallel_sweep():
    """The same bytes whichever sweep runs."""
    model = tr.problems.random_cmdp(300, 3, horizon=5, seed=2)
    t = model.tables()
    plain = np.empty((5, 300), dtype=np.int32)
    split = np.empty((5, 300), dtype=np.int32)
    left = kernels.best_response(*t, 5, 1.0, np.array([0.3]), plain)
    right = kernels.best_response_parallel(*t, 5, 1.0, np.array([0.3]), split)
    assert left == right
    assert (plain == split).all()


def test_the_multipliers_are_those_that_prove_the_bound():
    """The capacity is met exactly, by policies whose master has many duals: most prove nothing."""
    model = tr.FiniteMDP(
        transitions=[[[0, 1], [1, 0]], [[1, 0], [1, 0]]],
        axes="sas",
        rewards=[[2.0, 0], [0, 1]],
        costs=[[[2.0, 0], [2, 2]]],
        capacities=[0.0],
        criterion="episodic",
        horizon=2,
    )
    solution = tr.plan(model)
    assert solution.status is Status.SOLVED
    _, dual = tr.planning.backward_induction(model, multipliers=solution.multipliers)
    assert dual == pytest.approx(solution.value, abs=1e-12)


@pytest.mark.parametrize("block", range(4))
def test_a_bound_is_one_whatever_the_status(block):
    """Also where programs run out, in phase 1 or 2; the multipliers prove it."""
    open_ones = 0
    for seed in range(25 * block, 25 * block + 25):
        model = random_episodic(seed)
        exact = tr.plan(model, solver="lp")
        if exact.status is Status.INFEASIBLE or model.num_costs == 0:
            continue
        tables, limits = signed_tables(model)
        pool = np.empty((40, model.horizon, model.num_states), dtype=np.int32)
        for most in (1, 5, 9, 13):
            found = column_generation.solve(tables, model.horizon, limits, pool, max_programs=most)
            open_ones += found.status is Status.NOT_CONVERGED
            assert found.upper >= exact.value - 1e-7 * max(1.0, abs(exact.value))
            scratch = np.empty((model.horizon, model.num_states), dtype=np.int32)
            objective = kernels.best_response(
                *tables, model.horizon, 1.0, found.multipliers, scratch
            )
            proved = objective + found.multipliers @ limits
            assert proved == pytest.approx(found.upper, rel=1e-9, abs=1e-9)
    assert open_ones > 20
