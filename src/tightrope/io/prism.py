"""Explicit models of PRISM and Storm: ``.tra`` with ``.lab``, ``.srew`` and ``.trew`` beside it.

``.tra``: lines ``state choice target probability [action]``, or ``state target probability`` for a
chain, in any order, after PRISM's line of counts or Storm's line ``mdp`` or ``dtmc``. ``.lab``: in
PRISM's or Storm's form; the start state is the one labelled ``init``. ``.srew``: ``state reward``,
earned at each step in the state. ``.trew``: ``state choice target reward``. Rewards are read from
the files with the model's name unless `rewards` names others; a cost that has a capacity from
``MODEL.NAME.srew`` and ``.trew``, unless `costs` names others. What is not listed is zero. Choices
are actions by their number; a state that no line leaves is a deadlock.
"""

from __future__ import annotations

import glob
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tightrope.errors import ModelError, ModelWarning
from tightrope.io.entries import Entries, assemble
from tightrope.io.files import MAX_BYTES, decode, read_bytes, read_text, write_whole
from tightrope.model.mdp import FiniteMDP
from tightrope.types import FloatArray, IntArray

WHOLE = re.compile(r"\d{1,15}")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
Files = str | Path | Sequence[str | Path]


def load_prism(
    path: str | Path,
    *,
    labels: str | Path | None = None,
    rewards: Any = None,
    costs: Mapping[str, Files] | None = None,
    deadlock: str = "error",
    max_bytes: int = MAX_BYTES,
    **fields: Any,
) -> FiniteMDP:
    """Read an explicit model.

    Parameters
    ----------
    path : the ``.tra`` file
    labels : the ``.lab`` file; by default the one with the model's name, if there is one
    rewards : one or more ``.srew`` and ``.trew`` files, which add up, or an (S, A) array
        By default the files with the model's name.
    costs : mapping from the name of a cost to its file or files
        By default the files ``MODEL.NAME.srew`` and ``.trew`` of the names in `capacities`.
    deadlock : 'error' or 'absorb'
        What to do with a state without choices.
    max_bytes : int
        The most that each file may unpack to.
    fields
        Keywords of `FiniteMDP` that the files do not give: criterion, capacities, initial.

    Raises
    ------
    ModelError
        With the file, the line, state and action, and how to mend it.
    """
    path = Path(path)
    if "criterion" not in fields:
        raise ModelError(
            f"{path}: the format does not say the criterion; load(path, criterion='total'), or "
            "'average', 'discounted' with discount=, 'episodic' with horizon="
        )
    reader = _Reader(path, max_bytes)
    stem = str(path)[: -len("".join(path.suffixes[-2:] if path.suffix == ".gz" else path.suffix))]
    if costs is None:
        costs = _cost_files(path, stem, fields.get("capacities"))
    parts = assemble(reader.entries, reader.num_states, reader.num_actions, deadlock=deadlock)
    found = dict(parts.fields)
    if rewards is None:
        rewards = [stem + end for end in (".srew", ".trew") if Path(stem + end).exists()]
        if not rewards and "rewards" not in fields:
            raise ModelError(
                f"{path}: no {stem}.srew or .trew; say rewards= a file, or an (S, A) array of zeros"
            )
    if isinstance(rewards, np.ndarray):
        found["rewards"] = rewards
    elif rewards:
        found |= parts.rewards(reader.payments(rewards))
    found |= parts.costs({name: reader.payments(files) for name, files in costs.items()})
    if fields.get("initial") is None:
        if labels is None and Path(stem + ".lab").exists():
            labels = stem + ".lab"
        if labels is None:
            raise ModelError(f"{path}: no {stem}.lab; say labels= its file, or initial=")
        found["initial"] = reader.start_law(labels)
    names = reader.action_names()
    if names is not None:
        fields.setdefault("action_names", names)
    try:
        return FiniteMDP(**{**found, **fields})
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _cost_files(path: Path, stem: str, capacities: Any) -> dict[str, Files]:
    """Files beside the model of the costs that capacities name; a note of those left out."""
    named = list(capacities) if isinstance(capacities, Mapping) else []
    found: dict[str, Files] = {}
    for name in named:
        files = [f"{stem}.{name}{end}" for end in (".srew", ".trew")]
        found[name] = [file for file in files if Path(file).exists()]
        if not found[name]:
            raise ModelError(f"{path}: no {' or '.join(files)} of the cost '{name}'; say costs=")
    beside = path.parent.glob(glob.escape(Path(stem).name) + ".*.[st]rew")
    left = sorted(file.name for file in beside if not named)
    if left:
        warnings.warn(
            f"{path}: the files beside it with a name of their own ({', '.join(left)}) are not "
            "read; they are costs if capacities name them",
            ModelWarning,
            stacklevel=4,
        )
    return found


