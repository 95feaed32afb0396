"""Models from Gymnasium: tables exactly, other environments by sampling."""

import pickle
import warnings

import gymnasium
import numpy as np
import pytest

from tightrope import from_gymnasium
from tightrope.errors import ConfigError, ModelError, ModelWarning
from tightrope.io.gymnasium import EstimatedMDP, index_space
from tightrope.planning import plan

# One action a state: 0 goes to 1, or ends at 0 (!), or ends at 1; 1 goes back to 0.
TABLE = {
    0: {0: [(0.25, 1, 4.0, False), (0.5, 0, 1.0, True), (0.25, 1, 8.0, True)]},
    1: {0: [(1.0, 0, 2.0, False)]},
}


def test_only_the_done_flag_ends_an_episode():
    model = from_gymnasium(TABLE, criterion="total", initial=[1.0, 0.0])
    assert model.state_names == ("0", "1", "0 end", "1 end")
    np.testing.assert_array_equal(
        model.dense()[:, 0], [[0, 0.25, 0.5, 0.25], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    )
    np.testing.assert_array_equal(model.rewards_next[:3], [4, 1, 8])
    np.testing.assert_array_equal(model.rewards[:, 0], [3.5, 2, 0, 0])
    np.testing.assert_array_equal(model.initial, [1, 0, 0, 0])


def test_an_end_keeps_every_action():
    row = {0: [(1.0, 1, 1.0, True)], 1: [(1.0, 0, 0.0, False)]}
    model = from_gymnasium({0: row, 1: row}, criterion="total", initial=[1.0, 0.0])
    assert model.num_states == 3
    assert model.available.all()
    np.testing.assert_array_equal(model.dense()[2], [[0, 0, 1], [0, 0, 1]])


def test_duplicate_successors_add_up_and_mean_their_rewards():
    table = {0: {0: [(0.25, 0, 8.0, False), (0.75, 0, 4.0, False)]}}
    model = from_gymnasium(table, criterion="average", initial=[1.0])
    assert model.data.tolist() == [1.0]
    assert model.rewards.tolist() == [[5.0]]


def test_a_state_that_is_an_end_already_needs_no_copy():
    table = {0: {0: [(1.0, 1, 1.0, True)]}, 1: {0: [(1.0, 1, 0.0, True)]}}
    model = from_gymnasium(table, criterion="total", initial=[1.0, 0.0])
    assert model.num_states == 2
    table[1][0] = [(1.0, 1, 0.5, True)]  # pays when an episode starts there, but only once
    model = from_gymnasium(table, criterion="total", initial=[1.0, 0.0])
    np.testing.assert_array_equal(model.dense()[:, 0], [[0, 0, 1], [0, 0, 1], [0, 0, 1]])


def test_actions_that_a_state_does_not_have_and_names():
    table = {"in": {0: [(1.0, "out", 1.0, False)]}, "out": {2: [(1.0, "in", 0.0, False)], 0: []}}
    model = from_gymnasium(table, criterion="average", initial=[1.0, 0.0])
    assert model.state_names == ("in", "out")
    np.testing.assert_array_equal(model.available, [[True, False, False], [False, False, True]])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "holds no states"),
        ({0: {0: [(1.0, 5, 0.0, False)]}}, r"P\[0\]\[0\] leads to 5, which is no state"),
        ({0: {0: [(1.0, [], 0.0, False)]}}, r"P\[0\]\[0\] leads to \[\], which is no state"),
        ({0: {0: [(1.0, 0, 0.0)]}}, r"P\[0\]\[0\] holds \(1.0, 0, 0.0\), expected"),
        ({0: {"left": []}}, r"P\[0\] has action 'left', expected whole numbers"),
        ({0: {0: []}}, "holds no transitions"),
        ({0: {0: [(0.9, 0, 0.0, False)]}}, r"\(state 0, action 0\) sum to 0.9"),
        (
            {0: {0: [(-0.5, 0, 0.0, False), (1.5, 0, 0.0, False)]}},
            r"probability of \(state 0, action 0\) to state 0 is -0.5",
        ),
        ({0: {0: [(1.0, 0, float("nan"), False)]}}, r"reward of \(state 0, action 0\) .* is nan"),
        ({0: {0: [(1.0, 0, "1", False)]}}, "reward holds .*expected numbers"),
        ({0: {0: [(1.0, 0, 0.0, False)]}, 1: {}}, "state 1 has no action"),
    ],
)
def test_faults_of_a_table_are_located(table, message):
    with pytest.raises(ModelError, match=message):
        from_gymnasium(table, criterion="average", initial=np.eye(len(table))[0] if table else [])


def test_what_a_table_lacks_is_asked_for():
    with pytest.raises(ModelError, match="no start law: say initial="):
        from_gymnasium(TABLE, criterion="total")
    with pytest.raises(ModelError, match=r"initial has shape \(3,\), expected \(S,\) = \(2,\)"):
        from_gymnasium(TABLE, criterion="total", initial=[1, 0, 0])
    with pytest.raises(ConfigError, match="samples is for environments without a table"):
        from_gymnasium(TABLE, criterion="total", initial=[1, 0], samples=5)
    with pytest.raises(ConfigError, match="'fuel' is a key of info, which a table does not have"):
        from_gymnasium(TABLE, criterion="total", initial=[1, 0], costs={"fuel": "fuel"})
    with pytest.raises(ConfigError, match="no transition table P: say samples="):
        from_gymnasium(gymnasium.make("Blackjack-v1"), criterion="total")


