"""``python -m tightrope`` is the command line."""

from tightrope.cli import script

script()
