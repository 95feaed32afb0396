"""The quantities and theorems of [BOBW] Germano et al. 2023 as functions, with their numbers.

Every bound is a formula evaluated at given constants. It is a theorem only with the constants of
`pdgd_ops.theory`; with tuned ones the same formula is a yardstick, and says so (`proved`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats

from tightrope.errors import ConfigError, ModelError
from tightrope.kernels.layered import largest_interval_regret
from tightrope.model.layered import LayeredMDP
from tightrope.planning.layered import margin
from tightrope.types import FloatArray, IntArray, ProblemSpec, as_whole


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The sizes that enter the bounds: T, delta, |X| (x_L included), |A|, L and m.

    >>> Setting(episodes=10_000, delta=0.05, num_states=17, num_actions=3, num_layers=4,
    ...     num_constraints=2).pairs
    51
    """

    episodes: int
    delta: float
    num_states: int
    num_actions: int
    num_layers: int
    num_constraints: int

    def __post_init__(self) -> None:
        if not 0.0 < self.delta < 1.0:
            raise ConfigError(f"delta must be in (0, 1), got {self.delta!r}")
        for name, value in vars(self).items():
            if name != "delta":
                as_whole(value, name, 0 if name == "num_constraints" else 1)

    @property
    def pairs(self) -> int:
        """|X| |A|."""
        return self.num_states * self.num_actions


def setting_of(spec: ProblemSpec, episodes: int, delta: float) -> Setting:
    """The setting of a loop-free problem."""
    return Setting(
        episodes=episodes,
        delta=delta,
        num_states=spec.num_states,
        num_actions=spec.num_actions,
        num_layers=spec.horizon,
        num_constraints=spec.num_costs,
    )


# ------------------------------------------------------------------ constants and conditions


def primal_constant(s: Setting) -> float:
    """C = 5 |X| |A| / L, [BOBW, Appendix C.2]."""
    return 5.0 * s.pairs / s.num_layers


def best_primal_constant(s: Setting) -> float:
    """C = sqrt(|X| |A| / (2 L)), which minimises Theorem 3 where no dual argument needs more."""
    return math.sqrt(s.pairs / (2.0 * s.num_layers))


def dual_constant(s: Setting) -> float:
    """K = 100 m |X| |A|, [BOBW, Appendix C.2]."""
    return 100.0 * s.num_constraints * s.pairs


def dual_step(s: Setting) -> float:
    """eta = 1 / (K sqrt(T ln(T^2 / delta))), [BOBW, Section 4 and Appendix C.2]."""
    return 1.0 / (dual_constant(s) * math.sqrt(s.episodes * math.log(s.episodes**2 / s.delta)))


def rho(loop_free: LayeredMDP, constraints: FloatArray) -> float:
    """max_q min_i -<G_i, q> over the tables (n, S, A): the mean's, or of all G_t stacked.

    [BOBW, Section 3.5]; `problems.adversarial.feasibility_margin` takes a whole problem.
    """
    return margin(loop_free, constraints).value


def zeta(s: Setting, rho: float) -> float:
    """zeta = 20 m L^2 / rho^2, [BOBW, Theorem 4]; ModelError unless rho > 0."""
    _require_margin(rho)
    return 20.0 * s.num_constraints * s.num_layers**2 / rho**2


def condition_2(s: Setting, rho: float) -> bool:
    """Whether rho >= T^(-1/8) L sqrt(20 m), [BOBW, Condition 2].

    >>> small = Setting(episodes=10**6, delta=0.05, num_states=4, num_actions=2, num_layers=2,
    ...     num_constraints=1)
    >>> condition_2(small, 1.6), condition_2(small, 1.5)
    (True, False)
    """
    return rho >= condition_2_margin(s)


def condition_2_margin(s: Setting) -> float:
    """The least rho that meets Condition 2 at this T."""
    return s.episodes ** (-1 / 8) * s.num_layers * math.sqrt(20.0 * s.num_constraints)


def condition_2_episodes(s: Setting, rho: float) -> float:
    """The least T that meets Condition 2 at this rho: (20 m)^4 (L / rho)^8."""
    _require_margin(rho)
    return (20.0 * s.num_constraints) ** 4 * (s.num_layers / rho) ** 8


