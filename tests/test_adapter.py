"""Finite models as Gymnasium environments: the same process, step by step."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tightrope.adapter import (
    Discretise,
    FiniteMDPEnv,
    FiniteMDPVectorEnv,
    environment_id,
    registered_problems,
)
from tightrope.errors import ConfigError
from tightrope.model.mdp import FiniteMDP

RNG = np.random.default_rng(5)


def staged_model():
    """3 states, 2 actions, 4 tables, 2 costs, realised values that differ by next state."""
    return FiniteMDP(
        transitions=RNG.dirichlet(np.ones(3), (4, 3, 2)),
        rewards_next=RNG.normal(size=(3, 2, 3)),
        costs_next=RNG.random((2, 3, 2, 3)),
        capacities=[1.0, 1.0],
        initial=[0.25, 0.0, 0.75],
        criterion="episodic",
        horizon=4,
    )


def absorbing_model(criterion, **options):
    return FiniteMDP(
        transitions=[[[0.5, 0.5]], [[0.0, 1.0]]],
        rewards=[[1.0], [0.0]],
        criterion=criterion,
        **options,
    )


def test_gymnasium_accepts_it():
    check_env(FiniteMDPEnv(staged_model()), skip_render_check=True)
    check_env(FiniteMDPEnv(absorbing_model("average")), skip_render_check=True)


def mean_and_error(samples):
    samples = np.asarray(samples)
    return samples.mean(axis=0), samples.std(axis=0) / np.sqrt(len(samples))


def exact_uniform(model):
    """Expected totals of the uniform policy, by forward recursion on dense arrays."""
    law, total, tables = model.initial, np.zeros(1 + model.num_costs), model.dense()
    for h in range(model.horizon):
        pair = law[:, None] / model.num_actions * np.ones(model.num_actions)
        total[0] += (pair * model.rewards[h]).sum()
        total[1:] += (pair * model.costs[:, h]).sum(axis=(1, 2))
        law = np.einsum("sa,sat->t", pair, tables[h])
    return total


@pytest.mark.parametrize("feedback", ["sampled", "mean"])
def test_totals_of_the_uniform_policy_agree_with_the_model(feedback):
    model = staged_model()
    env = FiniteMDPEnv(model, feedback=feedback)
    rng = np.random.default_rng(1)
    env.reset(seed=7)
    totals = []
    for _ in range(3000):
        env.reset()
        total, over = np.zeros(3), False
        while not over:
            _, reward, over, truncated, info = env.step(int(rng.integers(2)))
            assert not truncated
            total += [reward, *info["cost"]]
        assert info["stage"] == 4
        totals.append(total)
    mean, error = mean_and_error(totals)
    assert (np.abs(mean - exact_uniform(model)) < 4 * error).all()


@pytest.mark.parametrize("feedback", ["sampled", "mean"])
def test_totals_of_the_vector_environment_agree_with_the_model(feedback):
    model = staged_model()
    env = FiniteMDPVectorEnv(model, 5000, feedback=feedback)
    rng = np.random.default_rng(1)
    states, _ = env.reset(seed=7)
    assert set(states) == {0, 2}
    totals = np.zeros((5000, 3))
    for step in range(4):
        states, rewards, over, truncated, info = env.step(rng.integers(2, size=5000))
        totals += np.column_stack([rewards, info["cost"]])
        assert over.all() == (step == 3)
        assert not truncated.any()
    mean, error = mean_and_error(totals)
    assert (np.abs(mean - exact_uniform(model)) < 4 * error).all()
    states, rewards, over, _, info = env.step(np.full(5000, 99))  # ignored: these restart
    assert set(states) == {0, 2}
    assert not rewards.any()
    assert not over.any()
    assert not info["stage"].any()


def test_episodes_differ_but_a_seed_repeats_them():
    env = FiniteMDPEnv(staged_model())

    def episode(**seed):
        states = [env.reset(**seed)[0]]
        for _ in range(4):
            states.append(env.step(0)[0])
        return states

    first = [episode(seed=3), *(episode() for _ in range(5))]
    again = [episode(seed=3), *(episode() for _ in range(5))]
    assert first == again
    assert len({tuple(states) for states in first}) > 1


def test_only_what_the_criterion_ends_is_terminated():
    average = FiniteMDPEnv(absorbing_model("average"))
    total = FiniteMDPEnv(absorbing_model("total"))
    discounted = FiniteMDPEnv(absorbing_model("discounted", discount=0.9))
    for env, ends in ((average, False), (total, True), (discounted, True)):
        state, _ = env.reset(seed=0)
        over = False
        for _ in range(50):
            if over:
                break
            state, _, over, truncated, _ = env.step(0)
            assert not truncated
            assert over == (ends and state == 1)
        assert over == ends
    with pytest.raises(gymnasium.error.ResetNeeded):
        total.step(0)


def test_actions_that_do_not_exist_are_refused():
    model = FiniteMDP(
        transitions=[[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]],
        rewards=np.zeros((2, 2)),
        available=[[True, True], [True, False]],
        criterion="average",
        state_names=["open", "shut"],
        axes="sas",
    )
    env = FiniteMDPEnv(model)
    _, info = env.reset(options={"state": 1})
    np.testing.assert_array_equal(info["action_mask"], [1, 0])
    with pytest.raises(ConfigError, match=r"action 1 does not exist in state shut; .* \[0\]"):
        env.step(1)
    with pytest.raises(ConfigError, match="action 5 does not exist"):
        env.step(5)
    with pytest.raises(ConfigError, match="state 9"):
        env.reset(options={"state": 9})
    many = FiniteMDPVectorEnv(model, 2)
    many.reset(seed=0)
    many.step(np.array([0, 1]))
    with pytest.raises(ConfigError, match="action 1 of copy 1 does not exist in state shut"):
        many.step(np.array([0, 1]))


def test_bernoulli_feedback_draws_zeros_and_ones_with_the_means():
    model = FiniteMDP(
        transitions=np.ones((1, 1, 1)),
        rewards=[[0.3]],
        costs=[[[0.8]]],
        capacities=[1.0],
        criterion="average",
    )
    env = FiniteMDPVectorEnv(model, 4000, feedback="bernoulli")
    env.reset(seed=2)
    _, rewards, _, _, info = env.step(np.zeros(4000, int))
    assert set(rewards) == {0.0, 1.0}
    assert abs(rewards.mean() - 0.3) < 0.03
    assert abs(info["cost"].mean() - 0.8) < 0.03
    with pytest.raises(ConfigError, match=r"'bernoulli' needs rewards in \[0, 1\]"):
        FiniteMDPEnv(model.replace(rewards=[[2.0]]), feedback="bernoulli")


@pytest.mark.parametrize("problem", registered_problems())
def test_every_problem_is_registered(problem):
    env = gymnasium.make(environment_id(problem))
    assert isinstance(env.unwrapped, FiniteMDPEnv)
    check_env(env.unwrapped, skip_render_check=True)
    many = gymnasium.make_vec(environment_id(problem), num_envs=3)
    assert isinstance(many.unwrapped, FiniteMDPVectorEnv)
    states, _ = many.reset(seed=1)
    assert states.shape == (3,)
    assert many.unwrapped.model.content_hash == env.unwrapped.model.content_hash


def test_names_in_any_order_of_imports():
    """Gymnasium reads no entry points, but a name may say what to import; ours are known to us."""
    assert gymnasium.make("tightrope.adapter:tightrope/MachineReplacement-v0")
    code = (
        "import tightrope, gymnasium\n"
        "from tightrope.io.gymnasium import named_environment\n"
        "named_environment('tightrope/MachineReplacement-v0')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_parameters_of_a_problem_pass_through():
    env = gymnasium.make("tightrope/MarsRover-v0", capacity=0.2, feedback="mean")
    assert env.unwrapped.model.capacities.tolist() == [0.2]
    assert env.unwrapped.feedback == "mean"


class Line(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)


def test_discretiser():
    env = Discretise(Line(), bins=[4, 2])
    assert env.observation_space.n == 8
    points = [(-1, -1), (-0.6, 0.0), (-0.5, -0.1), (0.0, 0.5), (1.0, 1.0), (9.0, -9.0)]
    assert [int(env.observation(np.array(p))) for p in points] == [0, 1, 2, 5, 7, 6]
    edges = Discretise(Line(), bins=[[0.25], [-0.5, 0.5]])
    assert [int(edges.observation(np.array(p))) for p in points] == [0, 1, 1, 2, 5, 3]
    assert Discretise(Line(), bins=3).observation_space.n == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bins": [3]}, "bins has length 1, expected one a coordinate: 2"),
        ({"bins": [0, 1]}, "bins of coordinate 0 must be a whole number >= 1"),
        ({"bins": [2, 2], "high": [np.inf, 1]}, "coordinate 0 goes from -1 to inf: say low="),
        ({"bins": [[0.5, 0.1], 2]}, "edges of coordinate 0 must be finite and increase"),
    ],
)
def test_discretiser_refuses(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Discretise(Line(), **arguments)
    with pytest.raises(ConfigError, match="needs a Box"):
        Discretise(FiniteMDPEnv(absorbing_model("total")), bins=2)