def _lines(
    path: str | Path, max_bytes: int, comments: bool = True
) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_text(path, max_bytes).splitlines(), 1):
        if not (comments and line.lstrip().startswith("#")):
            words = line.split()
            if words:
                yield number, words


def _whole(place: str, word: str, what: str, limit: int | None = None) -> int:
    if not WHOLE.fullmatch(word):
        raise ModelError(f"{place}: {what} is '{word[:40]}', expected a whole number from 0")
    if limit is not None and int(word) >= limit:
        raise ModelError(f"{place}: {what} is {word}, expected 0 to {limit - 1}")
    return int(word)


def _number(place: str, word: str, what: str) -> float:
    if not NUMBER.fullmatch(word) or not np.isfinite(float(word)):
        raise ModelError(f"{place}: {what} is '{word[:40]}', expected a finite number")
    return float(word)


def _plain_columns(raw: bytes, width: int, skip: int = 1) -> list[np.ndarray] | None:
    """Columns of a file whose lines are `width` numbers with one blank between, else None.

    This is the fast way; what it cannot read is read again word by word, which locates faults.
    """
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    names = [str(i) for i in range(width)]
    types = dict.fromkeys(names[:-1], pa.int64()) | {names[-1]: pa.float64()}
    offset = raw.find(b"\n") + 1 if skip else 0
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(pa.py_buffer(raw).slice(offset)),
            read_options=arrow_csv.ReadOptions(column_names=names),
            parse_options=arrow_csv.ParseOptions(delimiter=" ", quote_char=False),
            convert_options=arrow_csv.ConvertOptions(column_types=types, null_values=[]),
        )
    except pa.ArrowInvalid:
        return None
    lines = raw.count(b"\n", offset) + (not raw.endswith(b"\n"))
    columns = [table.column(name).to_numpy() for name in names]
    whole = table.num_rows == lines and not any((column < 0).any() for column in columns[:-1])
    return columns if whole and table.num_rows and np.isfinite(columns[-1]).all() else None


def _check_numbers(
    where: Callable[[int], str], states: IntArray, actions: IntArray, nexts: IntArray
) -> None:
    """Numbers count from 0 without gaps, so none can exceed what the lines could name."""
    limit = 2 * states.size
    for what, numbers in (("state", states), ("choice", actions), ("target", nexts)):
        bad = np.flatnonzero(numbers >= limit)
        if bad.size:
            raise ModelError(
                f"{where(int(bad[0]))}: {what} is {numbers[bad[0]]}, expected 0 to {limit - 1}"
            )


