"""`FiniteMDP`: a finite constrained Markov decision process, validated once, read-only after."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tightrope.errors import ModelError
from tightrope.model.checks import (
    check_available,
    check_costs,
    check_initial,
    check_next,
    check_rows,
    check_table,
)
from tightrope.model.tables import (
    as_sequence,
    check_known,
    check_names,
    csr_from_parts,
    is_staged,
    leading_table_shape,
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
    ProblemSpec,
    make_criterion,
)


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
        keep(_stages=stages, available=check_available(self, available))
        matrix, correction, kept = check_rows(self, matrix)
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
            next_rewards = check_next(self, rewards_next, "rewards_next", axes, stored)
        keep(
            rewards_next=next_rewards,
            rewards=check_table(self, rewards, "rewards", next_rewards),
        )
        if costs_next is not None:
            costs_next = [
                check_next(self, part, f"costs_next[{i}]", axes, stored)
                for i, part in enumerate(as_sequence(costs_next, "costs_next", "table"))
            ]
        keep(**check_costs(self, costs, costs_next, capacities, senses, cost_names))
        keep(initial=check_initial(self, initial))
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
        reward_range = (float(pays.min()), float(pays.max()))
        if feedback == "bernoulli":  # zeros and ones are drawn, whatever the means
            reward_range, ranges = (0.0, 1.0), np.tile([0.0, 1.0], (self.num_costs, 1))
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
            reward_range=reward_range,
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
            "transitions_shape": self.table_shape(),
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
        `rewards` or `costs` drops the realised values that belonged to the old ones. With another
        kind of criterion every capacity is asked for anew: one an episode is none a step.
        """
        fields = self.to_dict()
        said = changes.get("capacities")
        anew = said if isinstance(said, Mapping) else () if said is None else self.cost_names
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
        kind = changes.get("criterion", fields["criterion"])
        if kind != fields["criterion"]:
            fields.pop("horizon", None)
            fields.pop("discount", None)
        kind = CRITERION_NAMES.get(type(kind), kind)
        others = {*CRITERION_NAMES.values()} - {fields["criterion"]}
        if isinstance(kind, str) and kind in others and "capacities" in fields:
            for name, value in zip(self.cost_names, self.capacities):
                if name not in anew:
                    raise ModelError(
                        f"capacity {value:g} of cost '{name}' is meant for criterion "
                        f"{self.criterion}, not for '{kind}': give its capacity anew "
                        f"(--capacity {name}=X)"
                    )
        if changes.get("transitions") is not None:
            for part in ("data", "indices", "indptr", "shape"):
                fields.pop(f"transitions_{part}")
        return FiniteMDP(**{**fields, **changes})

    def table_shape(self) -> tuple[int, ...]:
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


def require_model(value: Any, what: str) -> None:
    """ModelError, which says what takes one, unless the value is a FiniteMDP."""
    if isinstance(value, FiniteMDP):
        return
    hint = ""
    if isinstance(value, str):
        hint = f" {value!r}: tr.problems has the built-in models, tr.load(path) reads one"
    elif isinstance(getattr(value, "model", None), FiniteMDP):
        hint = ": give its .model"
    raise ModelError(f"{what} takes a FiniteMDP, got a {type(value).__name__}{hint}")


def _rebuild(fields: dict[str, Any]) -> FiniteMDP:
    return FiniteMDP(**fields)
