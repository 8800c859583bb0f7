"""The examples in docstrings run as they are printed."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["reseed", "reseed._errors", "reseed._session", "reseed.models"])
def test_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert failed == 0 and tried > 0
