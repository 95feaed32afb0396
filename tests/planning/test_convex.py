"""Concave-convex planning against the basic planner, CVXPY's direct program, and closed forms."""

from functools import partial

import numpy as np
import pytest
from tests.random_models import random_episodic

import tightrope as tr
from tightrope.errors import ConfigError, Status
from tightrope.planning import convex_columns

cp = pytest.importorskip("cvxpy")


# ---------------------------------------------------------------- equal to the basic planner


@pytest.mark.parametrize(
    "block", [pytest.param(i, marks=[pytest.mark.slow] if i > 2 else []) for i in range(10)]
)
def test_increasing_linear_functions_give_the_basic_optimum(block):
    """200 random models (60 by default); CVXPY for even seeds, callables for odd ones."""
    for seed in range(20 * block, 20 * block + 20):
        model = random_episodic(1000 + seed)
        rng = np.random.default_rng(seed)
        a, b = 0.5 + rng.random(), rng.normal()
        scale = 0.5 + rng.random(model.num_costs)
        if seed % 2:
            f = partial(_affine, a, b)
            g = [_scaled_capacity(model, scale, i) for i in range(model.num_costs)]
        else:
            y, u = cp.Variable(1, name="rewards"), cp.Variable(model.num_costs, name="costs")
            f = a * y[0] + b
            g = [
                scale[i] * model.signs[i] * (u[i] - model.capacities[i])
                for i in range(model.num_costs)
            ]
        convex = tr.plan(model, objective=f, constraint=g or None)
        basic = tr.plan(model)
        assert convex.status is basic.status
        if basic.status is Status.INFEASIBLE:
            assert convex.least_violation.certified > 0
            continue
        expected = a * basic.value + b
        assert abs(convex.value - expected) <= 1e-6 * max(1.0, abs(expected))
        assert convex.gap <= 1e-6
        size = max(1.0, abs(model.capacities).max(initial=0))
        assert convex.statistics["largest_excess"] <= 1e-7 * size


def _affine(a, b, y):
    return float(a * y[0] + b), np.array([a])


def _scaled_capacity(model, scale, i):
    slope = scale[i] * model.signs[i] * np.eye(model.num_costs)[i]
    return lambda u: (float(slope @ (u - model.capacities)), slope)


def test_least_violation_equals_that_of_the_basic_planner():
    model = random_episodic(3)
    found = 0
    for seed in range(40):
        model = random_episodic(seed)
        basic = tr.plan(model)
        if basic.status is not Status.INFEASIBLE:
            continue
        found += 1
        convex = tr.plan(model, objective=lambda y: cp.sum(y))
        least = basic.least_violation.shortfall
        assert convex.status is Status.INFEASIBLE
        assert convex.least_violation.shortfall == pytest.approx(least, rel=1e-6, abs=1e-6)
    assert found > 5


# ----------------------------------------------------------- equal to the direct form of Eq. (15)


def direct(model, channels, f, gs, radius=0.0):
    """Eq. (15) over all occupancy measures, as anyone would write it in CVXPY."""
    H, S, A = model.horizon, model.num_states, model.num_actions
    p = model.dense()
    rho = cp.Variable((H, S * A), nonneg=True)
    flow = [cp.sum(cp.reshape(rho[0], (S, A), order="C"), axis=1) == model.initial]
    for h in range(H - 1):
        arrive = p.reshape(S * A, S).T @ rho[h]
        flow.append(cp.sum(cp.reshape(rho[h + 1], (S, A), order="C"), axis=1) == arrive)
    visits = cp.sum(rho, axis=0)
    low = np.stack([(x - radius).ravel() for x in channels])
    high = np.stack([(x + radius).ravel() for x in channels])
    z = cp.Variable(len(channels))
    box = [low @ visits <= z, z <= high @ visits]
    count = len(channels) - model.num_costs
    y, u = z[:count], z[count:]
    constraints = [g(u) <= 0 for g in gs]
    problem = cp.Problem(cp.Maximize(f(y)), flow + box + constraints)
    return problem


