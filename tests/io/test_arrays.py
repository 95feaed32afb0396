"""The model file, both ways, and what it says about bad ones."""

import io
import json
import os
import zipfile

import numpy as np
import pytest
from tests.io.samples import CHAIN, models, plain

from tightrope.errors import ModelError
from tightrope.io import load, save


@pytest.mark.parametrize("name", models())
@pytest.mark.parametrize("suffix", ["npz", "json"])
def test_round_trip_keeps_the_hash_and_the_bytes(tmp_path, name, suffix):
    model = models()[name]
    save(model, tmp_path / f"one.{suffix}")
    again = load(tmp_path / f"one.{suffix}")
    assert again.content_hash == model.content_hash
    save(again, tmp_path / f"two.{suffix}")
    assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()
    assert sorted(os.listdir(tmp_path)) == [f"one.{suffix}", f"two.{suffix}"]


@pytest.mark.parametrize("suffix", ["npz", "json"])
def test_dense_and_csr_files_are_the_same_model(tmp_path, suffix):
    def write(keys, path):
        if suffix == "npz":
            np.savez(path, **keys)
        else:
            path.write_text(json.dumps(keys))

    path = tmp_path / f"model.{suffix}"
    write(plain(), path)
    dense = load(path)
    parts = {
        "transitions_data": [0.5, 0.5, 1.0, 0.25, 0.75, 1.0],
        "transitions_indices": [0, 1, 1, 0, 1, 0],
        "transitions_indptr": [0, 2, 3, 5, 6],
        "transitions_shape": [2, 2, 2],
    }
    write(plain(transitions=None, **parts), path)
    assert load(path).content_hash == dense.content_hash
    np.testing.assert_array_equal(dense.dense(), CHAIN)  # S = A: the file's order is (S, A, S)


def test_json_takes_named_costs(tmp_path):
    path = tmp_path / "model.json"
    named = plain(costs={"fuel": [[1, 0], [0, 1]]}, capacities={"fuel": 1.5})
    path.write_text(json.dumps(named))
    assert load(path).cost_names == ("fuel",)


