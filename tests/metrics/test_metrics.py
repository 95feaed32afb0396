"""Regret and violation in every form, against worked numbers."""

import numpy as np
import pytest

from tightrope.errors import ConfigError
from tightrope.metrics import (
    Ledger,
    align,
    average_regret,
    average_violation,
    hinge_of_sum,
    interval,
    recording_grid,
    window_mean,
)

# five episodes with a budget of 0.5 and an optimum of 0.9
COST = np.array([0.9, 0.1, 0.8, 0.2, 0.3])
VALUE = np.array([1.2, 0.6, 1.1, 0.7, 0.8])


def ledger(cuts, grid=None, windowed=False):
    book = Ledger(
        recording_grid(5) if grid is None else grid, 0.9, np.array([0.5]), np.ones(1), steps=1,
        windowed=windowed,
    )  # fmt: skip
    exact = np.stack([VALUE, COST], axis=1)
    for low, high in zip([0, *cuts], [*cuts, 5]):
        book.add(exact[low:high], exact[low:high] * 2)
    return book.columns()


@pytest.mark.parametrize("cuts", [[], [1], [2, 3], [1, 2, 3, 4]])
def test_worked_example(cuts):
    columns = ledger(cuts)
    assert columns["violation_0"] == pytest.approx([0.4, 0, 0.3, 0, -0.2])
    assert hinge_of_sum(columns["violation_0"]) == pytest.approx([0.4, 0, 0.3, 0, 0])
    assert columns["violation_plus_0"] == pytest.approx([0.4, 0.4, 0.7, 0.7, 0.7])
    assert columns["regret"] == pytest.approx([-0.3, 0, -0.2, 0, 0.1])
    assert columns["reward"] == pytest.approx(VALUE)
    assert columns["sampled_cost_0"] == pytest.approx(2 * COST.cumsum())
    assert average_regret(columns)[-1] == pytest.approx(0.02)
    assert average_violation(columns)[-1] == pytest.approx(-0.04)


def test_sums_do_not_depend_on_the_blocks():
    whole = ledger([])
    for cuts in ([3], [1, 4], [1, 2, 3, 4]):
        for name, column in ledger(cuts).items():
            assert column.tobytes() == whole[name].tobytes(), name


def test_pseudo_regret_of_a_bandit():
    """Arms of mean .9 and .5 pulled 1, 0, 0, 1, 0, each time with reward 1."""
    book = Ledger(recording_grid(5), 0.9, np.zeros(0), np.zeros(0), steps=1)
    means = np.array([0.9, 0.5])[[1, 0, 0, 1, 0]]
    book.add(means[:, None], np.ones((5, 1)))
    columns = book.columns()
    assert columns["regret"] == pytest.approx([0.4, 0.4, 0.4, 0.8, 0.8])
    realised = 0.9 * columns["episode"] - columns["sampled_reward"]
    assert realised == pytest.approx([-0.1, -0.2, -0.3, -0.4, -0.5])


def test_floors_count_the_other_way():
    book = Ledger(recording_grid(5), 0.9, np.array([0.5]), np.array([-1.0]), steps=1)
    book.add(np.stack([VALUE, COST], axis=1), np.zeros((5, 2)))
    assert book.columns()["violation_0"] == pytest.approx([-0.4, 0, -0.3, 0, 0.2])


def test_windowed_rows_are_means_since_the_row_before():
    columns = ledger([2], grid=np.array([2, 5]), windowed=True)
    assert columns["reward"] == pytest.approx([VALUE[:2].mean(), VALUE[2:].mean()])
    assert columns["cost_0"] == pytest.approx([COST[:2].mean(), COST[2:].mean()])


def test_window_mean():
    columns = ledger([])
    assert window_mean(columns, "violation_0", 2, 4) == pytest.approx((COST[1:4] - 0.5).mean())
    assert window_mean(columns, "regret", 1, 5) == pytest.approx(0.02)
    with pytest.raises(ConfigError, match="episode 7 is not on the recording grid"):
        window_mean(columns, "regret", 2, 7)
    with pytest.raises(ConfigError, match="'reward' is not cumulative"):
        window_mean(columns, "reward", 1, 5)
    with pytest.raises(ConfigError, match="did you mean 'violation_0'"):
        window_mean(columns, "violation_7", 1, 5)
    with pytest.raises(ConfigError, match="first <= last"):
        window_mean(columns, "regret", 5, 4)


def test_means_of_an_arrow_table():
    """As `load_results` returns it; the rows of one run at a time."""
    pa = pytest.importorskip("pyarrow")
    columns = ledger([])
    table = pa.table(columns)
    assert window_mean(table, "regret", 1, 5) == window_mean(columns, "regret", 1, 5)
    assert (average_violation(table) == average_violation(columns)).all()
    with pytest.raises(ConfigError, match="did you mean 'violation_0'"):
        window_mean(table, "violation_7", 1, 5)
    with pytest.raises(ConfigError, match="rows of one run"):
        window_mean(pa.concat_tables([table, table]), "regret", 1, 5)


@pytest.mark.parametrize("total", [1, 7, 5_000, 5_001, 20_000, 1_000_000])
def test_recording_grid(total):
    grid = recording_grid(total)
    assert grid[0] == 1
    assert grid[-1] == total
    assert (np.diff(grid) > 0).all()
    assert (grid[: min(total, 5_000)] == np.arange(1, min(total, 5_000) + 1)).all()
    assert (grid > 0.8 * total).sum() >= min(200, total // 5)
    for decade in range(4, 7):
        inside = (grid > 10**decade / 10) & (grid <= 10**decade)
        if 10**decade <= total:
            assert inside.sum() >= 200


def test_interval_of_one_run_has_no_width():
    mean, half = interval(np.array([[1.0, 2.0]]))
    assert mean.tolist() == [1.0, 2.0]
    assert np.isnan(half).all()


def test_interval_and_alignment():
    finals = np.array([[120.0], [150], [95], [180], [135]])
    mean, half = interval(finals)
    assert mean[0] == 136.0
    assert finals.std(ddof=1) == pytest.approx(31.898275815473163)
    assert half[0] == pytest.approx(39.60694068484684)
    grid = np.array([0, 10, 15, 20, 30])
    one = align(grid, np.array([0, 10, 20, 30]), np.array([0.0, 4, 6, 7]))
    two = align(grid, np.array([0, 15, 30]), np.array([0.0, 9, 12]))
    assert (one + two) / 2 == pytest.approx([0, 2, 6.5, 7.5, 9.5])
