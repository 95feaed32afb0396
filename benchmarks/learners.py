"""Average-reward learners: steps a second, growth of cost with T, and what one would write instead.

`python -m benchmarks.learners` prints the tables. Opponents, run one after the other in this
process: OLSVI.FH as published (V applied to every past state, each step of each episode; in NumPy,
all past states at once) and, where it is installed, the package StatisticalRL, driven by the
plainest loop.
"""

from __future__ import annotations

import importlib
import platform
import statistics
import time

import numpy as np

import tightrope as tr
from tightrope.learners import olsvi_fh
from tightrope.learners.protocol import state_arrays
from tightrope.learners.registry import make_config
from tightrope.model.linear import finite_model
from tightrope.model.policy import uniform_policy
from tightrope.problems.registry import make_problem
from tightrope.simulation import runner
from tightrope.theory import log_log_slope

REPEATS = 3
RIVER = tr.problems.riverswim()
GAIN = tr.plan(RIVER).value
SPEC = RIVER.spec(knowledge={"span": 6.310324})


def seconds_of(function, repeats=REPEATS):
    """Median wall and processor seconds."""
    rows = []
    for _ in range(repeats):
        wall, used = time.perf_counter(), time.process_time()
        function()
        rows.append((time.perf_counter() - wall, time.process_time() - used))
    return [statistics.median(column) for column in zip(*rows)]


def speed(steps=1_000_000):
    """Whole runs through `tr.run`: planning, recording and exact accounting included."""
    print(f"\nsteps a second, one core, T = {steps:,}, median of {REPEATS}")
    print(f"{'learner':<22}{'problem':<12}{'wall s':>8}{'CPU s':>8}{'steps/s (CPU)':>16}")
    for problem, learner in (
        ("riverswim", "ucrl2"),
        ("riverswim", "ucrl2@theory"),
        ("riverswim", "psrl"),
        ("riverswim", "psrl@theory"),
        ("riverswim", "olsvi-fh"),
        ("riverswim", "politex"),
        ("linear-mdp", "mdp-exp2"),
        ("ergodic", "mdp-exp2"),
        ("linear-mdp", "npg"),
    ):
        tr.run(problem, learner, steps=20_000)  # compiled
        wall, used = seconds_of(lambda p=problem, x=learner: tr.run(p, x, steps=steps, seed=1))
        print(f"{learner:<22}{problem:<12}{wall:>8.2f}{used:>8.2f}{steps / used:>16,.0f}")


def statistical_rl(steps=20_000):
    """The package's UCRL2 and PSRL, if it is there."""
    base = "statisticalrl_learners.MDPs_discrete"
    try:
        modules = {name: importlib.import_module(f"{base}.{name}") for name in ("UCRL2", "PSRL")}
    except ImportError as error:
        print(f"\nStatisticalRL is not installed ({error})")
        return
    rng = np.random.default_rng(0)
    table = RIVER.dense().cumsum(axis=2)
    print(f"\nStatisticalRL, T = {steps:,}, the same RiverSwim")
    for name, module in modules.items():
        agent = getattr(module, name)(6, 2, delta=0.05)
        state, started = 0, time.process_time()
        agent.reset(state)
        for draw in rng.random(steps):
            action = int(agent.play(state))
            after = int(np.searchsorted(table[state, action], draw, side="right"))
            agent.update(state, action, RIVER.rewards[state, action], after)
            state = after
        used = time.process_time() - started
        theirs = steps / used
        _, ours = seconds_of(lambda n=name: tr.run(RIVER, n.lower(), steps=1_000_000, seed=1))
        print(
            f"{name:<8}{theirs:>12,.0f} steps/s; ours {1e6 / ours:>12,.0f} (T = 1,000,000); ",
            end="",
        )
        print(f"ratio {1e6 / ours / theirs:.0f}")


def published_olsvi(steps, length, beta, seed=1):
    """Algorithm 2 of Wei et al. as printed: at every h, V of every past next state."""
    rng = np.random.default_rng(seed)
    table, rewards = RIVER.dense().cumsum(axis=2), RIVER.rewards
    features = np.eye(12).reshape(6, 2, 12)
    phi, paid, after = np.zeros((steps, 12)), np.zeros(steps), np.zeros(steps, dtype=int)
    gram, state, t, total = np.eye(12), 0, 0, 0.0
    while t < steps:
        inverse = np.linalg.inv(gram)
        width = beta * np.sqrt(np.einsum("sad,de,sae->sa", features, inverse, features))
        plan, values = [], np.zeros(t)
        past = features[after[:t]]
        past_width = beta * np.sqrt(np.einsum("nad,de,nae->na", past, inverse, past))
        for _ in range(length):
            weights = inverse @ (phi[:t].T @ (paid[:t] + values))
            plan.append(np.minimum(features @ weights + width, length))
            values = np.minimum(past @ weights + past_width, length).max(axis=1)
        for q in plan[::-1][: steps - t]:
            action = int((q[state] >= q[state].max() - 1e-9 * length).argmax())
            follow = int(np.searchsorted(table[state, action], rng.random(), side="right"))
            phi[t], paid[t], after[t] = features[state, action], rewards[state, action], follow
            gram += np.outer(phi[t], phi[t])
            total += paid[t]
            state, t = follow, t + 1
    return total / steps


