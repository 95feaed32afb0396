"""Compiled sweeps and their NumPy twins agree."""

import numpy as np
import pytest
from tests.random_models import random_stationary

from tightrope.kernels import average
from tightrope.kernels.reference import average as reference
from tightrope.planning.gains import frame_of


@pytest.mark.parametrize("seed", range(6))
def test_relative_iteration(seed):
    model = random_stationary(seed)
    frame = frame_of(model)
    t = frame.tables
    answers = []
    for module in (average, reference):
        bias = np.linspace(0.0, 1.0, model.num_states)
        lower, upper = np.zeros(frame.parts), np.zeros(frame.parts)
        actions = np.zeros(model.num_states, dtype=np.int64)
        sweeps = module.relative_iteration(
            t.start, t.stop, t.indices, t.data, t.rewards[0], frame.staying,
            frame.labels.astype(np.int64), 0.9, 1e-6, 500, bias, lower, upper, actions,
        )  # fmt: skip
        answers.append((sweeps, bias, lower, upper, actions))
    assert answers[0][0] == answers[1][0]
    for here, there in zip(answers[0][1:], answers[1][1:]):
        assert np.allclose(here, there, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_discounted_iteration(seed):
    model = random_stationary(seed, "discounted", discount=0.95)
    t = model.tables()
    answers = []
    for module in (average, reference):
        values = np.zeros(model.num_states)
        actions = np.zeros(model.num_states, dtype=np.int64)
        found = module.discounted_iteration(
            t.start, t.stop, t.indices, t.data, t.rewards[0], t.available, 0.95, 5, 1e-6, 900,
            values, actions,
        )  # fmt: skip
        answers.append((*found, values, actions))
    for here, there in zip(*answers):
        assert np.allclose(here, there, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [1.0, 1e12, 1e17])
def test_differences_stay_within_their_error_of_the_exact_ones(size):
    for seed in range(6):
        model = random_stationary(seed)
        t, rng = model.tables(), np.random.default_rng(seed)
        states, width = model.rewards.shape
        high = rng.normal(size=states) * rng.choice([size, 1.0], states) + size
        low = rng.normal(size=states) * 1e-16 * np.abs(high)
        level = rng.normal(size=states)
        owner = np.repeat(np.arange(states), width)
        table = (t.start, t.stop, t.indices, t.data, owner, model.rewards.ravel(), level, high, low)
        here, there = np.empty((2, owner.size)), np.empty((2, owner.size))
        average.differences(*table, *here)
        reference.differences(*table, *there)
        assert (np.abs(here[0] - there[0]) <= here[1]).all()
        assert (here[1] <= 1e-14 * (1 + np.abs(there[0])) + 1e-27 * size).all()


def test_differences_that_overflow_bound_nothing():
    out, error = np.empty((2, 1))
    average.differences(
        np.array([0]), np.array([1]), np.array([1], dtype=np.int32), np.array([1.0]), np.array([0]),
        np.zeros(1), np.zeros(2), np.array([-1e308, 1e308]), np.zeros(2), out, error,
    )  # fmt: skip
    assert (out[0], error[0]) == (0.0, np.inf)
