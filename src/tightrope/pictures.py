"""Pictures of policies: on the grid of the states, or as a table of states and actions."""

from __future__ import annotations

import math
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from tightrope.errors import ConfigError
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import MixturePolicy, Policy
from tightrope.planning.criteria import reachable
from tightrope.planning.policies import RARE, UNITS, parts_of
from tightrope.types import BoolArray, FloatArray, IntArray

PLACE = re.compile(r"(?<![\d.])(\d+)\s*,\s*(\d+)(?![\d.])")
MAX_CELLS = 2500
MAX_ROWS = 60  # states of a table
SHADES = LinearSegmentedColormap.from_list("shades", ["#ffffff", "#9ecae1", "#4292c6"])
DANGER, NOWHERE = "#D55E00", "#d9d9d9"
# letter, colour, hatch and what it means
KINDS = {
    "goal": ("G", "#bfe6d8", None, "G ends and pays"),
    "end": ("E", "#f0f0f0", None, "E ends"),
    "danger": ("×", "#fbe3d0", "////", "× costs whoever comes"),
    "closed": ("", NOWHERE, None, "light grey: no policy comes here"),
    "wall": ("", "#555555", None, "dark grey: no state"),
}
LEAST = 0.02  # probability of an action below which it has no arrow
CONSISTENT = 0.2  # share of an action's steps that must go one way for it to have a direction


class Grid(NamedTuple):
    """Where the states lie."""

    rows: int
    columns: int
    cells: IntArray  #: (S,) number ``row * columns + column``


def grid_of(model: FiniteMDP) -> Grid | None:
    """The grid on which the states lie if every name holds a pair "row,column", else None.

    >>> from tightrope.problems import mars_rover
    >>> grid_of(mars_rover())[:2]
    (8, 8)
    """
    found = [PLACE.search(name) for name in model.state_names or ()]
    if not found or None in found:
        return None
    places = np.array([[int(text[:9]) for text in one.groups()] for one in found if one])
    rows, columns = (places.max(axis=0) + 1).tolist()
    if rows * columns > MAX_CELLS:
        return None
    return Grid(rows, columns, places @ np.array([columns, 1]))


def draw_policy(
    model: FiniteMDP,
    policy: Policy,
    path: str | Path,
    *,
    stage: int | None = None,
    title: str = "",
) -> Path:
    """Draw a policy to a file (the end of its name chooses the format: .png, .pdf, .svg).

    Where the states' names hold a place "row,column", on that grid: an arrow in the direction in
    which an action goes, as long as its probability (a ring if it goes nowhere), and the shade of a
    cell says how often it is visited. Else a table of states and actions. A policy that differs by
    step is averaged over the steps by its visits, unless a `stage` is given; so are the states that
    share a cell.

    Raises
    ------
    ConfigError
        If there are too many states for a picture, or the stage is none.
    ModelError
        If the policy does not fit the model.

    Examples
    --------
    >>> import tempfile
    >>> from tightrope.planning import plan
    >>> from tightrope.problems import mars_rover
    >>> model = mars_rover()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_policy(model, plan(model).policy, folder + "/rover.png").name
    'rover.png'
    """
    parts = parts_of(model, policy, stage)
    flows = np.sum([part.reached[:, :, None] * part.table for part in parts], axis=(0, 1))
    visits = np.sum([part.visits for part in parts], axis=(0, 1, 3))
    grid = grid_of(model)
    if grid is None:
        figure = _draw_table(model, flows, visits)
    else:
        figure = _draw_grid(model, grid, flows, visits)
    over = ["steps"] if len(parts[0].table) > 1 else []
    if isinstance(policy, MixturePolicy):
        over.append(f"the {len(policy.components)} policies that may be drawn at the start")
    if grid is not None and np.bincount(grid.cells, flows.sum(axis=1) > 0).max() > 1:
        over.append("the states of a cell")
    means = f"mean over {' and '.join(over)}, by visits" if over else ""
    step = "" if stage is None else f"step {stage}"
    figure.axes[0].set_title("\n".join(filter(None, [title, step, means])), fontsize=8)
    target = Path(path)
    try:
        figure.savefig(target, dpi=200, bbox_inches="tight")
    except ValueError as error:  # an unknown format
        raise ConfigError(f"{target}: {error}") from error
    return target


