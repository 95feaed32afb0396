"""Faults that people meet with models and planners, each with its right answer.

By the public interface alone: a model goes in, numbers or a message come out.
"""

import numpy as np
import pytest

import tightrope as tr
from tightrope.errors import ModelError

STAY_OR_GO = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]]
SLIDE = [[[0.6, 0.4], [0.3, 0.7]], [[0.1, 0.9], [0.2, 0.8]]]  # action first
CHOICE = {
    "transitions": STAY_OR_GO,
    "rewards": [[2.0, 1.0], [0.0, 0.5]],
    "costs": [[[1.0, 0.0], [0.0, 0.0]]],
}
PAYS_LATER = {
    "transitions": STAY_OR_GO,
    "rewards": [[0.0, 0.0], [0.2, 1.0]],
    "costs": [[[0.0, 0.0], [0.0, 1.0]]],
}
TIGHT = {
    "transitions": [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]],
    "rewards": [[1.0, 0.0], [0.0, 0.0]],
    "costs": [[[1.0, 0.6], [0.2, 0.2]]],
}
TWO_CHAINS = {
    "transitions": [
        [[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]],
        [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]],
        [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]],
    ],
    "rewards": [[0.0, 0.0], [4.0, 1.0], [2.0, 0.5]],
    "costs": [[[0.0, 0.0], [2.0, 0.0], [1.0, 0.0]]],
}
TRAP = {  # 0: to the goal at cost 4, or into the trap, which costs 1 for ever
    "transitions": np.eye(3)[[[1, 2], [1, 1], [2, 2]]],
    "rewards": [[1.0, 5.0], [0.0, 0.0], [0.0, 0.0]],
    "costs": [[[4.0, 0.0], [0.0, 0.0], [1.0, 1.0]]],
}


def model_of(fields, criterion, capacity=None):
    limits = {} if capacity is None else {"capacities": [capacity]}
    return tr.FiniteMDP(**fields, **limits, criterion=criterion, axes="sas")


@pytest.mark.parametrize(
    ("fields", "criterion", "capacity", "value"),
    [
        (TWO_CHAINS, tr.Average(), 0.2, 1.05),
        (TWO_CHAINS, tr.Average(), 0.5, 1.5),
        (TWO_CHAINS, tr.Average(), 1.0, 2.25),
        (TWO_CHAINS, tr.Average(), 1.5, 3.0),
        (TWO_CHAINS, tr.Average(), 2.0, 3.0),
        (TRAP, tr.Total(), 4.0, 1.0),
        (TRAP, tr.Total(), 3.0, None),
        (TIGHT, tr.Average(), 0.3, None),
        (TIGHT, tr.Average(), 0.4, 0.0),
        (TIGHT, tr.Average(), 0.5, 1 / 6),
        (TIGHT, tr.Average(), 0.7, 0.5),
        (TIGHT, tr.Average(), 1.0, 1.0),
        (CHOICE, tr.Average(), 0.0, 0.5),
        (CHOICE, tr.Average(), 0.25, 0.875),
        (CHOICE, tr.Average(), 0.5, 1.25),
        (CHOICE, tr.Average(), 1.0, 2.0),
        # what a capacity means: "3" and "0.3" under four conventions
        (PAYS_LATER, tr.Discounted(0.9), 3.0, 3.6315789473684212),
        (PAYS_LATER, tr.Discounted(0.9), 3.0 / (1 - 0.9), 9.0),
        (PAYS_LATER, tr.Episodic(10), 3.0, 3.7),
        (PAYS_LATER, tr.Average(), 3.0, 1.0),
        (PAYS_LATER, tr.Discounted(0.9), 0.3, 1.2157894736842105),
        (PAYS_LATER, tr.Discounted(0.9), 0.3 / (1 - 0.9), 3.6315789473684212),
        (PAYS_LATER, tr.Episodic(10), 0.3, 1.27),
        (PAYS_LATER, tr.Average(), 0.3, 0.37),
    ],
)
def test_optimum_within_a_capacity(fields, criterion, capacity, value):
    model = model_of(fields, criterion, capacity)
    solution = tr.plan(model)
    assert solution.status.value == ("infeasible" if value is None else "solved")
    if value is None:
        assert solution.value is None
        assert solution.least_violation.shortfall > 0
        return
    assert solution.value == pytest.approx(value, abs=1e-8)
    again = tr.evaluate(model, solution.policy)
    assert (again.value, again.costs.tolist()) == (solution.value, solution.costs.tolist())
    assert again.costs[0] <= capacity + 1e-9