def alpha(s: Setting, rho: float) -> float:
    """alpha = rho / (L + rho): the share of OPT that Theorem 7 can promise.

    Appendix C.4 uses [G q*]_i <= 1 where ||q*||_1 = L gives only <= L; with q~ = alpha q* +
    (1 - alpha) q° this is what its argument yields.
    """
    _require_margin(rho)
    return rho / (s.num_layers + rho)


def alpha_printed(rho: float) -> float:
    """rho / (1 + rho) as Theorem 7 prints it: wrong for L > 1 (see `ten_layers`)."""
    _require_margin(rho)
    return rho / (1.0 + rho)


def _require_margin(rho: float) -> None:
    if not rho > 0.0:
        raise ModelError(f"rho = {rho:.6g} <= 0: infeasible, zeta and alpha are undefined")


# -------------------------------------------------------------------------------- error terms


def occupancy_error(s: Setting) -> float:
    """E^q_delta, [BOBW, Lemma 2]: bounds sum_t ||q_t - q_hat_t||_1 with probability 1 - 2 delta."""
    t, size = s.episodes, s.num_layers * s.num_states
    return 4.0 * size * math.sqrt(2.0 * t * math.log(1.0 / s.delta)) + 6.0 * size * math.sqrt(
        2.0 * t * s.num_actions * math.log(t * s.pairs / s.delta)
    )


def constraint_error(s: Setting, length: int | None = None) -> float:
    """E^G of an interval of this length (default T), [BOBW, Lemma 4]."""
    n = s.episodes if length is None else length
    return 2.0 * s.num_layers * math.sqrt(2.0 * n * math.log(s.episodes**2 / s.delta))


def reward_error(s: Setting) -> float:
    """E^r_delta = (L / sqrt 2) sqrt(T ln(2 / delta)), [BOBW, Lemma 3]."""
    return s.num_layers / math.sqrt(2.0) * math.sqrt(s.episodes * math.log(2.0 / s.delta))


def dual_regret(s: Setting, eta: float) -> float:
    """R^D_T(0) <= (m L^2 / 2) eta T, [BOBW, Appendix C.1.1]."""
    return 0.5 * s.num_constraints * s.num_layers**2 * eta * s.episodes


def primal_regret(
    s: Setting, constant: float, largest_loss: float, length: int | None = None
) -> float:
    """R^P of an interval (default T), [BOBW, Theorem 3], with probability 1 - 2 delta.

    `constant` is C, `largest_loss` bounds ||l_t||_inf.
    """
    n = s.episodes if length is None else length
    root = math.sqrt(s.episodes)
    return largest_loss * (
        occupancy_error(s) + s.num_layers * constant * root + 0.5 * s.pairs * n / (constant * root)
    )


def reps_regret(s: Setting, eta: float) -> float:
    """Regret of UC-O-REPS with losses in [0, 1]: L ln(|X|^2 |A| / L^2) / eta + eta L T / 2 + E^q.

    The two first terms are mirror descent's with the unnormalised KL, which starts at most
    L ln(|X|^2 |A| / L^2) away (Rosenberg and Mansour 2019).
    """
    log_term = math.log(s.num_states**2 * s.num_actions / s.num_layers**2)
    return (
        s.num_layers * log_term / eta + 0.5 * eta * s.num_layers * s.episodes + occupancy_error(s)
    )


