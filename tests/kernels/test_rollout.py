"""The compiled rollout against its twin, and both against exact means."""

import numpy as np
import pytest
from tests.random_models import random_episodic

from tightrope.kernels import rollout as fast
from tightrope.kernels.reference import rollout as plain
from tightrope.model.policy import uniform_policy


@pytest.mark.parametrize("feedback", [fast.MEAN, fast.SAMPLED, fast.BERNOULLI])
@pytest.mark.parametrize("kind", ["actions", "probabilities"])
@pytest.mark.parametrize("seed", range(6))
def test_twins(seed, kind, feedback):
    model = random_episodic(seed)
    rng = np.random.default_rng(seed)
    H, m, n = model.horizon, model.num_costs, 7
    first = model.available.argmax(axis=1).astype(np.int32)
    actions = np.zeros((0, 1, 1), dtype=np.int32)
    table = np.zeros((0, 1, 1, 1))
    if kind == "actions":
        actions = np.stack([np.tile(first, (H, 1)), np.tile(first, (H, 1))])
    else:
        table = np.stack([uniform_policy(model.available).probabilities[None]] * 2)
    draws = rng.random((n, H + 1, 2 + m)), rng.random((n, H))
    next_rewards, next_costs = rng.random(model.data.size), rng.random((m, model.data.size))
    outs = []
    for module in (fast, plain):
        out = (
            np.zeros((n, H + 1), np.int32), np.zeros((n, H), np.int32), np.zeros((n, H)),
            np.zeros((n, H, m)), np.zeros((n, 1 + m)),
        )  # fmt: skip
        module.rollout_episodes(
            *model.tables(), H, next_rewards, next_costs, feedback, actions, table,
            np.array([0, 1, 0, 1, 1, 0, 0], np.int32), *draws, *out,
        )  # fmt: skip
        outs.append(out)
    for left, right in zip(*outs):
        assert left == pytest.approx(right, abs=1e-12)
