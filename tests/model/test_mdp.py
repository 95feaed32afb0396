"""`FiniteMDP`: what it accepts, what it refuses and where, and that it is read-only."""

import pickle
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from tightrope.errors import ConfigError, ModelError, ModelWarning
from tightrope.model.mdp import FiniteMDP
from tightrope.types import Average, Discounted, Episodic, Total, make_criterion

P = np.array([[[0.5, 0.5, 0], [0, 0, 1.0]], [[0, 0.25, 0.75], [1, 0, 0]], [[0, 0, 1], [0, 1, 0]]])
R = np.arange(6.0).reshape(3, 2)


def build(**changes):
    fields = {"transitions": P, "rewards": R, "criterion": "average", **changes}
    return FiniteMDP(**{name: value for name, value in fields.items() if value is not None})


PLAIN = build()
COST = {"costs": [R], "capacities": [1.0]}


# ------------------------------------------------------------------ forms of one model


def parts_of(dense):
    matrix = sp.csr_array(dense.reshape(-1, dense.shape[-1]))
    return {
        "transitions": None,
        "transitions_data": matrix.data,
        "transitions_indices": matrix.indices,
        "transitions_indptr": matrix.indptr,
        "transitions_shape": dense.shape,
    }


@pytest.mark.parametrize(
    "form",
    [
        {"transitions": P.tolist()},
        {"transitions": P.astype(np.float32)},
        {"transitions": np.swapaxes(P, 0, 1), "axes": "ass"},
        {"transitions": np.swapaxes(P, 0, 1), "axes": "A,S,S"},
        {"transitions": sp.csr_array(P.reshape(6, 3))},
        {"transitions": sp.csc_matrix(P.reshape(6, 3))},
        {"transitions": sp.coo_array(P.reshape(6, 3))},
        {"transitions": sp.csr_array(np.swapaxes(P, 0, 1).reshape(6, 3)), "axes": "ass"},
        {"transitions": [sp.csr_matrix(P[:, a]) for a in range(2)], "axes": "ass"},
        {"transitions": [sp.coo_array(P[s]) for s in range(3)], "axes": "sas"},
        parts_of(P),
        {"rewards": [[Fraction(2 * s + a) for a in range(2)] for s in range(3)]},
        {"rewards": R.astype(int)},
        {"initial": [1, 0, 0], "available": np.ones((3, 2), int)},
    ],
)
def test_every_form_is_the_same_model(form):
    assert build(**form).content_hash == PLAIN.content_hash


def test_sparse_and_dense_views_agree():
    np.testing.assert_array_equal(PLAIN.dense(), P)
    np.testing.assert_array_equal(PLAIN.matrix().toarray(), P.reshape(6, 3))


def test_axis_order_is_asked_for_never_guessed():
    """R06: 2 x 2 x 2 can be read either way, with two different answers."""
    array = [[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.6, 0.4]]]
    fields = {"rewards": [[0.0, 1.0], [2.0, 0.0]], "criterion": Discounted(0.9)}
    with pytest.raises(ModelError, match=r"may be \(S, A, S\) or \(A, S, S\): say axes="):
        FiniteMDP(transitions=array, **fields)
    expected = {
        "sas": [15.669291338581818, 16.456692913384966],
        "ass": [16.164383561643017, 17.534246575341648],
    }
    for axes, values in expected.items():
        model = FiniteMDP(transitions=array, axes=axes, **fields)
        np.testing.assert_allclose(discounted_values(model), values, rtol=1e-8)
    with pytest.raises(ModelError, match=r"look like \(A, S, S\): say axes='ass'"):
        build(transitions=np.swapaxes(P, 0, 1))


def discounted_values(model, count=2000):
    values = np.zeros(model.num_states)
    shape = (model.num_states, model.num_actions)
    for _ in range(count):
        backed = model.rewards + model.criterion.discount * (model.matrix() @ values).reshape(shape)
        values = np.where(model.available, backed, -np.inf).max(axis=1)
    return values


def test_realised_rewards_become_means():
    """R07: r(s, a, s') as an expectation."""
    model = FiniteMDP(
        transitions=[[[0, 0.25, 0.75]], [[0, 0, 1]], [[0, 0, 1]]],
        rewards_next=[[[0, 8, -4]], [[0, 0, 10]], [[0, 0, 0]]],
        criterion=Discounted(0.5),
    )
    assert model.rewards.ravel().tolist() == [-1, 10, 0]
    assert discounted_values(model)[0] == pytest.approx(0.25, abs=1e-12)


