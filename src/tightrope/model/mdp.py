"""`FiniteMDP`: a finite constrained Markov decision process, validated once, read-only after."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ModelError, ModelWarning
from tightrope.model.tables import (
    as_sequence,
    by_name,
    check_known,
    check_names,
    csr_from_parts,
    is_staged,
    labelled,
    leading_table_shape,
    next_values,
    real_array,
    split_named_costs,
    transition_matrix,
)
from tightrope.types import (
    CRITERION_NAMES,
    BoolArray,
    Criterion,
    Discounted,
    Episodic,
    Feedback,
    FloatArray,
    IntArray,
    ProblemSpec,
    make_criterion,
)

MASK_HINT = "; if the action does not exist there, say so with available=(S, A) bool"
FLOAT32_EPS = float(np.finfo(np.float32).eps)
FLOAT64_EPS = float(np.finfo(np.float64).eps)


class Tables(NamedTuple):
    """A model as plain arrays, in the order in which the kernels take them."""

    start: np.ndarray  #: (R,) int64, first entry of row ``h*S*A + s*A + a``
    stop: np.ndarray  #: (R,) int64
    indices: np.ndarray  #: (nnz,) int32
    data: FloatArray  #: (nnz,)
    rewards: FloatArray  #: (1 or H, S, A)
    costs: FloatArray  #: (m, 1 or H, S, A)
    available: BoolArray  #: (S, A)
    initial: FloatArray  #: (S,)


class FiniteMDP:
    """A finite Markov decision process with m >= 0 named costs.

    All arguments are keywords and carry the names of the model file's keys.

    Parameters
    ----------
    transitions : (S, A, S) or (H, S, A, S) array, or sparse (S*A, S) or (H*S*A, S) matrix
        Probabilities ``P[s, a, s']``; the row of a sparse matrix is ``s*A + a`` (plus ``h*S*A``).
    rewards : (S, A) or (H, S, A)
        Mean reward of a step, any sign and size.
    criterion : Episodic, Average, Discounted, Total, or their name with `horizon` or `discount`
    costs : (m, S, A) or (m, H, S, A), or a mapping from name to (S, A) or (H, S, A)
    capacities : (m,) or a mapping from name to number
        What the expected cost may reach, in the units of the criterion.
    senses : m of '<=' (default) and '>=', or a mapping from name to one (others '<=')
        '>=' makes the capacity a floor.
    initial : (S,)
        Initial law; the default is all mass on state 0.
    available : (S, A) bool
        Which actions exist; the default is all. Rows of actions that do not exist are ignored.
    rewards_next, costs_next : (S, A, S), (m, S, A, S), or one value per stored transition
        Realised reward or cost of the transition (s, a, s'); the mean is taken over s'.
    state_names, action_names, cost_names : sequences of str
    axes : 'sas' or 'ass'
        Axis order of `transitions`, `rewards_next` and `costs_next`: state first, or action first
        (then also a list of A sparse (S, S) matrices, or one of shape (A*S, S)). It must be given
        when S = A, where the two look alike.
    transitions_data, transitions_indices, transitions_indptr, transitions_shape
        The parts of a CSR matrix in place of `transitions`.

    Raises
    ------
    ModelError
        With the place (state, action, stage), what was expected and what came.

    Examples
    --------
    >>> model = FiniteMDP(
    ...     transitions=[[[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]] * 3, rewards=[[0.0, 1.0]] * 3,
    ...     costs=[[[0.0, 1.0]] * 3], capacities=[2.0], criterion=Episodic(4))
    >>> model
    FiniteMDP(S=3, A=2, m=1, Episodic(horizon=4), 9 transitions)
    """

    num_states: int
    num_actions: int
    num_costs: int
    criterion: Criterion
    indptr: np.ndarray  #: (R + 1,) int64, R = S*A or H*S*A
    indices: np.ndarray  #: (nnz,) int32
    data: FloatArray  #: (nnz,)
    rewards: FloatArray  #: (S, A) or (H, S, A)
    costs: FloatArray  #: (m, S, A) or (m, H, S, A)
    rewards_next: FloatArray | None  #: (nnz,)
    costs_next: FloatArray | None  #: (m, nnz)
    capacities: FloatArray  #: (m,)
    senses: tuple[str, ...]
    initial: FloatArray  #: (S,)
    available: BoolArray  #: (S, A)
    state_names: tuple[str, ...] | None
    action_names: tuple[str, ...] | None
    cost_names: tuple[str, ...]
    largest_correction: float  #: largest |row sum - 1| that was corrected on the way in
    _writeable: dict[str, np.ndarray]
    _stages: int
    _tables: Tables
    content_hash: str  #: sha256 over everything above but the correction

    def __init__(
        self,
        *,
        transitions: Any = None,
        rewards: Any = None,
        criterion: Criterion | str,
        horizon: int | None = None,
        discount: float | None = None,
        costs: Any = None,
        capacities: Any = None,
        senses: Sequence[str] | Mapping[str, str] | None = None,
        initial: Any = None,
        available: Any = None,
        rewards_next: Any = None,
        costs_next: Any = None,
        state_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        cost_names: Sequence[str] | None = None,
        axes: str | None = None,
        transitions_data: Any = None,
        transitions_indices: Any = None,
        transitions_indptr: Any = None,
        transitions_shape: Any = None,
    ) -> None:
        def keep(**values: Any) -> None:
            for name, value in values.items():
                if isinstance(value, np.ndarray):
                    self._writeable[name] = value
                    value = value.view()
                    value.flags.writeable = False
                object.__setattr__(self, name, value)

        # Compiled kernels are specialised on writeability, so they get the arrays behind the
        # read-only views (and never write).
        object.__setattr__(self, "_writeable", {})

        if isinstance(costs, Mapping):
            cost_names, costs, capacities = split_named_costs(costs, capacities, cost_names)
        rewards = None if rewards is None else real_array(rewards, "rewards")
        costs = None if costs is None else real_array(costs, "costs")
        try:
            criterion = make_criterion(criterion, horizon, discount)
        except ValueError as error:
            raise ModelError(str(error)) from error
        parts = (transitions_data, transitions_indices, transitions_indptr, transitions_shape)
        if any(part is not None for part in parts):
            if transitions is not None or any(part is None for part in parts):
                raise ModelError(
                    "give either transitions, or all of transitions_data, transitions_indices, "
                    "transitions_indptr and transitions_shape"
                )
            transitions = csr_from_parts(*parts)
        if transitions is None:
            raise ModelError("transitions are missing")
        table_shape = leading_table_shape(rewards, available, costs)
        matrix, num_states, num_actions, stages, order = transition_matrix(
            transitions, table_shape, axes
        )
        keep(
            num_states=num_states,
            num_actions=num_actions,
            criterion=criterion,
            state_names=check_names(state_names, num_states, "state_names"),
            action_names=check_names(action_names, num_actions, "action_names"),
        )
        if stages > 1 or is_staged(transitions):
            if not isinstance(criterion, Episodic):
                raise ModelError(
                    f"per-step transitions need an episodic criterion, got {criterion}"
                )
            if stages != criterion.horizon:
                raise ModelError(
                    f"transitions have {stages} stages, the horizon is {criterion.horizon}"
                )
        keep(_stages=stages, available=self._check_available(available))
        matrix, correction, kept = self._check_rows(matrix)
        order = np.flatnonzero(kept) if order is None else order[kept]
        keep(
            indptr=matrix.indptr.astype(np.int64),
            indices=matrix.indices.astype(np.int32),
            data=matrix.data.astype(np.float64),
            largest_correction=correction,
        )
        if rewards is None and rewards_next is None:
            raise ModelError("rewards are missing (give rewards or rewards_next)")
        stored = kept.size, order
        next_rewards = None
        if rewards_next is not None:
            next_rewards = self._check_next(rewards_next, "rewards_next", axes, stored)
        keep(
            rewards_next=next_rewards,
            rewards=self._check_table(rewards, "rewards", next_rewards),
        )
        if costs_next is not None:
            costs_next = [
                self._check_next(part, f"costs_next[{i}]", axes, stored)
                for i, part in enumerate(as_sequence(costs_next, "costs_next", "table"))
            ]
        self._check_costs(costs, costs_next, capacities, senses, cost_names, keep)
        keep(initial=self._check_initial(initial))
        keep(content_hash=self._hash(), _tables=self._kernel_tables())

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a FiniteMDP is read-only; use model.replace({name}=...)")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.to_dict(),)

    def __repr__(self) -> str:
        return (
            f"FiniteMDP(S={self.num_states}, A={self.num_actions}, m={self.num_costs}, "
            f"{self.criterion}, {self.data.size} transitions)"
        )

    # ------------------------------------------------------------------ views

    @property
    def horizon(self) -> int:
        """Steps of an episode; an error for other criteria."""
        if not isinstance(self.criterion, Episodic):
            raise ModelError(f"expected an episodic model, got criterion {self.criterion}")
        return self.criterion.horizon

    @property
    def num_tables(self) -> int:
        """Number of stored transition tables: 1, or the horizon for per-step transitions."""
        return self._stages

    @property
    def staged(self) -> bool:
        """Whether transitions, rewards or costs differ by step."""
        return self.num_tables > 1 or self.rewards.ndim == 3 or self.costs.ndim == 4

    @property
    def signs(self) -> FloatArray:
        """(m,) +1 for '<=' and -1 for '>='; ``signs * (cost - capacity) <= 0`` is satisfaction."""
        return np.array([1.0 if sense == "<=" else -1.0 for sense in self.senses])

    def matrix(self, stage: int = 0) -> sp.csr_array:
        """Sparse (S*A, S) transition matrix of one stage; row ``s*A + a``."""
        rows = self.num_states * self.num_actions
        first = (stage if self.num_tables > 1 else 0) * rows
        low, high = self.indptr[first], self.indptr[first + rows]
        return sp.csr_array(
            (
                self.data[low:high],
                self.indices[low:high],
                self.indptr[first : first + rows + 1] - low,
            ),
            shape=(rows, self.num_states),
        )

    def dense(self) -> FloatArray:
        """Transitions as a dense (S, A, S) or (H, S, A, S) array."""
        shape = (self.num_states, self.num_actions, self.num_states)
        tables = [self.matrix(h).toarray().reshape(shape) for h in range(self.num_tables)]
        return np.stack(tables) if self.num_tables > 1 else tables[0]

    def state_name(self, state: int) -> str:
        """Name of a state, or its number."""
        return self.state_names[state] if self.state_names else str(state)

    def action_name(self, action: int) -> str:
        """Name of an action, or its number."""
        return self.action_names[action] if self.action_names else str(action)

    def spec(self, *, feedback: Feedback = "sampled", **extra: Any) -> ProblemSpec:
        """What a learner may know; `extra` adds layers, features or declared knowledge."""
        pays = self.rewards if self.rewards_next is None else self.rewards_next
        if feedback == "mean":
            pays = self.rewards
        consumes = self.costs if self.costs_next is None or feedback == "mean" else self.costs_next
        flat = [channel + 0.0 for channel in consumes]  # no -0.0 in messages
        ranges = np.array([[x.min(), x.max()] for x in flat]).reshape(self.num_costs, 2)
        return ProblemSpec(
            num_states=self.num_states,
            num_actions=self.num_actions,
            num_costs=self.num_costs,
            criterion=self.criterion,
            available=self.available,
            initial=self.initial,
            cost_names=self.cost_names,
            capacities=self.capacities,
            signs=self.signs,
            staged=self.staged,
            reward_range=(float(pays.min()), float(pays.max())),
            cost_ranges=ranges,
            feedback=feedback,
            **extra,
        )

    def tables(self) -> Tables:
        """The arrays that compiled kernels take; kernels read them only."""
        return self._tables

    def _kernel_tables(self) -> Tables:
        arrays: dict[str, np.ndarray] = self._writeable
        shape = (self.num_states, self.num_actions)
        stages = self.costs.shape[1] if self.costs.ndim == 4 else 1
        return Tables(
            start=arrays["indptr"][:-1],
            stop=arrays["indptr"][1:],
            indices=arrays["indices"],
            data=arrays["data"],
            rewards=arrays["rewards"].reshape(-1, *shape),
            costs=arrays["costs"].reshape(self.num_costs, stages, *shape),
            available=arrays["available"],
            initial=arrays["initial"],
        )

    # ------------------------------------------------------- copies and dicts

    def to_dict(self) -> dict[str, Any]:
        """The model file's keys and values; ``FiniteMDP(**d)`` gives the same model."""
        out: dict[str, Any] = {
            "transitions_data": self.data,
            "transitions_indices": self.indices,
            "transitions_indptr": self.indptr,
            "transitions_shape": self._shape(),
            "rewards": self.rewards,
            "costs": self.costs,
            "capacities": self.capacities,
            "initial": self.initial,
            "available": self.available,
            "senses": list(self.senses),
            "cost_names": list(self.cost_names),
            "criterion": CRITERION_NAMES[type(self.criterion)],
        }
        if isinstance(self.criterion, Episodic):
            out["horizon"] = self.criterion.horizon
        if isinstance(self.criterion, Discounted):
            out["discount"] = self.criterion.discount
        for name in ("state_names", "action_names"):
            if getattr(self, name) is not None:
                out[name] = list(getattr(self, name))
        for name in ("rewards_next", "costs_next"):
            if getattr(self, name) is not None:
                out[name] = getattr(self, name)
        return out

    def replace(self, **changes: Any) -> FiniteMDP:
        """A copy with other values for some of the constructor's keywords.

        `capacities` and `senses` may be mappings that name only those that change. Replacing
        `rewards` or `costs` drops the realised values that belonged to the old ones.
        """
        fields = self.to_dict()
        for key in ("capacities", "senses"):
            wanted = changes.get(key)
            if isinstance(wanted, Mapping) and not isinstance(changes.get("costs"), Mapping):
                check_known(wanted, self.cost_names, key)
                old = zip(self.cost_names, fields[key])
                changes[key] = [wanted.get(name, value) for name, value in old]
        if "rewards" in changes:
            fields.pop("rewards_next", None)
        if "costs" in changes:
            fields.pop("costs_next", None)
            count = 0 if changes["costs"] is None else len(changes["costs"])
            if isinstance(changes["costs"], Mapping) or count != self.num_costs:
                for name in ("cost_names", "capacities", "senses"):
                    fields.pop(name, None)
        if changes.get("criterion", fields["criterion"]) != fields["criterion"]:
            fields.pop("horizon", None)
            fields.pop("discount", None)
        if changes.get("transitions") is not None:
            for part in ("data", "indices", "indptr", "shape"):
                fields.pop(f"transitions_{part}")
        return FiniteMDP(**{**fields, **changes})

    def _shape(self) -> tuple[int, ...]:
        tail = (self.num_states, self.num_actions, self.num_states)
        return (self.num_tables, *tail) if self.num_tables > 1 else tail

    def _hash(self) -> str:
        digest = hashlib.sha256()
        for name, value in sorted(self.to_dict().items()):
            digest.update(name.encode())
            if isinstance(value, np.ndarray):
                # -0.0 and 0.0 are the same number, so they get the same bytes
                value = value + 0.0 if value.dtype.kind == "f" else value.astype(np.int64)
                digest.update(json.dumps(value.shape).encode())
                digest.update(np.ascontiguousarray(value).tobytes())
            else:
                digest.update(json.dumps(value).encode())
        return digest.hexdigest()

    # ---------------------------------------------------------------- checks

    def _place(self, row: int) -> str:
        """Where row ``h*S*A + s*A + a`` stands, in words."""
        stage, rest = divmod(row, self.num_states * self.num_actions)
        state, action = divmod(rest, self.num_actions)
        where = [f"stage {stage}"] if stage else []
        where.append(labelled("state", state, self.state_names))
        where.append(labelled("action", action, self.action_names))
        return f"({', '.join(where)})"

    def _check_available(self, available: Any) -> BoolArray:
        shape = (self.num_states, self.num_actions)
        if available is None:
            return np.ones(shape, dtype=bool)
        mask = np.array(available)
        if mask.shape != shape:
            raise ModelError(f"available has shape {mask.shape}, expected (S, A) = {shape}")
        if mask.dtype != bool and not np.isin(mask, (0, 1)).all():
            raise ModelError("available must hold booleans (or 0 and 1)")
        mask = mask.astype(bool)
        empty = np.flatnonzero(~mask.any(axis=1))
        if empty.size:
            raise ModelError(
                f"{labelled('state', int(empty[0]), self.state_names)} has no available action; "
                "every state needs at least one (an absorbing state keeps one that returns to it)"
            )
        return mask

    def _check_rows(self, matrix: sp.csr_array) -> tuple[sp.csr_array, float, BoolArray]:
        """Non-negative rows that sum to one; rows of unavailable actions are emptied.

        Returns the matrix, the largest correction and which of the given entries were kept.
        """
        open_rows = np.tile(self.available.ravel(), self.num_tables)
        lengths = np.diff(matrix.indptr)
        entry_row = np.repeat(np.arange(matrix.shape[0]), lengths)
        used = open_rows[entry_row]
        bad = np.flatnonzero(used & ~(np.isfinite(matrix.data) & (matrix.data >= 0)))
        if bad.size:
            k = int(bad[0])
            raise ModelError(
                f"transition {self._place(int(entry_row[k]))} to state {matrix.indices[k]} is "
                f"{matrix.data[k]}, expected a finite probability >= 0"
            )
        kept = used & (matrix.data > 0)
        if not kept.all():
            counts = np.bincount(entry_row[kept], minlength=matrix.shape[0])
            indptr = np.concatenate([[0], np.cumsum(counts)])
            matrix = sp.csr_array(
                (matrix.data[kept], matrix.indices[kept], indptr), shape=matrix.shape
            )
            lengths, entry_row = counts, entry_row[kept]
        sums = np.bincount(entry_row, weights=matrix.data, minlength=matrix.shape[0])
        off = np.abs(sums - 1.0) * open_rows
        # float32-born rows are off by some 1e-7, longer ones by more
        allowed = 8 * FLOAT32_EPS * np.sqrt(np.maximum(lengths, 1))
        bad = np.flatnonzero(off > allowed)
        if bad.size:
            row = int(bad[0])
            if lengths[row] == 0:
                raise ModelError(
                    f"row {self._place(row)} is all zero, expected probabilities that sum to 1"
                    + MASK_HINT
                )
            raise ModelError(
                f"row {self._place(row)} sums to {sums[row]:.10g}, expected 1; is a transition "
                "missing or wrong? (nothing is divided by its sum unless you do it)"
            )
        correct = off > 4 * FLOAT64_EPS * np.maximum(lengths, 1)
        if not correct.any():
            return matrix, 0.0, kept
        largest = float(off[correct].max())
        data = matrix.data / np.where(correct, sums, 1.0)[entry_row]
        fixed = sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
        if largest > 1e-12:
            warnings.warn(
                f"{int(correct.sum())} transition rows did not sum to 1 exactly and were divided "
                f"by their sums; the largest correction is {largest:.3g}",
                ModelWarning,
                stacklevel=3,
            )
        return fixed, largest, kept

    def _check_next(
        self, values: Any, name: str, axes: str | None, stored: tuple[int, IntArray]
    ) -> FloatArray:
        """Realised values aligned with the stored transitions (one channel).

        `stored` is the number of entries that were passed, and which of them each stored entry is.
        """
        values = next_values(values, name, axes)
        entry_row = np.repeat(np.arange(self.indptr.size - 1), np.diff(self.indptr))
        if values.shape == self._shape() or values.shape == self._shape()[-3:]:
            flat = values.reshape(-1, self.num_states)
            out = flat[entry_row % flat.shape[0], self.indices]
        elif sp.issparse(values) and values.shape == (self.indptr.size - 1, self.num_states):
            out = np.asarray(values[entry_row, self.indices]).reshape(-1)
        elif values.shape == stored[:1]:
            out = values[stored[1]]
        else:
            raise ModelError(
                f"{name} has shape {values.shape}, expected (S, A, S) = {self._shape()[-3:]} or "
                f"one value per stored transition ({stored[0]},)"
            )
        bad = np.flatnonzero(~np.isfinite(out))
        if bad.size:
            row = int(np.searchsorted(self.indptr, bad[0], side="right") - 1)
            raise ModelError(
                f"{name} {self._place(row)} to state {self.indices[bad[0]]} is {out[bad[0]]}, "
                "expected a finite number"
            )
        return out

    def _mean_of_next(self, values: FloatArray) -> FloatArray:
        rows = np.repeat(np.arange(self.indptr.size - 1), np.diff(self.indptr))
        mean = np.bincount(rows, weights=self.data * values, minlength=self.indptr.size - 1)
        return np.asarray(mean, dtype=np.float64).reshape(self._shape()[:-1])

    def _check_table(self, table: Any, name: str, values_next: FloatArray | None) -> FloatArray:
        """A finite (S, A) or (H, S, A) table; zero where the action is not available."""
        shape = (self.num_states, self.num_actions)
        if table is None:
            assert values_next is not None
            return self._mean_of_next(values_next)
        out = np.asarray(table)
        if out.shape == (self.num_states,) and self.num_states != self.num_actions:
            raise ModelError(
                f"{name} has shape {out.shape}; for rewards of the state alone, r(s), pass "
                f"np.repeat(r[:, None], {self.num_actions}, axis=1)"
            )
        stages = self.criterion.horizon if isinstance(self.criterion, Episodic) else None
        if out.shape != shape and (stages is None or out.shape != (stages, *shape)):
            expected = f"(S, A) = {shape}" + (
                f" or (H, S, A) = {(stages, *shape)}" if stages else ""
            )
            raise ModelError(f"{name} has shape {out.shape}, expected {expected}")
        out = np.where(self.available, out, 0.0)
        bad = np.argwhere(~np.isfinite(out))
        if bad.size:
            place = tuple(bad[0])
            row = int(np.ravel_multi_index(place, out.shape))
            raise ModelError(
                f"{name} {self._place(row)} is {out[place]}, expected a finite number"
                + (MASK_HINT if out[place] == -np.inf else "")
            )
        if values_next is not None:
            mean = self._mean_of_next(values_next)
            worst = np.abs(mean - out)
            place = np.unravel_index(int(worst.argmax()), worst.shape)
            if worst[place] > 1e-8 * max(1.0, float(np.abs(out).max())):
                row = int(np.ravel_multi_index(place, worst.shape))
                raise ModelError(
                    f"{name} {self._place(row)} is "
                    f"{np.broadcast_to(out, worst.shape)[place]:.10g} but the realised values of "
                    f"the transitions there have mean {mean[place]:.10g}"
                )
        return out

    def _check_costs(
        self,
        costs: FloatArray | None,
        costs_next: list[FloatArray] | None,
        capacities: Any,
        senses: Sequence[str] | Mapping[str, str] | None,
        cost_names: Sequence[str] | None,
        keep: Any,
    ) -> None:
        if costs is not None:
            shape = costs.shape
            if costs.size and (len(shape) < 3 or shape[-2:] != (self.num_states, self.num_actions)):
                raise ModelError(
                    f"costs has shape {shape}, expected (m, S, A) = (m, {self.num_states}, "
                    f"{self.num_actions}) or (m, H, S, A); for one cost pass costs[None]"
                )
        count = len(costs) if costs is not None else len(costs_next or ())
        if costs_next is not None and len(costs_next) != count:
            raise ModelError(f"costs_next has {len(costs_next)} costs, costs has {count}")
        for label, value in (("capacities", capacities), ("senses", senses)):
            if value is not None and not isinstance(value, Mapping) and np.size(value) != count:
                raise ModelError(f"{label} has length {np.size(value)}, expected m = {count} costs")
        names = check_names(cost_names, count, "cost_names")
        if names is None:
            names = ("cost",) if count == 1 else tuple(f"cost_{i}" for i in range(count))
        if count and capacities is None:
            raise ModelError(
                f"capacities are missing: expected m = {count} numbers, such as "
                f"capacities={dict.fromkeys(names, 1.0)}"
            )
        tables = [
            self._check_table(
                None if costs is None else costs[i],
                f"costs '{names[i]}'",
                None if costs_next is None else costs_next[i],
            )
            for i in range(count)
        ]
        capacities = by_name(capacities, names, "capacities")
        if isinstance(senses, Mapping):
            check_known(senses, names, "senses")
            senses = [senses.get(name, "<=") for name in names]
        if senses is not None:
            senses = as_sequence(senses, "senses", "'<=' or '>='")
        limits = real_array([] if capacities is None else capacities, "capacities").reshape(-1)
        if np.isnan(limits).any() or (~np.isfinite(limits)).any():
            i = int(np.flatnonzero(~np.isfinite(limits))[0])
            raise ModelError(f"capacity of '{names[i]}' is {limits[i]}, expected a finite number")
        kinds = ("<=",) * count if senses is None else tuple(str(sense) for sense in senses)
        for name, kind in zip(names, kinds):
            if kind not in ("<=", ">="):
                raise ModelError(f"sense of '{name}' is {kind!r}, expected '<=' or '>='")
        shape = (self.num_states, self.num_actions)
        keep(
            num_costs=count,
            cost_names=names,
            costs=np.stack(tables) if count else np.zeros((0, *shape)),
            costs_next=None
            if costs_next is None
            else np.array(costs_next, dtype=np.float64).reshape(count, self.data.size),
            capacities=limits,
            senses=kinds,
        )

    def _check_initial(self, initial: Any) -> FloatArray:
        if initial is None:
            out = np.zeros(self.num_states)
            out[0] = 1.0
            return out
        out = real_array(initial, "initial")
        if out.shape != (self.num_states,):
            raise ModelError(f"initial has shape {out.shape}, expected (S,) = ({self.num_states},)")
        bad = np.flatnonzero(~(np.isfinite(out) & (out >= 0)))
        if bad.size:
            raise ModelError(
                f"initial probability of {labelled('state', int(bad[0]), self.state_names)} is "
                f"{out[bad[0]]}, expected a finite number >= 0"
            )
        total = math.fsum(out)
        if abs(total - 1.0) > 8 * FLOAT32_EPS * math.sqrt(self.num_states):
            raise ModelError(f"initial sums to {total:.10g}, expected 1")
        return out if abs(total - 1.0) <= 4 * FLOAT64_EPS * self.num_states else out / total


def _rebuild(fields: dict[str, Any]) -> FiniteMDP:
    return FiniteMDP(**fields)
