"""The world of a single stream: plays a policy until its stopping rule is met."""

from __future__ import annotations

from typing import Any

import numpy as np

from tightrope.errors import ConfigError
from tightrope.kernels.stream import roll_stream
from tightrope.learners.protocol import Experience, Learner, Stop
from tightrope.model import chain
from tightrope.model.features import features_of
from tightrope.model.linear import LinearMDP, finite_model
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import DeterministicPolicy, Policy, StochasticPolicy, check_policy
from tightrope.planning.solution import Solution
from tightrope.simulation.streams import Streams, block_generator
from tightrope.types import Feedback, FloatArray, ProblemSpec

BLOCK = 1 << 15
"""Steps of one block of uniforms; block b is keyed by (seed, b), whoever learns."""
KNOWN_PAIRS = 2000  # up to this many pairs the mixing time is computed
NO_INTS = np.zeros((0, 0), dtype=np.int64)
NO_ACTIONS = np.zeros((0, 0), dtype=np.int32)
NO_TABLE = np.zeros((0, 0))
NO_POLICY = np.zeros((0, 0, 0))


def stream_spec(
    problem: FiniteMDP | LinearMDP, feedback: Feedback, optimum: Solution
) -> ProblemSpec:
    """What a learner may know of a single stream.

    Features and knowledge that the problem declares, and what is exact for a finite model and
    cheap: the span of the optimal bias, the mixing time (infinite where Assumption 3 of Wei et
    al. 2020 fails). sigma is dear, and computed or estimated for learners that ask for it
    (`tightrope.simulation.assumptions`).
    """
    model, features, declared = finite_model(problem), None, {}
    if isinstance(problem, LinearMDP):
        features, declared = problem.features, problem.knowledge
    knowledge: dict[str, float] = {}
    span = true_span(optimum)
    if span is not None:
        knowledge["span"] = span
    if model.num_states * model.num_actions <= KNOWN_PAIRS and "mixing_time" not in declared:
        knowledge["mixing_time"] = chain.mixing_time(model)
    return model.spec(feedback=feedback, features=features, knowledge={**knowledge, **declared})


def true_span(optimum: Solution) -> float | None:
    """sp(v*) of the optimum that the planner found; None if it gave no bias."""
    bias = getattr(optimum, "bias", None)
    if bias is not None:
        return float(chain.span(bias))
    return optimum.statistics.get("span")


def check_structure(model: FiniteMDP, learner: Learner) -> None:
    """ConfigError if the chains of the model are not what the learner's traits assume."""
    if "weakly-communicating" in learner.traits and not chain.is_weakly_communicating(model):
        raise ConfigError(
            f"{learner.name} needs a weakly communicating model, where the optimal gain does not "
            "depend on the start; this one is multichain: two sets of states can each be kept for "
            "ever and not left for one another"
        )
    if "unichain" in learner.traits and chain.is_unichain(model) is False:
        raise ConfigError(
            f"{learner.name} needs every policy to mix to one stationary law; some policy of this "
            "model has two recurrent classes"
        )


