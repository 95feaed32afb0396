"""Learners by name. A new one needs its file and one line here."""

from __future__ import annotations

import dataclasses
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tightrope.errors import ConfigError, unknown_name
from tightrope.learners.presets import PRESETS

if TYPE_CHECKING:
    from tightrope.learners.protocol import Learner
    from tightrope.types import ProblemSpec


@dataclass(frozen=True)
class Entry:
    """Where a learner is (``module:attribute``, imported when asked for) and what it is."""

    home: str
    title: str


LEARNERS = {
    "conrl": Entry(
        "tightrope.learners.conrl:LEARNER",
        "ConRL with the exact planner: optimism under constraints",
    ),
    "conrl-lagrangian": Entry(
        "tightrope.learners.conrl_lagrangian:LEARNER",
        "ConRL with the Lagrangian planner of the paper's experiments",
    ),
    "conrl-convex": Entry(
        "tightrope.learners.conrl_convex:LEARNER",
        "ConRL for concave objectives under convex constraints",
    ),
    "conrl-knapsack": Entry(
        "tightrope.learners.conrl_knapsack:LEARNER",
        "ConRL with hard budgets over all episodes",
    ),
    "rcpo": Entry(
        "tightrope.learners.rcpo:LEARNER",
        "RCPO: actor-critic with a slowly moving penalty (baseline)",
    ),
    "appropo": Entry(
        "tightrope.learners.appropo:LEARNER",
        "ApproPO: feasibility by online gradient descent against an RL oracle (baseline)",
    ),
    "tfw-ucrl2": Entry(
        "tightrope.learners.tfw_ucrl2:LEARNER",
        "TFW-UCRL2: one stream, vectorial feedback, Frank-Wolfe (baseline)",
    ),
    "oracle": Entry(
        "tightrope.learners.baselines:ORACLE",
        "plays the optimal policy of the true model (baseline)",
    ),
    "pdgd-ops": Entry(
        "tightrope.learners.pdgd_ops:LEARNER",
        "primal-dual gradient descent, stochastic or adversarial constraints (full information)",
    ),
    "uc-o-gdps": Entry(
        "tightrope.learners.uc_o_gdps:LEARNER",
        "projected gradient descent over an L1 confidence set (full information)",
    ),
    "uc-o-reps": Entry(
        "tightrope.learners.uc_o_reps:LEARNER",
        "mirror descent with the KL over an L1 confidence set (full information)",
    ),
    "fopo": Entry(
        "tightrope.learners.fopo:LEARNER",
        "FOPO: fixed-point optimisation with optimism",
    ),
    "mdp-exp2": Entry(
        "tightrope.learners.mdp_exp2:LEARNER",
        "MDP-EXP2: exponential weights with importance-weighted bias estimates",
    ),
    "npg": Entry(
        "tightrope.learners.npg:LEARNER",
        "NPG: natural policy gradient with a stochastic-gradient fit",
    ),
    "olsvi-fh": Entry(
        "tightrope.learners.olsvi_fh:LEARNER",
        "OLSVI.FH: optimistic least-squares value iteration, artificial horizon",
    ),
    "politex": Entry(
        "tightrope.learners.politex:LEARNER",
        "POLITEX: policy iteration with expert prediction",
    ),
    "psrl": Entry(
        "tightrope.learners.psrl:LEARNER",
        "PSRL: posterior sampling with dynamic epochs",
    ),
    "ucrl2": Entry(
        "tightrope.learners.ucrl2:LEARNER",
        "UCRL2: optimistic models, extended value iteration",
    ),
    "uniform": Entry(
        "tightrope.learners.baselines:UNIFORM", "plays every available action alike (baseline)"
    ),
}


def get_learner(name: str) -> Learner:
    """The learner of a bare name, or of ``package.module:ATTRIBUTE`` for one of your own.

    Raises ConfigError with the nearest known name.
    """
    from tightrope.learners.protocol import Learner

    if name not in LEARNERS and ":" not in name:
        raise unknown_name("learner", name, LEARNERS)
    home = LEARNERS[name].home if name in LEARNERS else name
    module, _, attribute = home.partition(":")
    try:
        learner = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"learner '{name}' cannot be imported: {error}") from error
    if not isinstance(learner, Learner):
        raise ConfigError(f"learner '{name}' is a {type(learner).__name__}, expected a Learner")
    return learner


def split_name(name: str) -> tuple[str, str]:
    """``name@preset`` as (name, preset); the bare name means ``tuned``.

    >>> split_name("conrl"), split_name("conrl@theory")
    (('conrl', 'tuned'), ('conrl', 'theory'))
    """
    bare, _, preset = name.partition("@")
    return bare, preset or "tuned"


def presets_of(name: str) -> list[str]:
    """Every preset of a learner, `theory` included."""
    return sorted({"theory", "tuned", *PRESETS.get(name, {})})


def make_config(
    name: str, spec: ProblemSpec, *, episodes: int, delta: float, **changes: Any
) -> tuple[Learner, Any]:
    """Learner and configuration for ``name@preset``; `changes` replace single fields.

    Raises ConfigError for unknown learners, presets or fields.
    """
    from tightrope.types import as_number

    bare, preset = split_name(name)
    learner = get_learner(bare)
    values: dict[str, Any] = {}
    known = PRESETS.get(bare, {})
    if preset != "theory" and (preset in known or preset != "tuned"):
        if preset not in known:
            raise unknown_name(f"preset of {bare}", preset, presets_of(bare))
        values = dict(known[preset])
    config = learner.theory(spec, episodes, as_number(delta, "delta"))
    fields = [item.name for item in dataclasses.fields(config)]
    for field in changes:
        if field not in fields:
            raise unknown_name(f"field of the configuration of {bare}", field, fields)
    try:
        return learner, dataclasses.replace(config, **{**values, **changes})
    except TypeError as error:
        raise ConfigError(f"{bare}: {error}") from error
