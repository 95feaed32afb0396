"""Feature maps and Lemma 8, against closed forms and the certificate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tightrope.errors import ModelError
from tightrope.model import features as ft


def test_one_hot_skips_what_is_not_available():
    available = np.array([[True, True], [False, True]])
    table = ft.one_hot(available)
    assert table.shape == (2, 2, 3)
    assert (table[1, 0] == 0).all()
    np.testing.assert_array_equal(table[available], np.eye(3))


def test_random_simplex_is_a_simplex():
    table = ft.random_simplex(5, 3, 4, rng=np.random.default_rng(1))
    assert (table >= 0).all()
    np.testing.assert_allclose(table.sum(axis=2), 1.0, atol=1e-12)


def test_polynomial_and_fourier_in_two_variables():
    points = np.array([[0.0, 10.0], [1.0, 30.0], [0.5, 20.0]])
    low, high = [0.0, 10.0], [1.0, 30.0]
    table = ft.polynomial(1, 2, low=low, high=high, variables=2)(points)
    assert table.shape == (3, 1, 6)
    # order of powers: 1, y, y^2, x, xy, x^2 with x, y in [-1, 1]
    np.testing.assert_allclose(table[0, 0], [1, -1, 1, -1, 1, 1])
    np.testing.assert_allclose(table[2, 0], [1, 0, 0, 0, 0, 0])
    waves = ft.fourier(1, 1, low=low, high=high, variables=2)(points)
    np.testing.assert_allclose(waves[1, 0], [1, -1, -1, 1])


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_ellipsoid_is_minimal_and_maps_into_the_ball(seed, dimension):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(dimension + 15, dimension)) * rng.uniform(0.01, 100, dimension)
    shape, gap = ft.enclosing_ellipsoid(points)
    inside = np.einsum("nd,de,ne->n", points, shape, points)
    assert inside.max() <= 1 + 1e-9
    assert gap < 1e-8
    # the least ellipsoid moves with the points (affine equivariance)
    turn = rng.normal(size=(dimension, dimension)) + 3 * np.eye(dimension)
    moved, _ = ft.enclosing_ellipsoid(points @ turn.T)
    np.testing.assert_allclose(turn.T @ moved @ turn, shape, rtol=1e-3, atol=1e-6 * shape.max())


def test_ellipsoid_of_a_box_is_a_ball():
    corners = np.array([[1.0, 1.0], [1.0, -1.0]])
    shape, gap = ft.enclosing_ellipsoid(corners)
    np.testing.assert_allclose(shape, np.eye(2) / 2, atol=1e-9)
    assert gap < 1e-8


def test_lemma_8_bounds_the_weights_of_every_linear_function():
    """For F = phi'z the new weights are at most sqrt(d) max|F| [LIN, Lemma 8]."""
    rng = np.random.default_rng(5)
    table = rng.normal(size=(40, 2, 5)) * [1, 10, 100, 0.1, 1]
    fitted = ft.normalise(table)
    assert fitted.constant_added
    assert fitted.features.shape[2] == 6
    np.testing.assert_array_equal(fitted.features[..., 0], 1.0)
    inner = fitted.features[..., 1:]
    assert np.linalg.norm(inner, axis=2).max() <= 1 + 1e-12
    for _ in range(200):
        z = rng.normal(size=5)
        values = table @ z
        weights = np.linalg.lstsq(inner.reshape(-1, 5), values.ravel(), rcond=None)[0]
        assert np.linalg.norm(weights) <= np.sqrt(5) * np.abs(values).max() * (1 + 1e-6)
    ft.check_features(fitted.features)


def test_constant_is_added_only_where_the_span_lacks_it():
    simplex = ft.random_simplex(6, 2, 3, rng=np.random.default_rng(0))
    fitted = ft.normalise(simplex)
    assert not fitted.constant_added
    assert fitted.features.shape == (6, 2, 3)
    ft.check_features(fitted.features)


def test_redundant_coordinates_are_dropped():
    simplex = ft.random_simplex(6, 2, 3, rng=np.random.default_rng(0))
    doubled = np.concatenate([simplex, simplex @ np.ones((3, 1))], axis=2)
    with pytest.raises(ModelError, match=r"rank 3.*full rank d = 4.*normalise"):
        ft.check_features(doubled / 2)
    fitted = ft.normalise(doubled)
    assert (fitted.rank, fitted.original_dimension) == (3, 4)
    np.testing.assert_allclose(fitted.apply(doubled), fitted.features, atol=1e-12)
    ft.check_features(fitted.features)


def test_broken_features_are_named():
    table = ft.one_hot(np.ones((3, 2), dtype=bool))
    ft.check_features(table)
    with pytest.raises(ModelError, match=r"state 0, action 0 have norm 2,.*normalise"):
        ft.check_features(2 * table)
    with pytest.raises(ModelError, match=r"no combination.*normalise"):
        ft.check_features(np.array([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]) / 2)
    broken = table.copy()
    broken[2, 1, 4] = np.nan
    with pytest.raises(ModelError, match="feature 4 of state 2, action 1 is nan"):
        ft.check_features(broken)
    with pytest.raises(ModelError, match=r"\(S, A\) = \(4, 2\)"):
        ft.check_features(table, np.ones((4, 2), dtype=bool))
    with pytest.raises(ModelError, match="all features are zero"):
        ft.normalise(np.zeros((2, 2, 2)))
