"""Mutated files end in a valid model or in a located error: no crash, no hang, no wrong silence."""

import io
import re
import warnings
import zipfile

import numpy as np
import pytest
from tests.io.samples import models, stationary
from tests.io.test_cassandra import CORNER, TIGER
from tests.io.test_prism import PRISM, STORM
from tests.io.test_tables import COMMON

from tightrope.errors import ModelError, ModelWarning
from tightrope.io import load, save
from tightrope.model.mdp import FiniteMDP

TOKENS = [
    b"0", b"1", b"-1", b"0.5", b"1e999", b"nan", b"inf", b"-", b"99999999999999999999", b"*", b":",
    b",", b";", b"\t", b" ", b"\n", b"\r\n", b"\n\n", b"#", b'"', b"'", b"[", b"]", b"{", b"}",
    b"null", b"true", b"\x00", b"\xff", b"\xef\xbb\xbf", b"uniform", b"identity", b"reset", b"T:",
    b"R:", b"start:", b"states:", b"mdp", b"dtmc", b"cost:a", b"reward", b"1_0", b"0x1", b"\xe2",
]  # fmt: skip
NUMBER = re.compile(rb"\d+(\.\d+)?")
NUMBERS = [b"0", b"1", b"2", b"3", b"-1", b"0.5", b"0.25", b"7", b"1e-3", b"1e400", b"12345678901"]
BASES = {
    "npz": list(models().values()),
    "json": list(models().values()),
    "csv": [*stationary().values(), '# tightrope: {"criterion": "average"}\n' + COMMON],
    "mdp": [CORNER],
    "pomdp": [TIGER],
    "tra": [PRISM, STORM],
}


def base_files(kind, folder):
    """Bytes of valid files: a list of {name: bytes}."""
    out = []
    for base in BASES[kind]:
        if isinstance(base, FiniteMDP):
            save(base, folder / f"base.{kind}")
            out.append({f"model.{kind}": (folder / f"base.{kind}").read_bytes()})
        elif isinstance(base, dict):
            out.append({f"model.{end}": text.encode() for end, text in base.items()})
        else:
            out.append({f"model.{kind}": base.encode()})
    return out


def mutate(raw, rng):
    """A number for a number, or one to four random edits of bytes, words or lines."""
    if rng.random() < 0.5:
        found = list(NUMBER.finditer(raw))
        if found:
            one = found[int(rng.integers(len(found)))]
            other = NUMBERS[int(rng.integers(len(NUMBERS)))]
            return raw[: one.start()] + other + raw[one.end() :]
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(0, len(raw) + 1))
        to = min(len(raw), at + int(rng.integers(1, 40)))
        choice = int(rng.integers(8))
        if choice == 0:
            raw = raw[:at]
        elif choice == 1:
            raw = raw[:at] + raw[to:]
        elif choice == 2:
            raw = raw[:to] + raw[at:]
        elif choice == 3 and at < len(raw):
            raw = raw[:at] + bytes([raw[at] ^ (1 << int(rng.integers(8)))]) + raw[at + 1 :]
        elif choice == 4:
            raw = raw[:at] + bytes(rng.integers(0, 256, 3, dtype=np.uint8)) + raw[at:]
        elif choice in (5, 6):
            raw = raw[:at] + TOKENS[int(rng.integers(len(TOKENS)))] + raw[at + choice - 5 :]
        else:
            lines = raw.split(b"\n")
            rng.shuffle(lines)
            raw = b"\n".join(lines)
    return raw


def mutate_member(raw, rng):
    """Edit one array inside an .npz file, under a checksum that fits."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(out, "w") as new:
        victim = int(rng.integers(len(old.namelist())))
        for i, name in enumerate(old.namelist()):
            body = old.read(name)
            new.writestr(name, mutate(body, rng) if i == victim else body)
    return out.getvalue()


def check(kind, count, folder, seed):
    """Load `count` mutated files; returns how many were models and how many errors."""
    rng = np.random.default_rng(seed)
    bases = base_files(kind, folder)
    accepted = 0
    options = {"criterion": "average"} if kind == "tra" else {}
    for number in range(count):
        files = dict(bases[number % len(bases)])
        victim = sorted(files)[int(rng.integers(len(files)))]
        change = mutate_member if kind == "npz" and number % 4 else mutate
        files[victim] = change(files[victim], rng)
        for name, raw in files.items():
            (folder / name).write_bytes(raw)
        try:
            model = load(folder / f"model.{kind}", max_bytes=10**6, **options)
        except Exception as error:
            if isinstance(error, ModelError) and "model." in str(error):  # names the file
                continue
            raise AssertionError(f"{kind} {number}: {files[victim]!r}") from error
        accepted += 1
        np.testing.assert_allclose(model.matrix().sum(axis=1)[model.available.ravel()], 1)
        assert np.isfinite(model.rewards).all()
        assert FiniteMDP(**model.to_dict()).content_hash == model.content_hash
    return accepted


@pytest.mark.parametrize("kind", BASES)
def test_300_mutated_files(kind, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        accepted = check(kind, 300, tmp_path, seed=1)
    assert 0 < accepted < 300


@pytest.mark.slow
@pytest.mark.parametrize("kind", BASES)
def test_20000_mutated_files(kind, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        accepted = check(kind, 20_000, tmp_path, seed=2)
    assert 0 < accepted < 20_000
