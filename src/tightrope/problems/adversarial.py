"""Loop-free problems whose rewards and constraints are stochastic or adversarial, each on its own.

The setting of [BOBW] Germano et al. 2023: full information, rewards in [0, 1], constraints in
[-1, 1], satisfaction is G q <= 0.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from tightrope.errors import ModelError
from tightrope.model.layered import LayeredMDP
from tightrope.model.mdp import FiniteMDP
from tightrope.planning.layered import (
    LayeredPlan,
    Separation,
    margin,
    plan_layered,
    with_cuts,
)
from tightrope.problems import sequences
from tightrope.problems.sequences import TableSequence
from tightrope.types import BoolArray, Feedback, FloatArray, ProblemSpec


@dataclass(frozen=True, kw_only=True, eq=False)
class AdversarialProblem:
    """A loop-free world, a sequence of rewards and a sequence of constraints.

    Attributes
    ----------
    name : str
    loop_free : LayeredMDP
        The true transitions; its own tables are not played.
    rewards : TableSequence of (S, A)
    constraints : TableSequence of (m, S, A)
    facts : dict
        Numbers that the construction guarantees, such as ``rho``.
    """

    name: str
    loop_free: LayeredMDP
    rewards: TableSequence
    constraints: TableSequence
    facts: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        model = self.loop_free.model
        shape = (model.num_states, model.num_actions)
        for sequence, expected in ((self.rewards, shape), (self.constraints, (-1, *shape))):
            got = sequence.tables.shape[1:]
            if got[-2:] != shape or len(got) != len(expected):
                raise ModelError(
                    f"problem '{self.name}': a {sequence.kind} sequence has tables of shape {got}, "
                    f"expected {('m', *shape) if len(expected) == 3 else shape}"
                )

    @property
    def num_constraints(self) -> int:
        return int(self.constraints.tables.shape[1])

    @property
    def adaptive(self) -> bool:
        """Whether some tables depend on what the learner plays."""
        return self.rewards.adaptive or self.constraints.adaptive

    @property
    def horizon(self) -> int:
        """L, the steps of an episode."""
        return self.loop_free.num_layers

    @property
    def available(self) -> BoolArray:
        """(S, A) every action exists everywhere."""
        return self.loop_free.model.available

    @property
    def content_hash(self) -> str:
        """sha256 over the transitions and both sequences; of a custom adversary over its code."""
        digest = hashlib.sha256(self.loop_free.model.content_hash.encode())
        for sequence in (self.rewards, self.constraints):
            for item in fields(sequence):
                value = getattr(sequence, item.name)
                if isinstance(value, np.ndarray):
                    digest.update(np.ascontiguousarray(value).tobytes())
                else:
                    digest.update(sequences.fingerprint(value).encode())
        return digest.hexdigest()

    @property
    def scale(self) -> dict[str, Any]:
        """How r and G came from an unrolled model: r = (reward - shift) / scale, G / scale.

        1 and 0 where nothing was scaled.
        """
        own, names = self.loop_free, self.spec().cost_names
        g = own.scale if own.scale.size == len(names) else np.ones(len(names))
        return {
            "reward_scale": float(own.reward_scale),
            "reward_shift": float(own.reward_shift),
            "constraints": dict(zip(names, g.tolist())),
        }

    def at(self, episodes: int) -> AdversarialProblem:
        """The problem of a run of this many episodes (sequences may depend on the length)."""
        return replace(
            self,
            rewards=sequences.at(self.rewards, episodes),
            constraints=sequences.at(self.constraints, episodes),
        )

    def spec(self, *, feedback: Feedback = "mean") -> ProblemSpec:
        """What a learner may know: layers, actions and the ranges, not the transitions."""
        model = self.loop_free.model
        m = self.num_constraints
        return ProblemSpec(
            num_states=model.num_states,
            num_actions=model.num_actions,
            num_costs=m,
            criterion=model.criterion,
            available=model.available,
            initial=model.initial,
            cost_names=model.cost_names if model.num_costs == m else _names(m),
            capacities=np.zeros(m),
            signs=np.ones(m),
            staged=False,
            reward_range=(0.0, 1.0),
            cost_ranges=np.tile([-1.0, 1.0], (m, 1)),
            feedback=feedback,
            layers=self.loop_free.layers,
        )


def _names(m: int) -> tuple[str, ...]:
    return ("cost",) if m == 1 else tuple(f"cost_{i}" for i in range(m))


# ------------------------------------------------------------------ benchmarks in hindsight


def targets(
    problem: AdversarialProblem, episodes: int, seed: int, played: Any = None
) -> tuple[FloatArray, FloatArray]:
    """(r-bar, G-bar): exact means where stochastic, exact hindsight averages elsewhere.

    `played` gives (rewards, constraints) averages of a finished run; adaptive sequences need it.
    """
    out = []
    problem = problem.at(episodes)
    for index, sequence in enumerate((problem.rewards, problem.constraints)):
        if sequence.stochastic:
            out.append(sequences.mean(sequence))
        elif sequence.adaptive:
            if played is None:
                raise ModelError("an adaptive sequence has its average only after the run")
            out.append(np.asarray(played[index]))
        else:
            out.append(sequences.hindsight_average(sequence, episodes, seed))
    return out[0], out[1]


def hindsight_model(problem: AdversarialProblem, episodes: int, seed: int) -> FiniteMDP:
    """The world with `targets` for rewards and costs; every capacity is 0.

    >>> from tightrope.planning import plan
    >>> from tightrope.problems import loop_free
    >>> problem = loop_free.switching()
    >>> found = plan(hindsight_model(problem, 50, 0))
    >>> abs(found.value - hindsight_plan(problem, 50, 0).value) < 1e-8
    True
    """
    rewards, constraints = targets(problem, episodes, seed)
    names = problem.spec().cost_names
    return problem.loop_free.model.replace(
        rewards=rewards,
        costs=dict(zip(names, constraints)),
        capacities=dict.fromkeys(names, 0.0),
    )


def hindsight_plan(
    problem: AdversarialProblem, episodes: int, seed: int, played: Any = None
) -> LayeredPlan:
    """The optimum OPT of [BOBW, Eq. (5)] for `targets`."""
    rewards, constraints = targets(problem, episodes, seed, played)
    return plan_layered(problem.loop_free, rewards, constraints)


def feasibility_margin(
    problem: AdversarialProblem, episodes: int, seed: int, tables: FloatArray | None = None
) -> LayeredPlan:
    """rho of [BOBW, Section 3.5]: of the mean if stochastic, of every G_t at once if adversarial.

    Best response: of all tables that the adversary could play. A custom adversary is known by what
    it played, the distinct `tables` (n, m, S, A) of a run; ModelError without them.
    """
    sequence = sequences.at(problem.constraints, episodes)
    if sequence.kind == "custom":
        return with_cuts(problem.loop_free, _among(problem, tables))
    if sequence.stochastic:
        return margin(problem.loop_free, sequences.mean(sequence))
    stack = _finite_family(sequence, episodes, seed)
    if stack is not None:
        return margin(problem.loop_free, stack)
    return with_cuts(problem.loop_free, _separation(sequence, episodes, seed))


def always_safe_plan(
    problem: AdversarialProblem,
    episodes: int,
    seed: int,
    played: Any = None,
    tables: FloatArray | None = None,
) -> LayeredPlan:
    """The best fixed policy that keeps every constraint in every single episode.

    `played` as for `targets`, `tables` as for `feasibility_margin`.
    """
    rewards, _ = targets(problem, episodes, seed, played)
    sequence = sequences.at(problem.constraints, episodes)
    if sequence.kind == "custom":
        return with_cuts(problem.loop_free, _among(problem, tables), rewards)
    stack = None if sequence.stochastic else _finite_family(sequence, episodes, seed)
    if stack is not None:
        return plan_layered(problem.loop_free, rewards, stack)
    return with_cuts(problem.loop_free, _separation(sequence, episodes, seed), rewards)


def _finite_family(sequence: TableSequence, episodes: int, seed: int) -> FloatArray | None:
    """All tables that matter for 'in every episode', stacked (n, S, A), if there is no noise."""
    if sequence.noise > 0.0 and sequence.tables.shape[1]:
        return None
    if sequence.adaptive or sequence.kind == "iid":
        kept = sequence.tables
    else:
        kept = sequence.tables[sequences.corner_tables(sequence, episodes, seed)]
    return kept.reshape(-1, *kept.shape[-2:])


def _among(problem: AdversarialProblem, tables: FloatArray | None) -> Separation:
    """The worst of the tables that a custom adversary played."""
    if tables is None:
        raise ModelError(
            f"problem '{problem.name}' has constraints of a custom adversary: which G_t must be "
            "kept is known only from the tables that it played"
        )
    stack = np.asarray(tables).reshape(-1, *problem.available.shape)

    def worst(occupancy: FloatArray) -> tuple[FloatArray, float]:
        totals = np.tensordot(stack, occupancy, axes=2)
        return stack[int(totals.argmax())], float(totals.max())

    return worst


def _separation(sequence: TableSequence, episodes: int, seed: int) -> Any:
    def worst(occupancy: FloatArray) -> tuple[FloatArray, float]:
        best: tuple[FloatArray, float] = (np.zeros_like(occupancy), -np.inf)
        for first in range(1, episodes + 1, sequences.BLOCK):
            count = min(sequences.BLOCK, episodes - first + 1)
            tables = sequences.block(sequence, first, count, seed)
            totals = np.tensordot(tables, occupancy, axes=2)
            place = np.unravel_index(int(totals.argmax()), totals.shape)
            if totals[place] > best[1]:
                best = (tables[place].copy(), float(totals[place]))
        return best

    return worst
