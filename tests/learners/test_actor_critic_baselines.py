"""RCPO and ApproPO: projections, multipliers, and that they learn from what they see."""

import numpy as np
import pytest
from scipy.optimize import minimize

import tightrope as tr
from tightrope.errors import ConfigError
from tightrope.learners.appropo import project_polar
from tightrope.learners.protocol import Experience
from tightrope.learners.registry import make_config
from tightrope.simulation.runner import run


@pytest.mark.parametrize("seed", range(20))
def test_polar_projection(seed):
    """Against a general solver: x minus its nearest point of the cone over C x {kappa}."""
    rng = np.random.default_rng(seed)
    m = 1 + seed % 3
    capacities, floor, kappa = rng.random(m), 0.5 + rng.random(), 1.0 + rng.random()
    x = rng.normal(size=m + 2)

    def point(v):  # a, excess of the reward over the floor, shares of the capacities
        a = v[0]
        return np.concatenate([[a * floor + v[1]], a * v[2:] * capacities, [a * kappa]])

    best = min(
        (
            minimize(
                lambda v: ((x - point(v)) ** 2).sum(), np.full(m + 2, start),
                bounds=[(0, None), (0, None), *[(0, 1)] * m], tol=1e-14,
            )
            for start in (0.1, 1.0)
        ),
        key=lambda answer: answer.fun,
    )  # fmt: skip
    polar = x - point(best.x)
    expected = polar / max(1.0, np.linalg.norm(polar))
    assert project_polar(x, capacities, floor, kappa) == pytest.approx(expected, abs=1e-4)
    # the defining property: no point of the cone has a positive product with it
    found = project_polar(x, capacities, floor, kappa)
    corners = [np.concatenate([[floor + 3 * (i % 2)], capacities * rng.integers(0, 2, m), [kappa]])
               for i in range(20)]  # fmt: skip
    assert max(found @ corner for corner in corners) <= 1e-9


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("name", ["rcpo", "appropo"])
def test_they_learn_and_take_several_constraints(name, m):
    model = tr.problems.random_cmdp(6, 3, horizon=5, num_costs=m, seed=2)
    changes = {} if name == "rcpo" else {"reward_floor": 0.8 * tr.plan(model).value}
    result = run(model, name, episodes=2_000, seed=0, **changes)
    uniform = run(model, "uniform", episodes=10, seed=0).columns
    late = result.columns["reward"][-200:].mean()
    excess = max(
        (result.columns[f"cost_{i}"][-200:] - model.capacities[i]).mean() for i in range(m)
    )
    before = max(uniform[f"cost_{i}"][-1] - model.capacities[i] for i in range(m))
    assert late > uniform["reward"][-1] or excess < before


def test_multipliers_follow_the_sampled_excess():
    """One episode: lambda = step * max(0, sampled cost - capacity)."""
    model = tr.problems.mars_rover()
    result = run(model, "rcpo", episodes=30, seed=4, multiplier_step=0.5, multiplier_bound=0.4)
    sampled = np.diff(result.columns["sampled_cost_0"], prepend=0.0)
    expected = 0.0
    for k, cost in enumerate(sampled):
        expected = min(max(0.0, expected + 0.5 * (cost - 0.3)), 0.4)
        assert result.diagnostics["multiplier_0"][k] == pytest.approx(expected)


def test_refusals():
    with pytest.raises(ConfigError, match="cannot be reached"):
        run("mars-rover", "appropo", episodes=5, reward_floor=31.0)
    with pytest.raises(ConfigError, match="entropy"):
        run("mars-rover", "rcpo", episodes=5, entropy=-1.0)


def test_privileged_costs_are_the_exact_ones():
    """The multiplier follows the exact excess, not what was sampled."""
    model = tr.problems.random_cmdp(6, 2, horizon=4, num_costs=2, seed=1)
    own = {"multiplier_step": 0.5, "actor_step": 0.01}
    given = run(model, "rcpo@privileged-costs", episodes=40, seed=2, **own)
    sampled = run(model, "rcpo", episodes=40, seed=2, **own)
    for i in range(2):
        exact, moved = given.columns[f"cost_{i}"] - model.capacities[i], 0.0
        for k in range(40):
            moved = max(0.0, moved + 0.5 * exact[k])
            assert given.diagnostics[f"multiplier_{i}"][k] == pytest.approx(moved)
    assert (given.diagnostics["multiplier_0"] != sampled.diagnostics["multiplier_0"]).any()
    assert given.guarantee is None
    assert given.config["privileged_costs"]


def test_appropo_with_privileged_costs_measures_its_policies():
    model = tr.problems.random_cmdp(6, 2, horizon=4, num_costs=1, seed=1)
    spec = model.spec()
    learner, config = make_config(
        "appropo@privileged-costs", spec, episodes=9, delta=0.1, reward_floor=1.0
    )
    state = learner.init(spec, config)
    shape = (3, 4)
    seen = Experience(
        first=1, states=np.zeros((3, 5), np.int32), actions=np.zeros(shape, np.int32),
        rewards=np.ones(shape), costs=np.ones((*shape, 1)), exact=np.array([1.25, 0.5]),
    )  # fmt: skip
    state, _ = learner.update(state, seen)
    assert state.measured == pytest.approx([3.75, 1.5])
    seen.exact = None
    with pytest.raises(ConfigError, match="needs a model"):
        learner.update(state, seen)
