"""The world of an episodic problem: plays blocks of episodes and knows their exact values."""

from __future__ import annotations

import numpy as np

from tightrope.errors import ConfigError
from tightrope.kernels import rollout
from tightrope.learners.protocol import Experience, Stop
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import DeterministicPolicy, MixturePolicy, Policy, probabilities
from tightrope.planning.evaluation import policy_values
from tightrope.simulation.streams import Streams, block_generator
from tightrope.types import Feedback, FloatArray, IntArray

BLOCK = 256
"""Episodes of one block of uniforms; block b is keyed by (seed, b), whoever learns."""
CODES = {"mean": rollout.MEAN, "sampled": rollout.SAMPLED, "bernoulli": rollout.BERNOULLI}
NO_ACTIONS = np.zeros((0, 1, 1), dtype=np.int32)
NO_TABLE = np.zeros((0, 1, 1, 1))


class EpisodeWorld:
    """Where the simulation is: `episode` counts those played; set it to resume.

    Raises ConfigError if Bernoulli feedback is asked of a model outside [0, 1].
    """

    def __init__(self, model: FiniteMDP, seeds: Streams, feedback: Feedback = "sampled") -> None:
        if feedback not in CODES:
            raise ConfigError(f"feedback must be one of {sorted(CODES)}, got {feedback!r}")
        if feedback == "bernoulli":
            for name, table in (("rewards", model.rewards), ("costs", model.costs)):
                if table.size and not (table.min() >= 0 and table.max() <= 1):
                    raise ConfigError(
                        f"bernoulli feedback needs {name} in [0, 1], got "
                        f"[{table.min():.6g}, {table.max():.6g}]"
                    )
        self.model = model
        self.feedback = feedback
        self.episode = 0
        self._seeds = seeds
        self._block = -1
        self._tables = model.tables()
        self._horizon = model.horizon
        empty = np.zeros(0), np.zeros((model.num_costs, 0))
        self._next = (
            empty[0] if model.rewards_next is None else np.array(model.rewards_next),
            empty[1] if model.costs_next is None else np.array(model.costs_next),
        )
        self._exact: tuple[Policy | None, FloatArray] = (None, np.zeros((1, 0)))

    def _draws(self) -> None:
        """Uniforms of the present block."""
        block = self.episode // BLOCK
        if block == self._block:
            return
        width = 2 + self.model.num_costs if self.feedback == "bernoulli" else 1
        steps = self.model.horizon
        environment = block_generator(self._seeds.environment, block)
        self._world_draws = environment.random((BLOCK, steps + 1, width))
        own = block_generator(self._seeds.learner, block)
        self._policy_draws = own.random((BLOCK, steps + 1))
        self._block = block

    def play(self, policy: Policy, stop: Stop, limit: int) -> tuple[Experience, FloatArray]:
        """Play until the rule says stop, the block ends or `limit` episodes are played.

        Returns the experience and (n, 1 + m) sampled totals. The policy is taken as valid.
        """
        if stop.kind != "episodes":
            raise ConfigError(f"an episodic problem cannot stop after '{stop.kind}'")
        self._draws()
        offset = self.episode % BLOCK
        n = min(stop.number, limit, BLOCK - offset)
        model = self.model
        draws = self._policy_draws[offset : offset + n]
        components, actions, table = _policy_arrays(policy, model.num_actions, draws[:, 0])
        experience = Experience(
            first=self.episode + 1,
            states=np.empty((n, self._horizon + 1), dtype=np.int32),
            actions=np.empty((n, self._horizon), dtype=np.int32),
            rewards=np.empty((n, self._horizon)),
            costs=np.empty((n, self._horizon, model.num_costs)),
            components=components,
        )
        sums = np.empty((n, 1 + model.num_costs))
        rollout.rollout_episodes(
            *self._tables, self._horizon, *self._next, CODES[self.feedback], actions, table,
            components, self._world_draws[offset : offset + n], draws[:, 1:], experience.states,
            experience.actions, experience.rewards, experience.costs, sums,
        )  # fmt: skip
        self.episode += n
        return experience, sums

    def arrays(self) -> dict[str, np.ndarray]:
        """All that a resumed run needs."""
        return {"episode": np.array(self.episode)}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from what `arrays` returned."""
        self.episode = int(arrays["episode"])

    def exact(self, policy: Policy, experience: Experience) -> FloatArray:
        """(1, 1 + m) exact expected reward and costs of every one of these episodes."""
        if self._exact[0] is not policy:
            self._exact = (policy, policy_values(self.model, policy)[None])
        return self._exact[1]


def _policy_arrays(
    policy: Policy, num_actions: int, uniforms: FloatArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Drawn components (n,), and the policy as (K, Hp, S) actions or (K, Hp, S, A) chances."""
    if isinstance(policy, MixturePolicy):
        parts = policy.components
        edges = np.cumsum(policy.weights)[:-1]
        components = np.searchsorted(edges, uniforms, side="right").astype(np.int32)
        if policy.actions is not None:
            return components, policy.actions, NO_TABLE
    else:
        parts = (policy,)
        components = np.zeros(len(uniforms), dtype=np.int32)
        if isinstance(policy, DeterministicPolicy):
            return components, _stacked([policy.actions], 2, np.int32), NO_TABLE
    tables = [probabilities(part, num_actions) for part in parts]
    return components, NO_ACTIONS, _stacked(tables, 3, np.float64)


def _stacked(tables: list[np.ndarray], staged_ndim: int, dtype: type) -> np.ndarray:
    """One array (K, Hp, ...); stationary tables are repeated where others differ by step."""
    stages = max(len(table) if table.ndim == staged_ndim else 1 for table in tables)
    wide = [
        table if table.ndim == staged_ndim else np.broadcast_to(table, (stages, *table.shape))
        for table in tables
    ]
    return np.array(wide, dtype=dtype, order="C")
