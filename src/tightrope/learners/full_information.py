"""What the full-information learners on loop-free models share: their checks and their input."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tightrope.errors import ConfigError
from tightrope.estimation.visits import disjoint_balls, empirical_rows, l1_radius
from tightrope.learners.protocol import Experience
from tightrope.types import FloatArray, IntArray, ProblemSpec


def check_loop_free(spec: ProblemSpec, config: Any, name: str) -> None:
    """ConfigError, with what is wrong, unless a full-information learner can run here."""
    if spec.layers is None:
        raise ConfigError(
            f"{name} needs a loop-free problem with layers; tr.unroll(model) makes one of any "
            "episodic model"
        )
    check_numbers(config, name)
    low, high = spec.reward_range
    if low < 0.0 or high > 1.0:
        raise ConfigError(f"{name} needs rewards in [0, 1], the problem has [{low:g}, {high:g}]")
    if spec.num_costs and (spec.cost_ranges[:, 0].min() < -1 or spec.cost_ranges[:, 1].max() > 1):
        raise ConfigError(
            f"{name} needs constraints in [-1, 1], the problem has {spec.cost_ranges.tolist()}"
        )
    if not spec.available.all():
        x, a = (int(i) for i in np.argwhere(~spec.available)[0])
        raise ConfigError(
            f"{name} needs every action everywhere; (state {x}, action {a}) does not exist "
            "(tr.unroll replaces it by a copy of an available one)"
        )


def check_numbers(config: Any, name: str) -> None:
    """ConfigError unless T is whole, delta in (0, 1), scales and tolerance finite and above 0."""
    for item in dataclasses.fields(config):
        key, value = item.name, getattr(config, item.name)
        if key == "episodes":
            if not _finite(value) or value != int(value) or value < 1:
                raise ConfigError(
                    f"{name} must know T: episodes must be a whole number >= 1, got {value!r}; if "
                    f"T is unknown, guess and set doubling=True, or take the preset {name}@doubling"
                    " (labelled: no guarantee of the paper)"
                )
        elif key == "delta":
            if not _finite(value) or not 0.0 < value < 1.0:
                raise ConfigError(f"{name}: delta must be in (0, 1), got {value!r}")
        elif key.endswith("_scale") or key == "tolerance":
            if not _finite(value) or not value > 0.0:
                raise ConfigError(f"{name}: {key} must be a finite number > 0, got {value!r}")
        elif item.type == "bool" and not isinstance(value, bool):
            raise ConfigError(f"{name}: {key} must be True or False, got {value!r}")


def _finite(value: Any) -> bool:
    """Whether a value is a real number, and not a flag."""
    number = isinstance(value, int | float | np.integer | np.floating)
    return number and not isinstance(value, bool) and math.isfinite(value)


def unsolved_notes(unsolved: int) -> list[str]:
    """A sentence, if projections ended above their tolerance."""
    return [f"{unsolved} projections ended above their tolerance"] if unsolved else []


def first_of(
    experience: Experience, name: str
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """States, actions, r_t (S, A) and G_t (m, S, A) of the one episode, or ConfigError."""
    if experience.reward_tables is None or experience.constraint_tables is None:
        raise ConfigError(
            f"{name} needs full information: reward_tables and constraint_tables of each episode"
        )
    return (
        experience.states[0],
        experience.actions[0],
        experience.reward_tables[0],
        experience.constraint_tables[0],
    )


def penalty_of(penalty: Sequence[float] | float | str, num_constraints: int) -> FloatArray:
    """Fixed multipliers (m,), zeros for (); ConfigError if their number or sign is wrong."""
    if isinstance(penalty, str):
        raise ConfigError(
            f"penalty {penalty!r} must be filled in by the simulation ('hindsight'), or be numbers"
        )
    if np.ndim(penalty) == 1 and not len(penalty):  # type: ignore[arg-type]
        return np.zeros(num_constraints)
    try:
        out = np.array(penalty, dtype=np.float64)
    except (TypeError, ValueError):
        out = np.array([np.nan])
    if out.ndim == 0:
        out = np.full(num_constraints, float(out))
    if out.shape != (num_constraints,) or not ((out >= 0.0) & np.isfinite(out)).all():
        raise ConfigError(
            f"penalty must be {num_constraints} finite numbers >= 0 (one a constraint), got "
            f"{penalty!r}"
        )
    return out


def uniform_occupancy(spec: ProblemSpec) -> FloatArray:
    """q_hat_1(x, a) = 1 / (|X_k| |A|)."""
    assert spec.layers is not None
    sizes = np.bincount(spec.layers)[spec.layers]
    q = np.repeat(1.0 / (sizes * spec.num_actions)[:, None], spec.num_actions, axis=1)
    q[-1] = 0.0
    return q


def next_episode(state: Any, name: str) -> None:
    """Count the episode; ConfigError past T."""
    state.episode += 1
    if state.episode - state.began > state.episodes:
        raise ConfigError(
            f"{name} was set for T = {state.episodes} episodes and is asked for one more: its "
            "steps and radii depend on T; set episodes, or doubling=True (preset doubling) if T is "
            "unknown"
        )


def double(state: Any) -> bool:
    """With doubling, after the last episode of the present T: twice the T, q_hat uniform again.

    The counters stay; a new epoch has the radii of the new T. True if this happened.
    """
    if not state.config.doubling or state.episode - state.began < state.episodes:
        return False
    state.began += state.episodes
    state.episodes *= 2
    state.q_hat[:] = uniform_occupancy(state.spec)
    new_epoch(state)
    return True


def new_epoch(state: Any) -> None:
    """Freeze the counters and build the confidence set of [BOBW, Eq. (10)] from them."""
    state.epoch += 1
    state.frozen[:] = state.counts
    centres = empirical_rows(state.triples, state.frozen)
    radii = l1_radius(
        state.frozen,
        state.spec.layers,
        state.episodes,
        state.config.delta,
        state.config.radius_scale,
    )
    state.lost += disjoint_balls(state.centres, state.radii, centres, radii)
    state.centres, state.radii = centres, radii


def lost_notes(lost: int) -> list[str]:
    """A sentence, if the balls of a pair in successive epochs did not meet."""
    if not lost:
        return []
    return [
        f"{lost} times the L1 balls of successive epochs did not meet: the true model was lost "
        "(radius_scale is too small)"
    ]
