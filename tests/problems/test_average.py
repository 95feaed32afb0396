"""Problems of the average criterion against published gains and closed forms."""

import itertools
import math

import numpy as np
import pytest

from tightrope.errors import ConfigError
from tightrope.model import chain
from tightrope.model.policy import DeterministicPolicy, uniform_policy
from tightrope.planning import evaluate, plan
from tightrope.problems import access_control, admission_control, ergodic_mdp, riverswim
from tightrope.types import Episodic

GAINS = {
    "osband2013": 0.4286224338,
    "strehl2008": 2229.3577982,
    "strehl2008-transition": 668.8073394,
    "statisticalrl-099": 0.9075003039,
    "statisticalrl": 0.9166669737,
    "right-040": 0.4666742623,
}


@pytest.mark.parametrize("solver", ["policy-iteration", "value-iteration", "lp"])
@pytest.mark.parametrize(("source", "gain"), GAINS.items())
def test_riverswim_by_source(source, gain, solver):
    solution = plan(riverswim(source=source), solver=solver)
    assert solution.value == pytest.approx(gain, abs=6e-8 if gain > 100 else 6e-11)
    assert solution.gap < 1e-9


def test_riverswim_default():
    model = riverswim()
    assert chain.span(plan(model).bias) == pytest.approx(6.310324, abs=5e-7)
    assert chain.mixing_time(model) == math.inf
    assert chain.is_communicating(model)
    assert plan(riverswim(criterion=Episodic(20))).value == pytest.approx(3.39726396, abs=5e-9)
    assert plan(riverswim(states=12)).value > 0.01
    with pytest.raises(ConfigError, match="did you mean 'osband2013'"):
        riverswim(source="osband2014")


def test_ergodic_models_have_their_mixing_time():
    for seed in range(5):
        model = ergodic_mdp(seed=seed, floor=0.3)
        assert chain.contraction(model) <= 0.7 + 1e-12
        assert chain.is_unichain(model)
    model = ergodic_mdp()
    assert chain.mixing_time(model) == pytest.approx(3.854779, abs=1e-6)
    best = plan(model).value
    assert best == pytest.approx(0.5565826787, abs=1e-9)
    assert evaluate(model, uniform_policy(model.available)).value <= 0.75 * best


def test_access_control_accepts_by_priority():
    solution = plan(access_control())
    assert solution.value == pytest.approx(2.7476419506, abs=1e-9)
    accepts = solution.policy.actions.reshape(11, 4)
    assert (accepts[0] == 0).all()
    assert (np.diff(accepts, axis=1) >= 0).all()  # a higher priority is never worse
    assert (np.diff(accepts, axis=0) >= 0).all()  # nor is a free server more
    small = access_control(servers=1, release=0.5, priorities=(1.0, 8.0))
    best = max(
        evaluate(small, DeterministicPolicy(np.array([0, 0, *actions]))).value
        for actions in itertools.product(range(2), repeat=2)
    )
    assert plan(small).value == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize(
    ("make", "wrong", "text"),
    [
        (access_control, {"priorities": ()}, "at least one kind of customer"),
        (access_control, {"servers": 0}, "servers must be a whole number >= 1"),
        (admission_control, {"buffer": 0}, "buffer must be a whole number >= 1"),
        (riverswim, {"states": 2.5}, "states must be a whole number >= 2, got 2.5"),
        (ergodic_mdp, {"states": 0}, "states must be a whole number >= 1"),
        (ergodic_mdp, {"seed": -1}, "seed must be a whole number >= 0"),
    ],
)
def test_sizes_that_make_no_model(make, wrong, text):
    with pytest.raises(ConfigError, match=text):
        make(**wrong)


def threshold_gain(threshold, arrival, service, entry, holding):
    """Gain of accepting below `threshold`: the queue is a truncated geometric law."""
    law = (arrival / service) ** np.arange(threshold + 1)
    law /= law.sum()
    return arrival * entry * law[:-1].sum() - holding * (law @ np.arange(threshold + 1))


@pytest.mark.parametrize("arrival", [0.3, 0.45, 0.7])
def test_admission_control_is_a_threshold(arrival):
    model = admission_control(arrival=arrival, service=1 - arrival)
    closed = [threshold_gain(n, arrival, 1 - arrival, 5.0, 0.3) for n in range(1, 21)]
    solution = plan(model)
    assert solution.value == pytest.approx(max(closed), abs=1e-10)
    threshold = int(np.argmax(closed)) + 1
    assert solution.policy.actions[: threshold + 1].tolist() == [1] * threshold + [0]
    with pytest.raises(ConfigError, match="sum to 1"):
        admission_control(arrival=0.5, service=0.6)
