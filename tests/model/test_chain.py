"""Chains against exact fractions, repeated squaring and brute force over policies."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from tightrope.errors import ConfigError, ModelError, Status
from tightrope.model import chain as ch
from tightrope.model import elimination, structure
from tightrope.model.mdp import FiniteMDP
from tightrope.planning import plan


def sparse_model(rng, states=5, actions=2, successors=2, **extra):
    """Few successors a row, so that many policies are multichain."""
    table = np.zeros((states, actions, states))
    for s, a in itertools.product(range(states), range(actions)):
        heads = rng.choice(states, size=rng.integers(1, successors + 1), replace=False)
        table[s, a, heads] = rng.dirichlet(np.ones(heads.size))
    available = rng.random((states, actions)) < 0.8
    available[:, 0] |= ~available.any(axis=1)
    rewards = rng.normal(size=(states, actions))
    return FiniteMDP(
        transitions=table,
        rewards=rewards,
        available=available,
        criterion="average",
        axes="sas",
        **extra,
    )


def exact_law(rows):
    """Stationary law in fractions, by Gaussian elimination."""
    n = len(rows)
    system = [[rows[i][j] - (i == j) for i in range(n)] + [Fraction(0)] for j in range(n)]
    system[-1] = [Fraction(1)] * n + [Fraction(1)]
    for k in range(n):
        pivot = next(i for i in range(k, n) if system[i][k])
        system[k], system[pivot] = system[pivot], system[k]
        system[k] = [x / system[k][k] for x in system[k]]
        for i in range(n):
            if i != k and system[i][k]:
                system[i] = [x - system[i][k] * y for x, y in zip(system[i], system[k])]
    return np.array([float(row[-1]) for row in system])


@pytest.mark.parametrize("slow", [1, 10**-9, 10**-14])
def test_stationary_law_stays_accurate_when_mixing_is_slow(slow):
    rng = np.random.default_rng(5)
    tiny = Fraction(slow).limit_denominator(10**15)
    rows = [[Fraction(int(x), 100) for x in rng.integers(1, 10, size=6)] for _ in range(6)]
    for i, j in itertools.product(range(6), range(6)):
        if (i < 3) != (j < 3):
            rows[i][j] *= tiny
    for i in range(6):
        rows[i][i] = 1 - sum(rows[i][j] for j in range(6) if j != i)
    law = ch.stationary(sp.csr_array(np.array(rows, dtype=float)))
    # the diagonal is what the floats leave over: compare with the rates, not with the diagonal
    for i in range(6):
        rows[i] = [Fraction(float(x)) for x in rows[i]]
        rows[i][i] = 1 - sum(rows[i][j] for j in range(6) if j != i)
    exact = exact_law(rows)
    assert np.abs(law / exact - 1.0).max() < 1e-13


def test_steep_law_does_not_overflow():
    size = 1500
    up, down = 0.6, 0.2
    chain = sp.diags_array(
        [np.full(size - 1, up), np.full(size - 1, down)], offsets=[1, -1], shape=(size, size)
    ).tolil()
    chain.setdiag(1.0 - np.asarray(chain.sum(axis=1)).ravel())
    law = ch.stationary(sp.csr_array(chain))
    assert law[-2] / law[-1] == pytest.approx(down / up, rel=1e-12)
    assert law.sum() == pytest.approx(1.0, abs=1e-12)


def test_sparse_elimination_beyond_the_dense_limit(monkeypatch):
    rng = np.random.default_rng(8)
    table = sp.random_array((60, 60), density=0.2, rng=rng).toarray() + np.eye(60, k=1)
    table[-1, 0] = 1.0
    chain = sp.csr_array(table / table.sum(axis=1, keepdims=True))
    pays = rng.normal(size=60)
    dense = ch.gain_and_bias(chain, pays)
    monkeypatch.setattr(ch, "DENSE_LIMIT", 10)
    for here, there in zip(dense, ch.gain_and_bias(chain, pays)):
        assert np.abs(here - there).max() < 1e-10


def birth_death(size, up, down):
    stay = np.r_[1 - up, np.full(size - 2, 1 - up - down), 1 - down]
    sides = [np.full(size - 1, down), stay, np.full(size - 1, up)]
    return sp.csr_array(sp.diags_array(sides, offsets=[-1, 0, 1]))


def two_halves(half, slow, seed=0):
    """Two random graphs of `half` states that are joined by one edge each way."""
    rng = np.random.default_rng(seed)
    table = np.zeros((2 * half, 2 * half))
    for part in (np.arange(half), np.arange(half, 2 * half)):
        for _ in range(3):
            table[part, rng.permutation(part)] += 1 / 3
    for tail, head, leave in ((0, half, slow), (half, 0, 3 * slow)):
        table[tail] *= 1 - leave
        table[tail, head] += leave
    return table


@pytest.mark.parametrize("rate", [1e-6, 1e-12, 1e-15])
def test_large_chains_that_mix_slowly_have_their_law_to_every_digit(rate):
    size = ch.DENSE_LIMIT + 100
    chain = birth_death(size, rate, 3 * rate)
    exact = (1 / 3.0) ** np.arange(size)
    assert np.abs(ch.stationary(chain) / (exact / exact.sum()) - 1.0).max() < 1e-12
    pays = np.r_[1.0, np.zeros(size - 1)]
    assert np.abs(ch.gain(chain, pays) - 2 / 3).max() < 1e-14
    assert np.abs(ch.gain_and_bias(chain, pays)[0] - 2 / 3).max() < 1e-14
    model = FiniteMDP(transitions=chain, rewards=pays[::-1, None], criterion="average")
    solution = plan(model, max_sweeps=1000)
    assert solution.status is Status.SOLVED
    assert solution.lower_bound <= exact[-1] <= solution.upper_bound <= 1e-12


@pytest.mark.parametrize("slow", [1e-4, 1e-11])
def test_large_halves_that_hardly_meet(slow):
    table = two_halves(ch.DENSE_LIMIT // 2 + 30, slow)
    chain, law = sp.csr_array(table), ch.gth(table)
    assert np.abs(ch.stationary(chain) / law - 1.0).max() < 1e-10
    pays = np.arange(law.size) < law.size // 2
    assert np.abs(ch.gain(chain, pays.astype(float)) - law @ pays).max() < 1e-12


def test_a_chain_too_large_to_eliminate_is_refused_and_its_plan_is_not_solved(monkeypatch):
    size = ch.DENSE_LIMIT + 60
    table = two_halves(size // 2, 1e-11)
    pays = (np.arange(size) < size // 2).astype(float)
    exact = float(ch.gth(table) @ pays)
    monkeypatch.setattr(elimination, "FRONT_LIMIT", 10)
    for ask in (ch.stationary, lambda chain: ch.gain(chain, pays)):
        with pytest.raises(elimination.TooSlowError, match=f"{size} states mixes too slowly"):
            ask(sp.csr_array(table))
    model = FiniteMDP(transitions=sp.csr_array(table), rewards=pays[:, None], criterion="average")
    solution = plan(model, max_sweeps=300)
    assert solution.status is Status.NOT_CONVERGED
    assert solution.lower_bound <= exact <= solution.upper_bound


@pytest.mark.parametrize("slow", [1e-3, 1e-12])
def test_absorption_from_large_parts(slow):
    """Two ends from 600 transient states, one of them three times as likely."""
    inner = two_halves(300, 0.1)
    leave = np.zeros((600, 2))
    leave[7] = slow, 3 * slow
    inner[7] *= 1 - 4 * slow
    chain = np.block([[inner, leave], [np.zeros((2, 600)), np.eye(2)]])
    ends, labels = ch.absorption(sp.csr_array(chain))
    assert labels[-2:].tolist() == [0, 1]
    assert np.abs(ends[:600] - [0.25, 0.75]).max() < 1e-9
    blocks = elimination.eliminate(sp.csr_array(inner), leave.sum(axis=1))
    right = np.random.default_rng(0).random((600, 2))
    exact = ch.solve_absorbing(inner, leave.sum(axis=1), right)
    assert np.abs(elimination.eliminated_solve(blocks, right) / exact - 1.0).max() < 1e-12


def test_elimination_of_a_chain_so_steep_that_visits_inside_a_block_overflow():
    chain = birth_death(200, 1e-13, 0.9)[::-1][:, ::-1]  # 9e12 times more likely at each step
    law = elimination.eliminated_law(elimination.eliminate(sp.csr_array(chain)), 200)
    likely = np.sort(law)[::-1]
    assert np.abs(likely[1:20] / likely[:19] / (1e-13 / 0.9) - 1.0).max() < 1e-12


def test_gain_and_bias_on_random_multichain_chains():
    rng = np.random.default_rng(0)
    several = 0
    for _ in range(60):
        model = sparse_model(rng, states=7)
        actions = model.available.argmax(axis=1)
        chain = model.matrix()[np.arange(7) * 2 + actions]
        pays = rng.normal(size=(7, 2))
        gain, bias = ch.gain_and_bias(chain, pays)
        dense = chain.toarray()
        limit = 0.5 * (np.eye(7) + dense)  # same limit in the mean, aperiodic
        for _ in range(45):
            limit = limit @ limit
            limit /= limit.sum(axis=1, keepdims=True)
        assert np.abs(limit @ pays - gain).max() < 1e-9
        assert np.abs(gain + bias - pays - dense @ bias).max() < 1e-9
        assert np.abs(limit @ bias).max() < 1e-8
        assert np.abs(ch.gain(chain, pays) - gain).max() < 1e-12
        several += ch.chain_classes(chain).max() > 0
    assert several >= 5


def test_a_chain_with_two_classes_has_no_stationary_law():
    with pytest.raises(ModelError, match=r"2 recurrent classes \(states 0 and 1"):
        ch.stationary(sp.csr_array(np.eye(2)))


def test_structure_agrees_with_brute_force():
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(100):
        model = sparse_model(rng, states=4)
        chains = [
            model.matrix()[np.arange(4) * 2 + actions]
            for actions in structure.deterministic_policies(model)
        ]
        recurrent = np.array([ch.chain_classes(chain) >= 0 for chain in chains]).any(axis=0)
        several = any(ch.chain_classes(chain).max() > 0 for chain in chains)
        assert ch.is_unichain(model) is (not several)
        union = sum(chain.toarray() for chain in chains) > 0
        reach = np.linalg.matrix_power(np.eye(4) + union, 4) > 0
        mutual = reach & reach.T
        labels, staying = ch.maximal_end_components(model)
        assert ((labels >= 0) == recurrent).all()
        assert ch.is_communicating(model) == mutual.all()
        # weakly communicating: the states that can be recurrent reach one another in one closed set
        core = np.flatnonzero(recurrent)
        closed = not reach[np.ix_(core, np.flatnonzero(~recurrent))].any()
        weakly = bool(mutual[np.ix_(core, core)].all()) and closed
        assert ch.is_weakly_communicating(model) == weakly
        seen.add((several, bool(mutual.all()), weakly))
        for s, a in np.argwhere(staying):
            heads = np.flatnonzero(model.dense()[s, a])
            assert (labels[heads] == labels[s]).all()
    assert len(seen) >= 4


def test_contraction_and_mixing_time():
    rng = np.random.default_rng(2)
    table = rng.dirichlet(np.ones(4), size=(4, 3))
    model = FiniteMDP(transitions=table, rewards=np.zeros((4, 3)), criterion="average")
    naive = max(
        0.5 * np.abs(table[x, a] - table[y, b]).sum()
        for x, y, a, b in itertools.product(range(4), range(4), range(3), range(3))
        if x != y
    )
    assert ch.contraction(model) == pytest.approx(naive, abs=1e-15)
    assert ch.mixing_time(model) == pytest.approx(max(1.0, -1.0 / math.log(naive)), rel=1e-12)
    still = FiniteMDP(
        transitions=[[[1.0, 0.0]], [[0.0, 1.0]]], rewards=[[0.0]] * 2, criterion="average"
    )
    assert ch.mixing_time(still) == math.inf


def test_sigma_is_the_least_over_policies_and_randomised_ones_are_no_lower():
    rng = np.random.default_rng(3)
    table = rng.dirichlet(np.ones(4), size=(4, 2))
    model = FiniteMDP(transitions=table, rewards=np.zeros((4, 2)), criterion="average")
    features = rng.dirichlet(np.ones(3), size=(4, 2))
    value = ch.sigma(model, features)

    def least(policy):
        law = np.linalg.matrix_power(np.einsum("sa,sat->st", policy, table), 300)[0]
        gram = np.einsum("s,sa,sai,saj->ij", law, policy, features, features)
        return np.linalg.eigvalsh(gram)[0]

    every = [least(np.eye(2)[list(a)]) for a in itertools.product(range(2), repeat=4)]
    assert value == pytest.approx(min(every), rel=1e-9)
    assert min(least(rng.dirichlet(np.ones(2), size=4)) for _ in range(50)) >= value
    one_hot = np.eye(8).reshape(4, 2, 8)
    assert ch.sigma(model, one_hot) == pytest.approx(0.0, abs=1e-15)
    with pytest.raises(ConfigError, match="16 deterministic policies, the limit is 3"):
        ch.sigma(model, features, max_policies=3)


def test_diameter_against_brute_force():
    rng = np.random.default_rng(4)
    checked = 0
    while checked < 10:
        model = sparse_model(rng, states=4)
        if not ch.is_communicating(model):
            assert ch.diameter(model) == math.inf
            continue
        checked += 1
        best = np.full((4, 4), np.inf)
        for actions in structure.deterministic_policies(model):
            dense = model.dense()[np.arange(4), actions]
            for target in range(4):
                keep = [s for s in range(4) if s != target]
                system = np.eye(3) - dense[np.ix_(keep, keep)]
                if np.linalg.matrix_rank(system) == 3:
                    best[keep, target] = np.minimum(
                        best[keep, target], np.linalg.solve(system, np.ones(3))
                    )
        np.fill_diagonal(best, 0.0)
        assert ch.diameter(model) == pytest.approx(best.max(), rel=1e-9)
