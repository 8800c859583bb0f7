"""Exceptions: one line each, with the data of the error as attributes."""

from __future__ import annotations

import builtins
from typing import Any, ClassVar


class ReseedError(Exception):
    """Something that Reseed could not do.

    ``kind`` and ``exit_code`` are those of the command line. Other attributes depend on the error: ``path``, ``frame``
    and ``position`` of a value that is not a number, ``needed`` and ``available`` bytes, ``frames_kept`` on disk.

    >>> import reseed
    >>> try:
    ...     reseed.Session("5b")
    ... except reseed.ReseedError as error:
    ...     print(error.kind, error.exit_code, error.known[:3])
    model 4 ['nano', 'nano-sharp', '3b']
    """

    kind: ClassVar[str] = "failed"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data: dict[str, Any] = data

    def __getattr__(self, name: str) -> Any:
        data: dict[str, Any] = self.__dict__.get("data", {})
        if name in data:
            return data[name]
        raise AttributeError(f"{type(self).__name__} has no {name!r}; its data is {sorted(data)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.message, self.data)


def _restore(kind: type[ReseedError], message: str, data: dict[str, Any]) -> ReseedError:
    return kind(message, **data)


class UsageError(ReseedError, ValueError):
    """Settings that contradict each other, or files that are in the way."""

    kind = "usage"
    exit_code = 2


class InputError(ReseedError, ValueError):
    """Frames or files that cannot be used."""

    kind = "input"
    exit_code = 3


class ModelError(ReseedError):
    """A model that is missing, unknown or damaged."""

    kind = "model"
    exit_code = 4


class MemoryError(ReseedError, builtins.MemoryError):
    """Not enough host or GPU memory."""

    kind = "memory"
    exit_code = 5


class DeviceError(ReseedError):
    """A device that is not available or failed."""

    kind = "device"
    exit_code = 6


class Cancelled(ReseedError):
    """The job was cancelled."""

    kind = "cancelled"
    exit_code = 130


class ReseedWarning(UserWarning):
    """Something that a user should know although the job continues."""
