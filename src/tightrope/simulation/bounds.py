"""The table of a finished run: what was measured, what the theorem says, and their ratio."""

from __future__ import annotations

import math

from tightrope import theory
from tightrope.errors import ModelError, Status
from tightrope.learners import pdgd_ops, uc_o_gdps, uc_o_reps
from tightrope.model.policy import StochasticPolicy
from tightrope.planning.layered import best_policy, occupancy_of
from tightrope.problems import sequences
from tightrope.problems.adversarial import always_safe_plan, feasibility_margin
from tightrope.simulation.adversarial import AdversarialRun
from tightrope.theory import Row

LEARNERS = ("pdgd-ops", "uc-o-gdps", "uc-o-reps")


def bounds_of(run: AdversarialRun) -> list[Row]:
    """Every quantity of [BOBW] that this run can be held against, with its equation.

    Bounds are formulas at the constants that were used; `proved` says whether these are the
    theorem's. Bounds above L T say nothing; the note tells. An infinite bound is none.
    """
    if run.learner not in LEARNERS:
        return []
    setting = theory.setting_of(run.problem.spec(), run.episodes, run.config.delta)
    rows = [_optimum(run), *_averages(run, setting), *_sets(run, setting), *_primal(run, setting)]
    if run.learner == "pdgd-ops":
        rows = [*_primal_dual(run, setting), *rows]
    return rows


def margin_notes(rows: list[Row]) -> list[str]:
    """A sentence, if the margin rho is not known to be above 0."""
    return [row.note for row in rows if row.quantity == "rho" and not row.measured > 0.0]


def _trivial(bound: float, setting: theory.Setting) -> str:
    top = setting.num_layers * setting.episodes
    return f"above L T = {top:g}, says nothing" if top < bound < math.inf else ""


def _proved(run: AdversarialRun) -> bool:
    """Whether the run had the theorem's constants, for its own T."""
    return run.guarantee is not None and run.config.episodes == run.episodes


def _optimum(run: AdversarialRun) -> Row:
    optimum = run.optimum.require_solved()
    assert optimum.value is not None
    assert optimum.upper_bound is not None
    return Row(
        quantity="OPT",
        measured=optimum.value,
        bound=optimum.upper_bound,
        source="[BOBW, Eq. (5)], certified upper bound",
        proved=True,
        note="an episode",
    )


def _averages(run: AdversarialRun, setting: theory.Setting) -> list[Row]:
    """How far stochastic rewards and constraints were from their means, Lemmas 3 and 4."""
    problem, rows = run.problem, []
    if problem.rewards.stochastic:
        assert isinstance(run.optimum.policy, StochasticPolicy)
        best = occupancy_of(problem.loop_free, run.optimum.policy.probabilities)
        off = run.average_rewards - sequences.mean(problem.rewards)
        rows.append(
            Row(
                quantity="|sum (r_t - r_bar) q*|",
                measured=run.episodes * abs(float((off * best).sum())),
                bound=theory.reward_error(setting),
                source="[BOBW, Lemma 3], E^r",
                proved=True,
            )
        )
    if problem.constraints.stochastic and run.learner == "pdgd-ops":
        realised = run.total_reward + float(run.earned_total)
        expected = float((run.pushed * sequences.mean(problem.constraints)).sum())
        rows.append(
            Row(
                quantity="|sum lambda_t (G_t - G_bar) q_t|",
                measured=abs(realised - expected),
                bound=run.largest_multipliers * theory.constraint_error(setting),
                source="[BOBW, Lemma 4], max ||lambda||_1 E^G",
                proved=True,
            )
        )
    return rows


def _sets(run: AdversarialRun, setting: theory.Setting) -> list[Row]:
    """Whether the confidence sets held the truth, and Lemma 2."""
    bound = theory.occupancy_error(setting)
    proved = run.config.radius_scale == 1.0 and not run.config.doubling
    return [
        Row(
            quantity="pairs outside P_i",
            measured=float(run.left.sum()),
            bound=0.0,
            source="[BOBW, Eq. (10)], probability 1 - delta",
            proved=proved,
            note=run.left_sentence,
        ),
        Row(
            quantity="sum ||q - q_hat||_1",
            measured=run.occupancy_error,
            bound=bound,
            source="[BOBW, Lemma 2], E^q",
            proved=proved,
            note=_trivial(bound, setting),
        ),
    ]


def _primal(run: AdversarialRun, setting: theory.Setting) -> list[Row]:
    """Regret of the primal player on its own losses, and the largest over intervals."""
    if not run.interval_ends.size:
        return []
    least, _ = best_policy(run.problem.loop_free, run.loss_sums[-1])
    interval = theory.weak_interval_regret(
        run.problem.loop_free, run.interval_ends, run.loss_sums, run.earned_sums
    )
    config, proved = run.config, _proved(run)
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


