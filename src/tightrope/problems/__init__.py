"""Named problems, each a function that returns a validated model."""

from tightrope.problems.gridworlds import box, mars_rover, random_map
from tightrope.problems.operations import (
    budget_pacing,
    inventory,
    machine_replacement,
    media_buffer,
    service_queue,
)
from tightrope.problems.random import random_cmdp

__all__ = [
    "box",
    "budget_pacing",
    "inventory",
    "machine_replacement",
    "mars_rover",
    "media_buffer",
    "random_cmdp",
    "random_map",
    "service_queue",
]