class StreamWorld:
    """Where the stream is: `step` counts those played, `state` is the present one.

    Parameters
    ----------
    model : FiniteMDP with criterion Average()
    seeds : Streams
        Only the environment's is used; it does not depend on the learner.
    spec : ProblemSpec
        Its features (one-hot if it has none) serve determinant-doubling.

    Raises
    ------
    ConfigError
        If Bernoulli feedback is asked of rewards or costs outside [0, 1].
    """

    def __init__(
        self,
        model: FiniteMDP,
        seeds: Streams,
        spec: ProblemSpec,
        feedback: Feedback = "sampled",
    ) -> None:
        if model.staged:
            raise ConfigError("a single stream needs transitions that do not differ by step")
        self.model = model
        self.feedback = feedback
        self.step = 0
        self._spec = spec
        self._environment = seeds.environment
        draw = block_generator(seeds.environment, 0).random()
        self.state = int(np.searchsorted(np.cumsum(model.initial)[:-1], draw, side="right"))
        self._tables = model.tables()
        lengths = np.diff(model.indptr)
        sums = np.concatenate([[0.0], np.cumsum(model.data)])
        self._cumulative = sums[1:] - np.repeat(sums[model.indptr[:-1]], lengths)
        self._cumulative[model.indptr[1:][lengths > 0] - 1] = 1.0
        costs = model.costs.reshape(model.num_costs, model.rewards.size)
        self._means = np.column_stack([model.rewards.ravel(), costs.T])
        pays, consumes = model.rewards_next, model.costs_next
        if pays is None or feedback != "sampled":
            pays = np.repeat(model.rewards.ravel(), lengths)
        if consumes is None or feedback != "sampled":
            consumes = np.repeat(costs, lengths, axis=1)
        self._pays, self._consumes = np.array(pays), np.array(consumes)
        if feedback == "bernoulli" and (self._means.min() < 0 or self._means.max() > 1):
            raise ConfigError(
                "bernoulli feedback needs rewards and costs in [0, 1], got "
                f"[{self._means.min():.6g}, {self._means.max():.6g}]"
            )
        self._block = -1
        self._uniforms: FloatArray = NO_TABLE
        self._features: FloatArray | None = None

    def _next_uniforms(self, limit: int) -> FloatArray:
        """(n, 3) uniforms of the next n <= limit steps, n up to the end of the block."""
        block, offset = divmod(self.step, BLOCK)
        if block != self._block:
            width = 3 + self.model.num_costs if self.feedback == "bernoulli" else 2
            generator = block_generator(self._environment, block + 1)
            self._uniforms = generator.random((BLOCK, width))
            self._block = block
        return self._uniforms[offset : offset + limit]

    def play(self, policy: Policy, stop: Stop, limit: int) -> tuple[Experience, FloatArray]:
        """Play until the rule says stop, at most `limit` steps.

        Returns the experience and (n, 1 + m) sampled reward and costs of its steps.

        Raises
        ------
        ConfigError
            For a rule that a stream does not know, or a mixture, which needs episodes.
        """
        model = self.model
        table, cumulative = _policy_tables(policy, model)
        period = len(table) or len(cumulative)
        visits, features, inverse = self._rule(stop)
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
                self._tables.start,
                self._tables.stop,
                self._tables.indices,
                self._cumulative,
                self._pays,
                self._consumes,
                self.feedback == "bernoulli",
                uniforms,
                visits,
                stop.kind == "visits-left",
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
        seen = _joined(first, parts)
        return seen, np.column_stack([seen.rewards, seen.costs])

    def _rule(self, stop: Stop) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Visits left, features and inverse Gram matrix for the kernel; empty where not needed."""
        if stop.kind == "visit-doubling" and stop.counts is not None:
            return np.maximum(1, stop.counts).astype(np.int64), NO_POLICY, NO_TABLE
        if stop.kind == "visits-left" and stop.counts is not None:
            return stop.counts.astype(np.int64), NO_POLICY, NO_TABLE
        if stop.kind == "determinant-doubling" and stop.counts is not None:
            if self._features is None:
                self._features = np.array(features_of(self._spec))
            return NO_INTS, self._features, np.linalg.inv(stop.counts)
        if stop.kind != "steps":
            raise ConfigError(f"a single stream cannot stop after '{stop.kind}'")
        return NO_INTS, NO_POLICY, NO_TABLE

    def exact(self, policy: Policy, experience: Experience) -> FloatArray:
        """(n, 1 + m) mean reward r(x_t, a_t) and costs c(x_t, a_t) of every step."""
        pair = experience.states[:-1].astype(np.int64) * self.model.num_actions
        return self._means[pair + experience.actions]

    def arrays(self) -> dict[str, np.ndarray]:
        """All that a resumed run needs."""
        return {"step": np.array(self.step), "state": np.array(self.state)}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from what `arrays` returned."""
        self.step, self.state = int(arrays["step"]), int(arrays["state"])


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
