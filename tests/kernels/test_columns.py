"""The points of the level method, and what they save."""

import numpy as np
import pytest
from scipy.optimize import minimize

import tightrope as tr
from tightrope.kernels import columns


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_the_point_is_about_the_nearest_of_the_level_set(m: int) -> None:
    generator = np.random.default_rng(m)
    for _ in range(20):
        values = np.column_stack([generator.random(12), generator.normal(size=(12, m))])
        limits, center = generator.normal(size=m) / 10, generator.random(m)
        inside = generator.random(m)  # so that the set is not empty
        promised = values[:, 0] - (values[:, 1:] - limits) @ inside
        level = promised.max() + 0.01
        point = center.copy()
        columns._approach.py_func(level, 12, values, limits, point)

        exact = minimize(
            lambda x, center=center: (x - center) @ (x - center),
            inside,
            jac=lambda x, center=center: 2 * (x - center),
            method="SLSQP",
            bounds=[(0, None)] * m,
            constraints={
                "type": "ineq",
                "fun": lambda x, v=values, c=limits, level=level: (
                    level - v[:, 0] + (v[:, 1:] - c) @ x
                ),
            },
            options={"ftol": 1e-12, "maxiter": 200},
        ).x
        assert (point >= 0).all()
        least = np.linalg.norm(exact - center)
        short = values[:, 0] - (values[:, 1:] - limits) @ point - level
        lengths = np.linalg.norm(values[:, 1:] - limits, axis=1)
        assert (short / lengths).max() <= 0.05 * least + 1e-6
        assert np.linalg.norm(point - exact) <= 0.2 * least + 1e-6
        untouched = inside.copy()
        columns._approach.py_func(level, 12, values, limits, untouched)
        np.testing.assert_array_equal(untouched, inside)


def test_few_rounds_of_four_programs_solve_models_with_three_costs() -> None:
    models = [tr.problems.random_cmdp(30, 3, horizon=20, num_costs=3, seed=k) for k in range(12)]
    solutions = [tr.plan(model) for model in models]
    assert all(solution.status == "solved" for solution in solutions)
    assert np.mean([s.statistics["dynamic_programs"] for s in solutions]) <= 64
