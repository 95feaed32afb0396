"""What a policy does, where it goes and how often: as a table, and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tightrope.errors import ConfigError
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import (
    DeterministicPolicy,
    MixturePolicy,
    Policy,
    StochasticPolicy,
    check_policy,
    probabilities,
)
from tightrope.planning.criteria import discounted_visits, evaluate_stationary, frequencies
from tightrope.planning.occupancy import markov_policy, occupancy
from tightrope.types import Average, Discounted, Episodic, FloatArray, Total

if TYPE_CHECKING:
    import pyarrow as pa

UNITS = {
    Episodic: "expected visits an episode",
    Average: "share of time",
    Discounted: "expected discounted visits",
    Total: "expected visits before the end",
}
LINES = 40  # of text
RARE = 1e-6  # share of all visits below which the text leaves a line out
SAME = 1e-9  # relative difference in value at which one policy stands for a mixture


class Part(NamedTuple):
    """A policy without mixing: what it does and where it goes."""

    weight: float  #: probability that it is the one that is drawn at the start
    table: FloatArray  #: (1 or H, S, A) probabilities of the actions
    visits: FloatArray  #: of the same shape: how often, in the units of `visits`
    reached: FloatArray  #: (1 or H, S) how often it comes there; with what it passes but once


def visits(model: FiniteMDP, policy: Policy) -> FloatArray:
    """How often a policy takes each action in each state, from the initial law.

    Returns
    -------
    (H, S, A) for the episodic criterion, expected visits at each step; else (S, A): the long-run
    share of time (average), expected discounted visits, or expected visits before the end (total).

    >>> from tightrope.problems import riverswim
    >>> from tightrope.model.policy import uniform_policy
    >>> model = riverswim()
    >>> round(visits(model, uniform_policy(model.available)).sum(), 12)
    np.float64(1.0)
    """
    return _visits_and_reached(model, policy)[0]


def _visits_and_reached(model: FiniteMDP, policy: Policy) -> tuple[FloatArray, FloatArray]:
    if isinstance(model.criterion, Episodic):
        counts = occupancy(model, policy)
    elif isinstance(model.criterion, Discounted):
        counts = discounted_visits(model, policy)
    else:
        shares, passing = frequencies(model, policy)
        counts = shares if isinstance(model.criterion, Average) else passing
        return counts, (shares + passing).sum(axis=-1)
    return counts, counts.sum(axis=-1)


def parts_of(model: FiniteMDP, policy: Policy, stage: int | None = None) -> list[Part]:
    """The policy without mixing at the start, as one part wherever that is possible.

    The one part of a mixture takes each action in a state as often as the mixture does, so it earns
    and costs the same. Only under the average criterion there may be none; then the parts are those
    of the mixture. With a `stage` the parts are those of that step of an episode alone.
    """
    steps = model.criterion.horizon if isinstance(model.criterion, Episodic) else 0
    check_policy(policy, model.available, steps or None)
    if stage is not None and not 0 <= stage < steps:
        raise ConfigError(
            f"stage must be a step of an episode, from 0, got {stage} of {model.criterion}"
        )
    one = _one_policy(model, policy)
    if one is None:
        assert isinstance(policy, MixturePolicy)
        return [
            part._replace(
                weight=float(weight), visits=weight * part.visits, reached=weight * part.reached
            )
            for weight, component in zip(policy.weights, policy.components)
            for part in parts_of(model, component)
        ]
    shape = (-1, model.num_states, model.num_actions)
    table = probabilities(one, model.num_actions).reshape(shape)
    counts, reached = _visits_and_reached(model, one)
    counts, reached = counts.reshape(shape), reached.reshape(shape[:2])
    if stage is not None:
        table = table[[stage if len(table) > 1 else 0]]
        counts, reached = counts[[stage]], reached[[stage]]
    elif len(table) == 1:
        counts, reached = (x.sum(axis=0, keepdims=True) for x in (counts, reached))
    return [Part(1.0, table, counts, reached)]


def _one_policy(model: FiniteMDP, policy: Policy) -> DeterministicPolicy | StochasticPolicy | None:
    """A policy without mixing that is everywhere as often as this one, or None."""
    if not isinstance(policy, MixturePolicy):
        return policy
    if isinstance(model.criterion, Episodic):
        return markov_policy(model, policy)
    if isinstance(model.criterion, Discounted):
        counts = discounted_visits(model, policy)
    else:
        shares, passing = frequencies(model, policy)
        counts = np.where(shares.sum(axis=1, keepdims=True) > 0, shares, passing)
    counts = np.where(counts.sum(axis=1, keepdims=True) > 0, counts, model.available)
    one = StochasticPolicy(counts / counts.sum(axis=1, keepdims=True))
    found, wanted = evaluate_stationary(model, one), evaluate_stationary(model, policy)
    near = np.isclose([found.value, *found.costs], [wanted.value, *wanted.costs], SAME, SAME)
    return one if near.all() else None


def policy_table(model: FiniteMDP, policy: Policy, *, stage: int | None = None) -> pa.Table:
    """The policy as an Arrow table, one row for each action with a probability above 0.

    Columns: ``stage`` (from 0; null if the policy is the same at every step), ``state``,
    ``state_name``, ``action``, ``action_name``, ``probability``, ``visits`` (how often, see
    `visits`), and ``weight``, which is 1 unless no single policy stands for a mixture: then the
    rows are those of its components, and it is their weight. A mixture's rows are left out where it
    never comes.

    Raises ModelError if the policy does not fit the model, ConfigError for a stage that is none.

    >>> from tightrope.planning import plan
    >>> from tightrope.problems import media_buffer
    >>> model = media_buffer()
    >>> table = policy_table(model, plan(model).policy, stage=0)
    >>> table.select(["state_name", "action_name", "probability"]).to_pylist()
    [{'state_name': '0', 'action_name': 'fast', 'probability': 1.0}]
    """
    import pyarrow as pa

    tables = []
    for part in parts_of(model, policy, stage):
        shown = part.table > 0
        if isinstance(policy, MixturePolicy):
            shown &= part.reached[:, :, None] > 0
        h, s, a = np.nonzero(shown)
        same = len(part.table) == 1 and stage is None
        columns = {
            "stage": pa.nulls(h.size, pa.int64()) if same else h + (stage or 0),
            "state": s,
            "state_name": [model.state_name(i) for i in s.tolist()],
            "action": a,
            "action_name": [model.action_name(i) for i in a.tolist()],
            "probability": part.table[shown],
            "visits": part.visits[shown],
            "weight": np.full(h.size, part.weight),
        }
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def policy_text(model: FiniteMDP, policy: Policy, *, stage: int | None = None) -> str:
    """The policy for reading: what it does in the states where it is most often.

    >>> from tightrope.planning import plan
    >>> from tightrope.problems import media_buffer
    >>> model = media_buffer()
    >>> print(policy_text(model, plan(model).policy, stage=1))
    2 policies, one of which is drawn at the start; shown is the one policy with the same visits
    state  stage       visits  action
    0          1         0.55  fast
    1          1         0.45  fast
    visits: expected visits an episode; rarer than one in a million are left out
    """
    parts = parts_of(model, policy, stage)
    out = []
    if isinstance(policy, MixturePolicy):
        out.append(
            f"{len(policy.components)} policies, one of which is drawn at the start"
            + ("; shown is the one policy with the same visits" if len(parts) == 1 else "")
        )
    for part in parts:
        if len(parts) > 1:
            out.append(f"with probability {part.weight:.6g} drawn at the start:")
        often = part.reached.sum(axis=0)
        order = np.argsort(-often, kind="stable")
        order = order[often[order] > RARE * often.sum()].tolist()
        found: dict[int, list[tuple[str, float, str]]] = {}
        for state in order:
            found[state] = _lines(model, part, state, stage)
            if sum(map(len, found.values())) >= LINES:
                break
        wide = max(5, *(len(model.state_name(state)) for state in found), 0)
        out.append(f"{'state':{wide}}  {'stage':>5} {'visits':>12}  action")
        for state, lines in sorted(found.items()):
            for stages, count, actions in lines:
                name = model.state_name(state)
                out.append(f"{name:{wide}}  {stages:>5} {count:12.6g}  {actions}")
        if len(found) < len(order):
            out.append(f"({len(found)} of {len(order)} states: those where it is most often)")
    out.append(f"visits: {UNITS[type(model.criterion)]}; rarer than one in a million are left out")
    return "\n".join(out)


def _lines(
    model: FiniteMDP, part: Part, state: int, stage: int | None
) -> list[tuple[str, float, str]]:
    """(stages, visits, actions) of a state; neighbouring stages with the same law are one line."""
    counts = part.visits[:, state].sum(axis=1)
    laws = part.table[:, state].round(4)
    runs: list[list[int]] = []
    for h in np.flatnonzero(part.reached[:, state] > RARE * part.reached.sum()).tolist():
        if runs and h == runs[-1][-1] + 1 and (laws[h] == laws[h - 1]).all():
            runs[-1].append(h)
        else:
            runs.append([h])
    out = []
    for run in runs:
        law = laws[run[0]]
        likely = np.argsort(-law, kind="stable")[: int((law > 0).sum())].tolist()
        actions = [f"{model.action_name(a)} ({law[a]:.4g})" for a in likely]
        if len(likely) == 1:
            actions = [model.action_name(likely[0])]
        first, last = (run[0], run[-1]) if stage is None else (stage, stage)
        stages = f"{first}-{last}" if last > first else str(first)
        if len(part.table) == 1 and stage is None:
            stages = "all"
        out.append((stages, float(counts[run].sum()), ", ".join(actions)))
    return out
