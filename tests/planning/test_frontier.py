"""The frontier against a grid of solves, by every criterion."""

import numpy as np
import pytest
from tests.random_models import random_episodic, random_stationary

from tightrope import FiniteMDP
from tightrope.errors import ConfigError, PlanError, Status
from tightrope.planning import plan
from tightrope.planning.frontier import frontier
from tightrope.problems import mars_rover


def check_against_plan(model, name, found, number, tolerance, seed=0):
    """Bounds hold at random capacities, and the least capacity is where feasibility ends."""
    rng = np.random.default_rng(seed)
    low, high = found.capacities[0], found.capacities[-1]
    capacities = np.append(rng.uniform(low, high, number), found.binds_until + found.sign)
    lower, upper = found.at(capacities)
    for here, down, up in zip(capacities, lower, upper):
        solution = plan(model.replace(capacities={name: here}))
        assert solution.status is Status.SOLVED
        assert down - tolerance <= solution.value <= up + tolerance
        assert abs(solution.value - down) <= found.error + tolerance
    beyond = found.least_capacity - found.sign * 1e-3 * max(1.0, abs(found.least_capacity))
    assert plan(model.replace(capacities={name: beyond})).status is Status.INFEASIBLE
    assert found.at(beyond)[1] == -np.inf


def test_mars_rover_within_the_promised_number_of_programs():
    model = mars_rover()
    found = frontier(model, "cost", error=1e-7)
    assert found.error <= 1e-7
    assert found.programs <= 350
    assert found.least_capacity == pytest.approx(4.0058e-6, abs=1e-10)
    capacities = np.random.default_rng(1).uniform(found.least_capacity, found.binds_until, 50)
    lower, upper = found.at(capacities)
    values = [plan(model.replace(capacities=[c])).value for c in capacities]
    assert np.abs(lower - values).max() <= 2e-7
    assert np.abs(upper - values).max() <= 2e-7
    for capacity, right in ((0.3, 1.53628844), (0.2, 1.51699026), (0.1, 1.49741215)):
        assert found.at(capacity)[0] == pytest.approx(right, abs=1.1e-7)
    slopes = found.to_json()["multipliers"]
    assert (np.diff(slopes) < 0).all()
    k = np.searchsorted(found.capacities, 0.3)
    assert slopes[k - 1] == pytest.approx(0.19298178, abs=2e-3)


def test_mars_rover_exact():
    model = mars_rover()
    found = frontier(model, "cost", exact=True)
    assert found.exact
    assert found.error <= 1e-10
    assert found.capacities.size > 700
    assert found.programs <= 3 * found.capacities.size
    k = np.searchsorted(found.capacities, 0.3)  # the two policies of the published mixture
    assert found.capacities[k - 1 : k + 1] == pytest.approx([0.19014125, 0.30616801], abs=1e-8)
    assert found.values[k - 1 : k + 1] == pytest.approx([1.51508770, 1.53747875], abs=1e-8)
    capacities = np.random.default_rng(2).uniform(found.least_capacity, found.binds_until, 20)
    values = [plan(model.replace(capacities=[c])).value for c in capacities]
    assert found.at(capacities)[0] == pytest.approx(values, abs=1e-9)


def test_closed_form_and_a_limit_on_the_programs():
    model = FiniteMDP(
        transitions=[[[1, 0], [0, 1]]] * 2,
        rewards=[[2.0, 1.0], [0.0, 0.5]],
        costs=[[[1.0, 0.0], [0.0, 0.0]]],
        capacities=[0.5],
        criterion="average",
        axes="sas",
    )
    found = frontier(model, "cost", exact=True)
    assert found.capacities.tolist() == [0.0, 1.0]
    assert found.values == pytest.approx([0.5, 2.0])
    assert found.to_json()["multipliers"] == pytest.approx([1.5])
    short = frontier(mars_rover(), "cost", limit=20)
    assert short.programs == 20
    assert short.error > 1e-7
    assert not short.exact
    lower, upper = short.at(0.3)
    assert lower <= 1.53628844 <= upper


@pytest.mark.parametrize("criterion", ["average", "discounted"])
def test_other_criteria(criterion):
    extra = {"discount": 0.9} if criterion == "discounted" else {}
    for seed in (0, 1, 3, 4):
        model = random_stationary(seed, criterion, m=1, **extra)
        found = frontier(model, "cost", exact=True)
        assert found.exact, seed
        check_against_plan(model, "cost", found, 4, 1e-8 * max(1, np.abs(model.rewards).max()))


def test_total_criterion():
    # walk to the goal for free, or pay for a short cut at each of two steps
    table = np.zeros((3, 2, 3))
    table[0, 0, [0, 1]], table[0, 1, 1] = 0.5, 1.0
    table[1, 0, [1, 2]], table[1, 1, 2] = 0.5, 1.0
    table[2, :, 2] = 1.0
    model = FiniteMDP(
        transitions=table,
        rewards=[[-1.0, -1.0], [-1.0, -1.0], [0.0, 0.0]],
        costs=[[[0.0, 1.0], [0.0, 2.0], [0.0, 0.0]]],
        capacities=[1.0],
        criterion="total",
        axes="sas",
    )
    found = frontier(model, "cost", exact=True)
    assert found.capacities == pytest.approx([0.0, 1.0, 3.0], abs=1e-12)
    assert found.values == pytest.approx([-4.0, -3.0, -2.0], abs=1e-12)
    check_against_plan(model, "cost", found, 4, 1e-9)


def test_floors_and_other_capacities():
    checked = 0
    for seed in range(80):
        model = random_episodic(seed)
        if model.num_costs < 2 or model.num_states > 15:
            continue
        name = model.cost_names[0]
        loose = model.replace(capacities={name: model.signs[0] * 1e6})
        if plan(loose).status is Status.INFEASIBLE:
            with pytest.raises(PlanError, match="the other capacities cannot be kept"):
                frontier(model, name)
            continue
        scale = max(1.0, np.abs(model.rewards).max() * model.horizon)
        found = frontier(model, name, error=1e-7 * scale)
        assert found.error <= 1e-7 * scale, seed
        check_against_plan(model, name, found, 3, 1e-7 * scale)
        checked += 1
        if checked == 6:
            break
    assert checked == 6


def test_unknown_cost():
    with pytest.raises(ConfigError, match="did you mean 'cost'"):
        frontier(mars_rover(), "coast")
