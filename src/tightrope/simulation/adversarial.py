"""The world of a loop-free problem with full information, exactly counted.

Every number is exact: r_t q_t and G_t q_t with q_t the occupancy of the played policy under the
true transitions. What needs the truth beside the learner's state (||lambda||_1, ||q - q_hat||_1,
interval regret) is summed here, by `watch`; the learner sees none of it.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tightrope.errors import ConfigError, PlanError, Status
from tightrope.estimation.visits import row_widths
from tightrope.kernels.layered import (
    layered_occupancy,
    play_episodes,
    watch_episode,
)
from tightrope.learners.protocol import Experience, Learner, Stop
from tightrope.metrics import Ledger, recording_grid
from tightrope.model.policy import MixturePolicy, Policy, StochasticPolicy, probabilities
from tightrope.planning.layered import margin
from tightrope.planning.solution import Solution
from tightrope.problems import sequences
from tightrope.problems.adversarial import AdversarialProblem, hindsight_plan, targets
from tightrope.simulation.streams import block_generator, streams
from tightrope.types import BoolArray, Feedback, FloatArray, IntArray

PLAYED_BYTES = 1 << 25  # of the distinct tables of a custom adversary


class AdversarialWorld:
    """Learner meets adversary; `episode` counts the episodes played.

    Parameters
    ----------
    interval_points : int
        End points, beside 0, at which cumulative losses l_t = G_t lambda_t - r_t are kept for the
        weak no-interval regret; `episodes` keeps all.
    """

    feedback: Feedback = "mean"

    def __init__(
        self, problem: AdversarialProblem, *, episodes: int, seed: int, interval_points: int = 0
    ) -> None:
        self.problem, self.episodes, self.seed = problem.at(episodes), episodes, seed
        self.episode = 0
        self._seeds = streams(seed)
        self._block = -1
        model = problem.loop_free.model
        self._csr = (model.indptr, model.indices, model.data)
        shape, m = (model.num_states, model.num_actions), problem.num_constraints
        self._occupancy = np.empty(shape)
        self._policy: Policy | None = None
        self._table = np.empty(shape)
        self._exact = np.empty((sequences.BLOCK, 1 + m))
        points = min(interval_points, episodes)
        ends = np.unique(np.rint(np.linspace(0, episodes, points + 1))).astype(np.int64)
        self.ends = ends if points else ends[:0]
        self.sums = {  # in the order of `watch_episode`
            "rewards": np.zeros(shape),
            "constraints": np.zeros((m, *shape)),
            "largest_multipliers": np.zeros(1),
            "occupancy_error": np.zeros(1),
            "dual": np.zeros(1),
            "pushed": np.zeros((m, *shape)),
            "loss": np.zeros(shape),
            "earned": np.zeros(1),
            "loss_sums": np.zeros((self.ends.size, *shape)),
            "earned_sums": np.zeros(self.ends.size),
        }
        self.left = np.zeros(shape, dtype=np.bool_)  # pairs whose true row left its L1 ball
        self.outside = self.left.copy()  # those of the present epoch
        self._epoch = 0
        self._played: dict[bytes, FloatArray] = {}  # distinct G_t of a custom adversary
        self._all_played = problem.constraints.kind == "custom"

    def _load(self) -> None:
        """Tables and uniforms of the present block."""
        block = self.episode // sequences.BLOCK
        if block == self._block:
            return
        first = block * sequences.BLOCK + 1
        self._tables = [
            None if s.adaptive else sequences.block(s, first, sequences.BLOCK, self.seed)
            for s in (self.problem.rewards, self.problem.constraints)
        ]
        size = (sequences.BLOCK, self.problem.horizon)
        self._uniforms = np.empty((size[0], 2 * size[1]))
        self._uniforms[:, 0::2] = block_generator(self._seeds.learner, block).random(size)
        self._uniforms[:, 1::2] = block_generator(self._seeds.environment, block).random(size)
        self._block = block

    def _use(self, policy: Policy) -> None:
        if policy is self._policy:
            return
        if isinstance(policy, MixturePolicy):
            raise ConfigError("a loop-free problem is played with one policy an episode")
        table = probabilities(policy, self._table.shape[1])
        self._table = np.ascontiguousarray(table, dtype=np.float64)
        layered_occupancy(*self._csr, self._table, self._occupancy)
        self._policy = policy

    def play(self, policy: Policy, stop: Stop, limit: int) -> tuple[Experience, FloatArray]:
        """Play one policy until the rule says stop or the block ends; sampled totals (n, 1 + m)."""
        if stop.kind != "episodes":
            raise ConfigError(f"a loop-free problem cannot stop after '{stop.kind}'")
        self._load()
        self._use(policy)
        offset = self.episode % sequences.BLOCK
        n = min(stop.number, limit, sequences.BLOCK - offset)
        num_layers, m = self.problem.horizon, self.problem.num_constraints
        r, g = (
            self._responses(sequence, n) if block is None else block[offset : offset + n]
            for sequence, block in zip(
                (self.problem.rewards, self.problem.constraints), self._tables
            )
        )
        states = np.empty((n, num_layers + 1), dtype=np.int32)
        actions = np.empty((n, num_layers), dtype=np.int32)
        seen_r, seen_g = np.empty((n, num_layers)), np.empty((n, num_layers, m))
        sampled = np.empty((n, 1 + m))
        play_episodes(
            *self._csr, self._table, self._occupancy, self._uniforms[offset : offset + n],
            r, g, states, actions, seen_r, seen_g, self._exact[:n], sampled,
        )  # fmt: skip
        experience = Experience(
            first=self.episode + 1,
            states=states,
            actions=actions,
            rewards=seen_r,
            costs=seen_g,
            reward_tables=r,
            constraint_tables=g,
        )
        self.episode += n
        return experience, sampled

    def _responses(self, sequence: sequences.TableSequence, n: int) -> FloatArray:
        first = self.episode + 1
        out = np.stack([sequences.respond(sequence, first + j, self._occupancy) for j in range(n)])
        if self._all_played and sequence is self.problem.constraints:
            for table in out:
                self._played.setdefault(table.tobytes(), table.copy())
            if len(self._played) * out[0].nbytes > PLAYED_BYTES:
                self._played, self._all_played = {}, False
        return out

    @property
    def played(self) -> FloatArray | None:
        """(n, m, S, A) distinct constraints of a custom adversary; None if too many to keep."""
        return np.stack(list(self._played.values())) if self._played else None

    def exact(self, policy: Policy, experience: Experience) -> FloatArray:
        """(n, 1 + m) exact r_t q_t and G_t q_t of the episodes just played."""
        return self._exact[: len(experience.states)]

    def watch(self, state: Any, experience: Experience, exact: FloatArray) -> None:
        """Sum what needs the truth; called before the learner's update."""
        self.check_sets(state)
        r, g = experience.reward_tables, experience.constraint_tables
        assert r is not None
        assert g is not None
        q_hat = getattr(state, "q_hat", None)
        multipliers = getattr(state, "multipliers", None)
        q_hat = np.empty((0, 0)) if q_hat is None else q_hat
        multipliers = np.empty(0) if multipliers is None else multipliers
        for j in range(len(exact)):  # one by one: however a run is cut, the sums are the same
            watch_episode(
                r[j], g[j], exact[j], self._occupancy, q_hat, multipliers,
                experience.first + j, self.ends, tuple(self.sums.values()),
            )  # fmt: skip

    def check_sets(self, state: Any) -> None:
        """Note, once an epoch, the pairs whose L1 ball does not hold their true row."""
        if not hasattr(state, "centres") or state.epoch == self._epoch:
            return
        self._epoch = state.epoch
        off = np.abs(state.centres - self._truth).sum(axis=2)
        self.outside = off > state.radii + 1e-12
        self.left |= self.outside

    @cached_property
    def _truth(self) -> FloatArray:
        """(S, A, W) true rows, by position within the next layer."""
        loop_free = self.problem.loop_free
        model, layers = loop_free.model, loop_free.layers
        out = np.zeros((*self._occupancy.shape, int(row_widths(layers).max())))
        rows = np.repeat(np.arange(model.indptr.size - 1), np.diff(model.indptr))
        x, a = np.divmod(rows, model.num_actions)
        inside = x < model.num_states - 1
        x, a, y = x[inside], a[inside], model.indices[inside]
        out[x, a, y - loop_free.offsets[layers[x] + 1]] = model.data[inside]
        return out

    def left_sentence(self) -> str:
        """How many pairs left the confidence set."""
        layers = self.problem.loop_free.layers
        several = int((row_widths(layers)[:-1] > 1).sum()) * self.left.shape[1]
        return (
            f"the true row of {self.left.sum()} of {several} pairs (with more than one next state) "
            f"left its L1 ball in some epoch, of {self.outside.sum()} it is outside at the end"
        )

    def averages(self) -> tuple[FloatArray, FloatArray]:
        """Exact averages of the tables played so far."""
        return self.sums["rewards"] / self.episode, self.sums["constraints"] / self.episode

    def arrays(self) -> dict[str, np.ndarray]:
        """All that a resumed run needs."""
        out = {"episode": np.array(self.episode), "left": self.left, **self.sums}
        played = self.played
        return out if played is None else {**out, "played": played}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from what `arrays` returned."""
        self.episode = int(arrays["episode"])
        self.sums = {name: np.array(arrays[name]) for name in self.sums}
        self.left = np.array(arrays["left"])
        self._block, self._policy, self._epoch = -1, None, 0
        self._played = {table.tobytes(): table for table in arrays.get("played", ())}
        self._all_played &= bool(self._played) or self.episode == 0


def hindsight_solution(
    problem: AdversarialProblem, episodes: int, seed: int, played: Any = None
) -> Solution:
    """OPT of [BOBW, Eq. (5)] as a planner's certified answer.

    Before an adaptive problem is played its optimum is not known: value 0 and infinite bounds.
    """
    started = time.perf_counter()
    m = problem.num_constraints
    common: dict[str, Any] = {
        "capacities": np.zeros(m),
        "cost_names": problem.spec().cost_names,
        "model_hash": problem.content_hash,
    }
    if problem.adaptive and played is None:
        uniform = np.full(problem.available.shape, 1.0 / problem.available.shape[1])
        return Solution(
            status=Status.SOLVED,
            solver="after-the-run",
            value=0.0,
            policy=StochasticPolicy(uniform),
            costs=np.full(m, np.nan),
            multipliers=np.zeros(m),
            lower_bound=-np.inf,
            upper_bound=np.inf,
            seconds=0.0,
            **common,
        )
    plan = hindsight_plan(problem, episodes, seed, played)
    return Solution(
        status=plan.status,
        solver="lp",
        value=plan.value,
        policy=StochasticPolicy(plan.policy),
        costs=plan.constraints,
        multipliers=plan.multipliers,
        lower_bound=plan.value,
        upper_bound=plan.upper_bound,
        seconds=time.perf_counter() - started,
        **common,
    )


def require_hindsight(
    problem: AdversarialProblem, episodes: int, seed: int, optimum: Solution, played: Any = None
) -> None:
    """PlanError, with the margin, if no policy keeps the constraints on average over a run."""
    if optimum.status is Status.INFEASIBLE:
        least = margin(problem.loop_free, targets(problem, episodes, seed, played)[1]).value
        raise PlanError(
            f"problem '{problem.name}' is infeasible: every policy exceeds some constraint by at "
            f"least {-least:.6g} an episode on average (rho = {least:.6g} < 0), so there is no "
            "optimum to learn; loosen the constraints",
            optimum,
        )


@dataclass(kw_only=True, eq=False)
class AdversarialRun:
    """A finished run with the quantities that the theorems speak of.

    Attributes
    ----------
    curves : dict of (n,) arrays
        The contract's columns on the recording grid, and what the learner reported.
    optimum : Solution
        OPT, for an adaptive problem from what was played.
    violations, positive_violations : (m,)
        sum_t [G_t q_t]_i and sum_t ([G_t q_t]_i)^+.
    average_rewards, average_constraints : (S, A), (m, S, A)
        Exact averages of what was played.
    largest_multipliers : float
        max_t ||lambda_t||_1 over every episode, lambda_{T+1} included.
    occupancy_error : float
        sum_t ||q_t - q_hat_t||_1 over (x, a); NaN if the learner keeps no q_hat.
    dual_regret : float
        - sum_t lambda_t G_t q_hat_t, the dual player's regret against lambda = 0.
    earned_total : float
        sum_t l_t q_t for l_t = G_t lambda_t - r_t.
    pushed : (m, S, A)
        sum_t lambda_t,i q_t.
    left : (S, A) bool
        Pairs whose true row left its L1 ball in some epoch; `left_sentence` says how many.
    constraint_tables : (n, m, S, A) or None
        Distinct G_t of a custom adversary; None for others, or if they take more than 32 MB.
    interval_ends, loss_sums, earned_sums
        For the weak no-interval regret; empty without `interval_points`.
    notes : list of str
        What was noticed: a cap that bound, a confidence set that lost the true model.
    """

    problem: AdversarialProblem
    learner: str
    config: Any
    guarantee: str | None
    episodes: int
    seed: int
    curves: dict[str, FloatArray]
    optimum: Solution
    total_reward: float
    violations: FloatArray
    positive_violations: FloatArray
    average_rewards: FloatArray
    average_constraints: FloatArray
    largest_multipliers: float
    occupancy_error: float
    dual_regret: float
    earned_total: float
    pushed: FloatArray
    left: BoolArray
    left_sentence: str
    constraint_tables: FloatArray | None
    interval_ends: IntArray
    loss_sums: FloatArray
    earned_sums: FloatArray
    state: Any
    notes: list[str]

    def regret(self, optimum: float | None = None) -> float:
        """R_T = T OPT - sum_t r_t q_t, [BOBW, Eq. (7)]."""
        value = self.optimum.value if optimum is None else optimum
        assert value is not None
        return self.episodes * value - self.total_reward


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
    """Play a learner's record with a configuration of its own; `tr.run` takes names instead."""
    from tightrope.simulation.runner import Session, advance

    optimum = hindsight_solution(problem, episodes, seed)
    assert optimum.value is not None
    config = told(problem, learner, config, optimum)
    spec = problem.spec()
    session = Session(
        problem=problem.name,
        name=learner.name,
        learner=learner,
        config=config,
        model=problem,
        spec=spec,
        optimum=optimum,
        episodes=episodes,
        seed=seed,
        world=AdversarialWorld(
            problem, episodes=episodes, seed=seed, interval_points=interval_points
        ),
        state=learner.init(spec, config),
        ledger=new_ledger(problem, optimum, episodes, grid),
    )
    advance(session)
    return summary(session)


