"""The public models: what there is, what is on this machine, and downloads.

>>> import reseed
>>> [model.name for model in reseed.models.list()][:3]
['nano', 'nano-sharp', '3b']
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from dataclasses import dataclass

from . import _reseed

__all__ = ["Model", "list", "path", "pull"]


@dataclass(frozen=True)
class Model:
    """A public model, or an embedded one."""

    name: str
    """Its short name, such as ``3b``."""
    about: str
    """Its size and number format."""
    bytes: int
    """Bytes of its transformer."""
    file: str | None
    """The name of its transformer's file."""
    path: str | None
    """Where that file is on this machine."""
    embedded: bool
    """Whether it is part of this package."""


def list() -> builtins.list[Model]:
    """The embedded models and the public models, best first."""
    return [Model(**row) for row in _reseed.list_models()]


def path(name: str) -> tuple[str, str, str]:
    """The paths of a model's transformer, VAE and text embedding.

    >>> import reseed
    >>> try:
    ...     reseed.models.path("nano")
    ... except reseed.ModelError as error:
    ...     print(error)
    nano: this model is embedded and has no files
    """
    dit, vae, text = _reseed.model_paths(name)
    return os.fspath(dit), os.fspath(vae), os.fspath(text)


def pull(
    name: str,
    progress: Callable[[_reseed.Event], object] | None = None,
    cancel: _reseed.CancelToken | None = None,
) -> tuple[str, str, str]:
    """Downloads the files of a model that are not on this machine, and returns the paths of all.

    ``progress`` is called with events whose ``frames`` and ``total`` are bytes. An interrupted download continues where
    it stopped.
    """
    dit, vae, text = _reseed.pull_model(name, progress, cancel)
    return os.fspath(dit), os.fspath(vae), os.fspath(text)
