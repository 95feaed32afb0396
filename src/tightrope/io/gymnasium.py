"""Models from Gymnasium: exact from a transition table, or estimated by sampling.

A table is ``P[state][action] = [(probability, next_state, reward, done), ...]``. Successors that
are there twice add up. Only the flag `done` ends an episode: a step with it leads to a copy of its
next state that can never be left and pays nothing, named ``"47 end"`` (no copy is made of a state
that is such an end already). A time limit around the environment is no part of the table; the
criterion says how long an episode is.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tightrope.errors import ConfigError, ModelError, ModelWarning
from tightrope.io.entries import Entries, assemble
from tightrope.model.mdp import FiniteMDP
from tightrope.types import Criterion, FloatArray, IntArray

Cost = Any
"""An (S, A) table, a function of (state, action, next state), or a key of ``info``.

A key of a vector in ``info`` is given with the place in it: ``("cost", 0)``.
"""


def from_gymnasium(
    source: Any,
    *,
    criterion: Criterion | str,
    costs: Mapping[str, Cost] | None = None,
    initial: Any = None,
    samples: int | None = None,
    seed: int | None = None,
    **fields: Any,
) -> FiniteMDP:
    """A finite model of a Gymnasium environment, or of a transition table.

    Parameters
    ----------
    source : environment, its name, or a table
        An environment whose ``unwrapped.P`` is a table gives the exact model, any other one with
        discrete spaces an estimate (`samples`).
    criterion : Criterion, or its name with `horizon` or `discount`
    costs : mapping from name to cost
        An (S, A) array or a function of (observation, action, next observation); when sampling
        also the name of a number in ``info``.
    initial : (S,)
        Start law; by default the environment's own.
    samples : int
        For environments without a table: the number of steps to sample, always the action that
        was tried least. The result is an `EstimatedMDP`, and a `ModelWarning` says so.
    seed : int
        For sampling.
    fields
        Further keywords of `FiniteMDP`: capacities, senses, names.

    Raises
    ------
    ModelError, ConfigError
        With the state and action of the table, what was expected and what came.

    Examples
    --------
    >>> table = {0: {0: [(0.5, 0, 1.0, False), (0.25, 1, 1.0, True), (0.25, 1, 1.0, True)]},
    ...          1: {0: [(1.0, 1, 0.0, True)]}}
    >>> from_gymnasium(table, criterion="total", initial=[1, 0]).dense()[:, 0]
    array([[0.5, 0.5],
           [0. , 1. ]])
    """
    source = named_environment(source)
    inner = getattr(source, "unwrapped", source)
    model = getattr(inner, "model", None)
    if isinstance(model, FiniteMDP):
        if costs is not None or initial is not None:
            raise ConfigError("the environment has a model: use env.unwrapped.model.replace(...)")
        return model.replace(criterion=criterion, **fields)
    table = source if isinstance(source, Mapping | Sequence) else getattr(inner, "P", None)
    if table is not None:
        if samples is not None:
            raise ConfigError("samples is for environments without a table; this one has P")
        if initial is None:
            initial = getattr(inner, "initial_state_distrib", getattr(inner, "isd", None))
        if initial is None:
            raise ModelError("a table has no start law: say initial=(S,) probabilities")
        steps, names = _read_table(table, costs or {})
        names = names or _places(inner, steps.num_states)
        return FiniteMDP(**{"criterion": criterion, **_fields(steps, names, initial), **fields})
    if samples is None:
        raise ConfigError(
            f"{source} has no transition table P: say samples= for a model that is estimated from "
            "that many steps, or run a learner on it with tightrope.learn"
        )
    return _sample(source, costs or {}, samples, seed, criterion=criterion, **fields)


class EstimatedMDP(FiniteMDP):
    """A model of relative frequencies: `counts` (S, A) says how often each pair was seen."""

    counts: IntArray

    def __init__(self, *, counts: IntArray, **fields: Any) -> None:
        super().__init__(**fields)
        object.__setattr__(self, "counts", counts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, ({"counts": self.counts, **self.to_dict()},)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, ESTIMATED from {self.counts.sum()} steps)"


def _rebuild(fields: dict[str, Any]) -> EstimatedMDP:
    return EstimatedMDP(**fields)


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """Kinds of step, one an entry: what a table lists or sampling has seen."""

    states: IntArray
    actions: IntArray
    nexts: IntArray
    probabilities: FloatArray
    rewards: FloatArray
    done: np.ndarray
    costs: dict[str, FloatArray]
    num_states: int
    num_actions: int


def _read_table(table: Any, costs: Mapping[str, Cost]) -> tuple[_Steps, list[str] | None]:
    states = list(table) if isinstance(table, Mapping) else list(range(len(table)))
    names = None if states == list(range(len(states))) else [str(state) for state in states]
    place = {state: i for i, state in enumerate(states)}
    if not states:
        raise ModelError("the table holds no states")
    rows: list[tuple[int, int, int, float, float, bool]] = []
    num_actions = 0
    for state in states:
        for action, outcomes in _items(table[state], f"P[{state!r}]"):
            num_actions = max(num_actions, action + 1)
            for outcome in _outcomes(outcomes, state, action):
                if not isinstance(outcome[1], Hashable) or outcome[1] not in place:
                    raise ModelError(
                        f"P[{state!r}][{action}] leads to {outcome[1]!r}, which is no state"
                    )
                share, target, reward, done = outcome
                rows.append((place[state], action, place[target], share, reward, bool(done)))
    if not rows:
        raise ModelError("the table holds no transitions")
    sources, actions, nexts, shares, rewards, done = (np.array(column) for column in zip(*rows))
    shape = (len(states), num_actions)
    steps = _Steps(
        states=sources,
        actions=actions,
        nexts=nexts,
        probabilities=_numbers(shares, "probability", rows),
        rewards=_numbers(rewards, "reward", rows),
        done=done,
        costs={
            name: _numbers(
                _cost_column(name, cost, shape, states, sources, actions, nexts),
                f"cost '{name}'",
                rows,
            )
            for name, cost in costs.items()
        },
        num_states=len(states),
        num_actions=num_actions,
    )
    return steps, names


def _places(env: Any, num_states: int) -> list[str] | None:
    """Names "5 (1,1)" of the states of an environment that says how they lie on a grid.

    It has ``nrow`` and ``ncol`` (FrozenLake), ``shape`` (CliffWalking) or ``decode`` (Taxi).
    """
    if hasattr(env, "decode") and hasattr(env, "locs"):
        decoded = [list(env.decode(state)) for state in range(num_states)]
        return [
            f"{state} ({row},{column}) passenger {passenger} to {goal}"
            for state, (row, column, passenger, goal) in enumerate(decoded)
        ]
    shape = getattr(env, "shape", (getattr(env, "nrow", 0), getattr(env, "ncol", 0)))
    if len(shape) != 2 or shape[0] * shape[1] != num_states:
        return None
    return [f"{state} ({state // shape[1]},{state % shape[1]})" for state in range(num_states)]


def _items(row: Any, place: str) -> list[tuple[int, Any]]:
    items = list(row.items()) if isinstance(row, Mapping) else list(enumerate(row))
    for action, _ in items:
        if isinstance(action, bool) or not isinstance(action, int | np.integer) or action < 0:
            raise ModelError(f"{place} has action {action!r}, expected whole numbers from 0")
        if action > 2**20:
            raise ModelError(f"{place} has action {action}; number the actions from 0")
    return items


def _outcomes(outcomes: Any, state: Any, action: int) -> list[Any]:
    for outcome in outcomes:
        if not isinstance(outcome, Sequence) or len(outcome) != 4:
            raise ModelError(
                f"P[{state!r}][{action}] holds {outcome!r}, expected (probability, next_state, "
                "reward, done)"
            )
    return list(outcomes)


def _numbers(values: Any, what: str, rows: list[Any]) -> FloatArray:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ModelError(f"{what} holds {array.ravel()[:1]}, expected numbers")
    low = 0.0 if what == "probability" else -np.inf
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= low)))
    if bad.size:
        state, action, target = rows[int(bad[0])][:3]
        raise ModelError(
            f"{what} of (state {state}, action {action}) to state {target} is {array[bad[0]]}, "
            f"expected a finite number{' >= 0' if low == 0 else ''}"
        )
    return array.astype(np.float64)


def _cost_column(
    name: str,
    cost: Cost,
    shape: tuple[int, int],
    labels: Sequence[Any],
    states: IntArray,
    actions: IntArray,
    nexts: IntArray,
) -> FloatArray:
    if callable(cost):
        return np.array(
            [cost(labels[s], int(a), labels[t]) for s, a, t in zip(states, actions, nexts)]
        )
    if isinstance(cost, str):
        raise ConfigError(
            f"cost '{name}' is a key of info, which a table does not have; give an (S, A) array or "
            "a function of (state, action, next state)"
        )
    array = np.asarray(cost)
    if array.shape != shape:
        raise ModelError(f"cost '{name}' has shape {array.shape}, expected (S, A) = {shape}")
    return array[states, actions]


def _fields(steps: _Steps, names: Sequence[str] | None, initial: Any) -> dict[str, Any]:
    """Keywords of `FiniteMDP`: ends made absorbing, successors added up."""
    num_states, num_actions = steps.num_states, steps.num_actions
    pays = (steps.rewards != 0) | np.any([c != 0 for c in steps.costs.values()] or [False], axis=0)
    goes_on = np.zeros(num_states, dtype=bool)
    goes_on[steps.states[~steps.done | pays | (steps.nexts != steps.states)]] = True
    ends = np.unique(steps.nexts[steps.done])
    copied = ends[goes_on[ends]]
    copy = np.arange(num_states)
    copy[copied] = num_states + np.arange(copied.size)
    nexts = np.where(steps.done, copy[steps.nexts], steps.nexts)
    has_row = np.zeros(num_states, dtype=bool)
    has_row[steps.states] = True
    loops = np.concatenate([ends[~has_row[ends]], copy[copied]])
    loops, every = np.repeat(loops, num_actions), np.tile(np.arange(num_actions), loops.size)
    total = num_states + copied.size
    labels = list(names) if names is not None else [str(s) for s in range(num_states)]
    labels += [f"{labels[s]} end" for s in copied]
    kinds = (steps.states * num_actions + steps.actions) * total + nexts
    key, group = np.unique(kinds, return_inverse=True)
    weights = steps.probabilities
    mass = np.bincount(group, weights=weights)

    def merged(values: FloatArray) -> FloatArray:
        """Mean of a column over successors that were added up, and 0 on the loops."""
        first = np.zeros(key.size)
        first[group] = values
        if (first[group] != values).any():
            with np.errstate(invalid="ignore"):
                first = np.where(mass > 0, np.bincount(group, weights=weights * values) / mass, 0)
        return np.concatenate([first, np.zeros(every.size)])

    pairs, targets = np.divmod(key, total)
    entries = Entries(
        states=np.concatenate([pairs // num_actions, loops]),
        actions=np.concatenate([pairs % num_actions, every]),
        nexts=np.concatenate([targets, loops]),
        probabilities=np.concatenate([mass, np.ones(loops.size)]),
        where=lambda i: "table",
        state_name=lambda s: labels[s],
    )
    parts = assemble(entries, total, num_actions)
    law = np.asarray(initial, dtype=np.float64)
    if law.shape != (num_states,):
        raise ModelError(f"initial has shape {law.shape}, expected (S,) = ({num_states},)")
    return {
        **parts.fields,
        **parts.rewards(merged(steps.rewards)),
        **parts.costs({name: merged(column) for name, column in steps.costs.items()}),
        "initial": np.concatenate([law, np.zeros(copied.size)]),
        "state_names": labels if copied.size or names is not None else None,
    }


def named_environment(env: Any) -> Any:
    """The environment itself, or the one that Gymnasium makes of a name."""
    if not isinstance(env, str):
        return env
    import gymnasium

    if env.startswith("tightrope/"):
        importlib.import_module("tightrope.adapter")  # registers them
    try:
        return gymnasium.make(env)
    except gymnasium.error.Error as error:
        raise ConfigError(f"Gymnasium cannot make '{env}': {error}") from error


def split_batch(env: Any, observations: Any) -> list[Any]:
    """The observations of a vector environment one by one."""
    from gymnasium.vector.utils import iterate

    return list(iterate(env.observation_space, observations))


def join_batch(env: Any, actions: list[Any]) -> Any:
    """Single actions as one of a vector environment."""
    from gymnasium.vector.utils import concatenate, create_empty_array

    space = env.single_action_space
    batch: Any = create_empty_array(space, len(actions))
    return concatenate(space, actions, batch)


def index_space(space: Any) -> tuple[int, Callable[[Any], int], Callable[[int], Any]]:
    """A discrete space as numbers from 0: (size, element -> number, number -> element).

    Takes Discrete, MultiDiscrete, MultiBinary and tuples of them; ConfigError for others.

    >>> from gymnasium.spaces import Discrete, MultiDiscrete, Tuple
    >>> size, encode, decode = index_space(Tuple([Discrete(3), MultiDiscrete([2, 4])]))
    >>> size, encode((2, np.array([1, 3]))), decode(0)
    (24, 23, (0, array([0, 0])))
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        low = int(space.start)
        return int(space.n), lambda x: int(x) - low, lambda i: i + low
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        sizes = space.nvec if isinstance(space, spaces.MultiDiscrete) else np.full(space.shape, 2)
        shape = tuple(int(n) for n in np.ravel(sizes))
        start = np.asarray(getattr(space, "start", 0))

        def encode(x: Any) -> int:
            return int(np.ravel_multi_index(tuple(np.ravel(np.asarray(x) - start)), shape))

        def decode(i: int) -> Any:
            return np.array(np.unravel_index(i, shape)).reshape(sizes.shape) + start

        return int(np.prod(shape)), encode, decode
    if isinstance(space, spaces.Tuple):
        parts = [index_space(part) for part in space.spaces]
        shape = tuple(part[0] for part in parts)

        def encode_all(x: Any) -> int:
            codes = tuple(part[1](item) for part, item in zip(parts, x))
            return int(np.ravel_multi_index(codes, shape))

        def decode_all(i: int) -> Any:
            codes = np.unravel_index(i, shape)
            return tuple(part[2](int(code)) for part, code in zip(parts, codes))

        return int(np.prod(shape)), encode_all, decode_all
    raise ConfigError(
        f"{space} is not discrete; tightrope.adapter.Discretise(env, bins=...) makes a Box so"
    )


