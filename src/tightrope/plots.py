"""Figures of a results folder: readable in print, and for readers who do not see every colour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

matplotlib.use("Agg")  # figures are files; no display is needed
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from tightrope.metrics import align, interval
from tightrope.results import group_name, load_bounds, load_meta, load_results
from tightrope.types import FloatArray, IntArray

# Okabe and Ito's colours, yellow left out
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MAX_POINTS = 600
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
}


def draw_figures(folder: str | Path) -> list[Path]:
    """One figure a problem, as PNG and PDF in ``figures/``; returns the files.

    Reward and costs per episode above, cumulative regret and violation below; mean over seeds with
    a 95% t interval; the optimum and the capacities as thin black lines. Runs with a theorem's
    constants are solid, unproved presets are dashed.
    """
    folder = Path(folder)
    table, meta = load_results(folder), load_meta(folder)
    target = folder / "figures"
    target.mkdir(exist_ok=True)
    out = []
    for problem in table["problem"].unique().to_pylist():
        rows = table.filter(pc.equal(table["problem"], problem))
        arms = [arm for arm in meta["arms"] if arm["problem"] == problem]
        with plt.rc_context(STYLE):
            figure = _figure(problem, rows, arms)
            for suffix in ("png", "pdf"):
                path = target / f"{problem}.{suffix}"
                metadata = {"CreationDate": None} if suffix == "pdf" else None
                figure.savefig(path, bbox_inches="tight", metadata=metadata)
                out.append(path)
            plt.close(figure)
    return out + draw_bounds(folder, table)


def _figure(problem: str, rows: pa.Table, arms: list[dict[str, Any]]) -> Any:
    optimum = arms[0]["optimum"]
    names = list(optimum["capacities"])
    columns = 1 + len(names)
    figure, grid = plt.subplots(
        2, columns, figsize=(3.6 * columns + 0.6, 5.6), squeeze=False, sharex=True
    )
    panels = [("reward", "expected reward per episode", optimum["value"], "optimum")]
    panels += [
        (f"cost_{i}", f"expected {name} per episode", optimum["capacities"][name], "capacity")
        for i, name in enumerate(names)
    ]
    for axes, (column, label, level, word) in zip(grid[0], panels):
        _curves(axes, rows, arms, column)
        axes.axhline(level, color="black", lw=0.9)
        axes.annotate(
            f"{word} {level:.4g}", (1.0, level), xycoords=("axes fraction", "data"), ha="right",
            va="bottom", xytext=(0, 2), textcoords="offset points", fontsize=8,
        )  # fmt: skip
        axes.set_ylabel(label)
    below = [("regret", "cumulative regret")]
    below += [(f"violation_{i}", f"cumulative violation of {name}") for i, name in enumerate(names)]
    for axes, (column, label) in zip(grid[1], below):
        _curves(axes, rows, arms, column)
        axes.axhline(0.0, color="black", lw=0.9)
        axes.set_ylabel(label)
        axes.set_xlabel("episode")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="lower center", ncols=min(4, len(labels)), bbox_to_anchor=(0.5, 0.03)
    )
    seeds = len(set(rows["seed"].to_pylist()))
    band = "mean and 95% interval over" if seeds > 1 else "one run,"
    figure.suptitle(f"{problem}: {band} {seeds} seed{'s' * (seeds > 1)}", fontsize=10)
    figure.text(
        0.5, 0.005, "solid: a theorem's constants; dashed: an unproved preset or a baseline",
        ha="center", va="bottom", fontsize=7, color="0.35",
    )  # fmt: skip
    figure.tight_layout(rect=(0, 0.05 + 0.035 * -(-len(labels) // 4), 1, 1))
    return figure


def _curves(axes: Axes, rows: pa.Table, arms: list[dict[str, Any]], column: str) -> None:
    for i, arm in enumerate(arms):
        chosen = pc.and_(
            pc.equal(rows["learner"], arm["learner"]), pc.equal(rows["preset"], arm["preset"])
        )
        grid, values = _runs(rows.filter(chosen), column)
        mean, half = interval(values)
        colour = COLOURS[i % len(COLOURS)]
        style = "-" if arm["guarantee"] else (0, (4, 1.5))
        label = group_name(arm["learner"], arm["preset"])
        every = max(1, grid.size // 8)
        if arm["guarantee"]:
            label += f" {arm['guarantee']}"
        axes.plot(
            grid, mean, color=colour, ls=style, lw=1.3, label=label, ms=4, mfc="white",
            marker=MARKERS[i % len(MARKERS)], markevery=(every * (i + 1) // 4 % every, every),
        )  # fmt: skip
        if len(values) > 1:
            axes.fill_between(grid, mean - half, mean + half, color=colour, alpha=0.2, lw=0)


def _runs(rows: pa.Table, column: str) -> tuple[IntArray, FloatArray]:
    """Common grid (at most MAX_POINTS) and one row of values a seed, aligned on episodes."""
    seed = rows["seed"].to_numpy()
    episode, values = rows["episode"].to_numpy(), rows[column].to_numpy()
    groups = [seed == s for s in np.unique(seed)]
    last = min(int(episode[g].max()) for g in groups)
    grid = np.unique(np.concatenate([episode[g] for g in groups]))
    grid = grid[grid <= last]
    if grid.size > MAX_POINTS:
        grid = grid[np.unique(np.linspace(0, grid.size - 1, MAX_POINTS).astype(int))]
    return grid, np.array([align(grid, episode[g], values[g]) for g in groups])


def draw_bounds(folder: Path, table: pa.Table) -> list[Path]:
    """Log-log figures of regret and violation against the theorems' bounds, where there are any.

    A theorem speaks of the chosen T, so its bound is a point there, drawn at min(bound, L T); the
    thin line is L t, which no run can exceed. Values below 1, regret and violation of good runs
    among them, are drawn at 1.
    """
    if not (folder / "bounds.json").exists():
        return []
    out = []
    entries = [e for e in load_bounds(folder) if any(r["quantity"] == "R_T" for r in e["bounds"])]
    for problem in sorted({entry["problem"] for entry in entries}):
        rows = table.filter(pc.equal(table["problem"], problem))
        own = [entry for entry in entries if entry["problem"] == problem]
        with plt.rc_context(STYLE):
            figure = _bounds_figure(problem, rows, own)
            path = folder / "figures" / f"{problem}-bounds.png"
            figure.savefig(path, bbox_inches="tight")
            plt.close(figure)
        out.append(path)
    return out


def _bounds_figure(problem: str, rows: pa.Table, entries: list[dict[str, Any]]) -> Any:
    figure, panels = plt.subplots(1, 2, figsize=(7.6, 3.2), sharex=True)
    last = max(entry["episodes"] for entry in entries)
    per_episode = rows["steps"][0].as_py() / rows["episode"][0].as_py()
    columns = [name for name in rows.column_names if name.startswith("violation_")]
    violations = [name for name in columns if not name.startswith("violation_plus")]
    for axes, quantity, names in (
        (panels[0], "R_T", ["regret"]),
        (panels[1], "V_T", violations),
    ):
        axes.plot([1, last], [per_episode, per_episode * last], color="black", lw=0.9)
        groups = sorted({(e["learner"], e["preset"]) for e in entries})
        for i, (learner, preset) in enumerate(groups):
            chosen = pc.and_(pc.equal(rows["learner"], learner), pc.equal(rows["preset"], preset))
            runs = [_runs(rows.filter(chosen), name) for name in names]
            mean = np.maximum(np.max([values.mean(axis=0) for _, values in runs], axis=0), 1.0)
            own = [e for e in entries if (e["learner"], e["preset"]) == (learner, preset)]
            row = next(r for r in own[0]["bounds"] if r["quantity"] == quantity)
            top = per_episode * own[0]["episodes"]
            level = top if row["bound"] is None else min(row["bound"], top)
            colour, style = COLOURS[i], "-" if own[0]["guarantee"] else (0, (4, 1.5))
            label = group_name(learner, preset)
            axes.plot(runs[0][0], mean, color=colour, ls=style, lw=1.3, label=label)
            axes.plot([own[0]["episodes"]], [level], "v", color=colour, ms=6)
            word = row["source"].split(", probability")[0]
            word += "" if row["proved"] else " (formula only)"
            axes.text(
                0.98, 0.03 + 0.06 * i, f"marker: min(bound, LT), {word}", ha="right", fontsize=6,
                transform=axes.transAxes,
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="episode", ylabel=f"{quantity}, at least 1")
    panels[0].legend(loc="upper left")
    figure.suptitle(f"{problem}: measured against the theorem, mean over seeds", fontsize=9)
    figure.tight_layout()
    return figure
