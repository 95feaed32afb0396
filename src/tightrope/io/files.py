"""Bytes and text of a file, with a limit on what a small file may unpack to."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from tightrope.errors import ModelError

MAX_BYTES = 2 * 2**30
"""Default for the most bytes that a model file may unpack to (2 GiB)."""


def too_large(path: str | Path, max_bytes: int) -> ModelError:
    """The error for a file that unpacks to more than is allowed."""
    return ModelError(
        f"{path}: unpacks to more than {max_bytes:,} bytes; if that is meant, "
        "load(path, max_bytes=...) allows more"
    )


def read_bytes(path: str | Path, max_bytes: int = MAX_BYTES) -> bytes:
    """The whole file, unpacked if its name ends in ``.gz``; ModelError if that is too much."""
    path = Path(path)
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else open(path, "rb") as file:
            data = file.read(max_bytes + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ModelError(f"{path}: damaged or cut gzip file ({error})") from error
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(data) > max_bytes:
        raise too_large(path, max_bytes)
    return data


def decode(path: str | Path, data: bytes, first_line: int = 1) -> str:
    """UTF-8 text, with or without a byte order mark; ModelError names the line of a bad byte."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ModelError(f"{path}: is UTF-16 text; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + first_line
        raise ModelError(
            f"{path}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file as "
            "UTF-8 (for Latin-1 text: iconv -f latin1 -t utf-8)"
        ) from error


def read_text(path: str | Path, max_bytes: int = MAX_BYTES) -> str:
    """The file as text; see `read_bytes` and `decode`."""
    return decode(path, read_bytes(path, max_bytes))


def write_whole(path: str | Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file completely or not at all."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            write(file)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