def step_costs(
    costs: Mapping[str, Cost],
    observation: Any,
    action: Any,
    following: Any,
    info: Mapping[str, Any],
) -> FloatArray:
    """(m,) costs of one step, from ``info`` by key or by function."""
    out = np.empty(len(costs))
    for i, (name, cost) in enumerate(costs.items()):
        if callable(cost):
            out[i] = cost(observation, action, following)
        elif isinstance(cost, tuple) and cost[0] in info:
            out[i] = info[cost[0]][cost[1]]
        elif isinstance(cost, str) and cost in info:
            out[i] = info[cost]
        else:
            keys = ", ".join(map(repr, info)) or "nothing"
            raise ConfigError(
                f"cost '{name}' is {cost!r}, expected a function of (observation, action, next "
                f"observation) or a key of info, which holds {keys}"
            )
    return out


def _sample(
    env: Any, costs: Mapping[str, Cost], samples: int, seed: int | None, **fields: Any
) -> EstimatedMDP:
    """Estimate a model by taking `samples` steps, always the action tried least."""
    num_states, encode, _ = index_space(env.observation_space)
    num_actions, _, decode = index_space(env.action_space)
    rng = np.random.default_rng(seed)
    tried = np.zeros((num_states, num_actions), dtype=np.int64)
    starts = np.zeros(num_states, dtype=np.int64)
    seen: dict[tuple[int, int, int, bool], list[Any]] = {}  # count, sum of reward, sums of costs
    observation, info = env.reset(seed=seed)
    starts[encode(observation)] += 1
    for _ in range(samples):
        state = encode(observation)
        mask = np.asarray(info.get("action_mask", np.ones(num_actions))) > 0
        ties = np.flatnonzero(mask & (tried[state] == tried[state][mask].min()))
        number = int(rng.choice(ties))
        action = decode(number)
        following, reward, done, cut, info = env.step(action)
        paid = step_costs(costs, observation, action, following, info)
        record = seen.setdefault((state, number, encode(following), bool(done)), [0, 0.0, 0.0])
        record[0] += 1
        record[1] += float(reward)
        record[2] = record[2] + paid
        tried[state, number] += 1
        observation = following
        if done or cut:
            observation, info = env.reset()
            starts[encode(observation)] += 1
    return _estimate(costs, tried, starts, seen, fields)


