"""Named problems, each a function that returns a validated model."""

from tightrope.problems.gridworlds import box, mars_rover, random_map
from tightrope.problems.random import random_cmdp

__all__ = ["box", "mars_rover", "random_cmdp", "random_map"]
