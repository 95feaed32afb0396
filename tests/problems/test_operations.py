"""Operations problems: printed optima, closed forms, and what wrong parameters say."""

import numpy as np
import pytest
from scipy.optimize import linprog

from tightrope.errors import ConfigError
from tightrope.planning import plan
from tightrope.problems import operations
from tightrope.types import Discounted, Episodic


def stationary_optimum(model):
    """Optimum and multipliers of a unichain average model, by its linear program."""
    size, actions = model.num_states, model.num_actions
    flow = np.repeat(np.eye(size), actions, axis=1) - model.matrix().toarray().T
    found = linprog(
        -model.rewards.ravel(),
        A_eq=np.vstack([flow, np.ones(size * actions)]),
        b_eq=np.append(np.zeros(size), 1.0),
        A_ub=model.signs[:, None] * model.costs.reshape(model.num_costs, -1),
        b_ub=model.signs * model.capacities,
    )
    return -found.fun, -found.ineqlin.marginals


@pytest.mark.parametrize(
    ("problem", "value"),
    [
        (operations.service_queue, -0.1109243697),
        (operations.machine_replacement, 0.7642328549),
    ],
)
def test_printed_averages(problem, value):
    solution = plan(problem())
    assert solution.value == pytest.approx(value, abs=1e-9)
    found, multipliers = stationary_optimum(problem())
    assert found == pytest.approx(value, abs=1e-6)  # the program's own tolerance is 1e-7
    np.testing.assert_allclose(solution.multipliers, multipliers, atol=1e-5)
    assert (multipliers > 1e-3).all()  # both capacities bind


@pytest.mark.parametrize(
    ("problem", "value", "multipliers"),
    [
        (operations.inventory, 1.9209095540, [0.15966297, 0.68603715]),
        (operations.media_buffer, 5.6680569721, [1.1034388166]),
        (operations.budget_pacing, 8.14, [0.5, 0.35]),
    ],
)
def test_printed_totals(problem, value, multipliers):
    model = problem()
    solution = plan(model)
    assert solution.value == pytest.approx(value, abs=1e-9)
    np.testing.assert_allclose(solution.multipliers, multipliers, atol=1e-7)
    np.testing.assert_allclose(solution.costs, model.capacities, atol=1e-8)


def test_a_queue_without_choice_has_its_geometric_law():
    """One rate each: a birth-death chain, whose mean length is known in closed form."""
    a, b, size = 0.6, 0.3, 8
    model = operations.service_queue(
        buffer=size, service=[a], arrival=[b], energy=1.0, throughput=0.0
    )
    up, down = (1 - a) * b, a * (1 - b)
    law = np.array([(up / down) ** x for x in range(size)] + [(up / down) ** (size - 1) * up / a])
    law /= law.sum()
    assert stationary_optimum(model)[0] == pytest.approx(-law @ np.arange(size + 1), abs=1e-10)


def test_stock_for_a_demand_that_is_known():
    """Demand 2 a day, no limits: order exactly what is sold, holding 2 of 5 every day."""
    model = operations.inventory(demand=[0, 0, 1.0], holding=100.0, ordering=100.0)
    assert plan(model).value == pytest.approx(7 * 0.4)
    tight = operations.inventory(demand=[0, 0, 1.0], holding=7 * 0.4, ordering=7 * 0.8 / 1.55)
    solution = plan(tight)
    assert solution.value == pytest.approx(2.8)
    assert [np.flatnonzero(row).tolist() for row in tight.available] == [
        list(range(6 - stock)) for stock in range(6)
    ]


def test_a_player_that_never_plays_keeps_what_it_has():
    model = operations.media_buffer(playing=0.0, fast=1.0, slow=0.0, horizon=5, fast_share=0.2)
    assert plan(model).value == pytest.approx(4.0)  # one fast slot fills it for good


def test_pacing_shades_bids_by_the_shadow_price():
    """Independent values: bid v / multiplier, so that a win is worth v - multiplier * p >= 0."""
    model = operations.budget_pacing(persistence=0.0, wins=100.0, budget=3.0)
    solution = plan(model)
    price = solution.multipliers[0]
    assert solution.multipliers[1] == 0
    values, prices = np.linspace(0.2, 1.0, 5), np.linspace(0.1, 0.9, 5)
    gain = np.maximum(values[:, None] - price * prices, 0).mean() * 20 + price * 3.0
    assert solution.value == pytest.approx(gain, abs=1e-9)  # Lagrangian duality


def test_a_machine_can_be_asked_in_other_criteria():
    model = operations.machine_replacement(criterion=Discounted(0.9))
    assert model.criterion == Discounted(0.9)
    assert operations.machine_replacement(criterion=Episodic(5)).horizon == 5


@pytest.mark.parametrize(
    ("problem", "parameters", "message"),
    [
        (operations.service_queue, {"buffer": 0}, "buffer must be a whole number >= 1"),
        (operations.service_queue, {"service": [1.2]}, r"service must be probabilities .* 1\.2"),
        (operations.inventory, {"demand": [0.5, 0.4]}, "demand probabilities sum to 0.9"),
        (operations.machine_replacement, {"wear": 0.99, "breakdown": 0.2}, "wear . breakdown"),
        (operations.media_buffer, {"fast": -0.1}, "must be probabilities"),
        (operations.budget_pacing, {"persistence": 2.0}, "persistence must be probabilities"),
    ],
)
def test_parameters_are_checked(problem, parameters, message):
    with pytest.raises(ConfigError, match=message):
        problem(**parameters)
