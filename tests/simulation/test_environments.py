"""Learners on environments with Gymnasium's interface."""

import gymnasium
import numpy as np
import pytest

import tightrope as tr
from tightrope.adapter import Discretise, FiniteMDPEnv, FiniteMDPVectorEnv
from tightrope.errors import ConfigError, ModelError
from tightrope.model.mdp import FiniteMDP
from tightrope.planning import evaluate, plan
from tightrope.problems import mars_rover
from tightrope.problems.gridworlds import MARS_ROVER_SMALL_MAP
from tightrope.simulation.environments import learn, play

HOLES = (5, 7, 11, 12)


def small_rover():
    return mars_rover(map=MARS_ROVER_SMALL_MAP, horizon=10)


def test_a_learner_on_an_environment_of_ours_finds_the_optimum_of_its_model():
    model = small_rover()
    result = learn(FiniteMDPEnv(model), "conrl@paper-experiments", episodes=400, seed=3)
    assert result.columns["episode"][-1] == 400
    assert result.columns["steps"][-1] == 4000
    found, best = evaluate(model, result.policy), plan(model)
    assert found.value > best.value - 0.15
    assert found.costs[0] < model.capacities[0] + 0.1
    assert result.learner == "conrl"
    assert result.preset == "paper-experiments"
    assert result.guarantee is None


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    def totals(seed):
        run = learn(FiniteMDPEnv(small_rover()), "uniform", episodes=50, seed=seed)
        return run.columns["sampled_reward"].tolist()

    assert totals(1) == totals(1)
    assert totals(1) != totals(2)


def test_frozen_lake_with_a_cost_that_is_a_function():
    """No model is used: ends, the start law and the cost come from the interface alone."""
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    run = learn(
        env,
        "conrl@paper-experiments",
        episodes=150,
        horizon=12,
        costs={"hole": lambda s, a, t: float(t in HOLES)},
        capacities={"hole": 0.0},
        seed=0,
    )
    assert run.num_observations == 16
    assert run.spec.num_states == 17  # the end
    reward, holes = (np.diff(run.columns[name]) for name in ("sampled_reward", "sampled_cost_0"))
    assert reward[-50:].mean() == 1.0
    assert holes[-50:].sum() == 0.0


class Corridor(gymnasium.Env):
    """Walk right from a random cell of four; info has the energy; ends at the last cell."""

    observation_space = gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(4, start=1)])
    action_space = gymnasium.spaces.MultiDiscrete([2])

    def __init__(self, pay=1.0):
        self.pay = pay

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = int(self.np_random.integers(1, 4))
        return (self.cell,), {}

    def step(self, action):
        self.cell = min(4, self.cell + int(action[0]))
        done = self.cell == 4
        return (self.cell,), self.pay * done, done, False, {"energy": float(action[0])}


COSTS = {"costs": {"energy": "energy"}, "capacities": {"energy": 3.0}}


def test_unknown_start_laws_composite_spaces_and_costs_from_info():
    run = learn(Corridor(), "conrl@paper-experiments", episodes=120, horizon=3, seed=0, **COSTS)
    assert run.spec.num_states == 6  # the end and the start
    assert run.spec.initial.tolist() == [0, 0, 0, 0, 0, 1]
    assert np.diff(run.columns["sampled_reward"])[-30:].mean() == 1.0
    assert run.columns["steps"][-1] < 3 * 120
    with pytest.raises(ConfigError, match=r"cost 'fuel' is 'fuel', .* info, which holds 'energy'"):
        learn(Corridor(), "uniform", episodes=1, horizon=3, costs={"fuel": "fuel"},
              capacities={"fuel": 1.0})  # fmt: skip


def test_vector_environments_play_one_episode_in_each_copy():
    many = gymnasium.vector.SyncVectorEnv([Corridor] * 4)
    run = learn(many, "conrl@paper-experiments", episodes=120, horizon=3, seed=0, **COSTS)
    assert run.columns["episode"].tolist() == list(range(4, 121, 4))
    assert np.diff(run.columns["sampled_reward"])[-8:].mean() == 4.0
    ours = FiniteMDPVectorEnv(small_rover(), 10)
    run = learn(ours, "uniform", episodes=25, seed=0)
    assert run.columns["episode"].tolist() == [10, 20, 25]
    with pytest.raises(ConfigError, match="a single stream needs one environment"):
        learn(ours, "uniform", steps=5)


def test_a_discretised_box():
    env = Discretise(
        gymnasium.make("CartPole-v1"), [1, 1, 6, 3], [-1, -1, -0.21, -2], [1, 1, 0.21, 2]
    )
    wrapped = gymnasium.wrappers.TransformReward(env, lambda r: r / 50)
    run = learn(wrapped, "conrl", episodes=5, horizon=50, seed=0)
    assert run.spec.num_states == 18 + 2