def test_the_least_cost_its_policy_and_the_shortfall():
    least = tr.plan(model_of(TIGHT, "average", 0.3)).least_violation
    assert least.costs == pytest.approx([0.4])
    assert least.shortfall == pytest.approx(0.1)
    assert tr.evaluate(model_of(TIGHT, "average", 0.3), least.policy).costs == pytest.approx([0.4])


def test_the_optimum_randomises():
    solution = tr.plan(model_of(CHOICE, "average", 0.5))
    assert solution.multipliers == pytest.approx([1.5])
    rows = tr.policy_table(model_of(CHOICE, "average", 0.5), solution.policy).to_pylist()
    assert sum(0 < row["probability"] < 1 for row in rows if row["visits"] > 0) >= 2


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        # row that sums to 0.99, divided by its sum as the user asks
        ({"transitions": np.array([[[1.0, 1, 1]], [[0, 3, 0]], [[0, 0, 3]]]) / 3,
          "rewards": [[0], [1], [4]], "discount": 0.9}, [21.428571428571427, 10, 40]),
        ({"transitions": [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]],
          "rewards": [[-1.0, -3.0], [1.0, 0.0]], "available": [[1, 1], [1, 0]],
          "discount": 0.9, "axes": "sas"}, [-10, -8]),
        ({"transitions": [[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.6, 0.4]]], "axes": "sas",
          "rewards": [[0.0, 1.0], [2.0, 0.0]], "discount": 0.9},
         [15.669291338581818, 16.456692913384966]),
        ({"transitions": [[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.6, 0.4]]], "axes": "ass",
          "rewards": [[0.0, 1.0], [2.0, 0.0]], "discount": 0.9},
         [16.164383561643017, 17.534246575341648]),
        ({"transitions": [[[0, 0.25, 0.75]], [[0, 0, 1]], [[0, 0, 1]]], "discount": 0.5,
          "rewards_next": [[[0, 8, -4]], [[0, 0, 10]], [[0, 0, 0]]]}, [0.25, 10, 0]),
        ({"transitions": SLIDE, "axes": "ass", "rewards": [[4.0, 9.0], [-2.0, 1.0]],
          "discount": 0.99}, [251.4103730664, 244.1310282075]),
        ({"transitions": SLIDE, "axes": "ass", "rewards": [[2, 2], [2, 2]], "discount": 0.9},
         [20, 20]),
        ({"transitions": [[[0, 1.0]], [[0, 1.0]]], "rewards": [[-3.0], [-2.0]],
          "discount": 0.9}, [-21, -20]),
    ],
    ids=["rounding", "mask", "sas", "ass", "r(s,a,s')", "stopping", "constant", "negative"],
)  # fmt: skip
@pytest.mark.parametrize("suffix", [None, "npz", "json", "csv"])
def test_discounted_values(fields, values, suffix, tmp_path):
    """From arrays, and again from a file."""
    model = tr.FiniteMDP(**fields, criterion="discounted")
    if suffix is not None:
        tr.save(model, tmp_path / f"model.{suffix}")
        model = tr.load(tmp_path / f"model.{suffix}")
    solution = tr.plan(model)
    assert solution.state_values == pytest.approx(values, abs=1e-8)
    assert solution.gap <= 1e-8
    if values[0] > 251:
        assert solution.policy.actions.tolist() == [1, 1]


def test_discount_one_is_the_average_criterions():
    table = {
        "transitions": [[[1.0, 0.0], [0.0, 1.0]], [[0.1, 0.9], [0.1, 0.9]]],
        "rewards": [[1.0, 0.0], [1.3, 1.3]],
    }
    with pytest.raises(ModelError, match=r"for discount 1 choose .*Average\(\).*Total\(\)"):
        tr.FiniteMDP(**table, criterion="discounted", discount=1.0, axes="sas")
    solution = tr.plan(model_of(table, "average"))
    assert solution.value == pytest.approx(13 / 11)
    assert solution.policy.actions[0] == 1
