"""Single streams in the loop: exact accounting, resuming, and what is refused."""

import numpy as np
import pytest

import tightrope as tr
from tightrope.errors import ConfigError, Status
from tightrope.learners.registry import LEARNERS, get_learner
from tightrope.model.policy import DeterministicPolicy
from tightrope.planning import Solution
from tightrope.problems.linear import random_linear_mdp
from tightrope.simulation import runner

STREAM = sorted(name for name in LEARNERS if "stream" in get_learner(name).traits)
STEPS = 3000


def solved(model):
    """Gain, bias and policy by value iteration."""
    values = np.zeros(model.num_states)
    for _ in range(20_000):
        q = model.rewards + model.dense() @ values
        step = q.max(axis=1) - values
        values = q.max(axis=1) - q.max()
    return Solution(
        status=Status.SOLVED,
        solver="test",
        value=float(step.mean()),
        policy=DeterministicPolicy(q.argmax(axis=1)),
        costs=np.zeros(0),
        capacities=np.zeros(0),
        cost_names=(),
        multipliers=np.zeros(0),
        lower_bound=float(step.min()),
        upper_bound=float(step.max()),
        seconds=0.0,
        model_hash=model.content_hash,
    )


@pytest.fixture(scope="module")
def problem():
    return random_linear_mdp(states=5, actions=2, dimension=3, seed=2)


@pytest.fixture(scope="module")
def optimum(problem):
    return solved(problem.model)


def start(problem, optimum, learner, **changes):
    if learner in ("fopo", "olsvi-fh"):
        changes["span"] = 1.0
    return runner.start(problem, learner, episodes=STEPS, seed=7, optimum=optimum, **changes)


def columns_of(session):
    runner.advance(session)
    return runner.finish(session).columns


@pytest.mark.parametrize("learner", STREAM)
def test_columns_are_exact_and_resuming_changes_nothing(learner, problem, optimum, tmp_path):
    if learner == "fopo":
        pytest.importorskip("clarabel")
    session = start(problem, optimum, learner)
    columns = columns_of(session)
    np.testing.assert_array_equal(columns["steps"], np.arange(1, STEPS + 1))
    # regret is the sum of J* - r(x_t, a_t), the reward of a row the mean since the row before
    np.testing.assert_allclose(
        columns["regret"], np.cumsum(optimum.value - columns["reward"]), atol=1e-8
    )
    assert np.isin(columns["reward"].round(9), problem.model.rewards.round(9)).all()
    part = start(problem, optimum, learner)
    runner.advance(part, 400)
    assert part.ledger.count >= 400
    runner.save(part, tmp_path / "state.npz")
    fresh = start(problem, optimum, learner)
    runner.resume(fresh, tmp_path / "state.npz")
    for name, column in columns_of(fresh).items():
        np.testing.assert_array_equal(column, columns[name], err_msg=name)


def test_oracle_has_regret_slope_zero(problem, optimum):
    columns = columns_of(runner.start(problem, "oracle", episodes=100_000, seed=1, optimum=optimum))
    # a central limit bound: the summands have range 1 and mix within a few steps
    assert abs(columns["regret"][-1]) <= 5 * np.sqrt(100_000)
    last = columns["steps"] > 80_000
    assert last.sum() >= 200


def test_units(problem):
    with pytest.raises(ConfigError, match=r"Average\(\) is measured in steps="):
        tr.run(problem, "ucrl2", episodes=10)
    with pytest.raises(ConfigError, match=r"measured in episodes="):
        tr.run("mars-rover", "conrl", steps=10)


def test_learners_and_problems_must_fit(problem, optimum):
    with pytest.raises(ConfigError, match="conrl cannot learn single streams"):
        start(problem, optimum, "conrl")
    with pytest.raises(ConfigError, match="ucrl2 cannot learn episodic problems"):
        tr.run("mars-rover", "ucrl2", episodes=10)


def test_multichain_models_are_refused():
    apart = tr.FiniteMDP(
        transitions=np.eye(2)[:, None, :].repeat(2, axis=1),
        rewards=[[0.0, 1.0], [0.5, 0.5]],
        criterion="average",
        axes="sas",
    )
    stuck = tr.FiniteMDP(  # every state can be reached, yet a policy may stay in either for ever
        transitions=[[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]],
        rewards=[[0.0, 1.0], [0.5, 0.5]],
        criterion="average",
        axes="sas",
    )
    for name in ("fopo", "olsvi-fh", "psrl", "ucrl2"):
        with pytest.raises(ConfigError, match=f"{name} needs a weakly communicating"):
            runner.check_structure(apart, get_learner(name))
        runner.check_structure(stuck, get_learner(name))
    for name in ("mdp-exp2", "npg", "politex"):
        with pytest.raises(ConfigError, match=f"{name} needs every policy to mix"):
            runner.check_structure(stuck, get_learner(name))
