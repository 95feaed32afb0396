"""Concave objectives and convex constraints by name, so that a configuration can hold them.

Each returns (value, gradient). A name with a colon, ``package.module:function``, imports one's own,
in any of the forms that `planning.convex` takes.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np

from tightrope.errors import ConfigError, unknown_name
from tightrope.types import FloatArray


def log_objective(y: FloatArray) -> tuple[float, FloatArray]:
    """``sum log(1 + y)``, continued by its tangent below 0: 1-Lipschitz everywhere.

    >>> log_objective(np.array([0.0, np.e - 1]))[0]
    1.0
    """
    inside = np.maximum(y, 0.0)
    value = float(np.log1p(inside).sum() + np.minimum(y, 0.0).sum())
    return value, 1.0 / (1.0 + inside)


class NormConstraint:
    """``||max(u, 0)||_2 <= ||capacities||_2``: the costs may stand in for one another."""

    def __init__(self, capacities: FloatArray) -> None:
        self.limit = float(np.linalg.norm(capacities))

    def __call__(self, u: FloatArray) -> tuple[float, FloatArray]:
        over = np.maximum(u, 0.0)
        size = float(np.linalg.norm(over))
        return size - self.limit, over / (size or 1.0)


OBJECTIVES = {"linear": None, "log": log_objective}
CONSTRAINTS = {"capacities": None, "norm": NormConstraint}


def objective(name: str) -> Any:
    """f by name; None is the sum of the rewards."""
    return _known("objective", name, OBJECTIVES)


def constraint(name: str, capacities: FloatArray) -> Any:
    """g by name; None is the model's capacities."""
    found = _known("constraint", name, CONSTRAINTS)
    return found(capacities) if name in CONSTRAINTS and found is not None else found


@cache
def _import(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"function '{name}' cannot be imported: {error}") from error


def _known(kind: str, name: str, known: dict[str, Any]) -> Any:
    if not isinstance(name, str):
        raise ConfigError(f"{kind} must be a name, or module:function, got {name!r}")
    if name in known:
        return known[name]
    if ":" not in name:
        raise unknown_name(kind, name, known)
    return _import(name)