def _margin(run: AdversarialRun) -> tuple[float, str]:
    """rho, NaN if it is not known, and what is to be said of it."""
    problem = run.problem
    if problem.constraints.kind == "custom" and run.constraint_tables is None:
        return math.nan, "rho is not known: the custom adversary played too many tables to keep"
    try:
        plan = feasibility_margin(problem, run.episodes, run.seed, run.constraint_tables)
    except ModelError as error:
        return math.nan, f"rho is not known: {error}"
    if plan.status is not Status.SOLVED:
        return math.nan, f"rho is not known: its program is {plan.status.sentence}"
    rho = plan.value if abs(plan.value) > 1e-12 else 0.0  # less is rounding
    if rho > 0.0:
        return rho, ""
    each = "on average" if problem.constraints.stochastic else "in every episode"
    return rho, (
        f"rho = {rho:.6g} <= 0: no policy keeps every constraint strictly {each}, so zeta, "
        "alpha and every bound that needs them do not exist"
    )


def _primal_dual(run: AdversarialRun, setting: theory.Setting) -> list[Row]:
    problem, config = run.problem, run.config
    optimum = run.optimum.require_solved().value
    assert optimum is not None
    rho, warning = _margin(run)
    eta = pdgd_ops.dual_step(problem.spec(), config, run.episodes)
    proved = _proved(run)
    feasible = rho > 0.0
    holds = feasible and theory.condition_2(setting, rho)
    about = f"rho = {rho:.6g}, Condition 2 {'holds' if holds else 'fails'}"
    rows = [
        Row(
            quantity="rho",
            measured=rho,
            bound=theory.condition_2_margin(setting),
            source="[BOBW, Section 3.5]; bound: the least that meets Condition 2",
            proved=False,
            note=warning or about,
        )
    ]
    bound = theory.Bound(
        theorem="no theorem", regret=math.inf, violation=math.inf, probability=0.0, proved=False
    )
    if problem.constraints.stochastic or feasible:
        bound = theory.bound_for(
            setting,
            rho,
            optimum,
            stochastic_rewards=problem.rewards.stochastic,
            stochastic_constraints=problem.constraints.stochastic,
            constant=pdgd_ops.primal_constant(problem.spec(), config),
            eta=eta,
            proved=proved,
        )
    source = f"[BOBW, {bound.theorem}], probability {bound.probability:.3g}"
    measured = [
        ("R_T", run.regret(), bound.regret),
        ("V_T", float(run.violations.max()), bound.violation),
    ]
    if feasible and not problem.constraints.stochastic:
        share = theory.alpha(setting, rho)
        measured.append(
            (
                "alpha-regret",
                share * run.episodes * optimum - run.total_reward,
                bound.regret - (1.0 - share) * run.episodes * optimum,
            )
        )
    for quantity, value, limit in measured:
        rows.append(
            Row(
                quantity=quantity,
                measured=value,
                bound=limit,
                source=source if math.isfinite(limit) else f"[BOBW], {bound.theorem}: no bound",
                proved=bound.proved and math.isfinite(limit),
                note="; ".join(filter(None, (about, _trivial(limit, setting)))),
            )
        )
    rows += [
        Row(
            quantity="R^D_T(0)",
            measured=run.dual_regret,
            bound=theory.dual_regret(setting, eta),
            source="[BOBW, Appendix C.1.1]",
            proved=proved,
        ),
        Row(
            quantity="max ||lambda||_1",
            measured=run.largest_multipliers,
            bound=theory.zeta(setting, rho) if feasible else math.inf,
            source="[BOBW, Theorem 4], zeta",
            proved=proved and holds,
            note=f"cap m T^(1/4) = {setting.num_constraints * run.episodes**0.25:.4g} "
            + ("in place" if config.cap else "removed"),
        ),
    ]
    if feasible and not problem.constraints.stochastic and optimum > 0.0:
        rows += _shares(run, setting, rho, optimum)
    return rows


def _shares(run: AdversarialRun, setting: theory.Setting, rho: float, optimum: float) -> list[Row]:
    """The reward as a share of OPT, and of the best policy that is safe in every episode."""
    rows = [
        Row(
            quantity="reward / (T OPT)",
            measured=run.total_reward / (run.episodes * optimum),
            bound=value,
            source=f"[BOBW, Theorem 7], {label}",
            proved=False,
            note="at least this share, up to O(sqrt T)",
        )
        for value, label in (
            (theory.alpha(setting, rho), "alpha = rho/(L+rho)"),
            (theory.alpha_printed(rho), "alpha as printed, rho/(1+rho): wrong for L > 1"),
        )
    ]
    played = (run.average_rewards, run.average_constraints)
    safe = always_safe_plan(
        run.problem, run.episodes, run.seed, played, run.constraint_tables
    ).value
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
