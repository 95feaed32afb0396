"""Figures of a results folder: readable in print, and for readers who do not see every colour."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

matplotlib.use("Agg")  # figures are files; no display is needed
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from tightrope.experiments.brantley_figure_1 import COUNTERPARTS, figure_curves, program_curves
from tightrope.metrics import align, interval
from tightrope.results import group_name, load_bounds, load_meta, load_results
from tightrope.slopes import load_slopes
from tightrope.types import FloatArray, IntArray

# Okabe and Ito's colours, without yellow, with grey and wine
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7F7F7F",
    "#882255",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MAX_POINTS = 600
BAND_RUNS = 3  # the 95% interval of two runs is 13 times their standard error: it says nothing
STRETCHES = 60  # rewards and costs of streams and adversaries are drawn as means over as many
SHARE = "reward / (T OPT)"
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

    Reward and costs per episode above, cumulative regret and violation below; mean over seeds, from
    three on with a 95% t interval; the optimum and the capacities as thin black lines. Runs with a
    theorem's constants are solid, unproved presets are dashed.
    """
    folder = Path(folder)
    table, meta = load_results(folder), load_meta(folder)
    target = folder / "figures"
    target.mkdir(exist_ok=True)
    out = []
    looks = _looks(meta["arms"])
    # other lengths of a problem are points of `draw_slopes`
    main = {arm["problem"] for arm in meta["arms"] if not arm["horizon"]}
    table = table.filter(pc.is_in(table["problem"], pa.array(sorted(main))))
    for problem in table["problem"].unique().to_pylist():
        rows = table.filter(pc.equal(table["problem"], problem))
        arms = [arm for arm in meta["arms"] if arm["problem"] == problem]
        with plt.rc_context(STYLE):
            out += _save(_figure(problem, rows, arms, looks), target / problem)
    if meta["experiment"] == "brantley-figure-1":
        out += draw_figure_1(folder, table, meta)
    growth = draw_growth(folder, table, looks)
    return out + draw_bounds(folder, table, looks) + (growth or draw_slopes(folder))


def _save(figure: Any, stem: Path) -> list[Path]:
    """Write ``stem.png`` and ``stem.pdf``, the same bytes whenever they are written."""
    out = [stem.parent / f"{stem.name}.{suffix}" for suffix in ("png", "pdf")]
    for path in out:
        metadata = {"CreationDate": None} if path.suffix == ".pdf" else None
        figure.savefig(path, bbox_inches="tight", metadata=metadata)
    plt.close(figure)
    return out


Looks = dict[tuple[str, str, str], int]
"""A number for the colour and marker of (problem, learner, preset)."""


def _looks(arms: list[dict[str, Any]]) -> Looks:
    """A learner looks alike in all figures of a folder; a second preset of it gets its own look."""
    kinds: dict[tuple[str, int], int] = {}
    out: Looks = {}
    for arm in arms:
        problem, learner = arm["problem"], arm["learner"]
        kind = (learner, sum(key[:2] == (problem, learner) for key in out))
        out[problem, learner, arm["preset"]] = kinds.setdefault(kind, len(kinds))
    return out


