"""The table of a finished run: what was measured, what the theorem says, and their ratio."""

from __future__ import annotations

import math
from typing import Any

from tightrope import theory
from tightrope.errors import Status
from tightrope.learners import pdgd_ops, uc_o_gdps, uc_o_reps
from tightrope.planning.layered import best_policy
from tightrope.problems.adversarial import always_safe_plan, feasibility_margin
from tightrope.simulation.adversarial import AdversarialRun
from tightrope.theory import Row

LEARNERS = ("pdgd-ops", "uc-o-gdps", "uc-o-reps")


def bounds_of(run: AdversarialRun) -> list[Row]:
    """Every quantity of [BOBW] that this run can be held against, with its equation.

    Bounds are formulas at the constants that were used; `proved` says whether these are the
    theorem's. Bounds above L T say nothing; the note tells.
    """
    if run.learner not in LEARNERS:
        return []
    setting = theory.setting_of(run.problem.spec(), run.episodes, run.config.delta)
    rows = [_lemma_2(run, setting), *_primal(run, setting)]
    if run.learner == "pdgd-ops":
        rows = [*_primal_dual(run, setting), *rows]
    return rows


def _trivial(bound: float, setting: theory.Setting) -> str:
    top = setting.num_layers * setting.episodes
    return f"above L T = {top:g}, says nothing" if bound > top else ""


def _lemma_2(run: AdversarialRun, setting: theory.Setting) -> Row:
    bound = theory.occupancy_error(setting)
    return Row(
        quantity="sum ||q - q_hat||_1",
        measured=run.occupancy_error,
        bound=bound,
        source="[BOBW, Lemma 2], E^q",
        proved=run.config.radius_scale == 1.0 and not run.config.doubling,
        note=_trivial(bound, setting),
    )


def _primal(run: AdversarialRun, setting: theory.Setting) -> list[Row]:
    """Regret of the primal player on its own losses, and the largest over intervals."""
    if not run.interval_ends.size:
        return []
    least, _ = best_policy(run.problem.loop_free, run.loss_sums[-1])
    interval = theory.weak_interval_regret(
        run.problem.loop_free, run.interval_ends, run.loss_sums, run.earned_sums
    )
    config, proved = run.config, run.guarantee is not None
    if run.learner == "uc-o-reps":
        weight = 1.0 + 2.0 * float(run.state.multipliers.sum())
        eta = uc_o_reps.step_size(run.problem.spec(), config, run.state.episodes)
        bound = weight * theory.reps_regret(setting, eta)
        source, interval_bound = "Rosenberg and Mansour 2019", math.inf
    else:
        own = pdgd_ops if run.learner == "pdgd-ops" else uc_o_gdps
        constant = own.primal_constant(run.problem.spec(), config)
        bound = theory.primal_regret(setting, constant, run.state.largest_loss)
        length = interval.last - interval.first + 1
        interval_bound = theory.primal_regret(setting, constant, run.state.largest_loss, length)
        source = "[BOBW, Theorem 3]"
    kind = "exact" if interval.exact else f"lower bound, {run.interval_ends.size - 1} end points"
    return [
        Row(
            quantity="R^P_T",
            measured=float(run.earned_sums[-1] - least),
            bound=bound,
            source=source,
            proved=proved,
            note=_trivial(bound, setting),
        ),
        Row(
            quantity="max interval R^P",
            measured=interval.value,
            bound=interval_bound,
            source=source + ", intervals",
            proved=proved,
            note=f"episodes {interval.first}..{interval.last}, {kind}",
        ),
    ]


def _primal_dual(run: AdversarialRun, setting: theory.Setting) -> list[Row]:
    problem, config = run.problem, run.config
    optimum = run.optimum.require_solved().value
    assert optimum is not None
    rho = math.nan
    if problem.constraints.kind != "custom":
        plan = feasibility_margin(problem, run.episodes, run.seed)
        rho = plan.value if plan.status is Status.SOLVED else math.nan
    used: dict[str, Any] = {
        "stochastic_rewards": problem.rewards.stochastic,
        "constant": pdgd_ops.primal_constant(problem.spec(), config),
        "eta": pdgd_ops.dual_step(problem.spec(), config, run.episodes),
        "proved": run.guarantee is not None,
    }
    feasible = rho > 0.0
    holds = feasible and theory.condition_2(setting, rho)
    about = f"rho = {rho:.6g}, Condition 2 {'holds' if holds else 'fails'}"
    rows = []
    if problem.constraints.stochastic or feasible:
        bound = theory.bound_for(
            setting, rho, optimum, stochastic_constraints=problem.constraints.stochastic, **used
        )
        for quantity, measured, value in (
            ("R_T", run.regret(), bound.regret),
            ("V_T", float(run.violations.max()), bound.violation),
        ):
            rows.append(
                Row(
                    quantity=quantity,
                    measured=measured,
                    bound=value,
                    source=f"[BOBW, {bound.theorem}], probability {bound.probability:.3g}",
                    proved=bound.proved,
                    note="; ".join(filter(None, (about, _trivial(value, setting)))),
                )
            )
    rows.append(
        Row(
            quantity="max ||lambda||_1",
            measured=run.largest_multipliers,
            bound=theory.zeta(setting, rho) if feasible else math.inf,
            source="[BOBW, Theorem 4], zeta",
            proved=used["proved"] and holds,
            note=f"cap m T^(1/4) = {setting.num_constraints * run.episodes**0.25:.4g} "
            + ("in place" if config.cap else "removed"),
        )
    )
    if feasible and not problem.constraints.stochastic and optimum > 0.0:
        share = run.total_reward / (run.episodes * optimum)
        for value, label in (
            (theory.alpha(setting, rho), "alpha = rho/(L+rho)"),
            (theory.alpha_printed(rho), "alpha as printed, rho/(1+rho): wrong for L > 1"),
        ):
            rows.append(
                Row(
                    quantity="reward / (T OPT)",
                    measured=share,
                    bound=value,
                    source=f"[BOBW, Theorem 7], {label}",
                    proved=False,
                    note="at least this share, up to O(sqrt T)",
                )
            )
        played = (run.average_rewards, run.average_constraints)
        safe = always_safe_plan(problem, run.episodes, run.seed, played).value
        if safe > 0.0:
            rows.append(
                Row(
                    quantity="reward / (T safe)",
                    measured=run.total_reward / (run.episodes * safe),
                    bound=1.0,
                    source="the best fixed policy that is safe in every episode",
                    proved=False,
                    note=f"it earns {safe:.6g} an episode, OPT is {optimum:.6g}; above 1 beats it",
                )
            )
    return rows
