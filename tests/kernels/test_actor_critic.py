"""Compiled actor-critic against its plain twin."""

import numpy as np
import pytest

from tightrope.kernels import actor_critic as fast
from tightrope.kernels.reference import actor_critic as plain


@pytest.mark.parametrize("seed", range(5))
def test_twins(seed):
    rng = np.random.default_rng(seed)
    S, A, H = 5, 3, 7
    available = rng.random((S, A)) < 0.7
    available[:, 0] = True
    results = []
    for kernels in (fast, plain):
        draw = np.random.default_rng(seed + 100)
        logits, critic, moments = np.zeros((S, A)), np.zeros(S), np.zeros((2, S, A + 1))
        for count in range(1, 30):
            states = draw.integers(0, S, H + 1).astype(np.int32)
            actions = np.array([draw.choice(np.flatnonzero(available[s])) for s in states[:-1]])
            kernels.actor_critic_step(
                states, actions.astype(np.int32), draw.normal(size=H), available, count, 0.1, 0.05,
                0.02, logits, critic, moments,
            )  # fmt: skip
        policy = np.empty_like(logits)
        kernels.softmax_policy(logits, available, policy)
        results.append((logits, critic, moments, policy))
    for left, right in zip(*results):
        assert left == pytest.approx(right, rel=1e-9, abs=1e-12)
    assert (results[0][3][~available] == 0).all()
    assert results[0][3].sum(axis=1) == pytest.approx(np.ones(S))
