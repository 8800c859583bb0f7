"""Modules that stand for torch and other large dependencies of ComfyUI, so that nodes can be imported without them."""
import importlib.abc
import importlib.machinery
import sys
import types

FAKED = ("torch", "torchaudio", "av", "PIL", "numpy", "tqdm", "packaging", "yaml", "psutil", "aiohttp", "server",
         "nodes", "comfy.model_management", "comfy.model_patcher", "comfy.utils")


def fake(name):
    """A class that accepts everything and whose every attribute is such a class."""
    if name.startswith("__"):
        raise AttributeError(name)
    return FakeType(name, (), {"__init__": lambda self, *args, **options: None})


class FakeType(type):
    """The type of a fake class."""

    def __getattr__(cls, name):
        return fake(name)


class FakeModule(types.ModuleType):
    """A module whose every name is a fake class."""

    __path__ = []

    def __getattr__(self, name):
        return fake(name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the faked modules and everything in them."""

    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(f"{each}.") for each in FAKED):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return FakeModule(spec.name)

    def exec_module(self, module):
        values = {
            "torch": {"cuda": types.SimpleNamespace(device_count=lambda: 0)},
            "nodes": {"NODE_CLASS_MAPPINGS": {}},
            "server": {"PromptServer": types.SimpleNamespace(instance=None)},
        }
        vars(module).update(values.get(module.__name__, {}))


def install():
    """Makes the fakes importable, before real modules of the same names."""
    sys.meta_path.insert(0, Finder())
