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
