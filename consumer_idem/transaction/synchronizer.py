"""Functions registered to run around the end of a transaction. A list belongs to one attempt and dies with it."""

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from consumer_idem.transaction.uncancelled import uncancelled

log = logging.getLogger(__name__)

Function = Callable[..., Any]


class Synchronizer:
    """Runs registered functions before commit, after commit, after rollback; each at most once."""

    __slots__ = ("_after_commit", "_after_rollback", "_before_commit")

    def __init__(self) -> None:
        self._before_commit: list[partial[Any]] = []
        self._after_commit: list[partial[Any]] = []
        self._after_rollback: list[partial[Any]] = []

    def __bool__(self) -> bool:
        return bool(self._before_commit or self._after_commit or self._after_rollback)

    def register_before_commit(self, function: Function, *args: Any, **kwargs: Any) -> None:
        """Run `function` after the last handler; if it raises, nothing is committed."""
        self._before_commit.append(partial(function, *args, **kwargs))

    def register_after_commit(self, function: Function, *args: Any, **kwargs: Any) -> None:
        """Run `function` once the commit is confirmed."""
        self._after_commit.append(partial(function, *args, **kwargs))

    def register_after_rollback(self, function: Function, *args: Any, **kwargs: Any) -> None:
        """Run `function` once it is certain that the transaction, or this call's part of it, is undone."""
        self._after_rollback.append(partial(function, *args, **kwargs))

    def join(self, other: "Synchronizer") -> None:
        """Take over what `other` has registered, behind what is here."""
        self._before_commit += other._before_commit
        self._after_commit += other._after_commit
        self._after_rollback += other._after_rollback

    def mark(self) -> tuple[int, int]:
        """Return a mark for `undo_to`."""
        return len(self._before_commit), len(self._after_commit)

    def undo_to(self, mark: tuple[int, int]) -> None:
        """Forget what was registered for the commit since `mark`: a savepoint was rolled back."""
        del self._before_commit[mark[0] :]
        del self._after_commit[mark[1] :]

    async def before_commit(self) -> None:
        """Run the functions for before the commit; errors propagate."""
        functions, self._before_commit = self._before_commit, []
        for function in functions:
            await _call(function)

    async def after_commit(self) -> None:
        """Run the functions for after the commit; errors are logged, since the commit stands."""
        functions, self._after_commit = self._after_commit, []
        self._after_rollback = []
        await _run_all(functions, "after commit")

    async def after_rollback(self) -> None:
        """Run the functions for after a rollback; errors are logged."""
        functions, self._after_rollback = self._after_rollback, []
        self._after_commit = []
        await _run_all(functions, "after rollback")


async def _run_all(functions: list[partial[Any]], when: str) -> None:
    for function in functions:
        try:
            await _call(function)
        except Exception:
            log.exception("function registered for %s failed", when, extra={"function": repr(function.func)})


async def _call(function: Callable[[], Any | Awaitable[Any]]) -> None:
    result = function()
    if inspect.isawaitable(result):
        await uncancelled(result)
