"""Tightrope: online reinforcement learning with guarantees.

Constraints, the average-reward criterion, exact regret and exact constraint violation.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tightrope import model as model
    from tightrope import planning as planning
    from tightrope import problems as problems
    from tightrope import theory as theory
    from tightrope.io import convert as convert
    from tightrope.io import from_gymnasium as from_gymnasium
    from tightrope.io import load as load
    from tightrope.io import save as save
    from tightrope.model import features as features
    from tightrope.model.layered import unroll as unroll
    from tightrope.model.mdp import FiniteMDP as FiniteMDP
    from tightrope.model.policy import load_policy as load_policy
    from tightrope.model.policy import save_policy as save_policy
    from tightrope.pictures import draw_policy as draw_policy
    from tightrope.planning import evaluate as evaluate
    from tightrope.planning import plan as plan
    from tightrope.planning.policies import policy_table as policy_table
    from tightrope.results import load_results as load_results
    from tightrope.simulation.environments import learn as learn
    from tightrope.simulation.runner import Run as Run
    from tightrope.simulation.runner import run as run
    from tightrope.simulation.runner import simulate as simulate
    from tightrope.types import Average as Average
    from tightrope.types import Discounted as Discounted
    from tightrope.types import Episodic as Episodic
    from tightrope.types import Total as Total

# Public names and where they live. They are imported on first use, so that the command line starts
# without NumPy, numba or Gymnasium.
_HOMES = {
    "Average": "tightrope.types",
    "Discounted": "tightrope.types",
    "Episodic": "tightrope.types",
    "FiniteMDP": "tightrope.model.mdp",
    "Total": "tightrope.types",
    "convert": "tightrope.io",
    "draw_policy": "tightrope.pictures",
    "evaluate": "tightrope.planning",
    "from_gymnasium": "tightrope.io",
    "learn": "tightrope.simulation.environments",
    "load": "tightrope.io",
    "load_policy": "tightrope.model.policy",
    "load_results": "tightrope.results",
    "Run": "tightrope.simulation.runner",
    "plan": "tightrope.planning",
    "policy_table": "tightrope.planning.policies",
    "run": "tightrope.simulation.runner",
    "save": "tightrope.io",
    "save_policy": "tightrope.model.policy",
    "simulate": "tightrope.simulation.runner",
    "unroll": "tightrope.model.layered",
}
_MODULES = {
    "features": "tightrope.model.features",
    "learners": "tightrope.learners",
    "metrics": "tightrope.metrics",
    "model": "tightrope.model",
    "planning": "tightrope.planning",
    "problems": "tightrope.problems",
    "simulation": "tightrope.simulation",
    "theory": "tightrope.theory",
}

__all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    raise AttributeError(f"module 'tightrope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


if "gymnasium" in sys.modules:  # its registry gets the problems, as `tightrope.adapter` says
    importlib.import_module("tightrope.adapter")