def test_realised_values_follow_the_axis_order_and_the_order_of_storage():
    next_values = np.arange(18.0).reshape(3, 2, 3)
    wanted = build(rewards=None, rewards_next=next_values)
    turned = np.swapaxes(next_values, 0, 1)
    for form in (
        {"transitions": np.swapaxes(P, 0, 1), "rewards_next": turned, "axes": "ass"},
        {
            "transitions": [sp.csr_array(P[:, a]) for a in range(2)],
            "rewards_next": [sp.csr_array(turned[a]) for a in range(2)],
            "axes": "ass",
        },
        {**parts_of(P), "rewards_next": next_values[P > 0]},
        {"rewards_next": next_values[P > 0]},
        {"rewards_next": np.where(P > 0, next_values, np.nan)},
    ):
        assert build(rewards=None, **form).content_hash == wanted.content_hash
    unsorted = {
        "transitions": None,
        "transitions_data": [0.5, 0.0, 0.5, 1, 0.75, 0.25, 1, 1, 1],
        "transitions_indices": [1, 2, 0, 2, 2, 1, 0, 2, 1],
        "transitions_indptr": [0, 3, 4, 6, 7, 8, 9],
        "transitions_shape": (3, 2, 3),
    }
    values = [1, np.nan, 0, 5, 8, 7, 9, 14, 16]
    model = build(rewards=None, rewards_next=values, **unsorted)
    assert model.content_hash == wanted.content_hash


def test_coo_duplicates_add_up_as_in_scipy_but_csr_duplicates_are_refused():
    rows, columns = [0, 0, 1, 2, 3, 4, 5], [0, 0, 0, 0, 0, 0, 0]
    data = [0.5, 0.5, 1, 1, 1, 1, 1]
    assert build(transitions=sp.coo_array((data, (rows, columns)), shape=(6, 3))).data.tolist() == (
        [1] * 6
    )
    doubled = sp.csr_array((data, columns, [0, 2, 3, 4, 5, 6, 7]), shape=(6, 3))
    with pytest.raises(ModelError, match=r"row 0 .* names a next state twice"):
        build(transitions=doubled)


# ------------------------------------------------------------------ row sums (R01, R02)


@pytest.mark.parametrize("row", [[0.7, 0.2, 0.1], [0.1] * 10, [0.02040816326530612] * 49])
def test_rounding_is_accepted(row):
    size = len(row)
    model = FiniteMDP(
        transitions=np.tile(row, (size, 1, 1)),
        rewards=np.zeros((size, 1)),
        criterion="average",
        axes="sas",
    )
    np.testing.assert_allclose(model.matrix().sum(axis=1), 1, atol=1e-15 * size)


def test_rows_born_in_float32_are_corrected_and_the_correction_is_told():
    rows = np.array([[[0.1, 0.2, 0.7]], [[0.3, 0.6, 0.1]], [[0, 0, 1]]], dtype=np.float32)
    with pytest.warns(ModelWarning, match=r"largest correction is [1-9]"):
        model = FiniteMDP(transitions=rows, rewards=np.zeros((3, 1)), criterion="average")
    assert 0 < model.largest_correction < 1e-7
    np.testing.assert_allclose(model.matrix().sum(axis=1), 1, atol=1e-15)
    assert FiniteMDP(**model.to_dict()).content_hash == model.content_hash


def test_rows_that_do_not_sum_to_one_are_refused_and_what_the_user_may_do_instead():
    rows = np.array([[[0.33, 0.33, 0.33]], [[0, 1, 0]], [[0, 0, 1]]])
    fields = {"rewards": [[0], [1], [4]], "criterion": Discounted(0.9)}
    with pytest.raises(ModelError, match=r"row \(state 0, action 0\) sums to 0.99, expected 1"):
        FiniteMDP(transitions=rows, **fields)
    model = FiniteMDP(transitions=rows / rows.sum(axis=-1, keepdims=True), **fields)
    assert discounted_values(model)[0] == pytest.approx(21.428571428571427, rel=1e-8)


