"""Numbers published for environments and files that people have, by the public interface alone."""

import itertools

import gymnasium
import numpy as np
import pytest
from tests.io.test_cassandra import CORNER

import tightrope as tr
from tightrope.errors import ModelError, ModelWarning
from tightrope.problems.registry import make_problem

DISCOUNTED = {"criterion": "discounted", "discount": 0.99}


@pytest.mark.parametrize(
    ("name", "options", "value"),
    [
        ("FrozenLake-v1", {}, 0.5420259320),
        ("FrozenLake-v1", {"map_name": "8x8"}, 0.4146403618),
        ("CliffWalking-v1", {}, -12.2478977),
        ("CliffWalking-v1", {"is_slippery": True}, -46.3526721817),
        ("Taxi-v4", {}, 6.3274643149),  # the mean over the 300 starts
    ],
)
def test_discounted_optima_of_gymnasiums_tables(name, options, value):
    model = tr.from_gymnasium(gymnasium.make(name, **options), **DISCOUNTED)
    solution = tr.plan(model)
    assert solution.value == pytest.approx(value, abs=2e-7)
    assert solution.gap <= 1e-8


def test_frozen_lake_with_a_bound_on_the_holes():
    model = tr.from_gymnasium(
        "FrozenLake-v1",
        **DISCOUNTED,
        costs={"hole": lambda s, a, t: float(t in (5, 7, 11, 12))},
        capacities={"hole": 0.05},
    )
    assert tr.plan(model).value == pytest.approx(0.2295735294, abs=1e-8)
    relaxed = tr.plan(model.replace(capacities=[0.1]))
    assert relaxed.value == pytest.approx(0.4591470588, abs=1e-8)
    assert relaxed.costs[0] <= 0.1 + 1e-9


def test_undiscounted_walks():
    cliff = tr.from_gymnasium("CliffWalking-v1", criterion="total")
    assert tr.plan(cliff).value == pytest.approx(-13, abs=1e-8)
    taxi = tr.from_gymnasium("Taxi-v4", criterion="total")
    assert tr.plan(taxi).value == pytest.approx(7.93, abs=0.005)


def test_the_corner_model_of_a_cassandra_file(tmp_path):
    path = tmp_path / "corner.mdp"
    path.write_text(CORNER)
    for start, value in zip(("nw", "ne", "sw", "se"), (0, -0.8 / 0.81, -0.8 / 0.81, 0)):
        model = tr.load(path, initial=np.eye(4)[["nw", "ne", "sw", "se"].index(start)])
        assert tr.plan(model).value == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("suffix", ["json", "npz", "csv"])
def test_impossible_actions_from_files(tmp_path, suffix):
    """R02: the mask, not a zero row, says that an action does not exist; V0 = -10."""
    table = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]]
    model = tr.FiniteMDP(
        transitions=table,
        rewards=[[-1.0, -3.0], [1.0, 0.0]],
        available=[[True, True], [True, False]],
        criterion="discounted",
        discount=0.9,
        axes="sas",
    )
    tr.save(model, tmp_path / f"model.{suffix}")
    again = tr.load(tmp_path / f"model.{suffix}")
    assert tr.plan(again).value == pytest.approx(-10, abs=1e-8)


def test_axis_order_and_reward_shapes():
    """R06 and R07."""
    array = [[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.6, 0.4]]]
    fields = {"rewards": [[0.0, 1.0], [2.0, 0.0]], "criterion": tr.Discounted(0.9)}
    with pytest.raises(ModelError, match="say axes="):
        tr.FiniteMDP(transitions=array, **fields)
    for axes, value in (("sas", 15.669291338581818), ("ass", 16.164383561643017)):
        found = tr.plan(tr.FiniteMDP(transitions=array, axes=axes, **fields))
        assert found.value == pytest.approx(value, abs=1e-8)
    model = tr.FiniteMDP(
        transitions=[[[0, 0.25, 0.75]], [[0, 0, 1]], [[0, 0, 1]]],
        rewards_next=[[[0, 8, -4]], [[0, 0, 10]], [[0, 0, 0]]],
        criterion=tr.Discounted(0.5),
    )
    assert model.rewards.ravel().tolist() == [-1, 10, 0]
    assert tr.plan(model).value == pytest.approx(0.25, abs=1e-9)


ONE_MODEL = [
    "mars-rover",
    "box",
    "inventory",
    "media-buffer",
    "budget-pacing",
    "service-queue",
    "machine-replacement",
    "random-cmdp",
    "riverswim",
    "ergodic",
    "access-control",
    "admission-control",
]


@pytest.mark.parametrize("name", ONE_MODEL)
@pytest.mark.parametrize("suffix", ["npz", "json", "csv"])
def test_every_problem_survives_every_lossless_format(name, suffix, tmp_path):
    model = make_problem(name)
    tr.save(model, tmp_path / f"model.{suffix}")
    assert tr.load(tmp_path / f"model.{suffix}").content_hash == model.content_hash


def test_a_chain_of_conversions_keeps_the_optimum(tmp_path):
    names = [tmp_path / name for name in ("a.csv", "b.npz", "c.mdp", "d.json", "e.tra")]
    model = tr.from_gymnasium("FrozenLake-v1", **DISCOUNTED).replace(state_names=None)
    tr.save(model, names[0])
    for source, target in itertools.pairwise(names[:-1]):
        assert tr.convert(source, target).content_hash == model.content_hash
    with pytest.warns(ModelWarning, match="does not hold the criterion"):
        tr.convert(names[-2], names[-1])
    again = tr.load(names[-1], **DISCOUNTED)
    assert again.content_hash == model.content_hash
    assert tr.plan(again).value == pytest.approx(0.5420259320, abs=1e-8)
