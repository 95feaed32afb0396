"""Unproved constants, each with its provenance. The only place for them.

`PRESETS[learner][preset]` is the keywords of the learner's Config; ``name@theory`` is not here,
because the theorem's constants are in the learner's own file. A learner without a ``tuned`` entry
has nothing to tune, and its bare name runs its default Config.
"""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "conrl": {
        # Eq. (9) keeps its form. Scale by search over 1e-6..1e-4 on the Mars rover, 1,000 episodes,
        # both kinds of feedback: from 3e-5 on the cost stays above the capacity for longer.
        "tuned": {"bonus_scale": 3e-6, "unvisited_bonus": 1.0},
        # What the paper's authors ran: a flat bonus, and 1 on pairs never visited.
        "paper-experiments": {"bonus": "flat", "bonus_scale": 1e-3, "unvisited_bonus": 1.0},
    },
    "pdgd-ops": {
        # C, 1/K and the radius by hand on random loop-free worlds (1, 5, 5, 5, 1) x 3 with m = 2,
        # T = 1,000 to 16,000. A faster dual lowers the violation but lets it grow more steeply in
        # T; a radius below 0.05 loses the true model.
        "tuned": {"primal_scale": 0.004, "dual_scale": 5000.0, "radius_scale": 0.1},
    },
    "uc-o-gdps": {
        # The steps of tuned pdgd-ops on the same worlds, in units of this learner's smaller C.
        "tuned": {"primal_scale": 0.1, "radius_scale": 0.1},
    },
    "uc-o-reps": {
        # By hand on the same worlds; the step is at its theorem's value.
        "tuned": {"step_scale": 1.0, "radius_scale": 0.1},
    },
}
