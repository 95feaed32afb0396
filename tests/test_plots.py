"""Figures: what they draw of few seeds, and labels that no curve crosses."""

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pytest

from tightrope.plots import _figure, _looks

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
