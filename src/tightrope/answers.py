"""What `tightrope plan` answers, as text for a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tightrope.planning import Solution
    from tightrope.planning.frontier import Frontier

FRONTIER_ROWS = 20
LEGEND = "multiplier: gain in value per unit of capacity; tightest: capacity that can be kept"


def solution_text(solution: Solution, answer: dict[str, Any], senses: tuple[str, ...]) -> str:
    """Status, value and bounds, and a line for each capacity.

    `answer` is the solution's JSON with ``least_capacities``, `senses` those of the model.
    """
    lines = [f"status      {answer['status']}: {solution.status.sentence}"]
    if answer["value"] is not None:
        low, high = (_short(answer[key], ".10g") for key in ("lower_bound", "upper_bound"))
        lines += [
            f"value       {answer['value']:.10g}",
            f"bounds      [{low}, {high}]",
            f"gap         {_short(answer['gap'], '.2g')}",
        ]
    lines.append(f"solver      {answer['solver']}, {answer['seconds']:.3g} s")
    least = answer.get("least_violation")
    if answer["capacities"]:
        costs = (least or answer)["costs"] or {}
        wide = max(10, *map(len, answer["capacities"]))
        lines += [
            "",
            f"{'constraint':{wide}} {'cost':>14}    {'capacity':>14} {'multiplier':>14} "
            f"{'tightest':>14}  binds",
        ]
        for sense, (name, limit) in zip(senses, answer["capacities"].items()):
            price, tightest = answer["multipliers"][name], answer["least_capacities"][name]
            cost, capacity, price, tightest = (
                f"{_short(x, '.8g'):>14}" for x in (costs.get(name), limit, price, tightest)
            )
            binds = "yes" if name in solution.binding else "no"
            lines.append(f"{name:{wide}} {cost} {sense} {capacity} {price} {tightest}  {binds}")
        lines.append(LEGEND)
    if "must_switch" in answer:
        lines += ["", f"note: {answer['must_switch']}"]
    if least:
        lines += [
            "",
            f"The costs shown are those of the policy of least violation (value "
            f"{least['policy_value']:.8g}); it exceeds a capacity by {least['shortfall']:.8g}.",
        ]
    return "\n".join(lines)


def frontier_text(curve: Frontier) -> str:
    """Ends and breakpoints of a frontier, at most some FRONTIER_ROWS of them."""
    shown = curve.to_json()
    count = len(shown["capacities"])
    how = "exact" if curve.exact else f"error at most {curve.error:.2g}"
    word = "least" if curve.sign > 0 else "highest"
    lines = [
        f"frontier    {curve.name}: {count} breakpoints, {how}, {curve.programs} dynamic programs",
        f"            {word} capacity that can be kept {curve.least_capacity:.8g}",
        f"            it stops to matter at {curve.binds_until:.8g}",
        "",
        f"{'capacity':>14} {'optimum':>14} {'multiplier after':>18}",
    ]
    slopes = [*shown["multipliers"], 0.0]
    step = max(1, -(-count // FRONTIER_ROWS))
    lines += [
        f"{shown['capacities'][k]:14.8g} {shown['values'][k]:14.8g} {slopes[k]:18.8g}"
        for k in sorted({*range(0, count, step), count - 1})
    ]
    if step > 1:
        lines.append(f"(one breakpoint in {step}; --json has them all)")
    return "\n".join(lines)


def picture_title(name: str, answer: dict[str, Any]) -> str:
    """What a picture's policy is worth, in a line."""
    least = answer.get("least_violation")
    words = [f"value {answer['value']:.6g}" if least is None else "infeasible, least violation"]
    costs = (least or answer)["costs"]
    words += [
        f"{key} {costs[key]:.4g} (capacity {x:.4g})" for key, x in answer["capacities"].items()
    ]
    return f"{Path(name).stem}: {', '.join(words)}"


def _short(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