def test_zero_rows_and_infinite_rewards_mean_unavailable_only_through_the_mask():
    """R02."""
    table = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]]
    fields = {"rewards": [[-1.0, -3.0], [1.0, 0.0]], "criterion": Discounted(0.9), "axes": "sas"}
    with pytest.raises(ModelError, match=r"\(state 1, action 1\) is all zero.*available="):
        FiniteMDP(transitions=table, **fields)
    mask = [[True, True], [True, False]]
    model = FiniteMDP(transitions=table, available=mask, **fields)
    assert discounted_values(model)[0] == pytest.approx(-10.0, rel=1e-8)
    with pytest.raises(ModelError, match=r"\(state 1, action 1\) is -inf.*available="):
        build(rewards=np.where(R == 3, -np.inf, R))
    assert build(rewards=np.where(R == 3, -np.inf, R), available=R != 3).rewards[1, 1] == 0
    with pytest.raises(ModelError, match="state 1 'b' has no available action"):
        build(available=[[1, 1], [0, 0], [1, 1]], state_names=["a", "b", "c"])


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": [["1", "2"]] * 3}, "rewards holds '1', expected numbers"),
        ({"rewards": [[1], [1, 2], [1, 2]]}, "rewards is not a rectangular array"),
        ({"rewards": [[None, 1]] * 3}, "rewards holds None"),
        ({"rewards": R + 1j}, "rewards holds 1j"),
        ({"rewards": 5}, r"rewards has shape \(\), expected \(S, A\) = \(3, 2\)"),
        ({"rewards": [1, 2, 3]}, r"for rewards of the state alone, r\(s\), pass np.repeat"),
        ({"rewards": np.zeros((4, 3, 2))}, r"rewards has shape \(4, 3, 2\)"),
        ({"rewards": sp.csr_array(R)}, r"rewards is a sparse matrix, .*toarray"),
        ({"rewards": [[10**400, 1]] * 3}, "rewards is not a rectangular array"),
        ({"rewards": np.where(R == 3, np.nan, R)}, r"rewards \(state 1, action 1\) is nan"),
        ({"rewards_next": np.ones((3, 2, 3))}, r"\(state 2, action 1\) is 5 but .* mean 1"),
        ({"rewards_next": np.ones(4)}, "one value per stored transition"),
        ({"costs": R, "capacities": [1]}, r"costs has shape \(3, 2\), .* pass costs\[None\]"),
        ({"costs": 3, "capacities": [1]}, r"costs has shape \(\)"),
        ({"costs": [R]}, "capacities are missing: expected m = 1"),
        ({"capacities": [1.0]}, "capacities has length 1, expected m = 0"),
        ({**COST, "capacities": [np.nan]}, "capacity of 'cost' is nan"),
        ({**COST, "capacities": ["a"]}, "capacities holds 'a'"),
        ({**COST, "capacities": {"fuel": 1}}, "capacities name 'fuel' is no cost"),
        ({**COST, "capacities": {}}, "capacities lack 'cost'|expected m = 1"),
        ({**COST, "senses": ">="}, "senses is '>=', expected a list"),
        ({**COST, "senses": {"fuel": ">="}}, "senses name 'fuel' is no cost"),
        ({**COST, "senses": ["<"]}, "sense of 'cost' is '<', expected '<=' or '>='"),
        ({**COST, "cost_names": "fuel"}, "cost_names is 'fuel', expected a list of 1 names"),
        ({**COST, "cost_names": ["a", "b"]}, "cost_names has 2 names, expected 1"),
        ({**COST, "costs_next": np.zeros((2, 3, 2, 3))}, "costs_next has 2 costs, costs has 1"),
        ({"costs": {"a": R, "b": R[0]}, "capacities": {"a": 1, "b": 2}}, "costs 'b' has shape"),
        ({"costs": {"a": R}, "capacities": [1]}, "given by name, so capacities must be too"),
        ({"initial": 0}, r"initial has shape \(\), expected \(S,\) = \(3,\)"),
        ({"initial": [-1, 1, 1]}, "initial probability of state 0 is -1"),
        ({"initial": [0.5, 0.4, 0]}, "initial sums to 0.9"),
        ({"available": [["a", "b"]] * 3}, "available must hold booleans"),
        ({"state_names": ["a", "b"]}, "state_names has 2 names, expected 3"),
        ({"action_names": ["a", "a"]}, "action_names holds 'a' twice"),
        ({"transitions": P - 1}, r"\(state 0, action 0\) to state 0 is -0.5"),
        ({"transitions": np.where(P == 0.5, np.nan, P)}, "to state 0 is nan"),
        ({"transitions": np.eye(3)}, r"shape \(3, 3\), expected \(S, A, S\)"),
        ({"transitions": "abc"}, "transitions holds 'abc'"),
        ({"transitions": None}, "transitions are missing"),
        ({"axes": "ssa"}, "axes must be 'sas' or 'ass', got 'ssa'"),
        ({"transitions": np.stack([P, P])}, "per-step transitions need an episodic criterion"),
        (
            {"transitions": np.stack([P, P]), "criterion": Episodic(3)},
            "transitions have 2 stages, the horizon is 3",
        ),
        ({**parts_of(P), "transitions_shape": (3.5, 2, 3)}, r"transitions_shape is \(3.5, 2"),
        ({**parts_of(P), "transitions_indices": [9] * 8}, "and of one length|in 0..2"),
        ({"criterion": Average}, "criterion must be Episodic"),
        ({"criterion": "episodic"}, "criterion 'episodic' needs horizon"),
        ({"criterion": "episodic", "horizon": 2.5}, "horizon must be a whole number >= 1"),
        ({"criterion": "episodic", "horizon": float("inf")}, "horizon must be a whole number"),
        ({"criterion": "discounted", "discount": "0.9"}, "discount must be a number, got '0.9'"),
        ({"criterion": "discounted", "discount": 1}, r"for discount 1 choose .*Average\(\)"),
        ({"criterion": "mean"}, "criterion must be 'episodic', 'average'"),
    ],
)
def test_faults_are_located(changes, message):
    with pytest.raises(ModelError, match=message):
        build(**changes)


