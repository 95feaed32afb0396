"""Random streams of a run: one integer seed, four independent streams, blocks without replay."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightrope.errors import ConfigError


class Streams(NamedTuple):
    """Seeds of a run. The environment's does not depend on the learner."""

    environment: np.random.SeedSequence
    adversary: np.random.SeedSequence
    learner: np.random.SeedSequence
    problem: np.random.SeedSequence


def streams(seed: int) -> Streams:
    """The four streams of an integer seed >= 0.

    >>> [int(np.random.default_rng(s).integers(0, 10**6)) for s in streams(2024)]
    [677507, 276172, 760390, 529098]
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigError(f"seed must be a whole number >= 0, got {seed!r}")
    return Streams(*np.random.SeedSequence(int(seed)).spawn(4))


def block_generator(stream: np.random.SeedSequence, block: int) -> np.random.Generator:
    """Generator of one block of a stream, the same whatever was drawn before."""
    key = (*stream.spawn_key, block)
    return np.random.default_rng(np.random.SeedSequence(stream.entropy, spawn_key=key))


def learner_seed(stream: np.random.SeedSequence) -> int:
    """An integer for a learner's own generator."""
    return int(stream.generate_state(1, np.uint64)[0] >> np.uint64(1))
