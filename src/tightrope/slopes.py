"""Slopes across horizons: log max(x_T, 1) on log T over the runs of an experiment's lengths.

The steps of a learner that knows T are fixed by it, so growth in T is seen across runs of several
lengths, never along one run. `slopes.json` has a row a problem, learner and quantity.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tightrope.experiment import Experiment
from tightrope.results import (
    group_name,
    is_finished,
    jobs_of,
    load_list,
    part_path,
    write_atomic,
)
from tightrope.theory import log_log_slope

Row = dict[str, Any]


def write_slopes(folder: Path, experiment: Experiment) -> list[Row]:
    """Slopes of the final R_T and V_T of every arm that was run at several lengths.

    Rows: `problem, learner, quantity` ("R_T" or "V_T"), `horizons, seeds, values` (one entry a run)
    and `slope, low, high` (least squares, 95% t interval over the runs), `worst_rate` (the largest
    value at the longest T, over T) and `optimum` per episode there. Empty, and no file, without
    such arms.
    """
    arms: dict[tuple[str, str], list[Row]] = {}
    for job in jobs_of(experiment):
        if is_finished(folder, job):
            table = pq.read_table(part_path(folder, job, ".parquet"))
            last = table.slice(len(table) - 1).to_pylist()[0]
            record = json.loads(part_path(folder, job, ".json").read_text())
            key = (Path(job.arm.problem).stem, group_name(last["learner"], last["preset"]))
            arms.setdefault(key, []).append({**last, "optimum": record["optimum"]["value"]})
    rows = [
        {"problem": problem, "learner": learner, **row}
        for (problem, learner), runs in arms.items()
        if len(runs) > 2 and len({run["episode"] for run in runs}) > 1
        for row in slopes_of(runs)
    ]
    if rows:
        write_atomic(folder / "slopes.json", json.dumps(rows, indent=1).encode())
    return rows


def slopes_of(runs: list[Row]) -> list[Row]:
    """R_T, and V_T (the largest signed violation) with constraints; `runs` are last rows."""
    horizons = [int(run["episode"]) for run in runs]
    names = [name for name in runs[0] if name.startswith("violation_") and "plus" not in name]
    finals = {"R_T": [float(run["regret"]) for run in runs]}
    if names:
        finals["V_T"] = [max(float(run[name]) for name in names) for run in runs]
    out = []
    for quantity, values in finals.items():
        slope, low, high = log_log_slope(np.array(horizons), np.array(values))
        ends = [(x, run) for x, run in zip(values, runs) if run["episode"] == max(horizons)]
        out.append(
            {
                "quantity": quantity,
                "horizons": horizons,
                "seeds": [int(run["seed"]) for run in runs],
                "values": values,
                "slope": slope,
                "low": low,
                "high": high,
                "worst_rate": max(x for x, _ in ends) / max(horizons),
                "optimum": ends[0][1]["optimum"],
            }
        )
    return out


def slopes_text(rows: list[Row]) -> str:
    """The table for a terminal."""
    wide = max(len(row["problem"]) for row in rows)
    lines = [f"{'slopes in T':{wide}}  {'learner':16} {'':4} {'slope':>6}  95% interval    at most"]
    for row in rows:
        longest = max(row["horizons"])
        per = f"{row['worst_rate']:.4f} an episode"
        if row["quantity"] == "R_T" and row["optimum"]:
            per = f"{row['worst_rate'] / row['optimum']:.2%} of the optimum"
        lines.append(
            f"{row['problem']:{wide}}  {row['learner']:16} {row['quantity']:4} "
            f"{row['slope']:6.3f}  [{row['low']:6.3f},{row['high']:6.3f}]  {per} at T = {longest}"
        )
    some = rows[0]["horizons"]
    lengths = ", ".join(str(t) for t in sorted(set(some)))
    lines.append(
        f"least squares of log max(x_T, 1) on log T, T = {lengths}, {len(some)} runs each; the "
        "constants are set for each T"
    )
    return "\n".join(lines)


def load_slopes(folder: str | Path) -> list[Row]:
    """`slopes.json`; ResultError if the experiment has no arm with several lengths."""
    return load_list(Path(folder) / "slopes.json", "slopes; experiments with several lengths")
