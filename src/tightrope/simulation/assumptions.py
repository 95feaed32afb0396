"""Constants that a learner needs and nobody declared: estimated, and labelled as such."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tightrope.errors import UndeclaredError
from tightrope.estimation.assumptions import Estimates, estimate
from tightrope.learners.baselines import UNIFORM, UniformConfig
from tightrope.learners.protocol import Learner, Stop
from tightrope.model.chain import sigma
from tightrope.model.features import feature_map_of, features_of, rows_at
from tightrope.model.linear import ContinuousLinearMDP
from tightrope.model.mdp import FiniteMDP
from tightrope.model.structure import count_policies
from tightrope.problems.linear import SIGMA_POLICIES
from tightrope.simulation.points import PointWorld
from tightrope.simulation.stream import StreamWorld
from tightrope.simulation.streams import streams
from tightrope.types import ProblemSpec

STEPS = 10_000
SEED = 0  # of the trajectory: every run of a problem has the same estimate, and its own draws


def checked_config(
    learner: Learner, spec: ProblemSpec, config: Any, model: FiniteMDP | ContinuousLinearMDP
) -> tuple[Any, list[str]]:
    """The configuration after the learner's `check`, with t_mix or sigma estimated where needed.

    Returns also a sentence about each estimate; ``config.estimated`` names them, and a
    configuration with estimates has no guarantee.
    """
    notes: list[str] = []
    found: Estimates | None = None
    while True:
        try:
            learner.check(spec, config)
            return config, notes
        except UndeclaredError as error:
            if error.name not in Estimates._fields:
                raise
            exact = None
            if error.name == "sigma" and config.sigma is None and isinstance(model, FiniteMDP):
                exact = exact_sigma(spec, model)
            if exact is not None:
                config = dataclasses.replace(config, sigma=exact)
                continue
            found = uniform_estimates(spec, model) if found is None else found
            value = float(getattr(found, error.name))
            given = {error.name: value, "estimated": (*config.estimated, error.name)}
            config = dataclasses.replace(config, **given)
            notes.append(
                f"{error.name} = {value:.6g} is an estimate from {STEPS:,} steps of the uniform "
                "policy; over all policies it can be worse, so no theorem covers this run"
            )


def exact_sigma(spec: ProblemSpec, model: FiniteMDP) -> float | None:
    """sigma of a finite model; None with too many deterministic policies to try them all.

    One-hot features have 0: a deterministic policy never takes the other actions.
    """
    if spec.features is None and (model.available.sum(axis=1) > 1).any():
        return 0.0
    if count_policies(model) > SIGMA_POLICIES:
        return None
    return sigma(model, features_of(spec))


def uniform_estimates(spec: ProblemSpec, model: FiniteMDP | ContinuousLinearMDP) -> Estimates:
    """From a trajectory of the uniform policy in a world of its own."""
    own = streams(SEED)
    world = (
        PointWorld(model, own)
        if isinstance(model, ContinuousLinearMDP)
        else StreamWorld(model, own, spec)
    )
    policy = UNIFORM.policy(UNIFORM.init(spec, UniformConfig()))
    seen, _ = world.play(policy, Stop("steps", STEPS), STEPS)
    features, table = feature_map_of(spec), policy.probabilities
    everywhere = len(table) == 1  # one row for all points
    return estimate(
        seen.states,
        seen.actions,
        lambda states: rows_at(features, states),
        lambda states: (
            np.broadcast_to(table, (len(states), table.shape[1])) if everywhere else table[states]
        ),
    )
