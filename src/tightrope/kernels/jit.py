"""The one decorator for compiled kernels: numba, cached on disk where a cache can be written.

A cache that cannot be written, or that another process is writing, never stops a run: the kernel is
then compiled in memory.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from typing import Any

import numba
from numba.core.caching import FunctionCache

CACHE_FAULTS = (OSError, EOFError, pickle.PickleError)
WATCHERS: list[Callable[[], None]] = []
"""Called, once, before a kernel is compiled that no cache holds."""


class _TolerantCache(FunctionCache):
    """numba's function cache, for which an unreadable or unwritable file is only a miss."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = None
        with contextlib.suppress(*CACHE_FAULTS):
            found = super().load_overload(sig, target_context)
        while found is None and WATCHERS:
            WATCHERS.pop()()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except CACHE_FAULTS:
            return


def _vectorised(compile_signature: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with LLVM's straight-line vectoriser, which numba leaves off unless told.

    Kernels that carry four objectives or channels side by side are four times as fast for it.
    """

    def compiled(signature: Any) -> Any:
        before = numba.config.SLP_VECTORIZE
        numba.config.SLP_VECTORIZE = 1
        try:
            return compile_signature(signature)
        finally:
            numba.config.SLP_VECTORIZE = before

    return compiled


def kernel(function: Callable[..., Any] | None = None, *, parallel: bool = False) -> Any:
    """Compile a function of arrays and scalars; `parallel=True` allows `prange`.

    The plain function stays reachable as ``.py_func``. A kernel whose name has a leading underscore
    is called by kernels only: it gets no wrapper for Python, which takes long to compile. None gets
    one for C.
    """
    if function is None:
        return lambda f: kernel(f, parallel=parallel)
    internal = function.__name__.startswith("_")
    dispatcher = numba.njit(
        parallel=parallel, nogil=True, error_model="numpy", no_cpython_wrapper=internal,
        no_cfunc_wrapper=True,
    )(function)  # fmt: skip
    with contextlib.suppress(RuntimeError):  # no folder that could hold the cache
        dispatcher._cache = _TolerantCache(function)
    dispatcher.compile = _vectorised(dispatcher.compile)
    return dispatcher
