"""Sequences of reward and constraint tables: i.i.d., switching, drifting, piecewise, adaptive.

A sequence is data: base tables B_j, a rule that weighs them, ``table_t = sum_j w_j(t) B_j``, and
independent noise of mean zero. Episodes count from 1. Noise and draws of episode t come from the
block of t alone (seed, stream, block), so any episode can be had without the ones before it; only
`best_response` looks at the learner and must be played forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import BuiltinFunctionType, CellType, CodeType, MethodType, ModuleType
from typing import Any

import numpy as np

from tightrope.errors import ModelError
from tightrope.types import FloatArray, IntArray, as_whole

BLOCK = 256  # episodes that share one generator


@dataclass(frozen=True, kw_only=True, eq=False)
class TableSequence:
    """Tables of one channel: rewards (J, S, A), or constraints (J, m, S, A).

    Attributes
    ----------
    kind : 'iid', 'draw', 'switching', 'drift', 'piecewise', 'best-response' or 'custom'
    tables : (J, ...) base tables; for 'custom' one table that gives the shape
    noise : float
        Half width of uniform noise, at each entry no more than its distance to the range's ends,
        so that the mean is exact and nothing is clipped.
    low, high : float
        The range of the channel: [0, 1] for rewards, [-1, 1] for constraints.
    period : int
        Episodes before `switching` changes its table.
    episodes : int
        Length of `drift` and `piecewise`; 0 for that of the run, set by `at`.
    probabilities : (J,)
        Law of `draw`.
    stream : int
        Sequences of one problem with one stream see the same draws.
    function : callable
        Of `custom`: (episode, q_t) -> table; it may look at the learner.
    """

    kind: str
    tables: FloatArray
    low: float
    high: float
    noise: float = 0.0
    period: int = 1
    episodes: int = 1
    probabilities: FloatArray | None = None
    stream: int = 0
    function: Callable[[int, FloatArray], Any] | None = None

    @property
    def stochastic(self) -> bool:
        """Whether the tables are independent draws of one law."""
        return self.kind in ("iid", "draw")

    @property
    def adaptive(self) -> bool:
        """Whether tables may depend on what the learner plays."""
        return self.kind in ("best-response", "custom")


def make(kind: str, tables: Any, *, channel: str, **parameters: Any) -> TableSequence:
    """A checked sequence; `channel` is 'rewards' or 'constraints'.

    Raises ModelError, with the place, if a table is out of range or has the wrong shape.
    """
    if channel not in ("rewards", "constraints"):
        raise ModelError(f"channel must be 'rewards' or 'constraints', got {channel!r}")
    low, high = (0.0, 1.0) if channel == "rewards" else (-1.0, 1.0)
    stack = np.array(tables, dtype=np.float64)
    wanted = 3 if channel == "rewards" else 4
    if stack.ndim != wanted:
        axes = "(S, A)" if channel == "rewards" else "(m, S, A)"
        raise ModelError(
            f"{kind} {channel}: tables stack to shape {stack.shape}, expected a list of {axes}"
        )
    bad = np.argwhere(~((stack >= low) & (stack <= high)))
    if bad.size:
        place = tuple(int(i) for i in bad[0])
        raise ModelError(
            f"{kind} {channel}: table {place[0]} is {stack[place]:.6g} at {place[1:]}, expected "
            f"a number in [{low:.0f}, {high:.0f}]"
        )
    if not (stack[..., -1, :] == 0).all():
        raise ModelError(f"{kind} {channel}: the last state x_L must have zeros")
    for name, least in (("period", 1), ("episodes", 0)):
        if name in parameters:
            where = f"{kind} {channel}: {name}"
            parameters[name] = as_whole(parameters[name], where, least)
    noise = parameters.get("noise", 0.0)
    if not isinstance(noise, int | float | np.number) or not 0.0 <= noise < np.inf:
        raise ModelError(f"{kind} {channel}: noise must be a number >= 0, got {noise!r}")
    if kind == "draw":
        law = np.asarray(parameters.get("probabilities"), dtype=np.float64)
        if law.shape != (len(stack),) or (law < 0).any() or abs(law.sum() - 1) > 1e-12:
            raise ModelError(f"draw {channel}: probabilities must be {len(stack)} that sum to 1")
        parameters["probabilities"] = law
    return TableSequence(kind=kind, tables=stack, low=low, high=high, **parameters)


def iid(mean: Any, *, channel: str, noise: float = 0.0, stream: int = 0) -> TableSequence:
    """Independent tables with this mean and uniform noise."""
    return make("iid", [mean], channel=channel, noise=noise, stream=stream)


def draw(
    tables: Any, probabilities: Any, *, channel: str, noise: float = 0.0, stream: int = 0
) -> TableSequence:
    """Each episode one of the tables, independently, with these probabilities."""
    return make(
        "draw", tables, channel=channel, noise=noise, stream=stream, probabilities=probabilities
    )


def switching(
    first: Any, second: Any, period: int, *, channel: str, noise: float = 0.0, stream: int = 0
) -> TableSequence:
    """`period` episodes of the first table, as many of the second, and again."""
    return make(
        "switching", [first, second], channel=channel, period=period, noise=noise, stream=stream
    )


def drift(
    first: Any, last: Any, episodes: int, *, channel: str, noise: float = 0.0, stream: int = 0
) -> TableSequence:
    """From the first table to the last in equal steps over `episodes`."""
    return make(
        "drift", [first, last], channel=channel, episodes=episodes, noise=noise, stream=stream
    )


def piecewise(
    tables: Any, episodes: int, *, channel: str, noise: float = 0.0, stream: int = 0
) -> TableSequence:
    """The tables one after the other, each for an equal share of `episodes`."""
    return make("piecewise", tables, channel=channel, episodes=episodes, noise=noise, stream=stream)


def best_response(tables: Any, *, channel: str) -> TableSequence:
    """Adaptive: sees q_t and plays the table with the least reward, or the largest violation."""
    return make("best-response", tables, channel=channel)


def custom(
    function: Callable[[int, FloatArray], Any], shape: tuple[int, ...], *, channel: str
) -> TableSequence:
    """Your own adversary: (episode, q_t) -> a table of `shape`, checked at every episode."""
    return make("custom", np.zeros((1, *shape)), channel=channel, function=function)


def fingerprint(value: Any, within: tuple[int, ...] = ()) -> str:
    """What tells one adversary's function from another: its code, defaults and what it closes over.

    Arguments of `functools.partial` count too, and of objects the attributes and what they do when
    called (of models the content hash; cached properties do not). What it reads elsewhere, such as
    a global table, is not looked at. `within` are the ids of what contains the value: one that
    contains itself ends.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int | float | complex | str | bytes | range | None):
        return repr(value)
    if id(value) in within:
        return f"<{len(within) - within.index(id(value))} up>"

    def each(values: Iterable[Any]) -> list[str]:
        return [fingerprint(item, (*within, id(value))) for item in values]

    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"{value.dtype.str}{value.shape}{value.tobytes().hex()}"
    if isinstance(value, np.ndarray):
        return f"{value.shape}{each([value.tolist()])}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({','.join(each(value))})"
    if isinstance(value, set | frozenset):
        return f"set({','.join(sorted(each(value)))})"
    if isinstance(value, Mapping):
        return f"dict({','.join(sorted(each(value.items())))})"
    if isinstance(value, type | ModuleType | BuiltinFunctionType | np.ufunc):
        name = getattr(value, "__qualname__", value.__name__)
        return f"{getattr(value, '__module__', '')}.{name}"
    if isinstance(value, partial):
        return f"partial{each((value.func, value.args, value.keywords))}"
    if isinstance(value, MethodType):
        return f"method{each((value.__func__, value.__self__))}"
    code = getattr(value, "__code__", value if isinstance(value, CodeType) else None)
    if code is not None:
        defaults = (getattr(value, name, None) for name in ("__defaults__", "__kwdefaults__"))
        cells = map(_contents, getattr(value, "__closure__", None) or ())
        parts = each((code.co_consts, *defaults, *cells))
        return f"{code.co_qualname}{code.co_code.hex()}{code.co_names}{parts}"
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(getattr(value, "content_hash", None), str):
        return f"{kind}:{value.content_hash}"
    caches = {
        name
        for base in type(value).__mro__
        for name, item in vars(base).items()
        if isinstance(item, cached_property)
    }
    own = {
        name: item for name, item in getattr(value, "__dict__", {}).items() if name not in caches
    }
    return f"{kind}{each([own, type(value).__call__ if callable(value) else None])}"


