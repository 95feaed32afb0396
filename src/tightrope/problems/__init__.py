"""Named problems, each a function that returns a validated model."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tightrope.problems.adversarial import AdversarialProblem as AdversarialProblem
    from tightrope.problems.average import access_control as access_control
    from tightrope.problems.average import admission_control as admission_control
    from tightrope.problems.average import ergodic_mdp as ergodic_mdp
    from tightrope.problems.average import riverswim as riverswim
    from tightrope.problems.gridworlds import box as box
    from tightrope.problems.gridworlds import mars_rover as mars_rover
    from tightrope.problems.gridworlds import mars_rover_stream as mars_rover_stream
    from tightrope.problems.gridworlds import random_map as random_map
    from tightrope.problems.linear import (
        admission_control_polynomial as admission_control_polynomial,
    )
    from tightrope.problems.linear import linear_mdp as linear_mdp
    from tightrope.problems.linear import random_continuous_mdp as random_continuous_mdp
    from tightrope.problems.linear import random_linear_mdp as random_linear_mdp
    from tightrope.problems.null import rover_knapsack as rover_knapsack
    from tightrope.problems.null import with_null_action as with_null_action
    from tightrope.problems.operations import budget_pacing as budget_pacing
    from tightrope.problems.operations import inventory as inventory
    from tightrope.problems.operations import machine_replacement as machine_replacement
    from tightrope.problems.operations import media_buffer as media_buffer
    from tightrope.problems.operations import service_queue as service_queue
    from tightrope.problems.random import random_cmdp as random_cmdp

# Where each function lives; modules are imported on first use.
_HOMES = {
    "AdversarialProblem": "adversarial",
    "access_control": "average",
    "admission_control": "average",
    "admission_control_polynomial": "linear",
    "box": "gridworlds",
    "budget_pacing": "operations",
    "ergodic_mdp": "average",
    "inventory": "operations",
    "linear_mdp": "linear",
    "machine_replacement": "operations",
    "mars_rover": "gridworlds",
    "mars_rover_stream": "gridworlds",
    "media_buffer": "operations",
    "random_cmdp": "random",
    "random_continuous_mdp": "linear",
    "random_linear_mdp": "linear",
    "random_map": "gridworlds",
    "riverswim": "average",
    "rover_knapsack": "null",
    "service_queue": "operations",
    "with_null_action": "null",
}

# Whole modules: sequences of tables under the name that users know, and loop-free instances.
_MODULES = {"adversaries": "sequences", "loop_free": "loop_free"}

__all__ = [*_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tightrope.problems.{_MODULES[name]}")
    if name not in _HOMES:
        raise AttributeError(f"module 'tightrope.problems' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tightrope.problems.{_HOMES[name]}"), name)
