"""Cassandra's text format, and what the reader says about bad files."""

import numpy as np
import pytest
from tests.io.samples import models, plain, stationary

from tightrope.errors import ModelError, ModelWarning
from tightrope.io import from_gymnasium, load, save
from tightrope.model.mdp import FiniteMDP

# Two free corners and two states between them: a try to leave succeeds with 0.8 and then costs 1.
CORNER = """
# costs, wildcards, later lines win, names and numbers
discount: 0.95
values: cost
states: nw ne sw se
actions: north south east west
T: * identity
T: west : ne uniform
T: west : ne : * 0.0
T: west : 1 : nw 0.8
T: west : 1 : 1 0.2
T: north : sw
0.8 0 0.2 0
R: * : * : * 7
R: * : nw : * 0
R: 3 : ne : 0 1
R: west : ne : 1 0
R: north : 2 : 0 1.0e0
R: north : sw : sw 0
R: * : se : * 0
"""
TIGER = """
discount: 0.95
values: reward
states: left right
actions: listen open-left open-right
observations: hear-left hear-right
start: 0.25 0.75
T:listen
identity
T:open-left
uniform
T:open-right : *
uniform
O:*
uniform
O:listen
0.85 0.15
0.15 0.85
R:listen : * : * : * -1
R:open-left : left : * : * -100
R:open-left : right : * : * 10
R:open-right : left : * : * 10
R:open-right : right : * : * -100
"""


def read(tmp_path, text, suffix="mdp", **options):
    path = tmp_path / f"model.{suffix}"
    path.write_text(text)
    return load(path, **options)


def test_corner_model(tmp_path):
    model = read(tmp_path, CORNER)
    assert model.state_names == ("nw", "ne", "sw", "se")
    assert model.rewards[1].tolist() == [-7, -7, -7, -0.8]
    values = np.zeros(4)
    for _ in range(2000):
        backed = model.rewards + 0.95 * (model.matrix() @ values).reshape(4, 4)
        values = backed.max(axis=1)
    np.testing.assert_allclose(values, [0, -0.8 / 0.81, -0.8 / 0.81, 0], atol=1e-12)
    np.testing.assert_array_equal(model.initial, [0.25] * 4)  # the format's rule without start:


def test_a_pomdp_is_its_fully_observed_mdp(tmp_path):
    model = read(tmp_path, TIGER, "pomdp")
    assert model.num_actions == 3
    assert model.rewards.tolist() == [[-1, -100, 10], [-1, 10, -100]]
    assert model.initial.tolist() == [0.25, 0.75]
    np.testing.assert_array_equal(model.dense()[0], [[1, 0], [0.5, 0.5], [0.5, 0.5]])


def test_rewards_of_observations_become_means(tmp_path):
    model = read(tmp_path, TIGER + "R: listen : left : left : hear-right 19\n", "pomdp")
    assert model.rewards[0, 0] == pytest.approx(0.85 * -1 + 0.15 * 19)
    assert model.rewards[1, 0] == -1
    with pytest.raises(ModelError, match="depend on the observation: O: rows"):
        read(tmp_path, TIGER.replace("0.85 0.15", "0.85 0.1") + "R: 0 : 0 : 0 : 1 19\n", "pomdp")


@pytest.mark.parametrize(
    ("start", "law"),
    [
        ("start: ne", [0, 1, 0, 0]),
        ("start: 2", [0, 0, 1, 0]),
        ("start: 0.1 0.2 0.3 0.4", [0.1, 0.2, 0.3, 0.4]),
        ("start: uniform", [0.25] * 4),
        ("start include: nw se", [0.5, 0, 0, 0.5]),
        ("start exclude: nw 3", [0, 0.5, 0.5, 0]),
    ],
)
def test_start_laws(tmp_path, start, law):
    text = CORNER.replace("T: * identity", f"{start}\nT: * identity")
    np.testing.assert_array_equal(read(tmp_path, text).initial, law)


def test_a_missing_discount_is_asked_for(tmp_path):
    text = CORNER.replace("discount: 0.95", "")
    with pytest.raises(ModelError, match=r"no 'discount:' in the file; say .*discount=0\.95"):
        read(tmp_path, text)
    assert read(tmp_path, text, discount=0.5).criterion.discount == 0.5
    assert read(tmp_path, text, criterion="average").content_hash
    with pytest.raises(ModelError, match="for discount 1 choose the criterion Average"):
        read(tmp_path, CORNER.replace("0.95", "1.0"))