def _cell_kinds(model: FiniteMDP, grid: Grid) -> list[str]:
    """One of KINDS for each cell, "" for an ordinary one.

    Cells that several states share are what all those states are that some policy reaches.
    """
    count, size = model.num_states, grid.rows * grid.columns
    row = np.repeat(np.arange(model.indptr.size - 1), np.diff(model.indptr))
    source, target = row // model.num_actions % count, model.indices
    moves = source != target
    links = sp.csr_array((np.ones(row.size), (source, target)), shape=(count, count))
    reached = reachable(links, model.initial > 0)
    ends = np.ones(count, dtype=bool)
    ends[source[moves]] = False

    def always(values: FloatArray | None, table: FloatArray) -> BoolArray:
        """States such that every step into them (or, of tables, in them) has a value > 0."""
        if values is None:
            least = np.where(model.available, table, np.inf).reshape(-1, count, model.num_actions)
            return np.asarray(least.min(axis=(0, 2)) > 0)
        into = np.full(count, np.inf)
        np.minimum.at(into, target[moves], values[moves])
        return np.isfinite(into) & (into > 0)

    costs = np.zeros(count, dtype=bool)
    for i in np.flatnonzero(model.signs > 0):
        costs |= always(None if model.costs_next is None else model.costs_next[i], model.costs[i])
    if 2 * costs.sum() > count:  # what every step costs marks no place
        costs[:] = False
    there = np.bincount(grid.cells[reached], minlength=size)

    def by_cell(flags: BoolArray) -> BoolArray:
        return np.bincount(grid.cells[reached & flags], minlength=size) == there

    costs, ends = by_cell(costs), by_cell(ends)
    pays = by_cell(always(model.rewards_next, model.rewards))
    taken = np.bincount(grid.cells, minlength=size) > 0
    choices = [~taken, there == 0, costs, ends & pays, ends]
    return np.select(choices, ["wall", "closed", "danger", "goal", "end"], "").tolist()


