"""Policies as data: mixtures, checks with places, and files."""

import numpy as np
import pytest

from tightrope.errors import ModelError
from tightrope.model.policy import (
    DeterministicPolicy,
    MixturePolicy,
    StochasticPolicy,
    check_policy,
    load_policy,
    mixture,
    probabilities,
    save_policy,
    uniform_policy,
)

OPEN = np.array([[True, True, False], [True, True, True]])
LEFT = DeterministicPolicy(np.array([0, 0]))
STAGED = DeterministicPolicy(np.array([[0, 1], [1, 2], [0, 0]]))
HALF = StochasticPolicy(np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]))


def test_uniform_uses_only_what_exists():
    np.testing.assert_allclose(
        uniform_policy(OPEN).probabilities, [[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]
    )


def test_mixtures_are_flattened_and_lose_what_has_no_weight():
    inner = mixture([LEFT, STAGED], np.array([0.25, 0.75]))
    outer = mixture([inner, HALF, LEFT], np.array([0.4, 0.6, 0.0]))
    assert outer.components == (LEFT, STAGED, HALF)
    np.testing.assert_allclose(outer.weights, [0.1, 0.3, 0.6])
    assert mixture([LEFT, HALF], np.array([0.0, 1.0])) is HALF


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5, 0.4], "sum to 1"),
        ([1.5, -0.5], ">= 0"),
        ([np.nan, 1.0], ">= 0"),
        ([1.0], r"weights have shape \(1,\), expected \(2,\)"),
    ],
)
def test_weights_are_checked(weights, message):
    with pytest.raises(ModelError, match=message):
        mixture([LEFT, HALF], np.array(weights))


def test_probabilities():
    np.testing.assert_array_equal(probabilities(LEFT, 3), [[1, 0, 0], [1, 0, 0]])
    assert probabilities(STAGED, 3).shape == (3, 2, 3)
    assert probabilities(HALF, 3) is HALF.probabilities
    assert STAGED.staged
    assert not HALF.staged


def test_stacks_of_deterministic_components():
    stack = MixturePolicy((LEFT, LEFT), np.array([0.5, 0.5])).actions
    assert stack.shape == (2, 1, 2)
    assert MixturePolicy((STAGED, STAGED), np.array([0.5, 0.5])).actions.shape == (2, 3, 2)
    assert MixturePolicy((LEFT, HALF), np.array([0.5, 0.5])).actions is None
    assert MixturePolicy((LEFT, STAGED), np.array([0.5, 0.5])).actions is None


@pytest.mark.parametrize("policy", [LEFT, HALF, uniform_policy(OPEN)])
def test_policies_that_fit(policy):
    check_policy(policy, OPEN, None)
    check_policy(policy, OPEN, 3)
    check_policy(mixture([policy, STAGED], np.array([0.5, 0.5])), OPEN, 3)


@pytest.mark.parametrize(
    ("policy", "horizon", "message"),
    [
        (STAGED, None, r"shape \(3, 2\), expected \(2,\)"),
        (STAGED, 4, r"shape \(3, 2\), expected \(2,\) or \(4, 2\)"),
        (DeterministicPolicy(np.array([0, 3])), None, "whole numbers in 0..2"),
        (DeterministicPolicy(np.array([-1, 0])), None, "whole numbers in 0..2"),
        (DeterministicPolicy(np.array([0.0, 1.0])), None, "whole numbers in 0..2"),
        (DeterministicPolicy(np.array([2, 0])), None, "action 2 in state 0, which is not"),
        (StochasticPolicy(np.array([[0.5, 0.0, 0.5], [1, 0, 0]])), None, "action 2 in state 0"),
        (StochasticPolicy(np.array([[0.5, 0.4, 0.0], [1, 0, 0]])), None, r"row \(0,\) sums to 0.9"),
        (StochasticPolicy(np.array([[1.5, -0.5, 0.0], [1, 0, 0]])), None, r"\(0, 1\) is -0.5"),
        (StochasticPolicy(np.array([[1, 0, 0], [np.nan, 1, 0]])), None, r"\(1, 0\) is nan"),
        (StochasticPolicy(np.ones((2, 2)) / 2), None, r"shape \(2, 2\), expected \(2, 3\)"),
        (MixturePolicy((LEFT, HALF), np.array([0.5, 0.4])), None, "sum to 1"),
        (MixturePolicy((LEFT, STAGED), np.array([0.5, 0.5])), None, r"expected \(2,\)"),
        (DeterministicPolicy([0, 1]), None, r"an array of numbers, got \[0, 1\]"),
    ],
)
def test_policies_that_do_not_fit(policy, horizon, message):
    with pytest.raises(ModelError, match=message):
        check_policy(policy, OPEN, horizon)


def test_infinite_probabilities_are_located():
    policy = StochasticPolicy(np.array([[np.inf, 0, 0], [1.0, 0, 0]]))
    with pytest.raises(ModelError, match=r"\(0, 0\) is inf"):
        check_policy(policy, OPEN, None)


@pytest.mark.parametrize(
    "policy", [LEFT, STAGED, HALF, mixture([STAGED, HALF, LEFT], np.array([0.2, 0.3, 0.5]))]
)
def test_round_trip(tmp_path, policy):
    save_policy(tmp_path / "policy.npz", policy)
    again = load_policy(tmp_path / "policy.npz")
    assert type(again) is type(policy)
    parts = zip(getattr(policy, "components", (policy,)), getattr(again, "components", (again,)))
    for old, new in parts:
        assert type(old) is type(new)
        np.testing.assert_array_equal(probabilities(old, 3), probabilities(new, 3))
    if isinstance(policy, MixturePolicy):
        np.testing.assert_array_equal(policy.weights, again.weights)


@pytest.mark.parametrize("raw", [b"", b"hello", b"PK\x03\x04 cut"])
def test_files_that_are_no_policies(tmp_path, raw):
    path = tmp_path / "policy.npz"
    path.write_bytes(raw)
    with pytest.raises(ModelError, match=r"policy\.npz is no policy file"):
        load_policy(path)
    np.savez(path, weights=np.ones(1), rewards=np.zeros(3))
    with pytest.raises(ModelError, match="is no policy file"):
        load_policy(path)
    with pytest.raises(FileNotFoundError):
        load_policy(tmp_path / "absent.npz")
    with pytest.raises(ModelError, match="expected a policy to save, got a NoneType"):
        save_policy(path, None)
