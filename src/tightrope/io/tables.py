"""CSV tables: one line a transition, with its probability, reward and named costs.

Columns in any order, separated by commas, semicolons or tabs:

``idstatefrom, idaction, idstateto, probability, reward``
    or ``state, action, next_state`` for the first three. Numbers count from 0; where a column holds
    words, they are names, numbered as they appear. ``reward`` may depend on the next state.
``cost``, ``cost:NAME``
    Costs by name; a column with another name is a cost if `cost_columns` says so.
``reward_next``, ``cost_next:NAME``
    Realised values, where ``reward`` and ``cost:NAME`` are means.

Lines before the header that begin with ``#`` are comments, but for ``# tightrope: {...}``: a JSON
object with what the table cannot say (criterion, horizon, discount, capacities, senses, initial,
names). Arguments of `load_csv` say the same and win.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tightrope.errors import ModelError
from tightrope.io.arrays import check_keys, field_value, parse_json
from tightrope.io.entries import Entries, Parts, assemble
from tightrope.io.files import MAX_BYTES, decode, read_bytes, write_whole
from tightrope.model.mdp import FiniteMDP
from tightrope.types import CRITERION_NAMES, IntArray

IDS = {
    "state": ("idstatefrom", "state"),
    "action": ("idaction", "action"),
    "next_state": ("idstateto", "next_state"),
}
LINE_END = re.compile(rb"\r\n|\n|\r")
EXAMPLE = "'idstatefrom,idaction,idstateto,probability,reward'"
MARK = "# tightrope:"
EXTRA_KEYS = (
    "criterion",
    "horizon",
    "discount",
    "capacities",
    "senses",
    "initial",
    "state_names",
    "action_names",
)


def load_csv(
    path: str | Path,
    *,
    cost_columns: Sequence[str] = (),
    deadlock: str = "error",
    max_bytes: int = MAX_BYTES,
    **fields: Any,
) -> FiniteMDP:
    """Read a model from a CSV table of transitions.

    Parameters
    ----------
    cost_columns : names of columns that are costs
    deadlock : 'error' or 'absorb'
        What to do with a state that no line leaves.
    max_bytes : int
        The most that the file may unpack to.
    fields
        Keywords of `FiniteMDP` that the table does not give, ``criterion`` above all.

    Raises
    ------
    ModelError
        With the file, the line, state and action, and how to mend it.
    """
    table = _read(path, read_bytes(path, max_bytes), cost_columns)
    extra = dict(table.extra)
    if "criterion" in fields:  # its parameter comes with it, and the unit of capacities
        extra.pop("horizon", None)
        extra.pop("discount", None)
        kind = CRITERION_NAMES.get(type(fields["criterion"]), fields["criterion"])
        if extra.get("criterion", kind) != kind:
            extra.pop("capacities", None)
    fields = {**extra, **fields}
    if "criterion" not in fields:
        raise ModelError(
            f"{path}: a table does not say the criterion; load(path, criterion='average'), "
            "or 'discounted' with discount=, 'episodic' with horizon=, or 'total'"
        )
    entries, num_states, num_actions = _entries(table, fields)
    _check_payments(table, entries)
    parts = assemble(entries, num_states, num_actions, deadlock=deadlock)
    fields["initial"] = _initial(table, fields.get("initial"), num_states)
    found = {**parts.fields, **_rewards(table, parts), **_costs(table, parts)}
    for name in found:
        if name in fields:
            raise ModelError(f"{path}: '{name}' is in the table, so it is no argument")
    try:
        return FiniteMDP(**found, **fields)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class _Table:
    path: str | Path
    raw: bytes
    header_line: int
    extra: dict[str, Any]
    columns: dict[str, Any]  # by role; costs as 'cost:NAME'

    def where(self, i: int) -> str:
        """Place of data row i; -1 for the whole file."""
        if i < 0:
            return str(self.path)
        return f"{self.path}, line {_line_of_row(self.raw, self.header_line, i)}"


def _line_of_row(raw: bytes, header_line: int, row: int) -> int:
    """Line of a data row, both from the file's start; blank lines are no rows."""
    rows = -1
    text = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for number, line in enumerate(io.BytesIO(text), 1):
        rows += number > header_line and line != b"\n"
        if rows == row:
            return number
    return header_line