class _Reader:
    """The transitions of a ``.tra`` file, to which the other files refer."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path, self.max_bytes = path, max_bytes
        raw = read_bytes(path, max_bytes)
        self.counts: list[int] = []
        self.words: dict[tuple[int, int], tuple[str, int]] = {}  # action name, line
        self._read_head(decode(path, raw.split(b"\n", 1)[0]).split())
        self.width = 3 if self.chain else 4
        fast = _plain_columns(raw, self.width)
        if fast is None:
            body = list(_lines(path, max_bytes))[1:]
            if not body:
                raise ModelError(f"{path}: holds no transitions")
            columns = [np.array(column) for column in self._columns(body)]
            numbers = [number for number, _ in body]
        else:
            columns = fast if self.width == 4 else [fast[0], 0 * fast[0], *fast[1:]]
            numbers = list(range(2, 2 + fast[0].size))
        states, actions, nexts, data = columns
        where = self._place_of(numbers)
        _check_numbers(where, states, actions, nexts)
        self.num_states = int(max(states.max(), nexts.max())) + 1
        self.num_actions = int(actions.max()) + 1
        self._check_counts(states, actions)
        self.entries = Entries(
            states=states, actions=actions, nexts=nexts, probabilities=data, where=where
        )
        self.sorted: tuple[IntArray, IntArray] | None = None

    def _place_of(self, numbers: Sequence[int]) -> Callable[[int], str]:
        return lambda i: f"{self.path}, line {numbers[i]}" if i >= 0 else str(self.path)

    def _read_head(self, head: list[str]) -> None:
        place = f"{self.path}, line 1"
        if not head:
            raise ModelError(f"{self.path}: is empty, or its first line is")
        if head[0].isalpha():
            if head[0].lower() not in ("mdp", "dtmc"):
                raise ModelError(f"{place}: a model of type '{head[0]}', expected mdp or dtmc")
            self.chain = head[0].lower() == "dtmc"
            return
        if len(head) not in (2, 3):
            raise ModelError(
                f"{place}: expected the counts of states, choices and transitions (PRISM) or 'mdp' "
                "(Storm)"
            )
        self.counts = [_whole(place, word, "a count") for word in head]
        self.chain = len(head) == 2

    def _columns(self, body: list[tuple[int, list[str]]]) -> list[list[Any]]:
        columns: list[list[Any]] = [[], [], [], []]
        for number, words in body:
            place = f"{self.path}, line {number}"
            if len(words) not in (self.width, self.width + (not self.chain)):
                what = (
                    "state target probability" if self.chain else "state choice target probability"
                )
                raise ModelError(f"{place}: {len(words)} columns, expected '{what}'")
            state = _whole(place, words[0], "state")
            action = 0 if self.chain else _whole(place, words[1], "choice")
            columns[0].append(state)
            columns[1].append(action)
            columns[2].append(_whole(place, words[self.width - 2], "target"))
            columns[3].append(_number(place, words[self.width - 1], "probability"))
            if len(words) > self.width:
                word, line = self.words.setdefault((state, action), (words[-1], number))
                if word != words[-1]:
                    raise ModelError(
                        f"{place}: (state {state}, choice {action}) is called '{words[-1]}' but "
                        f"'{word}' on line {line}"
                    )
        return columns

    def _check_counts(self, states: IntArray, actions: IntArray) -> None:
        if not self.counts:
            return
        names = ("states", "choices", "transitions")
        found = (
            self.num_states,
            np.unique(states * self.num_actions + actions).size,
            states.size,
        )
        if self.chain:
            names, found = (names[0], names[2]), (found[0], found[2])  # type: ignore[assignment]
        for name, said, there in zip(names, self.counts, found):
            if said != there:
                raise ModelError(
                    f"{self.path}: line 1 says {said} {name}, the file holds {there}; is it cut?"
                )

    def payments(self, files: Files) -> FloatArray:
        """(n,) what the reward files pay for each transition of the ``.tra`` file."""
        out = np.zeros(self.entries.states.size)
        for file in [files] if isinstance(files, str | Path) else files:
            name = str(file).lower().removesuffix(".gz")
            if name.endswith(".srew"):
                out += self._state_rewards(file)[self.entries.states]
            elif name.endswith(".trew"):
                self._add_transition_rewards(file, out)
            else:
                raise ModelError(f"{file}: a reward file's name ends in .srew or .trew")
        return out

    def _state_rewards(self, file: str | Path) -> FloatArray:
        out = np.zeros(self.num_states)
        seen: dict[int, int] = {}
        for number, words in _lines(file, self.max_bytes):
            place = f"{file}, line {number}"
            if len(words) != 2:
                raise ModelError(f"{place}: {len(words)} columns, expected 'state reward'")
            if not seen and words[0] == str(self.num_states):  # PRISM's line of counts
                continue
            state = _whole(place, words[0], "state", self.num_states)
            if state in seen:
                raise ModelError(
                    f"{place}: state {state} has a reward already (line {seen[state]})"
                )
            seen[state] = number
            out[state] = _number(place, words[1], "reward")
        return out

    def _add_transition_rewards(self, file: str | Path, out: FloatArray) -> None:
        raw = read_bytes(file, self.max_bytes)
        head = raw.split(b"\n", 1)[0].split()
        skip = int(len(head) == self.width - 1)  # PRISM's line of counts
        fast = _plain_columns(raw, self.width, skip)
        if fast is None:
            lines = [
                (number, words)
                for number, words in _lines(file, self.max_bytes)
                if number > 1 or not skip
            ]
            columns = [np.array(column) for column in self._reward_columns(file, lines)]
            numbers = [number for number, _ in lines]
        else:
            columns, numbers = fast, list(range(1 + skip, 1 + skip + fast[0].size))
        if not numbers:
            return
        states, nexts, values = columns[0], columns[-2], columns[-1]
        actions = np.zeros_like(states) if self.chain else columns[1]

        def where(i: int) -> str:
            choice = f"(state {states[i]}, choice {actions[i]})"
            return f"{file}, line {numbers[i]}: {choice} to state {nexts[i]}"

        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise ModelError(f"{where(int(bad[0]))}: reward is '{values[bad[0]]}', not finite")
        i, found = self._find(states, actions, nexts)
        if not found.all():
            raise ModelError(f"{where(int(np.flatnonzero(~found)[0]))} is no transition")
        order = np.argsort(i, kind="stable")
        twice = np.flatnonzero(np.diff(i[order]) == 0)
        if twice.size:
            first, second = (int(order[k]) for k in (twice[0], twice[0] + 1))
            raise ModelError(f"{where(second)} has a reward already (line {numbers[first]})")
        out[i] += values

    def _reward_columns(
        self, file: str | Path, lines: list[tuple[int, list[str]]]
    ) -> list[list[Any]]:
        columns: list[list[Any]] = [[] for _ in range(self.width)]
        for number, words in lines:
            place = f"{file}, line {number}"
            if len(words) != self.width:
                what = "state target" if self.chain else "state choice target"
                raise ModelError(f"{place}: {len(words)} columns, expected '{what} reward'")
            names = ("state", "target") if self.chain else ("state", "choice", "target")
            for column, word, name in zip(columns, words, names):
                column.append(_whole(place, word, name))
            columns[-1].append(_number(place, words[-1], "reward"))
        return columns

    def _find(
        self, states: IntArray, actions: IntArray, nexts: IntArray
    ) -> tuple[IntArray, np.ndarray]:
        """Entry of the ``.tra`` file for each triple, and whether there is one."""
        limits = (self.num_states, self.num_actions, self.num_states)
        if self.sorted is None:
            entries = self.entries
            key = (entries.states * limits[1] + entries.actions) * limits[2] + entries.nexts
            sorting = np.argsort(key, kind="stable")
            self.sorted = key[sorting], sorting
        keys, order = self.sorted
        inside = (states < limits[0]) & (actions < limits[1]) & (nexts < limits[2])
        wanted = np.where(inside, (states * limits[1] + actions) * limits[2] + nexts, -1)
        at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        return order[at], keys[at] == wanted

    def start_law(self, file: str | Path) -> FloatArray:
        """All mass on the state labelled ``init``."""
        found = [
            state
            for state, labels in read_labels(file, self.num_states, self.max_bytes)
            if "init" in labels
        ]
        if len(found) != 1:
            raise ModelError(
                f"{file}: {len(found)} states are labelled 'init', expected one; say initial=(S,) "
                "probabilities"
            )
        return np.eye(1, self.num_states, found[0])[0]

    def action_names(self) -> list[str] | None:
        """Names of the choices, where the same number has the same name in every state."""
        names: dict[int, str] = {}
        for (_, action), (word, _) in self.words.items():
            if names.setdefault(action, word) != word:
                return None
        if len(names) < self.num_actions or len(set(names.values())) < self.num_actions:
            return None
        return [names[action] for action in range(self.num_actions)]


def read_labels(
    file: str | Path, num_states: int, max_bytes: int = MAX_BYTES
) -> list[tuple[int, set[str]]]:
    """(state, labels) of a ``.lab`` file in PRISM's or Storm's form."""
    lines = list(_lines(file, max_bytes, comments=False))
    storm = bool(lines) and lines[0][1][0].upper() == "#DECLARATION"
    known: dict[str, str] = {}
    if storm:
        ends = [k for k, (_, words) in enumerate(lines) if words[0].upper() == "#END"]
        if not ends:
            raise ModelError(f"{file}: '#DECLARATION' without '#END'; is the file cut?")
        known = {word: word for _, words in lines[1 : ends[0]] for word in words}
        lines = lines[ends[0] + 1 :]
    elif lines:
        number, words = lines[0]
        pairs = re.findall(r'(\d+)="([^"]*)"', " ".join(words))
        if not pairs:
            raise ModelError(
                f"{file}, line {number}: expected '#DECLARATION' (Storm) or 0=\"init\" ... (PRISM)"
            )
        known, lines = dict(pairs), lines[1:]
    out, seen = [], set()
    for number, words in lines:
        place = f"{file}, line {number}"
        state = _whole(place, words[0].removesuffix(":"), "state", num_states)
        unknown = [word for word in words[1:] if word not in known]
        if unknown:
            raise ModelError(
                f"{place}: label '{unknown[0]}' was not declared; known: {', '.join(known)}"
            )
        if state in seen:
            raise ModelError(f"{place}: state {state} has a line already")
        seen.add(state)
        out.append((state, {known[word] for word in words[1:]}))
    return out


def save_prism(model: FiniteMDP, path: str | Path) -> None:
    """Write ``.tra``, ``.lab`` and ``.trew`` files; a cost gets ``stem.NAME.trew``.

    A `ModelWarning` names what the format does not hold and `load_prism` must be told (criterion,
    capacities, names). ModelError if transitions, start or payments could not be told back.
    """
    stem = str(path)[: -len(Path(path).suffix)]
    _check_format_holds(model)
    rows = np.repeat(np.arange(model.indptr.size - 1), np.diff(model.indptr))
    states, actions = np.divmod(rows, model.num_actions)
    keys = list(zip(*(column.tolist() for column in (states, actions, model.indices))))
    head = f"{model.num_states} {int(model.available.sum())} {rows.size}\n"

    def put(file: str, values: FloatArray, zeros: bool) -> None:
        lines = (
            f"{s} {a} {t} {value!r}\n"
            for (s, a, t), value in zip(keys, values.tolist())
            if zeros or value
        )
        text = head + "".join(lines)
        write_whole(file, lambda out: _write(out, text))

    def column(values: FloatArray | None, means: FloatArray) -> FloatArray:
        return means.reshape(-1)[rows] if values is None else values

    put(str(path), model.data, True)
    put(f"{stem}.trew", column(model.rewards_next, model.rewards), False)
    for i, name in enumerate(model.cost_names):
        nexts = None if model.costs_next is None else model.costs_next[i]
        put(f"{stem}.{name}.trew", column(nexts, model.costs[i]), False)
    start = int(model.initial.argmax())
    write_whole(f"{stem}.lab", lambda out: _write(out, f'0="init"\n{start}: 0\n'))
    untold = [f"the criterion {model.criterion}"]
    untold += ["capacities, and the names of the costs' files"] if model.num_costs else []
    untold += ["names"] if model.state_names or model.action_names else []
    floors = [name for name, sense in zip(model.cost_names, model.senses) if sense == ">="]
    untold += [f"that {', '.join(floors)} must be at least the capacity"] if floors else []
    nexts = model.rewards_next
    if nexts is not None and (nexts == model.rewards.reshape(-1)[rows]).all():
        untold += ["that its rewards, equal to their means, are realised ones"]
    warnings.warn(f"{path} does not hold {'; '.join(untold)}", ModelWarning, stacklevel=3)


def _write(out: BinaryIO, text: str) -> None:
    out.write(text.encode())


def _check_format_holds(model: FiniteMDP) -> None:
    lost = []
    if model.staged:
        lost.append("tables that differ by step")
    if np.count_nonzero(model.initial) != 1:
        lost.append("a start law with more than one state")
    if (np.diff(model.available.astype(int), axis=1) > 0).any():
        lost.append("choices that are not numbered from 0 without gaps")
    bad = [name for name in model.cost_names if not re.fullmatch(r"[\w-]+", name)]
    if bad:
        lost.append(f"a file for the cost '{bad[0]}' (rename it)")
    if lost:
        raise ModelError(f"an explicit .tra model cannot hold {'; '.join(lost)}")
