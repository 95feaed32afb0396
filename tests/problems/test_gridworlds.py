"""Gridworlds refuse a horizon in which the goal cannot be reached."""

import pytest

import tightrope as tr
from tightrope.errors import ConfigError, ModelError


def test_horizon_shorter_than_the_path_to_the_goal():
    with pytest.raises(ModelError, match="the least is 14 steps"):
        tr.problems.mars_rover(horizon=13)
    assert tr.problems.mars_rover(horizon=14).horizon == 14
    with pytest.raises(ModelError, match="horizon 3 is shorter than the path to the goal"):
        tr.problems.box(horizon=3)


def test_a_map_whose_goal_is_walled_in_is_still_a_model():
    assert tr.problems.mars_rover(map="SP\nPG", horizon=2).num_states == 4


@pytest.mark.parametrize("make", [tr.problems.mars_rover, tr.problems.box, tr.problems.random_cmdp])
@pytest.mark.parametrize("horizon", [0, -1, 2.5, "30", None])
def test_horizons_that_are_none(make, horizon):
    with pytest.raises(ConfigError, match="horizon must be a whole number >= 1"):
        make(horizon=horizon)


@pytest.mark.parametrize(
    "bad", [{"seed": -1}, {"num_states": 2.5}, {"num_actions": 0}, {"num_costs": -1}]
)
def test_sizes_and_seeds_of_random_models(bad):
    with pytest.raises(ConfigError, match=f"{next(iter(bad))} must be a whole number"):
        tr.problems.random_cmdp(**bad)


def test_slack_of_random_models():
    with pytest.raises(ConfigError, match="cannot bind with slack"):
        tr.problems.random_cmdp(1, 1)
    with pytest.raises(ConfigError, match=r"slack must be in \(0, [0-9.]+\] .* got 100"):
        tr.problems.random_cmdp(slack=100.0)
