"""PDGD-OPS at scale: slopes across horizons, levels at T = 64,000, baselines that must fail.

    python -m benchmarks.best_of_both_worlds [--seeds 5] [--horizons 1000,4000,16000,64000]

Layers (1, 5, 5, 5, 1), A = 3, m = 2, rho = 1, the tuned constants, the four combinations of
stochastic and adversarial rewards and constraints. Slope: least squares of log max(x_T, 1) on
log T over all runs; its upper 95% bound is what counts (`_within`: with an intercept for each
world). `--instance N` keeps one world and varies the run's seed. Writes JSON beside itself.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path

import numpy as np

from tightrope import theory
from tightrope.learners import pdgd_ops
from tightrope.learners.registry import make_config
from tightrope.planning.layered import margin, occupancy_of
from tightrope.problems.adversarial import (
    AdversarialProblem,
    always_safe_plan,
    feasibility_margin,
    hindsight_plan,
    targets,
)
from tightrope.problems.loop_free import four_combinations
from tightrope.simulation.adversarial import play

RESULTS = Path(__file__).with_suffix(".json")


def one_run(problem: AdversarialProblem, episodes: int, seed: int) -> dict[str, float]:
    """Finals of one tuned run, and the benchmarks that it is held against."""
    _, config = make_config("pdgd-ops", problem.spec(), episodes=episodes, delta=0.05)
    started = time.process_time()
    run = play(
        problem,
        pdgd_ops.LEARNER,
        config,
        episodes=episodes,
        seed=seed,
        grid=np.array([episodes]),
    )
    seconds = time.process_time() - started
    best = hindsight_plan(problem, episodes, seed)
    return {
        "episodes": episodes,
        "seed": seed,
        "optimum": best.value,
        "largest_binding_multiplier": float(best.multipliers.max()),
        "rho": feasibility_margin(problem, episodes, seed).value,
        "always_safe": always_safe_plan(problem, episodes, seed).value,
        "reward": run.total_reward / episodes,
        "regret": run.regret(best.value),
        "violation": float(run.violations.max()),
        "violation_plus": float(run.positive_violations.max()),
        "largest_multipliers": run.largest_multipliers,
        "occupancy_error": run.occupancy_error,
        "lost": run.state.lost,
        "capped": run.state.capped,
        "epochs": run.state.epoch,
        "cpu_seconds": seconds,
    }


def passes(reward: float, violation: float, optimum: float) -> bool:
    """R_T / (T OPT) <= 5% and V_T / T <= 0.05, from per-episode means."""
    return optimum - reward <= 0.05 * optimum and violation <= 0.05


def baseline(problem: AdversarialProblem, table: np.ndarray, episodes: int) -> tuple[float, float]:
    """Mean reward and largest mean constraint of a fixed policy."""
    rewards, constraints = targets(problem, episodes, 0)
    q = occupancy_of(problem.loop_free, table)
    return float((q * rewards).sum()), float(np.tensordot(constraints, q, axes=2).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--first", type=int, default=0, help="first seed; 5 on: worlds not tuned on"
    )
    parser.add_argument("--horizons", default="1000,4000,16000,64000")
    parser.add_argument("--instance", type=int, help="one world for all seeds; default one a seed")
    parser.add_argument("--only", help="one of the four combinations")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    horizons = [int(text) for text in arguments.horizons.split(",")]
    print(f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}")
    rows: dict[str, list[dict[str, float]]] = {}
    for episodes in horizons:
        for seed in seeds:
            world = seed if arguments.instance is None else arguments.instance
            for name, problem in four_combinations(episodes=episodes, seed=world).items():
                if arguments.only not in (None, name):
                    continue
                row = one_run(problem, episodes, seed)
                rows.setdefault(name, []).append(row)
                print(
                    f"{name:24s} T {episodes:6d} seed {seed}  R {row['regret']:9.1f}  "
                    f"V {row['violation']:8.1f}  reward {row['reward']:.4f}  OPT "
                    f"{row['optimum']:.4f}  safe {row['always_safe']:.4f}  lambda "
                    f"{row['largest_multipliers']:.2f}  lost {row['lost']}  "
                    f"{row['cpu_seconds']:.0f} s",
                    flush=True,
                )
    summary = {}
    for name, runs in rows.items():
        t = np.array([row["episodes"] for row in runs])
        slopes = {
            key: theory.log_log_slope(t, np.array([row[key] for row in runs]))
            for key in ("regret", "violation")
        }
        if arguments.instance is None:  # the same slopes, with an intercept an instance
            worlds = np.array([row["seed"] for row in runs])
            slopes |= {
                f"{key}_within": theory.log_log_slope(
                    t, np.array([row[key] for row in runs]), worlds
                )
                for key in ("regret", "violation")
            }
        last = [row for row in runs if row["episodes"] == horizons[-1]]
        share = min(row["reward"] / row["optimum"] for row in last)
        setting = theory.Setting(
            episodes=horizons[-1], delta=0.05, num_states=17, num_actions=3, num_layers=4,
            num_constraints=2,
        )  # fmt: skip
        summary[name] = {
            **{f"{key}_slope": value for key, value in slopes.items()},
            "worst_reward_share": share,
            "alpha": theory.alpha(setting, last[0]["rho"]),
            "worst_violation_rate": max(row["violation"] / row["episodes"] for row in last),
            "beats_always_safe": all(row["reward"] > row["always_safe"] for row in last),
        }
        print(name, json.dumps(summary[name]))
    for seed in seeds:
        problem = four_combinations(episodes=horizons[-1], seed=seed)["stochastic-stochastic"]
        best = hindsight_plan(problem, horizons[-1], seed).value
        safest = margin(problem.loop_free, problem.constraints.tables[0]).policy
        uniform = np.full(safest.shape, 1.0 / safest.shape[1])
        for label, table in (("uniform", uniform), ("safest", safest)):
            reward, violation = baseline(problem, table, horizons[-1])
            print(f"{label} seed {seed}: passes {passes(reward, violation, best)}")
    name = RESULTS
    if arguments.instance is not None:
        name = RESULTS.with_stem(f"{RESULTS.stem}_instance_{arguments.instance}")
    elif arguments.first:
        name = RESULTS.with_stem(f"{RESULTS.stem}_from_{arguments.first}")
    name.write_text(json.dumps({"summary": summary, "runs": rows}, indent=1))


if __name__ == "__main__":
    main()
