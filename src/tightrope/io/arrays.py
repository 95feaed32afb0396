"""The model file: ``.npz`` (never pickled) and ``.json`` with the same keys.

The keys are the keywords of `FiniteMDP` (all but ``axes``: the axis order of a file is fixed).
Transitions are dense under ``transitions`` or the parts of a CSR matrix under ``transitions_data``,
``_indices``, ``_indptr`` and ``_shape`` with row ``s*A + a``.
"""

from __future__ import annotations

import difflib
import io
import json
import math
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np

from tightrope.errors import ModelError
from tightrope.io.files import MAX_BYTES, read_bytes, read_text, too_large, write_whole
from tightrope.model.mdp import FiniteMDP

NUMBERS = (
    "transitions",
    "transitions_data",
    "rewards",
    "rewards_next",
    "costs",
    "costs_next",
    "capacities",
    "initial",
)
INTEGERS = ("transitions_indices", "transitions_indptr", "transitions_shape")
TEXTS = ("senses", "state_names", "action_names", "cost_names")
KEYS = (*NUMBERS, *INTEGERS, *TEXTS, "available", "criterion", "horizon", "discount")
HEADER_FAULTS = (ValueError, TypeError, KeyError, SyntaxError, TokenError, Warning, RecursionError)
TRUE_FALSE = "booleans (or 0 and 1)"


def load_npz(path: str | Path, *, max_bytes: int = MAX_BYTES) -> FiniteMDP:
    """Read a model from an ``.npz`` file; nothing in it is ever unpickled or executed.

    Parameters
    ----------
    max_bytes : int
        The most that the file may unpack to.

    Raises
    ------
    ModelError
        With the file and the key, what was expected and what came.
    """
    raw = read_bytes(path, max_bytes)
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            fields = _npz_fields(path, archive, max_bytes)
    except (zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, OSError) as error:
        raise ModelError(f"{path}: damaged, cut or no .npz file ({error})") from error
    except (RuntimeError, OverflowError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path}: no readable .npz file ({error})") from error
    return _build(path, fields)


def _npz_fields(path: str | Path, archive: zipfile.ZipFile, max_bytes: int) -> dict[str, Any]:
    members = archive.infolist()
    names = [member.filename.removesuffix(".npy") for member in members]
    check_keys(path, names)
    if sum(member.file_size for member in members) > max_bytes:
        raise too_large(path, max_bytes)
    return {
        name: _npz_value(path, name, archive.read(member)) for name, member in zip(names, members)
    }


def _npz_value(path: str | Path, name: str, raw: bytes) -> Any:
    file = io.BytesIO(raw)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        version = np.lib.format.read_magic(file)
        if version not in read_header:
            raise ValueError(f"npy format {version}")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an odd header would be read in another way
            shape, fortran, dtype = read_header[version](file)
    except HEADER_FAULTS as error:
        raise ModelError(f"{path}: key '{name}' is no NumPy array ({error})") from error
    if dtype.hasobject:
        raise ModelError(
            f"{path}: key '{name}' holds pickled objects, which are never loaded; save numbers, "
            "or names as a string array"
        )
    if dtype.kind not in "biufU":
        raise ModelError(f"{path}: key '{name}' has dtype {dtype}, expected numbers or text")
    left = len(raw) - file.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != left:
        raise ModelError(
            f"{path}: key '{name}' says shape {shape} of {dtype} but holds {left} bytes"
        )
    flat = np.frombuffer(raw, dtype=dtype, offset=file.tell()) if left else np.zeros(0, dtype)
    array = flat.reshape(shape, order="F" if fortran else "C")
    return array.item() if array.ndim == 0 else array


def load_json(path: str | Path, *, max_bytes: int = MAX_BYTES) -> FiniteMDP:
    """Read a model from a ``.json`` file: one object with the keys of the model file.

    Raises
    ------
    ModelError
        With the file and the line or key, what was expected and what came.
    """
    fields = parse_json(path, read_text(path, max_bytes))
    if not isinstance(fields, dict):
        raise ModelError(f"{path}: expected one object with the keys of a model")
    check_keys(path, fields)
    return _build(path, fields)


