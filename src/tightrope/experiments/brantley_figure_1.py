"""Figure 1 of [CON]: ConRL against RCPO, ApproPO and TFW-UCRL2 on Mars rover and Box.

Panel A is Mars rover, panel B Box, panel C Mars rover as one stream of steps (30 samples are one
trajectory), which is another problem with its own optimum: 2.0402 per 30 steps.

    tightrope run brantley-figure-1 --out DIR
    python -m tightrope.experiments.brantley_figure_1 DIR

The second command prints our curves beside those of the authors' own program, point by point, and
the first trajectory from which the mean over the runs stays good for 50 trajectories.
"""

from __future__ import annotations

import csv
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from tightrope.errors import ResultError
from tightrope.experiment import Arm, Experiment, changes_for
from tightrope.types import FloatArray

LENGTH = {"mars-rover": 3_000, "box": 2_000}
STREAM_STEPS = 1_000_000  # 33,333 trajectories of 30 samples, as in the program
# The program's own run of TFW-UCRL2: 30 times its running averages of reward and cost, one seed.
STREAM_PROGRAM = {
    99: (0.754, 0.754),
    1_986: (0.664, 0.465),
    9_909: (1.112, 0.316),
    33_333: (1.641, 0.308),
}
LEARNERS = (
    "conrl", "conrl-lagrangian", "conrl-lagrangian@paper-experiments", "rcpo", "appropo",
    "rcpo@privileged-costs", "appropo@privileged-costs",
    "rcpo@paper-experiments", "appropo@paper-experiments",
)  # fmt: skip
# Which of our arms each curve of the program is set beside: those with its hyper-parameters and
# what it shows its learners, then those with ours. ConRL-A2C has none: it takes hours.
COUNTERPARTS: dict[str, tuple[str, ...]] = {
    "conrl-vi": ("conrl-lagrangian@paper-experiments",),
    "conrl-a2c": (),
    "rcpo": ("rcpo@paper-experiments", "rcpo@privileged-costs"),
    "appropo": ("appropo@paper-experiments", "appropo@privileged-costs"),
}
GOOD = {"mars-rover": (1.47, 0.35), "box": (1.70, 0.15)}
STAYS = 50  # trajectories
LAST_TEN = 10


def brantley_figure_1(*, quick: bool = False) -> Experiment:
    """Panels A, B and C with 10 seeds; `quick`: a few trajectories and two seeds."""
    arms = []
    for problem, length in LENGTH.items():
        for learner in LEARNERS:
            # the published program shows its learners the conditional means
            feedback = "mean" if learner.endswith("@paper-experiments") else "sampled"
            arms.append(
                Arm(
                    problem=problem,
                    learner=learner,
                    episodes=60 if quick else length,
                    changes=changes_for(problem, learner),
                    feedback=feedback,  # type: ignore[arg-type]
                )
            )
    steps = 1_500 if quick else STREAM_STEPS
    stream = "tfw-ucrl2@paper-experiments"
    arms.append(Arm(problem="mars-rover-stream", learner=stream, episodes=steps, feedback="mean"))
    return Experiment(name="brantley-figure-1", arms=tuple(arms), seeds=2 if quick else 10)


def program_curves() -> list[dict[str, Any]]:
    """The curves of the authors' own program: one row a problem, method and number of trajectories.

    >>> rows = program_curves()
    >>> rows[3]["method"], rows[3]["trajectories"], rows[3]["reward_mean"]
    ('conrl-vi', 150, 1.49448)
    """
    text = files("tightrope.experiments").joinpath("data/brantley_program.csv").read_text()
    rows: list[dict[str, Any]] = []
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        numbers: dict[str, Any] = {k: float(v) for k, v in row.items() if "_" in k and v}
        numbers |= {"problem": row["problem"], "method": row["method"]}
        numbers["trajectories"] = int(row["trajectories"])
        rows.append(numbers)
    return rows


def first_good(rewards: FloatArray, costs: FloatArray, problem: str) -> int | None:
    """First episode, from 1, from which both means stay good for 50 episodes; None if none is.

    `rewards` and `costs` (n,) are means over the runs, one entry an episode.
    """
    least, most = GOOD[problem]
    good = np.concatenate([[0], np.cumsum((rewards >= least) & (costs <= most))])
    stays = np.flatnonzero(good[STAYS:] - good[:-STAYS] == STAYS)
    return int(stays[0]) + 1 if stays.size else None


Curve = tuple[FloatArray, FloatArray, FloatArray]
"""Trajectories, mean and deviation over the runs."""


def figure_curves(rows: Any, arm: dict[str, Any]) -> list[Curve]:
    """Reward, cost and aggregate sampled cost of one arm, as the program forms them.

    The mean of the last ten policies; ApproPO's answer is the mixture of all, and of a stream the
    running averages are drawn, times 30.

    Parameters
    ----------
    rows : data frame, the arm's rows of `curves.parquet`
    arm : its entry in `meta.json`
    """
    stream = arm["problem"] == "mars-rover-stream"
    tables = {
        name: rows.pivot(index="episode", columns="seed", values=name)
        for name in ("regret", "violation_0", "sampled_cost_0")
    }
    k = tables["regret"].index.to_numpy()[:, None]
    everything = stream or arm["learner"] == "appropo"
    before = np.zeros_like(k) if everything else np.maximum(k - LAST_TEN, 0)
    optimum = arm["optimum"]
    capacity = next(iter(optimum["capacities"].values()))
    curves = []
    for name, level, sign in (("regret", optimum["value"], -1.0), ("violation_0", capacity, 1.0)):
        sums = tables[name].to_numpy()
        place = np.searchsorted(k[:, 0], before[:, 0], side="right")
        earlier = np.vstack([np.zeros(sums.shape[1]), sums])[place]
        curves.append((30 if stream else 1) * (level + sign * (sums - earlier) / (k - before)))
    curves.append(tables["sampled_cost_0"].to_numpy())
    points = k[:, 0] / (30 if stream else 1)
    return [
        (points, values.mean(axis=1), values.std(axis=1, ddof=min(1, values.shape[1] - 1)))
        for values in curves
    ]