def test_places_are_named_in_words():
    names = {"state_names": ["dock", "sea", "reef"], "action_names": ["sail", "wait"]}
    with pytest.raises(ModelError, match=r"row \(state 1 'sea', action 0 'sail'\) sums to 0.9"):
        build(transitions=P * np.where(np.arange(6).reshape(3, 2, 1) == 2, 0.9, 1), **names)
    staged = np.stack([P, P * np.where(np.arange(6).reshape(3, 2, 1) == 2, 0.9, 1)])
    with pytest.raises(ModelError, match=r"row \(stage 1, state 1 'sea', action 0 'sail'\)"):
        build(transitions=staged, criterion=Episodic(2), **names)


# ------------------------------------------------------------------ sizes and channels


@pytest.mark.parametrize("criterion", [Episodic(1), Average(), Discounted(0.0), Total()])
def test_one_state_and_one_action(criterion):
    model = FiniteMDP(transitions=[[[1.0]]], rewards=[[2]], criterion=criterion)
    assert model.tables().costs.shape == (0, 1, 1, 1)
    assert model.spec().reward_range == (2.0, 2.0)
    assert model.spec().cost_ranges.shape == (0, 2)
    assert FiniteMDP(**model.to_dict()).content_hash == model.content_hash


def test_named_channels_and_floors():
    by_name = build(
        costs={"fuel": R, "wear": R + 1},
        capacities={"wear": 2.0, "fuel": 1.0},
        senses={"wear": ">=", "fuel": "<="},
    )
    by_position = build(
        costs=[R, R + 1], capacities=[1.0, 2.0], senses=["<=", ">="], cost_names=["fuel", "wear"]
    )
    assert by_name.content_hash == by_position.content_hash
    assert by_name.signs.tolist() == [1, -1]
    assert by_name.replace(capacities={"wear": 5.0}).capacities.tolist() == [1, 5]
    assert by_name.replace(senses={"fuel": ">="}).senses == (">=", ">=")
    renamed = by_name.replace(costs={"oil": R}, capacities={"oil": 3.0}, senses={"oil": ">="})
    assert renamed.cost_names == ("oil",)
    assert build(costs={"a": R}, capacities={"a": 1}, senses={}).senses == ("<=",)
    with pytest.raises(ModelError, match="capacities name 'oil' is no cost of this model"):
        by_name.replace(capacities={"oil": 5.0})


def test_a_cost_by_step_beside_one_that_is_not():
    model = build(
        costs={"flat": R, "steps": np.stack([R, 2 * R])},
        capacities={"flat": 1, "steps": 1},
        criterion=Episodic(2),
    )
    np.testing.assert_array_equal(model.costs, [[R, R], [R, 2 * R]])


