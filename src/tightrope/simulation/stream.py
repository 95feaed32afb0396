"""The world of a single stream: plays a policy until its stopping rule is met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tightrope.errors import ConfigError
from tightrope.kernels.stream import roll_stream
from tightrope.learners.protocol import Experience, Stop
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import DeterministicPolicy, Policy, StochasticPolicy, check_policy
from tightrope.types import Feedback, FloatArray

BLOCK = 1 << 15
"""Steps of one block of uniforms; block b is keyed by (seed, b), whoever learns."""
NO_INTS = np.zeros((0, 0), dtype=np.int64)
NO_ACTIONS = np.zeros((0, 0), dtype=np.int32)
NO_TABLE = np.zeros((0, 0))
NO_POLICY = np.zeros((0, 0, 0))


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamTables:
    """What the kernel needs of a model, prepared once."""

    model: FiniteMDP
    start: np.ndarray  #: (S*A,) int64
    stop: np.ndarray  #: (S*A,) int64
    indices: np.ndarray  #: (nnz,) int32
    cumulative: FloatArray  #: (nnz,), the last of each row 1
    pays: FloatArray  #: (nnz,)
    consumes: FloatArray  #: (m, nnz)
    bernoulli: bool


def stream_tables(model: FiniteMDP, feedback: Feedback = "sampled") -> StreamTables:
    """Tables for one kind of feedback; ConfigError if Bernoulli rewards are outside [0, 1]."""
    if model.staged:
        raise ConfigError("a single stream needs transitions that do not differ by step")
    lengths = np.diff(model.indptr)
    cumulative = np.concatenate([[0.0], np.cumsum(model.data)])
    cumulative = cumulative[1:] - np.repeat(cumulative[model.indptr[:-1]], lengths)
    cumulative[model.indptr[1:][lengths > 0] - 1] = 1.0
    pays, consumes = model.rewards_next, model.costs_next
    if pays is None or feedback != "sampled":
        pays = np.repeat(model.rewards.ravel(), lengths)
    if consumes is None or feedback != "sampled":
        consumes = np.repeat(model.costs.reshape(model.num_costs, lengths.size), lengths, axis=1)
    if feedback == "bernoulli" and (pays.min() < 0 or pays.max() > 1):
        raise ConfigError(
            f"bernoulli feedback needs rewards in [0, 1], got [{pays.min()}, {pays.max()}]"
        )
    # copies, because kernels are specialised on writeability and a model's arrays are read-only
    return StreamTables(
        model=model,
        start=model.indptr[:-1].copy(),
        stop=model.indptr[1:].copy(),
        indices=model.indices.copy(),
        cumulative=cumulative,
        pays=np.array(pays),
        consumes=np.array(consumes),
        bernoulli=feedback == "bernoulli",
    )


class StreamWorld:
    """Where the stream is. `step` and `state` say it all: set them to resume.

    Parameters
    ----------
    tables : StreamTables
    seed : SeedSequence
        Of the environment; it does not depend on the learner.
    features : (S, A, d) or None
        Needed for determinant-doubling.
    """

    def __init__(
        self, tables: StreamTables, seed: np.random.SeedSequence, features: Any = None
    ) -> None:
        self.tables = tables
        self.seed = seed
        self.features = None if features is None else np.array(features, dtype=np.float64)
        self.step = 0
        draw = np.random.default_rng(self._key(0)).random()
        self.state = int(np.searchsorted(np.cumsum(tables.model.initial)[:-1], draw, side="right"))
        self._block = -1
        self._uniforms: FloatArray = NO_TABLE

    def _key(self, number: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.seed.entropy, spawn_key=(*self.seed.spawn_key, number))

    def _next_uniforms(self, limit: int) -> FloatArray:
        """(n, 3) uniforms of the next n <= limit steps, n up to the end of the block."""
        block, offset = divmod(self.step, BLOCK)
        if block != self._block:
            self._uniforms = np.random.default_rng(self._key(block + 1)).random((BLOCK, 3))
            self._block = block
        return self._uniforms[offset : offset + limit]

    def play(self, policy: Policy, stop: Stop, limit: int) -> Experience:
        """Play until the rule says stop, at most `limit` steps.

        Raises
        ------
        ConfigError
            For a rule that a stream does not know, or a mixture, which needs episodes.
        """
        tables, model = self.tables, self.tables.model
        table, cumulative = _policy_tables(policy, model)
        period = len(table) or len(cumulative)
        visits: np.ndarray = NO_INTS
        features: FloatArray = NO_POLICY
        inverse: FloatArray = NO_TABLE
        if stop.kind == "visit-doubling":
            assert stop.counts is not None
            visits = np.maximum(1, stop.counts).astype(np.int64)
        elif stop.kind == "determinant-doubling":
            if self.features is None or stop.counts is None:
                raise ConfigError("determinant-doubling needs features and the Gram matrix")
            features, inverse = self.features, np.linalg.inv(stop.counts).astype(np.float64)
        elif stop.kind != "steps":
            raise ConfigError(f"a single stream cannot stop after '{stop.kind}'")
        first, left, stopped, phase = self.step + 1, min(limit, stop.number), False, 0
        ratio, parts = np.ones(1), []
        while left > 0 and not stopped:
            uniforms = self._next_uniforms(left)
            size = len(uniforms)
            out = (
                np.empty(size + 1, dtype=np.int32),
                np.empty(size, dtype=np.int32),
                np.empty(size),
                np.empty((size, model.num_costs)),
            )
            done, stopped = roll_stream(
                self.state,
                phase,
                table,
                cumulative,
                tables.start,
                tables.stop,
                tables.indices,
                tables.cumulative,
                tables.pays,
                tables.consumes,
                tables.bernoulli,
                uniforms,
                visits,
                features,
                inverse,
                ratio,
                *out,
            )
            parts.append([out[0][: done + 1], *(array[:done] for array in out[1:])])
            self.state = int(out[0][done])
            self.step += done
            left -= done
            phase = (phase + done) % period
        return _joined(first, parts)


def _joined(first: int, parts: list[list[Any]]) -> Experience:
    if len(parts) == 1:
        states, actions, rewards, costs = parts[0]
    else:
        states = np.concatenate([part[0][:-1] for part in parts] + [parts[-1][0][-1:]])
        actions, rewards, costs = (np.concatenate([p[i] for p in parts]) for i in (1, 2, 3))
    return Experience(first=first, states=states, actions=actions, rewards=rewards, costs=costs)


def _policy_tables(policy: Policy, model: FiniteMDP) -> tuple[np.ndarray, np.ndarray]:
    """(P, S) actions or (P, S, A) cumulative probabilities; the other one is empty."""
    if isinstance(policy, DeterministicPolicy):
        actions = policy.actions.reshape(-1, model.num_states)
        if not model.available[np.arange(model.num_states), actions].all():
            check_policy(DeterministicPolicy(actions), model.available, len(actions))
        return actions.astype(np.int32, copy=False), NO_POLICY
    if not isinstance(policy, StochasticPolicy):
        raise ConfigError("a single stream plays deterministic and stochastic policies, no mixture")
    staged = policy.probabilities.reshape(-1, model.num_states, model.num_actions)
    check_policy(StochasticPolicy(staged), model.available, len(staged))
    cumulative = np.cumsum(staged, axis=2)
    last = staged.shape[2] - 1 - (staged[:, :, ::-1] > 0).argmax(axis=2)
    cumulative[np.arange(staged.shape[2]) >= last[:, :, None]] = 1.0
    return NO_ACTIONS, cumulative
