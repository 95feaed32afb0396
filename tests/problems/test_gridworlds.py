"""Gridworlds refuse a horizon in which the goal cannot be reached."""

import pytest

import tightrope as tr
from tightrope.errors import ModelError


def test_horizon_shorter_than_the_path_to_the_goal():
    with pytest.raises(ModelError, match="the least is 14 steps"):
        tr.problems.mars_rover(horizon=13)
    assert tr.problems.mars_rover(horizon=14).horizon == 14
    with pytest.raises(ModelError, match="horizon 3 is shorter than the path to the goal"):
        tr.problems.box(horizon=3)


def test_a_map_whose_goal_is_walled_in_is_still_a_model():
    assert tr.problems.mars_rover(map="SP\nPG", horizon=2).num_states == 4
