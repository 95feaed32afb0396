"""What learning single streams costs: regret along the run, seconds, bytes of state, their growth.

`growth.csv` has a row a problem, learner and T (experiments may run several, see
`tightrope.slopes`): regret at T with the half width of its 95% interval (from three seeds on); the
slope of log regret on log t along the run (mean and interval likewise), which says something of
learners that do not know T; seconds of a run; updates; bytes of the learner's state at the end;
and, in the row of the longest T, how seconds and bytes grow with T (slopes of logs; 0 where nothing
grows).
"""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tightrope.experiment import Experiment
from tightrope.metrics import align, interval
from tightrope.results import Job, group_name, is_finished, jobs_of, part_path, write_atomic

SEEDS = 3  # from which there is an interval, as in figures
POINTS = 20  # of a slope along one run, over its last two decades
Row = dict[str, Any]


def write_growth(folder: Path, experiment: Experiment) -> list[Row]:
    """Write `growth.csv` and return its rows; empty, and no file, unless all arms are streams."""
    arms: dict[tuple[str, str], dict[int, list[Row]]] = {}
    for job in jobs_of(experiment):
        if is_finished(folder, job):
            run = _measure(folder, job)
            if run is None:
                return []
            key = (Path(job.arm.problem).stem, run["learner"])
            arms.setdefault(key, {}).setdefault(job.arm.episodes, []).append(run)
    rows = []
    for (problem, learner), lengths in arms.items():
        own = [_row(steps, runs) for steps, runs in sorted(lengths.items())]
        own[-1] |= {f"{name}_slope": _growth(own, name) for name in ("seconds", "state_bytes")}
        rows += [{"problem": problem, "learner": learner, **row} for row in own]
    if rows:
        names = max(rows, key=len)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(names))
        writer.writeheader()
        writer.writerows(rows)
        write_atomic(folder / "growth.csv", text.getvalue().encode())
    return rows


def _measure(folder: Path, job: Job) -> Row | None:
    """What a finished run says of itself; None if it is no single stream."""
    record = json.loads(part_path(folder, job, ".json").read_text())
    table = pq.read_table(part_path(folder, job, ".parquet"), columns=["episode", "regret"])
    episode, regret = (column.to_numpy() for column in table.columns)
    if record["unit"] != "steps":
        return None
    last = int(episode[-1])
    times = np.unique(np.geomspace(max(1, last // 100), last, POINTS).astype(np.int64))
    along = align(times, episode, regret)
    positive = times.size > 1 and (along > 0).all()
    return {
        "learner": group_name(record["learner"], record["preset"]),
        "regret": float(regret[-1]),
        "slope_along_run": float(np.polyfit(np.log(times), np.log(along), 1)[0])
        if positive
        else math.nan,
        **{name: float(record[name]) for name in ("seconds", "updates", "state_bytes")},
    }


def _row(steps: int, runs: list[Row]) -> Row:
    out: Row = {"steps": steps, "seeds": len(runs)}
    for name in ("regret", "slope_along_run"):
        mean, half = interval(np.array([run[name] for run in runs]))
        width = float(half) if len(runs) >= SEEDS else math.nan
        out |= {name: float(mean), f"{name}_half_width": width}
    medians = ("seconds", "updates", "state_bytes")  # the first run of a process loads its kernels
    return out | {name: float(np.median([run[name] for run in runs])) for name in medians}


def _growth(rows: list[Row], name: str) -> float:
    """Slope of a log on log T; NaN with one T."""
    steps, values = [row["steps"] for row in rows], [row[name] for row in rows]
    if len(rows) < 2 or min(values) <= 0:
        return math.nan
    return float(np.polyfit(np.log(steps), np.log(values), 1)[0])


def growth_text(rows: list[Row]) -> str:
    """The table for a terminal: the longest T of each learner."""
    last = [row for row in rows if "seconds_slope" in row]
    wide = max(len(row["problem"]) for row in last)
    lines = [
        f"{'at the longest T':{wide}}  {'learner':20} {'T':>9} {'regret, 95%':>22} "
        f"{'slope along t, 95%':>20} {'seconds':>9} {'grows':>6} {'state kB':>9} {'grows':>6}"
    ]
    for row in last:
        regret = _with_width(row, "regret", ",.0f")
        along = _with_width(row, "slope_along_run", ".2f")
        lines.append(
            f"{row['problem']:{wide}}  {row['learner']:20} {row['steps']:9} {regret:>22} "
            f"{along:>20} {row['seconds']:9.3f} {_number(row['seconds_slope']):>6} "
            f"{row['state_bytes'] / 1000:9.1f} {_number(row['state_bytes_slope']):>6}"
        )
    lines.append(
        "slopes of logs, in t along a run and in T; -: some value is not positive, or one T only; "
        "seconds and state: medians over seeds"
    )
    return "\n".join(lines)


def _number(value: float, form: str = ".2f") -> str:
    return format(value, form) if math.isfinite(value) else "-"


def _with_width(row: Row, name: str, form: str) -> str:
    half = row[f"{name}_half_width"]
    return _number(row[name], form) + (f" +- {_number(half, form)}" if math.isfinite(half) else "")
