"""The world of a single stream over points of [0, 1] (`ContinuousLinearMDP`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tightrope.errors import ConfigError
from tightrope.learners.protocol import Experience, Stop
from tightrope.model.linear import ContinuousLinearMDP, LinearPolicy
from tightrope.model.policy import StochasticPolicy
from tightrope.simulation.streams import Streams, block_generator
from tightrope.types import FloatArray

BLOCK = 4096
"""Steps of one block of draws; block b is keyed by (seed, b), whoever learns."""


class PointWorld:
    """Where the stream is: `step` counts those played, `state` is the present point.

    Rewards are the means phi'theta. A step draws a uniform for the action, one for the component
    of the mixture, and a point of every component, so that all learners meet the same draws.
    """

    feedback = "mean"

    def __init__(self, model: ContinuousLinearMDP, seeds: Streams) -> None:
        self.model = model
        self.step = 0
        self.state = float(block_generator(seeds.environment, 0).random())
        self._environment = seeds.environment
        self._block = -1
        self._draws: tuple[FloatArray, FloatArray] = (np.zeros((0, 2)), np.zeros((0, 1)))

    def _next_draws(self) -> tuple[FloatArray, FloatArray]:
        block, offset = divmod(self.step, BLOCK)
        if block != self._block:
            generator = block_generator(self._environment, block + 1)
            size = (BLOCK, self.model.alphas.size)
            self._draws = (
                generator.random((BLOCK, 2)),
                generator.beta(self.model.alphas, self.model.betas, size=size),
            )
            self._block = block
        return self._draws[0][offset], self._draws[1][offset]

    def play(self, policy: Any, stop: Stop, limit: int) -> tuple[Experience, FloatArray]:
        """Play until the rule says stop, at most `limit` steps; returns also (n, 1) rewards.

        Raises ConfigError for rules other than ``steps`` and policies of numbered states.
        """
        if stop.kind != "steps":
            raise ConfigError(f"a stream of points cannot stop after '{stop.kind}'")
        number, model = min(stop.number, limit), self.model
        points, rewards = np.empty(number + 1), np.empty(number)
        actions = np.empty(number, dtype=np.int32)
        points[0], first = self.state, self.step + 1
        for t in range(number):
            uniforms, candidates = self._next_draws()
            here = points[t : t + 1]
            chances = _chances(policy, here, t)
            action = int(np.searchsorted(np.cumsum(chances[:-1]), uniforms[0], side="right"))
            phi = model.features(here)[0, action]
            shares = np.cumsum(phi @ model.shares)
            place = int(np.searchsorted(shares[:-1], uniforms[1], side="right"))
            actions[t], rewards[t], points[t + 1] = action, phi @ model.theta, candidates[place]
            self.step += 1
        self.state = float(points[-1])
        seen = Experience(
            first=first,
            states=points,  # type: ignore[arg-type]
            actions=actions,
            rewards=rewards,
            costs=np.zeros((number, 0)),
        )
        return seen, rewards[:, None]

    def exact(self, policy: Any, experience: Experience) -> FloatArray:
        """(n, 1) mean rewards of the steps."""
        return experience.rewards[:, None]

    def arrays(self) -> dict[str, np.ndarray]:
        """All that a resumed run needs."""
        return {"step": np.array(self.step), "state": np.array(self.state)}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from what `arrays` returned."""
        self.step, self.state = int(arrays["step"]), float(arrays["state"])


def _chances(policy: Any, here: FloatArray, t: int) -> FloatArray:
    """(A,) probabilities at a point."""
    if isinstance(policy, LinearPolicy):
        return policy.probabilities(here, t % len(policy.weights))[0]
    if isinstance(policy, StochasticPolicy) and policy.probabilities.shape[0] == 1:
        return policy.probabilities[0]  # one row: the same everywhere
    raise ConfigError(f"a stream of points needs a LinearPolicy, got {type(policy).__name__}")
