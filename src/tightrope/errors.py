"""Exceptions and outcomes. A message says what was expected, what came and where."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from enum import StrEnum
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tightrope.planning.solution import Solution


class TightropeError(Exception):
    """Base of every error that Tightrope raises on purpose."""


class ModelError(TightropeError, ValueError):
    """A model, a policy or a model file is not what it must be."""


class ConfigError(TightropeError, ValueError):
    """An argument, a configuration or an unknown name."""


class UndeclaredError(ConfigError):
    """Prior knowledge that a learner needs and nobody declared; `name` says which."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


class ResultError(TightropeError):
    """A results folder is missing, damaged or belongs to another experiment."""


class MissingExtraError(TightropeError, ImportError):
    """An optional package is needed; the message names the extra that brings it."""


class PlanError(TightropeError):
    """A plan that was needed has no solution; `solution` carries what is known."""

    def __init__(self, message: str, solution: Solution) -> None:
        super().__init__(message)
        self.solution = solution


class ModelWarning(UserWarning):
    """A model was accepted with a correction, which the text states."""


class Status(StrEnum):
    """How a numerical computation ended; `sentence` says it in words."""

    SOLVED = "solved"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    NOT_CONVERGED = "not_converged"

    @property
    def sentence(self) -> str:
        return {
            "solved": "solved to the tolerance stated by the gap",
            "infeasible": "no policy keeps every capacity",
            "unbounded": "the value has no finite maximum",
            "not_converged": "stopped before the tolerance was reached; the bounds still hold",
        }[self.value]


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """An error for a name that nobody registered, with the nearest known one."""
    names = sorted(known)
    hint = did_you_mean(name, names) or f"; known: {', '.join(names)}"
    return ConfigError(f"unknown {kind} '{name}'{hint}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message: the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else ""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say which extra installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise MissingExtraError(
            f"this needs the package '{package}': pip install 'tightrope[{extra}]' ({error})"
        ) from error
