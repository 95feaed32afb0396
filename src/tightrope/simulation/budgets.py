"""The report of a run with hard budgets: reward against both benchmarks, why and when it stopped.

[CON, Section 5]: the *stationary* benchmark keeps the budgets in expectation, the *dynamic* one on
every sample path; with the same budgets the second is at most the first [CON, Lemma D.1]. A run
that ends over a budget is held against neither fairly: the report says by how much.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tightrope.errors import ConfigError
from tightrope.learners.conrl_knapsack import MIGHT_VIOLATE, RUNNING, VIOLATED
from tightrope.model.mdp import FiniteMDP
from tightrope.planning.knapsack import dynamic_optimum, find_null, plan_knapsack

MAX_WORK = 2e10  # of the dynamic program, some ten seconds
REASONS = {
    RUNNING: "played to the end",
    VIOLATED: "a budget was exceeded",
    MIGHT_VIOLATE: "the next episode could exceed a budget",
}
_BENCHMARKS: dict[Any, dict[str, Any]] = {}  # of the runs of this process


def benchmarks(
    model: FiniteMDP, *, budgets: tuple[float, ...], episodes: int, feedback: str = "sampled"
) -> dict[str, Any]:
    """`stationary` and `dynamic` rewards of all episodes; `dynamic_note` says why one is None.

    >>> from tightrope.problems import rover_knapsack
    >>> found = benchmarks(rover_knapsack(), budgets=(3.0,), episodes=10)
    >>> round(found["stationary"], 4), round(found["dynamic"], 4)
    (16.1126, 13.9732)
    """
    key = (model.content_hash, budgets, episodes, feedback)
    if key not in _BENCHMARKS:
        given: dict[str, Any] = {"budgets": budgets, "episodes": episodes}
        value = plan_knapsack(model, null_action=None, **given).value
        found: dict[str, Any] = {
            "stationary": None if value is None else episodes * value,
            "dynamic": None,
            "dynamic_note": "exact",
        }
        try:
            if feedback == "bernoulli":
                raise ConfigError("what is consumed is drawn beside the transitions (bernoulli)")
            found["dynamic"] = dynamic_optimum(model, max_work=MAX_WORK, **given).value
        except ConfigError as error:
            found["dynamic_note"] = str(error)
        _BENCHMARKS[key] = found
    return _BENCHMARKS[key]


def check_null(model: FiniteMDP, config: Any) -> None:
    """ConfigError unless the config's null action gives the null episode and leads to out_state."""
    null, out = config.null_action % model.num_actions, config.out_state % model.num_states
    try:
        find_null(model, null)
    except ConfigError as error:
        raise ConfigError(f"{error}; problems.with_null_action(model) adds one") from None
    for s in np.flatnonzero(model.available[:, null]):
        row = int(s) * model.num_actions + null
        entries = slice(model.indptr[row], model.indptr[row + 1])
        reached = model.indices[entries][model.data[entries] > 0]
        if (reached != out).any():
            raise ConfigError(
                f"the null action leads from state {model.state_name(int(s))} to "
                f"{model.state_name(int(reached[reached != out][0]))}, expected out_state "
                f"{model.state_name(out)}"
            )


def budget_report(
    model: FiniteMDP, config: Any, info: dict[str, float], *, reward: float, feedback: str
) -> dict[str, Any]:
    """What a finished run of conrl-knapsack did with its budgets.

    Parameters
    ----------
    info : the learner's last Info, by column
    reward : sum of the exact expected rewards of what was played
    """
    names = model.cost_names
    left = {name: float(info[f"budget_left_{i}"]) for i, name in enumerate(names)}
    reason = int(info["stop_reason"])
    return {
        "episodes": config.episodes,
        "epsilon": config.epsilon,
        "stop_rule": config.stop,
        "stopped_at": int(info["stopped_at"]) if reason else None,
        "stop_reason": REASONS[reason],
        "reward": reward,
        "sampled_reward": float(info["earned"]),
        **benchmarks(model, budgets=config.budgets, episodes=config.episodes, feedback=feedback),
        "budgets": dict(zip(names, config.budgets)),
        "used": {name: float(b) - left[name] for name, b in zip(names, config.budgets)},
        "left": left,
    }


def table_text(reports: list[dict[str, Any]]) -> str:
    """One table an arm: the benchmarks, then a line a seed."""
    arms: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for report in reports:
        arms.setdefault((report["problem"], report["learner"]), []).append(report)
    return "\n\n".join(_arm_text(*arm, runs) for arm, runs in arms.items())


def _arm_text(problem: str, learner: str, runs: list[dict[str, Any]]) -> str:
    first = runs[0]
    limits = ", ".join(f"{name} {value:.6g}" for name, value in first["budgets"].items())
    lines = [
        f"{problem}, {learner}: budgets for {first['episodes']} episodes: {limits} "
        f"(rule {first['stop_rule']}, epsilon {first['epsilon']:.4g})"
    ]
    for name, what in (
        ("stationary", "stationary benchmark, budgets kept in expectation"),
        ("dynamic", "dynamic optimum, budgets kept on every sample path"),
    ):
        value = first[name]
        shown = f"{value:.6g}" if value is not None else "unknown"
        note = f" ({first['dynamic_note']})" if name == "dynamic" else ""
        lines.append(f"  {what}: {shown}{note}")
    head = ["seed", "reward", "of stationary", "of dynamic", "sampled", "out from"]
    head += [*(f"{name} left" for name in first["budgets"]), "why"]
    cells = [head] + [
        [
            str(run["seed"]),
            f"{run['reward']:.4f}",
            _share(run, "stationary"),
            _share(run, "dynamic"),
            f"{run['sampled_reward']:.4f}",
            str(run["stopped_at"] or "-"),
            *(f"{left:.4f}" for left in run["left"].values()),
            run["stop_reason"],
        ]
        for run in runs
    ]
    width = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines += ["  " + "  ".join(x.rjust(w) for x, w in zip(row, width)) for row in cells]
    rewards = np.array([run["reward"] for run in runs])
    deviation = f" +- {rewards.std(ddof=1):.4f}" if len(runs) > 1 else ""
    over = sum(min(run["left"].values()) < -1e-9 for run in runs)
    lines.append(
        f"  mean reward {rewards.mean():.4f}{deviation} over {len(runs)} runs; "
        f"a budget was exceeded in {over} of them"
    )
    return "\n".join(lines)


def _share(run: dict[str, Any], name: str) -> str:
    return f"{run['reward'] / run[name]:.1%}" if run[name] else "-"
