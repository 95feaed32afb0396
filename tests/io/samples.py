"""Models that between them use every feature of a model file."""

import numpy as np

from tightrope.model.mdp import FiniteMDP

CHAIN = [[[0.5, 0.5], [0.0, 1.0]], [[0.25, 0.75], [1.0, 0.0]]]


def plain(**changes):
    """Keys of a small model file; None leaves a key out."""
    keys = {
        "transitions": CHAIN,
        "rewards": [[0.0, 1.0], [2.0, -3.0]],
        "criterion": "episodic",
        "horizon": 3,
        "costs": [[[1.0, 0.0], [0.0, 1.0]]],
        "capacities": [1.5],
    }
    keys.update(changes)
    return {name: value for name, value in keys.items() if value is not None}


def stationary():
    """Models whose tables do not differ by step."""
    rng = np.random.default_rng(1)
    return {
        "plain": FiniteMDP(**plain(), axes="sas"),
        "one state": FiniteMDP(transitions=np.ones((1, 1, 1)), rewards=[[7]], criterion="average"),
        "two costs": FiniteMDP(
            transitions=rng.dirichlet(np.ones(4), (4, 3)),
            rewards=rng.normal(size=(4, 3)),
            costs={"fuel, heavy": rng.normal(size=(4, 3)), "Wärme": rng.normal(size=(4, 3))},
            capacities={"fuel, heavy": 1 / 3, "Wärme": -2.5e-17},
            senses=["<=", ">="],
            initial=[0.1, 0.2, 0.3, 0.4],
            criterion="average",
        ),
        "realised": FiniteMDP(
            transitions=np.full((3, 1, 3), 1 / 3),
            rewards_next=rng.normal(size=(3, 1, 3)),
            costs_next=rng.normal(size=(1, 3, 1, 3)),
            capacities=[0.0],
            initial=[1 / 3, 1 / 3, 1 / 3],
            criterion="discounted",
            discount=0.95,
            state_names=["a", "b, c", 'd"e'],
            action_names=["go"],
        ),
        "realised but constant": FiniteMDP(
            transitions=np.full((3, 1, 3), 1 / 3),
            rewards_next=np.ones((3, 1, 3)),
            criterion="total",
        ),
        "masked": FiniteMDP(
            transitions=[[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]],
            rewards=[[-1.0, -3.0], [1.0, -np.inf]],
            available=[[True, True], [True, False]],
            criterion="total",
            axes="sas",
        ),
    }


def models():
    rng = np.random.default_rng(2)
    staged = FiniteMDP(
        transitions=rng.dirichlet(np.ones(3), (2, 3, 2)),
        rewards=rng.normal(size=(2, 3, 2)),
        costs=rng.random((3, 2, 3, 2)),
        capacities=[0.1, 0.2, 1 / 3],
        senses=["<=", ">=", "<="],
        criterion="episodic",
        horizon=2,
    )
    return {**stationary(), "staged": staged, "staged rewards": staged_rewards()}


def staged_rewards():
    return FiniteMDP(**plain(rewards=np.arange(12.0).reshape(3, 2, 2)), axes="sas")
