"""Figures: what they draw of few seeds, and labels that no curve crosses."""

import json
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pytest

from tightrope import plots
from tightrope.metrics import recording_grid
from tightrope.plots import COLOURS, MAX_POINTS, _bounds_figure, _figure, _looks, _places, _runs

ARM = {
    "problem": "p", "learner": "conrl", "preset": "tuned", "guarantee": None, "unit": "episodes",
    "optimum": {"value": 1.0, "capacities": {"use": 0.3}},
}  # fmt: skip


@pytest.mark.parametrize(("seeds", "title"), [(1, "one run"), (2, "mean over 2"), (3, "95%")])
def test_bands_from_three_seeds_on(seeds, title):
    """The t interval of two runs would stretch the axes to many times the curves."""
    columns = ("reward", "cost_0", "regret", "violation_0")
    rows = pa.table(
        {
            "learner": ["conrl"] * seeds * 2,
            "preset": ["tuned"] * seeds * 2,
            "seed": np.repeat(np.arange(seeds), 2),
            "episode": np.tile([1, 2], seeds),
            "steps": np.tile([30, 60], seeds),
            **{name: np.arange(seeds * 2) / 10 for name in columns},
        }
    )
    figure = _figure("p", rows, [ARM], _looks([ARM]))
    assert title in figure.get_suptitle()
    assert [len(axes.collections) for axes in figure.axes] == [int(seeds >= 3)] * 4
    low, high = figure.axes[0].get_ylim()
    assert high - low < 3
    for axes in figure.axes[:2]:
        (label,) = axes.texts
        assert label.get_window_extent().x0 > axes.get_window_extent().x1
    plt.close(figure)


def runs_of(learner, preset, episode, **columns):
    """Rows of as many runs as the columns have rows."""
    seeds = len(next(iter(columns.values())))
    return pa.table(
        {
            "learner": [learner] * seeds * len(episode),
            "preset": [preset] * seeds * len(episode),
            "seed": np.repeat(np.arange(seeds), len(episode)),
            "episode": np.tile(episode, seeds),
            "steps": 2 * np.tile(episode, seeds),
            **{name: np.ravel(values) for name, values in columns.items()},
        }
    )