def olsvi(steps=20_000):
    """The published pseudo-code against the sufficient statistics, same H and beta."""
    _, config = make_config("olsvi-fh", SPEC, episodes=100_000, delta=0.05)
    length = olsvi_fh.episode_length(SPEC, config, 12)
    beta = olsvi_fh.bonus_factor(config, 12, length)
    changes = {"bonus_scale": config.bonus_scale, "horizon_scale": config.horizon_scale}
    # the constants of T = 100,000 for both, by scaling those of `steps`
    short = olsvi_fh.Config(steps=steps, span=6.310324, **changes)
    changes["horizon_scale"] *= (length - 0.5) / olsvi_fh.episode_length(SPEC, short, 12)
    while olsvi_fh.episode_length(SPEC, short, 12) != length:
        change = 1.01 if olsvi_fh.episode_length(SPEC, short, 12) < length else 0.995
        changes["horizon_scale"] = short.horizon_scale * change
        short = olsvi_fh.Config(steps=steps, span=6.310324, **changes)
    changes["bonus_scale"] *= beta / olsvi_fh.bonus_factor(short, 12, length)
    _, ours = seconds_of(lambda: tr.run(RIVER, "olsvi-fh", steps=steps, seed=1, **changes))
    means = []
    _, theirs = seconds_of(lambda: means.append(published_olsvi(steps, length, beta)), 1)
    print(f"\nOLSVI.FH, T = {steps:,}, H = {length}, beta = {beta:.3f}, CPU seconds")
    print(
        f"published pseudo-code in NumPy {theirs:.2f} (mean reward {means[0]:.4f}); ours {ours:.3f}"
    )
    print(f"ratio {theirs / ours:.0f}")


def growth():
    """Seconds, state size and regret over T, constants set for each T."""
    print("\ngrowth with T: CPU seconds, regret (seed 1); log-log slopes; state in kB")
    sizes = (10_000, 100_000, 1_000_000)
    print(f"{'learner':<20}{'problem':<12}" + "".join(f"{t:>22,}" for t in sizes) + "   slopes")
    for problem, learner in (
        ("riverswim", "ucrl2"),
        ("riverswim", "psrl"),
        ("riverswim", "olsvi-fh"),
        ("riverswim", "politex"),
        ("linear-mdp", "olsvi-fh"),
        ("linear-mdp", "mdp-exp2"),
        ("linear-mdp", "npg"),
        ("linear-mdp", "politex"),
    ):
        model, rows = make_problem(problem), []
        for steps in sizes:
            session = runner.start(model, learner, episodes=steps, seed=1, delta=0.05)
            started = time.process_time()
            runner.advance(session)
            used = time.process_time() - started
            rows.append((used, runner.finish(session).columns["regret"][-1]))
        size = sum(array.nbytes for array in state_arrays(session.state).values()) / 1000
        slopes = [
            f"{np.polyfit(np.log10(sizes), np.log10(column), 1)[0]:.2f}" if min(column) > 0 else "-"
            for column in zip(*rows)
        ]
        cells = "".join(f"{used:>10.3f}{regret:>12,.0f}" for used, regret in rows)
        print(f"{learner:<20}{problem:<12}{cells}   {' '.join(slopes):<12}{size:.1f} kB")


def exponential_weights(seeds=5):
    """Tuned MDP-EXP2 on two ergodic models of ten states: last fifth, slope in T, CPU seconds."""
    print("\nMDP-EXP2 tuned, T = 1e4, 1e5, 1e6, constants for each,", seeds, "seeds")
    for problem in ("ergodic", "linear-mdp"):
        model = make_problem(problem)
        plain = finite_model(model)
        best, uniform = tr.plan(plain).value, uniform_policy(plain.available)
        share, used, horizons, finals = [], [], [], []
        for steps in (10_000, 100_000, 1_000_000):
            for seed in range(seeds):
                started = time.process_time()
                columns = tr.run(model, "mdp-exp2", steps=steps, seed=seed, delta=0.05).columns
                horizons.append(steps)
                finals.append(columns["regret"][-1])
                if steps == 1_000_000:
                    used.append(time.process_time() - started)
                    start = np.searchsorted(columns["episode"], 0.8 * steps)
                    rest = steps - columns["episode"][start]
                    lost = (columns["regret"][-1] - columns["regret"][start]) / rest
                    share.append(1 - lost / best)
        slope, low, high = log_log_slope(np.array(horizons), np.array(finals))
        print(
            f"{problem:<12}uniform earns {tr.evaluate(plain, uniform).value / best:.1%} of J*; "
            f"last fifth, worst seed {min(share):.1%}; slope {slope:.2f} [{low:.2f}, {high:.2f}]; "
            f"T = 1e6 in {statistics.median(used):.2f} s CPU (median; largest {max(used):.2f})"
        )


def fopo(steps=20_000):
    """Seconds an update, every program proved optimal."""
    session = runner.start(RIVER, "fopo", episodes=steps, seed=1, delta=0.05)
    times = []
    while session.ledger.count < steps:
        started = time.process_time()
        runner.advance(session, session.ledger.count + 1)
        times.append(time.process_time() - started)
    proved = session.info_rows["proved"]
    print(f"\nFOPO on RiverSwim (6 states x 2 actions), T = {steps:,}: {len(times)} updates")
    print(f"CPU seconds an update: median {statistics.median(times):.3f}, max {max(times):.3f}; ")
    print(f"proved optimal: {bool(np.nanmin(proved) == 1.0)}")


def main():
    print(f"{platform.machine()} {platform.processor()}, Python {platform.python_version()}")
    print(f"RiverSwim of Osband 2013, gain {GAIN:.10f}")
    speed()
    olsvi()
    exponential_weights()
    fopo()
    growth()
    statistical_rl()


if __name__ == "__main__":
    main()
