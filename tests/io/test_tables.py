"""CSV tables of transitions, and what the reader says about bad ones."""

import gzip
import random

import numpy as np
import pytest
from tests.io.samples import models, stationary

from tightrope.errors import ModelError
from tightrope.io import load, save

HEADER = "idstatefrom,idaction,idstateto,probability,reward\n"
LINES = ["0,0,0,0.5,1", "0,0,1,0.5,1", "0,1,1,1,-2", "1,0,0,1,0.25"]
COMMON = HEADER + "\n".join(LINES) + "\n"


def read(tmp_path, text, **options):
    path = tmp_path / "model.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    options.setdefault("criterion", "average")
    return load(path, **options)


@pytest.mark.parametrize("name", stationary())
def test_round_trip_keeps_the_hash(tmp_path, name):
    model = stationary()[name]
    save(model, tmp_path / "model.csv")
    assert load(tmp_path / "model.csv").content_hash == model.content_hash


@pytest.mark.parametrize("name", ["staged", "staged rewards"])
def test_tables_by_step_are_refused(tmp_path, name):
    with pytest.raises(ModelError, match=r"differ by step; save as \.npz or \.json"):
        save(models()[name], tmp_path / "model.csv")
    assert not list(tmp_path.iterdir())


def test_the_common_form(tmp_path):
    model = read(tmp_path, COMMON)
    np.testing.assert_array_equal(model.dense()[0], [[0.5, 0.5], [0, 1]])
    np.testing.assert_array_equal(model.rewards, [[1, -2], [0.25, 0]])
    np.testing.assert_array_equal(model.available, [[True, True], [True, False]])
    assert model.rewards_next is None


def test_order_of_lines_delimiters_blank_lines_and_packing_do_not_matter(tmp_path):
    wanted = read(tmp_path, COMMON).content_hash
    shuffled = LINES[:]
    random.Random(3).shuffle(shuffled)
    for text in (
        HEADER + "\n".join(shuffled),
        "# a comment\n\n" + HEADER + "\n\n".join(LINES) + "\n\n\n",
        COMMON.replace(",", ";"),
        COMMON.replace(",", "\t"),
        COMMON.replace(",", " , "),
        COMMON.replace("\n", "\r\n"),
        COMMON.replace("\n", "\r"),
        "\ufeff" + COMMON,
        COMMON.replace("idstatefrom,idaction,idstateto", "state,action,next_state"),
        COMMON.replace("idstatefrom", "IDSTATEFROM"),
        COMMON + "1,0,1,0,7\n",  # outside the support
    ):
        assert read(tmp_path, text).content_hash == wanted, text
    (tmp_path / "model.csv.gz").write_bytes(gzip.compress(COMMON.encode()))
    assert load(tmp_path / "model.csv.gz", criterion="average").content_hash == wanted


def test_a_reward_that_depends_on_the_next_state_is_realised(tmp_path):
    model = read(tmp_path, COMMON.replace("0,0,1,0.5,1", "0,0,1,0.5,3"))
    np.testing.assert_array_equal(model.rewards[0], [2, -2])
    np.testing.assert_array_equal(model.rewards_next, [1, 3, -2, 0.25])


def test_names_and_named_costs(tmp_path):
    text = (
        "state,action,next_state,probability,reward,cost:fuel,wear\n"
        "dock,sail,sea,1,2,5,0\nsea,drift,sea,0.5,1,1,2\nsea,drift,dock,0.5,1,1,4\n"
        "sea,sail,dock,1,0,3,0\n"
    )
    limits = {"fuel": 2.0, "wear": 1.0}
    model = read(tmp_path, text, cost_columns=["wear"], capacities=limits)
    assert model.state_names == ("dock", "sea")
    assert model.action_names == ("sail", "drift")
    assert model.cost_names == ("fuel", "wear")
    np.testing.assert_array_equal(model.costs[:, 1, 1], [1, 3])
    assert not model.available[0, 1]
    turned = read(
        tmp_path, text, cost_columns=["wear"], capacities=limits, state_names=["sea", "dock"]
    )
    np.testing.assert_array_equal(turned.rewards, model.rewards[::-1])
    with pytest.raises(ModelError, match="line 2: state 'dock' is not in state_names"):
        read(tmp_path, text, cost_columns=["wear"], capacities=limits, state_names=["sea", "land"])


def test_the_preamble_and_the_arguments(tmp_path):
    text = '# tightrope: {"criterion": "discounted", "discount": 0.5, "initial": {"1": 1}}\n'
    path = tmp_path / "model.csv"
    path.write_text(text + COMMON)
    assert load(path).criterion.discount == 0.5
    np.testing.assert_array_equal(load(path).initial, [0, 1])
    assert load(path, discount=0.75).criterion.discount == 0.75
    assert load(path, criterion="episodic", horizon=4).horizon == 4