def stream_model():
    return FiniteMDP(
        transitions=[[[0.5, 0.5], [1.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]],
        rewards=[[0.0, 0.2], [1.0, 0.5]],
        criterion="average",
        axes="sas",
    )


def test_a_stream_learner_on_an_environment():
    psrl = "tightrope.learners.psrl:LEARNER"
    run = learn(FiniteMDPEnv(stream_model()), psrl, steps=600)
    assert run.columns["steps"][-1] == 600
    assert "episode" not in run.columns
    assert (np.diff(run.columns["steps"]) > 0).all()
    assert run.policy.actions.tolist()[0] == 0
    corridor = learn(Corridor(), psrl, steps=900)
    assert corridor.spec.num_states == 4  # ends go on from a new start
    assert corridor.columns["sampled_reward"][-1] > 300  # at best one in two steps


def test_determinant_doubling_stops_where_the_kernel_stops():
    from tightrope.learners.protocol import Stop
    from tightrope.model.policy import uniform_policy
    from tightrope.simulation.environments import World

    model = stream_model()
    features = np.eye(4).reshape(2, 2, 4)
    world = World(FiniteMDPEnv(model), None, True, 1)
    world.ranges = np.array([[0.0, 1.0]])
    stop = Stop("determinant-doubling", 1000, 5.0 * np.eye(4))
    spec = model.spec(features=features)
    rng = np.random.default_rng(0)
    seen = world.play_stream(uniform_policy(model.available), stop, 1000, 1, spec, rng)
    grams = 5.0 * np.eye(4) + np.cumsum(
        [np.outer(f, f) for f in features[seen.states[:-1], seen.actions]], axis=0
    )
    ratios = np.linalg.det(grams) / 5.0**4
    assert ratios[-1] >= 2.0 > ratios[-2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"episodes": 2}, "say horizon="),
        ({}, "either episodes= or steps="),
        ({"episodes": 1, "steps": 1}, "either episodes= or steps="),
        ({"episodes": 0, "horizon": 3}, "must be >= 1, got 0"),
        ({"episodes": 2, "horizon": 3, "costs": {"energy": "energy"}}, "capacities lack 'energy'"),
        ({"episodes": 2, "horizon": 3, "capacities": {"oil": 1.0}}, "name 'oil', which is no cost"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ConfigError, match=message):
        learn(Corridor(), "uniform", **arguments)


@pytest.mark.parametrize(
    "arguments", [{"costs": {"a": "b"}}, {"horizon": 3}, {"capacities": {"cost": 1.0}}]
)
def test_what_a_model_says_is_not_said_again(arguments):
    with pytest.raises(ConfigError, match="of the environment's model"):
        learn(FiniteMDPEnv(small_rover()), "uniform", episodes=1, **arguments)


def test_rewards_outside_the_range_and_cut_episodes_are_refused():
    with pytest.raises(ConfigError, match=r"reward 5 in state \d at step \d is outside .*\[0, 1\]"):
        learn(Corridor(pay=5.0), "uniform", episodes=50, horizon=3, seed=0)
    assert learn(Corridor(pay=5.0), "uniform", episodes=9, horizon=3, reward_range=(0, 5)).columns
    short = gymnasium.wrappers.TimeLimit(FiniteMDPEnv(small_rover()), 4)
    with pytest.raises(ConfigError, match="cut an episode after 4 steps, before the horizon 10"):
        learn(short, "uniform", episodes=1)
    cut = gymnasium.wrappers.TimeLimit(FiniteMDPEnv(stream_model()), 4)
    with pytest.raises(ConfigError, match="cut the stream after 4 steps"):
        learn(cut, "tightrope.learners.psrl:LEARNER", steps=10)
    with pytest.raises(ConfigError, match=r"Box.* is not discrete; .*Discretise"):
        learn("CartPole-v1", "uniform", episodes=1, horizon=5)


def test_a_saved_policy_plays_in_gymnasiums_own_environment(tmp_path):
    """FrozenLake by its table, planned, saved, and played in the environment itself."""
    model = tr.from_gymnasium("FrozenLake-v1", criterion="episodic", horizon=30)
    solution = tr.plan(model)
    tr.save_policy(tmp_path / "policy.npz", solution.policy)
    policy = tr.load_policy(tmp_path / "policy.npz")
    costs = {"slips": lambda s, a, t: float(s == t)}
    totals = play("FrozenLake-v1", policy, episodes=1500, horizon=30, costs=costs, seed=1)
    error = np.sqrt(solution.value * (1 - solution.value) / 1500)
    assert abs(totals[:, 0].mean() - solution.value) < 4 * error
    assert totals.shape == (1500, 2)
    assert totals[:, 1].max() > 0
    with pytest.raises(ConfigError, match="say horizon="):
        play("FrozenLake-v1", policy, episodes=1)
    with pytest.raises(ModelError, match="policy has shape"):
        play("Taxi-v4", policy, episodes=1, horizon=30)


def test_a_learner_with_features_of_its_own_needs_none_from_the_environment():
    env = FiniteMDPEnv(stream_model())
    result = tr.learn(env, "fopo", steps=30, seed=1, knowledge={"span": 5.0})
    assert result.columns["steps"][-1] == 30
