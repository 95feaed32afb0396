"""Settings that are no numbers, or out of range, are refused before anything is played."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from typing import Any

from tightrope.errors import ConfigError


def check_settings(
    name: str,
    config: Any,
    *,
    positive: Iterable[str] = (),
    not_negative: Iterable[str] = (),
    counts: Iterable[str] = (),
) -> None:
    """Raise ConfigError unless the fields of `config` are finite and in range.

    `counts` are whole numbers >= 1. None passes where it is the field's default.
    """
    for fields, wanted, fits in (
        (positive, "a finite number > 0", lambda value: value > 0),
        (not_negative, "a finite number >= 0", lambda value: value >= 0),
        (counts, "a whole number >= 1", lambda value: value >= 1 and value == int(value)),
    ):
        for field in fields:
            value = getattr(config, field)
            if value is None and getattr(type(config), field, 0) is None:
                continue
            number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if not (number and math.isfinite(value) and fits(value)):
                raise ConfigError(f"{name} needs {field} to be {wanted}, got {value!r}")
