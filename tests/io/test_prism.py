"""Explicit models of PRISM and Storm, and what the reader says about bad ones."""

import random

import numpy as np
import pytest
from tests.io.samples import stationary

from tightrope.errors import ModelError, ModelWarning
from tightrope.io import load, save
from tightrope.model.mdp import FiniteMDP
from tightrope.problems import service_queue

BODY = [
    "0 0 0 0.5 wait",
    "0 0 1 0.5 wait",
    "0 1 1 1 go",
    "1 0 0 1 wait",
    "1 1 0 0.25 go",
    "1 1 1 0.75 go",
]
PRISM = {
    "tra": "2 4 6\n" + "\n".join(BODY) + "\n",
    "lab": '0="init" 1="deadlock" 2="goal"\n0: 2\n1: 0 2\n',
    "srew": "2 1\n1 3\n",
    "trew": "2 4 6\n0 1 1 -1.5\n1 1 1 2e-1\n",
}
STORM = {
    "tra": "mdp\n" + "\n".join(line.rsplit(" ", 1)[0] for line in BODY) + "\n",
    "lab": "#DECLARATION\ninit goal\n#END\n0 goal\n1 init goal\n",
    "srew": "1 3\n",
    "trew": "0 1 1 -1.5\n1 1 1 0.2\n",
}


def read(tmp_path, files, **options):
    for end, text in files.items():
        (tmp_path / f"model.{end}").write_text(text)
    options.setdefault("criterion", "average")
    return load(tmp_path / "model.tra", **options)


def test_both_forms_are_the_same_model(tmp_path):
    model = read(tmp_path, PRISM)
    assert model.action_names == ("wait", "go")
    assert model.initial.tolist() == [0, 1]
    np.testing.assert_allclose(model.rewards, [[0, -1.5], [3, 3.15]])
    assert model.rewards_next.tolist() == [0, 0, -1.5, 3, 3, 3.2]
    names = ["wait", "go"]
    assert read(tmp_path, STORM, action_names=names).content_hash == model.content_hash


def test_mixed_order_is_accepted_and_explicit_zeros_are_outside_the_support(tmp_path):
    wanted = read(tmp_path, PRISM).content_hash
    body = [*BODY, "1 0 1 0 wait"]
    random.Random(1).shuffle(body)
    files = {**PRISM, "tra": "2 4 7\n" + "\n".join(body)}
    assert read(tmp_path, files).content_hash == wanted


def test_chains_and_choice_names_that_differ_by_state(tmp_path):
    files = {"tra": "2 3\n0 0 0.5\n0 1 0.5\n1 0 1\n", "lab": '0="init"\n0: 0\n', "srew": "0 1\n"}
    model = read(tmp_path, files)
    assert model.num_actions == 1
    assert model.rewards.tolist() == [[1], [0]]
    renamed = PRISM["tra"].replace("1 0 0 1 wait", "1 0 0 1 rest")
    assert read(tmp_path, {**PRISM, "tra": renamed}).action_names is None


def test_costs_beside_the_model_are_those_that_have_a_capacity(tmp_path):
    model = service_queue()
    with pytest.warns(ModelWarning, match="capacities, .* throughput must be at least"):
        save(model, tmp_path / "queue.tra")
    again = load(
        tmp_path / "queue.tra",
        criterion="average",
        capacities={"energy": 0.35, "throughput": 0.25},
        senses={"throughput": ">="},
    )
    assert again.content_hash == model.replace(action_names=None).content_hash
    with pytest.warns(ModelWarning, match=r"\(queue.energy.trew, queue.throughput.trew\) are not"):
        assert load(tmp_path / "queue.tra", criterion="average").num_costs == 0
    with pytest.raises(ModelError, match=r"no .*queue.fuel.srew or .*queue.fuel.trew of the cost"):
        load(tmp_path / "queue.tra", criterion="average", capacities={"fuel": 1.0})


def test_named_costs(tmp_path):
    (tmp_path / "fuel.srew").write_text("0 2\n1 4\n")
    (tmp_path / "fuel.trew").write_text("0 1 1 1\n")
    costs = {"fuel": [tmp_path / "fuel.srew", tmp_path / "fuel.trew"]}
    model = read(tmp_path, PRISM, costs=costs, capacities={"fuel": 3.0})
    assert model.costs[0].tolist() == [[2, 3], [4, 4]]


