"""Constants that a learner needs and nobody declared: estimated, and labelled as such."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tightrope.errors import ConfigError, UndeclaredError
from tightrope.estimation.assumptions import Estimates, estimate
from tightrope.learners.baselines import UNIFORM, UniformConfig
from tightrope.learners.presets import PRESETS
from tightrope.learners.protocol import Learner, Stop
from tightrope.model.chain import mixing_time, policy_chain, sigma, stationary
from tightrope.model.features import feature_map_of, features_of, rows_at
from tightrope.model.linear import ContinuousLinearMDP, bias_linearity_error, linearity_error
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import uniform_policy
from tightrope.model.structure import count_policies, is_communicating
from tightrope.problems.linear import SIGMA_POLICIES
from tightrope.simulation.points import PointWorld
from tightrope.simulation.stream import KNOWN_PAIRS, StreamWorld
from tightrope.simulation.streams import streams
from tightrope.types import ProblemSpec

STEPS = 10_000
LINEAR = 1e-8  # distance from the span of the features that counts as rounding
FEW_POLICIES = 4096  # up to which sigma is computed only to check a declared one
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
            worse = "; over all policies it can be worse" if spec.num_actions > 1 else ""
            notes.append(
                f"{error.name} = {value:.6g} is an estimate from {STEPS:,} steps of the uniform "
                f"policy{worse}, so no theorem covers this run"
            )
        except ConfigError as error:
            own = _presets_with(learner, "mixing_time")
            if own and "finite mixing time" in str(error):
                raise ConfigError(f"{error}; a preset that sets it: {', '.join(own)}") from None
            raise


def _presets_with(learner: Learner, field: str) -> list[str]:
    """Presets of the learner that give a number for a field."""
    known = PRESETS.get(learner.name, {}).items()
    return [
        f"{learner.name}@{name}" for name, values in known if isinstance(values.get(field), float)
    ]


def unmet_assumptions(
    learner: Learner,
    spec: ProblemSpec,
    config: Any,
    model: FiniteMDP | ContinuousLinearMDP,
    span: float | None,
) -> list[str]:
    """Assumptions of the learner's theorem that this problem or this configuration breaks.

    A finite model of at most 2,000 pairs is checked against [LIN, Assumptions 2 to 5] with the
    constants that the learner uses, one of any size for a finite diameter; `span` is the true
    sp(v*), if known. A run with any of these sentences has no guarantee.
    """
    out: list[str] = []
    used = _constant(spec, config, "span")
    if used is not None and span is not None and used < span * (1.0 - 1e-9):
        out.append(f"span = {used:.6g} is less than sp(v*) = {span:.6g}")
    if not isinstance(model, FiniteMDP):
        return out  # continuous: linear by its making, t_mix and sigma estimated or declared
    if "finite-diameter" in learner.traits and not is_communicating(model):
        out.append("the diameter is infinite: some state cannot be reached from another")
    if model.rewards.size > KNOWN_PAIRS:
        return out
    if spec.features is not None:
        out += _unmet_linearity(learner, spec, model)
    if "linear-bias" not in learner.traits or getattr(config, "estimated", False):
        return out  # estimates are labelled where they are made
    used = _constant(spec, config, "mixing_time")
    if used is not None:
        truth = mixing_time(model)
        if used < truth * (1.0 - 1e-9):
            out.append(f"mixing_time = {used:.6g} is less than t_mix = {truth:.6g} (Assumption 3)")
    used = _constant(spec, config, "sigma")
    if used is not None:
        most = most_sigma(spec, model)
        if used > most * (1.0 + 1e-9):
            out.append(
                f"sigma = {used:.6g} is more than the true one, <= {most:.6g} (Assumption 5)"
            )
    return out


def _unmet_linearity(learner: Learner, spec: ProblemSpec, model: FiniteMDP) -> list[str]:
    features = features_of(spec)
    if "linear-model" in learner.traits:
        error = linearity_error(model, features)
        if error > LINEAR:
            return [
                f"rewards or transitions are up to {error:.3g} off the span of the features "
                "(Assumption 2)"
            ]
    if "linear-bias" in learner.traits:
        error = bias_linearity_error(model, features)
        if error > LINEAR:
            return [
                f"some policy's bias function is {error:.3g} of its span off that of the features "
                "(Assumption 4)"
            ]
    return []


def _constant(spec: ProblemSpec, config: Any, name: str) -> float | None:
    """What the learner uses: its configuration's, else the problem's; None without either."""
    if not hasattr(config, name):
        return None
    given = getattr(config, name)
    return spec.knowledge.get(name) if given is None else float(given)


def most_sigma(spec: ProblemSpec, model: FiniteMDP) -> float:
    """An upper bound of sigma: exact where that is cheap, else of what is declared and uniform."""
    if spec.features is None and (model.available.sum(axis=1) > 1).any():
        return 0.0
    features = features_of(spec)
    if count_policies(model) <= FEW_POLICIES:
        return sigma(model, features)
    policy = uniform_policy(model.available)
    law = stationary(policy_chain(model, policy)[0])
    gram = np.einsum("s,sa,sai,saj->ij", law, policy.probabilities, features, features)
    return min(float(np.linalg.eigvalsh(gram)[0]), spec.knowledge.get("sigma", np.inf))


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