def test_costs_by_table_and_by_function():
    model = from_gymnasium(
        TABLE,
        criterion="total",
        initial=[1.0, 0.0],
        costs={"flat": [[3.0], [1.0]], "arrival": lambda s, a, t: 10 * s + t},
        capacities={"flat": 1.0, "arrival": 2.0},
    )
    assert model.costs[0, :, 0].tolist() == [3, 1, 0, 0]
    assert model.costs[1, :, 0].tolist() == [0.5, 10, 0, 0]


def test_frozen_lake_over_100_steps():
    model = from_gymnasium("FrozenLake-v1", criterion="episodic", horizon=100)
    assert model.num_states == 16
    assert plan(model).value == pytest.approx(0.7441902878, abs=1e-9)


def test_an_environment_of_ours_gives_its_model_back():
    from tightrope.adapter import FiniteMDPEnv

    model = from_gymnasium(TABLE, criterion="total", initial=[1.0, 0.0])
    env = gymnasium.wrappers.TimeLimit(FiniteMDPEnv(model), 5)
    assert from_gymnasium(env, criterion="total").content_hash == model.content_hash


class Walk(gymnasium.Env):
    """TABLE from either start, with fuel 2 a step."""

    observation_space = gymnasium.spaces.Discrete(9)
    action_space = gymnasium.spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(2))
        return self.state, {}

    def step(self, action):
        outcomes = TABLE[self.state][action]
        share = np.cumsum([outcome[0] for outcome in outcomes])
        _, self.state, reward, done = outcomes[int(np.sum(self.np_random.random() >= share))]
        return self.state, reward, done, False, {"fuel": 2.0}


def sampled(**options):
    return from_gymnasium(Walk(), criterion="total", **options)


def test_a_sampled_model_says_that_it_is_an_estimate():
    costs = {"fuel": "fuel", "arrival": lambda s, a, t: t}
    limits = {"fuel": 9.0, "arrival": 9.0}
    with pytest.warns(ModelWarning, match="is an estimate from 6000 steps: .*states were seen"):
        model = sampled(samples=6000, seed=1, costs=costs, capacities=limits)
    assert isinstance(model, EstimatedMDP)
    assert "ESTIMATED from 6000 steps" in repr(model)
    assert model.counts.sum() == 6000
    assert model.state_names == ("0", "1", "0 end", "1 end")
    law = model.dense()[0, 0]
    error = np.sqrt(0.25 / model.counts[0, 0])
    assert np.abs(law - [0, 0.25, 0.5, 0.25]).max() < 4 * error
    assert abs(model.initial[0] - 0.5) < 0.05
    assert model.costs[0, :2, 0].tolist() == [2.0, 2.0]
    assert model.costs[1, 1, 0] == 0
    again = pickle.loads(pickle.dumps(model))
    assert again.content_hash == model.content_hash
    assert (again.counts == model.counts).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        assert sampled(samples=6000, seed=1, costs=costs, capacities=limits).content_hash == (
            model.content_hash
        )


def test_sampling_needs_enough_steps_and_known_costs():
    with pytest.raises(ModelError, match="reached but never left in 1 steps; sample more"):
        sampled(samples=1, seed=0)
    with pytest.raises(ConfigError, match=r"cost 'fuel' is 'feul', .* info, which holds 'fuel'"):
        sampled(samples=10, seed=0, costs={"fuel": "feul"}, capacities={"fuel": 1})


def test_time_limits_are_no_transitions():
    """A cycle of 3 that pays 3 on leaving state 2, cut after 2 steps: cut is not done."""

    class Cycle(gymnasium.Env):
        observation_space = gymnasium.spaces.Discrete(3)
        action_space = gymnasium.spaces.Discrete(1)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.state = int(self.np_random.integers(3))
            return self.state, {}

        def step(self, action):
            reward = 3.0 if self.state == 2 else 0.0
            self.state = (self.state + 1) % 3
            return self.state, reward, False, False, {}

    env = gymnasium.wrappers.TimeLimit(Cycle(), 2)
    with pytest.warns(ModelWarning, match="estimate"):
        model = from_gymnasium(env, criterion="average", samples=300, seed=0)
    np.testing.assert_array_equal(model.dense()[:, 0], np.roll(np.eye(3), 1, axis=1))
    np.testing.assert_array_equal(model.rewards[:, 0], [0, 0, 3])


def test_discrete_spaces_as_numbers():
    spaces = gymnasium.spaces
    space = spaces.Tuple(
        [spaces.Discrete(3, start=5), spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])]
    )
    size, encode, decode = index_space(space)
    assert size == 3 * 4 * 6
    assert [encode(decode(i)) for i in range(size)] == list(range(size))
    assert all(space.contains((np.int64(x[0]), x[1].astype(np.int8), x[2])) for x in [decode(17)])
    with pytest.raises(ConfigError, match=r"Box.* is not discrete; .*Discretise"):
        index_space(spaces.Box(0, 1))