def test_the_byte_order_mark_of_windows_editors_is_accepted(tmp_path):
    path = tmp_path / "model.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(plain()).encode())
    assert load(path).num_states == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transitions": None, "trasitions": CHAIN}, "unknown key 'trasitions'; .*'transitions'"),
        ({"axes": "sas"}, "axis order of a file is fixed"),
        ({"criterion": None}, "'criterion' is missing"),
        ({"criterion": "episodes"}, "criterion must be 'episodic'"),
        ({"criterion": 3}, "'criterion' is 3, expected its name"),
        ({"horizon": "3"}, "'horizon' is 3, expected a number"),
        ({"horizon": True}, "'horizon' is True, expected a number"),
        ({"horizon": 2.5}, "horizon must be a whole number"),
        ({"criterion": "discounted", "horizon": None}, "'discounted' needs discount"),
        ({"rewards": [["0", "1"], ["2", "3"]]}, "'rewards' holds '0', expected numbers"),
        ({"rewards": [[0, None], [2, 3]]}, "'rewards' holds None, expected numbers"),
        ({"rewards": [[0, 1], [2]]}, "'rewards' is not a rectangular list"),
        ({"rewards": [[0, 1], [2, 10**400]]}, "'rewards' holds 1000"),
        ({"rewards": [[0, 1], [2, float("nan")]]}, r"rewards \(state 1, action 1\) is nan"),
        ({"rewards": None}, "rewards are missing"),
        ({"transitions": None}, "transitions are missing"),
        ({"transitions": [[[0.5, 0.4]] * 2] * 2}, r"row \(state 0, action 0\) sums to 0.9"),
        ({"transitions": [[[1.5, -0.5]] * 2] * 2}, r"\(state 0, action 0\) to state 1 is -0.5"),
        ({"capacities": [1, 2]}, "capacities has length 2, expected m = 1"),
        ({"capacities": None}, "capacities are missing"),
        ({"senses": ["="]}, "sense of 'cost' is '='"),
        ({"senses": "<="}, "'senses' is <=, expected a list of strings"),
        ({"state_names": ["a", 1]}, "'state_names' .* expected a list of strings"),
        ({"state_names": ["a", "a"]}, "holds 'a' twice"),
        ({"available": [["yes", "no"]] * 2}, "'available' holds 'yes'"),
        ({"available": [[True, True], [False, False]]}, "state 1 has no available action"),
        ({"initial": [0.5, 0.4]}, "initial sums to 0.9"),
        ({"transitions_data": [1.0]}, "either transitions, or all of"),
    ],
)
def test_json_faults_are_located(tmp_path, changes, message):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(plain(**changes)))
    with pytest.raises(ModelError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"rewards": [1,\n 2', r"line 2, column 3: not JSON .*; is the file cut\?"),
        (b'{"rewards": [1],\n"rewards": [2]}', "line 2: key 'rewards' is there twice"),
        (b'{"costs": {"fuel": 1, "fuel": 2}}', "key 'fuel' is there twice"),
        (b"[1, 2]", "expected one object"),
        (b'{\n"state_names": ["\xe9"]}', "line 2: byte 0xe9 is not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "UTF-16"),
        (b"[" * 200_000, "nested too deeply"),
        (b"", "line 1, column 1: not JSON"),
        (b'{"horizon": ' + b"9" * 5000 + b"}", "digits"),
    ],
)
def test_text_that_is_no_model(tmp_path, raw, message):
    path = tmp_path / "model.json"
    path.write_bytes(raw)
    with pytest.raises(ModelError, match=message):
        load(path)


def npz(path, **arrays):
    with open(path, "wb") as file:
        np.savez_compressed(file, **arrays)
    return path


def test_npz_is_never_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    path = npz(tmp_path / "model.npz", **{**plain(), "state_names": np.array([Trap(), Trap()])})
    with pytest.raises(ModelError, match="'state_names' holds pickled objects"):
        load(path)
    assert not (tmp_path / "executed").exists()


def test_npz_faults_are_located(tmp_path):
    path = npz(tmp_path / "model.npz", **plain(rewards=np.ones((2, 2), complex)))
    with pytest.raises(ModelError, match="'rewards' has dtype complex128"):
        load(path)
    npz(path, **plain(reward=np.ones((2, 2))))
    with pytest.raises(ModelError, match="unknown key 'reward'; did you mean 'rewards'"):
        load(path)
    npz(path, **plain())
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    with pytest.raises(ModelError, match=r"model.npz: damaged"):
        load(path)
    path.write_bytes(b"")
    with pytest.raises(ModelError, match=r"model.npz: damaged"):
        load(path)
    with pytest.raises(ModelError, match="cannot be read"):
        load(tmp_path / "absent.npz")
    with pytest.raises(ModelError, match="no known model format"):
        load(tmp_path / "model.xlsx")


def test_an_array_that_lies_about_its_size_is_refused(tmp_path):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        out, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**9)}
    )
    with zipfile.ZipFile(tmp_path / "model.npz", "w") as archive:
        archive.writestr("rewards.npy", out.getvalue() + b"12345678")
    with pytest.raises(ModelError, match=r"'rewards' says shape .* but holds 8 bytes"):
        load(tmp_path / "model.npz")


def test_doubled_members_are_refused(tmp_path):
    out = io.BytesIO()
    np.lib.format.write_array(out, np.ones(1))
    with zipfile.ZipFile(tmp_path / "model.npz", "w") as archive:
        archive.writestr("rewards.npy", out.getvalue())
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("rewards.npy", out.getvalue())
    with pytest.raises(ModelError, match="key 'rewards' is there twice"):
        load(tmp_path / "model.npz")


def test_bombs_stop_at_the_limit(tmp_path):
    import gzip

    path = npz(tmp_path / "model.npz", **plain(rewards=np.zeros((1000, 1000))))
    assert path.stat().st_size < 20_000
    with pytest.raises(ModelError, match=r"unpacks to more than 1,000,000 bytes; .*max_bytes"):
        load(path, max_bytes=10**6)
    path = tmp_path / "model.json.gz"
    path.write_bytes(gzip.compress(b" " * 10**7))
    with pytest.raises(ModelError, match=r"unpacks to more than 1,000,000 bytes; .*max_bytes"):
        load(path, max_bytes=10**6)
    path.write_bytes(gzip.compress(json.dumps(plain()).encode()))
    assert load(path).num_states == 2
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ModelError, match="damaged or cut gzip"):
        load(path)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.npz"
    save(models()["plain"], path)
    before = path.read_bytes()
    bad = models()["realised"].replace(action_names=["go\0"])
    with pytest.raises(ModelError, match="NUL"):
        save(bad, path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.npz"]