def _contents(cell: CellType) -> Any:
    """What a function closes over; of a name that has no value yet, the type of its cell."""
    try:
        return cell.cell_contents
    except ValueError:
        return CellType


def weights(sequence: TableSequence, first: int, count: int, seed: int) -> FloatArray:
    """(count, J) weights of the base tables in episodes first, first + 1, ..."""
    t = np.arange(first, first + count)
    num_tables = len(sequence.tables)
    if sequence.kind == "iid":
        return np.ones((count, 1))
    if sequence.kind == "drift":
        share = (np.minimum(t, sequence.episodes) - 1) / max(sequence.episodes - 1, 1)
        return np.stack([1.0 - share, share], axis=1)
    if sequence.kind == "switching":
        chosen = ((t - 1) // sequence.period) % num_tables
    elif sequence.kind == "piecewise":
        chosen = np.minimum((t - 1) * num_tables // sequence.episodes, num_tables - 1)
    elif sequence.kind == "draw":
        assert sequence.probabilities is not None
        uniforms = by_block(first, count, seed, (ADVERSARY, sequence.stream, 1), ())
        law = np.cumsum(sequence.probabilities)[:-1]
        chosen = np.searchsorted(law, uniforms, side="right")
    else:
        raise ModelError(f"a {sequence.kind} sequence has no weights before it is played")
    return np.eye(num_tables)[chosen]


def at(sequence: TableSequence, episodes: int) -> TableSequence:
    """The sequence of a run of this many episodes: sets the length of `drift` and `piecewise`."""
    return sequence if sequence.episodes else replace(sequence, episodes=episodes)


def by_block(
    first: int, count: int, seed: int, key: tuple[int, ...], shape: tuple[int, ...]
) -> FloatArray:
    """(count, *shape) uniforms; those of episode t depend on the seed, the key and t alone."""
    parts = []
    for block in range((first - 1) // BLOCK, (first + count - 2) // BLOCK + 1):
        source = np.random.SeedSequence(seed, spawn_key=(*key, block))
        parts.append(np.random.default_rng(source).random((BLOCK, *shape)))
    start = (first - 1) % BLOCK
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return whole[start : start + count]


ADVERSARY = 1  # spawn key of the adversary's stream of a run, `simulation.streams`


def block(sequence: TableSequence, first: int, count: int, seed: int) -> FloatArray:
    """(count, ...) tables of episodes first, first + 1, ..., noise included."""
    w = weights(sequence, first, count, seed)
    if sequence.kind == "drift":
        out = np.tensordot(w, sequence.tables, axes=1)
    else:
        out = sequence.tables[w.argmax(axis=1)]
    if sequence.noise > 0.0:
        room = np.minimum(out - sequence.low, sequence.high - out)
        room[..., -1, :] = 0.0
        half = np.minimum(sequence.noise, room)
        use = 2 if sequence.low == 0.0 else 3
        key = (ADVERSARY, sequence.stream, use)
        out = out + half * (2.0 * by_block(first, count, seed, key, out.shape[1:]) - 1.0)
    return out


def respond(sequence: TableSequence, episode: int, occupancy: FloatArray) -> FloatArray:
    """The table that an adaptive sequence plays against q_t; the first among equals.

    Raises ModelError, with the episode, if a custom adversary breaks the shape or the range.
    """
    if sequence.function is None:
        totals = np.tensordot(sequence.tables, occupancy, axes=2)
        worst = totals.argmin() if sequence.low == 0.0 else totals.max(axis=1).argmax()
        return sequence.tables[int(worst)]
    channel = "rewards" if sequence.low == 0.0 else "constraints"
    answer = sequence.function(episode, occupancy.copy())
    try:
        table = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"the adversary's {channel} of episode {episode} are no table of numbers: {error}"
        ) from error
    if table.shape != sequence.tables.shape[1:]:
        raise ModelError(
            f"the adversary's {channel} of episode {episode} have shape {table.shape}, expected "
            f"{sequence.tables.shape[1:]}"
        )
    bad = np.argwhere(~((table >= sequence.low) & (table <= sequence.high)))
    if bad.size:
        place = tuple(int(i) for i in bad[0])
        raise ModelError(
            f"the adversary's {channel} of episode {episode} are {table[place]:.6g} at {place}, "
            f"expected numbers in [{sequence.low:.0f}, {sequence.high:.0f}]"
        )
    if table[..., -1, :].any():
        raise ModelError(
            f"the adversary's {channel} of episode {episode} are not 0 in the last state, x_L, "
            "where nothing is played"
        )
    return np.ascontiguousarray(table)


def mean(sequence: TableSequence) -> FloatArray:
    """Exact expectation of a stochastic sequence."""
    if not sequence.stochastic:
        raise ModelError(f"a {sequence.kind} sequence has no law, only a hindsight average")
    if sequence.kind == "iid":
        return sequence.tables[0]
    assert sequence.probabilities is not None
    return np.tensordot(sequence.probabilities, sequence.tables, axes=1)


def hindsight_average(sequence: TableSequence, episodes: int, seed: int) -> FloatArray:
    """Exact average of the first `episodes` tables, noise included (memory: one block)."""
    if sequence.noise > 0.0:
        total = np.zeros(sequence.tables.shape[1:])
        for first in range(1, episodes + 1, BLOCK):
            count = min(BLOCK, episodes - first + 1)
            total += block(sequence, first, count, seed).sum(axis=0)
        return total / episodes
    share = np.zeros(len(sequence.tables))
    for first in range(1, episodes + 1, 1 << 16):
        count = min(1 << 16, episodes - first + 1)
        share += weights(sequence, first, count, seed).sum(axis=0)
    return np.tensordot(share / episodes, sequence.tables, axes=1)


def corner_tables(sequence: TableSequence, episodes: int, seed: int) -> IntArray:
    """Base tables that are played, in full, within `episodes`: every other one lies between them.

    Only for sequences without noise.
    """
    seen = np.zeros(len(sequence.tables), dtype=bool)
    for first in range(1, episodes + 1, 1 << 16):
        count = min(1 << 16, episodes - first + 1)
        seen |= (weights(sequence, first, count, seed) == 1.0).any(axis=0)
        if seen.all():
            break
    return np.flatnonzero(seen)