def random_instance(seed):
    """A model, its channels, f, the g's and a radius; f and g of every family below."""
    rng = np.random.default_rng(seed)
    S, A, H = rng.integers(2, 13), rng.integers(2, 4), rng.integers(2, 9)
    m, count = rng.integers(1, 4), rng.integers(1, 4)
    model = tr.FiniteMDP(
        transitions=rng.dirichlet(np.full(S, 0.3), size=(S, A)), axes="sas",
        rewards=rng.random((S, A)), costs=rng.random((m, S, A)),
        capacities=np.full(m, float(H)), initial=rng.dirichlet(np.ones(S)),
        criterion=tr.Episodic(int(H)),
    )  # fmt: skip
    channels = {f"r{j}": rng.random((S, A)) for j in range(count)}
    target = rng.random(count) * H
    middle = model.horizon * model.costs.mean(axis=(1, 2))
    objectives = [
        lambda y: cp.sum(cp.log(y + 0.1)),
        lambda y: cp.min(y) + 0.1 * cp.sum(y),
        lambda y: -cp.sum_squares(y - target),
        lambda y: cp.sum(cp.sqrt(y)),
        lambda y: cp.sum(y) - cp.norm(y, 2),
    ]
    constraints = [
        [lambda u: cp.max(u - 0.95 * middle)],
        [lambda u: cp.norm(u - 0.8 * middle, 2) - 0.15 * H],
        [lambda u: cp.sum(cp.square(u / H)) - 0.3 * m, lambda u: u[0] - middle[0]],
    ]
    radius = [0.0, 0.05 * rng.random((S, A))][seed % 2]
    return model, channels, objectives[seed % 5], constraints[seed % 3], radius


def check_against_direct(seed):
    model, channels, f, gs, radius = random_instance(seed)
    box = {} if np.ndim(radius) == 0 else {"reward_radius": radius, "cost_radius": radius}
    solution = tr.plan(model, objective=f, constraint=gs, reward_channels=channels, **box)
    problem = direct(model, [*channels.values(), *model.costs], f, gs, radius)
    problem.solve(solver=cp.CLARABEL)
    if problem.status in ("infeasible", "infeasible_inaccurate"):
        assert solution.status is Status.INFEASIBLE
        return False
    assert solution.status is Status.SOLVED
    assert solution.value == pytest.approx(problem.value, abs=1e-5 * max(1.0, abs(problem.value)))
    assert solution.gap <= 1e-6
    assert solution.statistics["largest_excess"] <= 1e-7
    return True


@pytest.mark.parametrize("seed", range(15))
def test_equals_the_direct_program(seed):
    check_against_direct(seed)


@pytest.mark.slow
def test_equals_the_direct_program_on_100():
    assert sum(check_against_direct(seed) for seed in range(100)) > 70


def test_callables_equal_expressions():
    model = tr.problems.random_cmdp(12, 3, horizon=8, num_costs=2, seed=3)
    weights = np.array([1.0, 2.0])
    limit = float(np.square(model.capacities) @ weights)
    conic = tr.plan(
        model,
        objective=lambda y: cp.log(1 + y[0]),
        constraint=lambda u: weights @ cp.square(u) - limit,
    )
    plain = tr.plan(
        model,
        objective=lambda y: (float(np.log1p(y[0])), 1 / (1 + y)),
        constraint=lambda u: (float(weights @ u**2) - limit, 2 * weights * u),
    )
    assert plain.value == pytest.approx(conic.value, abs=1e-6)
    assert plain.gap <= 1e-6
    assert plain.multipliers == pytest.approx(conic.multipliers, rel=1e-3, abs=1e-5)


def test_decreasing_objective_takes_the_other_end_of_the_box():
    """For f(y) = -y the least reward counts, so the radius is subtracted [CON, Eq. (15)]."""
    model = tr.problems.random_cmdp(8, 3, horizon=5, seed=2)
    radius = 0.01 * np.arange(24).reshape(8, 3)
    solution = tr.plan(
        model, objective=lambda y: -y, reward_radius=radius, constraint=lambda u: u[0] - 100.0
    )
    expected = tr.plan(model.replace(rewards=-(model.rewards - radius), capacities=[100.0])).value
    assert solution.value == pytest.approx(expected, abs=1e-7)


