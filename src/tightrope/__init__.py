"""Tightrope: online reinforcement learning with guarantees."""

__version__ = "0.1.0"
