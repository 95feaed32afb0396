"""What a decision process is: models, policies, and the Markov chains that policies make."""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = (
    "chain",
    "features",
    "layered",
    "linear",
    "mdp",
    "policy",
    "structure",
)  # imported on first use

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tightrope.model.{name}")
    raise AttributeError(f"module 'tightrope.model' has no attribute {name!r}")
