"""The loop for loop-free problems with full information: learner meets adversary, exactly counted.

Every number of a run is exact: r_t q_t and G_t q_t with q_t the occupancy of the played policy
under the true transitions. Uniforms of the environment come in blocks keyed by (seed, block), so
all learners of one seed meet the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tightrope.errors import ConfigError
from tightrope.kernels.layered import layered_episode, layered_occupancy, totals_of
from tightrope.learners.protocol import Experience, Learner
from tightrope.model.policy import StochasticPolicy, probabilities
from tightrope.problems import sequences
from tightrope.problems.adversarial import AdversarialProblem
from tightrope.types import FloatArray, IntArray

ENVIRONMENT = 0xE71  # spawn key of the environment's draws


@dataclass(kw_only=True, eq=False)
class AdversarialRun:
    """What happened in a run, with exact values on the recording grid.

    Attributes
    ----------
    curves : dict of (n,) arrays
        ``episode, reward, cost_i, cumulative_reward, violation_i, violation_plus_i,
        sampled_reward, sampled_cost_i`` (all but the first columns cumulative) and what the learner
        reports, on the grid. Costs are G as played.
    average_rewards, average_constraints : (S, A), (m, S, A)
        Exact averages of what was played.
    largest_multipliers : float
        max_t ||lambda_t||_1, over every episode.
    occupancy_error : float
        sum_t ||q_t - q_hat_t||_1 over (x, a); NaN if the learner keeps no q_hat.
    interval_ends, loss_sums, earned_sums
        For the weak no-interval regret; empty without `interval_points`.
    state : the learner's final state
    """

    problem: AdversarialProblem
    learner: str
    config: Any
    guarantee: str | None
    episodes: int
    seed: int
    curves: dict[str, FloatArray]
    average_rewards: FloatArray
    average_constraints: FloatArray
    largest_multipliers: float
    occupancy_error: float
    interval_ends: IntArray
    loss_sums: FloatArray
    earned_sums: FloatArray
    state: Any
    notes: list[str] = field(default_factory=list)

    @property
    def total_reward(self) -> float:
        """sum_t r_t q_t."""
        return float(self.curves["cumulative_reward"][-1])

    @property
    def violations(self) -> FloatArray:
        """(m,) sum_t [G_t q_t]_i."""
        m = len(self.average_constraints)
        return np.array([self.curves[f"violation_{i}"][-1] for i in range(m)])

    @property
    def positive_violations(self) -> FloatArray:
        """(m,) sum_t ([G_t q_t]_i)^+."""
        m = len(self.average_constraints)
        return np.array([self.curves[f"violation_plus_{i}"][-1] for i in range(m)])

    def regret(self, optimum: float) -> float:
        """R_T = T OPT - sum_t r_t q_t, [BOBW, Eq. (7)]."""
        return self.episodes * optimum - self.total_reward


def fixed_policy(table: FloatArray, name: str = "fixed") -> Learner:
    """A learner that plays one policy (S, A) for ever: an oracle or a baseline."""
    policy = StochasticPolicy(table)
    return Learner(
        name=name,
        title="One policy for ever",
        config=dict,
        theory=lambda spec, episodes, delta: {},
        init=lambda spec, config: None,
        policy=lambda state: policy,
        horizon=lambda state: None,  # type: ignore[arg-type, return-value]
        update=lambda state, experience: (state, {}),
        guarantee=lambda config: None,
        check=lambda spec, config: None,
        traits=frozenset({"episodic", "privileged", "loop-free"}),
    )


def recording_grid(episodes: int) -> IntArray:
    """Every episode up to 5,000, then 200 rows a decade, and 200 rows in the last fifth."""
    dense = np.arange(1, min(episodes, 5000) + 1)
    decades = np.log10(max(episodes, 5000) / 5000.0)
    logs = 5000.0 * 10.0 ** (np.arange(1, int(200 * decades) + 1) / 200.0)
    last = np.linspace(0.8 * episodes, episodes, 201)
    grid = np.unique(np.concatenate([dense, np.rint(logs), np.rint(last), [episodes]]))
    return grid[(grid >= 1) & (grid <= episodes)].astype(np.int64)


def play(
    problem: AdversarialProblem,
    learner: Learner,
    config: Any,
    *,
    episodes: int,
    seed: int,
    interval_points: int = 0,
    grid: IntArray | None = None,
) -> AdversarialRun:
    """Play `episodes` episodes and count everything exactly.

    Parameters
    ----------
    interval_points : int
        Grid of interval end points at which cumulative losses are kept; `episodes` keeps all.
    """
    if episodes < 1:
        raise ConfigError(f"episodes must be >= 1, got {episodes}")
    spec = problem.spec()
    state = learner.init(spec, config)
    model = problem.loop_free.model
    csr = (model.indptr, model.indices, model.data)
    shape = (model.num_states, model.num_actions)
    m, num_layers = problem.num_constraints, problem.loop_free.num_layers
    grid = recording_grid(episodes) if grid is None else grid
    recorder = _Recorder(grid, m)
    probe = _Probe(shape, m, episodes, interval_points)
    occupancy = np.empty(shape)
    exact, sampled = np.empty((sequences.BLOCK, 1 + m)), np.empty((sequences.BLOCK, 1 + m))
    previous = None
    for first in range(1, episodes + 1, sequences.BLOCK):
        count = min(sequences.BLOCK, episodes - first + 1)
        tables = [
            None if s.adaptive else sequences.block(s, first, count, seed)
            for s in (problem.rewards, problem.constraints)
        ]
        uniforms = sequences.by_block(first, count, seed, (ENVIRONMENT,), (2 * num_layers,))
        for j in range(count):
            policy = learner.policy(state)
            if policy is not previous:
                table = probabilities(policy, shape[1])
                layered_occupancy(*csr, table, occupancy)
                previous = policy
            r, g = (
                sequences.respond(sequence, first + j, occupancy) if block is None else block[j]
                for sequence, block in zip((problem.rewards, problem.constraints), tables)
            )
            states = np.empty(num_layers + 1, dtype=np.int32)
            actions = np.empty(num_layers, dtype=np.int32)
            layered_episode(*csr, table, uniforms[j], states, actions)
            totals_of(r, g, occupancy, states, actions, exact[j], sampled[j])
            probe.see(first + j, state, occupancy, r, g, exact[j])
            experience = Experience(
                first=first + j,
                states=states[None],
                actions=actions[None],
                rewards=r[states[:-1], actions][None],
                costs=g[:, states[:-1], actions].T[None],
                reward_tables=r[None],
                constraint_tables=g[None],
            )
            state, info = learner.update(state, experience)
            if first + j == recorder.next_info:
                recorder.inform(info)
        recorder.block(first, exact[:count], sampled[:count])
    probe.finish(state)
    return AdversarialRun(
        problem=problem,
        learner=learner.name,
        config=config,
        guarantee=learner.guarantee(config),
        episodes=episodes,
        seed=seed,
        curves=recorder.columns(),
        average_rewards=probe.sum_rewards / episodes,
        average_constraints=probe.sum_constraints / episodes,
        largest_multipliers=probe.largest_multipliers,
        occupancy_error=probe.occupancy_error,
        interval_ends=probe.ends,
        loss_sums=probe.loss_sums,
        earned_sums=probe.earned_sums,
        state=state,
        notes=state.notes() if hasattr(state, "notes") else [],
    )


class _Recorder:
    """Cumulative sums over all episodes, kept on the grid only."""

    def __init__(self, grid: IntArray, num_constraints: int) -> None:
        self.grid, self.m = grid, num_constraints
        self.total = np.zeros(2 + 3 * num_constraints)
        self.rows: list[FloatArray] = []
        self.infos: list[dict[str, Any]] = []
        self.next_info = int(grid[0])

    def inform(self, info: dict[str, Any]) -> None:
        self.infos.append(info)
        done = len(self.infos)
        self.next_info = int(self.grid[done]) if done < self.grid.size else 0

    def block(self, first: int, exact: FloatArray, sampled: FloatArray) -> None:
        g = exact[:, 1:]
        sums = np.hstack([exact[:, :1], g, np.maximum(g, 0.0), sampled])
        cumulative = self.total + np.cumsum(sums, axis=0)
        self.total = cumulative[-1]
        low, high = np.searchsorted(self.grid, (first, first + len(exact)))
        places = self.grid[low:high] - first
        self.rows.extend(np.hstack([exact[places], cumulative[places]]))

    def columns(self) -> dict[str, FloatArray]:
        m = self.m
        names = ["reward", *(f"cost_{i}" for i in range(m)), "cumulative_reward"]
        for kind in ("violation", "violation_plus"):
            names += [f"{kind}_{i}" for i in range(m)]
        names += ["sampled_reward", *(f"sampled_cost_{i}" for i in range(m))]
        values = np.array(self.rows)
        out = {"episode": self.grid.astype(np.float64)}
        out.update({name: values[:, i].copy() for i, name in enumerate(names)})
        for name in self.infos[0] if self.infos else ():
            column = np.array([info[name] for info in self.infos])
            if column.ndim == 1:
                out[name] = column
            else:
                out.update({f"{name}_{i}": column[:, i] for i in range(column.shape[1])})
        return out


class _Probe:
    """Sums that need the true occupancy beside the learner's state; the learner sees none of it."""

    def __init__(
        self, shape: tuple[int, int], num_constraints: int, episodes: int, points: int
    ) -> None:
        self.sum_rewards = np.zeros(shape)
        self.sum_constraints = np.zeros((num_constraints, *shape))
        self.largest_multipliers = 0.0
        self.occupancy_error = 0.0
        ends = np.unique(np.rint(np.linspace(0, episodes, min(points, episodes) + 1)))
        self.ends = ends.astype(np.int64) if points else np.zeros(0, dtype=np.int64)
        self.loss_sums = np.zeros((self.ends.size, *shape))
        self.earned_sums = np.zeros(self.ends.size)
        self.loss, self.earned, self.place = np.zeros(shape), 0.0, 1

    def see(
        self,
        episode: int,
        state: Any,
        occupancy: FloatArray,
        rewards: FloatArray,
        constraints: FloatArray,
        exact: FloatArray,
    ) -> None:
        self.sum_rewards += rewards
        self.sum_constraints += constraints
        multipliers = getattr(state, "multipliers", None)
        if multipliers is not None:
            self.largest_multipliers = max(self.largest_multipliers, float(multipliers.sum()))
        q_hat = getattr(state, "q_hat", None)
        self.occupancy_error += np.nan if q_hat is None else np.abs(occupancy - q_hat).sum()
        if self.ends.size:
            self.loss -= rewards
            self.earned -= exact[0]
            if multipliers is not None:
                self.loss += np.tensordot(multipliers, constraints, axes=1)
                self.earned += float(multipliers @ exact[1:])
            if episode == self.ends[self.place]:
                self.loss_sums[self.place] = self.loss
                self.earned_sums[self.place] = self.earned
                self.place += 1

    def finish(self, state: Any) -> None:
        multipliers = getattr(state, "multipliers", None)
        if multipliers is not None:
            self.largest_multipliers = max(self.largest_multipliers, float(multipliers.sum()))