def test_capacities_of_the_table_are_for_its_criterion(tmp_path):
    head = '# tightrope: {"criterion": "average", "capacities": {"wear": 0.5}}\n'
    path = tmp_path / "costs.csv"
    path.write_text(head + "state,action,next_state,probability,reward,cost:wear\n0,0,0,1,5,1\n")
    assert load(path).capacities == load(path, criterion="average").capacities == [0.5]
    with pytest.raises(ModelError, match="capacities are missing"):
        load(path, criterion="total")
    assert load(path, criterion="total", capacities={"wear": 2}).capacities == [2]


def test_states_without_lines(tmp_path):
    text = COMMON + "1,1,2,1,0\n"
    with pytest.raises(ModelError, match=r"state 2 has no action; .*deadlock='absorb'"):
        read(tmp_path, text)
    model = read(tmp_path, text, deadlock="absorb")
    np.testing.assert_array_equal(model.dense()[2, 0], [0, 0, 1])
    np.testing.assert_array_equal(model.available[2], [True, False])
    assert model.rewards[2, 0] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no header; expected one such as 'idstatefrom"),
        ("\n\n# nothing\n", "no header"),
        (HEADER, "has a header but no transitions"),
        (COMMON.encode("utf-16"), "line 1: is UTF-16|UTF-16"),
        ("state\xe9,action\n".encode("latin-1"), "line 1: byte 0xe9 is not UTF-8"),
        (
            "state,action,next_state,probability\na,go,a,1\nb,go,\xe4,1\n".encode("latin-1"),
            "line 3: byte 0xe4 is not UTF-8; save the file as UTF-8",
        ),
        (
            COMMON.replace("idstateto", "idoutcome,idstateto").replace("0,", "0,0,"),
            "line 1: column 'idoutcome' is not known",
        ),
        (HEADER.replace("reward", "reward,reward") + "0,0,0,1,1,1\n", "two columns are 'reward'"),
        ("idstatefrom,idaction,probability\n0,0,1\n", "line 1: no column 'idstateto'"),
        (COMMON + "1,1,0,1,0,7\n", "line 6: Expected 5 columns, got 6"),
        (COMMON + "\n\n1,1,0,1\n", "line 8: Expected 5 columns, got 4"),
        (COMMON + "1,1,0,one,0\n", "line 6: probability is 'one', expected a number"),
        (COMMON + "1,1,0,,0\n", "line 6: probability is '', expected a number"),
        (COMMON.replace(",", ";").replace("0.5", "0,5"), "line 2: probability is '0,5'"),
        (COMMON + "1,1.5,0,1,0\n", "line 6: action is '1.5', expected a whole number"),
        (COMMON + "1,1,0,nan,0\n", r"line 6: probability of \(state 1, action 1\) .* is nan"),
        (COMMON + "1,1,0,-1,0\n", r"line 6: probability of \(state 1, action 1\) .* is -1"),
        (COMMON + "1,1,0,0.9,0\n", r"line 6: .*\(state 1, action 1\) sum to 0.9 over 1 lines"),
        (COMMON + "1,0,0,1,0\n", r"line 6: \(state 1, action 0\) to state 0 .*line 5"),
        (COMMON + "1,1,-1,1,0\n", "line 6: next_state is -1, expected 0 to 4"),
        (COMMON + "1,1,10000000000,1,0\n", "line 6: next_state is 10000000000"),
        (COMMON + "1,99999999999999999999,1,1,0\n", "line 6: action is '9999"),
        (COMMON + "1,1,0,1,-inf\n", r"line 6: reward of \(state 1, action 1\) is -inf.*no lines"),
        (
            HEADER + "1,0,1,1,0\n2,0,2,1,0\n2,1,1,1,0\n",
            "state 0 has no action; numbers",
        ),
        ("idstatefrom,id\0action\n" + COMMON, "line 1: (line contains NUL|column 'id.action')"),
        ("# tightrope: {]\n" + COMMON, "line 1, column 3: not JSON"),
        ('# tightrope: {"criterium": 1}\n' + COMMON, "unknown key 'criterium'; .*'criterion'"),
        ('# tightrope: {"initial": {"7": 1}}\n' + COMMON, "initial names state '7'"),
    ],
)
def test_faults_are_located(tmp_path, text, message):
    with pytest.raises(ModelError, match=message) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "model.csv"))


def test_what_a_table_cannot_say_is_asked_for(tmp_path):
    path = tmp_path / "model.csv"
    path.write_text(COMMON)
    with pytest.raises(ModelError, match="does not say the criterion; load"):
        load(path)
    path.write_text(COMMON.replace("reward", "cost"))
    with pytest.raises(
        ModelError, match=r"capacities are missing: .*such as capacities={'cost': 1.0}"
    ):
        load(path, criterion="average", rewards=np.zeros((2, 2)))
    with pytest.raises(ModelError, match="'costs' is in the table"):
        load(path, criterion="average", costs=np.zeros((1, 2, 2)), capacities=[1])