def test_rewards_of_adversaries_are_means_of_every_episode():
    """Single episodes of a problem that alternates would fill the panel, or make up waves."""
    total = 100_000
    episode, every = recording_grid(total), np.arange(1, total + 1)
    reward = np.where(every % 2, 0.2, 1.8) + (every > total // 2)
    use = np.where(every % 2, -3.0, 5.0)
    arm = {
        **ARM, "scale": {"reward_scale": 1.0}, "senses": {"use": ">="},
        "optimum": {"value": 2.5, "capacities": {"use": 0.3}},
    }  # fmt: skip
    columns = {
        "reward": [reward[episode - 1]],
        "cost_0": [use[episode - 1]],
        "regret": [np.cumsum(2.5 - reward)[episode - 1]],
        "violation_0": [np.cumsum(0.3 - use)[episode - 1]],
    }
    rows = runs_of("conrl", "tuned", episode, **columns)
    for column, all_values in (("reward", reward), ("cost_0", use)):
        grid, (drawn,) = _runs(rows, column, arm)
        assert grid.size <= 60
        assert grid[-1] == total
        parts = np.split(all_values, grid[:-1])
        np.testing.assert_allclose(drawn, [part.mean() for part in parts], atol=1e-6)
        assert np.ptp(drawn[grid <= total // 2]) < 0.1
    # without an adversary the values of single episodes are those of the policy
    grid, (drawn,) = _runs(rows, "reward", {**arm, "scale": None})
    np.testing.assert_array_equal(drawn, reward[grid - 1])
    figure = _figure("p", rows, [arm], _looks([arm]))
    assert "means over 60 stretches" in figure.texts[-1].get_text()
    plt.close(figure)


@pytest.mark.parametrize("total", [16_000, 1_000_000])
def test_thinned_curves_keep_their_bends(total):
    """Records are dense up to 5,000: chosen evenly among the rows, few would be later."""
    episode = recording_grid(total)
    peak = total / 2 - np.abs(episode - total / 2)
    rows = runs_of("conrl", "tuned", episode, regret=[peak])
    grid, (drawn,) = _runs(rows, "regret")
    assert grid.size <= MAX_POINTS
    assert (grid[0], grid[-1]) == (1, total)
    assert drawn.max() > 0.98 * total / 2
    assert (grid <= 100).sum() > 20  # and the start, for logarithmic axes


def test_equal_curves_show_both_markers():
    for i, j in combinations(range(len(COLOURS)), 2):
        assert np.abs(_places(i)[:, None] - _places(j)).min() > 0.01


def bounds_of(measured, *shares):
    rows = [
        {"quantity": name, "measured": 1.0, "bound": 30.0, "source": "[X, Theorem 1]", "proved": 0}
        for name in ("R_T", "V_T")
    ]
    rows.append({"quantity": "OPT", "measured": 2.0, "bound": 2.0, "source": "", "proved": 1})
    rows += [
        {"quantity": plots.SHARE, "measured": measured, "bound": b, "source": f"alpha {b}"}
        for b in shares
    ]
    return rows


def test_bounds_beside_the_curves():
    """Legends below the panels, learners as in other figures, V_T of runs, promised shares."""
    episode = np.arange(1, 101)
    up = np.linspace(2.0, 20.0, 100)
    early = up - 150.0 * (episode < 3)
    arms = [
        {**ARM, "problem": "p", "learner": name, "preset": preset}
        for name, preset in (("uniform", "tuned"), ("pdgd-ops", "tuned"), ("pdgd-ops", "no-cap"))
    ]
    rows = pa.concat_tables(
        [
            runs_of(
                arm["learner"], arm["preset"], episode, regret=[early, 2 * up, 3 * up],
                violation_0=[up, 0 * up, up], violation_1=[0 * up, 5 * up, 0 * up],
            )
            for arm in arms[1:]
        ]
    )  # fmt: skip
    entries = [
        {
            "learner": arm["learner"], "preset": arm["preset"], "guarantee": None, "episodes": 100,
            "bounds": bounds_of(0.9, 0.2, 0.5),
        }
        for arm in arms[1:]
    ]  # fmt: skip
    looks = _looks(arms)
    figure = _bounds_figure("p", rows, entries, looks)
    figure.canvas.draw()
    assert "95% interval over 3 seeds" in figure.get_suptitle()
    assert len(figure.axes) == 3
    for axes in figure.axes:
        box = axes.get_legend().get_window_extent()
        assert box.y1 < axes.xaxis.label.get_window_extent().y0
        assert len(axes.collections) == 2  # bands
    limit, *curves = (line for line in figure.axes[1].lines if len(line.get_xdata()) > 1)
    assert "L t" in limit.get_label()
    wanted = [COLOURS[looks["p", "pdgd-ops", name]] for name in ("tuned", "no-cap")]
    assert [line.get_color() for line in curves] == wanted
    # the mean of the runs' largest violations, not the largest of the constraints' means
    np.testing.assert_allclose(curves[0].get_ydata()[-1], (20 + 100 + 20) / 3)
    shares = {line.get_label(): line.get_ydata()[-1] for line in figure.axes[2].lines}
    assert shares["alpha 0.2"] == 0.2
    assert shares["alpha 0.5"] == 0.5
    np.testing.assert_allclose(shares["pdgd-ops"], 1 - 40 / (100 * 2.0))
    assert figure.axes[2].get_ylim() == (0, 2)  # though the first episode earns 24 times OPT
    plt.close(figure)


def test_slopes_hide_no_point_and_count_those_below_one(tmp_path, monkeypatch):
    rows = [
        {
            "problem": problem, "learner": "pdgd-ops", "quantity": "R_T", "slope": 0.0, "low": 0.0,
            "high": 0.0, "horizons": [10, 10, 1000], "values": values,
        }
        for problem, values in (("one", [-3.0, 0.5, 1.0]), ("two", [2.0, 2.0, 2.0]))
    ]  # fmt: skip
    (tmp_path / "slopes.json").write_text(json.dumps(rows))
    monkeypatch.setattr(plots, "_save", lambda figure, stem: [figure])
    (figure,) = plots.draw_slopes(tmp_path)
    (axes,) = figure.axes
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == [
        "one, pdgd-ops: 0.00 [0.00, 0.00], 2 of 3 below 1", "two, pdgd-ops: 0.00 [0.00, 0.00]",
    ]  # fmt: skip
    markers = [handle.get_marker() for handle in axes.get_legend().get_lines()]
    points = [line for line in axes.lines if line.get_linestyle() == "None"]
    assert markers == [line.get_marker() for line in points]
    one, two = (line.get_xdata() for line in points)
    assert (np.abs(np.log(one / two)) > 0.05).all()
    np.testing.assert_allclose(one * two, np.array([10, 10, 1000]) ** 2)
    plt.close(figure)