def told(problem: Any, learner: Learner, config: Any, optimum: Solution) -> Any:
    """The configuration with what only the truth can fill in: optimal policy or multipliers.

    ConfigError on an adaptive problem, whose optimum is known only after the run.
    """
    policy = "privileged" in learner.traits
    multipliers = getattr(config, "penalty", None) == "hindsight"
    if (policy or multipliers) and getattr(problem, "adaptive", False):
        what = "the optimal policy" if policy else "the optimum's multipliers (penalty='hindsight')"
        raise ConfigError(
            f"{learner.name} is given {what} before the run, but '{problem.name}' has an adversary "
            "that answers what is played: its optimum is known only after the run"
        )
    if policy:
        config = dataclasses.replace(config, policy=optimum.policy)
    if multipliers:
        config = dataclasses.replace(config, penalty=tuple(optimum.multipliers.tolist()))
    return config


def new_ledger(
    problem: AdversarialProblem, optimum: Solution, episodes: int, grid: IntArray | None = None
) -> Ledger:
    m = problem.num_constraints
    rows = recording_grid(episodes) if grid is None else grid
    assert optimum.value is not None
    return Ledger(rows, optimum.value, np.zeros(m), np.ones(m), steps=problem.horizon)


def settled(session: Any) -> tuple[Solution, dict[str, FloatArray]]:
    """The optimum and the columns of a finished session; regret of adaptive problems filled in."""
    problem, world, columns = session.model, session.world, session.ledger.columns()
    if not problem.adaptive:
        return session.optimum, columns
    played = world.averages()
    optimum = hindsight_solution(problem, session.episodes, session.seed, played)
    require_hindsight(problem, session.episodes, session.seed, optimum, played)
    columns["regret"] = columns["regret"] + optimum.require_solved().value * columns["episode"]
    return optimum, columns


