"""Models in and out: `load` and `save` choose the format by the file's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tightrope.errors import ModelError
from tightrope.io.arrays import load_json, load_npz, save_json, save_npz
from tightrope.io.cassandra import load_cassandra, save_cassandra
from tightrope.io.files import MAX_BYTES
from tightrope.io.gymnasium import from_gymnasium
from tightrope.io.prism import load_prism, save_prism
from tightrope.io.tables import load_csv, save_csv
from tightrope.model.mdp import FiniteMDP

__all__ = ["convert", "from_gymnasium", "load", "save"]

READERS: dict[str, Callable[..., FiniteMDP]] = {
    ".npz": load_npz,
    ".json": load_json,
    ".csv": load_csv,
    ".mdp": load_cassandra,
    ".pomdp": load_cassandra,
    ".tra": load_prism,
}
WRITERS: dict[str, Callable[..., None]] = {
    ".npz": save_npz,
    ".json": save_json,
    ".csv": save_csv,
    ".mdp": save_cassandra,
    ".tra": save_prism,
}


def load(path: str | Path, *, max_bytes: int = MAX_BYTES, **options: Any) -> FiniteMDP:
    """Read a model from a file; the end of its name chooses the format (``.gz`` may follow).

    Loading never executes anything from the file.

    Parameters
    ----------
    max_bytes : int
        The most that the file may unpack to; 2 GiB by default.
    options
        What the format's own reader takes; keywords of `FiniteMDP` (criterion, horizon, discount,
        capacities, initial, names) add to what the file says and win.

    Raises
    ------
    ModelError
        With the file and the place, what was expected and what came.
    """
    name = Path(path).name.lower().removesuffix(".gz")
    reader = _by_suffix(path, name, READERS)
    if reader not in (load_npz, load_json):
        return reader(path, max_bytes=max_bytes, **options)
    model = reader(path, max_bytes=max_bytes)
    return model.replace(**options) if options else model


def save(model: FiniteMDP, path: str | Path, **options: Any) -> None:
    """Write a model to a file; the name's end (``.npz``, ``.json``, ``.csv``) chooses the format.

    >>> import tempfile, tightrope.io, numpy as np
    >>> from tightrope.model.mdp import FiniteMDP
    >>> model = FiniteMDP(transitions=np.ones((1, 2, 1)), rewards=[[0, 1]], criterion="average")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, folder + "/model.npz")
    ...     load(folder + "/model.npz").content_hash == model.content_hash
    True
    """
    _by_suffix(path, Path(path).name.lower(), WRITERS)(model, path, **options)


def convert(source: str | Path, target: str | Path, **options: Any) -> FiniteMDP:
    """Read a model from one file and write it to another; returns the model.

    What the target cannot hold is an error that names it; what must be told again when the target
    is read is named in a `ModelWarning`. `options` go to the reader.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = pathlib.Path(folder, "model.csv")
    ...     _ = table.write_text("state,action,next_state,probability,reward\\n0,0,0,1,5\\n")
    ...     convert(table, folder + "/model.json", criterion="average")
    FiniteMDP(S=1, A=1, m=0, Average(), 1 transitions)
    """
    model = load(source, **options)
    save(model, target)
    return model


def _by_suffix(path: str | Path, name: str, known: dict[str, Any]) -> Any:
    suffix = Path(name).suffix
    if suffix not in known:
        raise ModelError(f"{path}: no known model format; names end in {', '.join(known)}")
    return known[suffix]