def _directions(model: FiniteMDP, grid: Grid) -> tuple[FloatArray, BoolArray]:
    """(S, A, 2) unit step (rows, columns) of each action, 0 if it goes nowhere in particular.

    An action whose steps to neighbouring cells agree over the grid has one direction everywhere.
    Also (S,) whether it matters which action is taken.
    """
    shape = (model.num_states, model.num_actions)
    pairs = math.prod(shape)
    row = np.repeat(np.arange(model.indptr.size - 1), np.diff(model.indptr)) % pairs
    place = np.stack(np.divmod(grid.cells, grid.columns), axis=1)
    step = place[model.indices] - place[row // model.num_actions]
    mass = model.data * (np.abs(step).max(axis=1) == 1)
    own = np.stack([np.bincount(row, mass * axis, pairs) for axis in step.T], axis=1)
    own = own.reshape(*shape, 2)
    common, moving = own.sum(axis=0), np.bincount(row, mass, pairs).reshape(shape).sum(axis=0)
    agree = np.linalg.norm(common, axis=1) >= CONSISTENT * moving
    chosen = np.where(agree[:, None], common, own)
    # the nearest of the eight neighbours: walls bend the mean a little
    angle = np.pi / 4 * np.round(np.arctan2(chosen[..., 0], chosen[..., 1]) / (np.pi / 4))
    unit = np.stack([np.sin(angle), np.cos(angle)], axis=2)
    length = np.linalg.norm(chosen, axis=2, keepdims=True)
    pays = np.concatenate([x.reshape(-1, *shape) for x in (model.rewards, model.costs)])
    told = np.concatenate([np.moveaxis(own, 2, 0), pays])
    first = np.take_along_axis(told, model.available.argmax(axis=1)[None, :, None], axis=2)
    matters = (model.available & (np.abs(told - first) > 1e-12).any(axis=0)).any(axis=1)
    return np.where(length > 1e-9, unit, 0.0), matters


def _draw_grid(model: FiniteMDP, grid: Grid, flows: FloatArray, visits: FloatArray) -> Figure:
    kinds, size = _cell_kinds(model, grid), grid.rows * grid.columns
    scale = min(0.55, 9.0 / max(grid.rows, grid.columns))
    figure = Figure(figsize=(scale * grid.columns + 1.6, scale * grid.rows + 1.1))
    axes = figure.subplots()
    shade = np.bincount(grid.cells, visits, size)
    shade[[kind != "" for kind in kinds]] = np.nan
    norm = PowerNorm(0.5, 0.0, float(np.nanmax(shade, initial=0.0)) or 1.0)
    image = axes.imshow(shade.reshape(grid.rows, -1), cmap=SHADES, norm=norm)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.03)
    bar.set_label(UNITS[type(model.criterion)], fontsize=8)
    bar.ax.tick_params(labelsize=7)
    for cell, kind in enumerate(kinds):
        if kind:
            letter, fill, hatch, _ = KINDS[kind]
            r, c = divmod(cell, grid.columns)
            axes.add_patch(
                Rectangle((c - 0.5, r - 0.5), 1, 1, fc=fill, ec=DANGER, hatch=hatch, lw=0)
            )
            axes.text(c, r, letter, ha="center", va="center", fontsize=20 * scale, weight="bold")
    start = np.unique(grid.cells[model.initial > 0])
    words = [word for kind, (*_, word) in KINDS.items() if kind in kinds]
    if start.size <= max(1, size // 4):
        words.insert(0, "S start")
        for r, c in zip(*np.divmod(start, grid.columns)):
            axes.text(c - 0.45, r - 0.45, "S", va="top", fontsize=14 * scale, weight="bold")
    words += _draw_arrows(axes, model, grid, flows)
    axes.set_xticks(np.arange(grid.columns + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(grid.rows + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="0.75", lw=0.5)
    axes.tick_params(which="both", length=0, labelsize=7)
    every = -(-max(grid.rows, grid.columns) // 20)
    axes.set_xticks(range(0, grid.columns, every))
    axes.set_yticks(range(0, grid.rows, every))
    text = textwrap.fill("; ".join(words), int(16 * figure.get_figwidth()))
    axes.set_xlabel(text, fontsize=7, color="0.25")
    return figure


def _draw_arrows(axes: Axes, model: FiniteMDP, grid: Grid, mass: FloatArray) -> list[str]:
    """Arrows for the actions of each cell, by their share of its `mass` (S, A)."""
    size = grid.rows * grid.columns
    directions, matters = _directions(model, grid)
    mass = mass * matters[:, None]
    cell_mass = np.zeros((size, model.num_actions))
    np.add.at(cell_mass, grid.cells, mass)
    flow = np.zeros((size, model.num_actions, 2))
    np.add.at(flow, grid.cells, mass[:, :, None] * directions)
    total = cell_mass.sum(axis=1, keepdims=True)
    share = cell_mass / np.maximum(total, 1e-300)
    shown = (share >= LEAST) & (total > RARE * total.sum())
    length = np.linalg.norm(flow, axis=2)
    goes = length > 0.5 * cell_mass  # the states of a cell agree on where the action goes
    at, action = np.nonzero(shown & goes)
    if at.size:
        step = 0.46 * (share[at, action] / length[at, action])[:, None] * flow[at, action]
        r, c = np.divmod(at, grid.columns)
        axes.quiver(
            c, r, step[:, 1], step[:, 0], angles="xy", scale_units="xy", scale=1, units="xy",
            width=0.045, headwidth=4, headlength=4, headaxislength=3.6, minlength=0,
        )  # fmt: skip
    still = np.where(shown & ~goes, share, 0.0).sum(axis=1)
    for cell in np.flatnonzero(still):
        place = (float(cell % grid.columns), float(cell // grid.columns))
        axes.add_patch(Circle(place, 0.1 + 0.15 * float(still[cell]), fill=False, lw=1.1))
    words = ["arrow: action, as long as its probability"]
    return words + (["ring: an action that goes nowhere"] if still.any() else [])


def _draw_table(model: FiniteMDP, flows: FloatArray, visits: FloatArray) -> Figure:
    """States (those where the policy comes) by actions, with how often it is there beside them."""
    often = flows.sum(axis=1)
    rows = np.flatnonzero(often > RARE * often.sum())
    if max(rows.size, model.num_actions) > MAX_ROWS:
        raise ConfigError(
            f"{rows.size} states and {model.num_actions} actions are too many for a picture of a "
            f"table (at most {MAX_ROWS}), and the states lie on no grid: give them names such as "
            "'0,3' (row, column), or save the policy as a table (--table)"
        )
    law = flows[rows] / often[rows, None]
    figure = Figure(figsize=(0.55 * model.num_actions + 3.5, 0.26 * rows.size + 1.6))
    axes, side = figure.subplots(1, 2, sharey=True, width_ratios=[max(2, model.num_actions), 2])
    absent = ~model.available[rows]
    axes.set_facecolor(NOWHERE)
    axes.imshow(np.where(absent, np.nan, law), cmap=SHADES, vmin=0, vmax=1, aspect="auto")
    for k, a in zip(*np.nonzero(law >= LEAST)):
        axes.text(a, k, f"{law[k, a]:.2g}", ha="center", va="center", fontsize=7)
    axes.set_xticks(range(model.num_actions), map(model.action_name, range(model.num_actions)))
    axes.tick_params(axis="x", rotation=60, labelsize=7)
    axes.set_yticks(range(rows.size), [model.state_name(i) for i in rows.tolist()], fontsize=7)
    words = "probability of each action" + ("; grey: not available" if absent.any() else "")
    axes.set_xlabel(words, fontsize=7)
    axes.set_ylabel("state", fontsize=8)
    side.barh(range(rows.size), visits[rows], color="#4292c6")
    side.set_xlabel(UNITS[type(model.criterion)], fontsize=7)
    side.tick_params(labelsize=7)
    figure.tight_layout()
    return figure