def test_occupancy_entropy_is_spread_over_groups():
    """A channel for each of two states that one action chooses between: entropy wants half-half."""
    model = tr.FiniteMDP(
        transitions=[[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]] + [[np.eye(3)[s]] * 2 for s in (1, 2)],
        axes="sas", rewards=np.zeros((3, 2)), criterion=tr.Episodic(2),
    )  # fmt: skip
    visits = {f"in{s}": np.eye(3)[s][:, None] * np.ones(2) for s in (1, 2)}
    solution = tr.plan(model, objective=lambda y: cp.sum(cp.entr(y)), reward_channels=visits)
    assert solution.value == pytest.approx(np.log(2.0), abs=1e-7)
    assert solution.statistics["rewards"] == pytest.approx([0.5, 0.5], abs=1e-4)


def test_named_variables_and_several_constraints():
    model = tr.problems.mars_rover()
    reward, cost = cp.Variable(name="reward"), cp.Variable(name="cost")
    solution = tr.plan(model, objective=cp.log(reward), constraint=[cost - 0.3, cost - 0.2])
    assert np.exp(solution.value) == pytest.approx(1.51699026, abs=1e-6)
    with pytest.raises(ConfigError, match=r"'speed'.*no channel"):
        tr.plan(model, objective=cp.Variable(name="speed"))


def test_within_keeps_values_in_range():
    model = tr.problems.random_cmdp(8, 3, horizon=5, seed=2)
    solution = tr.plan(
        model, objective=lambda y: cp.sum(y), reward_radius=np.full((8, 3), 9.0), within=(0.0, 5.0)
    )
    assert solution.value == pytest.approx(5.0, abs=1e-6)
    assert solution.statistics["within"] == (0.0, 5.0)


# ------------------------------------------------------------------------------------ refusals


def test_wrong_curvature_is_refused():
    model = tr.problems.mars_rover()
    with pytest.raises(ConfigError, match="not concave by the rules"):
        tr.plan(model, objective=lambda y: cp.square(y))
    with pytest.raises(ConfigError, match="not convex by the rules"):
        tr.plan(model, constraint=lambda u: cp.sqrt(u) - 1)
    with pytest.raises(ConfigError, match=r"objective is not concave.*value .* above"):
        tr.plan(model, objective=lambda y: (float(y[0] ** 2), 2 * y))
    with pytest.raises(ConfigError, match=r"constraint is not convex.*value .* below"):
        tr.plan(model, constraint=lambda u: (float(np.sin(u[0])) - 0.3, np.cos(u)))
    with pytest.raises(ConfigError, match="must return"):
        tr.plan(model, objective=lambda y: float(y[0]))
    with pytest.raises(ConfigError, match="either all"):
        tr.plan(
            model, objective=lambda y: cp.log(y), constraint=lambda u: (float(u[0]) - 1, np.ones(1))
        )


@pytest.mark.parametrize("conic", [True, False])
def test_a_constraint_that_nobody_keeps(conic):
    """g(u) = (u - 5)^2 - 1 with u <= 1.8168: least achievable (1.8168 - 5)^2 - 1."""
    model = tr.problems.mars_rover()

    def g(u):
        return cp.square(u - 5) - 1 if conic else (float((u[0] - 5) ** 2 - 1), 2 * (u - 5))

    solution = tr.plan(model, constraint=g)
    assert solution.status is Status.INFEASIBLE
    assert solution.value is None
    highest = tr.plan(model.replace(rewards=model.costs[0], capacities=[30.0])).value
    assert solution.least_violation.shortfall == pytest.approx((highest - 5) ** 2 - 1, abs=1e-6)
    assert solution.least_violation.certified > 0