# ----------------------------------------------------------------------------------- theorems


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What a theorem says of R_T and V_T at the chosen T (infinite where it says nothing)."""

    theorem: str
    regret: float
    violation: float
    probability: float
    proved: bool


def theorem_5(
    s: Setting, rho: float, *, stochastic_rewards: bool, constant: float, eta: float, proved: bool
) -> Bound:
    """Stochastic constraints under Condition 2, [BOBW, Theorem 5]."""
    z = zeta(s, rho)
    regret = (
        (reward_error(s) if stochastic_rewards else 0.0)
        + z * constraint_error(s)
        + z * occupancy_error(s)
        + dual_regret(s, eta)
        + primal_regret(s, constant, 1.0 + z)
    )
    violation = z / eta + occupancy_error(s)
    return Bound(
        theorem="Theorem 5",
        regret=regret,
        violation=violation,
        probability=1.0 - (5 if stochastic_rewards else 4) * s.delta,
        proved=proved and condition_2(s, rho),
    )


def theorem_6(
    s: Setting, *, stochastic_rewards: bool, constant: float, eta: float, proved: bool
) -> Bound:
    """Stochastic constraints without Condition 2, [BOBW, Theorem 6]."""
    cap = s.num_constraints * s.episodes**0.25
    regret = (
        (reward_error(s) if stochastic_rewards else 0.0)
        + cap * (constraint_error(s) + occupancy_error(s))
        + dual_regret(s, eta)
        + primal_regret(s, constant, 1.0 + cap)
    )
    return Bound(
        theorem="Theorem 6",
        regret=regret,
        violation=violation_without_condition_2(s, eta),
        probability=1.0 - (5 if stochastic_rewards else 4) * s.delta,
        proved=proved,
    )


def violation_without_condition_2(s: Setting, eta: float) -> float:
    """V_T <= (2 + 2 L) T^(1/4) / eta + E^q, [BOBW, Lemma 16 and Theorem 6]."""
    return (2.0 + 2.0 * s.num_layers) * s.episodes**0.25 / eta + occupancy_error(s)


def theorem_7(
    s: Setting,
    rho: float,
    optimum: float,
    *,
    stochastic_rewards: bool,
    constant: float,
    eta: float,
    proved: bool,
    printed: bool = False,
) -> Bound:
    """Adversarial constraints, [BOBW, Theorem 7], with alpha = rho / (L + rho).

    `printed=True` takes the factor as printed, rho / (1 + rho), which is wrong for L > 1.
    Without Condition 2 only the bound of the violation exists.
    """
    z = zeta(s, rho)
    share = alpha_printed(rho) if printed else alpha(s, rho)
    holds = condition_2(s, rho)
    regret = (
        (1.0 - share) * s.episodes * optimum
        + (reward_error(s) if stochastic_rewards else 0.0)
        + z * occupancy_error(s)
        + dual_regret(s, eta)
        + primal_regret(s, constant, 1.0 + z)
    )
    violation = z / eta + occupancy_error(s) if holds else violation_without_condition_2(s, eta)
    return Bound(
        theorem="Theorem 7" + (" as printed" if printed else ", corrected"),
        regret=regret if holds else math.inf,
        violation=violation,
        probability=1.0 - (3 if stochastic_rewards else 2) * s.delta,
        proved=proved and not (printed and s.num_layers > 1),
    )


def bound_for(
    s: Setting,
    rho: float,
    optimum: float,
    *,
    stochastic_rewards: bool,
    stochastic_constraints: bool,
    constant: float,
    eta: float,
    proved: bool,
) -> Bound:
    """The theorem that speaks of this combination."""
    common: dict[str, Any] = {
        "stochastic_rewards": stochastic_rewards,
        "constant": constant,
        "eta": eta,
        "proved": proved,
    }
    if not stochastic_constraints:
        return theorem_7(s, rho, optimum, **common)
    if rho > 0.0 and condition_2(s, rho):
        return theorem_5(s, rho, **common)
    return theorem_6(s, **common)


# ------------------------------------------------------------------------ measured quantities


@dataclass(frozen=True, kw_only=True)
class IntervalRegret:
    """max over intervals of sum_t l_t (q_t - q) for the best fixed q of each, [BOBW, Def. 5].

    `exact` if every interval was tried; otherwise a lower bound of the maximum, over intervals
    between grid points. The interval is first .. last, episodes from 1.
    """

    value: float
    first: int
    last: int
    exact: bool


def weak_interval_regret(
    loop_free: LayeredMDP, ends: IntArray, loss_sums: FloatArray, earned_sums: FloatArray
) -> IntervalRegret:
    """Weak no-interval regret on the grid `ends` (0 = e_0 < e_1 < ...).

    Parameters
    ----------
    loss_sums : (J+1, S, A)
        sum of l_t over t <= e_j.
    earned_sums : (J+1,)
        sum of l_t q_t over t <= e_j.
    """
    model = loop_free.model
    ends = np.asarray(ends, dtype=np.int64)
    value, i, j = largest_interval_regret(
        model.indptr,
        model.indices,
        model.data,
        np.ascontiguousarray(loss_sums).reshape(len(ends), -1),
        np.ascontiguousarray(earned_sums),
        (model.num_states, model.num_actions),
    )
    exact = bool((np.diff(ends) == 1).all())
    return IntervalRegret(
        value=float(value), first=int(ends[i]) + 1, last=int(ends[j]), exact=exact
    )


def log_log_slope(
    horizons: FloatArray, finals: FloatArray, groups: IntArray | None = None
) -> tuple[float, float, float]:
    """Slope of log max(x_T, 1) on log T over independent runs, with its 95% t interval.

    Within one run the steps are fixed by T, so a slope is across horizons, not along a run.
    `groups` gives every instance an intercept of its own, where runs of several are pooled: the
    same slope if each has the same horizons, without the spread between instances.

    >>> slope, low, high = log_log_slope(np.array([10, 100, 1000]), np.array([20.0, 200, 2000]))
    >>> round(slope, 9), bool(low <= slope <= high)
    (1.0, True)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.log(np.asarray(horizons, dtype=np.float64))
    y = np.log(np.maximum(np.asarray(finals, dtype=np.float64), 1.0))
    if x.shape != y.shape or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ConfigError("a slope needs as many horizons > 0 as finals, all finite")
    if x.size < 3 or np.ptp(x) == 0.0:
        raise ConfigError("a slope with an interval needs at least 3 runs at 2 horizons")
    labels = np.zeros(x.size, dtype=np.int64) if groups is None else np.asarray(groups)
    kinds, place = np.unique(labels, return_inverse=True)
    freedom = x.size - kinds.size - 1
    if freedom < 1:
        raise ConfigError("a slope with an interval needs more runs than instances")
    counts = np.bincount(place)
    centred = x - (np.bincount(place, weights=x) / counts)[place]
    rest = y - (np.bincount(place, weights=y) / counts)[place]
    slope = float(centred @ rest / (centred @ centred))
    left = rest - slope * centred
    error = math.sqrt(float(left @ left) / freedom / float(centred @ centred))
    half = float(scipy.stats.t.ppf(0.975, freedom)) * error
    return slope, slope - half, slope + half


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table of bounds."""

    quantity: str
    measured: float
    bound: float
    source: str
    proved: bool
    note: str = ""

    @property
    def ratio(self) -> float:
        """measured / bound; NaN without a bound."""
        return self.measured / self.bound if self.bound and self.bound < math.inf else math.nan


def to_json(row: Row) -> dict[str, object]:
    """A row with numbers that JSON can hold."""

    def number(value: float) -> float | None:
        return float(value) if math.isfinite(value) else None

    return {
        "quantity": row.quantity,
        "measured": number(row.measured),
        "bound": number(row.bound),
        "ratio": number(row.ratio),
        "source": row.source,
        "proved": row.proved,
        "note": row.note,
    }


def worst_of_seeds(tables: list[list[dict[str, object]]]) -> list[dict[str, object]]:
    """Row by row the seed with the largest measured value (the least of rho and of shares)."""
    out = []
    groups: dict[tuple[object, int], list[dict[str, Any]]] = {}
    for table in tables:  # a row that only some seeds have is the worst of those
        names = [row["quantity"] for row in table]
        for i, row in enumerate(table):
            groups.setdefault((names[i], names[:i].count(names[i])), []).append(row)
    for same in groups.values():
        sign = -1.0 if str(same[0]["quantity"]).startswith(("reward", "rho")) else 1.0
        values = [r["measured"] for r in same]
        place = max(
            range(len(same)),
            key=lambda i: -math.inf if values[i] is None else sign * float(values[i]),
        )
        out.append(same[place])
    return out


def table_text(rows: list[dict[str, object]]) -> str:
    """The table of measured value, bound and ratio as plain text."""

    def shown(value: object) -> str:
        return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)

    head = ("quantity", "measured", "bound", "ratio", "source", "proved", "note")
    cells = [head] + [
        tuple("yes" if r[k] is True else "no" if r[k] is False else shown(r[k]) for k in head)
        for r in rows
    ]
    width = [max(len(line[i]) for line in cells) for i in range(len(head))]
    return "\n".join(
        "  ".join(text.ljust(width[i]) for i, text in enumerate(line)).rstrip() for line in cells
    )
