"""Policies as tables and text: they say what is played, and how often."""

import numpy as np
import pytest

import tightrope as tr
from tightrope.errors import ConfigError
from tightrope.model.policy import (
    DeterministicPolicy,
    MixturePolicy,
    StochasticPolicy,
    uniform_policy,
)
from tightrope.planning.policies import LINES, parts_of, policy_table, policy_text, visits

# two absorbing choices: reward 2 at cost 1, or 0.5 at cost 0
CHOICE = tr.FiniteMDP(
    transitions=[[[1, 0], [0, 1]], [[1, 0], [0, 1]]],
    rewards=[[2.0, 1.0], [0.0, 0.5]],
    costs=[[[1.0, 0.0], [0.0, 0.0]]],
    capacities=[0.5],
    criterion="average",
    axes="sas",
)
HALVES = MixturePolicy(
    (DeterministicPolicy(np.array([0, 0])), DeterministicPolicy(np.array([1, 1]))),
    np.array([0.5, 0.5]),
)


def as_policy(model, table):
    """The policy that a table's rows say; uniform where there are none."""
    stages = model.horizon if table["stage"].null_count == 0 else 1
    out = np.tile(uniform_policy(model.available).probabilities, (stages, 1, 1))
    for row in table.to_pylist():
        out[row["stage"] or 0, row["state"]] = 0.0
    for row in table.to_pylist():
        out[row["stage"] or 0, row["state"], row["action"]] = row["probability"]
    return StochasticPolicy(out if stages > 1 else out[0])


@pytest.mark.parametrize("problem", ["mars_rover", "inventory", "media_buffer", "budget_pacing"])
def test_the_table_of_an_episodic_plan_earns_what_the_plan_earns(problem):
    model = getattr(tr.problems, problem)()
    solution = tr.plan(model)
    table = policy_table(model, solution.policy)
    found = tr.evaluate(model, as_policy(model, table))
    assert found.value == pytest.approx(solution.value, abs=1e-9)
    assert found.costs == pytest.approx(solution.costs, abs=1e-9)
    assert sum(table["visits"].to_pylist()) == pytest.approx(model.horizon)
    assert set(table["weight"].to_pylist()) == {1.0}


@pytest.mark.parametrize(
    ("criterion", "total"),
    [(tr.Average(), 1.0), (tr.Discounted(0.9), 10.0), (tr.Episodic(4), 4.0)],
)
def test_visits_add_up(criterion, total):
    model = CHOICE.replace(criterion=criterion, capacities=CHOICE.capacities)
    policy = uniform_policy(model.available)
    assert visits(model, policy).sum() == pytest.approx(total)
    table = policy_table(model, policy)
    assert table["stage"].null_count == 4
    assert sum(table["visits"].to_pylist()) == pytest.approx(total)


def test_visits_before_the_end():
    model = tr.FiniteMDP(
        transitions=[[[0.75, 0.25]], [[0, 1]]], rewards=[[-1.0], [0.0]], criterion="total"
    )
    assert visits(model, uniform_policy(model.available)).ravel() == pytest.approx([4.0, 0.0])


def test_a_discounted_mixture_is_one_policy():
    model = CHOICE.replace(criterion=tr.Discounted(0.9), capacities=CHOICE.capacities)
    (part,) = parts_of(model, HALVES)
    wanted = tr.evaluate(model, HALVES)
    found = tr.evaluate(model, StochasticPolicy(part.table[0]))
    assert found.value == pytest.approx(wanted.value)
    assert found.costs == pytest.approx(wanted.costs)


def test_a_mixture_for_which_no_policy_stands_is_shown_part_by_part():
    parts = parts_of(CHOICE, HALVES)
    assert [part.weight for part in parts] == [0.5, 0.5]
    assert policy_table(CHOICE, HALVES)["weight"].to_pylist() == [0.5] * 3  # never in state 1 first
    text = policy_text(CHOICE, HALVES)
    assert text.count("with probability 0.5 drawn at the start:") == 2
    assert text.startswith("2 policies, one of which is drawn at the start\n")


def test_text_of_the_mars_rover():
    model = tr.problems.mars_rover()
    text = policy_text(model, tr.plan(model).policy)
    lines = [line.split(None, 3) for line in text.splitlines()]
    assert ["0,3", "5", "0.0831434", "down (0.9468), right (0.0532)"] in lines
    assert "shown is the one policy with the same visits" in text
    assert LINES < len(lines) < LINES + 10
    assert "states: those where it is most often" in text


def test_one_stage():
    model = tr.problems.media_buffer()
    policy = tr.plan(model).policy
    table = policy_table(model, policy, stage=1)
    assert set(table["stage"].to_pylist()) == {1}
    assert sum(table["visits"].to_pylist()) == pytest.approx(1.0)
    fixed = uniform_policy(model.available)
    assert sum(policy_table(model, fixed, stage=9)["visits"].to_pylist()) == pytest.approx(1.0)
    for stage in (-1, 10):
        with pytest.raises(ConfigError, match="stage must be a step of an episode, from 0"):
            policy_table(model, policy, stage=stage)
    with pytest.raises(ConfigError, match="stage must be a step"):
        policy_text(CHOICE, HALVES, stage=0)