def parse_json(path: str | Path, text: str, first_line: int = 1) -> Any:
    """JSON in which no key may be there twice; ModelError names the line."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        raise ModelError(
            f"{path}, line {error.lineno + first_line - 1}, column {error.colno}: not JSON "
            f"({error.msg}){'; is the file cut?' if cut else ''}"
        ) from error
    except RecursionError as error:
        raise ModelError(f"{path}: lists are nested too deeply for a model") from error
    except DoubledKey as error:
        places = [m.start() for m in re.finditer(re.escape(json.dumps(error.args[0])), text)]
        line = text.count("\n", 0, places[1]) + first_line if len(places) > 1 else first_line
        raise ModelError(
            f"{path}, line {line}: key '{error.args[0]}' is there twice; keep one"
        ) from error
    except ValueError as error:  # an integer of too many digits
        raise ModelError(f"{path}: {error}") from error


class DoubledKey(ValueError):
    """A key that an object has twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DoubledKey(twice)
    return out


def check_keys(path: str | Path, names: Iterable[str], known: Sequence[str] = KEYS) -> None:
    """Raise ModelError for a name that is not known, with the nearest one, or is there twice."""
    seen = set()
    for name in names:
        if name == "axes":
            raise ModelError(f"{path}: the axis order of a file is fixed (S, A, S): drop 'axes'")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
            raise ModelError(f"{path}: unknown key '{name}'; {hint}")
        if name in seen:
            raise ModelError(f"{path}: key '{name}' is there twice; keep one")
        seen.add(name)


def _build(path: str | Path, fields: Mapping[str, Any]) -> FiniteMDP:
    try:
        values = {name: field_value(name, value) for name, value in fields.items()}
        if "criterion" not in values:
            raise ModelError(
                "key 'criterion' is missing: 'episodic' (with 'horizon'), 'average', 'discounted' "
                "(with 'discount') or 'total'"
            )
        return FiniteMDP(**values, axes="sas")
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def field_value(name: str, value: Any) -> Any:
    """One value in the form that the constructor takes, or ModelError with the key."""
    if name == "criterion":
        if not isinstance(value, str):
            raise ModelError(f"key 'criterion' is {_short(value)}, expected its name as a string")
        return value
    if name in ("horizon", "discount"):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelError(f"key '{name}' is {_short(value)}, expected a number")
        return value
    if name in TEXTS:
        items = value.tolist() if isinstance(value, np.ndarray) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise ModelError(f"key '{name}' is {_short(value)}, expected a list of strings")
        return items
    if isinstance(value, dict) and name in ("costs", "capacities"):
        return {cost: _array(f"{name}.{cost}", "f", table) for cost, table in value.items()}
    kind = {"available": "b"}.get(name, "i" if name in INTEGERS else "f")
    return _array(name, kind, value)


def _array(name: str, kind: str, value: Any) -> np.ndarray:
    allowed, expected = {
        "f": ("iuf", "numbers"),
        "i": ("iu", "whole numbers"),
        "b": ("biuf", TRUE_FALSE),
    }[kind]
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise ModelError(f"key '{name}' is not a rectangular list of {expected}") from error
    if array.dtype.kind not in allowed and array.size:
        raise ModelError(f"key '{name}' holds {_short(_first_other(value))}, expected {expected}")
    if kind == "b":
        return array
    return array.astype(np.float64 if kind == "f" else np.int64, copy=False)


def _first_other(value: Any) -> Any:
    """The first entry that is no number, for the message."""
    if isinstance(value, list):
        others = (_first_other(item) for item in value)
        return next((other for other in others if other is not None), None)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if number and abs(value) < 2**63 else repr(value)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def save_npz(model: FiniteMDP, path: str | Path) -> None:
    """Write a model to ``.npz``: the same model gives the same bytes."""

    def write(file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            for name, value in sorted(_file_fields(model).items()):
                member = zipfile.ZipInfo(f"{name}.npy")  # dated 1980, not now
                out = io.BytesIO()
                np.lib.format.write_array(out, np.asarray(value), allow_pickle=False)
                archive.writestr(member, out.getbuffer(), zipfile.ZIP_DEFLATED, compresslevel=1)

    write_whole(path, write)


def _file_fields(model: FiniteMDP) -> dict[str, Any]:
    fields = model.to_dict()
    for name in TEXTS:
        for text in fields.get(name, ()):
            if text.endswith("\0"):
                raise ModelError(f"{name} holds {text!r}; .npz cannot keep a NUL at the end")
        if name in fields:
            fields[name] = np.array(fields[name], dtype=np.str_)
    return fields


def save_json(model: FiniteMDP, path: str | Path) -> None:
    """Write a model to ``.json``, one key a line; numbers keep every digit."""

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.ndarray) else value

    def write(file: BinaryIO) -> None:
        lines = (
            f"  {json.dumps(name)}: {json.dumps(plain(value), ensure_ascii=False)}"
            for name, value in sorted(model.to_dict().items())
        )
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())

    write_whole(path, write)