def test_three_costs_have_their_own_names():
    model = build(costs=[R, R, R], capacities=[1, 2, 3])
    assert model.cost_names == ("cost_0", "cost_1", "cost_2")
    assert build(**COST).cost_names == ("cost",)


# ------------------------------------------------------------------ identity


def test_arrays_are_read_only_and_do_not_follow_the_users():
    rewards = R.copy()
    model = build(rewards=rewards)
    rewards[:] = 7
    assert model.rewards[0, 1] == 1
    for name in ("rewards", "data", "indices", "indptr", "costs", "initial", "available"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(model, name)[...] = 0
    with pytest.raises(AttributeError, match=r"read-only; use model\.replace\(rewards=\.\.\.\)"):
        model.rewards = R


def test_replace():
    model = build(**COST, rewards=None, rewards_next=np.ones((3, 2, 3)))
    changed = model.replace(rewards=R, criterion=Episodic(5), capacities=[1.0])
    assert changed.rewards_next is None
    assert changed.criterion == Episodic(5)
    assert model.replace().content_hash == model.content_hash
    np.testing.assert_array_equal(model.replace(transitions=P[::-1]).dense(), P[::-1])
    assert build(criterion=Episodic(2)).replace(criterion="average").criterion == Average()
    assert build(criterion=Episodic(2)).replace(horizon=3).criterion == Episodic(3)
    with pytest.raises(ModelError, match="capacities has length 2"):
        model.replace(capacities=[1, 2])
    two = np.stack([model.costs[0], model.rewards])
    assert model.replace(costs=two, capacities=[1, 2]).cost_names == ("cost_0", "cost_1")
    assert model.replace(costs=None).num_costs == 0
    assert build().replace(costs=model.costs, capacities=[1]).num_costs == 1
    with pytest.raises(ModelError, match="capacities are missing"):
        model.replace(costs=two)


def test_a_capacity_belongs_to_its_criterion():
    """One an episode is none a step: another criterion needs every capacity anew."""
    model = build(**COST, criterion=Episodic(2))
    (name,), (value,) = model.cost_names, model.capacities
    for criterion in (Average(), Discounted(0.9), "total"):
        with pytest.raises(ModelError, match=f"capacity {value:g} of cost '{name}' is meant for"):
            model.replace(criterion=criterion)
    assert model.replace(criterion="average", capacities={name: 0.1}).capacities == [0.1]
    assert model.replace(criterion="average", capacities=[0.1]).capacities == [0.1]
    assert model.replace(criterion="average", costs=None).num_costs == 0
    assert model.replace(criterion=Episodic(5)).capacities == [value]
    with pytest.raises(ModelError, match="averge"):
        model.replace(criterion="averge")


@pytest.mark.parametrize(
    "change",
    [
        {"rewards": R + np.eye(3)[:, :2] * 1e-12},
        {"criterion": Episodic(7)},
        {"initial": [0, 1, 0]},
        {"available": np.array([[True, False]] * 3)},
        {"state_names": ["a", "b", "c"]},
        {"action_names": ["a", "b"]},
        COST,
        {**COST, "capacities": [2.0]},
        {**COST, "senses": [">="]},
        {**COST, "cost_names": ["fuel"]},
    ],
)
def test_the_hash_sees_every_part(change):
    base = build(**COST) if "costs" in change and change is not COST else PLAIN
    assert build(**change).content_hash != base.content_hash


def test_the_hash_is_one_of_content_alone():
    assert build(rewards=R * -0.0).content_hash == build(rewards=R * 0.0).content_hash
    again = pickle.loads(pickle.dumps(PLAIN))
    assert again.content_hash == PLAIN.content_hash
    assert PLAIN.content_hash == build().content_hash


def test_criteria_by_name():
    assert make_criterion("discounted", discount=0.5) == Discounted(0.5)
    assert make_criterion(Total()) == Total()
    with pytest.raises(ConfigError, match="takes no horizon"):
        make_criterion("discounted", discount=0.5, horizon=3)
    with pytest.raises(ConfigError, match="takes neither"):
        make_criterion("average", horizon=3)
    with pytest.raises(ConfigError, match="give horizon/discount inside the criterion"):
        make_criterion(Average(), horizon=3)
    for wrong in ([1], {"episodic": 3}, 3, None):
        with pytest.raises(ModelError, match=r"criterion must be .*got"):
            build(costs=[R], capacities=[1.0]).replace(criterion=wrong)