def _read(path: str | Path, raw: bytes, cost_columns: Sequence[str]) -> _Table:
    """Split the file into its preamble, its header and its columns."""
    extra: dict[str, Any] = {}
    offset = number = 0
    while True:
        if offset == len(raw):
            raise ModelError(f"{path}: no header; expected one such as {EXAMPLE}")
        number += 1
        found = LINE_END.search(raw, offset)
        end = found.end() if found else len(raw)
        line = decode(path, raw[offset:end], number).strip("\r\n")
        offset = end
        if line.startswith(MARK):
            extra = _extra(f"{path}, line {number}", parse_json(path, line[len(MARK) :], number))
        elif line.strip() and not line.startswith("#"):
            break
    delimiter = next((mark for mark in ",;\t" if mark in line), ",")
    roles = [
        _role(f"{path}, line {number}", cell, cost_columns)
        for cell in _cells(f"{path}, line {number}", line, delimiter)
    ]
    for role in roles:
        if roles.count(role) > 1:
            raise ModelError(f"{path}, line {number}: two columns are '{role}'; keep one")
    for role in ("state", "action", "next_state", "probability"):
        if role not in roles:
            raise ModelError(
                f"{path}, line {number}: no column '{IDS.get(role, (role,))[0]}'; expected a "
                f"header such as {EXAMPLE}"
            )
    columns = _columns(path, raw, offset, number, delimiter, roles)
    return _Table(path=path, raw=raw, header_line=number, extra=extra, columns=columns)


