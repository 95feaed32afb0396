"""A single stream from nothing but the world and the protocol, and the exact gain."""

from types import SimpleNamespace

import numpy as np
import pytest

from tightrope.model.mdp import FiniteMDP
from tightrope.simulation.stream import StreamWorld
from tightrope.simulation.streams import streams
from tightrope.types import Average


def make_riverswim(states=6):
    """Osband, Russo and Van Roy (2013)."""
    transitions = np.zeros((states, 2, states))
    for s in range(states):
        transitions[s, 0, max(0, s - 1)] = 1.0
        left, stay, right = (0.05, 0.6, 0.35)
        if s == 0:
            left, stay, right = (0.0, 0.4, 0.6)
        if s == states - 1:
            left, stay, right = (0.4, 0.6, 0.0)
        for move, chance in ((-1, left), (0, stay), (1, right)):
            if chance:
                transitions[s, 1, s + move] = chance
    rewards = np.zeros((states, 2))
    rewards[0, 0], rewards[-1, 1] = 0.005, 1.0
    return FiniteMDP(transitions=transitions, rewards=rewards, criterion=Average(), axes="sas")


def optimal_gain(model):
    """Gain and span of the optimal bias by value iteration."""
    transitions, values = model.dense(), np.zeros(model.num_states)
    for _ in range(100_000):
        fresh = (model.rewards + transitions @ values).max(axis=1)
        step = fresh - values
        values = fresh - fresh.min()
        if np.ptp(step) < 1e-13:
            break
    return float(step.mean()), float(np.ptp(values))


def play(model, learner, config, steps, *, seed=0, spec=None):
    """Mean rewards of every step (steps,), all infos, and the last state."""
    spec = model.spec() if spec is None else spec
    learner.check(spec, config)
    world = StreamWorld(model, streams(seed), spec)
    state, infos, means = learner.init(spec, config), [], []
    while world.step < steps:
        seen, _ = world.play(learner.policy(state), learner.horizon(state), steps - world.step)
        means.append(model.rewards[seen.states[:-1], seen.actions])
        state, info = learner.update(state, seen)
        infos.append(info)
    return SimpleNamespace(means=np.concatenate(means), infos=infos, state=state)


@pytest.fixture(scope="session")
def riverswim():
    return make_riverswim()


@pytest.fixture(scope="session")
def stream():
    return SimpleNamespace(play=play, optimal_gain=optimal_gain, riverswim=make_riverswim)
