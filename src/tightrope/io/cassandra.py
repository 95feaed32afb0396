"""Cassandra's text format for MDPs and POMDPs; a POMDP is read as its fully observed MDP.

The format: https://www.pomdp.org/code/pomdp-file-spec.html. Statements ``T:``, ``O:`` and ``R:``
take names or numbers (from 0) and the wildcard ``*``; a later one overrides an earlier one;
``values: cost`` means that the numbers are to be minimised, so rewards are their negatives. Without
``start:`` the start law is uniform, as the format says. A reward that depends on the observation
becomes its mean under ``O:``. The criterion is discounted with the file's ``discount:``.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tightrope.errors import ModelError, ModelWarning
from tightrope.io.entries import Entries, assemble
from tightrope.io.files import MAX_BYTES, read_text, write_whole
from tightrope.model.mdp import FiniteMDP
from tightrope.types import Discounted, FloatArray

MAX_ENTRIES = 5 * 10**7
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_\-]*")
KEYWORDS = ("discount", "values", "states", "actions", "observations", "start", "T", "O", "R")
WORDS = ("uniform", "identity", "reset")


def load_cassandra(path: str | Path, *, max_bytes: int = MAX_BYTES, **fields: Any) -> FiniteMDP:
    """Read a ``.mdp`` or ``.pomdp`` file.

    Parameters
    ----------
    max_bytes : int
        The most that the file may unpack to.
    fields
        Keywords of `FiniteMDP` that the file does not give (costs, capacities) or that replace what
        it says (criterion, discount, initial).

    Raises
    ------
    ModelError
        With the file, the line, state and action, and how to mend it.
    """
    parser = _Parser(path, read_text(path, max_bytes))
    parser.run()
    if "criterion" not in fields:
        discount = fields.pop("discount", parser.discount)
        if discount is None:
            raise ModelError(
                f"{path}: no 'discount:' in the file; say load(path, discount=0.95) or criterion="
            )
        fields |= {"criterion": "discounted", "discount": discount}
    found = parser.fields()
    try:
        return FiniteMDP(**{**found, **fields})
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


class _Parser:
    """One pass over the words of the file, each with its line."""

    def __init__(self, path: str | Path, text: str) -> None:
        self.path = path
        self.words: list[tuple[str, int]] = [
            (word, number)
            for number, line in enumerate(text.splitlines(), 1)
            for word in re.findall(r":|[^\s:]+", line.partition("#")[0])
        ]
        self.at = 0
        self.seen: dict[str, int] = {}  # line of each preamble key
        self.discount: float | None = None
        self.sign = 1.0
        self.names: dict[str, list[str] | None] = {}
        self.places: dict[str, dict[str, int]] = {}
        self.sizes: dict[str, int] = {}
        self.start: FloatArray | None = None
        self.moves: FloatArray | None = None  # (A, S, S)
        self.views: FloatArray | None = None  # (A, S, O)
        self.pays: FloatArray | None = None  # (A, S, S), with the observation last if it matters
        self.last_line: np.ndarray | None = None  # (A, S) line of the last T

    # ------------------------------------------------------------- words

    def fail(self, message: str, line: int | None = None) -> ModelError:
        if line is None:
            line = self.words[min(self.at, len(self.words) - 1)][1] if self.words else 1
        return ModelError(f"{self.path}, line {line}: {message}")

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.words[at][0] if at < len(self.words) else ""

    def take(self, expected: str | None = None) -> str:
        word = self.peek()
        if not word or (expected is not None and word != expected):
            raise self.fail(f"expected '{expected or 'more'}', got '{word or 'the end'}'")
        self.at += 1
        return word

    def number(self) -> float:
        word = self.peek()
        if not NUMBER.fullmatch(word):
            raise self.fail(f"expected a number, got '{word or 'the end'}'")
        self.at += 1
        return float(word)

    def numbers(self, count: int, what: str) -> FloatArray:
        first = self.at
        while self.at < len(self.words) and NUMBER.fullmatch(self.words[self.at][0]):
            self.at += 1
        found = self.at - first
        if found != count:
            line = self.words[first - 1][1]
            raise self.fail(f"{what} takes {count} numbers, got {found}", line)
        values = np.array([float(word) for word, _ in self.words[first : self.at]])
        if not np.isfinite(values).all():
            raise self.fail(f"{what} holds a number too large for a float", self.words[first][1])
        return values

    def starts_statement(self) -> bool:
        following = self.peek(1)
        return self.peek() in KEYWORDS and (
            following == ":" or (self.peek() == "start" and following in ("include", "exclude"))
        )

    # -------------------------------------------------------- statements

    def run(self) -> None:
        while self.at < len(self.words):
            if not self.starts_statement():
                raise self.fail(
                    f"expected a statement ({', '.join(KEYWORDS)}), got '{self.peek()}'"
                )
            line = self.words[self.at][1]
            keyword = self.take()
            if keyword in "TOR":
                self.take(":")
                {"T": self.move, "O": self.view, "R": self.pay}[keyword](line)
                continue
            if keyword in self.seen:
                raise self.fail(
                    f"'{keyword}:' is there twice (first on line {self.seen[keyword]})", line
                )
            self.seen[keyword] = line
            if keyword == "start":
                self.read_start(line)
                continue
            self.take(":")
            if keyword == "discount":
                self.discount = self.number()
            elif keyword == "values":
                word = self.take()
                if word not in ("reward", "cost"):
                    raise self.fail(f"values: is 'reward' or 'cost', got '{word}'", line)
                self.sign = 1.0 if word == "reward" else -1.0
            else:
                self.read_names(keyword, line)
        for keyword in ("states", "actions"):
            if keyword not in self.sizes:
                raise self.fail(f"'{keyword}:' is missing")
        if self.moves is None:
            raise self.fail("there are no transitions (T: statements)")

    def read_names(self, keyword: str, line: int) -> None:
        first = self.at
        while self.at < len(self.words) and not self.starts_statement():
            self.at += 1
        words = [word for word, _ in self.words[first : self.at]]
        if len(words) == 1 and re.fullmatch(r"\d{1,9}", words[0]):
            self.names[keyword], self.sizes[keyword] = None, int(words[0])
        else:
            place: dict[str, int] = {}
            for word, at in self.words[first : self.at]:
                if not NAME.fullmatch(word) or word in WORDS:
                    raise self.fail(f"'{word}' is no name ({keyword}: a number, or names)", at)
                if word in place:
                    raise self.fail(f"'{word}' is there twice among the {keyword}", at)
                place[word] = len(place)
            self.names[keyword], self.sizes[keyword] = words, len(words)
            self.places[keyword] = place
        if self.sizes[keyword] < 1:
            raise self.fail(f"'{keyword}:' needs at least one", line)
        sizes = [self.sizes.get(name, 1) for name in ("actions", "states", "states")]
        self.check_entries(sizes, line)

    def size(self, kind: str, line: int) -> int:
        if kind not in self.sizes:
            raise self.fail(f"'{kind}:' must come before this", line)
        return self.sizes[kind]

    def pick(self, kind: str, line: int) -> slice:
        """What a name, a number or ``*`` stands for."""
        size = self.size(kind, line)
        word = self.take()
        if word == "*":
            return slice(0, size)
        place = self.places.get(kind, {})
        if word in place:
            i = place[word]
        elif re.fullmatch(r"\d{1,9}", word) and int(word) < size:
            i = int(word)
        else:
            self.at -= 1
            near = difflib.get_close_matches(word, place, n=1, cutoff=0.5)
            hint = f"; did you mean '{near[0]}'?" if near else f", which are 0 to {size - 1}"
            raise self.fail(f"'{word}' is not among the {kind}{hint}")
        return slice(i, i + 1)

    def picks(self, kinds: Sequence[str], line: int) -> list[slice]:
        """The parts ``x : y : z`` of a statement."""
        out = [self.pick(kinds[0], line)]
        for kind in kinds[1:]:
            if self.peek() != ":":
                break
            self.take(":")
            out.append(self.pick(kind, line))
        return out

    def values(self, sizes: Sequence[int], what: str, words: Sequence[str] = ()) -> FloatArray:
        """The numbers of a statement, or what ``uniform``, ``identity`` and ``reset`` stand for."""
        word = self.peek()
        if word in words:
            self.take()
            if word == "uniform":
                return np.full(sizes, 1.0 / sizes[-1])
            return np.eye(sizes[0]) if word == "identity" else self.start_law()
        return self.numbers(int(np.prod(sizes)), what).reshape(sizes)

    def move(self, line: int) -> None:
        num_states, num_actions = self.size("states", line), self.size("actions", line)
        if self.moves is None:
            self.moves = np.zeros((num_actions, num_states, num_states))
            self.last_line = np.zeros((num_actions, num_states), dtype=int)
        where = self.picks(("actions", "states", "states"), line)
        words = {1: ("uniform", "identity"), 2: ("uniform", "reset")}.get(len(where), ())
        rest = (num_states, num_states)[len(where) - 1 :]
        self.moves[tuple(where)] = self.values(rest, "T:", words)
        assert self.last_line is not None
        self.last_line[tuple(where[:2])] = line

    def view(self, line: int) -> None:
        shape = tuple(self.size(kind, line) for kind in ("actions", "states", "observations"))
        if self.views is None:
            self.check_entries(shape, line)
            self.views = np.zeros(shape)
        where = self.picks(("actions", "states", "observations"), line)
        words = ("uniform",) if len(where) < 3 else ()
        self.views[tuple(where)] = self.values(shape[len(where) :], "O:", words)

    def pay(self, line: int) -> None:
        kinds = ["actions", "states", "states"]
        if "observations" in self.sizes:
            kinds.append("observations")
        shape = tuple(self.size(kind, line) for kind in kinds)
        if self.pays is None:
            self.pays = np.zeros(shape[:3])
        where = self.picks(kinds, line)
        if len(where) < len(kinds) - 2:
            raise self.fail(f"R: needs at least {len(kinds) - 2} parts", line)
        if len(where) == len(kinds) == 3 and self.peek() == ":" and self.peek(1) == "*":
            self.at += 2  # an MDP has no observations, but some files keep their place
        values = self.sign * self.values(shape[len(where) :], "R:")
        if len(where) == 4 and where[3] == slice(0, shape[3]) and self.pays.ndim == 3:
            where = where[:3]
        elif len(kinds) == 4 and self.pays.ndim == 3:
            self.check_entries(shape, line)
            self.pays = np.repeat(self.pays[..., None], shape[3], axis=3)
        self.pays[tuple(where)] = values

    def check_entries(self, shape: Sequence[int], line: int) -> None:
        if np.prod(np.array(shape, dtype=float)) > MAX_ENTRIES:
            raise self.fail(
                f"tables of shape {tuple(shape)} have more than {MAX_ENTRIES:,} entries; use .npz, "
                ".csv or .tra for models of this size",
                line,
            )

    def read_start(self, line: int) -> None:
        size = self.size("states", line)
        word = self.take()
        if word in ("include", "exclude"):
            self.take(":")
            chosen = np.zeros(size, dtype=bool)
            while self.at < len(self.words) and not self.starts_statement():
                chosen[self.pick("states", line)] = True
            chosen = chosen if word == "include" else ~chosen
            if not chosen.any():
                raise self.fail(f"start {word}: leaves no state", line)
            self.start = chosen / chosen.sum()
        elif self.peek() == "uniform":
            self.take()
        elif NUMBER.fullmatch(self.peek()) and (size == 1 or NUMBER.fullmatch(self.peek(1))):
            self.start = self.numbers(size, "start:")
        else:
            self.start = np.zeros(size)
            self.start[self.pick("states", line)] = 1.0

    # ------------------------------------------------------------ result

    def start_law(self) -> FloatArray:
        size = self.sizes["states"]
        return np.full(size, 1.0 / size) if self.start is None else self.start

    def fields(self) -> dict[str, Any]:
        assert self.moves is not None
        assert self.last_line is not None
        num_actions, num_states = self.moves.shape[:2]
        actions, states, nexts = np.nonzero(self.moves)
        names = self.names["states"], self.names["actions"]
        lines = self.last_line
        for action, state in np.argwhere(~(self.moves != 0).any(axis=2))[:1]:
            where = f"line {lines[action, state]}" if lines[action, state] else "no T: line"
            raise ModelError(
                f"{self.path}: (state {_label(names[0], state)}, action "
                f"{_label(names[1], action)}) has no transitions ({where}); expected "
                "probabilities that sum to 1"
            )
        parts = assemble(
            Entries(
                states=states,
                actions=actions,
                nexts=nexts,
                probabilities=self.moves[actions, states, nexts],
                where=lambda i: (
                    f"{self.path}, line {lines[actions[i], states[i]]}"
                    if i >= 0
                    else str(self.path)
                ),
                state_name=lambda s: _label(names[0], s),
                action_name=lambda a: _label(names[1], a),
            ),
            num_states,
            num_actions,
        )
        pays = self.mean_pays()[actions, states, nexts]
        return {
            **parts.fields,
            **parts.rewards(pays),
            "initial": self.start_law(),
            "state_names": names[0],
            "action_names": names[1],
        }

    def mean_pays(self) -> FloatArray:
        """(A, S, S) rewards, as means over the observations where they depend on those."""
        if self.pays is None:
            raise self.fail("there are no rewards (R: statements)")
        if self.pays.ndim == 3:
            return self.pays
        if self.views is None or (np.abs(self.views.sum(axis=2) - 1) > 1e-5).any():
            raise self.fail("rewards depend on the observation: O: rows that sum to 1 are needed")
        return np.einsum("asto,ato->ast", self.pays, self.views)


def _label(names: Sequence[str] | None, i: int) -> str:
    return f"{i} '{names[i]}'" if names else str(i)


def save_cassandra(model: FiniteMDP, path: str | Path) -> None:
    """Write a discounted model without costs; `load_cassandra` reads the same model.

    Names that the format cannot hold are left out, which a `ModelWarning` says. ModelError for
    anything else that it cannot hold.
    """
    discount = _check_format_holds(model)
    states, actions = _names(model, path, "state"), _names(model, path, "action")
    lines = [
        f"discount: {discount!r}",
        "values: reward",
        f"states: {states or model.num_states}",
        f"actions: {actions or model.num_actions}",
        f"start: {' '.join(map(repr, model.initial.tolist()))}",
    ]
    rows = np.repeat(np.arange(model.indptr.size - 1), np.diff(model.indptr))
    pairs = (rows % model.num_actions, rows // model.num_actions, model.indices)
    for a, s, t, p in zip(*(v.tolist() for v in (*pairs, model.data))):
        lines.append(f"T: {a} : {s} : {t} {p!r}")
    if model.rewards_next is None:
        for (s, a), value in np.ndenumerate(model.rewards):
            lines.append(f"R: {a} : {s} : * {float(value)!r}")
    else:
        for a, s, t, value in zip(*(v.tolist() for v in (*pairs, model.rewards_next))):
            lines.append(f"R: {a} : {s} : {t} {value!r}")

    def write(file: BinaryIO) -> None:
        file.write(("\n".join(lines) + "\n").encode())

    write_whole(path, write)


def _names(model: FiniteMDP, path: str | Path, kind: str) -> str:
    """The names of states or actions as the file has them; "" if it cannot hold them."""
    names = model.state_names if kind == "state" else model.action_names
    bad = [n for n in names or () if not NAME.fullmatch(n) or n in WORDS or n in KEYWORDS]
    if bad:
        warnings.warn(
            f"{path} does not hold the {kind}s' names (such as '{bad[0]}', which is no name "
            "there): it numbers them from 0",
            ModelWarning,
            stacklevel=4,
        )
    return "" if bad else " ".join(names or ())


def _check_format_holds(model: FiniteMDP) -> float:
    """The discount, or ModelError that names what would be lost."""
    lost = []
    if not isinstance(model.criterion, Discounted):
        lost.append(f"the criterion {model.criterion}")
    if model.num_costs:
        lost.append(f"costs ({', '.join(model.cost_names)})")
    if model.staged:
        lost.append("tables that differ by step")
    if not model.available.all():
        lost.append("actions that do not exist in some state")
    rows = np.repeat(np.arange(model.indptr.size - 1), np.diff(model.indptr))
    nexts = model.rewards_next
    if nexts is not None and not lost and (nexts == model.rewards.reshape(-1)[rows]).all():
        lost.append("realised rewards that equal their means")
    if lost:
        raise ModelError(f"Cassandra's format cannot hold {'; '.join(lost)}")
    assert isinstance(model.criterion, Discounted)
    return model.criterion.discount
