# SPDX-License-Identifier: Apache-2.0
"""Handles that are closed by a with statement, or when they are garbage-collected."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

Self = TypeVar("Self", bound="Closing")


class Closing(ABC):
    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __getstate__(self) -> object:
        name = type(self).__name__
        raise TypeError(f"{name} cannot be copied or pickled, because closing one would close both")

    def __del__(self) -> None:
        # Nothing can handle a failure here, for example in a child after a fork.
        try:
            self.close()
        except Exception:  # noqa: S110
            pass