def test_costs_come_as_arguments(tmp_path):
    costs = {"wear": np.ones((4, 4))}
    assert read(tmp_path, CORNER, costs=costs, capacities={"wear": 3.0}).num_costs == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("discount: 0.95", "discount: high", "line 3: expected a number, got 'high'"),
        ("discount: 0.95", "discount: 0.95\ndiscount: 0.9", r"line 4: .*twice \(first on line 3\)"),
        ("values: cost", "values: price", "line 4: values: is 'reward' or 'cost', got 'price'"),
        ("states: nw ne sw se", "", "line 7: 'states:' must come before this"),
        ("states: nw ne sw se", "states: nw ne nw se", "line 5: 'nw' is there twice"),
        ("states: nw ne sw se", "states: 0", "line 5: 'states:' needs at least one"),
        ("states: nw ne sw se", "states: 100000", "more than 50,000,000 entries; use .npz"),
        ("states: nw ne sw se", "states: nw 1x sw se", "line 5: '1x' is no name"),
        ("T: west : ne : * 0.0", "T: west : nee : * 0.0", "line 9: 'nee' is not .* mean 'ne'"),
        ("T: west : ne : * 0.0", "T: west : 9 : * 0.0", "line 9: '9' is not among the states"),
        ("0.8 0 0.2 0", "0.8 0 0.2", "T: takes 4 numbers, got 3"),
        ("0.8 0 0.2 0", "0.8 0 0.2 0 0", "T: takes 4 numbers, got 5"),
        ("0.8 0 0.2 0", "0.8 0 nan 0", "T: takes 4 numbers, got 2"),
        ("0.8 0 0.2 0", "0.8 0 0.1 0", r"line 12: .*\(state 2 'sw', action 0 'north'\) sum to 0.9"),
        ("0.8 0 0.2 0", "1.2 0 -0.2 0", r"line 12: probability .* to state 2 'sw' is -0.2"),
        ("T: * identity", "T: north identity", r"\(state 0 'nw', action 1 'south'\) has no trans"),
        ("T: * identity", "T * identity", r"line 7: '\*' is no name"),
        ("T: * identity", "Q: * identity", "line 7: 'Q' is no name|line 7: ':' is no"),
        ("R: * : se : * 0", "R: * : se : *", "line 20: R: takes 1 numbers, got 0"),
        ("R: * : se : * 0", "R: * : se :", "expected 'more', got 'the end'"),
        ("R: * : se : * 0", "R: * : se : * 1e999", "line 20: R: holds a number too large"),
    ],
)
def test_faults_are_located(tmp_path, old, new, message):
    assert old in CORNER
    with pytest.raises(ModelError, match=message) as caught:
        read(tmp_path, CORNER.replace(old, new))
    assert str(caught.value).count("model.mdp") == 1


def test_an_empty_file_and_one_without_rewards(tmp_path):
    with pytest.raises(ModelError, match="'states:' is missing"):
        read(tmp_path, "")
    with pytest.raises(ModelError, match="there are no rewards"):
        read(tmp_path, CORNER[: CORNER.index("R:")])
    with pytest.raises(ModelError, match="there are no transitions"):
        read(tmp_path, CORNER[: CORNER.index("T:")])


def test_round_trip_keeps_the_hash(tmp_path):
    rng = np.random.default_rng(4)
    model = FiniteMDP(
        transitions=rng.dirichlet(np.ones(4), (4, 3)),
        rewards=rng.normal(size=(4, 3)),
        initial=[0.1, 0.2, 0.3, 0.4],
        criterion="discounted",
        discount=0.9,
    )
    for one in (model, read(tmp_path, CORNER), one_state()):
        save(one, tmp_path / "copy.mdp")
        assert load(tmp_path / "copy.mdp").content_hash == one.content_hash


def one_state():
    return FiniteMDP(
        transitions=np.ones((1, 1, 1)), rewards=[[0.1]], criterion="discounted", discount=0.0
    )


@pytest.mark.parametrize(
    ("model", "lost"),
    [
        (stationary()["two costs"], r"criterion Average\(\); costs \(fuel, heavy, Wärme\)"),
        (stationary()["masked"], "actions that do not exist in some state"),
        (models()["staged"], "tables that differ by step"),
        (FiniteMDP(**plain(), axes="sas"), r"costs \(cost\)"),
    ],
)
def test_what_the_format_cannot_hold_is_named(tmp_path, model, lost):
    with pytest.raises(ModelError, match=f"cannot hold .*{lost}"):
        save(model, tmp_path / "model.mdp")
    assert not list(tmp_path.iterdir())


def test_names_that_the_format_cannot_hold_are_left_out_with_a_note(tmp_path):
    model = from_gymnasium("FrozenLake-v1", criterion="discounted", discount=0.99)
    with pytest.warns(ModelWarning, match=r"the states' names \(such as '0 \(0,0\)'"):
        save(model, tmp_path / "lake.mdp")
    again = load(tmp_path / "lake.mdp")
    assert again.content_hash == model.replace(state_names=None).content_hash