def _estimate(
    costs: Mapping[str, Cost],
    tried: IntArray,
    starts: IntArray,
    seen: Mapping[tuple[int, int, int, bool], list[Any]],
    fields: dict[str, Any],
) -> EstimatedMDP:
    states, actions, nexts, done = (np.array(column) for column in zip(*seen))
    count = np.array([record[0] for record in seen.values()])
    known = np.unique(np.concatenate([states, nexts, np.flatnonzero(starts)]))
    left = tried.sum(axis=1)
    never = np.setdiff1d(np.union1d(nexts[~done], np.flatnonzero(starts)), np.flatnonzero(left))
    if never.size:
        raise ModelError(
            f"state {never[0]} was reached but never left in {left.sum()} steps; sample more"
        )
    paid = np.array([record[2] for record in seen.values()]).reshape(count.size, len(costs))
    place = np.zeros(tried.shape[0], dtype=np.int64)
    place[known] = np.arange(known.size)
    steps = _Steps(
        states=place[states],
        actions=actions,
        nexts=place[nexts],
        probabilities=count / tried[states, actions],
        rewards=np.array([record[1] for record in seen.values()]) / count,
        done=done,
        costs={name: paid[:, i] / count for i, name in enumerate(costs)},
        num_states=known.size,
        num_actions=tried.shape[1],
    )
    names = [str(s) for s in known]
    built = _fields(steps, names, starts[known] / starts.sum())
    counts = np.zeros(built["available"].shape, dtype=np.int64)
    counts[: known.size] = tried[known]
    model = EstimatedMDP(counts=counts, **{**built, **fields})
    least = int(counts[counts > 0].min())
    warnings.warn(
        f"the model is an estimate from {counts.sum()} steps: some pair was tried only {least} "
        f"times, and {known.size} of {tried.shape[0]} states were seen (model.counts)",
        ModelWarning,
        stacklevel=4,
    )
    return model
