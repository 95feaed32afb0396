"""The protocol between a learner and the simulation: policies and stopping rules are data.

A learner is a module that exports ``LEARNER = Learner(...)``. Its functions are called so::

    state = init(spec, config)
    repeat:
        policy = policy(state)           # played unchanged until the next update
        stop = horizon(state)            # for how long
        state, info = update(state, experience)

`update` may write into arrays that its state owns; `policy` never writes. A state is a dataclass
whose fields are arrays, numbers, strings or None, plus `spec` and `config`; it saves and resumes
bit for bit (`state_arrays`, `restore_state`). It may have methods ``notes()`` and ``unmet()`` that
list sentences: what it noticed, and why no theorem covers the run in spite of its configuration.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from tightrope.errors import ResultError
from tightrope.types import FloatArray, IntArray

StopKind = Literal["episodes", "steps", "visit-doubling", "visits-left", "determinant-doubling"]


@dataclass(frozen=True)
class Stop:
    """How long a policy is played before the next update.

    ``episodes``: `number` episodes. ``steps``: `number` steps of a single stream.
    ``visit-doubling``: until some pair has been visited, since the update, as often as
    `counts` (S, A) says (at least once), at most `number` steps.
    ``visits-left``: until the pair that would be played next has been visited, since the update, as
    often as `counts` (S, A) says, at most `number` steps.
    ``determinant-doubling``: until det(Gram) has doubled, at most `number` steps;
    `counts` is then the (d, d) Gram matrix at the update.
    """

    kind: StopKind
    number: int
    counts: FloatArray | None = None


@dataclass(kw_only=True, eq=False)
class Experience:
    """What the learner saw while a policy was played.

    Attributes
    ----------
    first : int
        Number, from 1, of the first episode (or of the first step of a stream).
    states : (n, H+1) int32, or (n+1,) for a stream
        The state after the last step is included.
    actions : (n, H) int32, or (n,)
    rewards : (n, H), or (n,)
    costs : (n, H, m), or (n, m)
    components : (n,) int32
        Which component of a mixture was drawn; 0 without a mixture.
    reward_tables : (n, S, A) or None
        Full information: the reward of every pair in each of the episodes.
    constraint_tables : (n, m, S, A) or None
    exact : (1 + m,) or None
        Privileged: the exact expected reward and costs of what was played, for configurations with
        `privileged_costs` only.
    """

    first: int
    states: IntArray
    actions: IntArray
    rewards: FloatArray
    costs: FloatArray
    components: IntArray | None = None
    reward_tables: FloatArray | None = None
    constraint_tables: FloatArray | None = None
    exact: FloatArray | None = None


Info = dict[str, float | FloatArray]
"""Numbers (or (m,) arrays) by name that a learner reports with an update."""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """What a learner's file exports.

    Attributes
    ----------
    name : str, kebab case
    config : the Config dataclass (frozen; survives JSON)
    theory : (spec, episodes_or_steps, delta) -> Config
        The theorem's constants and nothing else.
    init, policy, horizon, update : the protocol
    guarantee : (config) -> str or None
        The theorem that the configuration satisfies, or None.
    check : (spec, config) -> None
        Raises ConfigError if the learner cannot run on this problem.
    traits : frozenset of str
        ``episodic`` or ``stream``; ``constraints`` (any m), ``one-constraint`` or
        ``unconstrained``; ``full-information``; ``privileged`` (is given the optimal policy).
        ``linear-model`` or ``linear-bias`` (its theorem needs Assumption 2 or 4 of Wei et al.
        2020, which a run on a finite model checks). ``finite-diameter`` (its theorem needs one).
    reference : str
        Where the algorithm is defined.
    """

    name: str
    config: type
    theory: Callable[..., Any]
    init: Callable[..., Any]
    policy: Callable[..., Any]
    horizon: Callable[..., Stop]
    update: Callable[..., tuple[Any, Info]]
    guarantee: Callable[[Any], str | None]
    check: Callable[..., None]
    traits: frozenset[str] = field(default_factory=frozenset)
    reference: str = ""


NOT_SAVED = ("spec", "config")


def state_arrays(state: Any) -> dict[str, np.ndarray]:
    """A learner's state as named arrays (copies); numbers, strings and None as 0-d JSON text.

    A field that is itself a dataclass of such values is saved under ``field.inner``.
    """
    out = {}
    for item in dataclasses.fields(state):
        if item.name in NOT_SAVED:
            continue
        value = getattr(state, item.name)
        if isinstance(value, np.ndarray):
            out[item.name] = value.copy()
        elif dataclasses.is_dataclass(value):
            inner = state_arrays(value)
            out.update({f"{item.name}.{name}": array for name, array in inner.items()})
        else:
            out[f"{item.name}.json"] = np.array(json.dumps(value))
    return out


def restore_state(learner: Learner, spec: Any, config: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The state that `state_arrays` saved; ResultError if it does not belong to this learner."""
    state = learner.init(spec, config)
    wanted = {name.removesuffix(".json") for name in state_arrays(state)}
    found = {name.removesuffix(".json") for name in arrays}
    if wanted != found:
        raise ResultError(f"saved state has {sorted(found)}, {learner.name} needs {sorted(wanted)}")
    for name, value in arrays.items():
        *outer, last = name.removesuffix(".json").split(".")
        owner = getattr(state, outer[0]) if outer else state
        setattr(owner, last, json.loads(str(value)) if name.endswith(".json") else value.copy())
    return state