def summary(session: Any) -> AdversarialRun:
    """Everything that the theorems speak of, from a finished session."""
    world, carry = session.world, session.ledger.carry
    m = session.model.num_constraints
    world.check_sets(session.state)
    own = session.state.notes() if hasattr(session.state, "notes") else []
    lost = [world.left_sentence()] if world.left.any() else []
    optimum, columns = settled(session)
    largest = max(
        float(world.sums["largest_multipliers"][0]),
        float(np.sum(getattr(session.state, "multipliers", 0.0))),  # lambda_{T+1}
    )
    rewards, constraints = world.averages()
    return AdversarialRun(
        problem=session.model,
        learner=session.learner.name,
        config=session.config,
        guarantee=session.learner.guarantee(session.config),
        episodes=session.episodes,
        seed=session.seed,
        curves={**columns, **session.info_rows},
        optimum=optimum,
        total_reward=float(carry[-1 - m]),
        violations=carry[1 : 1 + m].copy(),
        positive_violations=carry[1 + m : 1 + 2 * m].copy(),
        average_rewards=rewards,
        average_constraints=constraints,
        largest_multipliers=largest,
        occupancy_error=float(world.sums["occupancy_error"][0]),
        dual_regret=float(world.sums["dual"][0]),
        earned_total=float(world.sums["earned"][0]),
        pushed=world.sums["pushed"],
        left=world.left,
        left_sentence=world.left_sentence(),
        constraint_tables=world.played,
        interval_ends=world.ends,
        loss_sums=world.sums["loss_sums"],
        earned_sums=world.sums["earned_sums"],
        state=session.state,
        notes=own + lost,
    )
