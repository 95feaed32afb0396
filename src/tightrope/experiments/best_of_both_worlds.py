"""Best of both worlds: one learner, unchanged, whoever chooses rewards and constraints.

[BOBW] Germano et al. 2023. The four combinations of stochastic and adversarial rewards and
constraints, with Condition 2 broken (L = 4, m = 2, rho = 1) and met (L = 2, m = 1, rho = 1.7 at
T = 1e6), each with the cap of the multipliers in place and removed; PDGD-OPS at several T, for
slopes; the switching instance; the impossibility in its two worlds; and the ten-layer example that
shows why the printed alpha is wrong.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from tightrope.experiment import Arm, Experiment

KINDS = ("stochastic", "adversarial")
COMPARED = ("pdgd-ops", "uc-o-reps@penalty", "uc-o-gdps@best-multiplier", "oracle")
EXAMPLES = ("pdgd-ops", "oracle")


def best_of_both_worlds(*, quick: bool = False) -> Experiment:
    """The experiment; `quick` keeps every problem and shortens the runs."""
    long, others = (500, (125, 250)) if quick else (16_000, (1_000, 4_000, 64_000))
    condition_2 = 500 if quick else 1_000_000
    arms = []
    for rewards, constraints in product(KINDS, KINDS):
        problem = f"loop-free-{rewards}-{constraints}"
        arms += [Arm(problem=problem, learner=name, episodes=long) for name in COMPARED]
        arms.append(Arm(problem=problem, learner="pdgd-ops@no-cap", episodes=long))
        arms += [Arm(problem=problem, learner="pdgd-ops", episodes=T, horizon=True) for T in others]
    arms += [Arm(problem="switching", learner=name, episodes=long) for name in COMPARED]
    arms += [
        Arm(
            problem=f"condition-2-{rewards}-{constraints}",
            learner=learner,
            episodes=condition_2,
            seeds=1,
        )
        for rewards, constraints in product(KINDS, KINDS)
        for learner in (*COMPARED, "pdgd-ops@no-cap")
    ]
    examples: dict[str, Any] = {
        "impossibility": ("relief", "trap"),
        "ten-layers": ("relief", "trap"),
    }
    arms += [
        Arm(problem=f"{name}-{world}", learner=learner, episodes=long)
        for name, worlds in examples.items()
        for world in worlds
        for learner in EXAMPLES
    ]
    return Experiment(
        name="best-of-both-worlds", arms=tuple(arms), seeds=2 if quick else 5, delta=0.05
    )
