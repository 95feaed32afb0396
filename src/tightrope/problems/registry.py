"""Problems by name. A new one needs its function and one line here."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tightrope.errors import unknown_name

if TYPE_CHECKING:
    from tightrope.model.mdp import FiniteMDP


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A named problem: where its function is, and one line for `tightrope list`."""

    home: str  #: "module:function"
    title: str
    episodes: int = 1000  #: length of its default experiment
    learners: tuple[str, ...] = ("conrl", "uniform", "oracle")


PROBLEMS: dict[str, Problem] = {
    "mars-rover": Problem(
        home="tightrope.problems.gridworlds:mars_rover",
        title="8x8 Mars rover: reach the goal, avoid the rocks [CON, Figure 1]",
    ),
    "box": Problem(
        home="tightrope.problems.gridworlds:box",
        title="6x6 Box: reach the goal, do not push the box into a corner [CON, Figure 1]",
        episodes=1500,
    ),
    "random-cmdp": Problem(
        home="tightrope.problems.random:random_cmdp",
        title="random sparse constrained model with binding capacities",
    ),
}


def make_problem(name: str, **parameters: Any) -> FiniteMDP:
    """The model of a named problem; ConfigError with the nearest name if there is none.

    >>> make_problem("mars-rover", capacity=0.2).capacities
    array([0.2])
    """
    if name not in PROBLEMS:
        raise unknown_name("problem", name, PROBLEMS)
    module, _, function = PROBLEMS[name].home.partition(":")
    return getattr(importlib.import_module(module), function)(**parameters)
