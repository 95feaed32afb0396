"""Hard budgets: Eq. (13), the null episode, and the exact dynamic optimum."""

import numpy as np
import pytest

import tightrope as tr
from tightrope.errors import ConfigError, Status
from tightrope.kernels import knapsack as fast
from tightrope.kernels.reference import knapsack as plain
from tightrope.planning import dynamic_optimum


def random_lattice(seed, m=1, states=3, actions=2, horizon=3):
    """A small model whose transitions consume 0, 1 or 2 units, with a null action."""
    rng = np.random.default_rng(seed)
    shape = (states, actions, states)
    model = tr.FiniteMDP(
        transitions=rng.dirichlet(np.ones(states), size=(states, actions)), axes="sas",
        rewards_next=rng.random(shape), costs_next=rng.integers(0, 3, size=(m, *shape)) / 2.0,
        capacities=np.full(m, 1.0), criterion=tr.Episodic(horizon),
    )  # fmt: skip
    return tr.problems.with_null_action(model)


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_equals_the_basic_plan_with_shared_budgets(m, epsilon):
    model = tr.problems.with_null_action(
        tr.problems.random_cmdp(10, 3, horizon=6, num_costs=m, seed=4)
    )
    budgets = 50 * model.capacities
    solution = tr.plan(model, budgets=budgets, episodes=100, epsilon=epsilon)
    basic = tr.plan(model.replace(capacities=(1 - epsilon) * model.capacities / 2))
    assert solution.value == pytest.approx(basic.value)
    assert solution.gap <= 1e-8
    assert solution.statistics["null_action"]


def test_null_action_makes_every_budget_keepable():
    rover = tr.problems.mars_rover()
    assert tr.plan(rover, budgets=[0.0], episodes=10).status is Status.INFEASIBLE
    least = tr.plan(rover, budgets=[0.0], episodes=10).least_violation
    assert least.costs[0] == pytest.approx(4.0058e-6, abs=1e-10)
    zero = tr.plan(tr.problems.with_null_action(rover), budgets=[0.0], episodes=10)
    assert zero.value == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("anywhere", [False, True])
def test_null_action_changes_nothing_else(anywhere):
    """With a slack capacity staying out never pays; leaving midway cannot lower the value."""
    rover = tr.problems.mars_rover(capacity=30.0)
    free = tr.plan(tr.problems.with_null_action(rover, anywhere=anywhere))
    assert free.value == pytest.approx(1.81682218, abs=1e-7)


@pytest.mark.parametrize("seed", range(6))
def test_dynamic_optimum_against_the_plain_recursion(seed):
    m = 1 + seed % 2
    model = random_lattice(seed, m)
    budgets = np.array([2.0, 1.5])[:m]
    found = dynamic_optimum(model, budgets=budgets, episodes=2, unit=0.5)
    t = model.tables()
    sizes = (budgets / 0.5).astype(np.int64) + 1
    strides = np.array([sizes[1], 1] if m == 2 else [1])
    worth = np.empty(int(sizes.prod()))
    args = (
        t.start, t.stop, t.indices, t.data, model.rewards_next,
        np.rint(model.costs_next / 0.5).astype(np.int64), t.available, t.initial, model.horizon,
        strides, sizes, 2,
    )  # fmt: skip
    plain.budget_program(*args, worth)
    assert found.worth.ravel() == pytest.approx(worth, abs=1e-12)
    again = np.empty_like(worth)
    fast.budget_program(*args, again)
    assert again == pytest.approx(worth, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_dynamic_is_at_most_stationary(seed):
    """Lemma D.1, and both grow with the budget."""
    model = random_lattice(seed)
    found = dynamic_optimum(model, budgets=[4.0], episodes=3, unit=0.5)
    assert found.value <= found.stationary + 1e-9
    assert (np.diff(found.worth) >= -1e-12).all()
    rich = dynamic_optimum(model, budgets=[100.0], episodes=3, unit=0.5)
    assert rich.value == pytest.approx(rich.stationary, abs=1e-9)


def test_dynamic_optimum_by_hand():
    """One step, reward 1 at cost 1 or nothing: B whole units buy min(B, K) rewards."""
    model = tr.FiniteMDP(
        transitions=[[[1.0], [1.0]]], rewards=[[1.0, 0.0]], costs=[[[1.0, 0.0]]], capacities=[1.0],
        axes="sas", criterion=tr.Episodic(1),
    )  # fmt: skip
    assert dynamic_optimum(model, budgets=[3.7], episodes=5, unit=1.0).value == pytest.approx(3.0)
    assert dynamic_optimum(model, budgets=[9.0], episodes=5, unit=1.0).value == pytest.approx(5.0)


def test_mars_rover_with_budgets():
    """Costs are multiples of 1/30. A crash is never impossible, so certainty costs a quarter."""
    model = tr.problems.with_null_action(tr.problems.mars_rover())
    found = dynamic_optimum(model, budgets=[2.0], episodes=10, unit=1 / 30)
    assert 0.75 * found.stationary < found.value <= found.stationary


def test_bad_input():
    rover = tr.problems.mars_rover()
    model = tr.problems.with_null_action(rover)
    with pytest.raises(ConfigError, match=r"epsilon must be in \[0, 1\), got 1"):
        tr.plan(model, budgets=[1.0], episodes=10, epsilon=1.0)
    with pytest.raises(ConfigError, match="least achievable consumption"):
        tr.plan(model, budgets=[-1.0], episodes=10)
    with pytest.raises(ConfigError, match="expected m = 1"):
        tr.plan(model, budgets=[1.0, 2.0], episodes=10)
    with pytest.raises(ConfigError, match="budgets must name"):
        tr.plan(model, budgets={"fuel": 1.0}, episodes=10)
    with pytest.raises(ConfigError, match=r"null action 'up'.*reward can still reach"):
        tr.plan(rover, budgets=[1.0], episodes=10, null_action="up")
    paid = model.replace(costs=np.where(np.arange(5) == 4, 0.25, np.array(model.costs)))
    with pytest.raises(ConfigError, match="cost can still reach"):
        tr.plan(paid, budgets=[1.0], episodes=10)
    with pytest.raises(ConfigError, match="no whole number"):
        dynamic_optimum(model, budgets=[1.0], episodes=2, unit=0.07)
    with pytest.raises(ConfigError, match="larger unit"):
        dynamic_optimum(model, budgets=[1e6], episodes=2, unit=1 / 30)


def test_budgets_without_episodes():
    with pytest.raises(ConfigError, match="give budgets= and episodes=K"):
        tr.plan(tr.problems.rover_knapsack(), budgets=[3.0])


@pytest.mark.parametrize("episodes", ["a", None, 2.5, True, float("nan"), float("inf"), 0, [3]])
def test_episodes_are_a_whole_number(episodes):
    with pytest.raises(ConfigError, match="episodes must be a whole number >= 1"):
        tr.plan(tr.problems.mars_rover(), budgets=[30.0], episodes=episodes)