def comparison(folder: str | Path) -> str:
    """Markdown tables of a results folder beside the program's curves."""
    from tightrope.results import load_results

    frame = load_results(folder).to_pandas()
    frame["arm"] = frame["learner"] + "@" + frame["preset"]
    lines = []
    for problem in LENGTH:
        means: dict[str, Any] = {}
        for arm, rows in frame[frame["problem"] == problem].groupby("arm"):
            columns = ["reward", "cost_0", "sampled_cost_0", "regret", "violation_0"]
            means[str(arm)] = {
                name: rows.pivot(index="episode", columns="seed", values=name) for name in columns
            }
        lines += [f"\n### {problem}\n", *_first_table(problem, means), ""]
        lines += _point_table(problem, means)
    stream = frame[frame["problem"] == "mars-rover-stream"]
    if len(stream):
        lines += ["\n### mars-rover-stream\n", *_stream_table(stream)]
    return "\n".join(lines)


def _first_table(problem: str, means: dict[str, Any]) -> list[str]:
    least, most = GOOD[problem]
    lines = [
        f"First trajectory from which reward >= {least} with cost <= {most} holds for {STAYS}:",
        "",
        "| arm | first | last ten: reward | cost | runs |",
        "|---|---|---|---|---|",
    ]
    for arm, tables in means.items():
        reward, cost = tables["reward"].to_numpy(), tables["cost_0"].to_numpy()
        first = first_good(reward.mean(axis=1), cost.mean(axis=1), problem)
        late = [f"{x[-LAST_TEN:].mean(axis=0).mean():.4f}" for x in (reward, cost)]
        lines.append(
            f"| {arm} | {first or f'not by {len(reward)}'} | {late[0]} | {late[1]} "
            f"| {reward.shape[1]} |"
        )
    return lines


def _point_table(problem: str, means: dict[str, Any]) -> list[str]:
    lines = [
        "| method | trajectories | program: reward | cost | consumed | ours | reward | cost "
        "| consumed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in program_curves():
        method, k = row["method"], row["trajectories"]
        if row["problem"] != problem:
            continue
        program = (
            f"| {method} | {k} | {_spread(row.get('reward_mean'), row.get('reward_sd'))} "
            f"| {_spread(row.get('cost_mean'), row.get('cost_sd'))} "
            f"| {row['training_consumption_mean']:.0f} "
        )
        arms = [
            arm for arm in COUNTERPARTS[method] if k <= len(means.get(arm, {}).get("reward", ()))
        ]
        lines += [
            program
            + f"| {arm} "
            + "".join(f"| {_spread(*ours)} " for ours in _ours(method, means[arm], k))
            + f"| {means[arm]['sampled_cost_0'].loc[k].mean():.0f} |"
            for arm in arms
        ]
        if not COUNTERPARTS[method]:
            lines.append(program + "| not run | | | |")
    return lines


def _ours(method: str, tables: dict[str, Any], k: int) -> list[tuple[float, float]]:
    """Mean and deviation over runs of reward and cost, as the program reports them."""
    out = []
    for name in ("reward", "cost_0"):
        values = tables[name].to_numpy()[:k]
        # ApproPO's answer is the mixture of all policies so far, the others' the last ten
        part = values if method == "appropo" else values[-LAST_TEN:]
        each = part.mean(axis=0)
        out.append((float(each.mean()), float(each.std(ddof=1)) if each.size > 1 else np.nan))
    return out


def _spread(mean: float | None, deviation: float | None) -> str:
    if mean is None:
        return ""
    known = deviation is not None and np.isfinite(deviation)
    return f"{mean:.3f} ± {deviation:.3f}" if known else f"{mean:.3f}"


def _stream_table(rows: Any) -> list[str]:
    """30 times the running averages of reward and cost."""
    from tightrope.planning import plan
    from tightrope.problems import mars_rover_stream

    model = mars_rover_stream()
    gain = plan(model).require_solved().value
    assert gain is not None
    lines = [
        "| trajectories | program: 30 x mean reward | 30 x mean cost | ours: reward | cost |",
        "|---|---|---|---|---|",
    ]
    grid = np.sort(rows["episode"].unique())
    for k, program in STREAM_PROGRAM.items():
        if 30 * k > grid[-1]:
            continue
        at = rows[rows["episode"] == grid[np.searchsorted(grid, 30 * k)]]
        reward = 30 * (gain - at["regret"] / at["episode"])
        cost = 30 * (model.capacities[0] + at["violation_0"] / at["episode"])
        lines.append(
            f"| {k} | {program[0]:.3f} | {program[1]:.3f} | {_spread(reward.mean(), reward.std())} "
            f"| {_spread(cost.mean(), cost.std())} |"
        )
    optimum = f"{30 * gain:.4f} | {30 * model.capacities[0]:.4f}"
    lines.append(f"| optimum | {optimum} | {optimum} |")
    return lines


def main(arguments: list[str]) -> int:
    """Print the comparison of the folder; the exit code."""
    if len(arguments) != 1:
        print("usage: python -m tightrope.experiments.brantley_figure_1 DIR", file=sys.stderr)
        return 2
    try:
        print(comparison(arguments[0]))
    except ResultError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