def test_bad_channels():
    model = tr.problems.mars_rover()
    with pytest.raises(ConfigError, match="name of a cost"):
        tr.plan(model, reward_channels={"cost": np.zeros((64, 4))})
    with pytest.raises(ConfigError, match=r"'x' has shape \(4, 64\)"):
        tr.plan(model, reward_channels={"x": np.zeros((4, 64))})
    with pytest.raises(ConfigError, match="cost_radius"):
        tr.plan(model, cost_radius=-np.ones((64, 4)))
    with pytest.raises(ConfigError, match="this model has none"):
        tr.plan(
            model.replace(costs=None, capacities=None, senses=None, cost_names=None),
            constraint=lambda u: u,
        )


# ------------------------------------------------------------------------- domains and options


@pytest.mark.parametrize(
    ("shift", "constraint"),
    [(5.0, None), (1.7, None), (5.0, lambda u: u[0] - 100.0), (1.9, [])],
)
def test_an_objective_that_is_defined_nowhere_is_refused(shift, constraint):
    """Mars rover earns at most 1.8168, and 1.5363 within its capacity."""
    with pytest.raises(ConfigError, match="defined for no policy that keeps the constraints"):
        tr.plan(tr.problems.mars_rover(), objective=lambda y: cp.log(y[0] - shift),
                constraint=constraint)  # fmt: skip


def test_a_domain_that_the_first_columns_miss():
    """Feasible columns alone earn too little: the domain is reached by later ones."""
    model = tr.problems.mars_rover()
    solution = tr.plan(model, objective=lambda y: cp.log(y[0] - 1.53))
    assert solution.status is Status.SOLVED
    assert solution.value == pytest.approx(np.log(tr.plan(model).value - 1.53), abs=1e-5)
    assert solution.costs[0] == pytest.approx(0.3, abs=1e-6)


def test_mixture_stays_whole_where_least_squares_does_not_end(monkeypatch):
    def nnls(*args):
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr(convex_columns, "nnls", nnls)
    model = tr.problems.mars_rover()
    channels = {f"c{g}": np.eye(8)[g].repeat(8)[:, None] * np.full(4, 1 / 30) for g in range(8)}
    solution = tr.plan(
        model, objective=lambda y: cp.sum(cp.entr(y)), reward_channels=channels, tolerance=1e-6
    )
    assert solution.status is Status.SOLVED
    assert solution.gap <= 1e-6
    assert solution.policy.weights.sum() == pytest.approx(1.0)


def test_options_that_do_not_fit():
    model, stream = tr.problems.mars_rover(), tr.problems.mars_rover_stream()
    f = {"objective": lambda y: cp.sum(y)}
    with pytest.raises(ConfigError, match="'budgets' is for hard budgets"):
        tr.plan(model, **f, budgets=[3.0], episodes=10)
    for alone in ({"epsilon": 0.5}, {"budgets": [3.0]}, {"episodes": 10}):
        with pytest.raises(ConfigError, match="give budgets= and episodes=K"):
            tr.plan(model, **alone)
    with pytest.raises(ConfigError, match="option of plan 'objective'"):
        tr.plan(stream, **f)
    for solver in ("nonsense", "lp"):
        with pytest.raises(ConfigError, match="convex planning has one solver; leave solver out"):
            tr.plan(model, solver=solver, **f)
    for solver in (None, 3):
        with pytest.raises(ConfigError, match="solver must be one of auto"):
            tr.plan(model, solver=solver)
    for tolerance in (-1.0, 0.0, np.nan, np.inf, "a"):
        with pytest.raises(ConfigError, match="tolerance"):
            tr.plan(model, **f, tolerance=tolerance)
    with pytest.raises(ConfigError, match="max_programs"):
        tr.plan(model, **f, max_programs=0)
    for name, value in [
        *[("iterations", value) for value in (2.5, 0, np.nan, "a")],
        *[("step", value) for value in (np.inf, np.nan, "a")],
    ]:
        with pytest.raises(ConfigError, match=name):
            tr.planning.lagrangian(model, **{name: value})