def _cells(place: str, line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error as error:
        raise ModelError(f"{place}: {error}") from error


def _extra(place: str, found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ModelError(f"{place}: expected an object after '{MARK}'")
    check_keys(place, found, EXTRA_KEYS)
    try:
        return {
            name: value
            if name == "initial" and isinstance(value, dict)
            else field_value(name, value)
            for name, value in found.items()
        }
    except ModelError as error:
        raise ModelError(f"{place}: {error}") from error


def _role(place: str, cell: str, cost_columns: Sequence[str]) -> str:
    cell = cell.lstrip()
    word = cell.strip()
    for role, names in IDS.items():
        if word.lower() in names:
            return role
    if word in cost_columns:
        return f"cost:{word}"
    if word.lower() in ("probability", "reward", "reward_next"):
        return word.lower()
    if word in ("cost", "cost_next"):
        return f"{word}:cost"
    if cell.startswith(("cost:", "cost_next:")):
        return cell
    raise ModelError(
        f"{place}: column '{word}' is not known. If lines of one transition differ by it, add "
        f"their probabilities up and drop it; if a cost, say cost_columns=['{word}']; known are "
        "idstatefrom, idaction, idstateto, probability, reward, cost and cost:NAME"
    )


def _columns(
    path: str | Path, raw: bytes, offset: int, number: int, delimiter: str, roles: list[str]
) -> dict[str, Any]:
    """The data by role: ids as int64 (or text, by the first line), the rest as float64."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    first = LINE_END.split(raw[offset : offset + 65536].lstrip(b"\r\n"), maxsplit=1)[0]
    cells = _cells(f"{path}, line {number + 1}", first.decode("utf-8", "replace"), delimiter)
    types = dict.fromkeys(roles, pa.float64())
    for role, cell in zip(roles, cells):
        if role in IDS:
            types[role] = pa.int64() if re.match(r"\s*[-+]?\d", cell) else pa.string()
    if types["state"] != types["next_state"]:
        types["state"] = types["next_state"] = pa.string()

    def parse(threads: bool) -> Any:
        return arrow_csv.read_csv(
            pa.BufferReader(pa.py_buffer(raw).slice(offset)),
            read_options=arrow_csv.ReadOptions(use_threads=threads, column_names=roles),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types, null_values=[], strings_can_be_null=False
            ),
        )

    try:
        table = parse(True)
    except pa.ArrowInvalid:
        try:
            table = parse(False)  # only a single thread knows the row
        except pa.ArrowInvalid as error:
            raise _located(path, raw, number, roles, str(error)) from error
    if not table.num_rows:
        raise ModelError(f"{path}: has a header but no transitions")
    texts = [role for role in roles if types[role] == pa.string()]
    return {
        role: table.column(role).to_pylist() if role in texts else table.column(role).to_numpy()
        for role in roles
    }


def _located(path: str | Path, raw: bytes, number: int, roles: list[str], text: str) -> ModelError:
    """pyarrow's complaint with the file's line and the column's name."""
    if "Empty CSV file" in text:
        return ModelError(f"{path}: has a header but no transitions")
    if "invalid UTF8" in text:
        decode(path, raw)  # raises, with the line
    row = re.search(r"Row #(\d+): ?", text)
    line = f", line {_line_of_row(raw, number, int(row[1]) - 1)}" if row else ""
    column = re.search(r"CSV column #(\d+)", text)
    value = re.search(r"invalid value '(.*)'", text, re.DOTALL)
    if column and value:
        role = roles[int(column[1])]
        kind = "a whole number" if role in IDS else "a number with a decimal point"
        return ModelError(f"{path}{line}: {role} is '{value[1][:40]}', expected {kind}")
    return ModelError(f"{path}{line}: {text[row.end() if row else 0 :][:200]}")


def _entries(table: _Table, fields: dict[str, Any]) -> tuple[Entries, int, int]:
    """The transitions with ids as numbers, and how many states and actions there are."""
    states, nexts = _numbers(table, fields, "state_names", "state", "next_state")
    (actions,) = _numbers(table, fields, "action_names", "action")
    state_names, action_names = fields.get("state_names"), fields.get("action_names")
    entries = Entries(
        states=states,
        actions=actions,
        nexts=nexts,
        probabilities=table.columns["probability"],
        where=table.where,
        state_name=_namer(state_names),
        action_name=_namer(action_names),
    )
    num_states = len(state_names or ()) or 1 + int(max(states.max(), nexts.max()))
    return entries, num_states, len(action_names or ()) or 1 + int(actions.max())


def _namer(names: Sequence[str] | None) -> Callable[[int], str]:
    return str if names is None else lambda i: f"{i} '{names[i]}'"


def _numbers(table: _Table, fields: dict[str, Any], key: str, *roles: str) -> list[IntArray]:
    """Columns of ids as numbers from 0; names are looked up, or numbered as they appear."""
    columns = [table.columns[role] for role in roles]
    names = fields.get(key)
    if isinstance(columns[0], np.ndarray):
        limit = columns[0].size if names is None else len(names)
        for role, ids in zip(roles, columns):
            bad = np.flatnonzero((ids < 0) | (ids >= limit))
            if bad.size:
                why = f"there are {limit} lines" if names is None else f"{key} has {limit} names"
                raise ModelError(
                    f"{table.where(int(bad[0]))}: {role} is {ids[bad[0]]}, expected 0 to "
                    f"{limit - 1} since {why}; numbers count from 0 without gaps"
                )
        return columns
    place = {name: i for i, name in enumerate(names or ())}
    for role, words in zip(roles, columns):
        for i, word in enumerate(words):
            if word not in place:
                if names is not None:
                    raise ModelError(f"{table.where(i)}: {role} '{word}' is not in {key}")
                place[word] = len(place)
    fields[key] = list(place)
    return [np.array([place[word] for word in words]) for words in columns]


def _initial(table: _Table, initial: Any, num_states: int) -> Any:
    """The start law, which the preamble may give as {state number: probability}."""
    if not isinstance(initial, dict):
        return initial
    law = np.zeros(num_states)
    for state, probability in initial.items():
        if not re.fullmatch(r"\d{1,18}", str(state)) or int(state) >= num_states:
            raise ModelError(
                f"{table.path}: initial names state '{state}', expected 0 to {num_states - 1}"
            )
        if isinstance(probability, bool) or not isinstance(probability, int | float):
            raise ModelError(f"{table.path}: initial of state {state} is no number")
        law[int(state)] = probability
    return law


def _check_payments(table: _Table, entries: Entries) -> None:
    for role, values in table.columns.items():
        if role in IDS or role == "probability":
            continue
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            i = int(bad[0])
            raise ModelError(
                f"{table.where(i)}: {role} of {entries.pair(i)} is {values[i]}, expected a finite "
                "number; an action that does not exist there has no lines"
            )


def _means(table: _Table, parts: Parts, role: str) -> Any:
    """A column of means as (S, A), or ModelError if it depends on the next state."""
    means = parts.table(table.columns[role])
    if means is None:
        raise ModelError(
            f"{table.path}: '{role}' differs between the lines of one (state, action); beside "
            "realised values it must be the mean"
        )
    return means


def _rewards(table: _Table, parts: Parts) -> dict[str, Any]:
    columns = table.columns
    if "reward_next" in columns:
        out = {"rewards_next": parts.realised(columns["reward_next"])}
        return out | ({"rewards": _means(table, parts, "reward")} if "reward" in columns else {})
    if "reward" not in columns:
        return {}
    return parts.rewards(columns["reward"])


def _costs(table: _Table, parts: Parts) -> dict[str, Any]:
    columns = table.columns
    given = {role.split(":", 1)[1]: role for role in columns if role.startswith("cost:")}
    nexts = {role.split(":", 1)[1]: role for role in columns if role.startswith("cost_next:")}
    if not nexts:
        return parts.costs({name: columns[role] for name, role in given.items()})
    if given and set(given) != set(nexts):
        raise ModelError(f"{table.path}: realised costs need a column cost_next for each cost")
    names = list(given or nexts)
    out: dict[str, Any] = {"cost_names": names}
    out["costs_next"] = np.stack([parts.realised(columns[nexts[name]]) for name in names])
    if given:
        out["costs"] = np.stack([_means(table, parts, given[name]) for name in names])
    return out


def save_csv(model: FiniteMDP, path: str | Path) -> None:
    """Write a model whose tables do not differ by step; `load_csv` reads the same model.

    Raises ModelError for what a table of transitions cannot hold.
    """
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    _check_table_holds(model)
    rows = np.repeat(np.arange(model.indptr.size - 1), np.diff(model.indptr))
    columns = {
        "idstatefrom": rows // model.num_actions,
        "idaction": rows % model.num_actions,
        "idstateto": model.indices,
        "probability": model.data,
        "reward": model.rewards.reshape(-1)[rows],
    }
    if model.rewards_next is not None:
        columns["reward_next"] = model.rewards_next
    for i, name in enumerate(model.cost_names):
        columns[f"cost:{name}"] = model.costs[i].reshape(-1)[rows]
        if model.costs_next is not None:
            columns[f"cost_next:{name}"] = model.costs_next[i]
    extra = {
        key: value.tolist() if isinstance(value, np.ndarray) else value
        for key, value in model.to_dict().items()
        if key in EXTRA_KEYS
    }
    extra["initial"] = {str(s): float(model.initial[s]) for s in np.flatnonzero(model.initial)}
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(columns)

    def write(file: BinaryIO) -> None:
        file.write(f"{MARK} {json.dumps(extra, ensure_ascii=False)}\n{header.getvalue()}".encode())
        arrow_csv.write_csv(pa.table(columns), file, arrow_csv.WriteOptions(include_header=False))

    write_whole(path, write)


def _check_table_holds(model: FiniteMDP) -> None:
    if model.staged:
        raise ModelError("a CSV table holds no tables that differ by step; save as .npz or .json")
    if not model.available[:, -1].any() and model.action_names is None:
        raise ModelError("the last action exists in no state, which a CSV table cannot say")
    for name in model.cost_names:
        if len(name.splitlines()) > 1 or name != name.rstrip("\r\n"):
            raise ModelError(f"cost name {name!r} has a line break, which a CSV header cannot hold")