def draw_figure_1(folder: Path, table: pa.Table, meta: dict[str, Any]) -> list[Path]:
    """[CON, Figure 1]: a column a panel; reward, constraint and training violation below another.

    Mean and deviation over the runs against trajectories of 30 samples. Dotted with small crosses:
    the authors' own program. Panel C is one stream: 30 times its running averages.
    """
    titles = {"mars-rover": "A - Mars rover", "box": "B - Box", "mars-rover-stream": "C - stream"}
    words = ("reward", "constraint", "training violation\n(aggregate cost)")
    program = program_curves()
    problems = [name for name in titles if name in table["problem"].unique().to_pylist()]
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            3, len(problems), figsize=(3.4 * len(problems) + 0.4, 7.4), squeeze=False, sharex="col"
        )
        for column, problem in zip(grid.T, problems):
            rows = table.filter(pc.equal(table["problem"], problem))
            arms = [arm for arm in meta["arms"] if arm["problem"] == problem]
            per_30 = 30 if problem == "mars-rover-stream" else 1
            limit = per_30 * next(iter(arms[0]["optimum"]["capacities"].values()))
            levels = (per_30 * arms[0]["optimum"]["value"], limit)
            for axes, level, word in zip(column, levels, ("optimum", "capacity")):
                _level(axes, level, word)
            for i, arm in enumerate(arms):
                own = _of_arm(rows, arm).to_pandas()
                colour, label = COLOURS[i % len(COLOURS)], group_name(arm["learner"], arm["preset"])
                if problem == "mars-rover-stream":
                    colour = "0.45"
                theirs = [
                    row for row in program
                    if row["problem"] == problem
                    and f"{arm['learner']}@{arm['preset']}" in COUNTERPARTS[row["method"]][:1]
                ]  # fmt: skip
                at = [row["trajectories"] for row in theirs]
                kinds = ("reward_mean", "cost_mean", "training_consumption_mean")
                for axes, (points, mean, deviation), kind in zip(
                    column, figure_curves(own, arm), kinds
                ):
                    axes.plot(points, mean, color=colour, lw=1.2, label=label)
                    axes.fill_between(
                        points, mean - deviation, mean + deviation, color=colour, alpha=0.2, lw=0
                    )
                    axes.plot(
                        at, [row.get(kind) for row in theirs], "x:", color=colour, ms=3, lw=0.8
                    )
            column[0].set(title=titles[problem], xscale="log", xlim=(10, None))
            column[-1].set_xlabel("trajectories of 30 samples")
        for row, word in zip(grid, words):
            row[0].set_ylabel(word)
        found = [axes.get_legend_handles_labels() for axes in grid[0]]
        entries = {text: handle for pair in found for handle, text in zip(*pair)}
        figure.legend(
            list(entries.values()), list(entries), loc="lower center", ncols=3,
            bbox_to_anchor=(0.5, 0.02),
        )  # fmt: skip
        seeds = len(set(table["seed"].to_pylist()))
        figure.suptitle(f"[CON, Figure 1]: mean and deviation over {seeds} runs", fontsize=10)
        figure.text(
            0.5, 0.003, "crosses: the authors' own program; panel C is another problem than A",
            ha="center", va="bottom", fontsize=7, color="0.35",
        )  # fmt: skip
        figure.tight_layout(rect=(0, 0.025 + 0.022 * -(-len(entries) // 3), 1, 1))
        return _save(figure, folder / "figures" / "figure-1")


def _level(axes: Axes, level: float, word: str) -> None:
    """A thin line, with its name and value beside the panel, where no curve is."""
    axes.axhline(level, color="black", lw=0.9)
    axes.annotate(
        f"{word}\n{level:.5g}", (1.0, level), xycoords=("axes fraction", "data"), ha="left",
        va="center", xytext=(3, 0), textcoords="offset points", fontsize=8,
    )  # fmt: skip


def _of_arm(rows: pa.Table, arm: dict[str, Any]) -> pa.Table:
    return rows.filter(
        pc.and_(pc.equal(rows["learner"], arm["learner"]), pc.equal(rows["preset"], arm["preset"]))
    )


def _figure(problem: str, rows: pa.Table, arms: list[dict[str, Any]], looks: Looks) -> Any:
    optimum = arms[0]["optimum"]
    names = list(optimum["capacities"])
    columns = 1 + len(names)
    figure, grid = plt.subplots(
        2, columns, figsize=(3.9 * columns + 0.6, 5.6), squeeze=False, sharex=True
    )
    unit = arms[0]["unit"].removesuffix("s")
    panels = [("reward", f"expected reward per {unit}", optimum["value"], "optimum")]
    panels += [
        (f"cost_{i}", f"expected {name} per {unit}", optimum["capacities"][name], "capacity")
        for i, name in enumerate(names)
    ]
    for axes, (column, label, level, word) in zip(grid[0], panels):
        _curves(axes, rows, arms, column, looks)
        _level(axes, level, word)
        axes.set_ylabel(label)
    below = [("regret", "cumulative regret")]
    below += [(f"violation_{i}", f"cumulative violation of {name}") for i, name in enumerate(names)]
    for axes, (column, label) in zip(grid[1], below):
        _curves(axes, rows, arms, column, looks)
        axes.axhline(0.0, color="black", lw=0.9)
        axes.set_ylabel(label)
        axes.set_xlabel(unit)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="lower center", ncols=min(4, len(labels)), bbox_to_anchor=(0.5, 0.03)
    )
    seeds = len(set(rows["seed"].to_pylist()))
    band = "mean and 95% interval over" if seeds >= BAND_RUNS else "mean over"
    band = band if seeds > 1 else "one run,"
    figure.suptitle(f"{problem}: {band} {seeds} seed{'s' * (seeds > 1)}", fontsize=10)
    words = "solid: a theorem's constants; dashed: an unproved preset or a baseline"
    if _changing(arms[0]):
        words += f"; above: means over {STRETCHES} stretches of the run"
    figure.text(0.5, 0.005, words, ha="center", va="bottom", fontsize=7, color="0.35")
    figure.tight_layout(rect=(0, 0.05 + 0.035 * -(-len(labels) // 4), 1, 1))
    return figure


def _curves(
    axes: Axes, rows: pa.Table, arms: list[dict[str, Any]], column: str, looks: Looks
) -> None:
    for arm in arms:
        i = looks[arm["problem"], arm["learner"], arm["preset"]]
        grid, values = _runs(_of_arm(rows, arm), column, arm)
        label = group_name(arm["learner"], arm["preset"])
        if arm["guarantee"]:
            label += f" {arm['guarantee']}"
        _curve(axes, grid, values, i, arm, label, at=grid[-1] * _places(i))


def _curve(
    axes: Axes, grid: IntArray, values: FloatArray, look: int, arm: dict[str, Any], label: str,
    *, at: FloatArray, least: float = -np.inf,
) -> None:  # fmt: skip
    """Mean and, from three runs on, interval; markers `at` these places, values `least` or more."""
    mean, half = interval(values)
    colour, style = COLOURS[look % len(COLOURS)], "-" if arm["guarantee"] else (0, (4, 1.5))
    axes.plot(
        grid, np.maximum(mean, least), color=colour, ls=style, lw=1.3, label=label, ms=4,
        mfc="white", marker=_marker(look), markevery=_spaced(grid, at),
    )  # fmt: skip
    if len(values) >= BAND_RUNS:
        low, high = np.maximum(mean - half, least), np.maximum(mean + half, least)
        axes.fill_between(grid, low, high, color=colour, alpha=0.2, lw=0)


def _marker(i: int) -> str:
    """Colours repeat after nine looks; a colour never comes twice with the same marker."""
    return MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]


def _places(i: int) -> FloatArray:
    """Eight places in (0, 1) for markers, other ones for each colour: equal curves show both."""
    n = len(COLOURS)
    return (np.arange(8) + (i % n + 1) / (n + 1)) / 8


def _spaced(grid: IntArray, places: FloatArray) -> list[int]:
    """Indices of the grid points nearest above the places."""
    return sorted(set(np.searchsorted(grid, places).clip(max=grid.size - 1).tolist()))


def _changing(arm: dict[str, Any]) -> bool:
    """Whether reward and cost change from row to row whatever is played: streams, adversaries."""
    return arm["unit"] == "steps" or arm.get("scale") is not None


def _runs(
    rows: pa.Table, column: str, arm: dict[str, Any] | None = None
) -> tuple[IntArray, FloatArray]:
    """Common grid (at most MAX_POINTS) and one row of values a seed, aligned on episodes.

    Half of the points are even in the episode, half in its logarithm. Rewards and costs of a stream
    are means since the row before, and those of an adversary of one episode: here, given the arm,
    they are means over longer stretches, of every episode.
    """
    seed = rows["seed"].to_numpy()
    episode, values = rows["episode"].to_numpy(), rows[column].to_numpy()
    groups = [seed == s for s in np.unique(seed)]
    last = min(int(episode[g].max()) for g in groups)
    grid = np.unique(np.concatenate([episode[g] for g in groups]))
    grid = grid[grid <= last]
    if arm and _changing(arm) and column.split("_")[0] in ("reward", "cost"):
        grid = grid[_spaced(grid, np.linspace(0, last, STRETCHES + 1)[1:])]
        totals = _totals(rows, column, arm)
        at = np.array([align(grid, episode[g], totals[g]) for g in groups])
        return grid, np.diff(at, axis=1, prepend=0.0) / np.diff(grid, prepend=0)
    if grid.size > MAX_POINTS:
        half = MAX_POINTS // 2
        even = np.concatenate([np.linspace(1, last, half), np.geomspace(1, last, half)])
        grid = grid[_spaced(grid, even)]
    return grid, np.array([align(grid, episode[g], values[g]) for g in groups])


def _totals(rows: pa.Table, column: str, arm: dict[str, Any]) -> FloatArray:
    """(n,) sums of reward or of a cost since the start of each row's run."""
    episode = rows["episode"].to_numpy()
    if arm["unit"] == "steps":
        seed, out = rows["seed"].to_numpy(), rows[column].to_numpy().astype(np.float64)
        for run in (seed == s for s in np.unique(seed)):
            out[run] = np.cumsum(out[run] * np.diff(episode[run], prepend=0))
        return out
    optimum, (kind, _, number) = arm["optimum"], column.partition("_")
    if kind == "reward":
        return optimum["value"] * episode - rows["regret"].to_numpy()
    name = list(optimum["capacities"])[int(number)]
    sign = 1.0 if arm["senses"][name] == "<=" else -1.0
    return optimum["capacities"][name] * episode + sign * rows[f"violation_{number}"].to_numpy()


def draw_bounds(folder: Path, table: pa.Table, looks: Looks) -> list[Path]:
    """Log-log figures of regret and violation against the theorems' bounds, where there are any.

    A theorem speaks of the chosen T, so its bound is a point there, drawn at min(bound, L T); the
    thin line is L t, which no run can exceed. Values below 1, regret and violation of good runs
    among them, are drawn at 1. Where a theorem promises a share of the optimal reward, so does a
    third panel.
    """
    if not (folder / "bounds.json").exists():
        return []
    out = []
    entries = [e for e in load_bounds(folder) if any(r["quantity"] == "R_T" for r in e["bounds"])]
    shown = {entry["problem"] for entry in entries} & set(table["problem"].unique().to_pylist())
    for problem in sorted(shown):
        rows = table.filter(pc.equal(table["problem"], problem))
        own = [entry for entry in entries if entry["problem"] == problem]
        with plt.rc_context(STYLE):
            figure = _bounds_figure(problem, rows, own, looks)
            path = folder / "figures" / f"{problem}-bounds.png"
            figure.savefig(path, bbox_inches="tight")
            plt.close(figure)
        out.append(path)
    return out


def _bounds_figure(
    problem: str, rows: pa.Table, entries: list[dict[str, Any]], looks: Looks
) -> Any:
    first = {(e["learner"], e["preset"]): e for e in reversed(entries)}
    groups = sorted(first, key=lambda group: looks[problem, *group])
    shares = any(r["quantity"] == SHARE for e in entries for r in e["bounds"])
    count = 3 if shares else 2
    figure, panels = plt.subplots(
        1, count, figsize=(3.8 * count, 3.2 + 0.24 * len(groups)), sharex=True
    )
    last = max(entry["episodes"] for entry in entries)
    per_episode = rows["steps"][0].as_py() / rows["episode"][0].as_py()
    # problems with fewer constraints than others have nulls in the rest
    own_columns = [name for name in rows.column_names if rows[name].null_count == 0]
    columns = [name for name in own_columns if name.startswith("violation_")]
    violations = [name for name in columns if not name.startswith("violation_plus")]
    for axes, quantity, names in (
        (panels[0], "R_T", ["regret"]),
        (panels[1], "V_T", violations),
    ):
        ends = np.array([1, last])
        axes.plot(ends, per_episode * ends, color="black", lw=0.9, label="L t, the most possible")
        for rank, group in enumerate(groups):
            entry, look = first[group], looks[problem, *group]
            runs = [_runs(_of_arm(rows, entry), name) for name in names]
            row = next(r for r in entry["bounds"] if r["quantity"] == quantity)
            label = group_name(*group) + (", no bound" if row["bound"] is None else "")
            worst = np.max([values for _, values in runs], axis=0)
            times = runs[0][0]
            at = times[0] * (times[-1] / times[0]) ** _places(look)
            _curve(axes, times, worst, look, entry, label, at=at, least=1)
            if row["bound"] is None:
                continue
            word = row["source"].split(", probability")[0]
            word += "" if row["proved"] else " (formula only)"
            axes.plot(
                [entry["episodes"]], [min(row["bound"], per_episode * entry["episodes"])], "v",
                color=COLOURS[look % len(COLOURS)], mfc="none", ms=5 + 4 * rank,
                label=f"min(bound, L T), {word}",
            )  # fmt: skip
        axes.set(yscale="log", ylabel=f"{quantity}, at least 1")
    if shares:
        promised, final = [], 1.0
        for group in groups:
            own = [r for r in first[group]["bounds"] if r["quantity"] == SHARE]
            if own:
                promised, entry, look = own, first[group], looks[problem, *group]
                optimum = next(r["measured"] for r in entry["bounds"] if r["quantity"] == "OPT")
                times, regret = _runs(_of_arm(rows, entry), "regret")
                share = 1.0 - regret / (times * optimum)
                final = max(final, float(share[:, -1].max()))
                at = times[0] * (times[-1] / times[0]) ** _places(look)
                _curve(panels[2], times, share, look, entry, group_name(*group), at=at)
        for row, style in zip(promised, ("-", ":")):
            panels[2].axhline(row["bound"], color="black", lw=0.9, ls=style, label=row["source"])
        top = min(panels[2].get_ylim()[1], 2 * final)  # the first episodes may earn many times OPT
        panels[2].set(ylabel="reward / (t OPT)", ylim=(0, top))
    for axes in panels:
        axes.set(xscale="log", xlabel="episode")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=6, fontsize=6)
    seeds = len(set(rows["seed"].to_pylist()))
    band = "mean and 95% interval over" if seeds >= BAND_RUNS else "mean over"
    over = f"{band} {seeds} seeds" if seeds > 1 else "one run"
    figure.suptitle(f"{problem}: measured against the theorem, {over}", fontsize=9)
    figure.tight_layout()
    return figure


def draw_slopes(folder: Path) -> list[Path]:
    """Final R_T and V_T against T, log-log: a point a run, the fitted line, its slope and interval.

    Values below 1, good runs among them, are drawn (and fitted) at 1; the legend counts them. The
    points of the arms stand beside each other at each T.
    """
    if not (folder / "slopes.json").exists():
        return []
    entries = load_slopes(folder)
    arms = list(dict.fromkeys((row["problem"], row["learner"]) for row in entries))
    with plt.rc_context(STYLE):
        kinds = [name for name in ("R_T", "V_T") if any(r["quantity"] == name for r in entries)]
        figure, grid = plt.subplots(
            1, len(kinds), figsize=(5.0 * len(kinds), 3.6 + 0.16 * len(arms)), squeeze=False
        )
        for axes, quantity in zip(grid[0], kinds):
            for row in entries:
                if row["quantity"] != quantity:
                    continue
                i = arms.index((row["problem"], row["learner"]))
                colour, marker = COLOURS[i % len(COLOURS)], _marker(i)
                horizons = np.array(row["horizons"], dtype=np.float64)
                values = np.maximum(np.array(row["values"]), 1.0)
                beside = 1.06 ** (i - (len(arms) - 1) / 2)
                axes.plot(horizons * beside, values, marker, color=colour, ms=4, mfc="white")
                at = np.unique(horizons)
                fit = np.exp(np.log(values).mean() - row["slope"] * np.log(horizons).mean())
                below = int((np.array(row["values"]) < 1.0).sum())
                label = f"{row['problem']}, {row['learner']}: {row['slope']:.2f} "
                label += f"[{row['low']:.2f}, {row['high']:.2f}]"
                label += f", {below} of {values.size} below 1" if below else ""
                axes.plot(at, fit * at ** row["slope"], color=colour, lw=1.3)
                axes.plot([], [], marker + "-", color=colour, ms=4, mfc="white", label=label)
            axes.set(xscale="log", yscale="log", xlabel="T", ylabel=f"{quantity}, at least 1")
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=7)
        figure.suptitle(
            "one point a run, arms beside each other at each T, constants set for it; slope and "
            "its 95% interval", fontsize=10,
        )  # fmt: skip
        figure.tight_layout()
        return _save(figure, folder / "figures" / "slopes")


def draw_growth(folder: Path, table: pa.Table, looks: Looks) -> list[Path]:
    """Streams: regret along t and at each T (means; values <= 0 are gaps), seconds, bytes, log-log.

    The legend has the slope of the regret in T with its interval, where there are several T.
    """
    if not (folder / "growth.csv").exists():
        return []
    with (folder / "growth.csv").open() as file:
        growth = list(csv.DictReader(file))
    entries = load_slopes(folder) if (folder / "slopes.json").exists() else []
    slopes = {
        (r["problem"], r["learner"]): f" {r['slope']:.2f} [{r['low']:.2f}, {r['high']:.2f}]"
        for r in entries
    }
    arms = [arm for arm in load_meta(folder)["arms"] if not arm["horizon"]]
    problems = list(dict.fromkeys(arm["problem"] for arm in arms))
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            len(problems), 4, figsize=(16.5, 3.3 * len(problems)), squeeze=False
        )
        for problem, axes in zip(problems, grid):
            rows = table.filter(pc.equal(table["problem"], problem))
            for arm in (arm for arm in arms if arm["problem"] == problem):
                i = looks[problem, arm["learner"], arm["preset"]]
                points: dict[str, Any] = {
                    "color": COLOURS[i % len(COLOURS)], "marker": _marker(i), "mfc": "white",
                    "ms": 4, "lw": 1.3,
                }  # fmt: skip
                name = group_name(arm["learner"], arm["preset"])
                times, values = _runs(_of_arm(rows, arm), "regret")
                mean = values.mean(axis=0)
                even = _spaced(times, times[0] * (times[-1] / times[0]) ** _places(i))
                axes[0].plot(times, np.where(mean > 0, mean, np.nan), markevery=even, **points)
                own = [r for r in growth if (r["problem"], r["learner"]) == (problem, name)]
                for panel, column in zip(axes[1:], ("regret", "seconds", "state_bytes")):
                    at = [float(r["steps"]) for r in own]
                    heights = np.array([float(r[column]) for r in own])
                    heights = np.where(heights > 0, heights, np.nan)
                    label = name + slopes.get((problem, name), "")
                    panel.plot(at, heights, label=label, **points)
            axes[0].set(xlabel="step t", ylabel=f"{problem}: mean regret, where > 0")
            axes[1].set(xlabel="T", ylabel="mean regret at T, where > 0")
            axes[2].set(xlabel="T", ylabel="seconds, median")
            axes[3].set(xlabel="T", ylabel="learner's state, bytes")
            for panel in axes:
                drawn = np.concatenate([line.get_ydata() for line in panel.lines])
                panel.set(xscale="log", yscale="log" if (drawn > 0).any() else "linear")
            axes[3].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8)
        figure.tight_layout()
        return _save(figure, folder / "figures" / "growth")
