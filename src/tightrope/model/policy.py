"""Policies as data: deterministic, stochastic, and mixtures of policies."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tightrope.errors import ModelError
from tightrope.types import BoolArray, FloatArray, IntArray

ROW_SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class DeterministicPolicy:
    """One action a state: `actions` is (S,), or (H, S) when it differs by step."""

    actions: IntArray

    @property
    def staged(self) -> bool:
        return self.actions.ndim == 2


@dataclass(frozen=True, eq=False)
class StochasticPolicy:
    """`probabilities` is (S, A), or (H, S, A) when it differs by step; rows sum to 1."""

    probabilities: FloatArray

    @property
    def staged(self) -> bool:
        return self.probabilities.ndim == 3


@dataclass(frozen=True, eq=False)
class MixturePolicy:
    """Draw one component per episode with probability `weights` (K,), then follow it.

    Components are deterministic or stochastic policies, never mixtures.
    """

    components: tuple[DeterministicPolicy | StochasticPolicy, ...]
    weights: FloatArray

    @cached_property
    def actions(self) -> IntArray | None:
        """(K, H, S) int32 if every component is deterministic and of the same shape, else None."""
        tables = [p.actions for p in self.components if isinstance(p, DeterministicPolicy)]
        if len(tables) < len(self.components) or len({t.shape for t in tables}) > 1:
            return None
        stack = np.array(tables, dtype=np.int32)
        return stack if stack.ndim == 3 else stack[:, None]


Policy = DeterministicPolicy | StochasticPolicy | MixturePolicy


def uniform_policy(available: BoolArray) -> StochasticPolicy:
    """Every available action with the same probability.

    >>> uniform_policy(np.array([[True, True], [True, False]])).probabilities
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    return StochasticPolicy(available / available.sum(axis=1, keepdims=True))


def mixture(policies: Sequence[Policy], weights: FloatArray) -> Policy:
    """Mixture of policies; nested mixtures are flattened and weight-0 components dropped.

    Raises ModelError if the weights are negative or do not sum to 1.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (len(policies),):
        raise ModelError(f"weights have shape {weights.shape}, expected ({len(policies)},)")
    if not ((weights >= 0).all() and abs(weights.sum() - 1.0) <= ROW_SUM_TOLERANCE):
        raise ModelError(f"mixture weights must be >= 0 and sum to 1, got {weights}")
    flat: list[DeterministicPolicy | StochasticPolicy] = []
    shares: list[float] = []
    for policy, weight in zip(policies, weights):
        if isinstance(policy, MixturePolicy):
            flat.extend(policy.components)
            shares.extend(weight * policy.weights)
        else:
            flat.append(policy)
            shares.append(float(weight))
    kept = [i for i, share in enumerate(shares) if share > 0]
    if len(kept) == 1:
        return flat[kept[0]]
    return MixturePolicy(tuple(flat[i] for i in kept), np.array([shares[i] for i in kept]))


def probabilities(policy: DeterministicPolicy | StochasticPolicy, num_actions: int) -> FloatArray:
    """The policy as (S, A) or (H, S, A) probabilities."""
    if isinstance(policy, StochasticPolicy):
        return policy.probabilities
    return np.eye(num_actions)[policy.actions]


def check_policy(policy: Policy, available: BoolArray, horizon: int | None) -> None:
    """Raise ModelError, with the place, unless the policy fits the model.

    `horizon` is the number of stages that a staged policy must have; None allows none.
    """
    if not isinstance(policy, Policy):
        raise ModelError(
            f"policy is a {type(policy).__name__}, expected a DeterministicPolicy, a "
            "StochasticPolicy or a MixturePolicy"
        )
    if isinstance(policy, MixturePolicy):
        for component in policy.components:
            if isinstance(component, MixturePolicy):
                raise ModelError("a component of a mixture is a mixture: mixture() joins them")
            check_policy(component, available, horizon)
        mixture(policy.components, policy.weights)
        return
    shape = available.shape
    table = policy.actions if isinstance(policy, DeterministicPolicy) else policy.probabilities
    tail = shape[:1] if isinstance(policy, DeterministicPolicy) else shape
    if not isinstance(table, np.ndarray) or table.dtype.kind not in "iuf":
        raise ModelError("a policy holds an array of numbers, got " + repr(table)[:60])
    if table.shape != tail and (horizon is None or table.shape != (horizon, *tail)):
        expected = str(tail) + (f" or {(horizon, *tail)}" if horizon else "")
        raise ModelError(f"policy has shape {table.shape}, expected {expected}")
    if isinstance(policy, DeterministicPolicy):
        if table.dtype.kind not in "iu" or table.min() < 0 or table.max() >= shape[1]:
            raise ModelError(f"policy actions must be whole numbers in 0..{shape[1] - 1}")
        bad = np.argwhere(~available[np.arange(shape[0]), table])
        if bad.size:
            place = tuple(int(i) for i in bad[0])
            raise ModelError(
                f"policy takes action {table[place]} in state {place[-1]}, which is not available"
            )
        return
    if not np.isfinite(table).all() or (table < 0).any():
        place = tuple(int(i) for i in np.argwhere(~(np.isfinite(table) & (table >= 0)))[0])
        raise ModelError(
            f"policy probability {place} is {table[place]}, expected a finite number >= 0"
        )
    off = np.abs(table.sum(axis=-1) - 1.0)
    if off.max() > ROW_SUM_TOLERANCE:
        place = tuple(int(i) for i in np.unravel_index(int(off.argmax()), off.shape))
        raise ModelError(f"policy row {place} sums to {table[place].sum():.10g}, expected 1")
    bad = np.argwhere((table > 0) & ~available)
    if bad.size:
        place = tuple(int(i) for i in bad[0])
        raise ModelError(
            f"policy takes action {place[-1]} in state {place[-2]}, which is not available"
        )


def save_policy(path: str | Path, policy: Policy) -> None:
    """Write a policy to an ``.npz`` file (arrays only, never pickled); ModelError if it is none."""
    if not isinstance(policy, Policy):
        raise ModelError(f"expected a policy to save, got a {type(policy).__name__}")
    parts = policy.components if isinstance(policy, MixturePolicy) else (policy,)
    weights = policy.weights if isinstance(policy, MixturePolicy) else np.ones(1)
    arrays: dict[str, np.ndarray] = {"weights": weights}
    for i, part in enumerate(parts):
        if isinstance(part, DeterministicPolicy):
            arrays[f"actions_{i}"] = part.actions
        else:
            arrays[f"probabilities_{i}"] = part.probabilities
    with open(path, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load_policy(path: str | Path) -> Policy:
    """Read a policy that `save_policy` wrote; ModelError if the file holds something else."""
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        parts: list[DeterministicPolicy | StochasticPolicy] = [
            DeterministicPolicy(arrays[f"actions_{i}"])
            if f"actions_{i}" in arrays
            else StochasticPolicy(arrays[f"probabilities_{i}"])
            for i in range(arrays["weights"].size)
        ]
        weights = arrays["weights"]
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ModelError(f"{path} is no policy file: {error}") from error
    return parts[0] if len(parts) == 1 else MixturePolicy(tuple(parts), weights)