def test_deadlocks(tmp_path):
    files = {**PRISM, "tra": PRISM["tra"].replace("1 1 0 0.25", "1 1 2 0.25").replace("2 4", "3 4")}
    with pytest.raises(ModelError, match=r"state 2 has no action; .*deadlock='absorb'"):
        read(tmp_path, files)
    model = read(tmp_path, files, deadlock="absorb")
    assert model.available[2].tolist() == [True, False]
    assert model.dense()[2, 0].tolist() == [0, 0, 1]
    assert model.rewards[2].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("end", "old", "new", "message"),
    [
        ("tra", "0 0 1 0.5", "0 0 0 0.5", r"line 3: \(state 0, action 0\) to state 0 .*line 2"),
        ("tra", "0 1 1 1", "0 1 1 0.9", r"line 4: .*\(state 0, action 1\) sum to 0.9"),
        ("tra", "0 1 1 1", "0 1 1 -1", r"line 4: .*\(state 0, action 1\) to state 1 is -1"),
        ("tra", "0 1 1 1 go", "0 1 1 go", "line 4: probability is 'go'"),
        ("tra", "0 1 1 1 go", "0 1 1", "line 4: 3 columns, expected 'state choice target"),
        ("tra", "0 1 1 1", "0 1 x 1", "line 4: target is 'x', expected a whole number"),
        ("tra", "0 1 1 1", "0 1 99999 1", "line 4: target is 99999, expected 0 to 11"),
        ("tra", "0 1 1 1", "0 1 1 nan", "line 4: probability is 'nan'"),
        ("tra", "0 0 1 0.5 wait", "0 0 1 0.5 halt", "line 3: .* 'halt' but 'wait' on line 2"),
        ("tra", "2 4 6", "2 4 7", "line 1 says 7 transitions, the file holds 6; is it cut"),
        ("tra", "2 4 6", "2 5 6", "line 1 says 5 choices, the file holds 4"),
        ("tra", "2 4 6", "3 4 6", "line 1 says 3 states, the file holds 2"),
        ("tra", "2 4 6", "ctmc", "line 1: a model of type 'ctmc', expected mdp or dtmc"),
        ("tra", PRISM["tra"], "", "is empty"),
        ("tra", PRISM["tra"], "mdp\n", "holds no transitions"),
        ("lab", "1: 0 2", "1: 2", "0 states are labelled 'init', expected one"),
        ("lab", "0: 2", "0: 0", "2 states are labelled 'init', expected one"),
        ("lab", "0: 2", "0: 7", r"model\.lab, line 2: label '7' was not declared"),
        ("lab", "0: 2", "7: 2", r"model\.lab, line 2: state is 7, expected 0 to 1"),
        ("lab", "0: 2", "1: 2", r"model\.lab, line 3: state 1 has a line already"),
        ("lab", PRISM["lab"], "hello\n", r"model\.lab, line 1: expected '#DECLARATION'"),
        ("lab", PRISM["lab"], "#DECLARATION\ninit\n", "without '#END'; is the file cut"),
        ("lab", PRISM["lab"], STORM["lab"].replace("0 goal", "0 gaol"), "line 4: label 'gaol' was"),
        ("srew", "1 3\n", "1 3\n1 4\n", r"model\.srew, line 3: state 1 has a reward already"),
        ("srew", "1 3\n", "1 three\n", r"model\.srew, line 2: reward is 'three'"),
        ("srew", "1 3\n", "1 0 3\n", r"model\.srew, line 2: 3 columns, expected 'state reward'"),
        ("trew", "0 1 1 -1.5", "0 1 0 -1.5", r"model\.trew, line 2: .* to state 0 is no transit"),
        ("trew", "0 1 1 -1.5", "1 1 1 -1.5", r"model\.trew, line 3: .* already \(line 2\)"),
        ("trew", "0 1 1 -1.5", "0 1 1 inf", r"model\.trew, line 2: reward is 'inf'"),
    ],
)
def test_faults_are_located(tmp_path, end, old, new, message):
    assert old in PRISM[end]
    with pytest.raises(ModelError, match=message):
        read(tmp_path, {**PRISM, end: PRISM[end].replace(old, new, 1)})


def test_what_the_files_do_not_say_is_asked_for(tmp_path):
    with pytest.raises(ModelError, match="does not say the criterion; load"):
        load(tmp_path / "model.tra")
    with pytest.raises(ModelError, match=r"no .*model\.srew or \.trew; say rewards="):
        read(tmp_path, {"tra": PRISM["tra"], "lab": PRISM["lab"]})
    (tmp_path / "model.lab").unlink()
    with pytest.raises(ModelError, match=r"no .*model\.lab; say labels="):
        read(tmp_path, {"tra": PRISM["tra"], "srew": PRISM["srew"]})
    model = read(tmp_path, {"tra": PRISM["tra"]}, initial=[0.5, 0.5])
    assert model.initial.tolist() == [0.5, 0.5]
    assert read(tmp_path, {}, initial=[1, 0], rewards=np.zeros((2, 2))).rewards.sum() == 0


def test_round_trip_keeps_the_hash_and_names_what_must_be_told(tmp_path):
    for name in ("plain", "one state", "masked"):
        model = stationary()[name]
        with pytest.warns(ModelWarning, match="does not hold the criterion"):
            save(model, tmp_path / "copy.tra")
        costs = {cost: tmp_path / f"copy.{cost}.trew" for cost in model.cost_names}
        again = load(
            tmp_path / "copy.tra",
            criterion=model.criterion,
            costs=costs,
            capacities=dict(zip(model.cost_names, model.capacities)) or None,
        )
        assert again.content_hash == model.content_hash
    with pytest.raises(ModelError, match=r"cannot hold a start law .*cost 'fuel, heavy'"):
        save(stationary()["two costs"], tmp_path / "other.tra")
    gap = FiniteMDP(
        transitions=np.ones((1, 2, 1)), rewards=[[0, 1]], available=[[0, 1]], criterion="average"
    )
    with pytest.raises(ModelError, match="not numbered from 0 without gaps"):
        save(gap, tmp_path / "other.tra")
